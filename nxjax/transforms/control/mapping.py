"""`map` and `associative_scan`: loops made of `scan` and `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nxjax.errors import AxisError, ParameterError, ShapeError
from nxjax.ops.base import check_axis
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import reshape, rev
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays
from nxjax.transforms.control.scan import scan
from nxjax.transforms.vmap import vmap


def map(f: Callable[[Any], Any], xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """``f`` of every element along the leading axis of ``xs``, one after the other, results stacked.

    Args:
        f: function of one element (a pytree).
        xs: pytree of arrays of one leading size.
        batch_size: how many elements are worked on at once, as by `vmap`.

    Raises:
        ShapeError: the arrays differ in leading size.
        ParameterError: ``xs`` has no arrays.

    >>> lax.map(lambda x: (x, x * x), jnp.array([1, 2, 3]))
    (Array([1, 2, 3], dtype=int32), Array([1, 4, 9], dtype=int32))
    """

    def step(_: None, x: Any) -> tuple[None, Any]:
        return None, f(x)

    if batch_size is None:
        return scan(step, None, xs)[1]
    if batch_size < 1:
        raise ParameterError("map: batch_size", got=batch_size, expected="a positive int")
    leaves, treedef = tree.flatten(xs)
    values = [as_value(x, "map") for x in leaves]
    if not values or any(not x.shape for x in values) or len({x.shape[0] for x in values}) != 1:
        raise ShapeError("map: needs arrays of one leading size", got=", ".join(repr(x.type) for x in values))
    n = values[0].shape[0]
    full, rest = divmod(n, batch_size)
    parts: list[Any] = []
    if full:
        blocks = [
            reshape(slice_axis(x, 0, 0, full * batch_size), shape=(full, batch_size, *x.shape[1:])) for x in values
        ]
        ys = map(vmap(f), tree.unflatten(treedef, blocks))
        parts.append(tree.map(lambda y: reshape(y, shape=(full * batch_size, *y.shape[2:])), ys))
    if rest or not full:
        parts.append(vmap(f)(tree.unflatten(treedef, [slice_axis(x, 0, full * batch_size, n) for x in values])))
    return parts[0] if len(parts) == 1 else tree.map(lambda *ys: concatenate(*ys, dimension=0), *parts)


def associative_scan(fn: Callable[[Any, Any], Any], elems: PyTree, reverse: bool = False, axis: int = 0) -> PyTree:
    """All prefixes of ``elems`` combined by an associative ``fn``, in a logarithmic number of steps.

    The recursion of Blelloch, "Prefix sums and their applications" (1990): combine neighbours, scan the half-length
    result, then fill in the even places.

    Args:
        fn: associative; takes two pytrees like ``elems`` and works along ``axis`` element by element.
        elems: pytree of arrays of one size along ``axis``.
        reverse: combine from the end.

    Raises:
        ShapeError: the arrays differ in size along the axis.
        AxisError: no such axis.
        ParameterError: ``fn`` is no function.

    >>> lax.associative_scan(lax.max, jnp.array([1, 3, 2, 5, 4]))
    Array([1, 3, 3, 5, 5], dtype=int32)
    """
    if not callable(fn):
        raise ParameterError("associative_scan: needs a function", got=type(fn).__name__)
    leaves, treedef = tree.flatten(elems)
    values = [as_value(x, "associative_scan") for x in leaves]
    if not values:
        return elems
    if any(not x.shape for x in values):
        raise AxisError("associative_scan: an element is a scalar", got=", ".join(repr(x.type) for x in values))
    dims = [check_axis("associative_scan", axis, x.ndim) for x in values]
    if len(set(dims)) != 1 or len({x.shape[d] for x, d in zip(values, dims, strict=True)}) != 1:
        raise ShapeError(
            "associative_scan: elements differ in size along the axis", got=", ".join(repr(x.type) for x in values)
        )
    d = dims[0]

    def combine(a: Arrays, b: Arrays) -> list[Array]:
        c = fn(tree.unflatten(treedef, a), tree.unflatten(treedef, b))
        return [as_value(x, "associative_scan") for x in tree.flatten_up_to(treedef, c, "associative_scan: result")]

    if reverse:
        values = [_flipped(x, d) for x in values]
    found = _prefixes(combine, values, d)
    if values[0].shape[d] > 1:  # one element is handed on as it is
        found = [convert_element_type(x, dtype=x.dtype) if x.type.weak else x for x in found]
    return tree.unflatten(treedef, [_flipped(x, d) for x in found] if reverse else found)


def _prefixes(combine: Callable[[Arrays, Arrays], list[Array]], xs: Arrays, d: int) -> list[Array]:
    n = xs[0].shape[d]
    if n < 2:
        return list(xs)
    evens = [slice_axis(x, d, 0, n, 2) for x in xs]
    odds = [slice_axis(x, d, 1, n, 2) for x in xs]
    pairs = combine([slice_axis(x, d, 0, n // 2) for x in evens], odds)
    at_odds = _prefixes(combine, pairs, d)
    firsts = [slice_axis(x, d, 0, 1) for x in xs]
    if n == 2:
        at_evens = firsts
    else:
        before = [slice_axis(x, d, 0, (n - 1) // 2) for x in at_odds]
        later = combine(before, [slice_axis(x, d, 1, (n + 1) // 2) for x in evens])
        at_evens = [concatenate(a, b, dimension=d) for a, b in zip(firsts, later, strict=True)]
    return [_interleaved(a, b, d) for a, b in zip(at_evens, at_odds, strict=True)]


def _interleaved(a: Array, b: Array, d: int) -> Array:
    """a0 b0 a1 b1 ...; ``a`` has as many elements as ``b``, or one more."""
    m = b.shape[d]
    lead, tail = a.shape[:d], a.shape[d + 1 :]
    columns = [reshape(slice_axis(x, d, 0, m), shape=(*lead, m, 1, *tail)) for x in (a, b)]
    joined = reshape(concatenate(*columns, dimension=d + 1), shape=(*lead, 2 * m, *tail))
    return joined if a.shape[d] == m else concatenate(joined, slice_axis(a, d, m, m + 1), dimension=d)


def _flipped(x: Array, d: int) -> Array:
    return rev(x, dimensions=(d,))
