"""Choice between values, element by element: select_n and clamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import (
    DataMovement,
    Differentiable,
    NDArray,
    Tangent,
    all_weak,
    check_dtype,
    equal_dtypes,
    equal_shapes,
    move_batch,
    zeros,
)
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import eq, gt, lt
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType


@final
class SelectN(DataMovement):
    """``cases[which]``, element by element.

    ``which`` is bool (two cases: the first where False) or int32 (any number), of the cases' shape or a scalar. The
    cases may be of any dtype, keys included.
    """

    name = "select_n"
    moved = slice(1, None)

    def infer(self, which: ArrayType, first: ArrayType, /, *others: ArrayType) -> ArrayType:
        cases = (first, *others)
        equal_shapes(self, *cases)
        equal_dtypes(self, *cases)
        if which.dtype not in (dtypes.bool_, dtypes.int32):
            raise DtypeError("select_n: the predicate is bool or int32", got=which)
        if which.dtype == dtypes.bool_ and len(cases) > 2:
            raise DtypeError("select_n: a bool predicate chooses between two cases", got=f"{len(cases)} cases")
        if which.shape not in ((), first.shape):
            raise ShapeError("select_n: predicate and cases differ in shape", got=f"{which} and {first}")
        return ArrayType(first.shape, first.dtype, all_weak(*cases))

    def eval(self, which: NDArray, /, *cases: NDArray) -> NDArray:
        if len(cases) == 1:
            return cases[0]
        if len(cases) == 2:
            return np.where(which.astype(np.bool_), cases[1], cases[0])
        index = np.broadcast_to(np.clip(which, 0, len(cases) - 1), cases[0].shape)
        return np.take_along_axis(np.stack(cases), index[None], 0)[0]

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Array, Array | None]:
        which, *cases = primals
        y = self(*primals)
        if all(t is None for t in tangents[1:]):
            return y, None
        filled = (zeros(c.type) if t is None else t for c, t in zip(cases, tangents[1:], strict=True))
        return y, self(which, *filled)

    def transpose(self, ct: Array, which: Array, /, *cases: Any) -> Tangents:
        nothing = zeros(ct.type)
        cts: list[Array | None] = [None]
        for i, case in enumerate(cases):
            taken = [ct if i == j else nothing for j in range(len(cases))]
            cts.append(self(which, *taken) if isinstance(case, UndefinedPrimal) else None)
        return cts

    def batch(self, size: int, args: Arrays, dims: Dims) -> tuple[Any, Any]:
        which, *cases = args
        if dims[0] is None and which.ndim == 0:
            first = next(d for d in dims[1:] if d is not None)
            return self(which, *(move_batch(c, d, size, first) for c, d in zip(cases, dims[1:], strict=True))), first
        moved = [move_batch(c, d, size) for c, d in zip(cases, dims[1:], strict=True)]
        which = move_batch(which, dims[0], size)
        if which.ndim < moved[0].ndim:
            which = broadcast_in_dim(which, shape=moved[0].shape, broadcast_dimensions=(0,))
        return self(which, *moved), 0

    def stablehlo(self, b: Any, out: ArrayType, which: Any, /, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0]
        if which.type.dtype == dtypes.bool_:
            return b.op("stablehlo.select", (which, cases[1], cases[0]), out)
        if len(cases) == 2:
            second = b.compare("NE", which, b.constant(0, which.type), ArrayType(which.type.shape, dtypes.bool_))
            return b.op("stablehlo.select", (second, cases[1], cases[0]), out)
        # Halve the cases until two are left.
        middle = len(cases) // 2
        predicate = ArrayType(which.type.shape, dtypes.bool_)
        lower = b.compare("LT", which, b.constant(middle, which.type), predicate)
        left = self.stablehlo(b, out, which, *cases[:middle])
        rest = b.simple("subtract", (which, b.constant(middle, which.type)), which.type)
        right = self.stablehlo(b, out, rest, *cases[middle:])
        return b.op("stablehlo.select", (lower, left, right), out)


@final
class Clamp(Differentiable, Op):
    """``min(max(x, low), high)``; the bounds have x's shape or are scalars. Operands in the order (low, x, high)."""

    name = "clamp"
    makes_nan = False

    def infer(self, low: ArrayType, x: ArrayType, high: ArrayType, /) -> ArrayType:
        equal_dtypes(self, low, x, high)
        check_dtype(self, dtypes.NUMERIC - dtypes.COMPLEX, x)
        for bound in (low, high):
            if bound.shape not in ((), x.shape):
                raise ShapeError("clamp: a bound is a scalar or of the operand's shape", got=f"{bound} for {x}")
        return x

    def eval(self, low: NDArray, x: NDArray, high: NDArray, /) -> NDArray:
        return np.asarray(np.minimum(np.maximum(x, low), high), x.dtype)

    def expand(self, low: Array, x: Array, high: Array, /) -> Array:
        return ops.min(ops.max(x, _spread(low, x)), _spread(high, x))

    def tangents(self, y: Array, low: Array, x: Array, high: Array) -> Sequence[Tangent | None]:
        low_, high_ = _spread(low, x), _spread(high, x)

        def masked(mask: Array, t: Array) -> Array:
            # Chosen, not multiplied: beyond a bound a tangent that is no number does not count either.
            t = _spread(t, x)
            return select_n(mask, zeros(t.type), t)

        return (
            lambda t: masked(and_(gt(low_, x), lt(low_, high_)), t),
            lambda t: masked(and_(gt(x, low_), lt(x, high_)), t),
            lambda t: masked(lt(high_, x), t),
        )

    def batch(self, size: int, args: Arrays, dims: Dims) -> tuple[Any, Any]:
        low, x, high = args
        if dims[0] is None and dims[2] is None and low.ndim == high.ndim == 0:
            return self(low, x, high), dims[1]
        x = move_batch(x, dims[1], size)

        def aligned(bound: Array, dim: int | None) -> Array:
            moved = move_batch(bound, dim, size)
            if moved.ndim == x.ndim:
                return moved

            return broadcast_in_dim(moved, shape=x.shape, broadcast_dimensions=(0,))

        return self(aligned(low, dims[0]), x, aligned(high, dims[2])), 0

    def stablehlo(self, b: Any, out: ArrayType, low: Any, x: Any, high: Any, /) -> Any:
        return b.op("stablehlo.clamp", (low, x, high), out)


def _spread(bound: Array, x: Array) -> Array:
    if bound.shape == x.shape:
        return bound

    return broadcast_in_dim(bound, shape=x.shape, broadcast_dimensions=())


select_n = SelectN()
clamp = Clamp()


def select_leading(which: Array, no: Array, yes: Array) -> Array:
    """``yes`` where ``which`` holds, else ``no``; ``which`` has leading axes of theirs."""
    if which.shape != yes.shape:
        which = broadcast_in_dim(which, shape=yes.shape, broadcast_dimensions=tuple(range(which.ndim)))
    return select_n(which, no, yes)


def choose(index: Array, columns: Arrays) -> Array:
    """Element by element the entry of ``columns`` that ``index`` names, or the last; it has their leading axes."""
    *others, chosen = columns
    for i, column in enumerate(others):
        chosen = select_leading(eq(index, i), chosen, column)
    return chosen
