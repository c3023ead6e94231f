"""Sorting along one axis: sort with companions, top_k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import sub
from nxjax.ops.base import (
    KeepsAxis,
    NDArray,
    check_counted_axis,
    check_dtype,
    constant,
    equal_shapes,
    like,
    move_batch,
    require,
)
from nxjax.ops.bitwise import and_, not_, or_, shift_left, xor
from nxjax.ops.compare import eq, lt, ne
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import gather
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice_axis
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


def take_along(x: Array, index: Array, axis: int) -> Array:
    """``x[..., index[..., i], ...]`` along ``axis``, the other dimensions in step."""
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    index = reshape(index, shape=(*index.shape, 1))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return gather(x, index, dimension_numbers=numbers, slice_sizes=(1,) * x.ndim, mode=mode)


@final
class Sort(Op):
    """Sorts the operands together along ``dimension``, ascending by the first ``num_keys`` of them in turn.

    NaNs come last; -0.0 equals 0.0; complex numbers sort by real, then imaginary part. With ``is_stable`` equal
    elements keep their order.
    """

    name = "sort"
    makes_nan = False
    multi = True

    def infer(
        self, first: ArrayType, /, *others: ArrayType, dimension: int, is_stable: bool = True, num_keys: int = 1
    ) -> tuple[ArrayType, ...]:
        types = (first, *others)
        equal_shapes(self, *types)
        check_counted_axis(self, dimension, first.ndim)
        require(self, 1 <= num_keys <= len(types), "num_keys", num_keys, f"1 to {len(types)}")
        check_dtype(self, dtypes.NUMERIC, *types[:num_keys])
        return types

    def eval(self, *xs: NDArray, dimension: int, is_stable: bool = True, num_keys: int = 1) -> tuple[NDArray, ...]:
        order = self.order(xs[:num_keys], dimension)
        return tuple(np.take_along_axis(x, order, dimension) for x in xs)

    @staticmethod
    def order(keys: Sequence[NDArray], axis: int) -> NDArray:
        """The stable sorting permutation by several keys."""
        columns: list[NDArray] = []
        for k in keys:
            if k.dtype in dtypes.COMPLEX:
                columns += [k.real, k.imag]
            else:
                columns.append(k if k.dtype.isbuiltin == 1 else k.astype(np.float32))
        order = np.broadcast_to(
            np.arange(keys[0].shape[axis]).reshape([-1 if i == axis else 1 for i in range(keys[0].ndim)]), keys[0].shape
        )
        # Least significant key first; each pass is stable.
        for k in reversed(columns):
            step = np.argsort(np.take_along_axis(k, order, axis), axis, kind="stable")
            order = np.take_along_axis(order, step, axis)
        return order

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, dimension: int, is_stable: bool = True, num_keys: int = 1
    ) -> tuple[Any, Any]:
        if all(t is None for t in tangents):
            ys = self(*primals, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
            return ys, (None,) * len(ys)
        index = iota(dtype=dtypes.int32, shape=primals[0].shape, dimension=dimension)
        *ys, order = self(*primals, index, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
        return tuple(ys), tuple(None if t is None else take_along(t, order, dimension) for t in tangents)

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, dimension: int, is_stable: bool = True, num_keys: int = 1
    ) -> tuple[Any, Any]:
        moved = (move_batch(x, d, size) for x, d in zip(args, dims, strict=True))
        ys = self(*moved, dimension=dimension + 1, is_stable=is_stable, num_keys=num_keys)
        return ys, (0,) * len(ys)

    def stablehlo(
        self, b: Any, out: Any, /, *xs: Any, dimension: int, is_stable: bool = True, num_keys: int = 1
    ) -> Any:
        if not (num_keys == len(xs) == 1 and out[0].dtype in dtypes.INTEGER):
            packed = _packed_word(out[:num_keys], dimension)
            if packed is not None:
                params = {"word": packed, "dimension": dimension, "num_keys": num_keys}
                return b.inline(_sort_packed, xs, params, True)

        def body(inner: Any, *pairs: Any) -> Any:
            def before(*values: Array) -> Array:
                """Lexicographic: less by the first key, or equal by it and less by the next."""
                result: Array | None = None
                for x, y in reversed(list(zip(values[::2], values[1::2], strict=True))):
                    here = lt(x, y)
                    result = here if result is None else or_(here, and_(eq(x, y), result))
                assert result is not None
                return result

            keys: list[Any] = []
            for x, y in zip(pairs[0 : 2 * num_keys : 2], pairs[1 : 2 * num_keys : 2], strict=True):
                for left, right in zip(_parts(inner, x), _parts(inner, y), strict=True):
                    keys += [_ordered(inner, left), _ordered(inner, right)]
            return inner.inline(before, keys)

        arg_types = [ArrayType((), x.type.dtype) for x in xs for _ in range(2)]
        attrs = f"dimension = {dimension} : i64, is_stable = {str(is_stable).lower()}"
        return b.op("stablehlo.sort", xs, tuple(out), attrs, [(arg_types, body)])


def _key_bits(t: ArrayType) -> int:
    return 1 if t.dtype == dtypes.bool_ else dtypes.bit_width(t.dtype)


def _packed_word(keys: Sequence[ArrayType], axis: int) -> DType | None:
    """The unsigned type that holds all keys of an element together with its index, if there is one."""
    n = keys[0].shape[axis]
    if n < 2 or any(t.dtype in dtypes.COMPLEX or dtypes.bit_width(t.dtype) < 8 for t in keys):
        return None
    bits = sum(map(_key_bits, keys)) + (n - 1).bit_length()
    return dtypes.uint32 if bits <= 32 else dtypes.uint64 if bits <= 64 else None


def _sort_packed(*xs: Array, word: DType, dimension: int, num_keys: int) -> tuple[Array, ...]:
    """Keys and index as digits of one integer, which compilers sort several times faster than by a function of pairs.

    Stable, as the index decides between equal keys.
    """
    n = xs[0].shape[dimension]
    low = (n - 1).bit_length()
    packed = iota(dtype=word, shape=xs[0].shape, dimension=dimension)
    shift = low
    for x in reversed(xs[:num_keys]):
        width = _key_bits(x.type)
        key = ordered_bits(x) if x.dtype in dtypes.FLOAT else x
        if key.dtype in dtypes.SIGNED:
            plain = np.dtype(f"uint{width}")
            key = xor(bitcast_convert_type(key, dtype=plain), constant(1 << (width - 1), plain, key.shape))
        digit = convert_element_type(key, dtype=word)
        packed = or_(packed, shift_left(digit, like(digit, shift)))
        shift += width
    (ordered,) = sort(packed, dimension=dimension)
    index = convert_element_type(and_(ordered, like(ordered, (1 << low) - 1)), dtype=dtypes.uint32)
    return tuple(take_along(x, index, dimension) for x in xs)


def _parts(b: Any, x: Any) -> list[Any]:
    """Real and imaginary part of a complex key."""
    if x.type.dtype not in dtypes.COMPLEX:
        return [x]
    t = ArrayType((), dtypes.real_part(x.type.dtype))
    return [b.op("stablehlo.real", (x,), t), b.op("stablehlo.imag", (x,), t)]


def _ordered(b: Any, x: Any) -> Any:
    """A float key as an integer that orders as the float does: -0.0 as 0.0, every NaN above infinity."""
    if x.type.dtype not in dtypes.FLOAT:
        return x
    return b.inline(ordered_bits, (x,))


def ordered_bits(x: Array) -> Array:
    """An integer that sorts like the float ``x``, NaNs last."""
    word = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[x.dtype.itemsize]
    largest = dtypes.integer_info(word).max
    x = select_n(eq(x, 0), x, like(x, 0))
    bits = bitcast_convert_type(x, dtype=word)
    # Negative floats count downwards: mirror them.
    mirrored = select_n(lt(bits, 0), bits, sub(like(bits, -largest - 1), bits))
    return select_n(ne(x, x), mirrored, constant(largest, word, x.shape))


def total_bits(x: Array) -> Array:
    """A signed integer that sorts like the float ``x`` in the total order of IEEE 754."""
    word = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = bitcast_convert_type(x, dtype=word)
    # Negative floats count downwards.
    return select_n(lt(bits, 0), bits, xor(bits, like(bits, dtypes.integer_info(word).max)))


def largest_first(x: NDArray, axis: int) -> NDArray:
    """The stable permutation that sorts ``x`` from the largest down, floats in the total order of IEEE 754."""
    if x.dtype in dtypes.FLOAT:
        key = x.view(f"i{x.dtype.itemsize}")
        key = np.where(key < 0, key ^ np.iinfo(key.dtype).max, key)
    else:
        key = x if x.dtype.isbuiltin == 1 and x.dtype != dtypes.bool_ else x.astype(np.int8)
    return np.argsort(~key, axis, kind="stable")


@final
class TopK(KeepsAxis):
    """The ``k`` largest elements along ``axis``, largest first, and their indices; equal ones in order of index.

    Floats have the total order of IEEE 754: NaN, inf, ..., 0.0, -0.0, ..., -inf, -NaN.
    """

    name = "top_k"
    makes_nan = False
    multi = True

    def infer(self, x: ArrayType, /, *, k: int, axis: int) -> tuple[ArrayType, ArrayType]:
        check_dtype(self, dtypes.NUMERIC - dtypes.COMPLEX, x)
        check_counted_axis(self, axis, x.ndim)
        if not 0 <= k <= x.shape[axis]:
            raise ShapeError("top_k: k is larger than the axis", got=f"k={k} of {x} along axis {axis}")
        require(self, x.shape[axis] <= 2**31, "indices are int32, which does not hold the last one", x)
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return ArrayType(shape, x.dtype, x.weak), ArrayType(shape, dtypes.int32)

    def eval(self, x: NDArray, /, *, k: int, axis: int) -> tuple[NDArray, NDArray]:
        order = np.take(largest_first(x, axis), np.arange(k), axis)
        return np.take_along_axis(x, order, axis), order.astype(np.int32)

    def jvp(self, primals: Arrays, tangents: Tangents, *, k: int, axis: int) -> tuple[Any, Any]:
        values, index = self(*primals, k=k, axis=axis)
        t = tangents[0]
        return (values, index), (None if t is None else take_along(t, index, axis), None)

    def expand(self, x: Array, /, *, k: int, axis: int) -> tuple[Array, Array]:
        key = total_bits(x) if x.dtype in dtypes.FLOAT else x
        if key.dtype == dtypes.bool_:
            key = convert_element_type(key, dtype=dtypes.uint8)
        index = iota(dtype=dtypes.int32, shape=x.shape, dimension=axis)
        # Complementing bits turns the order of integers round.
        _, values, order = sort(not_(key), x, index, dimension=axis, is_stable=True, num_keys=1)
        return slice_axis(values, axis, 0, k), slice_axis(order, axis, 0, k)

    def stablehlo(self, b: Any, out: Any, x: Any, /, *, k: int, axis: int) -> Any:
        last = out[0].ndim - 1
        if x.type.dtype not in dtypes.FLOAT or x.type.dtype == dtypes.float64 or k == 0 or axis != last:
            return b.inline(self.expand, (x,), {"k": k, "axis": axis}, True)
        # In float32, which keeps the order; the values are read by index.
        key = x if x.type.dtype == dtypes.float32 else b.convert(x, dtypes.float32)
        _, index = b.op("chlo.top_k", (key,), (ArrayType(out[0].shape, dtypes.float32), out[1]), f"k = {k} : i64")
        return b.inline(lambda x, i: take_along(x, i, last), (x, index)), index


sort = Sort()
top_k = TopK()
