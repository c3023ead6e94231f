"""The methods of an array that are functions of the face: ``x.sum(axis)`` is ``nx.numpy.sum(x, axis)``.

Each is written out, so that `inspect.signature`, completion and errors know its parameters. The file must not know what
the functions do; their file is loaded when a method is first called.
"""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp


def all(self: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    return jnp.all(self, axis, out, keepdims, where=where)


def any(self: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    return jnp.any(self, axis, out, keepdims, where=where)


def argmax(self: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    return jnp.argmax(self, axis, out, keepdims)


def argmin(self: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    return jnp.argmin(self, axis, out, keepdims)


def argpartition(self: Any, kth: int, axis: int = -1) -> Any:
    return jnp.argpartition(self, kth, axis)


def argsort(
    self: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    return jnp.argsort(self, axis, kind=kind, order=order, stable=stable, descending=descending)


def choose(self: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    return jnp.choose(self, choices, out, mode)


def clip(self: Any, min: Any = None, max: Any = None) -> Any:
    return jnp.clip(self, min, max)


def compress(
    self: Any,
    condition: Any,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Any:
    return jnp.compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


def conj(self: Any) -> Any:
    return jnp.conj(self)


def conjugate(self: Any) -> Any:
    return jnp.conjugate(self)


def cumprod(self: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    return jnp.cumprod(self, axis, dtype, out)


def cumsum(self: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    return jnp.cumsum(self, axis, dtype, out)


def diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return jnp.diagonal(self, offset, axis1, axis2)


def dot(self: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    return jnp.dot(self, b, precision=precision, preferred_element_type=preferred_element_type)


def max(
    self: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    return jnp.max(self, axis, out, keepdims, initial, where)


def mean(
    self: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    return jnp.mean(self, axis, dtype, out, keepdims, where=where)


def min(
    self: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    return jnp.min(self, axis, out, keepdims, initial, where)


def nonzero(self: Any, *, fill_value: Any = None, size: int | None = None) -> Any:
    return jnp.nonzero(self, size=size, fill_value=fill_value)


def prod(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    return jnp.prod(self, axis, dtype, out, keepdims, initial, where, promote_integers)


def ptp(self: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    return jnp.ptp(self, axis, out, keepdims)


def ravel(self: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    return jnp.ravel(self, order, out_sharding=out_sharding)


def repeat(
    self: Any,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Any:
    return jnp.repeat(self, repeats, axis, total_repeat_length=total_repeat_length, out_sharding=out_sharding)


def round(self: Any, decimals: int = 0, out: None = None) -> Any:
    return jnp.round(self, decimals, out)


def searchsorted(self: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    return jnp.searchsorted(self, v, side, sorter, method=method)


def sort(
    self: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    return jnp.sort(self, axis, kind=kind, order=order, stable=stable, descending=descending)


def squeeze(self: Any, axis: Any = None) -> Any:
    return jnp.squeeze(self, axis)


def std(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
) -> Any:
    return jnp.std(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def sum(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    return jnp.sum(self, axis, dtype, out, keepdims, initial, where, promote_integers)


def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
    return jnp.swapaxes(self, axis1, axis2)


def take(
    self: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    return jnp.take(self, indices, axis, out, mode, unique_indices, indices_are_sorted, fill_value)


def trace(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    return jnp.trace(self, offset, axis1, axis2, dtype, out)


def var(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
) -> Any:
    return jnp.var(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


_METHODS = (
    *(all, any, argmax, argmin, argpartition, argsort, choose, clip, compress, conj, conjugate, cumprod, cumsum),
    *(diagonal, dot, max, mean, min, nonzero, prod, ptp, ravel, repeat, round, searchsorted, sort, squeeze, std, sum),
    *(swapaxes, take, trace, var),
)


def members() -> dict[str, Any]:
    """The methods by name, named as what they are attached to."""
    for method in _METHODS:
        method.__module__, method.__qualname__ = "nxjax.trace.core", f"Array.{method.__name__}"
        method.__doc__ = f"As `nx.numpy.{method.__name__}` of this array."
    return {method.__name__: method for method in _METHODS}
