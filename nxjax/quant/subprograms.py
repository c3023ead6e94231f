"""Equations that hold programs: which operand becomes which input, and how further operands are handed in.

Knows the parameters of `scan`, `while`, `cond`, `checkpoint` and calls with a derivative of their own. Knows nothing of
grids or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

from nxjax.ops.identity import stop_gradient
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.custom_vjp import Forward, Pullback

CUSTOM: Final = frozenset(("custom_jvp_call", "custom_vjp_call"))
# Ops that run their program once.
CALLS: Final = frozenset(("checkpoint", *CUSTOM))
# Ops whose programs are looked into; other ones that hold programs stay float.
LOOPS: Final = frozenset(("scan", "while"))
HOLDING: Final = frozenset(("cond", *LOOPS, *CALLS))
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
    if e.op.name == "cond":
        return [[InnerOperand(i, i - 1) for i in range(1, n)] for _ in e.params["branches"]]
    return [[InnerOperand(i, i) for i in range(n)] for _ in e.programs()]


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
    if name == "cond":
        types = [b.in_types for b in params["branches"]]
        params["branches"] = tuple(program(i, len(t), t) for i, t in enumerate(types))
        return e.op(*args, *whole, **params)
    if name == "checkpoint":
        params["program"] = program(0, len(args), params["program"].in_types)
        return e.op(*args, *whole, **params)
    return _custom(e, args, whole, program)


def _custom(e: Equation, args: Sequence[Array], whole: list[Array], program: Callable[..., Program]) -> Any:
    """A call with its own derivative: the rule's derivative stays, its results become those of the new program."""
    params = dict(e.params)
    n = params["num_consts"]
    new = program(0, len(args), params["program"].in_types)
    # A rule does not see the first operands. The program that replaces its results needs them: they come once more.
    again = [stop_gradient(x) for x in args[:n]]

    def body(*xs: Array) -> Sequence[Array]:
        rest = xs[n : len(args) + len(whole)]
        return run(new, [*xs[len(args) + len(whole) :], *rest])

    types = [x.type for x in (*args, *whole, *again)]
    staged = stage(body, types, new.name)
    given = len(args) - n
    rule = _QuantizedForward(params["rule"], staged, n, given) if isinstance(params["rule"], Forward) else (
        _QuantizedTangent(params["rule"], staged, n, given)
    )  # fmt: skip
    return e.op(*args, *whole, *again, program=staged, num_consts=n, rule=rule)


@final
class _QuantizedForward(Forward):
    """The reverse rule of ``rule``, whose first ``given`` arguments these are, for the results of ``program``."""

    def __init__(self, rule: Forward, program: Program, hidden: int, given: int) -> None:
        self.rule = rule
        self.program = program
        self.hidden = hidden
        self.given = given

    def __call__(self, primals: Sequence[Array]) -> tuple[list[Array], list[Array], Pullback]:
        ys = _results(self.program, self.hidden, primals)
        _, residuals, pull = self.rule(primals[: self.given])
        missing = len(primals) - self.given
        return ys, residuals, lambda rs, cts: [*pull(rs, cts), *(None,) * missing]


@final
class _QuantizedTangent:
    """The same for a forward rule."""

    def __init__(self, rule: Callable[..., Any], program: Program, hidden: int, given: int) -> None:
        self.rule = rule
        self.program = program
        self.hidden = hidden
        self.given = given

    def __call__(self, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[list[Array], list[Array | None]]:
        _, ts = self.rule(primals[: self.given], tangents[: self.given])
        return _results(self.program, self.hidden, primals), ts


def _results(program: Program, hidden: int, primals: Sequence[Array]) -> list[Array]:
    # The hidden operands are the last ones, too.
    last = primals[len(primals) - hidden :]
    return list(run(program, [*last, *primals]))
