"""The parts of the dynamic program for chains that stand alone."""

import itertools

import pytest

from nxjax.backends.hybrid import chain
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
        assert chain.flow_shop(jobs) == min(spans)


def test_only_chains_are_chains():
    assert chain.is_chain(Problem(random_work(1, 5, chain=True)))
    work = random_work(1, 5, chain=True)
    assert not chain.is_chain(Problem(type(work)(work.tasks, work.units, work.transfer, (work.tasks[1].after[0],))))
    assert not any(chain.is_chain(Problem(random_work(seed, 5))) for seed in range(5))


def test_best_and_front_are_those_of_all_assignments():
    for seed in range(12):
        problem = Problem(random_work(seed, 5, chain=True))
        names = problem.work.units
        every = [[names.index(u) for u in units] for units in assignments(problem.work)]
        points = sorted((place(problem, units).makespan, problem.energy(units)) for units in every)
        assert place(problem, chain.best(problem)).makespan == pytest.approx(points[0][0])
        assert problem.energy(chain.best(problem, energy=True)) == pytest.approx(min(j for _, j in points))
        unbeaten = []
        for seconds, joules in points:
            if not unbeaten or joules < unbeaten[-1][1] - 1e-12:
                unbeaten.append((seconds, joules))
        found, whole = chain.front(problem)
        assert whole
        assert [x[:2] for x in found] == [pytest.approx(x) for x in unbeaten]


def test_a_long_front_is_thinned_and_says_so(monkeypatch):
    monkeypatch.setattr(chain, "_STATES", 20)
    problem = Problem(random_work(0, 30, chain=True))
    found, whole = chain.front(problem)
    assert not whole
    assert found[0][0] == pytest.approx(place(problem, chain.best(problem)).makespan)
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(found))
