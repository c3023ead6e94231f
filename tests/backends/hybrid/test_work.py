"""What is said of works that no algorithm can take."""

import math

import pytest

from nxjax.backends.hybrid.choose import choose
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task, Work
from nxjax.errors import ParameterError


def work(*tasks: Task, units=("npu", "cpu"), transfer=lambda a, b, nbytes: 0.1, **more) -> Work:
    return Work(tasks, units, transfer, **more)


ON = {"cpu": 1.0}
WRONG = {
    "no unit": (work(Task("a", ON), units=()), "no unit"),
    "unit twice": (work(Task("a", ON), units=("cpu", "cpu")), "named twice"),
    "unit host": (work(Task("a", {HOST: 1.0}), units=(HOST,)), "caller's memory"),
    "nobody runs it": (work(Task("sort", {"gpu": 1.0})), "no unit can run task 0, 'sort'"),
    "negative": (work(Task("a", {"cpu": -1.0})), "seconds of task 0"),
    "no number": (work(Task("a", {"cpu": math.nan})), "seconds of task 0"),
    "endless": (work(Task("a", {"cpu": math.inf})), "seconds of task 0"),
    "joules": (work(Task("a", ON, {"cpu": math.nan})), "joules of task 0"),
    "lanes": (work(Task("a", ON), lanes={"cpu": 0}), "lanes of unit 'cpu'"),
    "no such task": (work(Task("a", ON, after=(Edge(7, 1),))), "a task that does not exist"),
    "result of the caller": (work(Task("a", ON), results=(Edge(CALLER, 1),)), "the caller needs"),
    "bytes": (work(Task("a", ON, after=(Edge(CALLER, -1),))), "bytes of value 0"),
    "two sizes": (work(Task("a", ON), results=(Edge(0, 1), Edge(0, 2))), "two sizes"),
    "circle": (
        work(Task("a", ON, after=(Edge(1, 1),)), Task("b", ON, after=(Edge(0, 1),))),
        "in a circle.*'a', 'b'",
    ),
    "itself": (work(Task("a", ON, after=(Edge(0, 1),))), "in a circle"),
    "order": (work(Task("a", ON, after=(Edge(1, 1),)), Task("b", ON)), "is before"),
    "transfer": (
        work(Task("a", ON, after=(Edge(CALLER, 1),)), transfer=lambda a, b, nbytes: -0.1),
        "seconds of a transfer from",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name):
    made, said = WRONG[name]
    with pytest.raises(ParameterError, match=f"(?s){said}"):
        choose(made)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"objective": "speed"}, "no such objective"),
        ({"deadline": 0.0}, "the deadline"),
        ({"deadline": math.nan}, "the deadline"),
        ({"deadline": 0.5}, "meets the deadline"),
        ({"deadline": 0.5, "objective": "throughput"}, "meets the deadline"),
        ({"deadline": 0.5, "objective": "energy"}, "meets the deadline"),
    ],
)
def test_what_cannot_be_asked_for_is_said(more, said):
    with pytest.raises(ParameterError, match=said) as error:
        choose(work(Task("a", ON, {"cpu": 1.0})), **more)
    if "meets" in said:
        assert "1 s, what the fastest" in str(error.value)


def test_no_tasks_is_a_schedule_too():
    for objective in ("latency", "throughput", "energy"):
        found = choose(work(), objective)
        found.check(work())
        assert (found.slots, found.makespan, found.inflight) == ((), 0.0, 1)
