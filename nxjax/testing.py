"""The law book: what every op and every function must satisfy, as checks that anyone may call.

`check_op` is what a new op is tested with. Each failure names the law that is broken. Reads ops by their contract only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nxjax.backends import registry
from nxjax.config import config
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import EVAL, Array, Op, use
from nxjax.trace.stage import stage
from nxjax.trace.text import parse_program, to_text
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import Jitted, jit
from nxjax.transforms.jvp import jvp
from nxjax.transforms.vmap import vmap

NDArray = np.ndarray[Any, Any]


class LawBroken(AssertionError):
    """A law does not hold; the message names it."""


@dataclass(frozen=True)
class Sample:
    """Operands and parameters for which an op is checked.

    ``differentiable`` may be switched off for points where the op has a kink.
    """

    args: tuple[NDArray, ...]
    params: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True


@dataclass(frozen=True)
class Bad:
    """Operands that an op must refuse with an ``error`` whose text contains ``says``."""

    args: tuple[NDArray, ...]
    error: type[Exception]
    says: str
    params: dict[str, Any] = field(default_factory=dict)


def sample(*args: Any, differentiable: bool = True, **params: Any) -> Sample:
    """A `Sample` of arrays and keyword parameters."""
    return Sample(tuple(np.asarray(a) for a in args), params, differentiable)


def bad(*args: Any, error: type[Exception], says: str, **params: Any) -> Bad:
    """A `Bad` of arrays and keyword parameters."""
    return Bad(tuple(np.asarray(a) for a in args), error, says, params)


def executors() -> list[str]:
    """The executors of this machine's CPU."""
    found = [registry.get(n) for n in registry.names()]
    return [b.name for b in found if b.platform == "cpu" and b.available()[0]]


def tolerance(dtype: Any) -> float:
    """Relative error that two right implementations may differ by in ``dtype``."""
    d = dtypes.real_part(np.dtype(dtype))
    if d not in dtypes.FLOAT:
        return 0.0
    return {1: 0.3, 2: 2e-2, 4: 2e-5, 8: 1e-10}[d.itemsize]


def _law(name: str, what: str, detail: str = "") -> LawBroken:
    return LawBroken(f"{what}: {name} does not hold{': ' + detail if detail else ''}")


def assert_close(
    law: str, what: str, got: Any, expected: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Equal shapes and dtypes, and values within tolerance; else `LawBroken` naming ``law``."""
    a, b = np.asarray(_numpy(got)), np.asarray(_numpy(expected))
    if a.shape != b.shape or a.dtype != b.dtype:
        raise _law(law, what, f"got {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}")
    if a.dtype in (dtypes.key, dtypes.float0):
        if a.tobytes() != b.tobytes():
            raise _law(law, what, "other bits")
        return
    r = tolerance(a.dtype) if rtol is None else rtol
    wide = np.complex128 if a.dtype in dtypes.COMPLEX else np.float64 if a.dtype in dtypes.FLOAT else a.dtype
    try:
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=r, atol=r if atol is None else atol)
    except AssertionError as error:
        raise _law(law, what, str(error)) from None


def _numpy(x: Any) -> Any:
    return x.numpy() if isinstance(x, Array) else x


def _many(y: Any) -> tuple[Any, ...]:
    return tuple(y) if isinstance(y, (tuple, list)) else (y,)


def check_op(
    op: Op,
    samples: Sequence[Sample],
    bad: Sequence[Bad] = (),
    *,
    reference: Callable[..., Any] | None = None,
    rtol: float | None = None,
) -> None:
    """Every law of the contract, for every sample.

    Args:
        op: the op.
        samples: operands (NumPy arrays) and parameters.
        bad: what must be refused.
        reference: NumPy's, JAX's or another implementation, called with the operands and parameters.
        rtol: tolerance in place of the dtype's usual one.

    Raises:
        LawBroken: the message names the op, the sample and the law.

    >>> from nxjax.ops.elementary import sin
    >>> check_op(sin, [sample(np.linspace(-1, 1, 4, dtype=np.float32))], reference=np.sin)
    """
    for s in samples:
        what = f"{op} of {', '.join(f'{a.dtype.name}{list(a.shape)}' for a in s.args)} {s.params or ''}".strip()
        function = _function(op, s)
        values = [wrap(a) for a in s.args]
        y = _many(op(*values, **s.params))
        _check_meaning(op, s, what, y, reference, rtol)
        _check_text(function, values, what)
        _check_executors(function, values, what, y, rtol)
        if op.has("expand"):
            with use(EVAL):
                expanded = _many(op.expand(*values, **s.params))
            for a, b in zip(expanded, y, strict=True):
                assert_close("expand = eval", what, a, b, rtol)
        _check_batching(function, values, what, rtol)
        if s.differentiable and any(a.dtype in dtypes.INEXACT for a in s.args):
            _check_derivatives(op, s, what)
    for b in bad:
        _check_refusal(op, b)


def _function(op: Op, s: Sample) -> Callable[..., Any]:
    return lambda *xs: op(*xs, **s.params)


def _check_meaning(op: Op, s: Sample, what: str, y: tuple[Any, ...], reference: Any, rtol: float | None) -> None:
    types = _many(op.infer(*(wrap(a).type for a in s.args), **s.params))
    for t, v in zip(types, y, strict=True):
        data = v.numpy()
        if t.shape != data.shape or t.dtype != data.dtype:
            raise _law("infer = eval", what, f"inferred {t}, got {data.dtype}{list(data.shape)}")
    if reference is not None:
        for v, r in zip(y, _many(reference(*s.args, **s.params)), strict=True):
            assert_close("eval = reference", what, v, np.asarray(r), rtol)


def _check_text(function: Callable[..., Any], values: Sequence[Array], what: str) -> None:
    program = stage(lambda *xs: _many(function(*xs)), [x.type for x in values]).check()
    text = to_text(program)
    if "<" in text.replace("<fry>", ""):
        return  # a parameter is a Python function, which no text can hold
    if to_text(parse_program(text, program.values)) != text:
        raise _law("print, parse, print", what, text)


def _check_executors(
    function: Callable[..., Any], values: Sequence[Array], what: str, y: tuple[Any, ...], rtol: float | None
) -> None:
    for name in executors():
        compiled = _many(jit(function, device=name)(*values))
        for a, b in zip(compiled, y, strict=True):
            assert_close(f"jit on {name} = eager", what, a, b, rtol)
            if a.type != b.type:
                raise _law(f"jit on {name} keeps the type", what, f"{a.type} for {b.type}")


def _check_batching(function: Callable[..., Any], values: Sequence[Array], what: str, rtol: float | None) -> None:
    """Each operand alone and all together, batched at the front and at the back, against a loop."""
    if not values:
        return
    masks = [tuple(i == j for j in range(len(values))) for i in range(len(values))]
    if len(values) > 1:
        masks.append((True,) * len(values))
    for mask in masks:
        for back in (False, True):
            axes = tuple((x.ndim if back else 0) if m else None for x, m in zip(values, mask, strict=True))
            rows = [[x.numpy(), np.roll(x.numpy(), 1)] for x in values]
            stacked = [x if a is None else wrap(np.stack(r, a)) for x, r, a in zip(values, rows, axes, strict=True)]
            got = _many(vmap(function, in_axes=axes)(*stacked))
            for i in range(2):
                one = _many(function(*(x if not m else wrap(r[i]) for x, r, m in zip(values, rows, mask, strict=True))))
                for a, b in zip(got, one, strict=True):
                    assert_close(f"vmap over {axes} = a loop", what, a.numpy()[i], b, rtol)


def _check_derivatives(op: Op, s: Sample, what: str) -> None:
    """In float64: forward mode against central differences, the adjoint identity, and once more."""
    wide = [
        a.astype(np.complex128 if a.dtype in dtypes.COMPLEX else np.float64) if a.dtype in dtypes.INEXACT else a
        for a in s.args
    ]
    moving = [i for i, a in enumerate(wide) if a.dtype in dtypes.INEXACT]

    def function(*xs: Any) -> Any:
        full: list[Any] = [wrap(a) for a in wide]
        for i, x in zip(moving, xs, strict=True):
            full[i] = x
        ys = _many(op(*full, **s.params))
        return [y for y in ys if y.dtype in dtypes.INEXACT]

    points = [wide[i] for i in moving]
    if not function(*map(wrap, points)):
        return
    _check_order(function, points, what, "first")
    direction = _directions(points, 7)

    def derivative(*xs: Any) -> Any:
        return jvp(function, xs, tuple(map(wrap, direction)))[1]

    _check_order(derivative, points, what, "second")


def _directions(points: Sequence[NDArray], seed: int) -> list[NDArray]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=p.shape) + (1j * rng.normal(size=p.shape) if p.dtype in dtypes.COMPLEX else 0)).astype(p.dtype)
        for p in points
    ]


def _check_order(function: Callable[..., Any], points: Sequence[NDArray], what: str, order: str) -> None:
    ts = _directions(points, 3)
    step = 1e-5
    _, pushed = jvp(function, tuple(map(wrap, points)), tuple(map(wrap, ts)))
    plus = function(*(wrap(p + step * t) for p, t in zip(points, ts, strict=True)))
    minus = function(*(wrap(p - step * t) for p, t in zip(points, ts, strict=True)))
    for a, hi, lo in zip(pushed, plus, minus, strict=True):
        slope = (hi.numpy() - lo.numpy()) / (2 * step)
        scale = 1 + np.max(np.abs(slope), initial=0)
        assert_close(f"{order} jvp = central differences", what, a.numpy(), slope.astype(a.dtype), 1e-4, 1e-4 * scale)
    ys, pull = vjp(function, *map(wrap, points))
    cts = _directions([y.numpy() for y in ys], 5)
    pulled = pull([wrap(c) for c in cts])
    forward = sum(_pair(c, t.numpy()) for c, t in zip(cts, pushed, strict=True))
    backward = sum(_pair(c.numpy(), t) for c, t in zip(pulled, ts, strict=True))
    assert_close(
        f"{order} adjoint identity <ct, J t> = <J' ct, t>", what, np.asarray(backward), np.asarray(forward), 1e-7, 1e-7
    )


def _pair(ct: NDArray, t: NDArray) -> float:
    """The pairing without conjugation that transposes are taken in; its real part."""
    return float(np.real(np.sum(ct * t)))


def _check_refusal(op: Op, b: Bad) -> None:
    what = f"{op} of {', '.join(f'{a.dtype.name}{list(a.shape)}' for a in b.args)} {b.params or ''}".strip()
    try:
        op(*(wrap(a) for a in b.args), **b.params)
    except b.error as error:
        message = str(error)
        if b.says not in message:
            raise _law(f"the error says {b.says!r}", what, message) from None
        if op.name not in message:
            raise _law("the error names the op", what, message) from None
    else:
        raise _law(f"{b.error.__name__} is raised", what)


# --- functions ---


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

    The differences are taken in the arguments' own dtype, so give float64 arrays for a sharp check.

    >>> check_grads(lambda x: x * x * x, (np.float64(2.0),), order=2)
    """
    from nxjax.trace import tree

    leaves, treedef = tree.flatten(tuple(args))
    points = [np.asarray(_numpy(as_value(x) if not isinstance(x, (np.generic, np.ndarray)) else x)) for x in leaves]
    wide = all(p.dtype in (dtypes.float64, dtypes.complex128) for p in points)
    r = rtol if rtol is not None else 1e-5 if wide else 3e-2
    a = atol if atol is not None else r
    step = eps if eps is not None else 1e-5 if wide else 1e-2

    def flat(*xs: Any) -> list[Any]:
        return [as_value(y) for y in tree.leaves(f(*tree.unflatten(treedef, xs)))]

    current = flat
    for n in range(1, order + 1):
        ts = _directions(points, n)
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
            cts = _directions([y.numpy() for y in ys], n + 100)
            pulled = pull([wrap(c) for c in cts])
            left = np.asarray(sum(_pair(c, t.numpy()) for c, t in zip(cts, pushed, strict=True)))
            right = np.asarray(sum(_pair(c.numpy(), t) for c, t in zip(pulled, ts, strict=True)))
            assert_close(f"order {n} adjoint identity", "function", right, left, r, a)
        previous = current
        current = _next_order(previous, ts)


def _next_order(function: Callable[..., Any], ts: Sequence[NDArray]) -> Callable[..., Any]:
    return lambda *xs: jvp(function, xs, tuple(map(wrap, ts)))[1]


def check_batch(f: Callable[..., Any], args: Sequence[Any], in_axes: Any = 0, rtol: float | None = None) -> None:
    """`vmap` of a function against a loop over its mapped arguments."""
    values = [np.asarray(_numpy(as_value(x))) for x in args]
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(values)
    size = next(v.shape[a] for v, a in zip(values, axes, strict=True) if a is not None)
    got = _many(vmap(f, in_axes=axes)(*values))
    for i in range(size):
        one = _many(f(*(v if a is None else np.take(v, i, a) for v, a in zip(values, axes, strict=True))))
        for a, b in zip(got, one, strict=True):
            assert_close(f"vmap over {axes} = a loop", "function", a.numpy()[i], b, rtol)


@dataclass
class Traces:
    """How often a jitted function was traced inside a `count_traces` block."""

    count: int = 0


@contextlib.contextmanager
def count_traces(jitted: Jitted) -> Iterator[Traces]:
    """``with count_traces(f) as traces:`` counts how often ``f`` is traced anew.

    >>> f = jit(lambda x: x * 2)
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
def checked_programs() -> Iterator[None]:
    """Every program staged inside is checked."""
    with config.using(check=True):
        yield
