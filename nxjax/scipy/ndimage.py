"""`nx.scipy.ndimage`: values of sampled arrays between their samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.numpy.documented import example as _example
from nxjax.numpy.promotion import as_operand
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike

__all__ = ["map_coordinates"]


def _mirror(i: Array, n: int) -> Array:
    return jnp.abs((i + (n - 1)) % (2 * (n - 1)) - (n - 1))


_INSIDE: Final[dict[str, Callable[[Array, int], Array]]] = {
    "constant": lambda i, n: i,
    "nearest": lambda i, n: jnp.clip(i, 0, n - 1),
    "wrap": lambda i, n: i % n,
    "mirror": _mirror,
    "reflect": lambda i, n: (_mirror(2 * i + 1, 2 * n + 1) - 1) // 2,
}


def _rounded(x: Array) -> Array:
    """Halves go away from zero."""
    return x if x.dtype in dtypes.INTEGER else lax.round(x)


@_example("jnp.array([0.0, 10.0, 20.0]), [jnp.array([0.5, 5.0])], order=1", "[5.0, 0.0]", then=".tolist()")
def map_coordinates(
    input: ArrayLike, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: ArrayLike = 0.0
) -> Array:
    """Values of ``input`` at ``coordinates`` by the nearest sample or linear interpolation; of the dtype of ``input``.

    Args:
        input: array; results of integers are rounded.
        coordinates: one array of positions per dimension, all of one shape, which is the result's.
        order: 0 for the nearest sample, 1 for linear interpolation.
        mode: for points outside: ``"constant"`` (``cval``), ``"nearest"``, ``"wrap"``, ``"mirror"`` or ``"reflect"``.
        cval: Python number.
    """
    where = "scipy.ndimage.map_coordinates"
    x = as_operand(input, where) if not isinstance(input, (list, tuple)) else jnp.asarray(input)
    places = [jnp.asarray(c) for c in coordinates]
    outside = jnp.asarray(cval, x.dtype)
    if len(places) != x.ndim:
        raise ParameterError(f"{where}: one array of coordinates per dimension", got=len(places), expected=x.ndim)
    if mode not in _INSIDE:
        raise NotImplementedError(f"{where}: mode {mode!r}; there are {', '.join(_INSIDE)}")
    if order not in (0, 1):
        raise NotImplementedError(f"{where}: only order 0 and 1")
    choices: list[list[tuple[Array, Any, Any]]] = []
    for c, n in zip(places, x.shape, strict=True):
        if order == 0:
            nodes: list[tuple[Array, Any]] = [(_rounded(c).astype("int32"), jnp.ones((), c.dtype))]
        else:
            low = jnp.floor(c)
            rest = c - low
            index = low.astype("int32")
            nodes = [(index, 1 - rest), (index + 1, rest)]
        choices.append([(_INSIDE[mode](i, n), (i >= 0) & (i < n) if mode == "constant" else True, w) for i, w in nodes])
    total: Any = None
    for corner in itertools.product(*choices):
        found = x[tuple(i for i, _, _ in corner)]
        if mode == "constant" and corner:
            inside = corner[0][1]
            for _, more, _ in corner[1:]:
                inside = inside & more
            found = jnp.where(inside, found, outside)
        part = math.prod([w for _, _, w in corner[1:]], start=corner[0][2]) * found if corner else found
        total = part if total is None else total + part
    return (_rounded(total) if x.dtype in dtypes.INTEGER else total).astype(x.dtype)
