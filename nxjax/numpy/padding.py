"""`pad` with all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError
from nxjax.numpy.functional import apply_along_axis
from nxjax.numpy.indexing import take
from nxjax.numpy.powers import rint
from nxjax.numpy.promotion import as_operand, concrete_or_error, convert
from nxjax.numpy.ranges import linspace
from nxjax.numpy.reductions import max as max_
from nxjax.numpy.reductions import mean
from nxjax.numpy.reductions import min as min_
from nxjax.numpy.shapes import broadcast_to, slice_axis
from nxjax.numpy.statistics import median
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_numpy
from nxjax.trace.core import Array, Tracer

Pairs = list[tuple[Any, Any]]
_OPTIONS: dict[str, set[str]] = {
    "constant": {"constant_values"},
    "edge": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
    "empty": set(),
}


def _pairs(spec: Any, ndim: int, what: str) -> Pairs:
    """(before, after) per axis, from one number, one pair, or one pair per axis."""
    if isinstance(spec, (Array, np.ndarray)):
        spec = as_numpy(spec, "pad").tolist() if not isinstance(spec, Tracer) else spec
    if not isinstance(spec, (list, tuple)):
        return [(spec, spec)] * ndim
    rows = list(spec)
    nested = [isinstance(r, (list, tuple)) for r in rows]
    if not any(nested):
        if len(rows) == 1:
            return [(rows[0], rows[0])] * ndim
        if len(rows) == 2:
            return [(rows[0], rows[1])] * ndim
    elif all(nested) and len(rows) in (1, ndim):
        full = [(r[0], r[0]) if len(r) == 1 else tuple(r) for r in rows]
        if all(len(r) == 2 for r in full):
            return full * ndim if len(full) == 1 and ndim != 1 else full  # type: ignore[return-value]
    raise ValueError(f"pad: {what} must be a number, a pair, or one pair per axis; got {spec}")


def pad(
    array: ArrayLike,
    pad_width: int | Sequence[int] | Sequence[Sequence[int]] | Mapping[int, int | tuple[int, int]],
    mode: str | Callable[..., object] = "constant",
    **kwargs: object,
) -> Array:
    """``array`` with ``pad_width`` elements before and after along every axis.

    Args:
        pad_width: a number, a pair, one pair per axis, or a dict from axis to number or pair.
        mode: constant, edge, linear_ramp, maximum, mean, median, minimum, reflect, symmetric, wrap, empty, or a
            function ``f(row, widths, axis, kwargs)`` giving the finished row.

    Raises:
        ValueError: widths or options that do not fit the mode, a negative width but in ``constant``, or an empty axis.
        TypeError: a width is not an integer.
        NotImplementedError: another mode.

    >>> jnp.pad(jnp.array([1, 2, 3]), (1, 2), mode="reflect")
    Array([2, 1, 2, 3, 2, 1], dtype=int32)
    >>> jnp.pad(jnp.array([1, 2, 3]), (-1, 1), constant_values=9)
    Array([2, 3, 9], dtype=int32)
    """
    x = as_operand(array, "pad")
    if isinstance(pad_width, dict):
        rows: list[Any] = [(0, 0)] * x.ndim
        for axis, w in pad_width.items():
            rows[axis] = tuple(w) if isinstance(w, (tuple, list)) else (w, w)
        pad_width = rows
    widths = [
        (int(concrete_or_error("pad", a)), int(concrete_or_error("pad", b)))
        for a, b in _pairs(pad_width, x.ndim, "pad_width")
    ]
    if any(
        np.asarray(w).dtype.kind == "f"
        for w in np.asarray(pad_width, dtype=object).ravel()
        if not isinstance(w, Tracer)
    ):
        raise TypeError("`pad_width` must be of integral type.")
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(
            f"Unimplemented padding mode '{mode}' for np.pad." if isinstance(mode, str) else f"pad: mode {mode!r}"
        )
    unknown = set(kwargs) - _OPTIONS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if any(a < 0 or b < 0 for a, b in widths) and mode != "constant":
        raise ValueError("index can't contain negative values")
    if mode in ("constant", "empty"):
        return _constant(x, widths, kwargs.get("constant_values", 0))
    kind = kwargs.get("reflect_type", "even")
    if kind not in ("even", "odd"):
        raise ParameterError("pad: reflect_type is 'even' or 'odd'", got=repr(kind))
    ends = _pairs(kwargs.get("end_values", 0), x.ndim, "end_values")
    lengths = _pairs(kwargs.get("stat_length"), x.ndim, "stat_length")
    for axis, (before, after) in enumerate(widths):
        if before == after == 0:
            continue
        if x.shape[axis] == 0:
            raise ValueError(f"Cannot apply '{mode}' padding to empty axis")
        if mode == "edge":
            x = _joined(x, axis, _edge(x, axis, 0, before), _edge(x, axis, x.shape[axis] - 1, after))
        elif mode == "linear_ramp":
            x = _ramp(x, axis, before, after, ends[axis])
        elif mode == "wrap":
            n = x.shape[axis]
            x = _picked(x, axis, np.arange(-before, n + after) % n)
        elif mode in ("reflect", "symmetric"):
            x = _reflected(x, axis, before, after, mode == "symmetric", kind == "odd")
        else:
            x = _statistic(x, axis, before, after, mode, lengths[axis])
    return x


def _constant(x: Array, widths: Any, values: Any) -> Array:
    pairs = _pairs(values, x.ndim, "constant_values")
    simple = not isinstance(values, (list, tuple)) and np.ndim(values) == 0
    if simple or not x.ndim:
        fill = convert(as_operand(pairs[0][0] if pairs else values, "pad"), x.dtype, x.type.weak)
        config = tuple((a, b, 0) for a, b in widths)
        return ops.pad(x, fill, padding_config=config) if x.ndim else x
    for axis, ((before, after), (low, high)) in enumerate(zip(widths, pairs, strict=True)):
        for count, fill, front in ((before, low, True), (after, high, False)):
            row = tuple(
                (count if front else 0, 0 if front else count, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)
            )
            x = ops.pad(x, convert(as_operand(fill, "pad"), x.dtype, x.type.weak), padding_config=row)
    return x


def _joined(x: Array, axis: int, before: Array | None, after: Array | None) -> Array:
    parts = [p for p in (before, x, after) if p is not None and p.shape[axis]]
    return ops.concatenate(*parts, dimension=axis) if len(parts) > 1 else x


def _edge(x: Array, axis: int, at: int, count: int) -> Array | None:
    if not count:
        return None
    row = slice_axis(x, axis, at, at + 1)
    return broadcast_to(row, tuple(count if i == axis else n for i, n in enumerate(x.shape)))


def _ramp(x: Array, axis: int, before: int, after: int, ends: tuple[Any, Any]) -> Array:
    n = x.shape[axis]

    def side(at: int, count: int, end: Any, front: bool) -> Array | None:
        if not count:
            return None
        edge = slice_axis(x, axis, at, at + 1)
        squeezed = ops.reshape(edge, shape=tuple(s for i, s in enumerate(edge.shape) if i != axis))
        ramp = convert(linspace(end, squeezed, count, False, dtype=x.dtype, axis=axis), x.dtype, x.type.weak)
        return ramp if front else ops.rev(ramp, dimensions=(axis,))

    return _joined(x, axis, side(0, before, ends[0], True), side(n - 1, after, ends[1], False))


def _picked(x: Array, axis: int, index: Any) -> Array:
    return take(x, index.astype(np.int32), axis=axis, mode="clip")


def _reflected(x: Array, axis: int, before: int, after: int, symmetric: bool, odd: bool) -> Array:
    n = x.shape[axis]
    if not odd:
        period = 2 * n if symmetric else max(2 * (n - 1), 1)
        index = np.arange(-before, n + after) % period
        folded = np.where(index < n, index, period - index - symmetric)
        return _picked(x, axis, folded)
    # Odd reflection mirrors in the edge value too, so each turn builds on the one before.
    step = n if symmetric else max(n - 1, 1)
    while before > 0 or after > 0:
        if n == 1 and not symmetric:
            return _joined(x, axis, _edge(x, axis, 0, before), _edge(x, axis, x.shape[axis] - 1, after))
        size = x.shape[axis]
        offset = 0 if symmetric else 1
        front = min(before, step)
        back = min(after, step)
        left = right = None
        if front:
            edge = slice_axis(x, axis, 0, 1)
            left = 2 * edge - ops.rev(slice_axis(x, axis, offset, offset + front), dimensions=(axis,))
        if back:
            edge = slice_axis(x, axis, size - 1, size)
            right = 2 * edge - ops.rev(slice_axis(x, axis, size - offset - back, size - offset), dimensions=(axis,))
        x = _joined(x, axis, left, right)
        before -= front
        after -= back
    return x


def _statistic(x: Array, axis: int, before: int, after: int, mode: str, lengths: tuple[Any, Any]) -> Array:
    function: Callable[..., Array] = {"maximum": max_, "minimum": min_, "mean": mean, "median": median}[mode]
    n = x.shape[axis]

    def side(count: int, length: Any, front: bool) -> Array | None:
        if not count:
            return None
        k = n if length is None else np.minimum(int(length), n)
        if k == 0:
            raise ValueError(f"stat_length of 0 yields no value for padding with mode {mode!r}")
        taken = slice_axis(x, axis, 0, int(k)) if front else slice_axis(x, axis, n - int(k), n)
        y = function(taken, axis, keepdims=True)
        if x.dtype in dtypes.INTEGER and mode in ("mean", "median"):
            y = rint(y)
        y = convert(y, x.dtype, x.type.weak)
        return broadcast_to(y, tuple(count if i == axis else s for i, s in enumerate(x.shape)))

    return _joined(x, axis, side(before, lengths[0], True), side(after, lengths[1], False))


def _by_function(x: Array, widths: Any, function: Any, kwargs: Any) -> Array:
    out = _constant(x, widths, 0)
    for axis, pair in enumerate(widths):
        out = apply_along_axis(function, axis, out, pair, axis, kwargs)
    return out
