"""Streams: the interval is the least there is, and inputs that come so fast never meet."""

import pytest

from nxjax.backends.hybrid.choose import choose, throughput
from nxjax.backends.hybrid.placing import Problem, finished, periodic
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task, Work
from tests.backends.hybrid.works import least_interval, random_work


def test_small_works_get_the_least_interval_there_is():
    several = 0
    for seed in range(80):
        work = random_work(seed, 1 + seed % 6, 3, chain=seed % 2 == 0)
        found = throughput(work)
        found.check(work)
        assert found.exact
        assert found.interval == pytest.approx(least_interval(work), rel=1e-9)
        several += found.inflight > 1
    assert several > 30


def test_any_interval_that_holds_the_loads_can_be_kept():
    for seed in range(20):
        work = random_work(seed, 12, 4)
        problem = Problem(work)
        units = [able[seed % len(able)] for able in problem.able]
        least = problem.interval(units)
        for factor in (1.0, 1.01, 1.5):
            placed = periodic(problem, units, least * factor)
            assert len(placed.starts) == 12
            # As a schedule, it is checked with as many inputs as meet.
            finished(problem, placed, "throughput", "test", interval=least * factor).check(work)


def test_large_works_keep_what_was_promised():
    for chain in (True, False):
        work = random_work(5, 30, 3, chain=chain)
        found = throughput(work)
        found.check(work)
        problem = Problem(work)
        alone = [problem.interval([u if u in able else able[0] for able in problem.able]) for u in problem.units]
        assert found.interval <= min(alone)


PIPE = Work(
    (
        Task("stem", {"npu": 2.0, "cpu": 6.0}, after=(Edge(CALLER, 1),)),
        Task("head", {"npu": 2.0, "cpu": 3.0}, after=(Edge(0, 1),)),
    ),
    ("npu", "cpu"),
    lambda a, b, nbytes: 0.5,
    results=(Edge(1, 1),),
    memory={"cpu": HOST},
)


def test_a_deadline_bounds_the_latency_of_one_input():
    free = choose(PIPE, "throughput")
    assert (free.interval, free.makespan, free.inflight) == (3.0, 6.0, 2)
    bound = choose(PIPE, "throughput", deadline=5.5)
    bound.check(PIPE)
    # All on the NPU: 5 s, an input every 4 s, as the link and the NPU work side by side.
    assert bound.makespan <= 5.5
    assert bound.interval == pytest.approx(4.0)


def test_lanes_take_turns():
    work = Work((Task("a", {"npu": 3.0}),), ("npu",), lambda a, b, nbytes: 0.0, lanes={"npu": 3})
    found = choose(work, "throughput")
    found.check(work)
    assert (found.interval, found.inflight) == (1.0, 3)
    assert [(s.lane, s.start) for s in found.unrolled(work, 4).slots] == [(0, 0.0), (1, 1.0), (2, 2.0), (0, 3.0)]
