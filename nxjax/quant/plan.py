"""The plan of a program: its equations in groups, what stays float, and the values whose ranges are needed.

Made from types, scopes and the policy alone, so that calibration and quantization, which make it separately, agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

from nxjax.errors import ParameterError, Source
from nxjax.ops.quant_grid import Grid
from nxjax.quant.groups import FusedGroup
from nxjax.quant.products import is_product
from nxjax.trace import dtypes
from nxjax.trace.program import Equation, Program, Var


@final
@dataclass(eq=False)
class Inner:
    """An equation that holds programs, and their plans in parameter order."""

    equation: Equation
    plans: tuple[QuantPlan, ...]


Step = FusedGroup | Inner | Equation


class MaskedRow(NamedTuple):
    """How far below the others a masked value has to lie, and what is one.

    Attributes:
        axis: of the rows in which values are compared; None where they lie in no one axis.
        highest: masks are at most this; None where whatever lies far below the greatest is one.
    """

    margin: float
    axis: int | None
    highest: float | None = None


@final
@dataclass(eq=False)
class QuantPlan:
    """How to walk a program.

    Attributes:
        program: the program, with calls and composites written out.
        names: what each value is called: by the op that makes it, numbered in program order. What a policy decides
            changes no name, so that ranges found under one policy serve another.
        steps: what to compute, in order: a group, an equation that holds programs, or one that stays as it is.
        sites: names of the values whose ranges are needed; those of inner plans begin with their equation's name.
        masked: values on the way into a softmax, where very low ones only mean "not this": they have no part in the
            range, which instead reaches below the others.
        masking: those of them that a mask can make very low, whether or not it did so in the calibration data.
        bounds: beyond these, every reader of a value makes the same of it: the range ends there.
        extreme: results, and values whose greatest or least elements are looked for: nothing far out may be cut.
        least: what the range of a value has to include at least: factors of masks, such as ``1 - here``.
        partly: values of which a `where` later takes some elements only, after those made of them, with who reads
            them: a choice and which of its cases this is, or an op (None) that goes on one by one. The others have no
            part in the range: in ``where(x > 0, sqrt(x), 0)`` they are NaN.
        left: equations of float values that stay float, each with the reason.
        held: by a step, the calls that ended with it, which give their last operands a derivative of their own.
    """

    program: Program
    names: dict[Var, str]
    steps: list[Step] = field(default_factory=list[Step])
    sites: dict[Var, str] = field(default_factory=dict[Var, str])
    masked: dict[Var, MaskedRow] = field(default_factory=dict[Var, MaskedRow])
    masking: set[Var] = field(default_factory=set[Var])
    extreme: set[Var] = field(default_factory=set[Var])
    bounds: dict[Var, tuple[float, float]] = field(default_factory=dict[Var, tuple[float, float]])
    least: dict[Var, tuple[float, float]] = field(default_factory=dict[Var, tuple[float, float]])
    partly: dict[Var, list[tuple[Equation, int | None]]] = field(
        default_factory=dict[Var, list[tuple[Equation, int | None]]]
    )
    left: list[tuple[Equation, str]] = field(default_factory=list[tuple[Equation, str]])
    held: dict[Step, list[Equation]] = field(default_factory=dict[Step, list[Equation]])

    def layer(self, group: FusedGroup) -> str:
        """What policies and reports call a group: the name of what its first equation makes."""
        return self.names[group.equations[0].outputs[0]]

    def groups(self) -> list[FusedGroup]:
        """The groups at this level, in order."""
        return [s for s in self.steps if isinstance(s, FusedGroup)]

    def integer(self) -> list[FusedGroup]:
        """Those of them that compute on integers."""
        return [g for g in self.groups() if g.scheme.integer]

    def holds_integers(self) -> bool:
        """Whether anything computes on integers; in inner plans too."""
        inner = [p for step in self.steps if isinstance(step, Inner) for p in step.plans]
        return bool(self.integer()) or any(p.holds_integers() for p in inner)

    def all_sites(self) -> list[str]:
        """Names of this plan's sites and those of its inner plans."""
        names = list(self.sites.values())
        for step in self.steps:
            if isinstance(step, Inner):
                for inner in step.plans:
                    names += inner.all_sites()
        return names

    def elements(self) -> dict[str, int]:
        """How many elements each site's value has; 0 where extreme ones are looked for. Of inner plans too."""
        found = {site: 0 if v in self.extreme else v.type.size for v, site in self.sites.items()}
        for step in self.steps:
            for inner in step.plans if isinstance(step, Inner) else ():
                found.update(inner.elements())
        return found

    def sources(self) -> dict[str, Source | None]:
        """The line that makes each site's value, or that first reads it, in program order; of inner plans too."""
        found: dict[str, Source | None] = {}
        for e in self.program.equations:
            for v in (*e.inputs, *e.outputs):
                if isinstance(v, Var) and v in self.sites:
                    found.setdefault(self.sites[v], e.source)
        for step in self.steps:
            for inner in step.plans if isinstance(step, Inner) else ():
                found.update(inner.sources())
        return found

    def origins(self) -> dict[str, int]:
        """What each site's value is computed from: a bit for each input of the program, then for each constant.

        Programs whose values have the same names may differ in this: an einsum of three operands has an order of its
        products for each of their sizes. Sites of inner plans have the bits of their own programs.
        """
        given = (*self.program.inputs, *self.program.constvars)
        bits = {v: 1 << i for i, v in enumerate(given)}
        for e in self.program.equations:
            read = 0
            for v in e.inputs:
                read |= bits.get(v, 0) if isinstance(v, Var) else 0
            bits.update(dict.fromkeys(e.outputs, read))
        found = {site: bits.get(v, 0) for v, site in self.sites.items()}
        for step in self.steps:
            for inner in step.plans if isinstance(step, Inner) else ():
                found.update(inner.origins())
        return found


def named_grid(e: Equation) -> Grid | None:
    """The grid that an equation puts its operand on, as `quantize_dequantize` does."""
    grid = e.params.get("grid")
    return grid if isinstance(grid, Grid) else None


def check_inputs(plan: QuantPlan, what: str) -> None:
    """Refuse a plan in which nothing is quantized."""
    if not any(isinstance(s, (FusedGroup, Inner)) for s in plan.steps):
        results = [(e.op.name, v.type.dtype) for e in plan.program.equations for v in e.outputs[:1]]
        used = sorted({f"{name} in {dtypes.short_name(dtype)}" for name, dtype in results})
        product = next((e for e in plan.program.equations if is_product(e)), None)
        raise ParameterError(
            f"{what}: nothing in the function is quantized",
            got=", ".join(used) or "no equations",
            expected="float32 products with weights, or other ops that the policy covers",
            fix="say which arguments hold weights: params=(0,), or pass them as a tree; an array is data. With "
            "params=() all arguments are data, trees too"
            if product is not None and all(a.type.dtype == dtypes.float32 for a in product.inputs)
            else "check the policy, and that the function computes in float32",
            source=product.source if product is not None else None,
        )
