"""Cycles by hand on tiny systems: workers, attributes, loops, what a report says of them."""

import heapq
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.ipu.cycles import CALL_CYCLES, LOOP_CYCLES, host_cycles, tile_cycles, vertex_cycles
from nxjax.backends.ipu.engine import IpuEngine
from nxjax.backends.ipu.model import CycleModel
from nxjax.errors import user_source
from nxjax.kernels.ipu.host import MeaningLibrary
from nxjax.kernels.ipu.spec import Attribute, Codelet, Field
from nxjax.lower.ipu.mapping import single
from nxjax.lower.ipu.program import (
    Call,
    Copy,
    Execute,
    FieldConnection,
    Group,
    IpuProgram,
    Repeat,
    Switch,
    Variable,
    While,
)
from tests.backends.ipu.toys import Add, Less, Sum, add, boxes, toy_system, variable

CHIP = toy_system().chip


def test_vertices_of_all_workers_run_one_after_the_other():
    x, y = variable("x", (8,), 2), variable("y", (8,), 2)
    # Two tiles with four elements each, in two vertices of two.
    two = boxes([0, 2, 4, 6], (2,), (1,))
    g = Group(Add(), np.asarray([0, 0, 1, 1], np.int32), {"x": FieldConnection(x, two), "y": FieldConnection(y, two)})
    assert tile_cycles(Execute("add", (g,)), CHIP, 4).tolist() == [40, 40, 0, 0]


def test_vertices_of_one_worker_share_the_tile():
    # Seven vertices of 12 cycles on tile 0: one worker has two.
    x, y = (
        Variable("x", (14,), np.dtype("float32"), single((14,))),
        Variable("y", (7,), np.dtype("float32"), single((7,))),
    )
    g = Group(
        Sum(),
        np.zeros(7, np.int32),
        {"x": FieldConnection(x, boxes(range(0, 14, 2), (2,), (1,))), "y": FieldConnection(y, boxes(range(7), (), ()))},
    )
    assert tile_cycles(Execute("sum", (g,)), CHIP, 4)[0] == 24
    # With a long one of 84, which keeps one worker busy, the others fit beside it.
    z = Variable("z", (), np.dtype("float32"), single(()))
    long = Group(
        Sum(),
        np.zeros(1, np.int32),
        {"x": FieldConnection(x, boxes([0], (14,), (1,))), "y": FieldConnection(z, boxes([0], (), ()))},
    )
    assert tile_cycles(Execute("sum", (g, long)), CHIP, 4)[0] == 84


class Spin(Codelet):
    """As many cycles as its attribute says."""

    name = "toy::Spin"  # type: ignore[assignment]
    fields = (Field("y", "out", "float32"),)  # type: ignore[assignment]
    attributes = (Attribute("n", "unsigned"),)  # type: ignore[assignment]
    source = ""  # type: ignore[assignment]
    asked = 0

    def meaning(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]):
        return {"y": np.zeros_like(arrays["y"])}

    def cycles(self, sizes, attributes, chip):
        Spin.asked += 1
        return 3 * int(attributes["n"])


def test_attributes_are_asked_once_for_equal_vertices():
    y = variable("y", (100,), 4)
    g = Group(
        Spin(),
        np.arange(100, dtype=np.int32) % 4,
        {"y": FieldConnection(y, boxes(range(100), (), ()))},
        {"n": np.arange(100) % 5},
    )
    assert vertex_cycles(g, CHIP).tolist() == [3 * (i % 5) for i in range(100)]
    assert Spin.asked == 5


def loops() -> IpuProgram:
    x, y = variable("x", (16,), role="input"), variable("y", (16,), role="output")
    a = variable("a", (16,))
    zero = Variable("zero", (), np.dtype("int32"), single(()), "constant", np.zeros((), np.int32))
    i, p = Variable("i", (), np.dtype("int32"), single(())), Variable("p", (), np.dtype("bool"), single(()))
    one = boxes([0], (), ())
    less = Execute(
        "less", (Group(Less(4), np.zeros(1, np.int32), {"x": FieldConnection(i, one), "y": FieldConnection(p, one)}),)
    )
    work = (add(x, a, source=user_source(), scope="layer"),)
    steps = (
        Copy(((zero.view(), i.view()),)),
        Repeat(3, (Call("f"),)),
        While((less,), p, work),
        Switch(zero, ((add(a, y),), (add(a, y), add(a, y)))),
    )
    return IpuProgram("loops", toy_system(), (x,), (y,), steps, {"f": (add(x, a),)})


def test_loops_are_counted_as_they_ran():
    program = loops()
    model, engine = CycleModel(program), IpuEngine(program, MeaningLibrary())
    assert not model.cycles.measured and "counted once" in str(model)
    engine.run([np.zeros(16, np.float32)])
    c = model.counted(engine.counts)
    assert c.measured
    # 40 cycles for four elements: three rounds, four, and one; five tests of 6.
    assert c.compute == 40 * (3 + 4 + 1) + 5 * 6
    # Five tests and a choice: 100 for the sync, one to send a word, 40 to read it.
    assert c.control == 3 * LOOP_CYCLES + 3 * CALL_CYCLES + 6 * 40 and c.sync == 600 and c.exchange == 6
    # One element of the copy, on its own tile.
    assert c.copying == 1
    assert c.device == c.compute + c.control + 606 + 1 and c.total == c.device + c.host
    # 64 bytes in and 64 out, at 32 bytes a cycle.
    assert c.host == host_cycles(program) == 4
    assert c.flops == 16 * 8
    assert c.busy.tolist() == [40 * 8 + 30] + [320] * 3
    assert c.mean == c.busy.mean()


def test_rows_by_line_op_and_scope():
    model = CycleModel(loops())
    layer = next(r for r in model.cycles.rows() if r.scope == "layer")
    assert layer.source is not None and layer.source.function == "loops" and layer.cycles == 40
    assert sum(r.cycles for r in model.cycles.rows()) == model.cycles.device
    assert {r.name for r in model.cycles.rows("op")} >= {"add", "less", "repeat", "call", "while", "switch"}
    assert {r.scope for r in model.cycles.rows("scope")} == {"", "layer"}
    assert "layer/add" in str(model) and "test_cycles.py" in str(model)


def test_unknown_loops_run_once_and_branches_the_longest_way():
    c = CycleModel(loops()).cycles
    # f three times; the loop's body once; both steps of the longer branch; two tests.
    assert c.compute == 40 * (3 + 1 + 2) + 2 * 6


def test_what_stays_is_not_streamed():
    x = variable("x", (16,), role="state")
    y = variable("y", (16,), role="input")
    z = variable("z", (16,))
    p = IpuProgram("p", toy_system(), (x, y), (x,), (add(y, z), Copy(((z.view(), x.view()),))), aliases={0: 0})
    assert host_cycles(p) == 2


def test_pictures_and_traces_of_a_run():
    model = CycleModel(loops())
    svg = model.svg()
    assert svg.count("<svg") == 3 and "compute" in svg and "tile 3" in svg
    events = json.loads(model.trace())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["cat"] for e in spans} >= {"compute", "sync", "exchange", "control"}
    ends = [e["ts"] + e["dur"] for e in spans]
    assert all(abs(a - e["ts"]) < 1e-9 for a, e in zip(ends, spans[1:], strict=False))
    assert abs(ends[-1] - model.cycles.device / 1e9 * 1e6) < 1e-6
    json.dumps(model.to_dict())
    assert "execute add" in model.hlo and "repeat 3:" in model.hlo


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=4))
def test_workers_get_the_longest_first(kinds: list[tuple[int, int]]):
    groups, jobs = [], []
    for n, many in kinds:
        x = Variable("x", (n,), np.dtype("float32"), single((n,)))
        y = Variable("y", (many,), np.dtype("float32"), single((many,)))
        edges = {
            "x": FieldConnection(x, boxes([0] * many, (n,), (1,))),
            "y": FieldConnection(y, boxes(range(many), (), ())),
        }
        groups.append(Group(Sum(), np.zeros(many, np.int32), edges))
        jobs += [6 * n] * many
    workers = [0] * 6
    for job in sorted(jobs, reverse=True):
        heapq.heapreplace(workers, workers[0] + job)
    assert tile_cycles(Execute("sum", tuple(groups)), CHIP, 4)[0] == max(workers)
