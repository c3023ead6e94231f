"""Parts of arrays at static or dynamic places: slice, pad, concatenate, split, dynamic_slice, dynamic_update_slice."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops import vocabulary as ops
from nxjax.ops.arithmetic import sub
from nxjax.ops.base import (
    DataMovement,
    KeepsAxis,
    LinearOp,
    NDArray,
    all_weak,
    check_counted_axis,
    constant,
    equal_dtypes,
    move_batch,
    require,
    zeros,
)
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType, Shape

slice_ = builtins.slice  # the op below takes the name, as everywhere in this vocabulary
Padding = tuple[tuple[int, int, int], ...]


def insert(values: Sequence[int], at: int, value: int) -> tuple[int, ...]:
    """``values`` with ``value`` put in before position ``at``: a parameter per dimension, for a batched operand."""
    return (*values[:at], value, *values[at:])


@final
class Slice(DataMovement, LinearOp):
    """``x[start:limit:stride]`` in every dimension; ``strides`` None is all ones."""

    name = "slice"

    def infer(
        self, x: ArrayType, /, *, start_indices: Shape, limit_indices: Shape, strides: Shape | None = None
    ) -> ArrayType:
        steps = strides or (1,) * x.ndim
        require(
            self,
            len(start_indices) == len(limit_indices) == len(steps) == x.ndim,
            "one start, limit and stride per dimension",
            (start_indices, limit_indices, strides),
            x,
        )
        for n, start, limit, step in zip(x.shape, start_indices, limit_indices, steps, strict=True):
            if not 0 <= start <= limit <= n:
                raise ShapeError(
                    "slice: bounds are outside the operand",
                    got=f"{start}:{limit} of {x}",
                    expected=f"0 <= start <= limit <= {n}",
                )
            require(self, step > 0, "strides must be positive", strides)
        return x.with_shape(
            tuple(-(-(l - s) // k) for s, l, k in zip(start_indices, limit_indices, steps, strict=True))
        )

    def eval(
        self, x: NDArray, /, *, start_indices: Shape, limit_indices: Shape, strides: Shape | None = None
    ) -> NDArray:
        steps = strides or (1,) * x.ndim
        return x[tuple(map(slice_, start_indices, limit_indices, steps))]

    def transpose(
        self,
        ct: Array,
        x: UndefinedPrimal,
        /,
        *,
        start_indices: Shape,
        limit_indices: Shape,
        strides: Shape | None = None,
    ) -> Tangents:
        steps = strides or (1,) * x.ndim
        config: list[tuple[int, int, int]] = []
        for n, start, k, m in zip(x.shape, start_indices, steps, ct.shape, strict=True):
            taken = start + (m - 1) * k + 1 if m else start
            config.append((start, n - taken, k - 1))
        return (pad(ct, zero(ct), padding_config=tuple(config)),)

    def batch(
        self,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        start_indices: Shape,
        limit_indices: Shape,
        strides: Shape | None = None,
    ) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        steps = None if strides is None else insert(strides, d, 1)
        starts, limits = insert(start_indices, d, 0), insert(limit_indices, d, size)
        return self(args[0], start_indices=starts, limit_indices=limits, strides=steps), d

    def stablehlo(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        /,
        *,
        start_indices: Shape,
        limit_indices: Shape,
        strides: Shape | None = None,
    ) -> Any:
        steps = strides or (1,) * x.type.ndim
        bounds = f"start_indices = {b.ints(start_indices)}, limit_indices = {b.ints(limit_indices)}"
        attrs = f"{bounds}, strides = {b.ints(steps)}"
        return b.op("stablehlo.slice", (x,), out, attrs)


def slice_axis(x: Array, axis: int, start: int, stop: int, stride: int = 1) -> Array:
    """``x[start:stop:stride]`` along ``axis``."""
    return slice(
        x,
        start_indices=tuple(start if d == axis else 0 for d in range(x.ndim)),
        limit_indices=tuple(stop if d == axis else n for d, n in enumerate(x.shape)),
        strides=None if stride == 1 else tuple(stride if d == axis else 1 for d in range(x.ndim)),
    )


def row(x: Array, i: int) -> Array:
    """``x[i]``"""
    return reshape(slice_axis(x, 0, i, i + 1), shape=x.shape[1:])


def zero(x: Array | UndefinedPrimal) -> Array:
    """The scalar zero of ``x``'s dtype."""
    return zeros(ArrayType((), x.dtype))


@final
class Pad(DataMovement, LinearOp):
    """``x`` with ``value`` (a scalar) around and between its elements: (low, high, interior) per dimension.

    Negative low or high cut elements off.
    """

    name = "pad"

    def infer(self, x: ArrayType, value: ArrayType, /, *, padding_config: Padding) -> ArrayType:
        equal_dtypes(self, x, value)
        if value.shape:
            raise ShapeError("pad: the padding value is a scalar", got=value)
        require(self, len(padding_config) == x.ndim, "one (low, high, interior) per dimension", padding_config, x)
        shape: list[int] = []
        for n, (low, high, interior) in zip(x.shape, padding_config, strict=True):
            require(self, interior >= 0, "interior padding cannot be negative", padding_config)
            m = n + low + high + max(n - 1, 0) * interior
            if m < 0:
                raise ShapeError("pad: more is cut off than there is", got=f"{padding_config} of {x}")
            shape.append(m)
        return ArrayType(tuple(shape), x.dtype, all_weak(x, value))

    def eval(self, x: NDArray, value: NDArray, /, *, padding_config: Padding) -> NDArray:
        spread = tuple(n + max(n - 1, 0) * i for n, (_, _, i) in zip(x.shape, padding_config, strict=True))
        full = tuple(max(l, 0) + n + max(h, 0) for n, (l, h, _) in zip(spread, padding_config, strict=True))
        y = np.full(full, value, x.dtype)
        target = tuple(
            slice_(max(l, 0), max(l, 0) + n, i + 1) for n, (l, _, i) in zip(spread, padding_config, strict=True)
        )
        y[target] = x
        return y[tuple(slice_(max(-l, 0), n - max(-h, 0)) for n, (l, h, _) in zip(full, padding_config, strict=True))]

    def transpose(self, ct: Array, x: Any, value: Any, /, *, padding_config: Padding) -> Tangents:
        # Undo the borders, then step over what was put between.
        undone = pad(ct, zero(ct), padding_config=tuple((-l, -h, 0) for l, h, _ in padding_config))
        inner = slice(
            undone,
            start_indices=(0,) * undone.ndim,
            limit_indices=undone.shape,
            strides=tuple(i + 1 for _, _, i in padding_config),
        )
        ct_value: Array | None = None
        if isinstance(value, UndefinedPrimal):
            ct_value = sub(reduce_sum(ct, axes=tuple(range(ct.ndim))), reduce_sum(inner, axes=tuple(range(ct.ndim))))
        return (inner if isinstance(x, UndefinedPrimal) else None, ct_value)

    def batch(self, size: int, args: Arrays, dims: Dims, *, padding_config: Padding) -> tuple[Any, Any]:
        x, value = args
        if dims[1] is None:
            d = dims[0]
            assert d is not None
            return self(x, value, padding_config=(*padding_config[:d], (0, 0, 0), *padding_config[d:])), d
        # A value per element: pad with zeros, and choose it where a mask of ones was padded with zeros.

        x = move_batch(x, dims[0], size)
        config = ((0, 0, 0), *padding_config)
        padded = self(x, zero(x), padding_config=config)
        mask = self(constant(True, dtypes.bool_, x.shape), constant(False, dtypes.bool_), padding_config=config)
        values = broadcast_in_dim(move_batch(value, dims[1], size), shape=padded.shape, broadcast_dimensions=(0,))
        return select_n(mask, values, padded), 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, value: Any, /, *, padding_config: Padding) -> Any:
        low, high, inner = ([c[i] for c in padding_config] for i in range(3))
        attrs = (
            f"edge_padding_low = {b.ints(low)}, edge_padding_high = {b.ints(high)}, interior_padding = {b.ints(inner)}"
        )
        return b.op("stablehlo.pad", (x, value), out, attrs)


@final
class Concatenate(DataMovement, LinearOp):
    """The operands one after the other along ``dimension``."""

    name = "concatenate"

    def infer(self, first: ArrayType, /, *others: ArrayType, dimension: int) -> ArrayType:
        types = (first, *others)
        equal_dtypes(self, *types)
        check_counted_axis(self, dimension, first.ndim)
        rest = first.shape[:dimension] + first.shape[dimension + 1 :]
        if any(t.ndim != first.ndim or t.shape[:dimension] + t.shape[dimension + 1 :] != rest for t in types):
            raise ShapeError(
                "concatenate: operands differ outside the dimension",
                got=f"{', '.join(map(repr, types))} along {dimension}",
                expected="equal sizes in all other dimensions",
                fix="join along another axis, or pad or slice one operand",
            )
        shape = (*first.shape[:dimension], sum(t.shape[dimension] for t in types), *first.shape[dimension + 1 :])
        return ArrayType(shape, first.dtype, all_weak(*types))

    def eval(self, *xs: NDArray, dimension: int) -> NDArray:
        return np.concatenate(xs, dimension)

    def transpose(self, ct: Array, /, *xs: Any, dimension: int) -> Tangents:
        ends = list(itertools.accumulate(x.shape[dimension] for x in xs))
        cts: list[Array | None] = []
        for x, end in zip(xs, ends, strict=True):
            start = end - x.shape[dimension]
            starts = tuple(start if i == dimension else 0 for i in range(ct.ndim))
            limits = tuple(end if i == dimension else n for i, n in enumerate(ct.shape))
            cts.append(
                slice(ct, start_indices=starts, limit_indices=limits) if isinstance(x, UndefinedPrimal) else None
            )
        return cts

    def batch(self, size: int, args: Arrays, dims: Dims, *, dimension: int) -> tuple[Any, Any]:
        moved = (move_batch(x, d, size) for x, d in zip(args, dims, strict=True))
        return self(*moved, dimension=dimension + 1), 0

    def stablehlo(self, b: Any, out: ArrayType, /, *xs: Any, dimension: int) -> Any:
        if len(xs) == 1:
            return xs[0]
        return b.op("stablehlo.concatenate", xs, out, f"dimension = {dimension} : i64")


@final
class Split(DataMovement, KeepsAxis, LinearOp):
    """The pieces of ``sizes`` that lie one after the other along ``axis``."""

    name = "split"
    multi = True

    def infer(self, x: ArrayType, /, *, sizes: Shape, axis: int) -> tuple[ArrayType, ...]:
        check_counted_axis(self, axis, x.ndim)
        if any(n < 0 for n in sizes) or sum(sizes) != x.shape[axis]:
            raise ShapeError(
                "split: the sizes do not add up", got=sizes, expected=f"a sum of {x.shape[axis]}, axis {axis} of {x}"
            )
        return tuple(x.with_shape((*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes)

    def eval(self, x: NDArray, /, *, sizes: Shape, axis: int) -> tuple[NDArray, ...]:
        return tuple(np.split(x, np.cumsum(sizes[:-1]), axis)) if sizes else ()

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        ys = self(*primals, **params)
        t = tangents[0]
        return ys, (None,) * len(ys) if t is None else self(t, **params)

    def transpose(self, cts: Tangents, x: UndefinedPrimal, /, *, sizes: Shape, axis: int) -> Tangents:
        types = self.infer(x.type, sizes=sizes, axis=axis)
        filled = (zeros(t) if ct is None else ct for ct, t in zip(cts, types, strict=True))
        return (concatenate(*filled, dimension=axis),)

    def stablehlo(self, b: Any, out: Any, x: Any, /, *, sizes: Shape, axis: int) -> Any:
        pieces: list[Any] = []
        for t, end in zip(out, itertools.accumulate(sizes), strict=True):
            starts = tuple(end - t.shape[axis] if i == axis else 0 for i in range(t.ndim))
            limits = tuple(end if i == axis else n for i, n in enumerate(t.shape))
            pieces.append(slice.stablehlo(b, t, x, start_indices=starts, limit_indices=limits))
        return tuple(pieces)


def _check_starts(op: Op, x: ArrayType, starts: Sequence[ArrayType]) -> None:
    require(op, len(starts) == x.ndim, "one start index per dimension", len(starts), x)
    for start in starts:
        if start.shape:
            raise ShapeError(f"{op}: start indices are scalars", got=start)
        if start.dtype not in dtypes.INTEGER:
            raise DtypeError(f"{op}: start indices are integers", got=start)


def _clamped(starts: Sequence[NDArray], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]


@final
class DynamicSlice(DataMovement):
    """A block of ``slice_sizes`` at start indices given as scalar operands, moved inside where it would stick out."""

    name = "dynamic_slice"
    moved = slice(1)

    def infer(self, x: ArrayType, /, *starts: ArrayType, slice_sizes: Shape) -> ArrayType:
        _check_starts(self, x, starts)
        require(self, len(slice_sizes) == x.ndim, "one size per dimension", slice_sizes, x)
        if any(not 0 <= k <= n for k, n in zip(slice_sizes, x.shape, strict=True)):
            raise ShapeError("dynamic_slice: the block is larger than the operand", got=f"{slice_sizes} of {x}")
        return x.with_shape(slice_sizes)

    def eval(self, x: NDArray, /, *starts: NDArray, slice_sizes: Shape) -> NDArray:
        at = _clamped(starts, x.shape, slice_sizes)
        return x[tuple(slice_(s, s + k) for s, k in zip(at, slice_sizes, strict=True))]

    def jvp(self, primals: Arrays, tangents: Tangents, *, slice_sizes: Shape) -> tuple[Array, Array | None]:
        starts = primals[1:]
        y = self(*primals, slice_sizes=slice_sizes)
        return y, None if tangents[0] is None else self(tangents[0], *starts, slice_sizes=slice_sizes)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *starts: Array, slice_sizes: Shape) -> Tangents:
        return (dynamic_update_slice(zeros(x.type), ct, *starts), *(None for _ in starts))

    def batch(self, size: int, args: Arrays, dims: Dims, *, slice_sizes: Shape) -> tuple[Any, Any]:
        x, *starts = args
        d = dims[0]
        if all(s is None for s in dims[1:]):
            assert d is not None
            at = [*starts[:d], wrap(np.zeros((), starts[0].dtype if starts else np.int32)), *starts[d:]]
            return self(x, *at, slice_sizes=insert(slice_sizes, d, size)), d
        n = len(slice_sizes)
        index = _stacked(starts, dims[1:], size)
        batched = d is not None
        numbers = GatherDimensionNumbers(
            offset_dims=tuple(range(1, n + 1)),
            collapsed_slice_dims=(),
            start_index_map=tuple(range(1, n + 1)) if batched else tuple(range(n)),
            operand_batching_dims=(0,) if batched else (),
            start_indices_batching_dims=(0,) if batched else (),
        )
        operand = move_batch(x, d, size) if batched else x
        sizes = (1, *slice_sizes) if batched else slice_sizes
        y = ops.gather(operand, index, dimension_numbers=numbers, slice_sizes=sizes, mode=GatherScatterMode.CLIP)
        return y, 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *starts: Any, slice_sizes: Shape) -> Any:
        at = _same_dtype(b, starts)
        return b.op("stablehlo.dynamic_slice", (x, *at), out, f"slice_sizes = {b.ints(slice_sizes)}")


def _same_dtype(b: Any, starts: Sequence[Any]) -> Sequence[Any]:
    """Start indices in one dtype, as StableHLO wants them, and one that holds the bounds they are clamped to."""
    kinds = {s.type.dtype for s in starts}
    if len(kinds) == 1 and all(d.itemsize >= 4 for d in kinds):
        return starts
    return [b.convert(s, dtypes.int32 if all(d.itemsize < 4 for d in kinds) else dtypes.int64) for s in starts]


def _stacked(starts: Arrays, dims: Dims, size: int) -> Array:
    """Scalar indices, some of them batched, as one [size, n] array."""
    widest = max((s.dtype for s in starts), key=lambda d: d.itemsize)
    columns = [convert_element_type(move_batch(s, d, size), dtype=widest) for s, d in zip(starts, dims, strict=True)]
    return concatenate(*(reshape(c, shape=(size, 1)) for c in columns), dimension=1)


@final
class DynamicUpdateSlice(DataMovement):
    """``x`` with the block at the start indices replaced by ``update``; moved inside where it would stick out."""

    name = "dynamic_update_slice"
    updates = True
    moved = slice(2)

    def infer(self, x: ArrayType, update: ArrayType, /, *starts: ArrayType) -> ArrayType:
        equal_dtypes(self, x, update)
        _check_starts(self, x, starts)
        if update.ndim != x.ndim or any(k > n for k, n in zip(update.shape, x.shape, strict=True)):
            raise ShapeError("dynamic_update_slice: the update is larger than the operand", got=f"{update} into {x}")
        return ArrayType(x.shape, x.dtype, all_weak(x, update))

    def eval(self, x: NDArray, update: NDArray, /, *starts: NDArray) -> NDArray:
        y = np.array(x)
        at = _clamped(starts, x.shape, update.shape)
        y[tuple(slice_(s, s + k) for s, k in zip(at, update.shape, strict=True))] = update
        return y

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Array, Array | None]:
        x, update, *starts = primals
        y = self(*primals)
        if tangents[0] is None and tangents[1] is None:
            return y, None
        tx = zeros(x.type) if tangents[0] is None else tangents[0]
        tu = zeros(update.type) if tangents[1] is None else tangents[1]
        return y, self(tx, tu, *starts)

    def transpose(self, ct: Array, x: Any, update: Any, /, *starts: Array) -> Tangents:
        ct_x = self(ct, zeros(update.type), *starts) if isinstance(x, UndefinedPrimal) else None
        ct_u = dynamic_slice(ct, *starts, slice_sizes=update.shape) if isinstance(update, UndefinedPrimal) else None
        return (ct_x, ct_u, *(None for _ in starts))

    def batch(self, size: int, args: Arrays, dims: Dims) -> tuple[Any, Any]:
        x, update, *starts = args
        if all(s is None for s in dims[2:]):
            at = [wrap(np.zeros((), starts[0].dtype if starts else np.int32)), *starts]
            return self(move_batch(x, dims[0], size), move_batch(update, dims[1], size), *at), 0
        x, update = move_batch(x, dims[0], size), move_batch(update, dims[1], size)
        n = x.ndim - 1
        numbers = ScatterDimensionNumbers(
            update_window_dims=tuple(range(1, n + 1)),
            inserted_window_dims=(),
            scatter_dims_to_operand_dims=tuple(range(1, n + 1)),
            operand_batching_dims=(0,),
            scatter_indices_batching_dims=(0,),
        )
        index = _stacked(starts, dims[2:], size)
        y = ops.scatter(
            x,
            index,
            update,
            dimension_numbers=numbers,
            indices_are_sorted=True,
            unique_indices=True,
            mode=GatherScatterMode.CLIP,
        )
        return y, 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, update: Any, /, *starts: Any) -> Any:
        return b.op("stablehlo.dynamic_update_slice", (x, update, *_same_dtype(b, starts)), out)


slice = Slice()
pad = Pad()
concatenate = Concatenate()
split = Split()
dynamic_slice = DynamicSlice()
dynamic_update_slice = DynamicUpdateSlice()
