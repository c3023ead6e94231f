"""The derivatives of an element-wise op at points that samples often leave out: 0, points beside it, and large ones.

Reads ops by their contract only. At each point there are two laws, for the first and the second derivative:

- in float64 it is the limit of differences, if differences from both sides and of two widths agree: at kinks, jumps
  and poles they do not;
- in float32 it is that in float64, where float32 can hold it. A difference of nearly equal numbers breaks this law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from nxjax.errors import GradientError
from nxjax.testing.comparison import NDArray, broken, first_difference
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Op
from nxjax.transforms.jvp import jvp

# No round numbers: quotients of those are often whole, where remainders jump. None is large: squares of their
# exponentials would overflow.
_BESIDE: Final = (
    1e-30,
    1.3e-7,
    1.1e-4,
    1.3e-3,
    1.7e-2,
    0.29,
    1.1,
    5.3,
    29.0,
)
POINTS: Final = np.array([*(-x for x in reversed(_BESIDE)), 0.0, *_BESIDE])
_STEPS: Final = (-4e-5, -1e-5, 1e-5, 4e-5)  # of differences, relative where points are large
_RTOL: Final = {np.dtype(np.float64): 1e-4, np.dtype(np.float32): 2e-3}
_ATOL: Final = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 2e-6}

Function = Callable[[NDArray], NDArray]


def check_points(op: Op, args: Sequence[NDArray], params: dict[str, Any], what: str) -> None:
    """Check both laws in each float operand of an op that works element by element.

    The other operands keep the values of ``args``: the first of them, as often as there are points.

    Raises:
        LawBroken: the message names the law and the operand.
    """
    result = op.infer(*(wrap(a).type for a in args), **params)
    if result.dtype not in dtypes.INEXACT or not all(a.size for a in args):
        return
    for i, moving in enumerate(args):
        if moving.dtype != np.float32:
            continue
        rest = [np.full(POINTS.shape, a.reshape(-1)[0], a.dtype) for a in args]
        with np.errstate(all="ignore"), suppress(GradientError):  # an operand without a derivative
            for order in (1, 2):
                _check_order(op, rest, i, params, f"{what}, operand {i}", order)


def _check_order(op: Op, rest: Sequence[NDArray], i: int, params: dict[str, Any], what: str, order: int) -> None:
    name = ("first", "second")[order - 1]
    lower, found = (_derivative(op, rest, i, params, n) for n in (order - 1, order))
    wide = POINTS.astype(np.float32).astype(np.float64)
    got, middle = found(wide), lower(wide)
    slopes = np.stack([(lower(wide + h) - middle) / h for k in _STEPS for h in (k * np.maximum(1, np.abs(wide)),)])
    limit = slopes.mean(0)
    known = np.abs(slopes - limit).max(0) <= 1e-3 * np.abs(limit) + 1e-4
    _compare(f"{name} derivative = limit of differences", what, got, limit, known, np.float64)
    held = np.abs(got) < 1e30
    narrow = found(POINTS.astype(np.float32))
    _compare(f"{name} derivative in float32 = in float64", what, narrow, got, held, np.float32)


def _derivative(op: Op, rest: Sequence[NDArray], i: int, params: dict[str, Any], order: int) -> Function:
    """The derivative of ``op`` in operand ``i``, of an order, in the dtype of the points."""

    def function(x: NDArray) -> NDArray:
        others = [wrap(a.astype(x.dtype) if a.dtype == np.float32 else a) for a in rest]
        moved: Callable[[Any], Any] = lambda v: op(*(v if j == i else a for j, a in enumerate(others)), **params)
        for _ in range(order):
            moved = _differentiated(moved, np.ones_like(x))
        return moved(wrap(x)).numpy()

    return function


def _differentiated(f: Callable[[Any], Any], one: NDArray) -> Callable[[Any], Any]:
    return lambda v: jvp(f, (v,), (wrap(one),))[1]


def _compare(law: str, what: str, got: NDArray, expected: NDArray, known: NDArray, dtype: Any) -> None:
    known = known & np.isfinite(expected)
    rtol, atol = _RTOL[np.dtype(dtype)], _ATOL[np.dtype(dtype)]
    if first_difference(np.where(known, got, 0), np.where(known, expected, 0), rtol, atol):
        with np.errstate(all="ignore"):
            wrong = known & ~np.isclose(got, expected, rtol, atol)
        k = int(np.argmax(wrong))
        raise broken(law, what, f"at {POINTS[k]:g}: got {got[k]}, expected {expected[k]}")
