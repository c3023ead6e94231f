"""Collectives over the named axes of `vmap`: the public functions, on pytrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nxjax.errors import ParameterError, ShapeError
from nxjax.ops import collectives as ops
from nxjax.ops.arithmetic import add, div, mul
from nxjax.ops.base import check_axis, like
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import reshape
from nxjax.trace import axes, dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op


def _names(axis_name: Any) -> tuple[Any, ...]:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for name in names:
        axes.axis_size(name)  # raises where the name is not bound
    return names


def _no_groups(where: str, groups: Any) -> None:
    if groups is not None:
        raise ParameterError(f"{where}: axis_index_groups is not supported", got=groups, fix="map over two axes")


def axis_size(axis_name: Any) -> int:
    """The number of elements along one or several named axes, as a Python int."""
    return math.prod(axes.axis_size(name) for name in _names(axis_name))


def axis_index(axis_name: Any) -> Array:
    """The element's own position along the named axis (int32); row-major over a tuple of axes.

    >>> import nxjax as nx
    >>> nx.vmap(lambda x: x + nx.lax.axis_index("i"), axis_name="i")(nx.zeros(3)).tolist()
    [0.0, 1.0, 2.0]
    """
    names = _names(axis_name)
    index = ops.axis_index(axis_names=names[:1])
    for name in names[1:]:
        index = add(mul(index, like(index, axes.axis_size(name))), ops.axis_index(axis_names=(name,)))
    return index


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Sum over the named axes; a Python number gives a Python number.

    Args:
        x: pytree of arrays; booleans are counted as integers.
        axis_name: name, or a tuple of names.

    Raises:
        UnboundAxisError: no enclosing `vmap` binds the name.

    >>> import nxjax as nx
    >>> nx.vmap(lambda x: x / nx.lax.psum(x, "i"), axis_name="i")(nx.array([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    _no_groups("psum", axis_index_groups)
    names = _names(axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex)):
            return leaf * size
        value = as_value(leaf, "psum")
        if value.dtype == dtypes.bool_:
            value = convert_element_type(value, dtype=dtypes.int32)
        return ops.psum(value, axis_names=names)

    return tree.map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Mean over the named axes. As `psum`."""
    _no_groups("pmean", axis_index_groups)
    names = _names(axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Any:
        value = as_value(leaf, "pmean")
        if value.dtype not in dtypes.INEXACT:
            value = convert_element_type(value, dtype=dtypes.canonical(dtypes.float64))
        total = ops.psum(value, axis_names=names)
        return div(total, like(total, size))

    return tree.map(one, x)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Maximum over the named axes. As `psum`."""
    _no_groups("pmax", axis_index_groups)
    names = _names(axis_name)
    return tree.map(lambda leaf: ops.pmax(as_value(leaf, "pmax"), axis_names=names), x)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Minimum over the named axes. As `psum`."""
    _no_groups("pmin", axis_index_groups)
    names = _names(axis_name)
    return tree.map(lambda leaf: ops.pmin(as_value(leaf, "pmin"), axis_names=names), x)


def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all elements along the named axes, in a new dimension ``axis``, or joined in it if ``tiled``.

    >>> import nxjax as nx
    >>> nx.vmap(lambda x: nx.lax.all_gather(x, "i"), axis_name="i")(nx.arange(2.0)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    _no_groups("all_gather", axis_index_groups)
    names = _names(axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Array:
        value = as_value(leaf, "all_gather")
        at = check_axis("all_gather", axis, value.ndim if tiled else value.ndim + 1)
        shape = value.shape
        for name in reversed(names):
            value = ops.all_gather(value, axis_names=(name,), axis_size=axes.axis_size(name), all_gather_dimension=at)
        if tiled:
            return reshape(value, shape=(*shape[:at], size * shape[at], *shape[at + 1 :]))
        return value if len(names) == 1 else reshape(value, shape=(*shape[:at], size, *shape[at:]))

    return tree.map(one, x)


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """The sum over the named axis, of which each element keeps its own part along ``scatter_dimension``."""
    _no_groups("psum_scatter", axis_index_groups)
    names = _one_name("psum_scatter", axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Array:
        value = as_value(leaf, "psum_scatter")
        at = check_axis("psum_scatter", scatter_dimension, value.ndim)
        if tiled:
            value = _divided("psum_scatter", value, at, size)
        return _checked(ops.reduce_scatter, value, axis_names=names, axis_size=size, scatter_dimension=at)

    return tree.map(one, x)


def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Element i gets part i along ``split_axis`` of every element, along ``concat_axis``.

    The split axis has the size of the named axis and disappears, and ``concat_axis`` is new; if ``tiled``, parts are
    blocks and both axes stay.
    """
    _no_groups("all_to_all", axis_index_groups)
    names = _one_name("all_to_all", axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Array:
        value = as_value(leaf, "all_to_all")
        split = check_axis("all_to_all", split_axis, value.ndim)
        concat = check_axis("all_to_all", concat_axis, value.ndim)
        params = {"axis_names": names, "axis_size": size}
        if not tiled:
            return _checked(ops.all_to_all, value, split_axis=split, concat_axis=concat, **params)
        blocks = _divided("all_to_all", value, split, size)
        y = _checked(ops.all_to_all, blocks, split_axis=split, concat_axis=concat, **params)
        shape = y.shape
        return reshape(y, shape=(*shape[:concat], size * shape[concat + 1], *shape[concat + 2 :]))

    return tree.map(one, x)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send values along the named axis: ``perm`` holds pairs (source, target); who receives nothing gets zeros.

    >>> import nxjax as nx
    >>> nx.vmap(lambda x: nx.lax.ppermute(x, "i", [(0, 1), (1, 0)]), axis_name="i")(nx.arange(2.0)).tolist()
    [1.0, 0.0]
    """
    names = _one_name("ppermute", axis_name)
    size = axis_size(names)
    pairs = tuple((int(s), int(t)) for s, t in perm)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    if len(set(sources)) != len(pairs) or len(set(targets)) != len(pairs):
        raise ParameterError("ppermute: sources and targets must be unique", got=perm)
    if any(not 0 <= i < size for i in (*sources, *targets)):
        raise ParameterError("ppermute: perm names an element that is not there", got=perm, expected=f"0 to {size - 1}")
    return tree.map(lambda leaf: ops.ppermute(as_value(leaf, "ppermute"), axis_names=names, perm=pairs), x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Element i gets the value of element ``perm[i]``."""
    size = axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ParameterError("pshuffle: not a permutation", got=perm, expected=f"of 0 to {size - 1}")
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange the named axis with the positional ``axis``."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def _checked(op: Op, x: Array, **params: Any) -> Array:
    op.infer(x.type, **params)  # the trace that answers sees whole values and would not notice
    return op(x, **params)


def _one_name(where: str, axis_name: Any) -> tuple[Any, ...]:
    names = _names(axis_name)
    if len(names) != 1:
        raise ParameterError(f"{where}: one axis at a time", got=axis_name)
    return names


def _divided(where: str, x: Array, axis: int, size: int) -> Array:
    n = x.shape[axis]
    if n % size:
        raise ShapeError(f"{where}: the axis does not divide into parts", got=x.type, expected=f"a multiple of {size}")
    return reshape(x, shape=(*x.shape[:axis], size, n // size, *x.shape[axis + 1 :]))
