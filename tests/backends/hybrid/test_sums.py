"""Sums of seconds and joules: what is found for chains and graphs is what all assignments give."""

import itertools
from math import inf

import pytest

from nxjax.backends.hybrid.choose import choose, energy, front
from nxjax.backends.hybrid.exact import chain_seconds, flow_shop, is_chain, least_joules, ways
from nxjax.backends.hybrid.placing import Problem, place
from tests.backends.hybrid.works import assignments, random_work


def test_johnsons_order_is_the_best():
    for jobs in ([(3.0, 2.0), (1.0, 4.0), (2.0, 2.0), (5.0, 1.0)], [(0.0, 1.0), (1.0, 0.0)], [(2.0, 3.0)], []):
        spans = []
        for order in itertools.permutations(jobs):
            first = second = 0.0
            for a, b in order:
                first += a
                second = max(first, second) + b
            spans.append(second)
        assert flow_shop(jobs) == min(spans)


def test_only_chains_are_chains():
    assert is_chain(Problem(random_work(1, 5, chain=True)))
    work = random_work(1, 5, chain=True)
    assert not is_chain(Problem(type(work)(work.tasks, work.units, work.transfer, (work.tasks[1].after[0],))))
    assert not any(is_chain(Problem(random_work(seed, 5))) for seed in range(5))


def both(problem):
    """Seconds of a chain, and joules."""

    def cost(i, u, moves):
        return chain_seconds(problem, i, u, moves), problem.watt[i][u] + sum(map(problem.joules, moves))

    return cost


def placings(problem):
    names = problem.work.units
    return [[names.index(u) for u in units] for units in assignments(problem.work)]


def test_the_best_and_the_front_of_a_chain_are_those_of_all_assignments():
    for seed in range(12):
        work = random_work(seed, 5, chain=True)
        problem = Problem(work)
        points = sorted((place(problem, units).makespan, problem.energy(units)) for units in placings(problem))
        assert choose(work).makespan == pytest.approx(points[0][0])
        assert energy(work).joules == pytest.approx(min(j for _, j in points))
        unbeaten = []
        for seconds, joules in points:
            if not unbeaten or joules < unbeaten[-1][1] - 1e-12:
                unbeaten.append((seconds, joules))
        found, whole = ways(problem, both(problem))
        assert whole
        assert [way.sums for way in found] == [pytest.approx(x) for x in unbeaten]
        assert all((s.makespan, s.joules) in [pytest.approx(x) for x in unbeaten] for s in front(work))


def test_the_least_joules_of_a_graph_are_those_of_all_assignments():
    for seed in range(30):
        problem = Problem(random_work(seed, 1 + seed % 6))
        found, whole = least_joules(problem, inf, 5000)
        assert whole
        assert problem.energy(found.units) == pytest.approx(min(map(problem.energy, placings(problem))))


def test_a_long_front_is_thinned_and_says_so():
    work = random_work(0, 30, chain=True)
    problem = Problem(work)
    found, whole = ways(problem, both(problem), states=20)
    assert not whole
    assert found[0].sums[0] == pytest.approx(choose(work).makespan)
    assert all(a.sums[0] < b.sums[0] and a.sums[1] > b.sums[1] for a, b in itertools.pairwise(found))
