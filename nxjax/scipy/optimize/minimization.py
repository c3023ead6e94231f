"""Minimization by the methods of Broyden, Fletcher, Goldfarb and Shanno, with whole and with limited memory.

J. Nocedal and S. Wright, "Numerical Optimization", 2nd edition, 2006, algorithms 6.1, 7.4 and 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.promotion import promote_inexact
from nxjax.scipy.optimize.line_search import line_search
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import fori_loop, while_loop
from nxjax.transforms.grad import value_and_grad

LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


class OptimizeResults(NamedTuple):
    """What `minimize` gives.

    Attributes:
        x: the solution.
        success: whether the gradient became small enough.
        status: 0 for success, 1 for too many iterations. BFGS: 3 and 5 for a line search that found no step. L-BFGS: 2
            and 3 for too many values and gradients, 4 for a decrease below ``ftol``, 5 for a failed line search.
        fun, jac: value and gradient there.
        hess_inv: the approximate inverse Hessian; None for L-BFGS.
        nfev, njev, nit: numbers of values, gradients and iterations.

    >>> OptimizeResults._fields[:3]
    ('x', 'success', 'status')
    """

    x: Array
    success: Array
    status: Any
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Any
    njev: Any
    nit: Any


def minimize(
    fun: Callable[..., Any],
    x0: ArrayLike,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """The local minimum of a scalar function near ``x0``.

    Args:
        fun: ``fun(x, *args)``, differentiable, of a vector.
        x0: start, ``[n]``; integers become float.
        args: further arguments of ``fun``.
        method: ``"BFGS"``, or ``"l-bfgs-experimental-do-not-rely-on-this"``.
        tol: the norm of the gradient at the solution, where options have no ``gtol``; 1e-5 by default.
        options: a dict with ``maxiter`` (200 n by default), ``gtol``, ``norm`` (its order, inf by default); for BFGS
            ``line_search_maxiter`` (10); for L-BFGS ``maxcor`` (10), ``ftol``, ``maxfun``, ``maxgrad``, ``maxls`` (20).

    >>> r = minimize(lambda x: ((x - 3) ** 2).sum(), nx.zeros(2), method="BFGS")
    >>> [round(float(v), 3) for v in r.x]
    [3.0, 3.0]
    """
    name = "scipy.optimize.minimize"
    if not isinstance(method, str) or method.lower() not in ("bfgs", LIMITED):
        raise ParameterError(f"{name}: method", got=repr(method), expected=f"'BFGS' or '{LIMITED}'")
    if not isinstance(args, tuple):
        raise ParameterError(f"{name}: args is a tuple", got=repr(args)[:40])
    full = method.lower() == "bfgs"
    given = dict(options or {})
    known = {"maxiter", "gtol", "norm"} | (
        {"line_search_maxiter"} if full else {"maxcor", "ftol", "maxfun", "maxgrad", "maxls"}
    )
    if set(given) - known:
        raise ParameterError(f"{name}: unknown options", got=sorted(set(given) - known), expected=sorted(known))
    (x,) = promote_inexact(name, x0)
    if x.ndim != 1:
        raise ShapeError(f"{name}: x0 is a vector", got=x.type)
    if tol is not None:
        given.setdefault("gtol", tol)

    def f(v: Array) -> Any:
        return value_and_grad(lambda u: fun(u, *args))(v)

    return (_bfgs if full else _limited)(f, x, **given)


def _small(gradient: Array, norm: Any, gtol: float) -> Array:
    return jnp.linalg.norm(gradient, ord=norm) < gtol


class _State(NamedTuple):
    x: Array
    value: Array
    gradient: Array
    inverse: Array
    before: Array
    count: Array
    evaluations: Array
    done: Array
    failed: Array
    status: Array


def _bfgs(
    f: Callable[[Array], Any],
    x: Array,
    maxiter: int | None = None,
    norm: Any = np.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> OptimizeResults:
    n = x.shape[0]
    limit = 200 * n if maxiter is None else maxiter
    identity = jnp.eye(n, dtype=x.dtype)
    product = lambda a, b: jnp.matmul(a, b, precision="highest")

    def unfinished(s: _State) -> Array:
        return ~s.done & ~s.failed & (s.count < limit)

    def advance(s: _State) -> _State:
        p = -product(s.inverse, s.gradient)
        found = line_search(f, s.x, p, s.value, s.gradient, line_search_maxiter, s.before)
        dx, dg = found.step.astype(p.dtype) * p, found.gradient - s.gradient
        rho = 1 / jnp.dot(dg, dx, precision="highest")
        usable = jnp.isfinite(rho)
        left = identity - rho * jnp.outer(dx, dg)
        updated = product(product(left, s.inverse), left.T) + rho * jnp.outer(dx, dx)
        value = found.value.astype(s.value.dtype)
        return _State(
            s.x + dx,
            value,
            found.gradient,
            jnp.where(usable, updated, s.inverse),
            s.value,
            s.count + 1,
            s.evaluations + found.count,
            _small(found.gradient, norm, gtol),
            found.failed,
            found.status,
        )

    value, gradient = f(x)
    zero, no = jnp.zeros((), int), jnp.zeros((), bool)
    before = value + (jnp.linalg.norm(gradient) / 2).astype(value.dtype)
    start = _State(x, value, gradient, identity, before, zero, zero + 1, _small(gradient, norm, gtol), no, zero)
    s = while_loop(unfinished, advance, start)
    failed = jnp.where(s.failed, 2 + s.status, -1)
    status = jnp.where(s.done, 0, jnp.where(s.count == limit, 1, failed))
    return OptimizeResults(
        s.x, s.done & ~s.failed, status, s.value, s.gradient, s.inverse, s.evaluations, s.evaluations, s.count
    )


class _Memory(NamedTuple):
    x: Array
    value: Array
    gradient: Array
    steps: Array
    changes: Array
    weights: Array
    scale: Array
    count: Array
    evaluations: Array
    done: Array
    failed: Array
    status: Array


def _limited(
    f: Callable[[Array], Any],
    x: Array,
    maxiter: float | None = None,
    norm: Any = np.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-05,
    maxfun: float | None = None,
    maxgrad: float | None = None,
    maxls: int = 20,
) -> OptimizeResults:
    n = x.shape[0]
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * n
    limits = [np.inf if v is None else v for v in (maxiter, maxfun, maxgrad)]

    def advance(s: _Memory) -> _Memory:
        p = _direction(s, maxcor)
        found = line_search(f, s.x, p, s.value, s.gradient, maxls)
        dx = found.step.astype(p.dtype) * p
        dg = found.gradient - s.gradient
        curvature = jnp.dot(dg, dx, precision="highest").real
        scale = curvature / jnp.dot(jnp.conj(dg), dg, precision="highest").real
        value = found.value.astype(s.value.dtype)
        status = jnp.where(s.value - value < ftol, 4, 0)
        for code, count, limit in (
            (3, s.evaluations, limits[2]),
            (2, s.evaluations, limits[1]),
            (1, s.count, limits[0]),
        ):
            status = jnp.where(count >= limit, code, status)
        status = jnp.where(found.failed, 5, status)
        done = _small(found.gradient, norm, gtol)
        later = lambda old, new: jnp.concatenate([old[1:], new.astype(old.dtype)[None]])
        return _Memory(
            s.x + dx,
            value,
            found.gradient,
            later(s.steps, dx),
            later(s.changes, dg),
            later(s.weights, 1 / curvature),
            scale.astype(s.scale.dtype),
            s.count + 1,
            s.evaluations + found.count,
            done,
            (status > 0) & ~done,
            jnp.where(done, 0, status),
        )

    value, gradient = f(x)
    zero, no = jnp.zeros((), int), jnp.zeros((), bool)
    history = jnp.zeros((maxcor, n), x.dtype)
    weights = jnp.zeros(maxcor, x.dtype)
    start = _Memory(x, value, gradient, history, history, weights, jnp.ones((), x.dtype), zero, zero + 1, no, no, zero)
    s = while_loop(lambda s: ~s.done & ~s.failed, advance, start)
    return OptimizeResults(
        s.x, s.done & ~s.failed, s.status, s.value, s.gradient, None, s.evaluations, s.evaluations, s.count
    )


def _direction(s: _Memory, size: int) -> Array:
    """Minus the approximate inverse Hessian times the gradient, by the two loops over what is remembered."""
    used = jnp.minimum(s.count, size)
    total = lambda a, b: jnp.dot(a, b, precision="highest").real.astype(s.weights.dtype)

    def first(j: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        i = size - 1 - j
        q, factors = carry
        a = s.weights[i] * total(jnp.conj(s.steps[i]), q)
        return q - a * jnp.conj(s.changes[i]), factors.at[i].set(a)

    q, factors = fori_loop(0, used, first, (-jnp.conj(s.gradient), jnp.zeros_like(s.weights)))

    def second(j: Any, q: Array) -> Array:
        i = size - used + j
        return q + (factors[i] - s.weights[i] * total(s.changes[i], q)) * s.steps[i]

    return fori_loop(0, used, second, s.scale * q)
