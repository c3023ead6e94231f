"""Equations that hold programs: calls are written out; of loops and branches, which operand becomes which input.

Knows the parameters of `scan`, `while`, `cond` and calls with a derivative of their own. Knows nothing of grids or
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.ops.shape import reshape
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.custom_jvp import Rule
from nxjax.transforms.custom_vjp import Forward, Pullback
from nxjax.transforms.inline import Inliner

# Calls that are written out, and those that are together with their derivative.
CALLS: Final = frozenset(("jit", "bucketed", "call_exported", "composite", "checkpoint", "custom_vmap_call"))
CUSTOM: Final = frozenset(("custom_jvp_call", "custom_vjp_call"))
# Ops whose programs are looked into; other ones that hold programs stay float.
LOOPS: Final = frozenset(("scan", "while"))
HOLDING: Final = frozenset(("cond", *LOOPS))
# Takes the inputs of the held program, then the further ones.
Body = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]


class InnerOperand(NamedTuple):
    """An operand that the held program takes as it is: all of it, or one row per step."""

    operand: int
    input: int
    stepped: bool = False


def inner_operands(e: Equation) -> list[list[InnerOperand]]:
    """Per held program, the operands that its inputs are. What loops carry is none of them: it changes."""
    n = len(e.inputs)
    if e.op.name in LOOPS:
        loop: LoopParams = e.params["loop"]
        x = loop.split(range(n))
        first = loop.num_cond_consts
        own = [*(InnerOperand(i, i - first) for i in x.consts), *(InnerOperand(i, i - first, True) for i in x.xs)]
        return [own] if loop.cond is None else [[InnerOperand(i, i) for i in x.cond_consts], own]
    return [[InnerOperand(i, i - 1) for i in range(1, n)] for _ in e.params["branches"]]


def rebuild_call(
    e: Equation, args: Sequence[Array], further: Sequence[Array], stepped: Sequence[bool], made: Sequence[Any]
) -> Any:
    """The results of ``e`` with other programs, which take ``further`` operands too.

    Args:
        args: the equation's operands.
        further: given to every program, but to the condition of a loop; those marked in ``stepped`` row by row.
        made: per program ``stage_body(types, split)``, which gives the new program; ``split(xs)`` divides its inputs
            into those it had and the further ones.
    """
    name, params = e.op.name, dict(e.params)
    whole = [x for x, s in zip(further, stepped, strict=True) if not s]
    rows = [x for x, s in zip(further, stepped, strict=True) if s]
    places = [i for i, s in enumerate(stepped) if not s] + [i for i, s in enumerate(stepped) if s]
    k = len(whole)

    def program(i: int, at: int, types: Sequence[ArrayType]) -> Program:
        """Program ``i``, with the whole operands before input ``at`` and the stepped ones last."""
        n = len(types)

        def split(xs: Sequence[Array]) -> tuple[Sequence[Array], Sequence[Array]]:
            found: list[Any] = [None] * len(further)
            for place, x in zip(places, [*xs[at : at + k], *xs[n + k :]], strict=True):
                found[place] = x
            return [*xs[:at], *xs[at + k : n + k]], found

        row_types = [x.type.with_shape(x.shape[1:]) for x in rows]
        return made[i]([*types[:at], *(x.type for x in whole), *types[at:], *row_types], split)

    if name in LOOPS:
        loop: LoopParams = params["loop"]
        x = loop.split(args)
        test = loop.cond and made[0](loop.cond.in_types, lambda xs: (xs, [None] * k))
        body = program(len(made) - 1, loop.num_consts, loop.body.in_types)
        x = x._replace(consts=(*x.consts, *whole), xs=(*x.xs, *rows))
        operands, loop = loop.bound(x, body=body, cond=test)
        return e.op(*operands, loop=loop)
    types = [b.in_types for b in params["branches"]]
    params["branches"] = tuple(program(i, len(t), t) for i, t in enumerate(types))
    return e.op(*args, *whole, **params)


def opened(program: Program, custom: Callable[[Program], bool]) -> Program:
    """``program`` with calls written out, as if what they hold stood there.

    Calls with a derivative of their own are if ``custom`` says so of their program. A call of the same op follows that
    `derives`: it gives the last of its operands, the results, that derivative.
    """

    def held(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
        ys = flat.call(e) if custom(e.params["program"]) else None
        if not ys:
            return ys
        # Each is a value of this call alone.
        given = {*e.inputs, *flat.known}
        own = [y if isinstance(y, Var) and y not in given and y not in ys[:i] else None for i, y in enumerate(ys)]
        ys = [v or flat.emit(e, reshape, [y], shape=y.type.shape)[0] for v, y in zip(own, ys, strict=True)]
        operands, n = [*e.inputs, *ys], len(ys)
        rule = e.params["rule"]
        rule = HeldForward(rule, n) if isinstance(rule, Forward) else HeldTangent(rule, n)
        results = stage(lambda *xs: xs[-n:], [a.type for a in operands], e.params["program"].name)
        return flat.emit(e, e.op, operands, program=results, num_consts=e.params["num_consts"], rule=rule)

    rules = {"cond": Inliner.known_branch, **dict.fromkeys(CALLS, Inliner.call), **dict.fromkeys(CUSTOM, held)}
    return Inliner(program, rules).result()


def derives(e: Equation) -> bool:
    """Whether an equation is one that `opened` makes: values as they are, with another derivative."""
    return isinstance(e.params.get("rule"), (HeldForward, HeldTangent))


def needed(e: Equation, wanted: Collection[Var]) -> Equation:
    """An equation that `derives`, with zeros for the results that nobody wants: no others have to be computed."""
    n = len(e.outputs)
    zeros = lambda v: Literal(wrap(np.zeros(v.type.shape, v.type.dtype)))
    ys = [y if v in wanted else zeros(v) for y, v in zip(e.inputs[-n:], e.outputs, strict=True)]
    return e.replaced((*e.inputs[:-n], *ys), e.outputs)


@final
@dataclass(frozen=True)
class HeldForward(Forward):
    """The reverse rule ``rule``, where the last ``n`` arguments are the results."""

    rule: Forward
    n: int

    def with_perturbed(self, perturbed: Sequence[bool]) -> Forward:
        return HeldForward(self.rule.with_perturbed(tuple(perturbed[: -self.n])), self.n)

    def __call__(self, primals: Sequence[Array]) -> tuple[list[Array], list[Array], Pullback]:
        _, residuals, pull = self.rule(primals[: -self.n])
        return list(primals[-self.n :]), residuals, HeldPullback(pull, self.n)


@final
@dataclass(frozen=True)
class HeldPullback:
    """What `HeldForward` gives."""

    pull: Pullback
    n: int

    @property
    def symbolic_zeros(self) -> bool:
        return getattr(self.pull, "symbolic_zeros", False)

    def __call__(self, residuals: Sequence[Array], cts: Sequence[Array]) -> list[Array | None]:
        return [*self.pull(residuals, cts), *(None,) * self.n]


@final
@dataclass(frozen=True)
class HeldTangent:
    """The forward rule ``rule``, where the last ``n`` arguments are the results."""

    rule: Rule
    n: int

    @property
    def symbolic_zeros(self) -> bool:
        return getattr(self.rule, "symbolic_zeros", False)

    def __call__(self, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[list[Array], list[Array | None]]:
        _, ts = self.rule(primals[: -self.n], tangents[: -self.n])
        return list(primals[-self.n :]), ts
