"""Sites: which part of a value's range counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = nx.random.normal(nx.random.key(0), (64, 8))
W = 2 * nx.random.normal(nx.random.key(1), (8, 8))


def product(f: Any) -> tuple[float, float]:
    """The range of ``x @ W`` where ``f`` reads it."""
    ranges = nx.quantize(lambda x: f(x @ W), "int8", calibrate=[(X,)], observer="minmax").ranges
    return ranges["dot_general_0"]


LOW, HIGH = (float(v) for v in (np.asarray(X @ W).min(), np.asarray(X @ W).max()))


@pytest.mark.parametrize("f", [nx.nn.hard_swish, lambda x: x * jnp.clip(x + 3, 0, 6) / 6])
def test_below_minus_3_a_hard_swish_is_0_whole_or_in_pieces(f: Any):
    low, high = product(f)
    assert LOW < -6 and low == pytest.approx(-3.0) and high == pytest.approx(HIGH)


def test_who_else_reads_the_value_needs_all_of_it():
    low, high = product(lambda x: nx.nn.hard_swish(x) + x)
    assert low == pytest.approx(LOW) and high == pytest.approx(HIGH)


def test_a_result_is_whole():
    ranges = nx.quantize(lambda x: (x @ W, nx.nn.hard_swish(x @ W)), "int8", calibrate=[(X,)], observer="minmax").ranges
    assert ranges["dot_general_0"][0] == pytest.approx(LOW)


@pytest.mark.parametrize("function", [nx.nn.sigmoid, jnp.tanh])
def test_tails_of_a_table_that_is_flat_there_are_no_part_of_the_range(function: Any):
    low, high = product(function)
    assert LOW < low < 0 < high < HIGH and low == pytest.approx(-high)


def test_squares_under_a_logarithm_have_16_bits():
    """The decibels of a spectrum: of the smallest squares as of the largest."""

    def decibels(x: Any) -> Any:
        real, imaginary = x @ W, x @ W[::-1]
        return jnp.log(real * real + imaginary * imaginary + 1e-6)

    made = nx.quantize(decibels, "int8", calibrate=[(X,)])
    groups = made.plan(made.traced(X)).groups()
    wide = {g.equations[0].op.name for g in groups if g.dtype == nx.int16}
    assert {"mul", "log"} <= wide and "dot_general" not in wide
    x, q = np.asarray(decibels(X)), np.asarray(made(X))
    assert abs(q - x).mean() < 0.2


def test_a_batch_of_one_has_the_sites_of_a_larger_one():
    """Axes of size 1 leave out broadcasts: no name counts them."""

    def f(p: Any, x: Any) -> Any:
        y = jnp.tanh(x @ p["w"])
        return (y - y.mean(0)) / jnp.sqrt(y.var(0) + 0.5) + p["row"] * y, abs(y) + 0.25

    p = {"w": W, "row": W[:1]}
    made = lambda *batches: nx.quantize(f, "int8", calibrate=[(p, x) for x in batches], observer="minmax")
    both = made(X[:6], X[:1])
    assert both.ranges.keys() == made(X[:6]).ranges.keys() == made(X[:1]).ranges.keys()
    for x in (X[:6], X[:1]):
        assert float(abs(both(p, x)[1] - f(p, x)[1]).max()) < 0.1
