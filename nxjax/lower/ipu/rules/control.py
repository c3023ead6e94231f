"""Loops and choices: while, scan, cond. What a loop carries has a variable of its own, which its body writes again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import Repeat, Step, Switch, Variable, VariableView, While, row_major
from nxjax.lower.ipu.rules.carry import assign, copied, kept
from nxjax.lower.ipu.rules.table import Rule
from nxjax.lower.ipu.rules.take import put, table_pieces, take
from nxjax.lower.trip_count import trip_count
from nxjax.ops.arithmetic import add
from nxjax.ops.base import like
from nxjax.ops.bitwise import or_
from nxjax.ops.compare import gt, lt
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program
from nxjax.transforms.control.cond_branches import choose
from nxjax.transforms.control.loop_params import LoopParams


def while_(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    loop: LoopParams = e.params["loop"]
    operands = loop.split(xs)
    operands = operands._replace(carry=[kept(b, x) for x in operands.carry])
    predicate = b.variable((1,), np.bool_, None, b.fresh("predicate"))
    with b.block() as condition:
        (test,) = b.program(loop.condition, operands.cond_inputs)
        copied(b, [(b.reshaped(test, (1,)), predicate.view())])
    with b.block() as body:
        assign(b, b.program(loop.body, operands.body_inputs), operands.carry)
    b.steps.append(While(tuple(condition), predicate, tuple(body), b.source, trip_count(e)))
    return tuple(operands.carry)


def scan(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    loop: LoopParams = e.params["loop"]
    length, reverse = loop.length, loop.reverse
    _, consts, init, sequences = loop.split(xs)
    outs = [*zip(loop.results(e.outputs)[1], loop.results(loop.body.out_types)[1], strict=True)]
    if not length:
        empty = [b.variable(_view_shape(v), _dtype(v)).view() for v, _ in outs]
        return (*init, *empty)
    carry = [kept(b, x) for x in init]
    counter = kept(b, b.constant(np.int32(length - 1 if reverse else 0)))
    tables = [_as_table(b, x) for x in sequences]
    columns = [_column(b, _view_shape(v), _dtype(v)) for v, _ in outs]
    index = b.reshaped(counter, (1, 1))
    with b.block() as steps:
        rows = [b.reshaped(take(b, t, index), x.shape[1:]) for t, x in zip(tables, sequences, strict=True)]
        after, ys = loop.results(b.program(loop.body, [*consts, *carry, *rows]))
        for column, y in zip(columns, ys, strict=True):
            if column.size:
                width = math.prod(column.shape[1:])
                table = VariableView(column, 0, (1, length, width), row_major((1, length, width)))
                put(b, table, index, b.reshaped(y, (1, 1, width)), "set", column)
        step = wrap(np.int32(-1 if reverse else 1))
        next_one = b.inline(lambda i: add(i, step), [counter])
        assign(b, [*after, next_one], [*carry, counter])
    b.steps.append(Repeat(length, tuple(steps), b.source))
    return (*carry, *(c.view() for c in columns))


def cond(b: Builder, e: Equation, index: VariableView, *xs: VariableView) -> tuple[VariableView, ...]:
    branches: Sequence[Program] = e.params["branches"]
    if len(branches) == 1:
        return tuple(b.program(branches[0], xs))
    if index.shape:
        return _chosen(b, e, index, *xs)
    which = b.materialize(b.inline(lambda i: _in_range(i, len(branches) - 1), [index]))
    results: list[Variable] = []
    bodies: list[tuple[Step, ...]] = []
    for number, branch in enumerate(branches):
        with b.block() as steps:
            ys = b.program(branch, xs)
            if not number:
                results = [b.variable(y.shape, y.dtype, y.variable.pieces if y.whole else None) for y in ys]
            copied(b, [(y, r.view()) for y, r in zip(ys, results, strict=True)])
        bodies.append(tuple(steps))
    b.steps.append(Switch(which.variable, tuple(bodies), b.source))
    return tuple(r.view() for r in results)


def _in_range(index: Array, last: int) -> Array:
    """The number of a branch; the last one's if there is none of that number."""
    return select_n(or_(lt(index, like(index, 0)), gt(index, like(index, last))), index, like(index, last))


def _chosen(b: Builder, e: Equation, index: VariableView, *xs: VariableView) -> tuple[VariableView, ...]:
    """Each element has its own choice: all branches, then select."""
    columns = [b.program(branch, xs) for branch in e.params["branches"]]
    return tuple(b.inline(lambda i, *ys: choose(i, ys), [index, *choices]) for choices in zip(*columns, strict=True))


def _as_table(b: Builder, x: VariableView) -> VariableView:
    """A sequence as [1, length, width], each tile with some columns of all steps."""
    shape = (x.shape[0], math.prod(x.shape[1:]))
    if not x.size:
        return b.reshaped(x, (1, *shape))
    pieces = table_pieces(b, shape, x.dtype.itemsize)
    covers = x.whole and x.variable.role in ("input", "constant")
    if not (covers and b.place(x.variable, pieces)):
        x = b.materialize(x, pieces)
    return VariableView(x.variable, x.offset, (1, *shape), row_major((1, *shape)))


def _column(b: Builder, shape: tuple[int, ...], dtype: Any) -> Variable:
    """Where the results of all steps go."""
    if not math.prod(shape):
        return b.variable(shape, dtype)
    return b.variable(shape, dtype, table_pieces(b, (shape[0], math.prod(shape[1:])), np.dtype(dtype).itemsize))


def _view_shape(v: Any) -> tuple[int, ...]:
    return (*v.type.shape, 2) if v.type.dtype == dtypes.key else v.type.shape


def _dtype(v: Any) -> np.dtype[Any]:
    return np.dtype(np.uint32) if v.type.dtype == dtypes.key else v.type.dtype


def linear_solve(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    counts: tuple[int, ...] = e.params["counts"]
    before, after = sum(counts[:2]), sum(counts)
    consts = xs[before : before + counts[2]]
    return tuple(b.program(e.params["programs"][2], [*consts, *xs[after:]]))


def root(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    return tuple(b.program(e.params["solve"], xs[e.params["counts"][0] :]))


RULES: Final = {
    "while": Rule(while_),
    "scan": Rule(scan),
    "cond": Rule(cond),
    "custom_linear_solve": Rule(linear_solve),
    "custom_root": Rule(root),
}
