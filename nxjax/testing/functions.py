"""Checks of functions: derivatives, batching, how often they are traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nxjax.config import config
from nxjax.testing.comparison import NDArray, assert_close, directions, many, numpy_of, pairing
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, wrap
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import Jitted
from nxjax.transforms.jvp import jvp
from nxjax.transforms.vmap import vmap


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Derivatives of a function of arrays against central differences, up to ``order``.

    The differences use the arguments' dtype, so pass float64 arrays for a strict check.

    Args:
        f: function of pytrees of arrays.
        args: its arguments, the point of the derivatives.
        order: up to which order of derivatives.
        modes: ``"fwd"``, ``"rev"`` or both.
        atol, rtol: tolerances; 1e-5 in double precision, else 3e-2.
        eps: step of the differences.

    Raises:
        LawBroken: a derivative differs.

    >>> check_grads(lambda x: x * x * x, (np.float64(2.0),), order=2)
    """
    leaves, treedef = tree.flatten(tuple(args))
    points = [np.asarray(numpy_of(as_value(x) if not isinstance(x, (np.generic, np.ndarray)) else x)) for x in leaves]
    wide = all(p.dtype in (dtypes.float64, dtypes.complex128) for p in points)
    r = rtol if rtol is not None else 1e-5 if wide else 3e-2
    a = atol if atol is not None else r
    step = eps if eps is not None else 1e-5 if wide else 1e-2

    def flat(*xs: Any) -> list[Any]:
        return [as_value(y) for y in tree.leaves(f(*tree.unflatten(treedef, xs)))]

    current = flat
    for n in range(1, order + 1):
        ts = directions(points, n)
        values = tuple(map(wrap, points))
        _, pushed = jvp(current, values, tuple(map(wrap, ts)))
        plus = current(*(wrap((p + step * t).astype(p.dtype)) for p, t in zip(points, ts, strict=True)))
        minus = current(*(wrap((p - step * t).astype(p.dtype)) for p, t in zip(points, ts, strict=True)))
        for got, hi, lo in zip(pushed, plus, minus, strict=True):
            slope = ((hi.numpy() - lo.numpy()) / (2 * step)).astype(got.dtype)
            if "fwd" in modes:
                assert_close(f"order {n} forward derivative", "function", got.numpy(), slope, r, a)
        if "rev" in modes:
            ys, pull = vjp(current, *values)
            cts = directions([y.numpy() for y in ys], n + 100)
            pulled = pull([wrap(c) for c in cts])
            left = np.asarray(sum(pairing(c, t.numpy()) for c, t in zip(cts, pushed, strict=True)))
            right = np.asarray(sum(pairing(c.numpy(), t) for c, t in zip(pulled, ts, strict=True)))
            assert_close(f"order {n} adjoint identity", "function", right, left, r, a)
        previous = current
        current = _next_order(previous, ts)


def _next_order(function: Callable[..., Any], ts: Sequence[NDArray]) -> Callable[..., Any]:
    return lambda *xs: jvp(function, xs, tuple(map(wrap, ts)))[1]


def check_batch(f: Callable[..., Any], args: Sequence[Any], in_axes: Any = 0, rtol: float | None = None) -> None:
    """`vmap` of a function against a loop over its mapped arguments.

    Raises:
        LawBroken: the results differ.

    >>> check_batch(nx.sin, (np.arange(6.0).reshape(2, 3),))
    """
    values = [np.asarray(numpy_of(as_value(x))) for x in args]
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(values)
    size = next(v.shape[a] for v, a in zip(values, axes, strict=True) if a is not None)
    got = many(vmap(f, in_axes=axes)(*values))
    for i in range(size):
        one = many(f(*(v if a is None else np.take(v, i, a) for v, a in zip(values, axes, strict=True))))
        for a, b in zip(got, one, strict=True):
            assert_close(f"vmap over {axes} = a loop", "function", a.numpy()[i], b, rtol)


@dataclass
class Traces:
    """How often a jitted function was traced inside a `count_traces` block.

    >>> f = nx.jit(lambda x: x + 1)
    >>> with count_traces(f) as traces:
    ...     _ = f(1.0), f(2.0)
    >>> traces
    Traces(count=1)
    """

    count: int = 0


@contextlib.contextmanager
def count_traces(jitted: Jitted) -> Generator[Traces, None, None]:
    """``with count_traces(f) as traces:`` counts how often ``f`` is traced.

    >>> f = nx.jit(lambda x: x * 2)
    >>> with count_traces(f) as traces:
    ...     _ = f(1.0), f(2.0), f(1)
    >>> traces.count
    2
    """
    before = jitted.trace_count
    traces = Traces()
    try:
        yield traces
    finally:
        traces.count = jitted.trace_count - before


@contextlib.contextmanager
def checked_programs() -> Generator[None, None, None]:
    """Every program staged inside is checked.

    Raises:
        ProgramError: a program is not well typed.

    >>> with checked_programs():
    ...     float(nx.jit(lambda x: x + 1)(1.0))
    2.0
    """
    with config.using(check=True):
        yield
