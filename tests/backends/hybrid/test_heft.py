"""HEFT against the published example and an independent search over everything; chains and small graphs are exact."""

from dataclasses import replace

import pytest

from nxjax.backends.hybrid.choose import choose
from nxjax.backends.hybrid.exact import exact
from nxjax.backends.hybrid.placing import Problem, heft
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task, Work
from nxjax.errors import ParameterError
from tests.backends.hybrid.works import activities, assignments, least_makespan, random_work

# Topcuoglu, Hariri, Wu (IEEE TPDS 13(3), 2002): the graph of figure 2, with its upward ranks in table 2.
COSTS = ((14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10), (13, 16, 9), (7, 15, 11), (5, 11, 14),
         (18, 12, 20), (21, 7, 16))  # fmt: skip
EDGES = {(1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27,
         (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13}  # fmt: skip
RANKS = (108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667)


def test_ranks_are_those_that_were_published():
    tasks = tuple(
        Task(
            str(i + 1),
            dict(zip("abc", map(float, costs))),
            after=tuple(Edge(a - 1, n, b) for (a, b), n in EDGES.items() if b == i + 1),
        )
        for i, costs in enumerate(COSTS)
    )
    # Half of each way to the host and half from there.
    work = Work(tasks, ("a", "b", "c"), lambda a, b, nbytes: nbytes / 2)
    assert Problem(work).ranks == pytest.approx(RANKS, abs=1e-3)
    found = heft(work)
    found.check(work)
    # 80 is HEFT's with links that carry everything at once; one alone takes 127 at least.
    assert found.makespan < 90


def least(work: Work) -> float:
    best = float("inf")
    for units in assignments(work):
        acts = activities(work, units)
        if len(acts) > 8:
            return -1.0  # too many orders
        best = least_makespan(acts, best)
    return best


def test_small_works_get_the_best_schedule_there_is():
    tried = chains = 0
    for seed in range(150):
        chain = seed % 3 == 0
        work = random_work(seed, 1 + seed % 4, 3 if seed % 2 else 2, chain=chain)
        best = least(work)
        if best < 0:
            continue
        tried += 1
        found = choose(work)
        assert found.makespan == pytest.approx(best, rel=1e-9)
        assert found.exact
        if found.by == "chain":
            chains += 1
            assert exact(work).makespan == pytest.approx(best, rel=1e-9)
        assert heft(work).makespan >= best * (1 - 1e-9)
    assert tried >= 80
    assert chains >= 20


def test_heft_is_near_the_best_and_never_worse_than_one_unit():
    gaps = []
    for seed in range(12):
        work = random_work(seed, 5 + seed % 3)
        found = heft(work)
        gaps.append(found.makespan / exact(work).makespan - 1)
        assert gaps[-1] > -1e-9
    assert sum(gaps) / len(gaps) < 0.02
    for seed in range(2):
        work = random_work(seed, 30, 3)
        # Each unit runs everything, so that there is such a schedule.
        slow = tuple(replace(t, seconds=dict.fromkeys(work.units, 5.0) | dict(t.seconds)) for t in work.tasks)
        whole = replace(work, tasks=slow)
        alone = [heft(replace(whole, units=(u,))).makespan for u in work.units]
        assert heft(whole).makespan <= min(alone) * (1 + 1e-9)
        assert heft(whole, effort=0).makespan <= min(alone) * (1 + 1e-9)


def test_a_gap_between_tasks_is_used():
    # b waits for a's long way to the host; c, which comes later in the order, fits before it.
    work = Work(
        (
            Task("a", {"npu": 1.0}),
            Task("b", {"cpu": 5.0}, after=(Edge(0, 1),)),
            Task("c", {"cpu": 2.0}),
        ),
        ("npu", "cpu"),
        lambda a, b, nbytes: 3.0,
        memory={"cpu": HOST},
    )
    found = heft(work, effort=0)
    assert [(s.start, s.finish) for s in found.slots] == [(0.0, 1.0), (4.0, 9.0), (0.0, 2.0)]


def test_lanes_are_sessions_at_one_time():
    tasks = tuple(Task(f"t{i}", {"npu": 1.0}) for i in range(6))
    spans = [choose(Work(tasks, ("npu",), lambda a, b, nbytes: 0.0, lanes={"npu": n})).makespan for n in (1, 2, 3, 8)]
    assert spans == [6.0, 3.0, 2.0, 1.0]


def test_a_value_moves_once_for_all_who_need_it():
    readers = tuple(Task(f"r{i}", {"npu": 1.0}, after=(Edge(CALLER, 1), Edge(0, 1))) for i in range(3))
    work = Work((Task("a", {"cpu": 1.0}), *readers), ("npu", "cpu"), lambda a, b, nbytes: 1.0, memory={"cpu": HOST})
    found = choose(work)
    found.check(work)
    assert [(t.source, t.to_unit) for t in found.transfers] == [(CALLER, "npu"), (0, "npu")]
    assert found.makespan == 5.0


def test_what_is_too_large_for_a_search_is_said_and_scheduled_anyway():
    work = random_work(3, 90, 4)
    with pytest.raises(ParameterError, match="too large"):
        exact(work, nodes=2_000)
    found = choose(work)
    found.check(work)
    assert found.by in ("heft", "search")
    assert not found.exact


def test_ties_go_to_the_unit_that_the_user_prefers():
    for units in (("npu", "cpu"), ("cpu", "npu")):
        work = Work((Task("a", {"npu": 1.0, "cpu": 1.0}),), units, lambda a, b, nbytes: 0.0)
        assert choose(work).units == units[:1]
        assert heft(work).units == units[:1]
