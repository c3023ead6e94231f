"""Wrong derivatives at 0, beside it and far from it are found, whatever the samples are."""

import numpy as np
import pytest

from nxjax.ops.arithmetic import abs, add, cbrt, mul, sign, sub
from nxjax.ops.base import Differentiable, Unary
from nxjax.ops.compare import lt
from nxjax.ops.elementary import cos, log, sin
from nxjax.ops.identity import stop_gradient
from nxjax.ops.select import select_n
from nxjax.testing import LawBroken
from nxjax.testing.points import check_points
from nxjax.trace import dtypes
from nxjax.trace.core import OPS

X = np.array([0.5], np.float32)


@pytest.fixture
def sine():
    """Makes a sine with a derivative of one's own, and takes its name back afterwards."""

    def make(derivative):
        members = {"name": "broken_sine", "allowed": dtypes.FLOAT, "hlo": "sine", "ufunc": np.sin}
        rule = lambda self, y, x: (lambda t: mul(t, derivative(x)),)
        return type("Broken", (Differentiable, Unary), {**members, "tangents": rule})()

    yield make
    OPS.pop("broken_sine")


def cancelling(x):
    """The cosine by way of a large number, whose digits float32 has no room for."""
    return sub(add(cos(x), 1e5), 1e5)


WRONG = {
    "at 0": lambda x: mul(cos(x), mul(sign(x), sign(x))),
    "beside 0": lambda x: select_n(lt(abs(x), 2e-3), cos(x), add(cos(x), 1e-3)),
    "at large numbers": lambda x: select_n(lt(abs(x), 10.0), mul(cos(x), 1.001), cos(x)),
}


@pytest.mark.parametrize("where", WRONG)
def test_a_wrong_derivative_is_found(sine, where):
    with pytest.raises(LawBroken, match="first derivative = limit of differences"):
        check_points(sine(WRONG[where]), [X], {}, "sine")


def test_a_derivative_that_cancels_in_float32_is_found(sine):
    with pytest.raises(LawBroken, match="first derivative in float32 = in float64"):
        check_points(sine(cancelling), [X], {}, "sine")


def test_a_wrong_second_derivative_is_found(sine):
    # The values are right, but their derivative is stopped.
    near = lambda x: select_n(lt(abs(x), 1e-2), cos(x), sub(1.0, mul(0.5, stop_gradient(mul(x, x)))))
    with pytest.raises(LawBroken, match="second derivative = limit of differences"):
        check_points(sine(near), [X], {}, "sine")


@pytest.mark.parametrize("op", [sin, abs, sign, log, cbrt])
def test_kinks_jumps_and_poles_are_left_out(op):
    check_points(op, [X], {}, op.name)
