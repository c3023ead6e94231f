"""Spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.lax import complex as complex_of
from nxjax.numpy.promotion import concrete_or_error, promote_inexact, static_int
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import fori_loop


def _normalized(degree: Array, order: Array, theta: Array, n_max: int) -> Array:
    """N P_n^m(cos theta) for 0 <= m <= n, by the recurrence in the degree, which starts at the order.

    DLMF 14.10.3 with the normalization 14.30.1 worked in: with Q_l for the order m,
    Q_l = sqrt((4 l^2 - 1) / (l^2 - m^2)) (x Q_(l-1) - sqrt(((l - 1)^2 - m^2) / (4 (l - 1)^2 - 1)) Q_(l-2)).
    """
    x, s = jnp.cos(theta), jnp.sin(theta)
    m = order.astype(x.dtype)
    first = jnp.full_like(x, 0.5 / math.sqrt(math.pi))

    def step(i: Array, state: Any) -> Any:
        before, last, diagonal, found = state
        l = i.astype(x.dtype)
        # P_l^l from P_(l-1)^(l-1), Condon and Shortley's phase included.
        diagonal = jnp.where(l == 0, diagonal, -jnp.sqrt((2 * l + 1) / jnp.maximum(2 * l, 1)) * s * diagonal)
        above = l > m
        gap = jnp.where(above, l * l - m * m, 1)
        lower = jnp.where(above, jnp.maximum((l - 1) ** 2 - m * m, 0), 0)
        below = jnp.maximum(4 * (l - 1) ** 2 - 1, 1)
        # No NaN where nothing climbs: it would come back as a slope.
        climbed = jnp.sqrt(jnp.maximum(4 * l * l - 1, 0) / gap) * (x * last - jnp.sqrt(lower / below) * before)
        value = jnp.where(above, climbed, jnp.where(l == m, diagonal, 0))
        return last, value, diagonal, jnp.where(i == degree, value, found)

    zero = jnp.zeros_like(x)
    return fori_loop(0, n_max + 1, step, (zero, zero, first, zero))[3]


def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """Spherical harmonics Y_n^m(theta, phi) of degree ``n`` and order ``m`` (DLMF 14.30.1).

    Args:
        n: integers >= 0, one-dimensional; those above ``n_max`` count as ``n_max``.
        m: integers of the shape of ``n``, from -n to n.
        theta: polar angles in [0, pi], of the shape of ``n``; a number becomes an array of one.
        phi: azimuths, of the shape of ``theta``.
        diff_n: not supported.
        n_max: the greatest degree, static; that of ``n`` by default, which must then be concrete.

    Returns:
        Complex array of the shape of ``theta``, differentiable in the angles. Errors grow like the degree times an ulp.

    Raises:
        NotImplementedError: for ``diff_n``.
        ConcretizationTypeError: if ``n`` is traced and ``n_max`` is not given.

    >>> print(sph_harm_y(nx.array([1]), nx.array([0]), nx.array([0.0]), nx.array([0.0])))
    [0.48860252+0.j]
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not supported.")
    if n_max is None:
        n_max = int(
            np.max(concrete_or_error("sph_harm_y", n, "the greatest degree decides the length of a loop; give n_max="))
        )
    top = static_int("sph_harm_y: n_max", n_max)
    theta, phi = promote_inexact("sph_harm_y", theta, phi)
    if not theta.ndim:
        theta = theta.reshape(1)
    degree, order, theta, phi = jnp.broadcast_arrays(jnp.asarray(n), jnp.asarray(m), theta, phi)
    size = jnp.abs(order)
    degree = jnp.minimum(degree, top)
    value = _normalized(degree, size, theta, top)
    angle = size.astype(phi.dtype) * phi
    # DLMF 14.30.6: Y_n^(-m) = (-1)^m conj(Y_n^m)
    negative = order < 0
    odd = jnp.where(negative & (jnp.mod(size, 2) == 1), -1.0, 1.0).astype(value.dtype)
    imaginary = jnp.where(negative, -jnp.sin(angle), jnp.sin(angle))
    return complex_of(odd * value * jnp.cos(angle), odd * value * imaginary)
