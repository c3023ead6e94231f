"""The plan of a program: its equations in groups, what stays float, and the values whose ranges are needed.

Made from types, scopes and the policy alone, so that calibration and quantization, which make it separately, agree.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, final

from nxjax.errors import ParameterError, Source
from nxjax.ops.arithmetic import Mul, abs, add, integer_pow, max, min, mul, neg, sub
from nxjax.ops.base import Elementwise, like
from nxjax.ops.compare import le
from nxjax.ops.composite_activation import elu, hard_swish, silu, softplus
from nxjax.ops.composite_attention import dot_product_attention
from nxjax.ops.composite_norm import batch_norm_inference, layer_norm, rms_norm
from nxjax.ops.composite_softmax import softmax
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.cumulative import cumsum
from nxjax.ops.dot import dot_general
from nxjax.ops.elementary import exp, expm1, log, log1p
from nxjax.ops.indexing import gather
from nxjax.ops.quant_grid import Grid
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.quant.groups import FusedGroup
from nxjax.quant.patterns import fuse_patterns
from nxjax.quant.pointwise import (
    LARGEST_FACTOR,
    UNIFIES,
    ClampedGrid,
    GridKeeping,
    QuantBinary,
    QuantSoftmax,
    TableFunction,
    Unify,
    keeps_grid,
    match_pointwise,
)
from nxjax.quant.products import is_product, match_product, too_deep
from nxjax.quant.scheme import Layered, Policy, Scheme, in_float, resolve_policy
from nxjax.quant.spelled import magnitudes
from nxjax.quant.subprograms import HOLDING, LOOPS
from nxjax.quant.view import WeightView
from nxjax.quant.weight_groups import match_lookup
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import Shape
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.custom_op import CustomOp
from nxjax.transforms.inline import inlined
from nxjax.transforms.slice_updates import use_slice_updates

# Known whole to devices, but to integer arithmetic only by their pieces (hard_swish to that of 16 bits).
EXPANDED: Final[frozenset[Op]] = frozenset(
    (silu, hard_swish, layer_norm, rms_norm, batch_norm_inference, dot_product_attention)
)
# Running sums over at most so many elements are products with a triangle of ones.
LONGEST: Final = 512
# How far below the others a masked value has to lie to become 0: half a step of a softmax's grid, as a logarithm.
MARGINS: Final = {dtypes.int8: 6.5, dtypes.int16: 11.5}
# The same for a mask before it is added to values that differ among themselves.
ADDED: Final = 64.0
SHIFTS: Final[frozenset[Op]] = frozenset((add,))
# Extreme elements stay extreme ones, though each result depends on all.
MONOTONE: Final[frozenset[Op]] = frozenset((softmax,))
# What looks for the extreme elements of its operand.
EXTREMES: Final = frozenset(("reduce_max", "reduce_min", "argmax", "argmin", "sort", "top_k", "cummax", "cummin"))
# Beyond these operands, results of 8 bits stay as they are: by less than half a step of the grid of [0, 1) or [-1, 1).
SATURATED: Final = {
    "hard_swish": (-3.0, math.inf),
    "logistic": (-6.3, 6.3),
    "tanh": (-2.8, 2.8),
}
JIT: Final = frozenset(("jit", "bucketed", "call_exported", "composite"))


@final
@dataclass(eq=False)
class Inner:
    """An equation that holds programs, and their plans in parameter order."""

    equation: Equation
    plans: tuple[QuantPlan, ...]


Step = FusedGroup | Inner | Equation


class MaskedRow(NamedTuple):
    """How far below the others a masked value lies, and the axis of its rows; None where they lie in no one axis."""

    margin: float
    axis: int | None


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

    def layer(self, group: FusedGroup) -> str:
        """What policies and reports call a group: the name of what its first equation makes."""
        return self.names[group.equations[0].outputs[0]]

    def groups(self) -> list[FusedGroup]:
        """The groups at this level, in order."""
        return [s for s in self.steps if isinstance(s, FusedGroup)]

    def all_layers(self) -> list[str]:
        """Names of this plan's groups and those of its inner plans."""
        inner = [p for s in self.steps if isinstance(s, Inner) for p in s.plans]
        return [*map(self.layer, self.groups()), *(layer for p in inner for layer in p.all_layers())]

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


def make_plan(program: Program, weights: Sequence[bool], policy: Policy) -> QuantPlan:
    """The plan of ``program``, whose inputs marked in ``weights`` hold weights."""
    return _Planner(policy).plan(program, weights, "")


def named_grid(e: Equation) -> Grid | None:
    """The grid that an equation puts its operand on, as `quantize_dequantize` does."""
    grid = e.params.get("grid")
    return grid if isinstance(grid, Grid) else None


def named_policy(program: Program, weights: Sequence[bool], grids: Mapping[Var, Grid]) -> Policy:
    """The policy that quantizes what reads a value on a named grid, with integers of that grid's size.

    `quantize_dequantize` names grids, and ``grids`` those of inputs.
    """
    plan = make_plan(program, weights, lambda op, scope, types: None)
    answers: dict[str, Scheme | str | None] = {}
    on = {v: grid.dtype for v, grid in grids.items()}
    for e in plan.program.equations:
        read = next((on[a] for a in e.inputs if isinstance(a, Var) and a in on), None)
        grid = named_grid(e)
        if grid is not None:
            on[e.outputs[0]] = grid.dtype
        elif read is not None and e.outputs:
            answers[plan.names[e.outputs[0]]] = Scheme(activations=read, dense_per_channel=True)
            if keeps_grid(e):
                on[e.outputs[0]] = read
    return Layered(lambda op, scope, types: None, answers)


@final
class _Planner:
    def __init__(self, policy: Policy, why: str = "") -> None:
        self.policy = policy
        # Why everything is left in float, if all is.
        self.why = why

    def plan(self, program: Program, weights: Sequence[bool], prefix: str) -> QuantPlan:
        program, names = self._prepared(program, weights, prefix)
        view = WeightView(program, weights)
        plan = QuantPlan(program, names)
        wide = magnitudes(program, view)
        taken: set[Equation] = set()
        starts: dict[Equation, FusedGroup] = {}
        for e in program.equations:
            if e in taken or e.op.nested or all(view.is_weight(a) for a in e.inputs):
                continue
            group = self._group(plan, view, e, e in wide)
            if group is not None and not taken.intersection(group.equations):
                # Computed where its last equation stands, when all its operands are there.
                starts[group.equations[-1]] = group
                taken.update(group.equations)
        self._steps(plan, view, starts, taken)
        _Sites(plan, view).find()
        return plan

    def _prepared(self, program: Program, weights: Sequence[bool], prefix: str) -> tuple[Program, dict[Var, str]]:
        program = use_slice_updates(inlined(program, 0, JIT))
        names = {v: f"{prefix}in_{i}" for i, v in enumerate(program.inputs)}
        names.update((v, f"{prefix}const_{i}") for i, v in enumerate(program.constvars))
        _name(program.equations, prefix, names)
        if any(map(_in_pieces, program.equations)):
            program = _Expanding(program, self.policy, names).program()
        program = fuse_patterns(program, weights, self.policy, names)
        if any(e.op in WIDE for e in program.equations):
            program = _Expanding(program, self.policy, names).program()
        return _alive(program), names

    def _group(self, plan: QuantPlan, view: WeightView, e: Equation, wide: bool) -> FusedGroup | None:
        scheme = resolve_policy(self.policy, e, plan.names)
        if scheme is None:
            return None
        if wide and scheme.integer:
            scheme = replace(scheme, activations=dtypes.int16)
        return match_product(view, e, scheme) or match_lookup(view, e, scheme) or match_pointwise(view, e, scheme)

    def _steps(
        self,
        plan: QuantPlan,
        view: WeightView,
        starts: dict[Equation, FusedGroup],
        taken: set[Equation],
    ) -> None:
        for e in plan.program.equations:
            if e in starts:
                plan.steps.append(starts[e])
            elif e in taken:
                continue
            elif e.op.name in HOLDING and any(map(_computes, e.programs())):
                name = plan.names[e.outputs[0]].removesuffix(".0")
                masks = _inner_weights(e, [view.is_weight(a) for a in e.inputs])
                programs = list(e.programs())
                within = [f"{name}/" if len(programs) == 1 else f"{name}/{k}/" for k in range(len(programs))]
                # How often a loop runs is no matter of rounding.
                decides = _Planner(in_float, _CONDITION) if len(programs) == 2 and e.op.name in LOOPS else self
                makers = [decides, *[self] * (len(programs) - 1)]
                rows = zip(makers, programs, masks, within, strict=True)
                inner = tuple(make.plan(p, mask, w) for make, p, mask, w in rows)
                plan.steps.append(Inner(e, inner))
            else:
                plan.steps.append(e)
                if not all(view.is_weight(a) for a in e.inputs) and any(view.is_float(v) for v in e.outputs):
                    scheme = resolve_policy(self.policy, e, plan.names)
                    deep = scheme is not None and too_deep(e, scheme)
                    plan.left.append((e, self.why or (_TOO_DEEP if deep else _FLOAT)))


# Why equations stay float.
_FLOAT: Final = "no integer form, or the policy leaves it in float"
_CONDITION: Final = "it decides how often a loop runs, which stays float"
_TOO_DEEP: Final = "sums more elements than integer accumulators hold"


def _alive(program: Program) -> Program:
    """Without what nothing needs, which would count as another user of a value, and want a range."""
    wanted = {a for a in program.outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for e in reversed(program.equations):
        if e.effect or not wanted.isdisjoint(e.outputs):
            kept.append(e)
            wanted.update(a for a in e.inputs if isinstance(a, Var))
    if len(kept) == len(program.equations):
        return program
    return Program(program.inputs, kept[::-1], program.outputs, program.constvars, program.values, program.name)


def _name(equations: Sequence[Equation], prefix: str, names: dict[Var, str]) -> None:
    """Call what each equation makes after its op, numbered by op."""
    counts: dict[str, int] = {}
    for e in equations:
        n = counts[e.op.name] = counts.get(e.op.name, -1) + 1
        for i, v in enumerate(e.outputs):
            names[v] = f"{prefix}{e.op.name}_{n}" + (f".{i}" if e.op.multi else "")


@final
class _Expanding:
    """Writes composites out where the policy wants integers, everything else as it is."""

    def __init__(self, program: Program, policy: Policy, names: dict[Var, str]) -> None:
        self.source = program
        self.policy = policy
        self.names = names

    def program(self) -> Program:
        p = self.source
        equations: list[Equation] = []
        consts, values = list(p.constvars), list(p.values)
        env: dict[Var, Atom] = {}

        def atom(a: Atom) -> Atom:
            return env.get(a, a) if isinstance(a, Var) else a

        for e in p.equations:
            e = e.replaced(tuple(map(atom, e.inputs)), e.outputs)
            scheme = None
            if _in_pieces(e):
                scheme = resolve_policy(self.policy, e, self.names)
            if scheme is None or scheme.activations is None or not (scheme.integer or e.op is dot_product_attention):
                equations.append(e)
                continue
            if _tabulated(e) and scheme.activations != dtypes.int16:
                equations.append(e)
                continue
            inner = stage(lambda *xs, e=e: [_pieces(e, *xs)], [a.type for a in e.inputs], e.op.name)
            renamed: dict[Var, Atom] = dict(zip(inner.inputs, e.inputs, strict=True))
            whole = self.names[e.outputs[0]]
            _name(inner.equations, f"{whole}/", self.names)
            consts.extend(inner.constvars)
            values.extend(inner.values)
            for i in inner.equations:
                inputs = tuple(renamed.get(a, a) if isinstance(a, Var) else a for a in i.inputs)
                # The user's line and scope are those of the composite.
                equations.append(Equation(i.op, inputs, i.outputs, i.params, e.source, e.scope))
            result = inner.outputs[0]
            env[e.outputs[0]] = renamed.get(result, result) if isinstance(result, Var) else result
        return Program(p.inputs, equations, [atom(a) for a in p.outputs], consts, values, p.name)


def _in_pieces(e: Equation) -> bool:
    """Whether integer arithmetic knows an op by its pieces only; an op that a program defined may say so itself."""
    if e.op in PIECES:
        x = e.inputs[0].type
        return x.dtype == dtypes.float32 and 0 < x.shape[e.params["axis"]] <= LONGEST
    if e.op in WIDE:
        return e.inputs[0].type.dtype == dtypes.float32 and e.params.get("y", 1) > 0
    return e.op in EXPANDED or e.op.quantized == "expand" or _tabulated(e)


def _tabulated(e: Equation) -> bool:
    """Whether an op with pieces is a table all the same, of 8 bits: of 16, no device has one."""
    return (
        e.op is hard_swish
        or e.op in WIDE
        or (isinstance(e.op, CustomOp) and e.op.quantized == "table" and not e.op.numpy)
    )


def _pieces(e: Equation, *xs: Array) -> Array:
    """What ``e`` computes, in the ops that integer arithmetic knows."""
    return (PIECES | WIDE).get(e.op, e.op.expand)(*xs, **e.params)


def running_sum(x: Array, axis: int, reverse: bool) -> Array:
    """cumsum as a product with a triangle of ones: rounded once, and every NPU multiplies matrices."""
    n, rest = x.shape[axis], [i for i in range(x.ndim) if i != axis]
    place = lambda d: iota(dtype=dtypes.int32, shape=(n, n), dimension=d)
    first, last = (place(1), place(0)) if reverse else (place(0), place(1))
    ones = convert_element_type(le(first, last), dtype=x.dtype)
    y = dot_general(x, ones, dimension_numbers=(((axis,), (0,)), ((), ())))
    order = [*rest, axis]
    return transpose(y, permutation=tuple(order.index(i) for i in range(x.ndim)))


# What has pieces here that are not its expansion.
PIECES: Final[dict[Op, Callable[..., Array]]] = {cumsum: running_sum}


def _power(x: Array, y: int) -> Array:
    """By products: the squares of ``x`` that ``y`` is a sum of."""
    odd, even = None, x
    while y > 1:
        odd = odd if y % 2 == 0 else even if odd is None else mul(odd, even)
        even, y = mul(even, even), y // 2
    return even if odd is None else mul(odd, even)


def _elu(x: Array) -> Array:
    return add(max(x, like(x, 0)), _expm1(min(x, like(x, 0))))


def _expm1(x: Array) -> Array:
    return sub(exp(x), like(x, 1))


def _log1p(x: Array) -> Array:
    return log(add(x, like(x, 1)))


def _softplus(x: Array) -> Array:
    return add(max(x, like(x, 0)), _log1p(exp(neg(abs(x)))))


# Tables of 8 bits, which chips have no kernels of 16 bits for: what such kernels make them of.
WIDE: Final[dict[Op, Callable[..., Array]]] = {
    elu: _elu, expm1: _expm1, log1p: _log1p, softplus: _softplus, integer_pow: _power,
}  # fmt: skip


def _computes(program: Program) -> bool:
    """Whether a program, or one it holds, has a product: what is worth looking into."""
    return any(
        is_product(e) or e.op is dot_product_attention or any(map(_computes, e.programs()))
        for e in inlined(program, 0, JIT).equations
    )


def _inner_weights(e: Equation, outer: Sequence[bool]) -> list[list[bool]]:
    """Per held program, which of its inputs hold weights, from which operands of the equation do."""
    name, params = e.op.name, e.params
    outer = list(outer)
    if name in LOOPS:
        loop: LoopParams = params["loop"]
        # A carry starts as what it is given and becomes something else.
        x = loop.split(outer)._replace(carry=[False] * loop.num_carry)
        return [list(x.body_inputs)] if loop.cond is None else [list(x.cond_inputs), list(x.body_inputs)]
    if name == "cond":
        return [outer[1:] for _ in params["branches"]]
    programs = list(e.programs())
    return [outer if len(p.inputs) == len(outer) else [False] * len(p.inputs) for p in programs]


@final
class _Sites:
    """Which values need a range: results of groups whose grid no specification fixes, and operands not on a grid."""

    def __init__(self, plan: QuantPlan, view: WeightView) -> None:
        self.plan = plan
        self.view = view
        self.on: dict[Var, DType] = {}
        self.made: dict[Var, FusedGroup] = {}

    def find(self) -> None:
        made = self.made
        for step in self.plan.steps:
            if isinstance(step, FusedGroup) and step.scheme.integer:
                self._group(step)
                made[step.output] = step
        for step in self.plan.steps:
            if isinstance(step, QuantSoftmax) and step.scheme.integer:
                axis = step.equations[0].params["axis"]
                self._masked(step.activations[0], MaskedRow(MARGINS[step.dtype], axis), made)
        for e in self.plan.program.equations:
            self._masking(e)
        for e in reversed(self.plan.program.equations):
            for v in e.outputs:
                self._partly(v)
        readers: dict[Var, list[FusedGroup | None]] = {}
        for step in self.plan.steps:
            group = step if isinstance(step, FusedGroup) and step.scheme.integer else None
            own = (
                step.equations
                if isinstance(step, FusedGroup)
                else (step.equation if isinstance(step, Inner) else step,)
            )
            for v in {a for e in own for a in e.inputs if isinstance(a, Var)}:
                readers.setdefault(v, []).append(group)
        self.plan.extreme.update(self.view.results)
        for e in reversed(self.plan.program.equations):
            for v in e.outputs:
                self._bounded(v, readers.get(v, []))
            if e.op.name in EXTREMES or (_goes_on(e) and not self.plan.extreme.isdisjoint(e.outputs)):
                self.plan.extreme.update(a for a in e.inputs if isinstance(a, Var))
        # Inputs are left alone: onto a grid without negative numbers, relu would be done before the chip has begun.

    def _bounded(self, v: Var, readers: Sequence[FusedGroup | None]) -> None:
        """Mark ``v`` if all who read it make the same of every value beyond some bound."""
        if v in self.view.results or not self.view.is_float(v) or not readers or v in self.plan.masked:
            return
        ends = [(-math.inf, math.inf) if g is None else self._saturates(g, v) for g in readers]
        low, high = builtins.min(a for a, _ in ends), builtins.max(b for _, b in ends)
        if low <= high and (low, high) != (-math.inf, math.inf):
            self.plan.bounds[v] = low, high

    def _saturates(self, group: FusedGroup, v: Var) -> tuple[float, float]:
        """Beyond which values of its operand ``v`` a group's result stays as it is."""
        everywhere = -math.inf, math.inf
        if isinstance(group, ClampedGrid):
            low, high = group.clamp.low, group.clamp.high
            return (-math.inf if low is None else low, math.inf if high is None else high)
        if isinstance(group, TableFunction):
            return SATURATED.get(group.function, everywhere) if group.dtype == dtypes.int8 else everywhere
        if isinstance(group, GridKeeping) and group.activations[0] is v:
            return self.plan.bounds.get(group.output, everywhere)
        if isinstance(group, QuantBinary) and isinstance(group.equations[0].op, Mul):
            return self._gated(group, v)
        if isinstance(group, QuantBinary) and group.equations[0].op in SHIFTS:
            other = self.view.other(group.equations[0], v)
            shift = None if other is None else self.view.number(other)
            if shift is not None:
                low, high = group.clamp.low, group.clamp.high
                return (-math.inf if low is None else low - shift, math.inf if high is None else high - shift)
        return everywhere

    def _gated(self, group: FusedGroup, v: Var) -> tuple[float, float]:
        """x * clip(x + 3, 0, 6), a hard_swish in pieces, is 0 below -3."""
        gate = self.made.get(other) if isinstance(other := self.view.other(group.equations[0], v), Var) else None
        if not isinstance(gate, QuantBinary) or gate.clamp.low != 0 or v not in gate.activations:
            return -math.inf, math.inf
        return self._saturates(gate, v)[0], math.inf

    def _partly(self, v: Var) -> None:
        """Mark ``v`` if all who read it choose among its elements, or go on one by one to someone who does."""
        partly = self.plan.partly
        found: list[tuple[Equation, int | None]] = []
        for e in self.view.users.get(v, ()):
            y = next(iter(e.outputs), None)
            if e.op.name == "select_n" and e.inputs[0] is not v:
                found += [(e, i) for i, a in enumerate(e.inputs[1:]) if a is v]
            elif isinstance(e.op, Elementwise) and y is not None and y in partly and y.type.shape == v.type.shape:
                found.append((e, None))
            else:
                return
        if found and self.view.is_float(v) and v not in self.view.results and v not in self.plan.masked:
            partly[v] = found

    def _masking(self, e: Equation) -> None:
        """Mark what a mask makes very low, and what is made of it; the calibration data may have nothing to mask."""
        if not e.outputs or (y := e.outputs[0]) not in self.plan.masked:
            return
        masks = _MASKING.get(e.op.name)
        low = masks is not None and masks(self, e)
        if low or any(a in self.plan.masking for a in e.inputs):
            self.plan.masking.add(y)

    def masks_by_choice(self, e: Equation) -> bool:
        return any((self.view.number(a) or 0.0) <= -LARGEST_FACTOR for a in e.inputs[1:])

    def masks_by_product(self, e: Equation) -> bool:
        number = self.view.number
        x, factor = e.inputs if number(e.inputs[0]) is None else e.inputs[::-1]
        value = number(factor) or 0.0
        low = builtins.abs(value) >= LARGEST_FACTOR
        while low and isinstance(x, Var):
            self.plan.least[x] = (0.0, 1.0) if value < 0 else (-1.0, 0.0)
            made = self.view.producer.get(x)
            x = made.inputs[0] if made is not None and keeps_grid(made) else None
        return low

    def _masked(self, a: Atom, masked: MaskedRow, made: dict[Var, FusedGroup]) -> None:
        """Mark what enters a softmax, and what masks are added to on the way there."""
        if not isinstance(a, Var) or a in self.plan.masked:
            return
        self.plan.masked[a] = masked
        group = made.get(a)
        if isinstance(group, (GridKeeping, Unify)):
            for operand in group.activations:
                self._masked(
                    operand, masked._replace(axis=_axis_before(group.equations[0], masked.axis, operand)), made
                )
        elif isinstance(group, QuantBinary) and group.equations[0].op.name == "add":
            for operand in group.activations:
                self._masked(operand, masked._replace(margin=ADDED), made)

    def _group(self, group: FusedGroup) -> None:
        # Operands that share the result's grid go there directly.
        for a in () if isinstance(group, Unify) else group.activations:
            if isinstance(a, Var) and self.on.get(a) != group.dtype:
                self.plan.sites[a] = self.plan.names.get(a) or f"{self.plan.names[group.output]}/operand"
        if group.fixed_grid() is None and not group.moves:
            self.plan.sites[group.output] = self.plan.names[group.output]
        self.on[group.output] = group.dtype


def _goes_on(e: Equation) -> bool:
    """Whether extreme elements of operands are those of the result."""
    return isinstance(e.op, Elementwise) or keeps_grid(e) or e.op.name in UNIFIES or e.op in MONOTONE


def _axis_before(e: Equation, axis: int | None, a: Atom) -> int | None:
    """The axis of ``a`` that becomes ``axis`` of what ``e`` makes of it, if one axis does."""
    if axis is None:
        return None
    old, new = a.type.shape, e.outputs[0].type.shape
    find = _AXES.get(e.op)
    if find is not None:
        return find(e.params, axis, old, new)
    # Others of the same rank leave axes where they are.
    return axis if len(old) == len(new) else None


def _before_reshape(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    after = math.prod(new[axis + 1 :])
    return next((i for i, n in enumerate(old) if n == new[axis] and math.prod(old[i + 1 :]) == after), None)


def _before_broadcast(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    dims = params["broadcast_dimensions"]
    return dims.index(axis) if axis in dims else None


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
            fix="say which arguments hold weights: params=(0,), or pass them as a tree; an array is data"
            if product is not None and all(a.type.dtype == dtypes.float32 for a in product.inputs)
            else "check the policy, and that the function computes in float32",
            source=product.source if product is not None else None,
        )


# Whether an op makes a mask, by a very low number.
_MASKING: Final = {"select_n": _Sites.masks_by_choice, "mul": _Sites.masks_by_product}
# Ops that move axes: which of the operand's is an axis of the result.
_AXES: Final[dict[Op, Callable[[dict[str, Any], int, Shape, Shape], int | None]]] = {
    transpose: lambda params, axis, old, new: params["permutation"][axis],
    reshape: _before_reshape,
    broadcast_in_dim: _before_broadcast,
    gather: lambda params, axis, old, new: None,
}
