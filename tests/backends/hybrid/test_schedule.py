"""`Schedule.check` finds what is damaged, and what algorithms give has none of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.hybrid.choose import choose
from nxjax.backends.hybrid.schedule import CALLER, HOST, OBJECTIVES, Edge, Task, Work
from nxjax.errors import ParameterError
from tests.backends.hybrid.works import random_work

WORK = Work(
    (
        Task("a", {"npu": 1.0, "cpu": 9.0}, after=(Edge(CALLER, 1),)),
        Task("b", {"npu": 9.0, "cpu": 1.0}, after=(Edge(0, 2),)),
        Task("c", {"npu": 1.0, "cpu": 9.0}, after=(Edge(0, 2), Edge(1, 1))),
    ),
    ("npu", "cpu"),
    lambda a, b, nbytes: 0.25 * nbytes,
    results=(Edge(2, 1),),
    memory={"cpu": HOST},
)
GOOD = choose(WORK)


def slot(i, **more):
    return replace(GOOD, slots=tuple(replace(s, **more) if s.task == i else s for s in GOOD.slots))


def transfer(k, **more):
    return replace(GOOD, transfers=tuple(replace(t, **more) if j == k else t for j, t in enumerate(GOOD.transfers)))


DAMAGES = {
    "a task is missing": (replace(GOOD, slots=GOOD.slots[1:]), "not the tasks"),
    "a task is twice": (replace(GOOD, slots=(*GOOD.slots, GOOD.slots[0])), "not the tasks"),
    "no such unit": (slot(1, unit="gpu"), "cannot run it"),
    "no such lane": (slot(1, lane=1), "a lane that there is not"),
    "too short": (slot(1, finish=1.5), "wrong length"),
    "before the call": (slot(0, start=-1.0, finish=0.0), "wrong length"),
    "before its values": (slot(1, start=0.5, finish=1.5), "does not have value 0 of task 0"),
    "two at one time": (slot(2, start=0.5, finish=1.5), "does not have value|two things"),
    "nothing moves": (replace(GOOD, transfers=()), "does not have value"),
    "the caller waits for ever": (replace(GOOD, transfers=GOOD.transfers[:-1]), "the caller does not have"),
    "moved before it is made": (transfer(1, start=0.5, finish=1.0), "before the value is in 'npu'"),
    "moved too fast": (transfer(0, finish=0.0), "wrong length"),
    "of another size": (transfer(0, nbytes=5), "wrong size"),
    "moved twice": (replace(GOOD, transfers=(*GOOD.transfers, GOOD.transfers[0])), "twice"),
    "past the host": (transfer(0, from_unit="cpu"), "host's memory"),
    "inputs meet": (replace(GOOD, interval=0.5), "two things at one time"),
    "no interval": (replace(GOOD, interval=0.0), "interval"),
}  # fmt: skip


def test_the_schedule_is_what_it_should_be():
    GOOD.check(WORK)
    assert GOOD.assignment() == ("npu", "cpu", "npu")
    # In, a, out, b, in, c, out: what c needs of a is there already.
    assert GOOD.makespan == 0.25 + 1 + 0.5 + 1 + 0.25 + 1 + 0.25
    assert [(t.source, t.from_unit, t.to_unit) for t in GOOD.transfers] == [
        (CALLER, HOST, "npu"),
        (0, "npu", HOST),
        (1, HOST, "npu"),
        (2, "npu", HOST),
    ]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(name):
    damaged, said = DAMAGES[name]
    with pytest.raises(ParameterError, match=said):
        damaged.check(WORK)


def test_links_are_checked():
    two = Work(
        tuple(Task(n, {n: 1.0}, after=(Edge(CALLER, 1, k),)) for k, n in enumerate(("npu", "gpu"))),
        ("npu", "gpu"),
        lambda a, b, nbytes: 1.0,
    )
    both = choose(two)
    both.check(two)
    assert both.makespan == 2.0
    with pytest.raises(ParameterError, match="link 0 of 'usb' does two things"):
        both.check(replace(two, links={"npu": "usb", "gpu": "usb"}))
    assert choose(replace(two, links={"npu": "usb", "gpu": "usb"})).makespan == 3.0


def test_units_that_share_a_processor_take_turns():
    tasks = (Task("a", {"cpu": 1.0}), Task("b", {"xla": 1.0}), Task("c", {"npu": 1.0}))
    work = Work(tasks, ("cpu", "xla", "npu"), lambda a, b, nbytes: 0.0, lanes={"cpu": 3})
    both = choose(work)
    both.check(work)
    assert both.makespan == 1.0
    shared = replace(work, processors={"cpu": "cores", "xla": "cores"})
    assert (shared.lanes_of("cpu"), shared.lanes_of("npu")) == (1, 1)
    with pytest.raises(ParameterError, match="lane 0 of 'cores' does two things"):
        both.check(shared)
    for objective in ("latency", "throughput"):
        found = choose(shared, objective)
        found.check(shared)
        assert found.interval == 2.0 and found.exact


@settings(max_examples=24)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.sampled_from(sorted(OBJECTIVES)))
def test_random_works_get_schedules_that_hold(seed, count, units, chain, objective):
    work = random_work(seed, count, units, chain=chain)
    found = choose(work, objective)
    found.check(work)
    assert found.objective == objective
    assert found.joules is not None
    several = found.unrolled(work, 3)
    assert len(several.slots) == 3 * len(work.tasks)
    assert several.joules == pytest.approx(3 * found.joules)
    assert several.makespan == pytest.approx(found.makespan + 2 * found.interval)


def test_the_same_work_gives_the_same_schedule():
    work = random_work(11, 9)
    assert choose(work) == choose(work)
