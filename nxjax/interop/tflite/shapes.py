"""Rules that move elements, and those of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax, vmap
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.elementwise import activated, output_dtype
from nxjax.interop.tflite.graph import invalid
from nxjax.interop.tflite.held import GridValue, constant
from nxjax.interop.tflite.walk import rule


def ints(v: Any) -> tuple[int, ...]:
    """A known operand of whole numbers, of any shape."""
    return tuple(int(n) for n in np.asarray(v).reshape(-1))


def number(v: Any) -> int:
    """A known operand of one whole number."""
    found = ints(v)
    if len(found) != 1:
        raise ValueError(f"{len(found)} numbers in the place of one")
    return found[0]


@rule("SHAPE", on_grids="stored")
def _shape(x: Any, *, out_type: int) -> Any:
    return constant(np.asarray(x.shape, output_dtype(out_type)))


@rule("RANK", on_grids="stored")
def _rank(x: Any) -> Any:
    return constant(np.int32(x.ndim))


@rule("RESHAPE", known=("shape",), on_grids="moved")
def _reshape(x: Any, shape: Any = None, *, new_shape: Any, node: Any) -> Any:
    wanted = ints(shape) if shape is not None else None if new_shape is None else ints(new_shape)
    # An old way to write a scalar.
    wanted = node.out.shape if wanted is None else () if wanted == (0,) and x.size == 1 else wanted
    return x.reshape(wanted)


@rule("SQUEEZE", on_grids="moved")
def _squeeze(x: Any, *, squeeze_dims: Any) -> Any:
    axes = () if squeeze_dims is None else ints(squeeze_dims)
    return x.squeeze(axes if axes else tuple(i for i, n in enumerate(x.shape) if n == 1))


@rule("EXPAND_DIMS", known=("axis",), on_grids="moved")
def _expand_dims(x: Any, axis: Any) -> Any:
    return jnp.expand_dims(x, number(axis))


@rule("TRANSPOSE", known=("order",), on_grids="moved")
def _transpose(x: Any, order: Any) -> Any:
    return x.transpose(ints(order))


@rule("CONCATENATION", on_grids="moved")
def _concatenation(*xs: Any, axis: int, fused_activation_function: int) -> Any:
    return activated(jnp.concatenate(xs, axis), fused_activation_function)


@rule("PACK", on_grids="moved")
def _pack(*xs: Any, axis: int) -> Any:
    return jnp.stack(xs, axis)


@rule("UNPACK", on_grids="moved")
def _unpack(x: Any, *, num: int, axis: int) -> Any:
    if x.shape[axis] != num:
        raise ValueError(f"{num} parts of {x.shape} along {axis}")
    return tuple(lax.index_in_dim(x, i, axis, False) for i in range(num))


@rule("SPLIT", known=("axis",), on_grids="moved")
def _split(axis: Any, x: Any, *, num_splits: int) -> Any:
    return tuple(jnp.split(x, num_splits, number(axis)))


@rule("SPLIT_V", known=("sizes", "axis"), on_grids="moved")
def _split_v(x: Any, sizes: Any, axis: Any, *, node: Any) -> Any:
    along, parts = number(axis), list(ints(sizes))
    rest = x.shape[along] - sum(n for n in parts if n >= 0)
    parts = [rest if n < 0 else n for n in parts]
    if sum(parts) != x.shape[along]:
        raise ValueError(f"parts of {parts} of {x.shape} along {along}")
    return tuple(jnp.split(x, np.cumsum(parts)[:-1].tolist(), along))


@rule("SLICE", known=("begin", "size"), on_grids="moved")
def _slice(x: Any, begin: Any, size: Any) -> Any:
    first = ints(begin)
    last = [n if k == -1 else b + k for n, b, k in zip(x.shape, first, ints(size), strict=True)]
    return lax.slice(x, first, last)


@rule("STRIDED_SLICE", known=("begin", "end", "strides"), on_grids="moved")
def _strided_slice(
    x: Any, begin: Any, end: Any, strides: Any, *, begin_mask: int, end_mask: int, ellipsis_mask: int,
    new_axis_mask: int, shrink_axis_mask: int, offset: bool,
) -> Any:  # fmt: skip
    index: list[Any] = []
    for i, (b, e, s) in enumerate(zip(ints(begin), ints(end), ints(strides), strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            index.append(Ellipsis)
        elif new_axis_mask & bit:
            index.append(None)
        elif shrink_axis_mask & bit:
            index.append(b)
        else:
            # Offsets are counted from the beginning of the slice.
            stop = b + e if offset else e
            index.append(slice(None if begin_mask & bit else b, None if end_mask & bit else stop, s))
    return x[tuple(index)]


def widths(v: Any) -> list[tuple[int, int]]:
    """What is added before and after each axis."""
    rows = np.asarray(v).reshape(-1, 2)
    return [(int(a), int(b)) for a, b in rows]


@rule("PAD", known=("around",))
def _pad(x: Any, around: Any) -> Any:
    return jnp.pad(x, widths(around))


@rule("PADV2", known=("around",))
def _pad_v2(x: Any, around: Any, filled: Any) -> Any:
    return lax.pad(x, filled.reshape(()), [(a, b, 0) for a, b in widths(around)])


@rule("MIRROR_PAD", known=("around",), on_grids="moved")
def _mirror_pad(x: Any, around: Any, *, mode: int) -> Any:
    return jnp.pad(x, widths(around), mode="symmetric" if mode else "reflect")


@rule("TILE", known=("times",), on_grids="moved")
def _tile(x: Any, times: Any) -> Any:
    return jnp.tile(x, ints(times))


@rule("BROADCAST_TO", known=("shape",), on_grids="moved")
def _broadcast_to(x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, ints(shape))


@rule("BROADCAST_ARGS", known=("a", "b"))
def _broadcast_args(a: Any, b: Any) -> Any:
    return constant(np.asarray(np.broadcast_shapes(ints(a), ints(b)), a.dtype))


@rule("REVERSE_V2", known=("axes",), on_grids="moved")
def _reverse(x: Any, axes: Any) -> Any:
    return jnp.flip(x, ints(axes))


@rule("REVERSE_SEQUENCE", on_grids="moved")
def _reverse_sequence(x: Any, lengths: Any, *, seq_dim: int, batch_dim: int) -> Any:
    seq_dim, batch_dim = seq_dim % x.ndim, batch_dim % x.ndim
    at = jnp.arange(x.shape[seq_dim])
    along = lambda v, axis: v.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    at, lengths = along(at, seq_dim), along(lengths.astype(at.dtype), batch_dim)
    index = jnp.where(at < lengths, lengths - 1 - at, at)
    return jnp.take_along_axis(x, jnp.broadcast_to(index, x.shape), axis=seq_dim)


@rule("GATHER", on_grids="moved")
def _gather(x: Any, index: Any, *, axis: int, batch_dims: int) -> Any:
    batch = batch_dims + index.ndim if batch_dims < 0 else batch_dims
    axis = axis % x.ndim
    if not batch:
        return jnp.take(x, index, axis=axis, mode="clip")
    lead = x.shape[:batch]
    rows, picks = x.reshape((-1, *x.shape[batch:])), index.reshape((-1, *index.shape[batch:]))
    y = vmap(lambda r, i: jnp.take(r, i, axis=axis - batch, mode="clip"))(rows, picks)
    return y.reshape((*lead, *y.shape[1:]))


@rule("EMBEDDING_LOOKUP", on_grids="held")
def _embedding(index: Any, table: Any, *, node: Any) -> Any:
    held = isinstance(table, GridValue)
    rows = table if not held else table.stored if node.out.grid is not None else table.real
    return jnp.take(rows, index, axis=0, mode="clip")


@rule("GATHER_ND", on_grids="moved")
def _gather_nd(x: Any, index: Any) -> Any:
    return x[tuple(index[..., i] for i in range(index.shape[-1]))]


@rule("SCATTER_ND", known=("shape",), on_grids="stored")
def _scatter_nd(index: Any, x: Any, shape: Any) -> Any:
    start = jnp.zeros(ints(shape), x.dtype)
    return start.at[tuple(index[..., i] for i in range(index.shape[-1]))].add(x)


@rule("ONE_HOT", known=("depth",), on_grids="moved")
def _one_hot(index: Any, depth: Any, on: Any, off: Any, *, axis: int) -> Any:
    n = number(depth)
    axis = index.ndim if axis < 0 else axis
    hit = jnp.expand_dims(index, axis) == jnp.arange(n).reshape([-1 if i == axis else 1 for i in range(index.ndim + 1)])
    return jnp.where(hit, on.reshape(()), off.reshape(()))


def _blocks(x: Any, block: int) -> tuple[int, int, int, int]:
    if block < 1 or x.ndim != 4:
        raise ValueError(f"blocks of {block} in {x.shape}")
    return x.shape


@rule("SPACE_TO_DEPTH", on_grids="moved")
def _space_to_depth(x: Any, *, block_size: int) -> Any:
    n, h, w, c = _blocks(x, block_size)
    cut = x.reshape(n, h // block_size, block_size, w // block_size, block_size, c)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block_size, w // block_size, block_size * block_size * c)


@rule("DEPTH_TO_SPACE", on_grids="moved")
def _depth_to_space(x: Any, *, block_size: int) -> Any:
    n, h, w, c = _blocks(x, block_size)
    depth = c // (block_size * block_size)
    cut = x.reshape(n, h, w, block_size, block_size, depth).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(n, h * block_size, w * block_size, depth)


def to_batch(x: Any, block: Sequence[int], around: list[tuple[int, int]], filled: Any) -> Any:
    """Blocks of space laid out along the batch."""
    k = len(block)
    x = lax.pad(x, filled, [(0, 0, 0), *((a, b, 0) for a, b in around), *[(0, 0, 0)] * (x.ndim - 1 - k)])
    sizes = [n // b for n, b in zip(x.shape[1:], block, strict=False)]
    cut = x.reshape((x.shape[0], *(v for pair in zip(sizes, block, strict=True) for v in pair), *x.shape[1 + k :]))
    order = [*range(2, 2 * k + 1, 2), 0, *range(1, 2 * k, 2), *range(2 * k + 1, cut.ndim)]
    return cut.transpose(order).reshape((x.shape[0] * math.prod(block), *sizes, *x.shape[1 + k :]))


@rule("SPACE_TO_BATCH_ND", known=("block", "around"))
def _space_to_batch(x: Any, block: Any, around: Any) -> Any:
    return to_batch(x, ints(block), widths(around), jnp.zeros((), x.dtype))


@rule("BATCH_TO_SPACE_ND", known=("block", "crops"), on_grids="moved")
def _batch_to_space(x: Any, block: Any, crops: Any) -> Any:
    sizes, k = ints(block), len(ints(block))
    batch = x.shape[0] // int(np.prod(sizes))
    cut = x.reshape((*sizes, batch, *x.shape[1:]))
    order = [k, *(v for i in range(k) for v in (k + 1 + i, i)), *range(2 * k + 1, cut.ndim)]
    whole = cut.transpose(order).reshape(
        (batch, *(n * b for n, b in zip(x.shape[1:], sizes, strict=False)), *x.shape[1 + k :])
    )
    index = [slice(None), *(slice(a, n - b) for n, (a, b) in zip(whole.shape[1:], widths(crops), strict=False))]
    return whole[tuple(index)]


@rule("FILL", known=("shape",), on_grids="moved")
def _fill(shape: Any, x: Any) -> Any:
    return jnp.broadcast_to(x.reshape(()), ints(shape))


@rule("RANGE", known=("start", "limit", "delta"))
def _range(start: Any, limit: Any, delta: Any) -> Any:
    a, b, d = (np.asarray(v).reshape(()) for v in (start, limit, delta))
    count = max(0, int(np.ceil((b.astype(np.float64) - a) / d)))
    if count > 1 << 28:
        raise invalid("a RANGE of too many elements", count)
    return constant((a + np.arange(count).astype(a.dtype) * d).astype(a.dtype))


@rule("DYNAMIC_UPDATE_SLICE", on_grids="moved")
def _update_slice(x: Any, update: Any, start: Any) -> Any:
    places = [start[i] for i in range(x.ndim)]
    return lax.dynamic_update_slice(x, update, places, allow_negative_indices=False)


@rule("MATRIX_DIAG", on_grids="stored")
def _matrix_diag(x: Any) -> Any:
    n = x.shape[-1]
    return jnp.where(jnp.eye(n, dtype=bool), x[..., None, :], jnp.zeros((), x.dtype))


@rule("MATRIX_SET_DIAG", on_grids="moved")
def _matrix_set_diag(x: Any, diagonal: Any) -> Any:
    rows, columns = x.shape[-2:]
    wide = jnp.pad(diagonal, [(0, 0)] * (diagonal.ndim - 1) + [(0, columns - diagonal.shape[-1])])
    return jnp.where(jnp.eye(rows, columns, dtype=bool), wide[..., None, :], x)


@rule("SPARSE_TO_DENSE", known=("shape",), on_grids="moved")
def _sparse_to_dense(index: Any, shape: Any, x: Any, filled: Any) -> Any:
    wanted = ints(shape)
    places = index.reshape(-1, len(wanted)) if index.ndim != 2 else index
    start = jnp.broadcast_to(filled.reshape(()), wanted)
    return start.at[tuple(places[:, i] for i in range(len(wanted)))].set(x)


@rule("DENSIFY", on_grids="moved")
def _densify(x: Any) -> Any:
    # A sparse constant is read as the whole array.
    return x


@rule("DILATE", known=("factors",))
def _dilate(x: Any, factors: Any, filled: Any) -> Any:
    return lax.pad(x, filled.reshape(()), [(0, 0, f - 1) for f in ints(factors)])


@rule("TOPK_V2", known=("k",), on_grids="moved")
def _top_k(x: Any, k: Any, *, node: Any) -> Any:
    values, places = lax.top_k(x, number(k))
    index = node.results[1]
    return values, places.astype(jnp.int32 if index is None else index.dtype)


@rule("UNIQUE", known=("x",))
def _unique(x: Any, *, idx_out_type: int) -> Any:
    _, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    # In the order in which they come.
    order = np.argsort(first)
    rank = np.argsort(order)
    return constant(x[first[order]]), constant(rank[inverse.reshape(-1)].astype(output_dtype(idx_out_type)))


@rule("WHERE", known=("x",))
def _where(x: Any) -> Any:
    return constant(np.argwhere(x).astype(np.int64))


@rule("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE")
def _table(*xs: Any, node: Any) -> Any:
    raise Refused("from_tflite: tables of texts are no arrays", got=node, fix="look up outside of the model")
