"""`nx.scipy.fft`: the discrete cosine transform of type 2 and its inverse, by fast Fourier transforms.

J. Makhoul, "A fast cosine transform in one and two dimensions", IEEE Trans. ASSP 28, 1980.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.documented import example as _example
from nxjax.numpy.promotion import as_axes, as_axis, check_choice, promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike

__all__ = ["dct", "dctn", "idct", "idctn"]


def _checked(name: str, x: Any, type: int, norm: str | None) -> Array:
    if type != 2:
        raise NotImplementedError(f"scipy.fft.{name}: only type=2")
    check_choice(f"scipy.fft.{name}: norm", norm, None, "backward", "ortho")
    (v,) = promote_inexact(f"scipy.fft.{name}", x)
    return v


def _resized(x: Array, sizes: dict[int, int]) -> Array:
    """Cut, or padded with zeros at the end."""
    zero = jnp.zeros((), x.dtype)
    return lax.pad(x, zero, [(0, sizes.get(i, n) - n, 0) for i, n in enumerate(x.shape)])


def _along(values: np.ndarray[Any, Any], x: Array, axis: int) -> Array:
    """Constants along one axis, in the precision of x."""
    kind = dtypes.complex_of(x.dtype) if np.iscomplexobj(values) else x.dtype
    return jnp.asarray(values.astype(kind)).reshape((-1,) + (1,) * (x.ndim - axis - 1))


def _scale(n: int, ortho: bool) -> np.ndarray[Any, Any]:
    """What the plain transform is multiplied with to be orthonormal."""
    factors = np.full(n, 1 / np.sqrt(2 * max(n, 1)) if ortho else 1.0)
    factors[:1] /= np.sqrt(2) if ortho else 1
    return factors


def _forward(x: Array, axis: int, ortho: bool) -> Array:
    n = x.shape[axis]
    order = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])
    transformed = jnp.fft.fft(jnp.take(x, order, axis=axis), axis=axis)
    turn = 2 * _scale(n, ortho) * np.exp(-0.5j * np.pi * np.arange(n) / n)
    return (transformed * _along(turn, x, axis)).real


def _inverse(x: Array, axis: int, ortho: bool) -> Array:
    n = x.shape[axis]
    weights = np.full(n, 1.0)
    weights[:1] = 0.5
    turn = weights / _scale(n, ortho) * np.exp(0.5j * np.pi * np.arange(n) / n)
    v = jnp.fft.ifft(x * _along(turn, x, axis), axis=axis).real
    half = (n + 1) // 2
    i = np.arange(n)
    return jnp.take(v, np.where(i % 2 == 0, i // 2, n - 1 - i // 2), axis=axis) if half else v


def _each_part(f: Callable[[Array], Array], x: Array) -> Array:
    return lax.complex(f(x.real), f(x.imag)) if x.dtype in dtypes.COMPLEX else f(x)


def _one(name: str, x: Array, n: int | None, axis: int, norm: str | None, step: Any) -> Array:
    i = as_axis(f"scipy.fft.{name}", axis, x.ndim)
    x = x if n is None else _resized(x, {i: operator.index(n)})
    return _each_part(lambda v: step(v, i, norm == "ortho"), x)


def _many(name: str, x: Array, s: Any, axes: Any, norm: str | None, step: Any) -> Array:
    where = f"scipy.fft.{name}"
    sizes = None if s is None else [operator.index(n) for n in (s if isinstance(s, Sequence) else [s])]
    if sizes is not None and len(sizes) > x.ndim:
        raise ShapeError(f"{where}: more sizes than dimensions", got=sizes, expected=f"at most {x.ndim}")
    if axes is None:
        chosen = tuple(range(x.ndim - len(sizes), x.ndim)) if sizes is not None else tuple(range(x.ndim))
    else:
        chosen = as_axes(where, axes, x.ndim)
    if sizes is not None:
        x = _resized(x, dict(zip(chosen, sizes, strict=False)))

    def every(v: Array) -> Array:
        for axis in chosen:
            v = step(v, axis, norm == "ortho")
        return v

    return _each_part(every, x)


@_example("jnp.array([1.0, 1.0])", "[4.0, 0.0]", then=".tolist()")
def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The cosine transform along an axis: ``y[k] = 2 sum_j x[j] cos(pi k (2 j + 1) / (2 n))``.

    Args:
        x: real or complex; integers become float.
        type: 2.
        n: x is cut or padded with zeros to this length.
        norm: ``"ortho"`` makes it orthonormal; None and ``"backward"`` are the formula.
    """
    return _one("dct", _checked("dct", x, type, norm), n, axis, norm, _forward)


@_example("jnp.array([4.0, 0.0])", "[1.0, 1.0]", then=".tolist()")
def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `dct`, with the same arguments."""
    return _one("idct", _checked("idct", x, type, norm), n, axis, norm, _inverse)


@_example("jnp.ones((1, 2))", "[[8.0, 0.0]]", then=".tolist()")
def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes.

    Args:
        x: real or complex; integers become float.
        s: lengths that x is cut or padded to along ``axes`` (the last ones by default).
        axes: all by default.
        type, norm: as of `dct`.
    """
    return _many("dctn", _checked("dctn", x, type, norm), s, axes, norm, _forward)


@_example("jnp.array([[8.0, 0.0]])", "[[1.0, 1.0]]", then=".tolist()")
def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`, with the same arguments."""
    return _many("idctn", _checked("idctn", x, type, norm), s, axes, norm, _inverse)
