"""Measuring two functions in turn, on a clock that the test turns."""

import numpy as np
import pytest

from nxjax.backends.pairs import measured, sign_test


class Clock:
    """Seconds that pass only inside of the functions measured."""

    def __init__(self, seed=0, noise=0.0):
        self.now, self.noise, self.rng = 0.0, noise, np.random.default_rng(seed)

    def __call__(self):
        return self.now

    def function(self, seconds):
        def run():
            slow = 1 + (self.rng.exponential(self.noise) if self.noise else 0.0)
            self.now += seconds * slow

        return run


def test_the_sign_test_is_the_binomial_one():
    stats = pytest.importorskip("scipy.stats")
    for n in (1, 8, 21):
        for wins in range(n + 1):
            assert sign_test(wins, n) == pytest.approx(stats.binomtest(wins, n).pvalue)


def test_what_is_faster_is_found_and_what_is_equal_is_not():
    clock = Clock(noise=0.5)
    pair = measured(clock.function(1e-3), clock.function(0.7e-3), most=200, seconds=10, clock=clock)
    assert pair.faster and not pair.slower and 0.55 < pair.ratio < 0.9
    pair = measured(clock.function(1e-3), clock.function(1.5e-3), most=200, seconds=10, clock=clock)
    assert pair.slower and not pair.faster
    # Equal functions on a noisy machine: among many comparisons hardly one says otherwise.
    found = []
    for seed in range(60):
        clock = Clock(seed, noise=0.5)
        found.append(measured(clock.function(1e-3), clock.function(1e-3), most=40, seconds=10, clock=clock).faster)
    assert sum(found) <= 4


def test_it_stops_when_it_is_sure_or_the_time_is_up():
    clock = Clock()
    assert measured(clock.function(1.0), clock.function(0.5), most=100, seconds=1e9, clock=clock).pairs < 20
    clock = Clock()
    assert measured(clock.function(1.0), clock.function(1.0), most=100, seconds=3.0, clock=clock).pairs == 8
    # What is far apart is not measured for long, whichever is the slow one.
    for first, second in ((1e-3, 60.0), (60.0, 1e-3)):
        pair = measured(clock.function(first), clock.function(second), seconds=3.0, clock=clock)
        assert pair.pairs == 3 and (pair.slower, pair.faster) == (first < second, first > second)
    clock = Clock()
    assert measured(
        clock.function(1e-6), clock.function(1e-6), most=9, seconds=1e9, clock=clock
    ).first == pytest.approx(1e-6)
