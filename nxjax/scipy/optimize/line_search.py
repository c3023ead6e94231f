"""Steps along a direction that fulfill the strong Wolfe conditions.

J. Nocedal and S. Wright, "Numerical Optimization", 2nd edition, 2006, algorithms 3.5 and 3.6. Knows no method
that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop

# How much of the promised decrease is enough, and how flat is flat enough.
_DECREASE: Final = 1e-4
_FLAT: Final = 0.9
# Trial points of a zoom keep these shares of the interval away from its ends.
_CUBIC_EDGE: Final = 0.2
_QUADRATIC_EDGE: Final = 0.1
_ZOOMS: Final = 30


class Point(NamedTuple):
    """A step, the value and the slope there."""

    step: Array
    value: Array
    slope: Array


class LineSearchResult(NamedTuple):
    """The step, value and gradient there; how many evaluations it took; 0, 1 (none in an interval) or 3 (too many)."""

    step: Array
    value: Array
    gradient: Array
    count: Array
    failed: Array
    status: Array


class _Zoom(NamedTuple):
    low: Point
    high: Point
    last: Point
    best: Point
    gradient: Array
    count: Array
    done: Array
    failed: Array


class _Search(NamedTuple):
    before: Point
    best: Point
    gradient: Array
    i: Array
    count: Array
    done: Array
    failed: Array


def choose(mask: Array, a: Any, b: Any) -> Any:
    """``a`` where the mask holds, else ``b``, of points."""
    return Point(*(jnp.where(mask, x, y) for x, y in zip(a, b, strict=True)))


def _cubic(a: Point, b: Point, c: Point) -> Array:
    """The minimum of the cubic through three points with the slope of the first."""
    db, dc = b.step - a.step, c.step - a.step
    scale = (db * dc) ** 2 * (db - dc)
    rb, rc = b.value - a.value - a.slope * db, c.value - a.value - a.slope * dc
    third = (dc**2 * rb - db**2 * rc) / scale
    second = (-(dc**3) * rb + db**3 * rc) / scale
    return a.step + (-second + jnp.sqrt(second * second - 3 * third * a.slope)) / (3 * third)


def _quadratic(a: Point, b: Point) -> Array:
    """The minimum of the parabola through two points with the slope of the first."""
    d = b.step - a.step
    return a.step - a.slope / (2 * ((b.value - a.value - a.slope * d) / d**2))


def _trial(low: Point, high: Point, last: Point, first: Array) -> Array:
    """Where to look next in an interval."""
    width = high.step - low.step
    left, right = jnp.minimum(low.step, high.step), jnp.maximum(low.step, high.step)
    cubic, quadratic = _cubic(low, high, last), _quadratic(low, high)
    edge, inner = _CUBIC_EDGE * width, _QUADRATIC_EDGE * width
    by_cubic = ~first & (cubic > left + edge) & (cubic < right - edge)
    by_quadratic = ~by_cubic & (quadratic > left + inner) & (quadratic < right - inner)
    middle = (low.step + high.step) / 2
    return jnp.where(by_cubic, cubic, jnp.where(by_quadratic, quadratic, middle))


def line_search(
    f: Callable[[Array], Any],
    x: Array,
    p: Array,
    value: Array,
    gradient: Array,
    limit: int,
    before: Array | None = None,
) -> LineSearchResult:
    """The step along ``p`` from ``x``, where ``f`` gives a value and its gradient.

    Args:
        value, gradient: at x.
        limit: how many steps to try until one rises.
        before: the value one iteration ago, from which the first step is guessed; otherwise it is 1.
    """
    slope = jnp.dot(gradient, p, precision="highest").real
    real = slope.dtype
    value = value.astype(real)
    zero = jnp.zeros((), real)
    origin = Point(zero, value, slope)
    start = jnp.ones((), real)
    if before is not None:
        guess = 1.01 * 2 * (value - before) / slope
        start = jnp.where(guess > 1, start, guess)
    count0, no = jnp.zeros((), int), jnp.zeros((), bool)
    least = 1e-10 if real == dtypes.float64 else 1e-5

    def at(step: Array) -> tuple[Point, Array]:
        new, g = f(x + step.astype(p.dtype) * p)
        return Point(step, new.astype(real), jnp.dot(g, p, precision="highest").real.astype(real)), g.astype(
            gradient.dtype
        )

    rises = lambda q: q.value > value + _DECREASE * q.step * slope
    flat = lambda q: jnp.abs(q.slope) <= -_FLAT * slope

    def zoom(low: Point, high: Point, idle: Array) -> _Zoom:
        """A step in an interval whose lower end is the best so far."""

        def unfinished(z: _Zoom) -> Array:
            return ~z.done & ~idle & ~z.failed

        def narrow(z: _Zoom) -> _Zoom:
            failed = z.failed | (z.high.step - z.low.step <= least)
            q, g = at(_trial(z.low, z.high, z.last, z.count == 0))
            worse = rises(q) | (q.value >= z.low.value)
            good = flat(q) & ~worse
            turn = (q.slope * (z.high.step - z.low.step) >= 0) & ~worse & ~good
            better = ~worse & ~good
            return _Zoom(
                choose(better, q, z.low),
                choose(worse, q, choose(turn, z.low, z.high)),
                choose(worse | turn, z.high, choose(better, z.low, z.last)),
                choose(good, q, z.best),
                jnp.where(good, g, z.gradient),
                z.count + 1,
                z.done | good,
                failed | (z.count + 1 >= _ZOOMS),
            )

        middle = Point((low.step + high.step) / 2, low.value, low.slope)
        best = Point(jnp.ones_like(zero), low.value, low.slope)
        return while_loop(unfinished, narrow, _Zoom(low, high, middle, best, gradient, count0, no, no))

    def unfinished(s: _Search) -> Array:
        return ~s.done & ~s.failed & (s.i <= limit)

    def advance(s: _Search) -> _Search:
        q, g = at(jnp.where(s.i == 1, start, s.before.step * 2))
        over = rises(q) | ((q.value >= s.before.value) & (s.i > 1))
        good = flat(q) & ~over
        past = (q.slope >= 0) & ~over & ~good
        # One zoom does for both cases: from before to here, or from here back.
        z = zoom(choose(over, s.before, q), choose(over, q, s.before), ~(over | past))
        zoomed = over | past
        return _Search(
            q,
            choose(zoomed, z.best, choose(good, q, s.best)),
            jnp.where(zoomed, z.gradient, jnp.where(good, g, s.gradient)),
            s.i + 1,
            s.count + 1 + z.count,
            s.done | zoomed | good,
            s.failed | (zoomed & z.failed),
        )

    first = _Search(origin, origin, gradient, jnp.ones((), int), count0, no, no)
    s = while_loop(unfinished, advance, first)
    step = s.best.step
    if real != dtypes.float64:
        # Steps that rounding swallows would never end.
        step = jnp.where(jnp.abs(step) < 1e-8, jnp.sign(step) * 1e-8, step)
    status = jnp.where(s.failed, 1, jnp.where(s.i > limit, 3, 0))
    found = LineSearchResult(step, s.best.value, s.gradient, s.count, s.failed | ~s.done, status)
    return _bisected(at, value, slope, found)


class _Bracket(NamedTuple):
    step: Array
    low: Array
    high: Array
    point: Point
    gradient: Array
    count: Array
    done: Array


def _bisected(at: Callable[[Array], Any], value: Array, slope: Array, found: LineSearchResult) -> LineSearchResult:
    """``found``, or where it failed a step that fulfills the weak conditions, by doubling and bisection.

    Rounding makes the strong conditions unreachable long before a minimum of single precision is (A. Lewis and M.
    Overton, "Nonsmooth optimization via quasi-Newton methods", Mathematical Programming 141, 2013).
    """

    def unfinished(s: _Bracket) -> Array:
        return found.failed & ~s.done & (s.count < _ZOOMS)

    def advance(s: _Bracket) -> _Bracket:
        q, g = at(s.step)
        rises = ~(q.value <= value + _DECREASE * q.step * slope)
        steep = q.slope < _FLAT * slope
        high, low = jnp.where(rises, s.step, s.high), jnp.where(~rises & steep, s.step, s.low)
        done = ~rises & ~steep
        between = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * low)
        return _Bracket(jnp.where(done, s.step, between), low, high, q, g, s.count + 1, done)

    one, origin = jnp.ones_like(value), Point(value * 0, value, slope)
    start = _Bracket(one, one * 0, one * np.inf, origin, found.gradient, jnp.zeros((), int), jnp.zeros((), bool))
    s = while_loop(unfinished, advance, start)
    return LineSearchResult(
        jnp.where(s.done, s.step, found.step),
        jnp.where(s.done, s.point.value, found.value),
        jnp.where(s.done, s.gradient, found.gradient),
        found.count + s.count,
        found.failed & ~s.done,
        jnp.where(s.done, 0, found.status),
    )
