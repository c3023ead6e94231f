"""Fixed-point rescaling against exact rational arithmetic."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.ops.fixed.point import (
    INT32_MAX,
    INT32_MIN,
    divide_by_power,
    high_product,
    quantize_multiplier,
    rescale,
    rescale_wide,
    round_away,
    wrap32,
)

int32 = st.integers(INT32_MIN, INT32_MAX)
reals = st.floats(2.0**-30, 2.0**30)


def nearest_away(x: Fraction) -> int:
    return floor(x + Fraction(1, 2)) if x >= 0 else -floor(-x + Fraction(1, 2))


def exact(multiplier: np.ndarray, shift: np.ndarray) -> Fraction:
    return Fraction(int(multiplier)) * Fraction(2) ** (int(shift) - 31)


@given(reals)
def test_multipliers_are_real_to_31_bits(real: float):
    multiplier, shift = quantize_multiplier(real)
    assert 2**30 <= int(multiplier) < 2**31
    assert abs(exact(multiplier, shift) - Fraction(real)) <= Fraction(real) / 2**31


def test_multipliers_at_the_ends():
    assert [int(v) for v in quantize_multiplier(0.0)] == [0, 0]
    assert [int(v) for v in quantize_multiplier(2.0**-33)] == [0, 0]
    assert [int(v) for v in quantize_multiplier(2.0**-32)] == [2**30, -31]
    # The fraction rounds up to 1: half of it, and one more shift.
    assert [int(v) for v in quantize_multiplier(1 - 2.0**-33)] == [2**30, 1]
    assert [int(v) for v in quantize_multiplier(2.0**40, "single")] == [INT32_MAX, 30]
    assert int(quantize_multiplier(2.0**40)[1]) == 41
    assert int(quantize_multiplier(-0.75)[0]) == -int(quantize_multiplier(0.75)[0])


@given(st.lists(st.floats(2.0**-40, 2.0**40), min_size=1, max_size=5))
def test_multipliers_of_an_array(reals: list[float]):
    multiplier, shift = quantize_multiplier(np.array(reals))
    each = [quantize_multiplier(r) for r in reals]
    assert multiplier.tolist() == [int(m) for m, _ in each]
    assert shift.tolist() == [int(s) for _, s in each]


@given(int32, int32)
def test_high_product_is_the_nearest(a: int, b: int):
    got = int(high_product(a, b))
    if a == b == INT32_MIN:
        assert got == INT32_MAX
    else:
        # Halves go up: the nudge of negative products is one short of a half.
        assert got == floor(Fraction(a * b, 2**31) + Fraction(1, 2))


@given(int32, st.integers(0, 31))
def test_divide_by_power_rounds_halves_away(x: int, exponent: int):
    assert int(divide_by_power(x, exponent)) == nearest_away(Fraction(x, 2**exponent))


@given(st.integers(-(2**20), 2**20), st.floats(2.0**-20, 2.0**8))
def test_both_roundings_are_within_one_of_the_real_product(x: int, real: float):
    for rounding in ("double", "single"):
        multiplier, shift = quantize_multiplier(real, rounding)
        product = x * exact(multiplier, shift)
        got = int(rescale(np.array(x), multiplier, shift, rounding))
        if rounding == "single":
            assert got == floor(product + Fraction(1, 2))
        else:
            assert abs(got - product) <= Fraction(1, 2) + Fraction(1, 2) ** max(-int(shift), 1)


def test_the_roundings_differ():
    """A product just below a half that the first of two roundings lifts onto it."""
    x = np.arange(-(2**16), 2**16)
    multiplier, shift = quantize_multiplier(0.0123)
    double, single = (rescale(x, multiplier, shift, r) for r in ("double", "single"))
    assert set(np.unique(double - single)) <= {-1, 0, 1} and (double != single).any()


def test_left_shifts_wrap():
    multiplier, shift = quantize_multiplier(2.0**20)
    assert int(shift) == 21
    assert rescale(np.array([1, 2**11, 2**10]), multiplier, shift).tolist() == [2**20, 0, -(2**30)]


@given(st.integers(-(2**46), 2**46), st.floats(2.0**-28, 1.0))
def test_wide_rescaling_rounds_once_with_16_bits(x: int, real: float):
    multiplier, shift = quantize_multiplier(real)
    reduced = min((int(multiplier) + 2**15) >> 16, 0x7FFF)
    product = Fraction(x * reduced) * Fraction(2) ** (int(shift) - 15)
    expected = floor(product + Fraction(1, 2))
    assert int(rescale_wide(np.array(x), multiplier, shift)) == int(wrap32(np.array(expected)))


def test_per_channel_rescaling_broadcasts():
    multiplier, shift = quantize_multiplier(np.array([0.5, 0.25]))
    assert rescale(np.array([[100, 100], [-100, -100]]), multiplier, shift).tolist() == [[50, 25], [-50, -25]]


@pytest.mark.parametrize("x", [0.49999999999999994, -0.49999999999999994, 2.0**52 + 1])
def test_round_away_at_its_edges(x: float):
    assert float(round_away(x)) == float(nearest_away(Fraction(x)))


def published(x: int, multiplier: int, shift: int, rounding: str) -> int:
    """The two published routines, in unbounded integers."""
    if rounding == "single":
        return (x * multiplier + (1 << (30 - shift))) >> (31 - shift)
    product = (x << max(shift, 0)) * multiplier
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) >> 31
    high = min(high if nudged >= 0 else -high, INT32_MAX)
    e = max(-shift, 0)
    rest, threshold = high & ((1 << e) - 1), (((1 << e) - 1) >> 1) + (high < 0)
    return (high >> e) + (rest > threshold)


@pytest.mark.parametrize("rounding", ["double", "single"])
@given(st.lists(int32, min_size=1, max_size=40), st.floats(2.0**-40, 2.0**40))
def test_rescaling_is_the_published_routine(rounding: str, xs: list[int], real: float):
    """Bit for bit wherever results fit 32 bits, ends and halves included; also for factors that vanish."""
    multiplier, shift = quantize_multiplier(real, rounding)
    m, s = int(multiplier), int(shift)
    halves = [k * (1 << min(max(30 - s, 0), 31)) // max(m, 1) + d for k in (1, -1, 3, -3) for d in (-1, 0, 1)]
    xs = [x for x in [*xs, *halves, INT32_MAX, INT32_MIN, 0, 1, -1] if INT32_MIN <= x <= INT32_MAX]
    xs = [x for x in xs if INT32_MIN <= x << max(s, 0) <= INT32_MAX]
    want = [published(x, m, s, rounding) for x in xs]
    assert rescale(np.array(xs), multiplier, shift, rounding).tolist() == want
