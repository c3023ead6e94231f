"""Schedules keep their order and have the bubbles and the memory that the papers give."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.errors import ParameterError
from nxjax.lower.pipeline.schedule import KINDS, StageTask, order, timed


@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 9), st.booleans())
def test_every_task_once_and_after_what_it_needs(kind, stages, micros, backward):
    tasks = order(kind, stages, micros, backward)
    line = timed(tasks, [1.0] * stages, [2.0] * stages, [0.25] * (stages - 1))
    seen = {s.task: s for row in line.slots for s in row}
    assert len(seen) == stages * micros * (1 + backward)
    for row in line.slots:
        assert all(a.end <= b.begin for a, b in itertools.pairwise(row))
    for task, slot in seen.items():
        if task.direction == "forward" and task.stage:
            assert slot.begin >= seen[StageTask(task.stage - 1, task.micro, "forward")].end + 0.25
        if task.direction == "backward" and task.stage + 1 < stages:
            assert slot.begin >= seen[StageTask(task.stage + 1, task.micro, "backward")].end + 0.25


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stages", "micros"), [(2, 4), (4, 4), (4, 16), (8, 8)])
def test_bubble_of_equal_stages(kind, stages, micros):
    """(p - 1) / (m + p - 1), Huang et al. 2018, for both schedules."""
    line = timed(order(kind, stages, micros), [1.0] * stages, [2.0] * stages)
    assert line.bubble == pytest.approx((stages - 1) / (micros + stages - 1))
    assert line.span == pytest.approx(3 * (micros + stages - 1))


def test_micro_batches_in_flight():
    gpipe = timed(order("gpipe", 4, 10), [1.0] * 4, [1.0] * 4)
    one = timed(order("1f1b", 4, 10), [1.0] * 4, [1.0] * 4)
    assert [gpipe.in_flight(s) for s in range(4)] == [10] * 4
    assert [one.in_flight(s) for s in range(4)] == [4, 3, 2, 1]


def test_uneven_stages_wait_for_the_slowest():
    line = timed(order("1f1b", 3, 20), [1.0, 5.0, 1.0], [1.0, 5.0, 1.0])
    assert line.span == pytest.approx(20 * 10, rel=0.1)


def test_pictures_and_errors():
    picture = timed(order("gpipe", 2, 2), [1.0, 1.0], [1.0, 1.0]).svg()
    assert picture.startswith("<svg") and picture.count("<rect") == 8 and "bubble 33.3%" in picture
    for wrong in [("zigzag", 2, 2), ("gpipe", 0, 2), ("1f1b", 2, 0)]:
        with pytest.raises(ParameterError):
            order(*wrong)
