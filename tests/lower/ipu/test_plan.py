"""Plans: within the tiles and the memory, and no slower than any other partition that was priced."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.kernels.ipu.chip import BOW, GC2
from nxjax.lower.ipu.plan import MOST_WAYS, ConvPartitionProblem, _candidates, _priced, planned, ways

ONES = (1, 1, 1)


def product(m: int, n: int, k: int, dtype: str = "float16", partials: str = "float16") -> ConvPartitionProblem:
    return ConvPartitionProblem(
        (1, 1, 1, 1, m, n, k), ONES, ONES, ONES, 16, 16 if dtype == "float16" else 8, dtype, partials
    )


@given(st.integers(1, 3000), st.integers(1, 1472))
def test_ways_cut_differently(size: int, most: int):
    found = ways(size, most)
    assert found[0] == 1 and found[-1] <= min(size, most) and len(found) <= MOST_WAYS
    assert len({-(-size // n) for n in found}) == len(found)


@given(st.integers(1, 100), st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 8, 100, 1472]))
@settings(max_examples=30, deadline=None)
def test_plans_use_what_is_there_and_are_the_fastest(m: int, n: int, k: int, tiles: int):
    problem = product(m, n, k)
    plan = planned(problem, BOW, tiles, 0.6)
    assert plan.tiles <= tiles and plan.turns == 1 and plan.temporary <= 0.6 * BOW.memory
    cycles, temporary = _priced(problem, _candidates(problem, tiles), BOW)
    assert plan.cycles == int(cycles[temporary <= 0.6 * BOW.memory].min())


def test_more_memory_for_temporaries_is_never_slower():
    problem = product(2048, 128, 128)
    found = [planned(problem, replace(BOW, memory=200_000), 1472, p) for p in (0.05, 0.1, 0.2, 0.4, 0.8)]
    assert all(a.cycles >= b.cycles for a, b in itertools.pairwise(found[1:]))
    assert all(
        p.temporary <= 200_000 * s or p.turns > 1 for p, s in zip(found, (0.05, 0.1, 0.2, 0.4, 0.8), strict=True)
    )


def test_large_products_are_near_the_units_rate():
    """4096^3 in pure half precision: above half of 64 multiply-accumulates a cycle and tile."""
    plan = planned(product(4096, 256, 256), BOW, 1472, 0.6)
    assert 4096**3 / (plan.cycles * 1472) > 32


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_chips_have_plans_of_their_own(dtype: str):
    problem = ConvPartitionProblem(
        (1, 1, 1, 1, 512, 32, 32), ONES, ONES, ONES, 8, 16 if dtype == "float16" else 8, dtype, "float32"
    )
    assert planned(problem, GC2, GC2.tiles, 0.6).cycles > 0


def test_boxes_of_convolutions_have_their_halo():
    problem = ConvPartitionProblem((1, 1, 1, 9, 9, 1, 1), (1, 3, 5), (1, 2, 1), (1, 1, 2), 16, 16, "float16", "float16")
    assert [int(np.asarray(n)) for n in problem.box((1, 3, 4))] == [1, 7, 12]
