"""`jax.experimental.ode`: initial value problems, by an adaptive Runge-Kutta method with dense output.

The method is Dormand and Prince's of order 5 with an error estimate of order 4 (J. R. Dormand and P. J. Prince, "A
family of embedded Runge-Kutta formulae", 1980); starting step, step control and the polynomial between two steps are
those of E. Hairer, S. P. Norsett and G. Wanner, "Solving Ordinary Differential Equations I", 2nd edition, sections II.4
and II.6. Its reverse derivative solves the adjoint equation backwards in time (R. T. Q. Chen et al., "Neural ordinary
differential equations", 2018) so it does not store the steps. It consists of loops of the language and knows no device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.flatten_util import ravel_pytree
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.custom_vjp import closure_convert, custom_vjp
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import jit
from nxjax.transforms.vmap import vmap

__all__ = ["odeint"]
__getattr__ = _refusing(__name__)

# The method: stage i is taken at time t + _NODES[i] dt, from the slopes before it. The last is the next step's first.
_NODES: Final = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES: Final = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The result of order 5 less that of order 4.
_ERROR: Final = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# The term of the polynomial that neither values nor slopes at its ends determine.
_BETWEEN: Final = (
    -12715105075 / 11282082432,
    0.0,
    87487479700 / 32700410799,
    -10690763975 / 1880347072,
    701980252875 / 199316789632,
    -1453857185 / 822651844,
    69997945 / 29380423,
)
_ORDER: Final = 5
_SAFETY: Final = 0.9
_GROW: Final = 10.0
_SHRINK: Final = 0.2

Slope = Callable[[Array, Array], Array]


class _Control(NamedTuple):
    """What decides the steps; hashable."""

    rtol: Any
    atol: Any
    limit: int | None
    longest: Any

    def scale(self, *ys: Array) -> Array:
        return self.atol + self.rtol * functools.reduce(jnp.maximum, [jnp.abs(y) for y in ys])


class _State(NamedTuple):
    """Value and slope at ``t``, the step to try next, and the polynomial from time ``since`` to ``t``."""

    y: Array
    f: Array
    t: Array
    dt: Array
    since: Array
    curve: Array


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """The solution of ``dy/dt = func(y, t, *args)`` at times ``t``, with ``y0`` at ``t[0]``.

    It uses the Dormand-Prince method of order 5(4), with steps that keep the tolerances. Reverse derivatives in ``y0``,
    ``t``, ``args`` and values that ``func`` closes over solve the adjoint equation, with the same tolerances. There is
    no forward mode.

    Args:
        func: ``func(y, t, *args)``, of the structure and shapes of ``y0``.
        y0: array or pytree of floating-point (or complex) arrays.
        t: times, float[n], increasing.
        args: pytrees of arrays.
        rtol, atol: a step's error may be ``atol + rtol * abs(y)``, in the root mean square of all numbers of ``y``.
        mxstep: the largest number of steps between two times. If it is not enough, the result is NaN.
        hmax: the longest step.

    Returns:
        As ``y0``, each array with a new leading dimension n.

    Raises:
        DtypeError: ``t`` is not floating-point.
        ShapeError: ``t`` is not a vector, or ``func`` returns other shapes than those of ``y0``.
        ParameterError: ``func`` returns another structure than that of ``y0``.

    >>> y = odeint(lambda y, t, rate: rate * y, 1.0, jnp.array([0.0, 1.0, 2.0]), -1.0)
    >>> jnp.abs(y - jnp.exp(-jnp.arange(3.0))).max() < 1e-5
    Array(True, dtype=bool)
    >>> last = lambda rate: odeint(lambda y, t: rate * y, 1.0, jnp.array([0.0, 1.0]))[-1]
    >>> round(float(nx.grad(last)(-1.0)), 3)
    0.368
    """
    times = as_value(t, "odeint")
    if not jnp.issubdtype(times.dtype, jnp.floating):
        raise DtypeError("odeint: t must be an array of floats", got=times.type, fix="jnp.linspace, or t.astype(float)")
    if times.ndim != 1 or not times.shape[0]:
        raise ShapeError("odeint: t must be a vector of times", got=times.type)
    leaves, treedef = tree.flatten(args)
    args = tree.unflatten(treedef, [as_value(x, "odeint") for x in leaves])
    y0 = tree.map(_inexact, y0)
    limit = None if mxstep == np.inf else int(mxstep)
    control = _Control(rtol, atol, limit, hmax)
    converted, consts = closure_convert(_checked(func, y0), y0, times[0], *args)

    @jit
    def solved(y0: Any, times: Array, args: Any) -> Any:
        flat, unravel = ravel_pytree(y0)

        def slope(y: Array, t: Array, *args: Any) -> Array:
            return ravel_pytree(converted(unravel(y), t, *args))[0].astype(flat.dtype)

        return vmap(unravel)(_odeint(slope, control, flat, times, args))

    return solved(y0, times, (*args, *consts))


def _inexact(x: Any) -> Array:
    x = as_value(x, "odeint")
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _checked(func: Callable[..., Any], y0: Any) -> Callable[..., Any]:
    """``func``; what it returns must look like ``y0``."""

    @functools.wraps(func)
    def checked(y: Any, t: Array, *args: Any) -> Any:
        slopes = func(y, t, *args)
        if tree.structure(slopes) != tree.structure(y0):
            expected = f"the structure of y0, {tree.structure(y0)}"
            raise ParameterError("odeint: func's result", got=str(tree.structure(slopes)), expected=expected)
        for a, b in zip(tree.leaves(slopes), tree.leaves(y0), strict=True):
            if jnp.shape(a) != b.shape:
                got = as_value(a, "odeint").type
                raise ShapeError("odeint: func's result has another shape than y0", got=got, expected=b.type)
        return slopes

    return checked


def _weighted(weights: Sequence[float], ks: Sequence[Array]) -> Array:
    terms = [w * k for w, k in zip(weights, ks, strict=True) if w]
    return functools.reduce(jnp.add, terms)


def _mean_square(x: Array) -> Array:
    return jnp.sqrt(jnp.mean(x.real**2 + x.imag**2 if jnp.iscomplexobj(x) else x**2))


def _first_step(slope: Slope, control: _Control, y: Array, t: Array, f: Array) -> Array:
    """A step whose first two terms of the Taylor series are small (section II.4)."""
    size = np.sqrt(y.shape[0])
    scale = control.scale(y)
    d0, d1 = size * _mean_square(y / scale), size * _mean_square(f / scale)
    guess = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    bent = slope(y + guess.astype(f.dtype) * f, t + guess.astype(t.dtype))
    d2 = size * _mean_square((bent - f) / scale) / guess
    flat = (d1 <= 1e-15) & (d2 <= 1e-15)
    step = jnp.where(flat, jnp.maximum(1e-6, guess * 1e-3), (0.01 / jnp.maximum(d1, d2)) ** (1 / _ORDER))
    return jnp.clip(jnp.minimum(100 * guess, step).astype(t.dtype), 0, control.longest)


def _tried(slope: Slope, control: _Control, s: _State) -> _State:
    """One step, which is taken if its error is within the tolerances."""
    h = s.dt.astype(s.y.dtype)
    ks, after = [s.f], s.y
    for node, weights in zip(_NODES[1:], _STAGES, strict=True):
        after = s.y + h * _weighted(weights, ks)
        ks.append(slope(after, s.t + node * s.dt))
    error = _mean_square(h * _weighted(_ERROR, ks) / control.scale(s.y, after)).astype(s.dt.dtype)
    good = error <= 1
    least = jnp.where(good, 1.0, _SHRINK)
    factor = jnp.clip(_SAFETY * error ** (-1 / _ORDER), least, _GROW)
    factor = jnp.where(error == 0, _GROW, factor)
    following = jnp.clip(s.dt * factor, 0, control.longest)
    # A step that time cannot resolve ends the integration, if a shorter one were needed.
    smallest = jnp.finfo(s.t.dtype).eps * jnp.abs(s.t)
    following = jnp.where(good, jnp.maximum(following, smallest), jnp.where(following < smallest, 0, following))
    rise = after - s.y
    start, end = h * s.f - rise, rise - h * ks[-1]
    curve = jnp.stack([s.y, rise, start, end - start, h * _weighted(_BETWEEN, ks)])
    taken = _State(after, ks[-1], s.t + s.dt, following.astype(s.dt.dtype), s.t, curve)
    kept = s._replace(dt=taken.dt)
    return _State(*(jnp.where(good, a, b) for a, b in zip(taken, kept, strict=True)))


def _between(s: _State, t: Array) -> Array:
    """The last step's polynomial of order 4 at time ``t``; NaN where no step got there."""
    u = ((t - s.since) / jnp.where(s.t == s.since, 1, s.t - s.since)).astype(s.curve.dtype)
    a, b, c, d, e = s.curve
    y = a + u * (b + (1 - u) * (c + u * (d + (1 - u) * e)))
    return jnp.where((t <= s.t) & (t >= s.since), y, jnp.nan)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def _odeint(func: Callable[..., Array], control: _Control, y0: Array, times: Array, args: Any) -> Array:
    """Of a vector: values [n, size] at ``times``."""

    def slope(y: Array, t: Array) -> Array:
        return func(y, t, *args)

    def until(s: _State, t: Array) -> tuple[_State, Array]:
        def unfinished(counted: tuple[Array, _State]) -> Array:
            count, s = counted
            going = (s.t < t) & (s.dt > 0)
            return going if control.limit is None else going & (count < control.limit)

        def advance(counted: tuple[Array, _State]) -> tuple[Array, _State]:
            return counted[0] + 1, _tried(slope, control, counted[1])

        _, s = while_loop(unfinished, advance, (jnp.zeros((), np.int32), s))
        return s, _between(s, t)

    start = times[0]
    f = slope(y0, start)
    dt = _first_step(slope, control, y0, start, f)
    dt = jnp.where(dt > 0, jnp.maximum(dt, jnp.finfo(times.dtype).eps * jnp.abs(start)), dt)
    curve = jnp.concatenate([y0[None], jnp.zeros((4, *y0.shape), y0.dtype)])
    _, ys = scan(until, _State(y0, f, start, dt, start, curve), times[1:])
    return jnp.concatenate([y0[None], ys])


def _forward(func: Any, control: _Control, y0: Array, times: Array, args: Any) -> tuple[Array, Any]:
    ys = _odeint(func, control, y0, times, args)
    return ys, (ys, times, args)


def _backward(func: Callable[..., Array], control: _Control, residuals: Any, ct: Array) -> tuple[Any, ...]:
    """Backwards in time, value and cotangent together: ``d ct/dt = -ct df/dy``, and of the arguments the integral.

    At each time the value starts from what was found there. Moving that time moves the result by its slope.
    """
    ys, times, args = residuals
    leaves, treedef = tree.flatten(args)
    smooth = [dtypes.is_differentiable(x.dtype) for x in leaves]

    def chosen(leaves: Sequence[Array]) -> list[Array]:
        return [x for x, s in zip(leaves, smooth, strict=True) if s]

    def merged(inner: Sequence[Array], leaves: Sequence[Array]) -> Any:
        given = iter(inner)
        return tree.unflatten(treedef, [next(given) if s else x for x, s in zip(leaves, smooth, strict=True)])

    def joint(state: Any, t: Array, leaves: Sequence[Array]) -> Any:
        y, y_ct, _ = state
        slope, pull = vjp(lambda y, *inner: func(y, -t, *merged(inner, leaves)), y, *chosen(leaves))
        moved, *given = pull(y_ct)
        return -slope, moved, given

    def interval(carry: Any, at: Any) -> tuple[Any, Array]:
        y_ct, inner_ct = carry
        y, t, before, ct_here, ct_before = at
        t_ct = jnp.sum(ct_here * func(y, t, *args)).real
        flat, unravel = ravel_pytree((y, y_ct, inner_ct))

        def slope(state: Array, t: Array, *leaves: Array) -> Array:
            return ravel_pytree(joint(unravel(state), t, leaves))[0].astype(flat.dtype)

        _, y_ct, inner_ct = unravel(_odeint(slope, control, flat, jnp.stack([-t, -before]), tuple(leaves))[-1])
        return (y_ct + ct_before, inner_ct), t_ct.astype(times.dtype)

    start = (ct[-1], [jnp.zeros_like(x) for x in chosen(leaves)])
    (y_ct, inner_ct), t_ct = scan(interval, start, (ys[1:], times[1:], times[:-1], ct[1:], ct[:-1]), reverse=True)
    # The result at the first time is y0 whenever that is; all later ones begin later.
    first = -jnp.sum((y_ct - ct[0]) * func(ys[0], times[0], *args)).real
    given = iter(inner_ct)
    args_ct = tree.unflatten(treedef, [next(given) if s else None for s in smooth])
    return y_ct, jnp.concatenate([first[None].astype(times.dtype), t_ct]), args_ct


_odeint.defvjp(_forward, _backward)
