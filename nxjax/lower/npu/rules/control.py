"""Rules of loops and choices: written out where their course is known when the program is lowered, else graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

import numpy as np

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.rules.move import update_at
from nxjax.lower.npu.rules.recurrent import layers
from nxjax.lower.npu.simplify import simplified
from nxjax.trace import dtypes
from nxjax.trace.program import Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.cond_branches import choose
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.subprograms import clamped_branch

Values = Sequence[LogicalTensor]
Make = Callable[[GraphBuilder, list[LogicalTensor]], Values]


def _while(b: GraphBuilder, out: tuple[ArrayType, ...], *xs: LogicalTensor, loop: LoopParams) -> Values:
    operands = loop.split(xs)
    for _ in range(b.unroll + 1):
        more = b.program(loop.condition, operands.cond_inputs)[0].scalar()
        if more is None:
            break
        if not more:
            return operands.carry
        operands = operands._replace(carry=b.program(loop.body, operands.body_inputs))
    _nested(
        b,
        "the number of its steps is data, and this format has no loops",
        "give a scan a fixed length, or loop outside",
    )
    operands = loop.split(xs)
    consts = [*operands[0], *operands[1]]
    first = len(operands[0])
    condition: Make = lambda b, v: b.program(loop.condition, [*v[:first], *v[len(consts) :]])
    return _loop(b, consts, operands.carry, condition, lambda b, v: b.program(loop.body, v[first:]), out)


def _nested(b: GraphBuilder, reason: str, suggestion: str) -> None:
    """Refuse what has to be a node that holds graphs where the format has none."""
    if not b.nested:
        raise Unsupported(reason, suggestion)


def _loop(
    b: GraphBuilder,
    consts: Values,
    carry: Values,
    condition: Make,
    body: Make,
    out: Sequence[ArrayType],
    steps: int = 0,
) -> Values:
    """A node that loops: both graphs take ``consts`` and ``carry``, of which the latter changes, whatever it is now."""
    carry = [LogicalTensor(x.shape, b.tensor(b.real(b.full(x)))) for x in carry]
    args = [*consts, *carry]
    alone: Make = lambda b, v: [b.reshape(condition(b, v)[0], ())]
    typed: Make = lambda b, v: [b.cast(y, t.dtype) for y, t in zip(body(b, v), carry, strict=True)]
    graphs = {"condition": simplified(b.graph(alone, args)), "body": simplified(b.graph(typed, args))}
    invariant = sum(not x.constant for x in consts)
    found = b.emit_many(
        "while",
        b.taken(args),
        [x.shape for x in carry],
        [x.dtype for x in carry],
        **graphs,
        invariant=invariant,
        steps=steps,
    )
    return [b.cast(y, t.dtype) for y, t in zip(found, out, strict=False)]


def _scan(b: GraphBuilder, out: tuple[ArrayType, ...], *xs: LogicalTensor, loop: LoopParams) -> Values:
    """A loop that counts: a step reads its rows of the operands, and writes its own of the results."""
    found = layers(b, out, xs, loop)
    if found is not None:
        return found
    if (loop.length or 0) <= b.unroll:
        return _written_out(b, xs, loop)
    _nested(b, f"it has more than {b.unroll} steps, and this format has no loops", "ask for more steps with unroll=")
    length = loop.length or 0
    operands = loop.split(xs)
    rows = [b.full(x) for x in operands[3]]
    ys = [b.fill(t.shape, 0, t.dtype) for t in out[loop.num_carry :]]
    consts, carry = [*operands[1], *rows], [b.constant(np.zeros(1, np.int32)), *operands.carry, *ys]
    number = len(operands[1])

    def body(b: GraphBuilder, values: list[LogicalTensor]) -> Values:
        kept, i, state = values[: len(consts)], values[len(consts)], values[len(consts) + 1 :]
        at = (
            i
            if not loop.reverse
            else b.elementwise("sub", [b.constant(np.full(1, length - 1, np.int32)), i], dtypes.int32)
        )
        now = [_row(b, x, at) for x in kept[number:]]
        made = b.program(loop.body, [*kept[:number], *state[: loop.num_carry], *now])
        stacked = zip(state[loop.num_carry :], made[loop.num_carry :], strict=True)
        written = [update_at(b, y, b.reshape(v, (1, *v.shape)), 0, at) for y, v in stacked]
        counted = b.elementwise("add", [i, b.constant(np.ones(1, np.int32))], dtypes.int32)
        return [counted, *made[: loop.num_carry], *written]

    def condition(b: GraphBuilder, values: list[LogicalTensor]) -> Values:
        return [b.elementwise("less", [values[len(consts)], b.constant(np.full(1, length, np.int32))], dtypes.bool_)]

    counter = ArrayType((1,), dtypes.int32)
    return _loop(b, consts, carry, condition, body, [counter, *out], length)[1:]


def _written_out(b: GraphBuilder, xs: Values, loop: LoopParams) -> Values:
    """Step by step."""
    operands = loop.split(xs)
    rows: list[Values] = []
    for i in loop.step_indices():
        part = lambda x, i=i: b.slice(x, (i, *(0,) * (x.ndim - 1)), (i + 1, *x.shape[1:]))
        now = [b.reshape(part(x), x.shape[1:]) for x in operands.xs]
        carry, ys = loop.results(b.program(loop.body, operands._replace(xs=now).body_inputs))
        operands = operands._replace(carry=carry)
        rows.append([b.full(b.reshape(y, (1, *y.shape))) for y in ys])
    return [*operands.carry, *(b.concatenate(list(ys), 0) for ys in zip(*rows[:: -1 if loop.reverse else 1]))]


def _row(b: GraphBuilder, x: LogicalTensor, at: LogicalTensor) -> LogicalTensor:
    """One row of ``x`` at a computed place."""
    row = b.emit("gather", [b.real(x), at], (1, *x.shape[1:]), b.real(x).dtype, axis=0)
    return b.reshape(row, x.shape[1:])


def _cond(
    b: GraphBuilder,
    out: tuple[ArrayType, ...],
    index: LogicalTensor,
    *xs: LogicalTensor,
    branches: tuple[Program, ...],
    shared: tuple[bool, ...] = (),
) -> Values:
    number = index.scalar() if not index.shape else None
    if number is not None:
        return b.program(clamped_branch(branches, int(number)), xs)
    if len(branches) == 1:
        return b.program(branches[0], xs)
    if index.shape:
        # A choice for each element of a batch.
        columns = zip(*(b.program(branch, xs) for branch in branches), strict=True)
        return [b.inline(lambda i, *ys: choose(i, ys), index, *column) for column in columns]
    _nested(b, "which branch runs is data, and this format has no branches", "compute both, and nx.numpy.where")
    last = b.cast(index, dtypes.int32)
    # No other number is the first one's: out of range, the last branch runs.
    chosen = b.elementwise("equal", [last, b.constant(np.int32(0))], dtypes.bool_)
    less: Callable[..., LogicalTensor] = lambda b, i: b.elementwise("sub", [i, b.constant(np.int32(1))], dtypes.int32)
    args = [last, *xs]
    typed = lambda b, ys: [b.cast(y, t.dtype) for y, t in zip(ys, out, strict=True)]
    then: Make = lambda b, v: typed(b, b.program(branches[0], v[1:]))
    otherwise: Make = lambda b, v: typed(b, _cond(b, out, less(b, v[0]), *v[1:], branches=branches[1:]))
    graphs = {"then": simplified(b.graph(then, args)), "otherwise": simplified(b.graph(otherwise, args))}
    read = [_read(graph) for graph in graphs.values()]
    used = [any(each) for each in zip(*read, strict=True)]
    graphs = {key: replace(g, inputs=list(compress(g.inputs, used))) for key, g in graphs.items()}
    operands = compress(b.taken(args), used)
    return b.emit_many("if", [chosen, *operands], [t.shape for t in out], [t.dtype for t in out], **graphs)


def _read(graph: NpuGraph) -> list[bool]:
    """Which of its inputs a graph reads."""
    found = {t for n in graph.nodes for t in n.operands} | set(graph.outputs)
    return [t in found for t in graph.inputs]


RULES: Final[dict[str, Rule]] = {"while": _while, "scan": _scan, "cond": _cond}
