"""Bytes on each tile, by hand on tiny systems; and the error that names who is to blame."""

import numpy as np
import pytest

from nxjax.backends.ipu.exchange import Exchange
from nxjax.backends.ipu.memory import EXECUTE_BYTES, MESSAGE_BYTES, PHASE_BYTES, STACK_BYTES, measure
from nxjax.errors import MemoryLimitError, TileMemoryError, user_source
from nxjax.lower.ipu.mapping import single
from nxjax.lower.ipu.program import Call, Execute, FieldConnection, Group, IpuProgram, Repeat, Variable
from tests.backends.ipu.toys import Sum, add, boxes, toy_system, variable


def measured(program):
    e = Exchange(program.system)
    known = {}

    def traffic(step):
        if id(step) not in known:
            known[id(step)] = (e.of_execute(step) if isinstance(step, Execute) else e.of_copy(step)).footprint()
        return known[id(step)]

    return measure(program, e, traffic)


def test_by_hand():
    # x -> a -> b -> y, 4 floats on each of 4 tiles.
    x, y = variable("x", (16,), role="input"), variable("y", (16,), role="output")
    a, b = variable("a", (16,)), variable("b", (16,))
    use = measured(IpuProgram("p", toy_system(), (x,), (y,), (add(x, a), add(a, b), add(b, y))))
    assert use.kinds["always"].tolist() == [32] * 4
    # One codelet of 64 bytes, three compute sets.
    assert use.kinds["code"].tolist() == [64 + 3 * EXECUTE_BYTES] * 4
    # Two fields, no attributes: 16 bytes a vertex.
    assert use.kinds["vertices"].tolist() == [3 * 16] * 4
    assert use.kinds["stacks"].tolist() == [STACK_BYTES] * 4
    assert use.kinds["temporary"].tolist() == [32] * 4
    assert use.kinds["exchange"].tolist() == [0] * 4
    assert [m.live for m in use.moments] == [64, 128, 64]
    assert use.peak == 32 + 64 + 72 + 48 + 2048 + 32 and use.fits and use.total == 4 * use.peak
    assert use.fullest.name == "add" and [h.name for h in use.held()] == ["x", "y", "a", "b"]


def test_exchange_buffers_and_their_code():
    # Every tile sums up all of x: 8 floats, 2 per tile.
    x, y = variable("x", (8,), role="input"), variable("y", (4,), role="output")
    g = Group(
        Sum(),
        np.arange(4, dtype=np.int32),
        {"x": FieldConnection(x, boxes([0] * 4, (8,), (1,))), "y": FieldConnection(y, y.pieces[0].boxes)},
    )
    use = measured(IpuProgram("p", toy_system(), (x,), (y,), (Execute("sum", (g,)),)))
    assert use.kinds["exchange"].tolist() == [32] * 4
    # Three messages come in, one goes out to all who want it.
    assert use.kinds["code"].tolist() == [32 + EXECUTE_BYTES + PHASE_BYTES + 4 * MESSAGE_BYTES] * 4
    assert "exchange buffers of 'sum'" in [h.name for h in use.held()]


def test_functions_are_held_once_and_loops_keep_what_they_carry():
    x, y = variable("x", (16,), role="input"), variable("y", (16,), role="output")
    a, b = variable("a", (16,)), variable("b", (16,))
    body = (add(a, b), add(b, a))
    looped = measured(IpuProgram("p", toy_system(), (x,), (y,), (add(x, a), Repeat(5, body), add(a, y))))
    called = IpuProgram("p", toy_system(), (x,), (y,), (add(x, a), Call("f"), Call("f"), add(a, y)), {"f": body})
    twice = measured(called)
    assert looped.kinds["code"].tolist() == twice.kinds["code"].tolist() == [64 + 4 * EXECUTE_BYTES] * 4
    assert len(twice.moments) == 6 and len(looped.moments) == 4
    # The first copy of a is not needed while b is, except that both are operands.
    assert [m.live for m in looped.moments] == [64, 128, 128, 64]


def test_too_much_names_the_tensors_and_lines():
    line = user_source()
    x = variable("x", (4,), role="input")
    big = Variable("big", (500,), np.dtype("float32"), single((500,), 2), source=line)
    small = Variable("small", (300,), np.dtype("float32"), single((300,), 2))
    y = variable("y", (4,), role="output")
    one = boxes([0], (4,), (1,))
    fill = lambda v: Execute(
        f"fill {v.name}",
        (
            Group(
                Sum(),
                np.asarray([2], np.int32),
                {"x": FieldConnection(x, one), "y": FieldConnection(v, boxes([0], (v.size,), (1,)))},
            ),
        ),
    )
    read = Group(
        Sum(),
        np.asarray([2, 2], np.int32),
        {"x": FieldConnection(big, boxes([0, 1], (300,), (1,))), "y": FieldConnection(y, boxes([2, 2], (), ()))},
    )
    both = Group(
        Sum(),
        np.asarray([2], np.int32),
        {"x": FieldConnection(small, boxes([0], (300,), (1,))), "y": FieldConnection(y, boxes([2], (), ()))},
    )
    steps = (fill(big), fill(small), Execute("read", (read, both)))
    use = measured(IpuProgram("p", toy_system(), (x,), (y,), steps))
    assert not use.fits and use.worst_tile == 2
    with pytest.raises(TileMemoryError) as caught:
        use.check()
    e = caught.value
    assert isinstance(e, MemoryLimitError) and e.tile == 2 and e.needed == use.peak and e.available == 4096
    text = str(e)
    assert [h.name for h in e.rows[:2]] == ["big", "small"]
    assert "big float32[500] (temporary): 2,000 of its 2,000 bytes" in text and "line = user_source()" in text
    assert "num_ipus=2" in text and "nx.checkpoint" in text and "smaller batch" in text and "available_memory" in text


def test_an_error_says_what_is_there_twice():
    x, y = variable("x", (3000,), role="input"), variable("y", (3000,), role="output")
    with pytest.raises(TileMemoryError, match=r"donate=\(\.\.\.\)"):
        measured(IpuProgram("p", toy_system(), (x,), (y,), (add(x, y),))).check()
    x.role = y.role = "state"
    with pytest.raises(TileMemoryError) as caught:
        measured(IpuProgram("p", toy_system(), (x,), (y,), (add(x, y),))).check()
    assert "donate" not in str(caught.value)


def test_words():
    x, y = variable("x", (16,), role="input"), variable("y", (16,), role="output")
    a = variable("a", (16,))
    use = measured(IpuProgram("p", toy_system(), (x,), (y,), (add(x, a), add(a, y))))
    assert "tile memory" in str(use) and "temporaries" in use.liveness()
    assert use.to_dict()["peak"] == use.peak
    assert use._repr_html_().count("<svg") == 2
