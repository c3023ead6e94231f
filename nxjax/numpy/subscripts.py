"""Subscripts: what ``x[index]`` means, in terms of slice, dynamic_slice and gather.

An index is first brought to one `IndexPlan`, which reading (`getitem`) and writing (`at`) share:

* every axis of the array is taken whole, cut by a contiguous window, or addressed by integer arrays;
* integer arrays broadcast together; a strided slice is an integer array with an axis of its own.

Out of range, a read is clamped to the edge and a write is dropped, as in JAX. Negative indices count from the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import (
    JAXIndexError,
    NonConcreteBooleanIndexError,
    NxError,
    ParameterError,
    TracerIntegerConversionError,
)
from nxjax.numpy.promotion import as_operand, broadcast_shape, convert, widen_index
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.core import EVAL, Array, Tracer, current_trace
from nxjax.trace.types import Shape


class OutOfRankError(NxError, IndexError):
    """More indices than axes, or a boolean mask of another shape."""


# --- what the user wrote ---


def canonical(index: Any, ndim: int) -> list[Any]:
    """One entry per axis and per new axis: int, slice, None or integer array; masks resolved, `...` written out."""
    entries = list(index) if isinstance(index, tuple) else [index]
    out: list[Any] = []
    used = 0
    ellipsis = None
    for entry in entries:
        if entry is Ellipsis:
            if ellipsis is not None:
                raise IndexError("an index can only have a single ellipsis ('...')")
            ellipsis = len(out)
        elif entry is None:
            out.append(None)
        else:
            if isinstance(entry, (list, tuple)) and isinstance(index, tuple):
                entry = np.asarray(entry) if len(entry) else np.zeros((0,), np.int32)
            for one in _entry(entry):
                out.append(one)
                used += not isinstance(one, _Truth)
    if used > ndim:
        raise OutOfRankError(
            f"Too many indices: array is {ndim}-dimensional, but {used} were indexed", expected=f"at most {ndim}"
        )
    fill = [slice(None)] * (ndim - used)
    at = len(out) if ellipsis is None else ellipsis
    return [*out[:at], *fill, *out[at:]]


class _Truth:
    """A scalar boolean in an index: a new axis of size 0 or 1."""

    def __init__(self, truth: bool) -> None:
        self.truth = truth


class _Mask(NamedTuple):
    """One integer array of a boolean mask, remembering the mask's sizes to check them."""

    index: Array
    expected: int


def _entry(entry: Any) -> list[Any]:
    if isinstance(entry, slice):
        return [entry]
    if isinstance(entry, (bool, np.bool_)):
        return [_Truth(bool(entry))]
    if isinstance(entry, (int, np.integer)):
        return [int(entry)]
    if isinstance(entry, str):
        raise TypeError(f"nxjax does not support string indexing; got idx={entry!r}")
    if isinstance(entry, (list, tuple)):
        if isinstance(entry, list) and not entry:
            return [wrap(np.zeros((0,), np.int32))]
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[array(seq)]` instead "
            "of `arr[seq]`."
        )
    x = as_operand(entry, "index")
    if x.dtype == dtypes.bool_:
        return _from_mask(x)
    if x.dtype not in dtypes.INTEGER:
        raise TypeError(
            f"Indexer must have integer or boolean type, got indexer with type {x.dtype.name} and shape {x.shape}"
        )
    if not x.shape and isinstance(x, DeviceArray):
        return [int(x.numpy())]
    return [x]


def _from_mask(x: Array) -> list[Any]:
    if isinstance(x, Tracer):
        raise NonConcreteBooleanIndexError(
            "Array boolean indices must be concrete: the number of true elements is the size of the result",
            got=f"{x.type} {x.origin()}",
            fix="nx.where(mask, x, other) keeps the shape; x.at[...] with nx.nonzero(mask, size=n) fixes the size",
        )
    data = x.numpy()
    if data.ndim == 0:
        return [_Truth(bool(data))]
    return [_Mask(wrap(i.astype(np.int32)), n) for i, n in zip(np.nonzero(data), data.shape, strict=True)]


# --- the plan ---


class IndexPlan(NamedTuple):
    """How to address ``x``: what `gather` and `scatter` need to know.

    Attributes:
        starts: integer arrays, one per addressed operand axis, all of the batch shape.
        axes: the operand axes they address.
        windows: per operand axis, the size taken from ``starts`` on (1 for addressed, collapsed axes).
        collapsed: addressed operand axes that leave no axis in the result.
        offsets: positions in the result of the axes that are windows.
        shape: of the result, before new axes.
        final: of the result, with new axes.
        flips: result axes (before new axes) to reverse.
        empty: nothing is addressed (a false scalar mask).
        unique: no element is addressed twice.
    """

    starts: list[Array]
    axes: tuple[int, ...]
    windows: Shape
    collapsed: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: Shape
    final: Shape
    flips: tuple[int, ...]
    empty: bool
    unique: bool


def _int_bound(x: Any) -> int | None:
    if x is None:
        return None
    try:
        return operator.index(x)
    except TracerIntegerConversionError as error:
        raise JAXIndexError(
            "Array slice indices must have static start/stop/step to be used with NumPy indexing syntax",
            got=error.got,
            expected="integers or None: the result's shape depends on them",
            fix="nx.lax.dynamic_slice_in_dim(x, start, size) is a window at a traced position",
        ) from None
    except TypeError:
        raise TypeError(f"slice indices must be integers or None, got {type(x).__name__}") from None


def _span(s: slice, n: int) -> tuple[int, int, int]:
    """First element, number of elements and step."""
    step = _int_bound(s.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    start, stop, step = slice(_int_bound(s.start), _int_bound(s.stop), step).indices(n)
    return start, len(range(start, stop, step)), step


def wrapped(index: Any, n: int) -> Any:
    """Negative indices counted from the end."""
    if isinstance(index, int):
        return index + n if index < 0 else index
    v = widen_index(index)
    if index.dtype in dtypes.UNSIGNED:
        return v
    if isinstance(v, DeviceArray) and current_trace() is not EVAL:
        data = v.numpy()
        return wrap(np.where(data < 0, data + data.dtype.type(n), data).astype(data.dtype))
    return ops.select_n(ops.lt(v, 0), v, ops.add(v, n))


def make_plan(shape: Shape, entries: Sequence[Any], wrap_negative: bool = True) -> IndexPlan:
    """The plan for canonical ``entries`` on an array of ``shape``."""
    _check_masks(shape, entries)
    truths = [e.truth for e in entries if isinstance(e, _Truth)]
    block_shape, first = _block(entries, truths)
    arrays: list[tuple[int, Any]] = []  # operand axis, index
    known: list[tuple[int, Any, tuple[int, ...]]] = []  # operand axis, where it starts, its batch axes
    windows = list(shape)
    # Batch axes of the indices, in the order of the result.
    batch: list[int] = []
    collapsed: list[int] = []
    offsets: list[int] = []
    flips: list[int] = []
    result: list[int] = []
    final: list[int] = []
    axis = block_end = 0
    for i, e in enumerate(entries):
        if i == first:
            batch += block_shape
            result += block_shape
            final += block_shape
            block_end = len(batch)
        if e is None:
            final.append(1)
            continue
        if isinstance(e, _Truth):
            continue
        n = shape[axis]
        if isinstance(e, slice):
            start, count, step = _span(e, n)
            if step == -1 and count:
                start, step = start - count + 1, 1
                flips.append(len(result))
            if step == 1 or count <= 1:
                windows[axis] = count
                if start and count:
                    known.append((axis, start, ()))
                offsets.append(len(result))
            else:
                windows[axis] = 1
                collapsed.append(axis)
                known.append((axis, start + step * np.arange(count), (len(batch),)))
                batch.append(count)
            result.append(count)
            final.append(count)
        else:
            windows[axis] = 1
            collapsed.append(axis)
            arrays.append((axis, e.index if isinstance(e, _Mask) else wrapped(e, n) if wrap_negative else e))
        axis += 1
    integer = _index_dtype(shape, arrays)
    limit = np.iinfo(integer)
    starts: dict[int, Array] = {}
    for a, e in arrays:
        # An integer that no index type holds is as far outside as one can be.
        v = wrap(np.asarray(min(max(e, limit.min), limit.max), integer)) if isinstance(e, int) else convert(e, integer)
        starts[a] = _spread(v, tuple(batch), tuple(range(block_end - v.ndim, block_end)))
    for a, at, dims in known:
        starts[a] = _spread(wrap(np.asarray(at, integer)), tuple(batch), dims)
    axes = tuple(sorted(starts))
    return IndexPlan(
        [starts[a] for a in axes],
        axes,
        tuple(windows),
        tuple(collapsed),
        tuple(offsets),
        tuple(result),
        tuple(final),
        tuple(flips),
        not all(truths),
        all(isinstance(e, int) for _, e in arrays),
    )


def _check_masks(shape: Shape, entries: Sequence[Any]) -> None:
    addressed = (e for e in entries if e is not None and not isinstance(e, _Truth))
    for axis, (e, n) in enumerate(zip(addressed, shape, strict=True)):
        # A mask without elements picks nothing of any array, as in JAX.
        if isinstance(e, _Mask) and e.expected not in (0, n):
            raise OutOfRankError(
                "boolean index did not match shape of indexed array", got=e.expected, expected=f"{n} on axis {axis}"
            )


def _block(entries: Sequence[Any], truths: Sequence[bool]) -> tuple[Shape, int | None]:
    """The one shape that the advanced entries have together, and the entry before which its axes come; None: none."""
    picked = [e.index if isinstance(e, _Mask) else e for e in entries if isinstance(e, (Array, _Mask))]
    shape = broadcast_shape("index", *(e.shape for e in picked))
    if truths:
        lead: Shape = (1,) if all(truths) else (0,)
        shape = broadcast_shape("index", shape, lead) if shape else lead
    if not (truths or picked):
        return shape, None
    # Integers count as advanced when there is an array among them, and then all of them form one block.
    places = [i for i, e in enumerate(entries) if isinstance(e, (int, Array, _Mask, _Truth))]
    return shape, places[0] if places[-1] - places[0] + 1 == len(places) else 0


def _index_dtype(shape: Shape, arrays: Sequence[tuple[int, Any]]) -> dtypes.DType:
    """int64 where an index has 8 bytes, or is an integer on an axis that needs them."""
    most = np.iinfo(np.int32).max
    wide = any(e.dtype.itemsize == 8 if isinstance(e, Array) else shape[axis] > most for axis, e in arrays)
    return dtypes.int64 if wide else dtypes.int32


def _spread(v: Array, shape: Shape, dims: tuple[int, ...]) -> Array:
    if v.shape == shape:
        return v
    if isinstance(v, DeviceArray) and current_trace() is not EVAL:
        full = [1] * len(shape)
        for n, d in zip(v.shape, dims, strict=True):
            full[d] = n
        return wrap(np.broadcast_to(v.numpy().reshape(full), shape))
    return ops.broadcast_in_dim(v, shape=shape, broadcast_dimensions=dims)


def stacked_starts(plan: IndexPlan) -> Array:
    """The index vectors, in a last axis."""
    if not plan.starts:
        return wrap(np.zeros((0,), np.int32))
    if all(isinstance(v, DeviceArray) for v in plan.starts):
        return wrap(np.stack([v.numpy() for v in plan.starts], -1))
    columns = [ops.reshape(v, shape=(*v.shape, 1)) for v in plan.starts]
    return columns[0] if len(columns) == 1 else ops.concatenate(*columns, dimension=columns[0].ndim - 1)


# --- reading ---


def _is_basic(index: Any) -> bool:
    if type(index) is tuple:
        return all(_is_basic(i) for i in index if i is not None and i is not Ellipsis)
    return type(index) is int or type(index) is slice or index is Ellipsis or index is None


def getitem(x: Array, index: Any) -> Array:
    """``x[index]``."""
    if type(x) is DeviceArray and x.place is None and current_trace() is EVAL and _is_basic(index):
        try:
            data = x.numpy()[index]
            if isinstance(data, np.void):  # a key: where it lies says which one it is
                data = x.numpy()[(*index, ...) if type(index) is tuple else (index, ...)]
            return wrap(data if isinstance(data, np.ndarray) else np.asarray(data, x.dtype), x.type.weak)
        except (IndexError, TypeError, ValueError):
            pass  # out of range or not static: the general path clamps, or says what is wrong
    return read(x, index)


def read(
    x: Array,
    index: Any,
    mode: Any = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:
    """``x[index]`` with JAX's options for indices out of range."""
    entries = canonical(index, x.ndim)
    if mode is None or mode_name(mode) == "promise_in_bounds":
        simple = _sliced(x, entries)
        if simple is not None:
            return simple
    refuse_absent(x.shape, entries)
    plan = make_plan(x.shape, entries, wrap_negative_indices)
    out = x
    if plan.empty or 0 in plan.final:
        # No gather: a slice of one element would be larger than an empty axis.
        return wrap(np.zeros(plan.final, x.dtype), x.type.weak)
    if plan.axes:
        from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode

        out = ops.gather(
            x,
            stacked_starts(plan),
            dimension_numbers=GatherDimensionNumbers(
                offset_dims=plan.offsets, collapsed_slice_dims=plan.collapsed, start_index_map=plan.axes
            ),
            slice_sizes=plan.windows,
            mode=GatherScatterMode.from_any(mode_name(mode)),
            fill_value=_fill(mode, fill_value),
            indices_are_sorted=indices_are_sorted or plan.unique,
            unique_indices=unique_indices or plan.unique,
        )
    elif plan.windows != x.shape:
        out = ops.slice(x, start_indices=(0,) * x.ndim, limit_indices=plan.windows, strides=None)
    if plan.flips:
        out = ops.rev(out, dimensions=plan.flips)
    return out if out.shape == plan.final else ops.reshape(out, shape=plan.final)


_MODES = {
    # As XLA: out of range a read is clamped, and its gradient dropped.
    None: "promise_in_bounds",
    "clip": "clip",
    "fill": "fill",
    "drop": "fill",
    "wrap": "wrap",
    "promise_in_bounds": "promise_in_bounds",
    "nearest": "clip",
}


def mode_name(mode: Any) -> str:
    """What is done with indices out of range, under the one name that `gather` and `scatter` know it by."""
    name = mode.name.lower() if hasattr(mode, "name") else mode
    name = "fill" if name == "fill_or_drop" else name
    if name not in _MODES:
        raise ParameterError("indexing: unknown mode", got=repr(mode), expected="clip, fill, drop, promise_in_bounds")
    return _MODES[name]


def _fill(mode: Any, fill_value: Any) -> Any:
    if mode_name(mode) != "fill":
        return None
    if isinstance(fill_value, (Array, np.ndarray, np.generic)):
        return fill_value.item()
    return fill_value


def refuse_absent(shape: Shape, entries: Sequence[Any]) -> None:
    """An error where single elements of an axis without elements are meant; arrays of indices may be empty, too."""
    if 0 not in shape or any(isinstance(e, (_Mask, _Truth)) or (isinstance(e, Array) and e.shape) for e in entries):
        return
    axis = 0
    for e in entries:
        if isinstance(e, (int, Array)) and shape[axis] == 0:
            raise IndexError(f"index is out of bounds for axis {axis} with size 0")
        axis += e is not None and not isinstance(e, _Truth)


def _sliced(x: Array, entries: Sequence[Any]) -> Array | None:
    """The result when integers and slices are all there is: slice, or dynamic_slice when an integer is traced."""
    starts: list[Any] = []
    stops: list[int] = []
    steps: list[int] = []
    flips: list[int] = []
    final: list[int] = []
    traced = False
    axis = 0
    for e in entries:
        if e is None:
            final.append(1)
            continue
        if isinstance(e, _Truth):
            return None
        n = x.shape[axis]
        if isinstance(e, int):
            i = min(max(e + n if e < 0 else e, 0), max(n - 1, 0))
            starts.append(i)
            stops.append(i + 1)
            steps.append(1)
        elif isinstance(e, slice):
            start, count, step = _span(e, n)
            if step < 0:
                start, step = start + step * (count - 1), -step
                flips.append(axis)
            starts.append(start if count else 0)
            stops.append(start + (count - 1) * step + 1 if count else 0)
            steps.append(step if count else 1)
            final.append(count)
        elif isinstance(e, Array) and not e.shape:
            starts.append(wrapped(e, n))
            stops.append(-1)
            steps.append(1)
            traced = True
        else:
            return None
        axis += 1
    refuse_absent(x.shape, entries)
    sizes = [1 if stop == -1 else stop - start for start, stop in zip(starts, stops, strict=True)]
    if traced:
        if any(s != 1 for s in steps):
            return None
        wide = any(isinstance(s, Array) and s.dtype.itemsize == 8 for s in starts)
        integer = dtypes.int64 if wide else dtypes.int32
        places = [convert(s, integer) if isinstance(s, Array) else wrap(np.asarray(s, integer)) for s in starts]
        out = ops.dynamic_slice(x, *places, slice_sizes=tuple(sizes))
    elif tuple(sizes) == x.shape and all(s == 1 for s in steps):
        out = x
    else:
        strides = None if all(s == 1 for s in steps) else tuple(steps)
        out = ops.slice(x, start_indices=tuple(starts), limit_indices=tuple(stops), strides=strides)
    if flips:
        out = ops.rev(out, dimensions=tuple(flips))
    return out if out.shape == tuple(final) else ops.reshape(out, shape=tuple(final))
