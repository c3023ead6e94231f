"""`reduce`: arrays reduced along axes by a program, one equation in any trace.

Its expansion halves the axes until one row is left, so forward mode, batching and every executor follow from those of
the program's own ops.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError
from nxjax.ops.base import check_counted_axes, equal_shapes, eval_by_expand, require
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.trace.core import Array, Arrays, Op
from nxjax.trace.program import Program, run
from nxjax.trace.types import ArrayType
from nxjax.transforms.vmap import vmap

NDArray = np.ndarray[Any, Any]


@final
class Reduce(Op):
    """Arrays of one shape, then as many scalars to begin with; results lack ``dimensions``.

    ``computation`` takes the scalars accumulated so far and the next ones. It is associative, and elements are
    combined with their neighbours in an unspecified grouping.
    """

    name = "reduce"
    aliases = {"jaxpr": "computation"}
    multi = True

    def infer(self, *types: ArrayType, computation: Program, dimensions: tuple[int, ...]) -> tuple[ArrayType, ...]:
        require(self, bool(types) and len(types) % 2 == 0, "one initial value per operand", types)
        n = len(types) // 2
        xs, starts = types[:n], types[n:]
        equal_shapes(self, *xs)
        check_counted_axes(self, dimensions, xs[0].ndim)
        if any(s.shape or s.dtype != x.dtype for x, s in zip(xs, starts, strict=True)):
            raise DtypeError(f"{self}: initial values are scalars of the operands' dtypes", got=types)
        scalars = [ArrayType((), x.dtype) for x in xs]
        for what, got, expected in (
            ("takes", computation.in_types, [*scalars, *scalars]),
            ("gives", computation.out_types, scalars),
        ):
            if len(got) != len(expected) or not all(a.typematch(b) for a, b in zip(got, expected, strict=True)):
                raise DtypeError(f"{self}: the function {what} other types", got=got, expected=tuple(expected))
        shape = tuple(m for i, m in enumerate(xs[0].shape) if i not in dimensions)
        return tuple(ArrayType(shape, x.dtype) for x in xs)

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        return eval_by_expand(self, xs, params)

    def expand(self, *operands: Array, computation: Program, dimensions: tuple[int, ...]) -> tuple[Array, ...]:
        n = len(operands) // 2
        xs, starts = operands[:n], operands[n:]
        kept = tuple(i for i in range(xs[0].ndim) if i not in dimensions)
        inner = tuple(xs[0].shape[i] for i in kept)
        count = math.prod(xs[0].shape[i] for i in dimensions)
        size = math.prod(inner)
        order = (*dimensions, *kept)
        rows: list[Array] = [reshape(transpose(x, permutation=order), shape=(count, size)) for x in xs]
        while count > 1:
            even = count - count % 2
            joined = _combined(
                computation, [slice_axis(x, 0, 0, even, 2) for x in rows], [slice_axis(x, 0, 1, even, 2) for x in rows]
            )
            if count % 2:
                joined = [
                    concatenate(y, slice_axis(x, 0, even, count), dimension=0)
                    for y, x in zip(joined, rows, strict=True)
                ]
            rows, count = joined, count // 2 + count % 2
        totals: list[Array] = [broadcast_in_dim(s, shape=(1, size), broadcast_dimensions=()) for s in starts]
        if count:
            totals = _combined(computation, totals, rows)
        return tuple(reshape(y, shape=inner) for y in totals)

    def stablehlo(self, b: Any, out: Any, /, *xs: Any, computation: Program, dimensions: tuple[int, ...]) -> Any:
        elements = [ArrayType((), t.dtype) for t in out]
        body = lambda inner, *values: inner.program(computation, values)
        return b.op(
            "stablehlo.reduce", xs, tuple(out), f"dimensions = {b.ints(dimensions)}", [((*elements, *elements), body)]
        )


def _combined(computation: Program, left: Arrays, right: Arrays) -> list[Array]:
    """The program on arrays of one shape, element by element."""
    shape = left[0].shape
    size = math.prod(shape)
    if not size:
        return list(left)
    flat = [reshape(x, shape=(size,)) for x in (*left, *right)]

    def combined(*scalars: Array) -> Arrays:
        return run(computation, scalars)

    ys = vmap(combined, axis_size=size)(*flat)
    return [reshape(y, shape=shape) for y in ys]


reduce = Reduce()
