"""Functions of functions: vectorize, apply_along_axis, apply_over_axes, and ufuncs from Python functions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import as_axis, as_operand, broadcast_shape
from nxjax.numpy.shapes import expand_dims, moveaxis, squeeze
from nxjax.trace import tree
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap

_CORE = r"\((?:\s*\w+\s*(?:,\s*\w+\s*)*)?\)"
_SIGNATURE = re.compile(rf"\s*({_CORE}(?:\s*,\s*{_CORE})*)?\s*->\s*{_CORE}(?:\s*,\s*{_CORE})*\s*")


def _parse(text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    if not _SIGNATURE.fullmatch(text):
        raise ValueError(f"not a valid gufunc signature: {text}")
    left, right = text.split("->")
    return tuple(  # type: ignore[return-value]
        [tuple(re.findall(r"\w+", core)) for core in re.findall(_CORE, side)] for side in (left, right)
    )


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """Make a function of scalars (or of the core arrays that ``signature`` names) broadcast over arrays, with `vmap`.

    >>> vectorize(lambda m, v: m @ v, signature="(n,m),(m)->(n)")(jnp.ones((5, 2, 3)), jnp.ones(3)).shape
    (5, 2)
    """
    skipped = frozenset(excluded)
    if any(not isinstance(e, (int, str)) for e in skipped):
        raise TypeError(
            f"jax.numpy.vectorize can only exclude integer or string arguments, but excluded={set(skipped)}"
        )
    if any(isinstance(e, int) and e < 0 for e in skipped):
        raise ValueError(f"excluded={set(skipped)} contains negative numbers")

    @functools.wraps(pyfunc)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fixed_words = {k: v for k, v in kwargs.items() if k in skipped}
        free_words = {k: v for k, v in kwargs.items() if k not in skipped}
        if signature is not None and free_words:
            raise ParameterError(
                "vectorize: with a signature, vectorized arguments are positional", got=list(free_words)
            )
        positions = [i for i in range(len(args)) if i not in skipped]
        names = list(free_words)
        xs = [as_operand(args[i], "vectorize") for i in positions] + [
            as_operand(free_words[k], "vectorize") for k in names
        ]

        def core(*vs: Any) -> Any:
            full = list(args)
            for i, v in zip(positions, vs, strict=False):
                full[i] = v
            words = dict(zip(names, vs[len(positions) :], strict=True))
            return pyfunc(*full, **words, **fixed_words)

        return _vectorized(core, xs, signature)

    return wrapped


def _vectorized(core: Callable[..., Any], xs: list[Array], signature: str | None) -> Any:
    outputs: list[tuple[str, ...]] | None = None
    sizes: dict[str, int] = {}
    if signature is None:
        cores: list[tuple[str, ...]] = [()] * len(xs)
    else:
        cores, outputs = _parse(signature)
        if len(cores) != len(xs):
            raise TypeError(f"wrong number of positional arguments: expected {len(cores)}, got {len(xs)}")
    leads: list[tuple[int, ...]] = []
    for x, names in zip(xs, cores, strict=True):
        k = len(names)
        if x.ndim < k:
            raise ValueError(
                f"input with shape {x.shape} does not have enough dimensions for all core dimensions {names}"
            )
        shape = x.shape[x.ndim - k :]
        for name, n in zip(names, shape, strict=True):
            if sizes.setdefault(name, n) != n:
                raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")
        leads.append(x.shape[: x.ndim - k])
    lead = broadcast_shape("vectorize", *leads)
    checked = _checked(core, outputs, sizes) if outputs is not None else core
    function = checked
    # One vmap per leading axis, innermost last; an axis of size 1 (or missing) is shared instead of repeated.
    squeezed: list[Array] = []
    axes: list[list[int | None]] = []
    for x, own in zip(xs, leads, strict=True):
        padded = (1,) * (len(lead) - len(own)) + own
        missing = len(lead) - len(own)
        dropped = tuple(i - missing for i in range(missing, len(lead)) if padded[i] == 1 != lead[i])
        squeezed.append(squeeze(x, dropped) if dropped else x)
        axes.append([None if padded[i] == 1 and (lead[i] != 1 or i < missing) else 0 for i in range(len(lead))])
    for i in reversed(range(len(lead))):
        column = tuple(a[i] for a in axes)
        if all(a is None for a in column):
            function = vmap(function, in_axes=column, axis_size=lead[i])
        else:
            function = vmap(function, in_axes=column)
    return function(*squeezed)


def _checked(core: Callable[..., Any], outputs: list[tuple[str, ...]], sizes: dict[str, int]) -> Callable[..., Any]:
    """``core`` with its results held to the signature."""

    def function(*xs: Any) -> Any:
        got = core(*xs)
        several = isinstance(got, tuple)
        ys = got if several else (got,)
        if len(outputs) == 1 and several:
            raise TypeError(f"output must be a single array, not a tuple of {len(ys)}")
        if len(ys) != len(outputs):
            raise TypeError(f"wrong number of output arguments: expected {len(outputs)}, got {len(ys)}")
        for y, names in zip(ys, outputs, strict=True):
            shape = tuple(as_operand(y, "vectorize").shape)
            if len(shape) != len(names):
                raise ValueError(f"output shape {shape} does not match core dimensions {names}")
            for name, n in zip(names, shape, strict=True):
                if sizes.get(name, n) != n:
                    raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")
        return got

    return function


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: object, **kwargs: object) -> Array:
    """``func1d`` of every row along ``axis``; its result replaces that axis. It is traced once, by `vmap`.

    >>> jnp.apply_along_axis(lambda row: row[-1] - row[0], 1, jnp.array([[1, 3], [10, 40]]))
    Array([ 2, 30], dtype=int32)
    >>> jnp.apply_along_axis(jnp.diag, 0, jnp.ones((2, 3))).shape
    (2, 2, 3)
    """
    x = as_operand(arr, "apply_along_axis")
    i = as_axis("apply_along_axis", axis, x.ndim)
    rows = moveaxis(x, i, -1)
    function: Callable[..., Any] = lambda row: func1d(row, *args, **kwargs)
    for _ in range(x.ndim - 1):
        function = vmap(function)
    lead = x.ndim - 1

    def back(y: Array) -> Array:
        # The axes of one result follow the leading ones; they go where the row was.
        own = y.ndim - lead
        return moveaxis(y, tuple(range(lead, y.ndim)), tuple(range(i, i + own))) if own else y

    return tree.map(back, function(rows))


@example("jnp.sum, jnp.ones((2, 3, 4)), [0, 2]", "[[[8.0], [8.0], [8.0]]]", then=".tolist()")
def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: Sequence[int] | int) -> Array:
    """``func(x, axis)`` for one axis after the other, the axis kept with size 1.

    Raises:
        ShapeError: the function neither keeps nor drops the axis.
    """
    x = as_operand(a, "apply_over_axes")
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        y = func(x, axis)
        if y.ndim != x.ndim:
            y = expand_dims(y, axis)
        if y.ndim != x.ndim:
            raise ShapeError("function is not returning an array of the correct shape", got=y.type)
        x = y
    return x


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: object = None) -> Callable[..., Any]:
    """A ufunc made of a traceable Python function of scalars.

    Args:
        func: traceable function of ``nin`` scalars that returns ``nout`` of them.
        identity: the value that changes nothing, for `reduce` of nothing.

    >>> larger = jnp.frompyfunc(lambda x, y: jnp.where(x > y, x, y), 2, 1)
    >>> larger(jnp.array([1, 5]), 3)
    Array([3, 5], dtype=int32)
    >>> larger.reduce(jnp.array([1, 5, 2]))
    Array(5, dtype=int32)
    """
    return jnp.ufunc(func, nin, nout, identity=identity)
