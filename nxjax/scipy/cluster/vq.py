"""`nx.scipy.cluster.vq`: which code is nearest to each observation."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.promotion import promote_inexact
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike

__all__ = ["vq"]


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The number of the nearest code of each observation, and its distance.

    Args:
        obs: ``[m, k]``, or ``[m]`` for numbers.
        code_book: ``[n, k]``, or ``[n]``, n > 0.
        check_finite: has no effect.

    >>> code, distance = vq(jnp.array([0.0, 9.0]), jnp.array([1.0, 10.0]))
    >>> code.tolist(), distance.tolist()
    ([0, 1], [1.0, 1.0])
    """
    x, codes = promote_inexact("scipy.cluster.vq.vq", obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2):
        got = f"{x.type}, {codes.type}"
        raise ShapeError(
            "scipy.cluster.vq.vq: observations and codes of one rank", got=got, expected="[m, k] and [n, k]"
        )
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    distance = jnp.linalg.norm(x[:, None] - codes[None], axis=-1)
    code = jnp.argmin(distance, axis=-1)
    return code, jnp.take_along_axis(distance, code[:, None], axis=-1)[:, 0]
