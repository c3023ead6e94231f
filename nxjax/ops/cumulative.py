"""Running reductions along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp.

A long axis is cut into groups of four (Blelloch, "Prefix sums and their applications", 1990): every group is combined,
the groups' totals are run over by the same op, and each result is the total before its group combined with the part of
the group up to it. That is linear work in log4(n) steps. A short axis is doubled up (Hillis and Steele, 1986), or one
window reduction where the compiler has them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.ops.arithmetic import add, div, mul, neg, sub
from nxjax.ops.arithmetic import max as max_
from nxjax.ops.arithmetic import min as min_
from nxjax.ops.base import Combining, KeepsAxis, LinearOp, NDArray, check_counted_axis, check_dtype, define_op, like
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import eq, ne
from nxjax.ops.convert import cast, convert_element_type
from nxjax.ops.elementary import exp, log
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType, highest, lowest
from nxjax.trace.types import ArrayType

GROUP: Final = 4
SHORT: Final = 16  # up to here a direct form is cheaper than another step
BLOCK: Final = 128  # elements that NumPy adds in one go


class Cumulative(KeepsAxis, Combining):
    """Result i combines elements 0 to i along ``axis``; from the other end with ``reverse``."""

    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER

    def infer(self, x: ArrayType, /, *, axis: int, reverse: bool = False) -> ArrayType:
        check_dtype(self, self.allowed, x)
        check_counted_axis(self, axis, x.ndim)
        return x

    def combine(self, x: Array, y: Array) -> Array:
        """The reduction, as ops."""
        assert self.combiner is not None
        return self.combiner(x, y)

    @abstractmethod
    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        """The reduction along ``axis``, in NumPy."""

    def eval(self, x: NDArray, /, *, axis: int, reverse: bool = False) -> NDArray:
        turned = np.flip(x, axis) if reverse else x
        y = self.accumulate(turned, axis)
        return np.asarray(np.flip(y, axis) if reverse else y).astype(x.dtype)

    def expand(self, x: Array, /, *, axis: int, reverse: bool = False) -> Array:
        if _is_half(x.dtype):
            y = self(convert_element_type(x, dtype=dtypes.float32), axis=axis, reverse=reverse)
            return convert_element_type(y, dtype=x.dtype)
        return self._run([x], axis, reverse)[0]

    def join(self, xs: Arrays, ys: Arrays) -> list[Array]:
        """The reduction of a state, which is one array here."""
        return [self.combine(xs[0], ys[0])]

    def totals(self, xs: Arrays, axis: int, reverse: bool) -> list[Array]:
        """The states up to every group, from those of the groups."""
        return [self(xs[0], axis=axis, reverse=reverse)]

    def _run(self, xs: Arrays, axis: int, reverse: bool) -> list[Array]:
        direct = xs[0].shape[axis] <= SHORT
        return self._doubled(xs, axis, reverse) if direct else self._grouped(xs, axis, reverse)

    def _doubled(self, xs: Arrays, axis: int, reverse: bool) -> list[Array]:
        """log2(n) rounds, each combining every element with the one 2^k places before it."""
        n, step = xs[0].shape[axis], 1
        while step < n:
            low, high = parts(xs, axis, 0, n - step), parts(xs, axis, step, n)
            if reverse:
                joined, rest = self.join(high, low), parts(xs, axis, n - step, n)
                xs = [concatenate(a, b, dimension=axis) for a, b in zip(joined, rest, strict=True)]
            else:
                joined, rest = self.join(low, high), parts(xs, axis, 0, step)
                xs = [concatenate(b, a, dimension=axis) for a, b in zip(joined, rest, strict=True)]
            step *= 2
        return list(xs)

    def _grouped(self, xs: Arrays, axis: int, reverse: bool) -> list[Array]:
        """One step: totals of the groups from this op itself, then every place of all groups at once."""
        shape = xs[0].shape
        n = shape[axis]
        groups = n // GROUP
        whole = groups * GROUP
        # Left over, at the far end of the direction: fewer than a group.
        start, stop = (n - whole, n) if reverse else (0, whole)
        columns = [parts(xs, axis, start + i, stop, GROUP) for i in range(GROUP)]
        if reverse:
            columns.reverse()
        inside = [columns[0]]
        for column in columns[1:]:
            inside.append(self.join(inside[-1], column))
        totals = self.totals(inside[-1], axis, reverse)
        places: list[list[Array]] = []
        for place in inside[:-1]:
            if reverse:
                later = self.join(parts(totals, axis, 1, groups), parts(place, axis, 0, groups - 1))
                ends = zip(later, parts(place, axis, groups - 1, groups), strict=True)
            else:
                later = self.join(parts(totals, axis, 0, groups - 1), parts(place, axis, 1, groups))
                ends = zip(parts(place, axis, 0, 1), later, strict=True)
            places.append([concatenate(*pair, dimension=axis) for pair in ends])
        places.append(totals)
        if reverse:
            places.reverse()
        apart = (*shape[:axis], groups, 1, *shape[axis + 1 :])
        ys: list[Array] = []
        for of_all in zip(*places, strict=True):
            woven = concatenate(*(reshape(p, shape=apart) for p in of_all), dimension=axis + 1)
            ys.append(reshape(woven, shape=(*shape[:axis], whole, *shape[axis + 1 :])))
        if whole == n:
            return ys
        rest = self._doubled(parts(xs, axis, *((0, start) if reverse else (whole, n))), axis, reverse)
        ends = parts(totals, axis, *((0, 1) if reverse else (groups - 1, groups)))
        kept = tuple(range(len(shape)))
        before = [
            broadcast_in_dim(e, shape=r.shape, broadcast_dimensions=kept) for e, r in zip(ends, rest, strict=True)
        ]
        pairs = zip(self.join(before, rest), ys, strict=True)
        return [concatenate(r, y, dimension=axis) if reverse else concatenate(y, r, dimension=axis) for r, y in pairs]

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, axis: int, reverse: bool = False) -> Any:
        n = out.shape[axis]
        if n > SHORT or 0 in out.shape or _is_half(out.dtype):
            return b.inline(self.expand, (x,), {"axis": axis, "reverse": reverse})
        sizes = [n if d == axis else 1 for d in range(out.ndim)]
        before, after = (0, n - 1) if reverse else (n - 1, 0)
        edges = ", ".join(f"[{before}, {after}]" if d == axis else "[0, 0]" for d in range(out.ndim))
        attrs = f"window_dimensions = {b.ints(sizes)}, padding = dense<[{edges}]> : tensor<{out.ndim}x2xi64>"
        element = ArrayType((), out.dtype)
        start = b.constant(self.identity(out.dtype), element)
        body = lambda inner, old, new: inner.inline(self.combine, (old, new))
        return b.op("stablehlo.reduce_window", (x, start), out, attrs, [((element, element), body)])


def _is_half(dtype: DType) -> bool:
    """Accumulated in float32 where an expansion runs."""
    return dtype in dtypes.FLOAT and dtype.itemsize < 4


def _wide(x: NDArray) -> NDArray:
    """``x`` in the type that long sums and products of its elements are exact enough in."""
    if x.dtype in dtypes.COMPLEX:
        return x.astype(np.complex128)
    return x.astype(np.float64) if x.dtype in dtypes.FLOAT else x


def _summed(x: NDArray, axis: int) -> NDArray:
    """Running sums in blocks, each added to the running sum of the blocks before: an error of few additions."""
    n = x.shape[axis]
    if n <= BLOCK:
        return np.add.accumulate(x, axis, dtype=x.dtype)
    last = np.moveaxis(x, axis, -1)
    whole = n - n % BLOCK
    blocks = last[..., :whole].reshape(*last.shape[:-1], whole // BLOCK, BLOCK)
    within = np.add.accumulate(blocks, -1, dtype=x.dtype)
    before = _summed(within[..., -1], -1)
    # Nothing is added to the first, as 0.0 would turn -0.0 round.
    within[..., 1:, :] += before[..., :-1, None]
    y = np.empty_like(last)
    y[..., :whole] = within.reshape(*last.shape[:-1], whole)
    y[..., whole:] = before[..., -1:] + np.add.accumulate(last[..., whole:], -1, dtype=x.dtype)
    return np.moveaxis(y, -1, axis)


def parts(xs: Arrays, axis: int, start: int, stop: int, stride: int = 1) -> list[Array]:
    return [slice_axis(x, axis, start, stop, stride) for x in xs]


@final
class Cumsum(LinearOp, Cumulative):
    """Running sum"""

    name = "cumsum"
    combiner = add

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        if x.dtype in (dtypes.float64, dtypes.complex128):
            return _summed(x, axis)
        wide = _wide(x)
        return np.add.accumulate(wide, axis, dtype=wide.dtype)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, axis: int, reverse: bool = False) -> Tangents:
        return (self(ct, axis=axis, reverse=not reverse),)


@final
class Cumprod(Cumulative):
    """Running product"""

    name = "cumprod"
    combiner = mul

    def identity(self, dtype: DType) -> Any:
        return 1

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        wide = _wide(x)
        return np.multiply.accumulate(wide, axis, dtype=wide.dtype)


class _Extremum(Cumulative):
    """``ufunc`` combines two elements in NumPy."""

    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    ufunc: ClassVar[Any] = np.maximum

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return type(self).ufunc.accumulate(x.astype(np.float32) if _is_half(x.dtype) else x, axis)


@final
class Cumlogsumexp(Cumulative):
    """Running log of the sum of exponentials, without overflow"""

    name = "cumlogsumexp"
    allowed = dtypes.FLOAT

    def combine(self, x: Array, y: Array) -> Array:
        top = max_(x, y)
        # Two times -inf (or inf) has no finite reference point: any will do.
        shift = select_n(eq(sub(top, top), 0), like(top, 0), top)
        return add(log(add(exp(sub(x, shift)), exp(sub(y, shift)))), shift)

    def expand(self, x: Array, /, *, axis: int, reverse: bool = False) -> Array:
        if _is_half(x.dtype) or not x.shape[axis]:
            return super().expand(x, axis=axis, reverse=reverse)
        top, total = self._run([x, like(x, 1)], axis, reverse)
        return add(log(total), top)

    def join(self, xs: Arrays, ys: Arrays) -> list[Array]:
        """Of states: the largest element, and sums of what the exponentials of the differences from it weigh.

        Never of rounded logarithms, whose error would grow with every element beside a large one.
        """
        (x, *own), (y, *others) = xs, ys
        apart = sub(x, y)
        # Two times -inf (or inf) have no difference. Equal finite elements have one, and it has a derivative.
        apart = select_n(and_(eq(x, y), ne(apart, apart)), apart, like(x, 0))
        low = like(x, 0)
        a, b = exp(min_(apart, low)), exp(min_(neg(apart), low))
        return [max_(x, y), *(add(mul(v, a), mul(w, b)) for v, w in zip(own, others, strict=True))]

    def totals(self, xs: Arrays, axis: int, reverse: bool) -> list[Array]:
        return self._run(xs, axis, reverse)

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, axis: int, reverse: bool = False
    ) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x, axis=axis, reverse=reverse)
        if t is None or not x.size:
            return y, t
        wide = dtypes.float32 if _is_half(x.dtype) else x.dtype
        x, t = cast(x, wide), cast(t, wide)
        _, total, pushed = self._run([x, like(x, 1), t], axis, reverse)
        derivative = div(pushed, total)
        return y, cast(derivative, y.dtype)

    def identity(self, dtype: DType) -> Any:
        return lowest(dtype)

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.logaddexp.accumulate(_wide(x), axis)


cumsum = Cumsum()
cumprod = Cumprod()
cummax = define_op(_Extremum, "cummax", "Running maximum", combiner=max_, ufunc=np.maximum, start=lowest)
cummin = define_op(_Extremum, "cummin", "Running minimum", combiner=min_, ufunc=np.minimum, start=highest)
cumlogsumexp = Cumlogsumexp()
CUMULATIVE: Final[tuple[Cumulative, ...]] = (cumsum, cumprod, cummax, cummin, cumlogsumexp)
