"""Differences, integrals, interpolation and convolution of sampled functions, and window functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShapeError
from nxjax.numpy.contractions import of_other_kind
from nxjax.numpy.documented import example, shown
from nxjax.numpy.elementwise import not_equal, subtract
from nxjax.numpy.floats import clip, conjugate, i0
from nxjax.numpy.indexing import take
from nxjax.numpy.joining import concatenate, stack
from nxjax.numpy.powers import remainder
from nxjax.numpy.promotion import as_axes, as_axis, as_operand, convert, promote_inexact, static_int
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import broadcast_to, moveaxis
from nxjax.numpy.sorting import argsort, searchsorted
from nxjax.ops import vocabulary as ops
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.precision import PrecisionLike, canonical_precision
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import copied, wrap
from nxjax.trace.core import Array
from nxjax.trace.reproducible import check_transcendental


def _cut(x: Array, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Array:
    return x[(*(slice(None),) * axis, slice(start, stop, step))]


@example(
    "jnp.array([1, 4, 9, 16]), n=2",
    "Array([2, 2], dtype=int32)",
    "jnp.array([3, 5]), prepend=0",
    "Array([3, 2], dtype=int32)",
    raises="ValueError: ``n`` is negative, or ``a`` has no axis.",
)
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """Differences of neighbours along ``axis``, ``n`` times over.

    Args:
        a: array of at least one axis; of booleans, the difference is whether they differ.
        n: static integer.
        axis: static integer.
        prepend: array (or number) put before ``a`` along ``axis``.
        append: array (or number) put after it.
    """
    x = as_operand(a, "diff")
    n = static_int("diff", n)
    if n == 0:
        return copied(x)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if x.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional; got " + str(x.type))
    i = as_axis("diff", axis, x.ndim)
    parts: list[Any] = [x]
    for extra, at in ((prepend, 0), (append, len(parts) + 1)):
        if extra is not None:
            e = as_operand(extra, "diff")
            if e.ndim == 0:
                e = broadcast_to(e, tuple(1 if d == i else s for d, s in enumerate(x.shape)))
            parts.insert(at, e)
    x = concatenate(parts, i) if len(parts) > 1 else x
    f = not_equal if x.dtype == dtypes.bool_ else subtract
    for _ in range(n):
        x = f(_cut(x, i, 1, None), _cut(x, i, None, -1))
    return x


def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: int | Sequence[int] | None = None, edge_order: int | None = None
) -> Array | list[Array]:
    """Central differences inside, one-sided ones at the edges; one array per axis.

    ``varargs`` are the distances of the samples: one for all axes, or one (or coordinates) per axis.

    Returns:
        Float or complex array of the shape of ``f`` for one axis, else a list of them.

    Raises:
        ValueError: an axis has fewer than two elements, or coordinates do not fit it.
        TypeError: the number of spacings does not fit the axes.
        NotImplementedError: ``edge_order`` is given.

    >>> jnp.gradient(jnp.array([0, 1, 4, 9]))
    Array([1., 2., 4., 5.], dtype=float32)
    >>> jnp.gradient(jnp.array([0.0, 2.0, 8.0]), 2.0)
    Array([1., 2., 3.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    x, *given = promote_inexact("gradient", f, *varargs)
    axes = as_axes("gradient", axis, x.ndim)
    if not axes:
        return []
    if len(varargs) > 1 and len(varargs) != len(axes):
        raise TypeError(f"Invalid number of spacing arguments {len(varargs)} for {axis=}")
    if any(x.shape[i] < 2 for i in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient: at least 2 elements are required."
        )
    spacing: list[Any] = given or [1.0]
    spacing = spacing * len(axes) if len(spacing) == 1 else spacing
    out: list[Array] = []
    for i, h in zip(axes, spacing, strict=True):
        first = _cut(x, i, 1, 2) - _cut(x, i, 0, 1)
        last = _cut(x, i, -1, None) - _cut(x, i, -2, -1)
        if np.ndim(h) == 0:
            middle = (_cut(x, i, 2, None) - _cut(x, i, None, -2)) * 0.5
            out.append(concatenate([first, middle, last], i) / h)
            continue
        c = as_operand(h, "gradient")
        if c.shape != (x.shape[i],):
            raise ValueError(
                "Spacing arrays must have the same length as the dimension along which the gradient is calculated."
            )
        d = ops.reshape(diff(c), shape=tuple(x.shape[i] - 1 if k == i else 1 for k in range(x.ndim)))
        left, right = _cut(d, i, None, -1), _cut(d, i, 1, None)
        middle = (
            _cut(x, i, None, -2) * (-right / (left * (left + right)))
            + _cut(x, i, 1, -1) * ((right - left) / (left * right))
            + _cut(x, i, 2, None) * (left / (right * (left + right)))
        )
        out.append(concatenate([first / _cut(d, i, 0, 1), middle, last / _cut(d, i, -1, None)], i))
    return out[0] if len(out) == 1 else out


@example("jnp.array([0, 1, 4]), x=jnp.array([0, 1, 2])", "Array(3., dtype=float32)")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """The integral of samples along ``axis`` by the trapezoidal rule.

    Args:
        y: samples; integers become float.
        x: their places, a vector or of the shape of ``y``; without it they are ``dx`` apart.
    """
    if x is None:
        (v,), step = promote_inexact("trapezoid", y), as_operand(dx, "trapezoid")
        v = moveaxis(v, axis, -1)
    else:
        v, c = promote_inexact("trapezoid", y, x)
        v = moveaxis(v, axis, -1)
        step = diff(c if c.ndim == 1 else moveaxis(c, axis, -1))
    return 0.5 * sum_(step * (v[..., 1:] + v[..., :-1]), -1)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Values at ``x`` of the function through the points (xp, fp), straight between them.

    Outside: ``left`` and ``right`` (the end values by default, ``"extrapolate"`` for straight on). With ``period``, the
    points repeat.

    Raises:
        ShapeError: ``xp`` and ``fp`` are not vectors of equal length.
        ValueError: they are empty, ``xp`` is complex, or ``left`` or ``right`` is another text.

    >>> jnp.interp(jnp.array([-1.0, 0.5, 9.0]), jnp.array([0.0, 1.0]), jnp.array([10.0, 20.0]))
    Array([10., 15., 20.], dtype=float32)
    >>> jnp.interp(2.0, jnp.array([0.0, 1.0]), jnp.array([10.0, 20.0]), right="extrapolate")
    Array(30., dtype=float32)
    """
    q, c = promote_inexact("interp", x, xp)
    (f,) = promote_inexact("interp", fp)
    if c.ndim != 1 or f.ndim != 1 or c.shape != f.shape:
        raise ShapeError("interp: xp and fp must be one-dimensional arrays of equal size", got=f"{c.type} and {f.type}")
    if c.dtype in dtypes.COMPLEX:
        raise ValueError("jnp.interp: complex x values not supported.")
    if period is not None:
        if np.ndim(period) != 0:
            raise ValueError(f"period must be a scalar; got {period}")
        period = abs(period)
        q, c = remainder(q, period), remainder(c, period)
        order = argsort(c)
        c, f = take(c, order, mode="clip"), take(f, order, mode="clip")
        c = concatenate([c[-1:] - period, c, c[:1] + period])
        f = concatenate([f[-1:], f, f[:1]])
    n = c.shape[0]
    if n == 0:
        raise ValueError("array of sample points is empty")
    i = clip(searchsorted(c, q, "right"), 1, max(n - 1, 1))
    pieces = (c[:-1], c[1:], f[:-1], f[1:])
    if q.size >= n > 1 and c.dtype == f.dtype:  # what belongs to a piece is read at once
        rows = take(stack(pieces, 1), i - 1, axis=0, mode="clip")
        c0, c1, f0, f1 = (rows[..., k] for k in range(4))
    else:
        c0, c1, f0, f1 = (take(v, i - (k % 2 == 0), mode="clip") for k, v in enumerate((c, c, f, f)))
    dx, df = c1 - c0, f1 - f0
    # Points that coincide have no slope; the tiny distance keeps the derivative finite too.
    flat = abs(dx) <= float(np.spacing(dtypes.float_info(c.dtype).eps))
    y = where(flat, f0, f0 + (q - c0) / where(flat, 1, dx) * df)
    if period is None:
        for name, side, outside in (("left", left, q < c[0]), ("right", right, q > c[-1])):
            if isinstance(side, str):
                if side != "extrapolate":
                    raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {side!r}")
                continue
            end = (f[0] if name == "left" else f[-1]) if side is None else side
            y = where(outside, end, y)
    return y


# --- convolution ---


def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The convolution of two vectors, in float or complex.

    Args:
        a: vector.
        v: vector.
        mode: ``"full"`` for every overlap, ``"same"`` for the longer one's length, ``"valid"`` for whole overlaps.
        precision: of the products, as for `dot`.
        preferred_element_type: dtype of the result.

    Raises:
        ShapeError: not vectors.
        ValueError: one is empty, or another ``mode``.

    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 10]))
    Array([ 1., 12., 23., 30.], dtype=float32)
    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 10]), mode="valid")
    Array([12., 23.], dtype=float32)
    """
    x, y = _vectors("convolve", a, v)
    return _convolution(x, y, mode, precision, preferred_element_type, min(x.size, y.size) // 2)


def _vectors(name: str, a: Any, v: Any) -> list[Array]:
    x, y = promote_inexact(name, a, v)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"{name}() only support 1-dimensional inputs.", got=f"{x.type} and {y.type}")
    if not x.size or not y.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    return [x, y]


def _convolution(x: Array, y: Array, mode: str, precision: Any, preferred: Any, before: int) -> Array:
    """``before``: how many zeros ``same`` puts in front."""
    if x.size < y.size:
        x, y = y, x
    m = y.size
    margins = {"full": (m - 1, m - 1), "same": (before, m - 1 - before), "valid": (0, 0)}
    if mode not in margins:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    padded = ops.pad(x, wrap(np.zeros((), x.dtype), x.type.weak), padding_config=((*margins[mode], 0),))
    return _windows_dot(padded, ops.rev(y, dimensions=(0,)), precision, preferred)


@example("jnp.array([1, 2, 3]), jnp.array([1, 10])", "Array([21., 32.], dtype=float32)")
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The correlation of two vectors: the convolution with the second one reversed and conjugated.

    Raises:
        ShapeError: not vectors.
        ValueError: one is empty, or ``mode`` is not ``"full"``, ``"same"`` or ``"valid"``.
    """
    x, y = _vectors("correlate", a, v)
    kernel = ops.rev(conjugate(y), dimensions=(0,))
    # An even number of taps has no middle; which of the two it is depends on the order of the operands.
    before = y.size // 2 if x.size >= y.size else (x.size - 1) // 2
    return _convolution(x, kernel, mode, precision, preferred_element_type, before)


def _windows_dot(x: Array, kernel: Array, precision: Any, preferred: Any) -> Array:
    """The dot product of every window of ``x`` with ``kernel``."""
    wanted = None if preferred is None else dtypes.as_dtype(preferred)
    x, kernel, sums = of_other_kind(x, kernel, wanted)
    y = ops.conv_general_dilated(
        ops.reshape(x, shape=(1, 1, x.size)),
        ops.reshape(kernel, shape=(1, 1, kernel.size)),
        window_strides=(1,),
        padding=((0, 0),),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        feature_group_count=1,
        batch_group_count=1,
        dimension_numbers=ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2)),
        precision=canonical_precision(precision),
        preferred_element_type=sums,
    )
    y = ops.reshape(y, shape=(y.size,))
    return y if wanted is None else convert(y, wanted)


# --- windows ---


def _window(name: str, M: Any) -> int:
    return max(0, static_int(name, M))


def _finished(x: np.ndarray[Any, Any]) -> Array:
    return wrap(x.astype(dtypes.as_dtype(float)))


@example("5", "Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)")
def bartlett(M: int) -> Array:
    """The triangular window of ``M`` points that is zero at both ends."""
    return _finished(np.bartlett(_window("bartlett", M)))


@shown("jnp.round(jnp.blackman(5), 2)", "Array([-0.  ,  0.34,  1.  ,  0.34, -0.  ], dtype=float32)")
def blackman(M: int) -> Array:
    """The Blackman window of ``M`` points: three terms of cosines."""
    check_transcendental("jnp.blackman")
    return _finished(np.blackman(_window("blackman", M)))


@example("3", "Array([0.08, 1.  , 0.08], dtype=float32)")
def hamming(M: int) -> Array:
    """The Hamming window of ``M`` points: 0.54 - 0.46 cos."""
    check_transcendental("jnp.hamming")
    return _finished(np.hamming(_window("hamming", M)))


@example("5", "Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)")
def hanning(M: int) -> Array:
    """The von Hann window of ``M`` points: 0.5 - 0.5 cos."""
    check_transcendental("jnp.hanning")
    return _finished(np.hanning(_window("hanning", M)))


@example("3, 0.0", "Array([1., 1., 1.], dtype=float32)")
def kaiser(M: int, beta: ArrayLike) -> Array:
    """The Kaiser window of ``M`` points: a ratio of Bessel functions of shape ``beta``, which may be traced."""
    n = _window("kaiser", M)
    if n == 1:
        return _finished(np.ones(1))
    t = wrap(((2 * np.arange(n) - n + 1) / max(n - 1, 1)).astype(dtypes.as_dtype(float)))
    return i0(beta * ops.sqrt(ops.sub(wrap(np.ones(n, t.dtype)), ops.square(t)))) / i0(beta)
