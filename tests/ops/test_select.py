"""Selection and clamping: every law, any number of cases, keys too."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.select import clamp, select_n
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

RNG = np.random.default_rng(0)
CASES = [RNG.normal(size=(2, 3)).astype(np.float32) for _ in range(5)]


def test_two_cases():
    check_op(
        select_n,
        [
            sample(CASES[0] > 0, *CASES[:2]),
            sample(np.bool_(True), *CASES[:2]),
            sample((CASES[0] > 0).astype(np.int32), *CASES[:2]),
        ],
        [
            bad(CASES[0], *CASES[:2], error=DtypeError, says="bool or int32"),
            bad(CASES[0] > 0, *CASES[:3], error=DtypeError, says="two cases"),
            bad(CASES[0][0] > 0, *CASES[:2], error=ShapeError, says="predicate"),
            bad(CASES[0] > 0, CASES[0], CASES[1][0], error=ShapeError, says="equal shapes"),
        ],
        reference=jax.lax.select_n,
    )


@pytest.mark.parametrize("n", [1, 3, 4, 5])
def test_many_cases(n):
    which = RNG.integers(0, n, (2, 3)).astype(np.int32)
    check_op(select_n, [sample(which, *CASES[:n])], reference=jax.lax.select_n)


def test_keys_can_be_chosen():
    keys = np.arange(8, dtype=np.uint32).view(dtypes.key)
    check_op(select_n, [sample(np.array([True, False, True, True]), keys, keys[::-1].copy())])


def test_clamp():
    x = CASES[0]
    low, high = np.float32(-0.4), np.float32(0.3)
    check_op(
        clamp,
        [
            sample(low, x, high),
            sample(np.full_like(x, low), x, np.full_like(x, high)),
            sample(np.int8(-2), (x * 9).astype(np.int8), np.int8(2)),
        ],
        [bad(np.zeros(3, np.float32), x, high, error=ShapeError, says="bound")],
        reference=jax.lax.clamp,
    )


def test_slopes_of_clamp_at_and_between_bounds_in_any_order():
    """As in JAX: a bound passes its tangent on where it alone decides, which neither does when they are crossed."""
    at = np.array([-1, -0.5, 0, 0.5, 1], np.float32)
    low, x, high = (v.reshape(-1) for v in np.meshgrid(at, at, at))
    ct = np.arange(1, len(x) + 1, dtype=np.float32)
    _, pull = jax.vjp(jax.lax.clamp, low, x, high)
    y, mine = nx.vjp(clamp, *map(nx.asarray, (low, x, high)))
    np.testing.assert_array_equal(y, jax.lax.clamp(low, x, high))
    for got, want in zip(mine(nx.asarray(ct)), pull(ct), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_tangent_beyond_a_bound_is_dropped_even_if_it_is_no_number():
    x = np.float32([-1, 0.5, 2])
    f = lambda x: 1 / (nx.lax.clamp(np.float32(0), x, np.float32(1)) * np.float32([0, 1, 1]))
    assert np.asarray(nx.grad(lambda x: f(x).sum())(x)).tolist() == [0, -4, 0]


def test_the_slope_of_the_modulus_at_zero_is_that_of_jax():
    assert np.asarray(nx.grad(lambda x: abs(x).sum())(np.float32([-2, -0.0, 0, 3]))).tolist() == [-1, 1, 1, 1]
