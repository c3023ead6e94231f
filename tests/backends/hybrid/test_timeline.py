"""Timelines: every task, transfer and measurement is there, as text and in the picture."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest

from nxjax.backends.hybrid.choose import choose
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task, Work
from nxjax.backends.hybrid.timeline import svg, text
from tests.backends.hybrid.works import random_work

SPACE = "{http://www.w3.org/2000/svg}"
WORK = Work(
    (
        Task("conv <&> 3x3", {"npu": 1e-3, "cpu": 4e-3}, {"npu": 0.5}, after=(Edge(CALLER, 8),)),
        Task("sort", {"cpu": 5e-4}, after=(Edge(0, 3_000_000),)),
    ),
    ("npu", "cpu"),
    lambda a, b, nbytes: 2.5e-4,
    results=(Edge(1, 8),),
    memory={"cpu": HOST},
)


@dataclass
class Span:
    job: int
    unit: str
    lane: int
    start: float
    moved: float
    finish: float
    outcome: str = "done"


RAN = (
    Span(0, "npu", 0, 7.0, 7.0001, 7.0012, "late"),
    Span(0, "cpu", 0, 7.0012, 7.0012, 7.0035),
    Span(1, "cpu", 0, 7.0035, 7.0035, 7.0041),
)


def tips(picture: str) -> list[str]:
    root = ET.fromstring(picture)
    assert root.find(f"{SPACE}title") is not None
    return [t.text or "" for g in root.iter(f"{SPACE}g") for t in g.iter(f"{SPACE}title")]


def words(picture: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(picture).iter(f"{SPACE}text")]


def test_measured_spans_stand_beside_estimates():
    assert text(WORK, choose(WORK), RAN, width=41) == "\n".join(
        [
            "latency: 2 ms from call to result; measured 4.1 ms (chain, no schedule is better)",
            "     task          unit   start  estimate  measured",
            "  0  conv <&> 3x3  npu   250 µs      1 ms  2.3 ms on cpu",
            "  1  sort          cpu   1.5 ms    500 µs  600 µs",
            "estimate (=) and measured (~): 0 to 4.1 ms",
            "  npu      =|..0000000000.............................|",
            "  npu      ~|>!!!!!!!!!!!.............................|",
            "  cpu      =|...............11111.....................|",
            "  cpu      ~|............00000000000000000000000111111|",
            "  npu link  |>>..........<<<..........................|",
        ]
    )


def test_the_picture_has_every_task_and_transfer():
    found = choose(WORK)
    said = tips(svg(WORK, found, RAN))
    assert "conv <&> 3x3 on npu: 1 ms estimated, from 250 µs on, 0.5 J" in said
    assert "argument 0, 8 B from host to npu: 250 µs estimated" in said
    assert "conv <&> 3x3 (value 0), 2.86 MiB from npu to host: 250 µs estimated" in said
    assert "inputs of conv <&> 3x3 to npu: 100 µs measured" in said
    assert "conv <&> 3x3 on npu: 1.1 ms measured, from 100 µs on, 1 ms estimated (late)" in said
    assert "sort on cpu: 600 µs measured, from 3.5 ms on, 500 µs estimated" in said
    shown = words(svg(WORK, found, RAN))
    assert {"npu", "cpu", "measured", "npu link", "0", "failed, late or given up"} <= set(shown)
    assert "moving inputs" not in words(svg(WORK, found))
    assert "prefers-color-scheme" in svg(WORK, found, alone=True)
    assert "prefers-color-scheme" not in svg(WORK, found)


def test_what_differs_much_has_an_axis_of_its_own():
    slow = tuple(Span(s.job, s.unit, 0, 100 * s.start, 100 * s.moved, 100 * s.finish) for s in RAN[1:])
    shown = words(svg(WORK, choose(WORK), slow))
    assert [w for w in shown if w.endswith("ms") and len(w) < 8] == ["2 ms", "250 ms"]
    assert "measured" in shown and "estimated" in shown
    assert "measured: 0 to 290 ms" in text(WORK, choose(WORK), slow)


def test_inputs_in_flight_are_shown():
    work = Work((Task("a", {"npu": 3.0}), Task("b", {"cpu": 3.0}, after=(Edge(0, 1),))), ("npu", "cpu"),
                lambda a, b, nbytes: 0.0, memory={"cpu": HOST})  # fmt: skip
    found = choose(work, "throughput")
    lines = text(work, found, width=15).splitlines()
    assert "an input every 3 s (0.333 per second), 2 in flight" in lines[0]
    assert lines[-3:] == ["estimate: 0 to 15 s, 4 inputs", "  npu |000111222333...|", "  cpu |...000111222333|"]
    assert {"input 0", "input 3"} <= set(words(svg(work, found)))
    assert "input 5" in words(svg(work, found, items=6))
    assert "input 1" not in words(svg(work, found, items=1))


@pytest.mark.parametrize("count", [1, 200])
def test_few_and_many_tasks_fit(count):
    work = random_work(3, count, 4)
    found = choose(work)
    root = ET.fromstring(svg(work, found, width=700))
    bars = [r for g in root.iter(f"{SPACE}g") for r in g.iter(f"{SPACE}rect")]
    assert len(found.transfers) > 0
    assert len(bars) == len(found.slots) + len(found.transfers)
    for r in bars:
        assert 0 <= float(r.get("x")) <= float(r.get("x")) + float(r.get("width")) <= 700
        assert 0 <= float(r.get("y")) <= float(root.get("height"))
    assert len(text(work, found).splitlines()) >= count + 3
