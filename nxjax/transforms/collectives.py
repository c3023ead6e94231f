"""Collectives over named axes, of `vmap` and of the mesh of a `shard_map`: the public functions, on pytrees."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nxjax.errors import ParameterError, ShapeError
from nxjax.ops import collectives as ops
from nxjax.ops.arithmetic import div
from nxjax.ops.base import check_axis, like
from nxjax.ops.collectives import Groups, as_varying, row_major
from nxjax.ops.compare import eq
from nxjax.ops.convert import convert_element_type
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.trace import axes, dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op

F = TypeVar("F", bound=Callable[..., Any])


def _shown(call: str, elements: str, result: str, raises: str = "") -> Callable[[F], F]:
    """Decorator: what all docstrings here end with, an error and a call under `vmap`, with what it gives."""
    errors = [*filter(None, (raises,)), "UnboundAxisError: no enclosing `vmap` or `shard_map` binds the name."]
    example = f'>>> nx.vmap(lambda x: {call}, axis_name="i")(jnp.{elements})\n{result}\n'

    def complete(function: F) -> F:
        doc = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n    ".join([f"{doc}\n\nRaises:", *errors]) + f"\n\n{example}"
        return function

    return complete


def _names(axis_name: Any) -> tuple[Any, ...]:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for name in names:
        axes.axis_size(name)  # raises where the name is not bound
    return names


def _checked_names(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """The names of mesh axes along which it is checked what varies."""
    return tuple(n for n in names if axes.bound_axis(n)[3])


def _groups(where: str, names: tuple[Any, ...], groups: Any, equal: bool = True) -> Groups:
    """``axis_index_groups``: which places of the one axis communicate with each other."""
    if groups is None:
        return None
    found = tuple(tuple(int(i) for i in group) for group in groups)
    size = axis_size(names)
    fits = sorted(i for g in found for i in g) == list(range(size)) and len(names) == 1
    if not fits or (equal and len({len(g) for g in found}) > 1):
        raise ParameterError(
            f"{where}: axis_index_groups does not divide the axis",
            got=groups,
            expected=f"{'equal ' if equal else ''}lists with each of 0 to {size - 1} once, of one axis",
        )
    return found


def _members(where: str, axis_name: Any, axis_index_groups: Any) -> tuple[tuple[Any, ...], Groups, int]:
    """The names, the groups, and how many elements communicate with each other."""
    names = _names(axis_name)
    groups = _groups(where, names, axis_index_groups)
    return names, groups, axis_size(names) if groups is None else len(groups[0])


def _given(groups: Groups) -> dict[str, Any]:
    return {} if groups is None else {"groups": groups}


@_shown('x / lax.axis_size("i")', "array([3.0, 6.0, 9.0])", "Array([1., 2., 3.], dtype=float32)")
def axis_size(axis_name: str | Sequence[str]) -> int:
    """The number of elements along one or several named axes, as a Python int."""
    return math.prod(axes.axis_size(name) for name in _names(axis_name))


@_shown('x + lax.axis_index("i")', "zeros(3)", "Array([0., 1., 2.], dtype=float32)")
def axis_index(axis_name: str | Sequence[str]) -> Array:
    """The element's position along the named axis (int32); row-major over a tuple of axes."""
    names = _names(axis_name)
    found = [
        ops.axis_index(axis_names=(n,), varies=True) if axes.bound_axis(n)[3] else ops.axis_index(axis_names=(n,))
        for n in names
    ]
    return row_major(found, [axes.axis_size(n) for n in names])


def _total(x: Array, names: tuple[Any, ...], groups: Groups) -> Array:
    """The sum, by the op that each name asks for."""
    checked = _checked_names(names)
    if groups is not None:
        return ops.psum(as_varying(x, checked), axis_names=names, groups=groups)
    plain = tuple(n for n in names if n not in checked)
    if plain:
        x = ops.psum(x, axis_names=plain)
    return ops.psum_invariant(as_varying(x, checked), axis_names=checked) if checked else x


@_shown('x / lax.psum(x, "i")', "array([1.0, 3.0])", "Array([0.25, 0.75], dtype=float32)")
def psum(
    x: PyTree, axis_name: str | Sequence[str], *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Sum over the named axes; Python numbers stay Python numbers.

    Args:
        x: pytree of arrays; booleans are counted as integers.
        axis_name: name, or a tuple of names.
        axis_index_groups: lists of places along the axis; each list has its own sum.
    """
    names = _names(axis_name)
    groups = _groups("psum", names, axis_index_groups, equal=False)
    size = axis_size(names)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex)) and (groups is None or len({len(g) for g in groups}) == 1):
            return leaf * (size if groups is None else len(groups[0]))
        value = as_value(leaf, "psum")
        if value.dtype == dtypes.bool_:
            value = convert_element_type(value, dtype=dtypes.int32)
        return _total(value, names, groups) if names else value

    return tree.map(one, x)


@_shown('x - lax.pmean(x, "i")', "array([1, 2, 6])", "Array([-2., -1.,  3.], dtype=float32)")
def pmean(
    x: PyTree, axis_name: str | Sequence[str], *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Mean over the named axes. As `psum`.

    Integers and booleans become float.
    """
    names, groups, size = _members("pmean", axis_name, axis_index_groups)

    def one(leaf: Any) -> Any:
        value = as_value(leaf, "pmean")
        if value.dtype not in dtypes.INEXACT:
            value = convert_element_type(value, dtype=dtypes.to_inexact(value.dtype))
        total = _total(value, names, groups) if names else value
        return div(total, like(total, size))

    return tree.map(one, x)


def _extremum(op: Op, x: Any, axis_name: Any, axis_index_groups: Any) -> Any:
    names = _names(axis_name)
    groups = _groups(op.name, names, axis_index_groups, equal=False)

    def one(leaf: Any) -> Any:
        value = as_varying(as_value(leaf, op.name), _checked_names(names))
        return op(value, axis_names=names, **_given(groups)) if names else value

    return tree.map(one, x)


@_shown('lax.pmax(x, "i")', "array([1.0, 4.0, 2.0])", "Array([4., 4., 4.], dtype=float32)")
def pmax(
    x: PyTree, axis_name: str | Sequence[str], *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Maximum over the named axes. As `psum`.

    Keeps the dtype; NaN where one is.
    """
    return _extremum(ops.pmax, x, axis_name, axis_index_groups)


@_shown('x - lax.pmin(x, "i")', "array([3, 5, 2])", "Array([1, 3, 0], dtype=int32)")
def pmin(
    x: PyTree, axis_name: str | Sequence[str], *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Minimum over the named axes. As `psum`.

    Keeps the dtype; NaN where one is.
    """
    return _extremum(ops.pmin, x, axis_name, axis_index_groups)


@_shown('lax.pargmax(x, "i")', "array([1.0, 4.0, 4.0])", "Array([1, 1, 1], dtype=int32)")
def pargmax(x: PyTree, axis_name: str | Sequence[str]) -> PyTree:
    """The position along the named axis of the maximum; the first of several.

    Positions are int32.
    """
    return tree.map(lambda leaf: _position_of(as_value(leaf, "pargmax"), pmax(leaf, axis_name), axis_name), x)


@_shown('lax.pargmin(x, "i")', "array([3.0, 1.0, 1.0])", "Array([1, 1, 1], dtype=int32)")
def pargmin(x: PyTree, axis_name: str | Sequence[str]) -> PyTree:
    """The position along the named axis of the minimum; the first of several.

    Positions are int32.
    """
    return tree.map(lambda leaf: _position_of(as_value(leaf, "pargmin"), pmin(leaf, axis_name), axis_name), x)


def _position_of(x: Array, extremum: Array, axis_name: Any) -> Array:
    place = broadcast_in_dim(axis_index(axis_name), shape=x.shape, broadcast_dimensions=())
    beyond = like(place, axis_size(axis_name))
    return pmin(select_n(eq(x, extremum), beyond, place), axis_name)


@_shown(
    'lax.pbroadcast(x, "i", 2)',
    "array([5, 6, 7])",
    "Array([7, 7, 7], dtype=int32)",
    raises="ParameterError: no such element.",
)
def pbroadcast(x: PyTree, axis_name: str | Sequence[str], source: int) -> PyTree:
    """The value of element ``source``, for all elements of the named axis."""
    names = _names(axis_name)
    if not 0 <= source < axis_size(names):
        raise ParameterError("pbroadcast: no such element", got=source, expected=f"0 to {axis_size(names) - 1}")

    def one(leaf: Any) -> Array:
        value = as_value(leaf, "pbroadcast")
        index = axis_index(names)
        mine = broadcast_in_dim(eq(index, like(index, source)), shape=value.shape, broadcast_dimensions=())
        masked = select_n(mine, like(value, 0), value)
        # A value for each element, as every collective that moves gives: JAX's type.
        return as_varying(psum(masked, names), _checked_names(names))

    return tree.map(one, x)


@_shown('lax.pvary(x, "i")', "array([1, 2])", "Array([1, 2], dtype=int32)")
def pvary(x: PyTree, axis_name: str | Sequence[str]) -> PyTree:
    """``x`` as a value that may differ along the named mesh axes (see `nx.shard_map`).

    Its derivative is the sum over those axes.
    """
    names = _names(axis_name)
    return tree.map(lambda leaf: as_varying(as_value(leaf, "pvary"), _checked_names(names)), x)


@_shown(
    'lax.pcast(x, "i", to="varying")',
    "array([1, 2])",
    "Array([1, 2], dtype=int32)",
    raises="ParameterError: ``to`` is another value.",
)
def pcast(x: PyTree, axis_name: str | Sequence[str], *, to: str) -> PyTree:
    """`pvary` under its newer name: ``to="varying"``."""
    if to != "varying":
        raise ParameterError("pcast: a value can only be taken as varying", got=repr(to), expected="'varying'")
    return pvary(x, axis_name)


@_shown(
    'lax.all_gather(x, "i")',
    "array([5, 6])",
    "Array([[5, 6],\n       [5, 6]], dtype=int32)",
    raises="AxisError: the result has no such axis.\n    ParameterError: ``to`` is another value.",
)
def all_gather(
    x: PyTree,
    axis_name: str | Sequence[str],
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> PyTree:
    """The values of all elements along the named axes, in a new dimension ``axis``, or joined in it if ``tiled``.

    Args:
        x: pytree of arrays.
        axis_name: name or names of axes.
        axis_index_groups: elements that share values; the default is all of them.
        axis: of the values.
        tiled: join them in ``axis`` rather than stack them.
        to: "varying", as for results of collectives in `shard_map`. Then its ``out_specs`` must name the axis, although
            all elements have the same values.
    """
    if to != "varying":
        raise ParameterError(
            "all_gather: its results vary along the axis",
            got=f"to={to!r}",
            expected="to='varying'",
            fix="lax.psum of each element's values in their places gives what varies along no axis",
        )
    names, groups, size = _members("all_gather", axis_name, axis_index_groups)

    def one(leaf: Any) -> Array:
        value = as_varying(as_value(leaf, "all_gather"), _checked_names(names))
        at = check_axis("all_gather", axis, value.ndim if tiled else value.ndim + 1)
        shape = value.shape
        for name in reversed(names):
            n = size if groups is not None else axes.axis_size(name)
            value = ops.all_gather(value, axis_names=(name,), axis_size=n, all_gather_dimension=at, **_given(groups))
        if tiled:
            return reshape(value, shape=(*shape[:at], size * shape[at], *shape[at + 1 :]))
        return value if len(names) == 1 else reshape(value, shape=(*shape[:at], size, *shape[at:]))

    return tree.map(one, x)


@_shown(
    'lax.psum_scatter(x, "i")',
    "array([[1, 2], [10, 20]])",
    "Array([11, 22], dtype=int32)",
    raises="ShapeError: the dimension does not divide into parts.",
)
def psum_scatter(
    x: PyTree,
    axis_name: str | Sequence[str],
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> PyTree:
    """The sum over the named axes. Each element keeps its part along ``scatter_dimension``.

    With ``tiled`` a part is a block, and the dimension stays. Without, the dimension has the size of the axis and is
    dropped.
    """
    names, groups, size = _members("psum_scatter", axis_name, axis_index_groups)

    def one(leaf: Any) -> Array:
        value = as_varying(as_value(leaf, "psum_scatter"), _checked_names(names))
        at = check_axis("psum_scatter", scatter_dimension, value.ndim)
        value = _in_parts("psum_scatter: the scattered dimension", value, at, size, tiled)
        if len(names) > 1:
            sizes = [axes.axis_size(n) for n in names]
            value = reshape(value, shape=(*value.shape[:at], *sizes, *value.shape[at + 1 :]))
        for name in names:
            n = size if groups is not None else axes.axis_size(name)
            value = ops.reduce_scatter(value, axis_names=(name,), axis_size=n, scatter_dimension=at, **_given(groups))
        return value

    return tree.map(one, x)


@_shown(
    'lax.all_to_all(x, "i", 0, 0)',
    "array([[1, 2], [3, 4]])",
    "Array([[1, 3],\n       [2, 4]], dtype=int32)",
    raises="ShapeError: the split axis does not divide into parts.",
)
def all_to_all(
    x: PyTree,
    axis_name: str | Sequence[str],
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> PyTree:
    """Element i gets part i along ``split_axis`` of every element, along ``concat_axis``.

    The split axis has the size of the named axis and is dropped, and ``concat_axis`` is new. If ``tiled``, parts are
    blocks and both axes stay.
    """
    names, groups, size = _members("all_to_all", axis_name, axis_index_groups)

    def one(leaf: Any) -> Array:
        value = as_varying(as_value(leaf, "all_to_all"), _checked_names(names))
        split = check_axis("all_to_all", split_axis, value.ndim)
        concat = check_axis("all_to_all", concat_axis, value.ndim)
        value = _in_parts("all_to_all: the split axis", value, split, size, tiled)
        y = _exchanged(value, names, size, split, concat, groups)
        if not tiled:
            return y
        shape = y.shape
        return reshape(y, shape=(*shape[:concat], size * shape[concat + 1], *shape[concat + 2 :]))

    return tree.map(one, x)


def _exchanged(x: Array, names: tuple[Any, ...], size: int, split: int, concat: int, groups: Groups) -> Array:
    if len(names) == 1:
        return ops.all_to_all(
            x, axis_names=names, axis_size=size, split_axis=split, concat_axis=concat, **_given(groups)
        )
    # Each axis in turn gets a new dimension in place; at the end all of these move to their positions.
    sizes = [axes.axis_size(n) for n in names]
    y = reshape(x, shape=(*x.shape[:split], *sizes, *x.shape[split + 1 :]))
    for i, (name, n) in enumerate(zip(names, sizes, strict=True)):
        at = split + i
        y = ops.all_to_all(y, axis_names=(name,), axis_size=n, split_axis=at, concat_axis=at)
    y = reshape(y, shape=x.shape)
    order = [i for i in range(x.ndim) if i != split]
    order.insert(concat, split)
    return transpose(y, permutation=tuple(order)) if split != concat else y


@_shown(
    'lax.ppermute(x, "i", [(0, 1), (1, 2)])',
    "array([5, 6, 7])",
    "Array([0, 5, 6], dtype=int32)",
    raises="ParameterError: a source or target occurs twice, or does not exist.",
)
def ppermute(x: PyTree, axis_name: str | Sequence[str], perm: Sequence[tuple[int, int]]) -> PyTree:
    """Send values along the named axis: ``perm`` has pairs (source, target); other targets get zeros."""
    names = _one_name("ppermute", axis_name)
    size = axis_size(names)
    pairs = tuple((int(s), int(t)) for s, t in perm)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    if len(set(sources)) != len(pairs) or len(set(targets)) != len(pairs):
        raise ParameterError("ppermute: sources and targets must be unique", got=perm)
    if any(not 0 <= i < size for i in (*sources, *targets)):
        raise ParameterError("ppermute: perm names an element that is not there", got=perm, expected=f"0 to {size - 1}")

    def one(leaf: Any) -> Array:
        return ops.ppermute(as_varying(as_value(leaf, "ppermute"), _checked_names(names)), axis_names=names, perm=pairs)

    return tree.map(one, x)


@_shown(
    'lax.pshuffle(x, "i", [2, 0, 1])',
    "array([5, 6, 7])",
    "Array([7, 5, 6], dtype=int32)",
    raises="ParameterError: ``perm`` is not a permutation of the elements.",
)
def pshuffle(x: PyTree, axis_name: str | Sequence[str], perm: Sequence[int]) -> PyTree:
    """Element i gets the value of element ``perm[i]``."""
    size = axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ParameterError("pshuffle: not a permutation", got=perm, expected=f"of 0 to {size - 1}")
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


@_shown(
    'lax.pswapaxes(x, "i", 0)',
    "array([[1, 2], [3, 4]])",
    "Array([[1, 3],\n       [2, 4]], dtype=int32)",
    raises="ShapeError: the sizes differ.",
)
def pswapaxes(
    x: PyTree, axis_name: str | Sequence[str], axis: int, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> PyTree:
    """Exchange the named axis with the positional ``axis``."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def _one_name(where: str, axis_name: Any) -> tuple[Any, ...]:
    names = _names(axis_name)
    if len(names) != 1:
        raise ParameterError(f"{where}: one axis at a time", got=axis_name)
    return names


def _in_parts(what: str, x: Array, axis: int, size: int, tiled: bool) -> Array:
    """``x`` with ``size`` parts along ``axis``; of blocks (``tiled``), these are the dimension behind it."""
    n = x.shape[axis]
    if tiled and n % size:
        raise ShapeError(f"{what} does not divide into parts", got=x.type, expected=f"a multiple of {size}")
    if not tiled and n != size:
        raise ShapeError(
            f"{what} is not the axis size",
            got=x.type,
            expected=f"size {size} in dimension {axis}",
            fix="tiled=True takes blocks of any dimension that the axis divides",
        )
    return reshape(x, shape=(*x.shape[:axis], size, n // size, *x.shape[axis + 1 :])) if tiled else x
