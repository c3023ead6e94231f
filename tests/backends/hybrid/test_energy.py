"""The least energy, with a deadline and without; what is unknown stays unknown."""

import itertools
from dataclasses import replace
from math import inf

import pytest

from nxjax.backends.hybrid.choose import choose, energy, front
from nxjax.backends.hybrid.schedule import HOST, Edge, Task, Work
from nxjax.errors import ParameterError
from tests.backends.hybrid.works import activities, assignments, least_joules, random_work


def test_small_works_take_the_fewest_joules_there_are():
    refused = 0
    for seed in range(60):
        work = random_work(seed, 1 + seed % 4, 2 + seed % 2, chain=seed % 3 == 0)
        if any(len(activities(work, units)) > 8 for units in assignments(work)):
            continue
        found = energy(work)
        found.check(work)
        assert found.joules == pytest.approx(least_joules(work))
        fastest = choose(work).makespan
        for share in (0.9, 1.2):
            best = least_joules(work, share * fastest)
            if best == inf:
                refused += 1
                with pytest.raises(ParameterError, match="meets the deadline"):
                    energy(work, deadline=share * fastest)
                continue
            found = energy(work, deadline=share * fastest)
            found.check(work)
            assert found.makespan <= share * fastest * (1 + 1e-9)
            assert found.joules == pytest.approx(best)
            assert found.exact
    assert refused > 20


def test_the_front_goes_from_the_fastest_to_the_thriftiest():
    for seed in range(4):
        work = random_work(seed, 6, chain=seed % 2 == 0)
        found = front(work, count=4)
        for s in found:
            s.check(work)
        assert all(a.makespan < b.makespan and a.joules > b.joules for a, b in itertools.pairwise(found))
        assert found[-1].joules == pytest.approx(energy(work).joules)
        assert found[0].makespan <= choose(work).makespan * 1.2
        assert len(found) <= 6


ONE = Work(
    (Task("conv", {"npu": 2.0, "gpu": 1.0}, {"npu": 3.0}), Task("sort", {"cpu": 1.0}, {"cpu": 1.0}, (Edge(0, 4),))),
    ("npu", "gpu", "cpu"),
    lambda a, b, nbytes: 0.5,
    memory={"cpu": HOST},
)


def test_units_of_unknown_energy_are_left_out_and_named():
    found = choose(ONE, "energy")
    assert found.units == ("npu", "cpu")
    assert found.joules == 4.0
    assert found.notes == (
        "gpu was not considered for conv: its energy is unknown",
        "the energy of transfers is unknown and not counted",
    )
    # By latency the GPU is the better one; no energy is made up for it.
    assert choose(ONE).units == ("gpu", "cpu")
    assert choose(ONE).joules is None


def test_a_task_of_unknown_energy_everywhere_is_an_error():
    blind = replace(ONE, tasks=(replace(ONE.tasks[0], joules={}), ONE.tasks[1]))
    with pytest.raises(ParameterError, match=r"(?s)unknown on every unit.*conv"):
        choose(blind, "energy")
    with pytest.raises(ParameterError, match="unknown on every unit"):
        front(blind)
