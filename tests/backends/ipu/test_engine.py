"""The engine computes what the interpreter computes; state stays; threads and interrupts do no harm."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.ipu.engine import IpuEngine
from nxjax.errors import ExecutionError
from nxjax.kernels.ipu.host import CodeletRunner, MeaningLibrary
from nxjax.lower.ipu.interpret import IpuInterpreter
from nxjax.lower.ipu.program import Copy, Execute, FieldConnection, Group, IpuProgram, Repeat
from tests.backends.ipu.programs import SIZE, programs
from tests.backends.ipu.toys import Sum, add, boxes, plus, toy_system, variable

MEANINGS = MeaningLibrary()
X = np.arange(SIZE, dtype=np.float32)


@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(0, 100))
def test_engine_is_the_interpreter(program, seed):
    rng = np.random.default_rng(seed)
    engine, oracle = IpuEngine(program, MEANINGS), IpuInterpreter(program)
    for _ in range(2):
        xs = [rng.normal(size=SIZE).astype(np.float32) for _ in program.inputs]
        for got, wanted in zip(engine.run(xs), oracle.run(xs), strict=True):
            np.testing.assert_array_equal(got, wanted)


def counting() -> IpuProgram:
    """state += 1 three times; y = state + x."""
    s = variable("s", (SIZE,), role="state", value=np.zeros(SIZE, np.float32))
    t, x, y = variable("t", (SIZE,)), variable("x", (SIZE,), role="input"), variable("y", (SIZE,), role="output")
    body = (add(s, t), Copy(((t.view(), s.view()),)))
    return IpuProgram("count", toy_system(), (x,), (y,), (Repeat(3, body), plus(s, x, y)))


def test_state_stays_between_runs():
    engine = IpuEngine(counting(), MEANINGS)
    assert engine.run([X])[0].tolist() == (X + 3).tolist()
    assert engine.run([X])[0].tolist() == (X + 6).tolist()


def test_two_engines_give_equal_results():
    a, b = IpuEngine(counting(), MEANINGS), IpuEngine(counting(), MEANINGS)
    assert a.run([X])[0].tobytes() == b.run([X])[0].tobytes()


def test_bodies_are_counted():
    program = counting()
    engine = IpuEngine(program, MEANINGS)
    engine.run([X])
    repeat = program.steps[0]
    assert isinstance(repeat, Repeat)
    assert engine.counts == {id(program.steps): 1, id(repeat.body): 3}


def test_threads_take_turns():
    engine = IpuEngine(counting(), MEANINGS)
    seen = []

    def work():
        for _ in range(20):
            seen.append(float(engine.run([X])[0][0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == [3.0 * (i + 1) for i in range(80)]


def test_an_interrupted_run_leaves_the_state_as_it_was():
    runs = 0

    class Interrupted(CodeletRunner):
        def prepare(self, codelet, count, fields, attributes):
            launch = MEANINGS.prepare(codelet, count, fields, attributes)

            def interrupted():
                nonlocal runs
                runs += 1
                if runs == 3:
                    raise KeyboardInterrupt
                launch()

            return interrupted

        def copies(self, pairs):
            return MEANINGS.copies(pairs)

    engine = IpuEngine(counting(), Interrupted())
    with pytest.raises(KeyboardInterrupt):
        engine.run([X])
    assert engine.run([X])[0].tolist() == (X + 3).tolist()


def test_inputs_are_checked():
    engine = IpuEngine(counting(), MEANINGS)
    with pytest.raises(ExecutionError, match="wrong number"):
        engine.run([])
    with pytest.raises(ExecutionError, match="another type"):
        engine.run([X.astype(np.float64)])
    with pytest.raises(ExecutionError, match="needs a value"):
        engine.run([None])


def test_irregular_boxes():
    x = variable("x", (16,), role="input")
    y = variable("y", (3,), 3, "output")
    at = boxes([9, 1, 4], (2, 2), (2, 1))
    g = Group(
        Sum(), np.arange(3, dtype=np.int32), {"x": FieldConnection(x, at), "y": FieldConnection(y, y.pieces[0].boxes)}
    )
    program = IpuProgram("p", toy_system(), (x,), (y,), (Execute("sum", (g,)),))
    v = np.arange(16, dtype=np.float32)
    assert IpuEngine(program, MEANINGS).run([v])[0].tolist() == v[at.elements()].sum((1, 2)).tolist()
