"""`check_op`: every law that an op must satisfy. Reads ops by their contract only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nxjax.ops.base import Elementwise
from nxjax.testing.comparison import (
    NDArray,
    assert_close,
    broken,
    directions,
    executors,
    many,
    pairing,
)
from nxjax.testing.points import check_points
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import EVAL, Array, Op, use
from nxjax.trace.stage import stage
from nxjax.trace.text import parse_program, to_text
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import jit
from nxjax.transforms.jvp import jvp
from nxjax.transforms.vmap import vmap


@dataclass(frozen=True)
class Sample:
    """Operands and parameters for which an op is checked.

    Set ``differentiable`` to False for points where the op has a kink.

    >>> sample([1.0, 2.0], axis=0).params
    {'axis': 0}
    """

    args: tuple[NDArray, ...]
    params: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True


@dataclass(frozen=True)
class Bad:
    """Operands that an op must refuse with an ``error`` whose text contains ``says``.

    >>> from nxjax.errors import ShapeError
    >>> bad(np.zeros(2), np.zeros(3), error=ShapeError, says="shape").says
    'shape'
    """

    args: tuple[NDArray, ...]
    error: type[Exception]
    says: str
    params: dict[str, Any] = field(default_factory=dict)


def sample(*args: Any, differentiable: bool = True, **params: Any) -> Sample:
    """A `Sample` of arrays and keyword parameters.

    >>> sample(np.zeros((2, 3)), axis=0)
    Sample(args=(array([[0., 0., 0.],
           [0., 0., 0.]]),), params={'axis': 0}, differentiable=True)
    """
    return Sample(tuple(np.asarray(a) for a in args), params, differentiable)


def bad(*args: Any, error: type[Exception], says: str, **params: Any) -> Bad:
    """A `Bad` of arrays and keyword parameters.

    >>> from nxjax.errors import ShapeError
    >>> bad(np.zeros(2), np.zeros(3), error=ShapeError, says="shape").error.__name__
    'ShapeError'
    """
    return Bad(tuple(np.asarray(a) for a in args), error, says, params)


def check_op(
    op: Op,
    samples: Sequence[Sample],
    bad: Sequence[Bad] = (),
    *,
    reference: Callable[..., Any] | None = None,
    rtol: float | None = None,
) -> None:
    """Check every law of the contract, for every sample.

    Derivatives of an `Elementwise` op are also checked at 0, near it and at large numbers.

    Args:
        op: the op.
        samples: operands (NumPy arrays) and parameters.
        bad: operands that must be refused.
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
        y = many(op(*values, **s.params))
        _check_meaning(op, s, what, y, reference, rtol)
        _check_text(function, values, what)
        if op.has("expand"):
            with use(EVAL):
                expanded = many(op.expand(*values, **s.params))
            for a, b in zip(expanded, y, strict=True):
                assert_close("expand = eval", what, a, b, rtol)
        _check_executors(function, values, what, y, rtol)
        _check_batching(function, values, what, rtol)
        if s.differentiable and any(a.dtype in dtypes.INEXACT for a in s.args):
            _check_derivatives(op, s, what)
            if isinstance(op, Elementwise):
                check_points(op, s.args, s.params, what)
    for b in bad:
        _check_refusal(op, b)


def _function(op: Op, s: Sample) -> Callable[..., Any]:
    return lambda *xs: op(*xs, **s.params)


def _check_meaning(op: Op, s: Sample, what: str, y: tuple[Any, ...], reference: Any, rtol: float | None) -> None:
    types = many(op.infer(*(wrap(a).type for a in s.args), **s.params))
    for t, v in zip(types, y, strict=True):
        data = v.numpy()
        if t.shape != data.shape or t.dtype != data.dtype:
            raise broken("infer = eval", what, f"inferred {t}, got {data.dtype}{list(data.shape)}")
    if reference is not None:
        for v, r in zip(y, many(reference(*s.args, **s.params)), strict=True):
            assert_close("eval = reference", what, v, np.asarray(r), rtol)


def _check_text(function: Callable[..., Any], values: Sequence[Array], what: str) -> None:
    program = stage(lambda *xs: many(function(*xs)), [x.type for x in values]).check()
    text = to_text(program)
    if "<" in text.replace("<fry>", ""):
        return  # a parameter is a Python function, which no text can hold
    if to_text(parse_program(text, program.values)) != text:
        raise broken("print, parse, print", what, text)


def _check_executors(
    function: Callable[..., Any], values: Sequence[Array], what: str, y: tuple[Any, ...], rtol: float | None
) -> None:
    for name in executors():
        compiled = many(jit(function, device=name)(*values))
        for a, b in zip(compiled, y, strict=True):
            assert_close(f"jit on {name} = eager", what, a, b, rtol)
            if a.type != b.type:
                raise broken(f"jit on {name} keeps the type", what, f"{a.type} for {b.type}")


def _check_batching(function: Callable[..., Any], values: Sequence[Array], what: str, rtol: float | None) -> None:
    """Each operand alone and all together, batched in front, between, at the back and at both, against a loop."""
    if not values:
        return
    masks = [tuple(i == j for j in range(len(values))) for i in range(len(values))]
    if len(values) > 1:
        masks.append((True,) * len(values))
    for mask in masks:
        fronts, backs = [0] * len(values), [x.ndim for x in values]
        mixed = [f if i % 2 else b for i, (f, b) in enumerate(zip(fronts, backs, strict=True))]
        between = [(x.ndim + 1) // 2 for x in values]
        found = (fronts, between, backs, mixed) if sum(mask) > 1 else (fronts, between, backs)
        for k, places in enumerate(found):
            if places in found[:k]:
                continue
            axes = tuple(p if m else None for p, m in zip(places, mask, strict=True))
            rows = [[x.numpy(), np.roll(x.numpy(), 1)] for x in values]
            stacked = [x if a is None else wrap(np.stack(r, a)) for x, r, a in zip(values, rows, axes, strict=True)]
            got = many(vmap(function, in_axes=axes)(*stacked))
            for i in range(2):
                one = many(function(*(x if not m else wrap(r[i]) for x, r, m in zip(values, rows, mask, strict=True))))
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
        ys = many(op(*full, **s.params))
        return [y for y in ys if y.dtype in dtypes.INEXACT]

    points = [wide[i] for i in moving]
    if not function(*map(wrap, points)):
        return
    _check_order(function, points, what, "first")
    if len(moving) > 1:
        # A rule must also cope with operands that have no tangent.
        for i in range(len(moving)):
            alone = _with_others_fixed(function, points, i)
            _check_order(alone, [points[i]], f"{what}, operand {moving[i]} alone", "first")
    direction = directions(points, 7)

    def derivative(*xs: Any) -> Any:
        return jvp(function, xs, tuple(map(wrap, direction)))[1]

    _check_order(derivative, points, what, "second")


def _with_others_fixed(function: Callable[..., Any], points: Sequence[NDArray], i: int) -> Callable[..., Any]:
    return lambda x: function(*(x if j == i else wrap(p) for j, p in enumerate(points)))


def _check_order(function: Callable[..., Any], points: Sequence[NDArray], what: str, order: str) -> None:
    ts = directions(points, 3)
    step = 1e-5
    _, pushed = jvp(function, tuple(map(wrap, points)), tuple(map(wrap, ts)))
    plus = function(*(wrap(p + step * t) for p, t in zip(points, ts, strict=True)))
    minus = function(*(wrap(p - step * t) for p, t in zip(points, ts, strict=True)))
    for a, hi, lo in zip(pushed, plus, minus, strict=True):
        slope = (hi.numpy() - lo.numpy()) / (2 * step)
        scale = 1 + np.max(np.abs(slope), initial=0)
        assert_close(f"{order} jvp = central differences", what, a.numpy(), slope.astype(a.dtype), 1e-4, 1e-4 * scale)
    ys, pull = vjp(function, *map(wrap, points))
    cts = directions([y.numpy() for y in ys], 5)
    pulled = pull([wrap(c) for c in cts])
    forward = sum(pairing(c, t.numpy()) for c, t in zip(cts, pushed, strict=True))
    backward = sum(pairing(c.numpy(), t) for c, t in zip(pulled, ts, strict=True))
    assert_close(
        f"{order} adjoint identity <ct, J t> = <J' ct, t>", what, np.asarray(backward), np.asarray(forward), 1e-7, 1e-7
    )


def _check_refusal(op: Op, b: Bad) -> None:
    what = f"{op} of {', '.join(f'{a.dtype.name}{list(a.shape)}' for a in b.args)} {b.params or ''}".strip()
    try:
        op(*(wrap(a) for a in b.args), **b.params)
    except b.error as error:
        message = str(error)
        if b.says not in message:
            raise broken(f"the error says {b.says!r}", what, message) from None
        if op.name not in message:
            raise broken("the error names the op", what, message) from None
    else:
        raise broken(f"{b.error.__name__} is raised", what)
