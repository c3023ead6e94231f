"""`nx.scipy.optimize`: minimization of functions of a vector by BFGS, as `jax.scipy.optimize`.

The whole minimization is one loop of the language, so it can be compiled and mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.promotion import promote_inexact
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.grad import value_and_grad


class OptimizeResults(NamedTuple):
    """What `minimize` gives.

    Attributes:
        x: the solution.
        success: whether the gradient became small enough.
        status: 0 for success, 1 for too many iterations, 3 for a line search that found no step.
        fun, jac: value and gradient there.
        hess_inv: the approximate inverse Hessian.
        nfev, njev, nit: numbers of values, gradients and iterations.
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


class _Search(NamedTuple):
    """State of the line search: the step, the interval it lies in, value and gradient there."""

    step: Array
    low: Array
    high: Array
    value: Array
    gradient: Array
    count: Array
    done: Array


def _line_search(f: Callable[[Array], Any], x: Array, p: Array, value: Array, gradient: Array, limit: int) -> _Search:
    """A step that fulfills the weak Wolfe conditions, by doubling and bisection (Lewis and Overton, 2013)."""
    slope = jnp.dot(gradient, p)

    def unfinished(s: _Search) -> Array:
        return (~s.done) & (s.count < limit)

    def advance(s: _Search) -> _Search:
        new_value, new_gradient = f(x + s.step * p)
        rises = ~(new_value <= value + 1e-4 * s.step * slope)
        steep = jnp.dot(new_gradient, p) < 0.9 * slope
        high = jnp.where(rises, s.step, s.high)
        low = jnp.where(~rises & steep, s.step, s.low)
        done = ~rises & ~steep
        between = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * low)
        return _Search(jnp.where(done, s.step, between), low, high, new_value, new_gradient, s.count + 1, done)

    one = jnp.ones((), x.dtype)
    start = _Search(one, one * 0, one * np.inf, value, gradient, jnp.zeros((), int), jnp.zeros((), bool))
    return while_loop(unfinished, advance, start)


class _State(NamedTuple):
    x: Array
    value: Array
    gradient: Array
    inverse: Array
    iterations: Array
    evaluations: Array
    done: Array
    stuck: Array


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Any = None,
) -> OptimizeResults:
    """The local minimum of a scalar function near ``x0``.

    Args:
        fun: ``fun(x, *args)``, differentiable, of a vector.
        x0: start, ``[n]``.
        args: further arguments of ``fun``.
        method: ``"BFGS"``.
        tol: the largest entry of the gradient at the solution; 1e-5 by default.
        options: a dict with ``maxiter`` (200 n by default), ``gtol``, ``line_search_maxiter``.

    >>> import nxjax as nx
    >>> r = minimize(lambda x: ((x - 3) ** 2).sum(), nx.zeros(2), method="BFGS")
    >>> [round(float(v), 3) for v in r.x]
    [3.0, 3.0]
    """
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise ParameterError("scipy.optimize.minimize: method", got=repr(method), expected="'BFGS'")
    if not isinstance(args, tuple):
        raise ParameterError("scipy.optimize.minimize: args is a tuple", got=repr(args)[:40])
    given = dict(options or {})
    unknown = set(given) - {"maxiter", "gtol", "norm", "line_search_maxiter"}
    if unknown:
        raise ParameterError("scipy.optimize.minimize: unknown options", got=sorted(unknown))
    (x,) = promote_inexact("scipy.optimize.minimize", x0)
    if x.ndim != 1:
        raise ShapeError("scipy.optimize.minimize: x0 is a vector", got=x.type)
    n = x.shape[0]
    steps = int(given.get("maxiter") or 200 * n)
    small = float(given.get("gtol", 1e-5 if tol is None else tol))
    order = given.get("norm", np.inf)
    limit = int(given.get("line_search_maxiter", 30))

    def f(v: Array) -> Any:
        return value_and_grad(lambda u: fun(u, *args))(v)

    def flat(gradient: Array) -> Array:
        return jnp.linalg.norm(gradient, ord=order) < small

    identity = jnp.eye(n, dtype=x.dtype)

    def unfinished(s: _State) -> Array:
        return ~s.done & ~s.stuck & (s.iterations < steps)

    def advance(s: _State) -> _State:
        p = -jnp.matmul(s.inverse, s.gradient)
        found = _line_search(f, s.x, p, s.value, s.gradient, limit)
        dx, dg = found.step * p, found.gradient - s.gradient
        curvature = jnp.dot(dg, dx)
        rho = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 0)
        left = identity - rho * jnp.outer(dx, dg)
        updated = jnp.matmul(jnp.matmul(left, s.inverse), left.T) + rho * jnp.outer(dx, dx)
        ok = found.done
        return _State(
            jnp.where(ok, s.x + dx, s.x),
            jnp.where(ok, found.value, s.value),
            jnp.where(ok, found.gradient, s.gradient),
            jnp.where(ok & (curvature > 0), updated, s.inverse),
            s.iterations + 1,
            s.evaluations + found.count,
            ok & flat(found.gradient),
            ~ok,
        )

    value, gradient = f(x)
    zero = jnp.zeros((), int)
    start = _State(x, value, gradient, identity, zero, zero + 1, flat(gradient), jnp.zeros((), bool))
    end = while_loop(unfinished, advance, start)
    status = jnp.where(end.done, 0, jnp.where(end.stuck, 3, 1))
    return OptimizeResults(
        end.x, end.done, status, end.value, end.gradient, end.inverse, end.evaluations, end.evaluations, end.iterations
    )
