"""Reductions over sliding windows: sums, maxima and minima, and what the derivative of a maximum needs.

A window has a size, stride and dilation per dimension of the operand, which may itself be dilated and padded.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add
from nxjax.ops.base import (
    Combining,
    LinearOp,
    NDArray,
    check_dtype,
    constant,
    define_op,
    equal_dtypes,
    like,
    move_batch,
    require,
    zeros,
)
from nxjax.ops.bitwise import and_, not_
from nxjax.ops.compare import eq, ge, le
from nxjax.ops.conv import combined, dilated
from nxjax.ops.select import select_n
from nxjax.ops.slicing import pad
from nxjax.ops.slicing import slice as slice_
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType, highest, lowest
from nxjax.trace.types import ArrayType, Shape

Pairs = tuple[tuple[int, int], ...]


@final
class Windows(NamedTuple):
    """The parameters of a reduction over windows, one entry per dimension."""

    window_dimensions: Shape
    window_strides: Shape
    padding: Pairs
    base_dilation: Shape
    window_dilation: Shape

    @property
    def padding_config(self) -> tuple[tuple[int, int, int], ...]:
        """Padding and holes of the operand, as `pad` takes them."""
        return tuple((l, h, d - 1) for (l, h), d in zip(self.padding, self.base_dilation, strict=True))

    def padded(self, x: NDArray, value: Any) -> NDArray:
        """``x`` with its holes and padding, which hold ``value``."""
        config = self.padding_config
        if all(c == (0, 0, 0) for c in config):
            return x
        return pad.eval(x, np.asarray(value).astype(x.dtype), padding_config=config)


def window_shape(op: Op, x: ArrayType, **params: Any) -> Shape:
    """Number of windows per dimension, and the check of the parameters."""
    w = Windows(**params)
    for what, values in w._asdict().items():
        if what != "padding":
            require(op, len(values) == x.ndim, what, values, f"{x.ndim} entries, one per dimension of {x}")
            require(op, all(v > 0 for v in values), what, values, "positive integers")
    pairs = f"{x.ndim} (low, high) pairs, one per dimension of {x}"
    require(op, len(w.padding) == x.ndim, "padding", w.padding, pairs)
    shape: list[int] = []
    for n, k, step, ends, a, b in zip(x.shape, *w, strict=True):
        padded = dilated(n, a) + sum(ends)
        if padded < 0:
            raise ShapeError(
                f"{op.name}: negative padding cuts off more than there is", got=f"padding {w.padding} of {x}"
            )
        shape.append(max(0, (padded - dilated(k, b)) // step + 1))
    return tuple(shape)


def _with_batch(params: dict[str, Any], dim: int) -> dict[str, Any]:
    """The parameters for an operand with one more dimension, which no window spans."""
    pad = params["padding"]
    return {
        **{k: (*v[:dim], 1, *v[dim:]) for k, v in params.items() if k not in ("padding", "select_prim")},
        "padding": (*pad[:dim], (0, 0), *pad[dim:]),
    }


def _attributes(b: Any, *, padding: Pairs, **params: Shape) -> str:
    names = {"base_dilation": "base_dilations", "window_dilation": "window_dilations"}
    pads = "[" + ", ".join(f"[{l}, {h}]" for l, h in padding) + "]" if padding else ""
    ints = [f"{names.get(k, k)} = {b.ints(v)}" for k, v in params.items()]
    return ", ".join((*ints, f"padding = dense<{pads}> : tensor<{len(padding)}x2xi64>"))


class ReduceWindow(Combining):
    """One reduction of each window."""

    allowed: ClassVar[frozenset[DType]]
    hlo: ClassVar[str] = "add"
    ufunc: ClassVar[Callable[..., Any]] = np.add

    def infer(
        self,
        x: ArrayType,
        /,
        *,
        window_dimensions: Shape,
        window_strides: Shape,
        padding: Pairs,
        base_dilation: Shape,
        window_dilation: Shape,
    ) -> ArrayType:
        check_dtype(self, self.allowed, x)
        w = Windows(window_dimensions, window_strides, padding, base_dilation, window_dilation)
        return x.with_shape(window_shape(self, x, **w._asdict()))

    def eval(self, x: NDArray, /, **params: Any) -> NDArray:
        dtype, w = x.dtype, Windows(**params)
        y = x.astype(np.float32) if dtype in dtypes.FLOAT and dtypes.bit_width(dtype) < 32 else x
        y = w.padded(y, self.identity(dtype))
        combine = type(self).ufunc
        # A box is reduced one dimension after the other.
        for axis, (k, s, d) in enumerate(zip(w.window_dimensions, w.window_strides, w.window_dilation, strict=True)):
            n = max(0, (y.shape[axis] - dilated(k, d)) // s + 1)
            if k == s == 1:
                continue
            before = (slice(None),) * axis
            parts = (y[(*before, slice(j * d, j * d + max(0, (n - 1) * s + 1) if n else j * d, s))] for j in range(k))
            y = combined(combine, parts)
        return np.asarray(y).astype(dtype, copy=False)

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], **_with_batch(params, d)), d

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, **params: Any) -> Any:
        scalar = ArrayType((), x.type.dtype)
        body = lambda inner, p, q: inner.simple(self.hlo, (p, q), scalar)
        init = b.constant(self.identity(scalar.dtype), scalar)
        attrs = _attributes(b, **params)
        return b.op("stablehlo.reduce_window", (x, init), out, attrs, [((scalar, scalar), body)])


@final
class ReduceWindowSum(LinearOp, ReduceWindow):
    """Sum of each window; padding counts as zero."""

    name = "reduce_window_sum"
    allowed = dtypes.NUMBER

    def transpose(self, ct: Array, x: UndefinedPrimal, /, **params: Any) -> Tangents:
        if 0 in ct.shape:
            return (zeros(x.type),)
        w = Windows(**params)
        back: list[tuple[int, int]] = []
        for n, m, k, step, (low, _), a, b in zip(x.shape, ct.shape, *w, strict=True):
            span = dilated(k, b)
            back.append((span - 1 - low, dilated(n, a) + low - dilated(m, step)))
        w = w._replace(window_strides=w.base_dilation, padding=tuple(back), base_dilation=w.window_strides)
        return (self(ct, **w._asdict()),)


class _Extremum(ReduceWindow):
    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    select: ClassVar[str] = ""

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x, **params)
        return y, None if t is None else select_and_gather_add(t, x, select_prim=self.select, **params)


def _worst(select_prim: str, dtype: DType) -> Any:
    return lowest(dtype) if select_prim == "ge" else highest(dtype)


def _direction(select_prim: str) -> str:
    return {"ge": "GE", "le": "LE"}[select_prim]


class _Selecting(Op):
    """Linear in its first operand; the second chooses, in each window, the first largest or smallest element."""

    @abstractmethod
    def shape(self, v: ArrayType, x: ArrayType, windows: Shape) -> Shape:
        """The shape of the result, where ``windows`` is that of the windows of ``x``; or an error."""

    def infer(
        self,
        v: ArrayType,
        x: ArrayType,
        /,
        *,
        select_prim: str,
        window_dimensions: Shape,
        window_strides: Shape,
        padding: Pairs,
        base_dilation: Shape,
        window_dilation: Shape,
    ) -> ArrayType:
        equal_dtypes(self, v, x)
        check_dtype(self, dtypes.NUMERIC - dtypes.COMPLEX, v, x)
        require(self, select_prim in ("ge", "le"), "select_prim", repr(select_prim), "'ge' or 'le'")
        w = Windows(window_dimensions, window_strides, padding, base_dilation, window_dilation)
        return v.with_shape(self.shape(v, x, window_shape(self, x, **w._asdict())))

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Array, Array | None]:
        y = self(*primals, **params)
        # The choice is piecewise constant.
        return y, None if tangents[0] is None else self(tangents[0], primals[1], **params)

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        moved = (move_batch(x, d, size) for x, d in zip(args, dims, strict=True))
        return self(*moved, select_prim=params["select_prim"], **_with_batch(params, 0)), 0


def _chosen(x: NDArray, shape: Shape, select_prim: str, w: Windows) -> list[tuple[NDArray, tuple[slice, ...]]]:
    """Per tap of the window: where it is the chosen one [windows], and where it lies in the padded operand."""
    worst = _worst(select_prim, x.dtype)
    padded, inside = w.padded(x, worst), w.padded(np.ones(x.shape, np.bool_), False)
    better = np.greater_equal if select_prim == "ge" else np.less_equal
    best = np.full(shape, worst, x.dtype)
    winner = np.full(shape, -1)
    places: list[tuple[slice, ...]] = []
    for i, tap in enumerate(np.ndindex(*w.window_dimensions)):
        place = tuple(
            slice(j * d, j * d + (n - 1) * s + 1 if n else j * d, s)
            for j, d, n, s in zip(tap, w.window_dilation, shape, w.window_strides, strict=True)
        )
        places.append(place)
        value = padded[place]
        taken = inside[place] & ~((winner >= 0) & better(best, value))
        best = np.where(taken, value, best)
        winner = np.where(taken, i, winner)
    return [(winner == i, place) for i, place in enumerate(places)]


@final
class SelectAndGatherAdd(_Selecting):
    """In each window, the element of ``t`` that lies where ``x`` is largest ("ge") or smallest ("le")."""

    name = "select_and_gather_add"

    def shape(self, t: ArrayType, x: ArrayType, windows: Shape) -> Shape:
        if t.shape != x.shape:
            raise ShapeError("select_and_gather_add: operands differ in shape", got=f"{t} and {x}")
        return windows

    def eval(self, t: NDArray, x: NDArray, /, *, select_prim: str, **params: Any) -> NDArray:
        w = Windows(**params)
        y = np.zeros(window_shape(self, ArrayType(x.shape, x.dtype), **params), t.dtype)
        padded = w.padded(t, 0)
        for mask, place in _chosen(x, y.shape, select_prim, w):
            np.copyto(y, padded[place], where=mask)
        return y

    def transpose(self, ct: Array, t: UndefinedPrimal, x: Array, /, **params: Any) -> Tangents:
        return (select_and_scatter_add(ct, x, **params), None)

    def stablehlo(self, b: Any, out: ArrayType, t: Any, x: Any, /, *, select_prim: str, **params: Any) -> Any:
        scalar = ArrayType((), t.type.dtype)
        predicate = ArrayType((), dtypes.bool_)

        def body(inner: Any, *args: Any) -> Any:
            x1, t1, x2, t2 = args
            keep = inner.compare(_direction(select_prim), x1, x2, predicate)
            return [inner.op("stablehlo.select", (keep, p, q), scalar) for p, q in ((x1, x2), (t1, t2))]

        inits = [b.constant(v, scalar) for v in (_worst(select_prim, scalar.dtype), 0)]
        outs = (ArrayType(out.shape, x.type.dtype), out)
        attrs = _attributes(b, **params)
        return b.op("stablehlo.reduce_window", (x, t, *inits), outs, attrs, [((scalar,) * 4, body)])[1]


@final
class SelectAndScatterAdd(_Selecting):
    """Transpose of `select_and_gather_add`: each element of ``source`` added where its window chose from ``x``."""

    name = "select_and_scatter_add"

    def shape(self, source: ArrayType, x: ArrayType, windows: Shape) -> Shape:
        if source.shape != windows:
            raise ShapeError("select_and_scatter_add: one source element per window", got=source, expected=windows)
        return x.shape

    def eval(self, source: NDArray, x: NDArray, /, *, select_prim: str, **params: Any) -> NDArray:
        w = Windows(**params)
        wide = np.float32 if source.dtype in dtypes.FLOAT and dtypes.bit_width(source.dtype) < 32 else source.dtype
        padded = np.zeros(w.padded(x, 0).shape, wide)
        for mask, place in _chosen(x, source.shape, select_prim, w):
            padded[place] += np.where(mask, source, 0).astype(wide)
        without = w._replace(padding=tuple((-l, -h) for l, h in w.padding), base_dilation=(1,) * x.ndim)
        cut = without.padded(padded, 0)
        return cut[tuple(slice(None, None, d) for d in w.base_dilation)].astype(source.dtype)

    def transpose(self, ct: Array, source: UndefinedPrimal, x: Array, /, **params: Any) -> Tangents:
        return (select_and_gather_add(ct, x, **params), None)

    def expand(self, source: Array, x: Array, /, *, select_prim: str, **params: Any) -> Array:
        w = Windows(**params)
        shape = source.shape
        if 0 in shape:
            return zeros(ArrayType(x.shape, source.dtype))
        config = w.padding_config
        worst = constant(_worst(select_prim, x.dtype), x.dtype)
        padded = pad(x, worst, padding_config=config)
        inside = pad(constant(True, dtypes.bool_, x.shape), constant(False, dtypes.bool_), padding_config=config)
        better = ge if select_prim == "ge" else le
        taps = list(itertools.product(*map(range, w.window_dimensions)))
        best = constant(_worst(select_prim, x.dtype), x.dtype, shape)
        winner = constant(-1, dtypes.int32, shape)
        starts = [tuple(j * d for j, d in zip(tap, w.window_dilation, strict=True)) for tap in taps]
        for i, start in enumerate(starts):
            limit = tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, shape, w.window_strides, strict=True))
            at = {"start_indices": start, "limit_indices": limit, "strides": w.window_strides}
            value = slice_(padded, **at)
            kept = and_(ge(winner, like(winner, 0)), better(best, value))
            taken = and_(slice_(inside, **at), not_(kept))
            best = select_n(taken, best, value)
            winner = select_n(taken, winner, like(winner, i))
        total = zeros(ArrayType(padded.shape, source.dtype))
        nothing, zero = zeros(source.type), zeros(ArrayType((), source.dtype))
        for i, start in enumerate(starts):
            spread = tuple(
                (a, m - a - dilated(n, s), s - 1)
                for a, m, n, s in zip(start, padded.shape, shape, w.window_strides, strict=True)
            )
            here = select_n(eq(winner, like(winner, i)), nothing, source)
            total = add(total, pad(here, zero, padding_config=spread))
        cut = pad(total, zero, padding_config=tuple((-l, -h, 0) for l, h in w.padding))
        return slice_(cut, start_indices=(0,) * x.ndim, limit_indices=cut.shape, strides=w.base_dilation)

    def stablehlo(self, b: Any, out: ArrayType, source: Any, x: Any, /, *, select_prim: str, **params: Any) -> Any:
        dilations: dict[str, Shape] = {k: params[k] for k in ("base_dilation", "window_dilation")}
        if any(d != 1 for v in dilations.values() for d in v) or any(p < 0 for pair in params["padding"] for p in pair):
            return b.inline(self.expand, (source, x), {"select_prim": select_prim, **params})
        scalar, predicate = ArrayType((), source.type.dtype), ArrayType((), dtypes.bool_)
        attrs = _attributes(b, **{k: v for k, v in params.items() if k not in dilations})
        regions = [
            ((scalar, scalar), lambda inner, p, q: inner.compare(_direction(select_prim), p, q, predicate)),
            ((scalar, scalar), lambda inner, p, q: inner.simple("add", (p, q), scalar)),
        ]
        zero = b.constant(0, scalar)
        return b.op("stablehlo.select_and_scatter", (x, source, zero), out, attrs, regions)


reduce_window_sum = ReduceWindowSum()
reduce_window_max = define_op(
    _Extremum,
    "reduce_window_max",
    "Largest element of each window; its tangent is that of the first such element.",
    hlo="maximum",
    ufunc=np.maximum,
    select="ge",
    start=lowest,
)
reduce_window_min = define_op(
    _Extremum,
    "reduce_window_min",
    "Smallest element of each window; its tangent is that of the first such element.",
    hlo="minimum",
    ufunc=np.minimum,
    select="le",
    start=highest,
)
select_and_gather_add = SelectAndGatherAdd()
select_and_scatter_add = SelectAndScatterAdd()
