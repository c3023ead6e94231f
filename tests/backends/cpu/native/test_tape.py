"""Tapes: every kind of step, nested at random, against the interpreter; words, loops, aliases, two runs at once."""

import ctypes
import gc
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.backends.cpu.native import tape as tapes
from nxjax.backends.cpu.native.abi import NO_MEMORY, OK
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.backends.cpu.native.tape import Tape
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.tape import (
    BranchStep,
    Buffer,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    HostStep,
    Ref,
    RepeatStep,
    WhileStep,
)
from nxjax.lower.cpu.times import chunk_of, is_parallel
from nxjax.trace.types import ArrayType
from tests.backends.cpu.native.kernels import Add, Affine, Busy, Less

INT = np.dtype("int64")


def rows(n):
    return ArrayType((n,), INT)


def program(steps, ins, outs, consts=()):
    """A planned program of buffers of int64; nothing is optimized."""
    top = 0
    for buffer in temporaries(steps):
        buffer.offset = top
        top += -(-buffer.nbytes // 64) * 64
    types = tuple(rows(b.nbytes // 8) for b in ins), tuple(rows(b.nbytes // 8) for b in outs)
    return CpuProgram(*types, list(ins), list(outs), list(consts), steps, top)


def temporaries(steps):
    found = {}
    for step in steps:
        for ref in (*step.reads(), *step.writes()):
            if ref.buffer.kind == "temp":
                found[ref.buffer] = None
        for body in step.bodies():
            found.update(temporaries(body))
    return dict(found)


def machine(p):
    """A function of arrays that runs the tape of ``p``."""
    t = Tape(p, engine(isa.current()), runtime())

    def call(*xs):
        ys = [np.full(max(b.nbytes // 8, 1), -77, np.int64)[: b.nbytes // 8] for b in p.outputs]
        ins = (ctypes.c_void_p * (len(xs) or 1))(*(x.ctypes.data for x in xs))
        outs = (ctypes.c_void_p * (len(ys) or 1))(*(y.ctypes.data for y in ys))
        status = runtime().run(t.address, ins, outs)
        assert status == OK, status
        return ys

    call.tape = t
    return call


def temp(n):
    return Buffer(8 * n, "temp")


# --- each kind of step ---


def test_calls_copies_and_constants():
    x, y = Buffer(80, "input", 0), Buffer(80, "output", 0)
    a, b, c = temp(10), temp(10), Buffer(80, "const", 0)
    steps = [
        CallStep(Affine(10, 3, 1), (Ref(x),), (Ref(a),)),
        CallStep(Add(10), (Ref(a), Ref(c)), (Ref(b),)),
        CopyStep(Ref(b, 16), Ref(y), 64),
        CopyStep(Ref(x), Ref(y, 64), 16),
    ]
    run = machine(program(steps, [x], [y], [np.arange(10)]))
    for start in (0, 5):  # the second run has the first one's frame
        data = np.arange(start, start + 10)
        (got,) = run(data)
        np.testing.assert_array_equal(got, [*(data * 3 + 1 + np.arange(10))[2:], *data[:2]])


def test_integers_are_words():
    y = Buffer(80, "output", 0)
    run = machine(program([CallStep(Busy(10, 7), (), (Ref(y),))], [], [y]))
    np.testing.assert_array_equal(run()[0], Busy(10, 7).meaning()[0])


def test_large_kernels_and_copies_use_the_helpers_and_give_the_same():
    n = 3_000_017
    x, y, z = Buffer(8 * n, "input", 0), Buffer(8 * n, "output", 0), Buffer(8 * n, "output", 1)
    steps = [CallStep(Affine(n, 3, 1), (Ref(x),), (Ref(y),)), CopyStep(Ref(x), Ref(z), 8 * n)]
    run = machine(program(steps, [x], [y, z]))
    data = np.arange(n)
    for threads in (1, 2, 5):
        with config.using(num_threads=threads):
            before = runtime().thread_statistics()["regions"]
            got = run(data)
            np.testing.assert_array_equal(got[0], data * 3 + 1)
            np.testing.assert_array_equal(got[1], data)
            assert runtime().thread_statistics()["regions"] - before == (2 if threads > 1 else 0)


def test_small_kernels_stay_on_their_thread():
    x, y = Buffer(8000, "input", 0), Buffer(8000, "output", 0)
    run = machine(program([CallStep(Affine(1000, 3, 1), (Ref(x),), (Ref(y),))] * 50, [x], [y]))
    before = runtime().thread_statistics()["regions"]
    run(np.arange(1000))
    assert runtime().thread_statistics()["regions"] == before


def test_chunks_depend_on_items_and_grain_only():
    assert chunk_of(Affine(10)) == 10
    assert chunk_of(Affine(4096 * 512)) == 4096
    assert chunk_of(Affine(4096 * 513)) == 4096 + 8
    # Few pieces are an even number of one size.
    assert [chunk_of(Affine(4096 * n)) for n in (1, 2, 3, 4, 5, 9)] == [4096, 4096, 3072, 4096, 3414, 4096]
    assert not is_parallel(Affine(2 * 4096 - 1))
    assert is_parallel(Affine(4 * 4096))
    with config.using(num_threads=9):
        assert chunk_of(Affine(10**9)) == chunk_of(Affine(10**9))


def test_refs_move_in_nested_loops():
    """y[i, j] = 2 x[i, j] for rows of 4 items, with strides of its own, backwards too."""
    x, y = Buffer(8 * 60, "input", 0), Buffer(8 * 60, "output", 0)
    i, j = Counter(3), Counter(5)
    inner = [
        CallStep(Affine(4, 2), (Ref(x, 64, ((i, 160), (j, 32))),), (Ref(y, 8 * 56, ((i, -160), (j, -32))),)),
    ]
    steps = [CallStep(Affine(60, 0), (Ref(x),), (Ref(y),)), RepeatStep(i, [RepeatStep(j, inner)])]
    x.nbytes += 64
    run = machine(program(steps, [x], [y]))
    for _ in range(3):
        data = np.arange(68)
        wanted = (data[8:] * 2).reshape(15, 4)[::-1].ravel()
        np.testing.assert_array_equal(run(data)[0], wanted)


def test_a_loop_without_turns_does_nothing():
    x, y = Buffer(8, "input", 0), Buffer(8, "output", 0)
    c = Counter(0)
    steps = [CopyStep(Ref(x), Ref(y), 8), RepeatStep(c, [CallStep(Affine(1, 5), (Ref(y, 0, ((c, 8),)),), (Ref(y),))])]
    assert machine(program(steps, [x], [y]))(np.array([3]))[0] == [3]


def test_while():
    x, y, flag = Buffer(8, "input", 0), Buffer(8, "output", 0), temp(1)
    steps = [
        CopyStep(Ref(x), Ref(y), 8),
        WhileStep(
            [CallStep(Less(1000), (Ref(y),), (Ref(flag),))],
            Ref(flag),
            [CallStep(Affine(1, 2, 1), (Ref(y),), (Ref(y),))],
        ),
    ]
    run = machine(program(steps, [x], [y]))
    assert run(np.array([1]))[0] == [1023]
    assert run(np.array([5000]))[0] == [5000]


@pytest.mark.parametrize(("index", "case"), [(-(2**31), 2), (-1, 2), (0, 0), (1, 1), (2, 2), (3, 2), (2**31 - 1, 2)])
def test_branch(index, case):
    i, y = Buffer(8, "input", 0), Buffer(8, "output", 0)
    branches = [[CallStep(Affine(1, 0, n), (Ref(y),), (Ref(y),))] for n in (10, 11, 12)]
    run = machine(program([BranchStep(Ref(i), branches)], [i], [y]))
    assert run(np.array([index, 0], np.int32).view(np.int64))[0] == [10 + case]


def test_an_empty_program_and_empty_kernels():
    x, y = Buffer(0, "input", 0), Buffer(0, "output", 0)
    assert machine(program([], [], []))() == []
    steps = [CallStep(Affine(0), (Ref(x),), (Ref(y),)), CopyStep(Ref(x), Ref(y), 0)]
    assert machine(program(steps, [x], [y]))(np.zeros(0, np.int64))[0].size == 0


# --- at random, nested ---


@st.composite
def programs(draw):
    """Steps over a few buffers of 64 int64; loops, choices and conditions inside each other."""
    x, y, c = Buffer(512, "input", 0), Buffer(512, "output", 0), Buffer(512, "const", 0)
    temps = [temp(64) for _ in range(3)]
    counters = []

    def ref(buffers, n):
        """A place for n items, moving with the loops around as far as it stays inside."""
        buffer = draw(st.sampled_from(buffers))
        low = high = 0
        moves = []
        for counter in counters:
            stride = draw(st.sampled_from([0, 0, 8, 16, -8]))
            span = stride * max(counter.count - 1, 0)
            if stride and high + max(span, 0) - low - min(span, 0) <= 512 - 8 * n:
                low, high = low + min(span, 0), high + max(span, 0)
                moves.append((counter, stride))
        offset = draw(st.integers(-low // 8, (512 - 8 * n - high) // 8)) * 8
        return Ref(buffer, offset, tuple(moves))

    def block(depth):
        return [step(depth) for _ in range(draw(st.integers(1, 4)))]

    def step(depth):
        kinds = ["affine", "add", "copy"] + (["repeat", "branch", "while"] if depth else [])
        kind = draw(st.sampled_from(kinds))
        n = draw(st.integers(1, 16))
        if kind == "affine":
            return CallStep(Affine(n, draw(st.integers(-3, 3)), n), (ref([x, c, *temps], n),), (ref([*temps, y], n),))
        if kind == "add":
            return CallStep(Add(n), (ref([x, *temps], n), ref([c, *temps, y], n)), (ref([*temps, y], n),))
        if kind == "copy":
            return CopyStep(ref([x, c], n), ref([*temps, y], n), 8 * n)
        if kind == "repeat":
            counter = Counter(draw(st.integers(0, 5)))
            counters.append(counter)
            body = block(depth - 1)
            counters.pop()
            return RepeatStep(counter, body)
        if kind == "branch":
            return BranchStep(ref([x, c, *temps], 1), [block(depth - 1) for _ in range(draw(st.integers(1, 3)))])
        # A count of its own goes up by one each turn.
        number, flag = temp(1), temp(1)
        body = [CallStep(Affine(1, 1, 1), (Ref(number),), (Ref(number),)), *block(depth - 1)]
        loop = WhileStep([CallStep(Less(draw(st.integers(0, 4))), (Ref(number),), (Ref(flag),))], Ref(flag), body)
        once = Counter(1)
        return RepeatStep(once, [CallStep(Affine(1, 0, 0), (Ref(number),), (Ref(number),)), loop])

    start = [CallStep(Affine(64, 0, i), (Ref(x),), (Ref(b),)) for i, b in enumerate([*temps, y])]
    body = block(3)
    return program(start + body, [x], [y], [np.arange(64) * 7 % 5])


@settings(max_examples=150, deadline=None)
@given(programs())
def test_nested_programs_do_what_the_interpreter_does(p):
    data = np.arange(64) % 6 - 2
    (wanted,) = TapeInterpreter(p, engine(isa.current()))([data])
    run = machine(p)
    for _ in range(3):
        np.testing.assert_array_equal(run(data)[0], wanted)


# --- Python inside ---


def host(op, x, y, n):
    """A step by the meaning of a unary op on n int64."""
    from nxjax.trace.program import Equation, Var

    inside, outside = Var(rows(n)), Var(rows(n))
    return HostStep((Ref(x),), (Ref(y),), (rows(n),), (rows(n),), equation=Equation(op, (inside,), (outside,), {}))


class Op:
    """As much of an op as a Host step needs."""

    multi = False
    name = "test"
    aliases = {}

    def __init__(self, function):
        self.eval = function


@pytest.mark.parametrize("long", [False, True])
def test_host_steps(long, monkeypatch):
    if long:  # then the interpreter's lock is given back, and taken for the step
        monkeypatch.setattr(tapes, "LONG_NS", 0)
    x, y, t = Buffer(80, "input", 0), Buffer(80, "output", 0), temp(10)
    threads = []

    def double(a):
        threads.append(threading.get_ident())
        return a * 2

    c = Counter(4)
    steps = [
        CallStep(Affine(10, 1, 1), (Ref(x),), (Ref(t),)),
        RepeatStep(c, [host(Op(double), t, t, 10)]),
        CopyStep(Ref(t), Ref(y), 80),
    ]
    run = machine(program(steps, [x], [y]))
    np.testing.assert_array_equal(run(np.arange(10))[0], (np.arange(10) + 1) * 16)
    assert threads == [threading.get_ident()] * 4


@pytest.mark.parametrize("long", [False, True])
def test_an_exception_in_a_loop_leaves_nothing_behind(long, monkeypatch):
    if long:
        monkeypatch.setattr(tapes, "LONG_NS", 0)
    n = 20_000  # temporaries of their own block
    x, y, t = Buffer(8 * n, "input", 0), Buffer(8 * n, "output", 0), temp(n)
    calls = []

    def sometimes(a):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the third time")
        return a

    c = Counter(5)
    body = [
        CallStep(Affine(1, 1, 0), (Ref(x, 0, ((c, 8),)),), (Ref(y, 0, ((c, 8),)),)),
        host(Op(sometimes), t, t, 10),
    ]
    run = machine(program([RepeatStep(c, body)], [x], [y]))
    data = np.arange(n) + 9
    gc.collect()
    before = runtime().statistics()
    with pytest.raises(RuntimeError, match="the third time"):
        run(data)
    gc.collect()
    after = runtime().statistics()
    assert (after["in_use"], after["blocks"]) == (before["in_use"], before["blocks"])
    np.testing.assert_array_equal(run(data)[0][:5], data[:5])  # words are those of a first turn again


def test_a_host_step_may_run_the_same_tape():
    x, y, t = Buffer(8, "input", 0), Buffer(8, "output", 0), temp(1)
    depth = []

    def again(a):
        if len(depth) < 3:
            depth.append(1)
            return run(a)[0]
        return a

    steps = [CallStep(Affine(1, 2, 1), (Ref(x),), (Ref(t),)), host(Op(again), t, t, 1), CopyStep(Ref(t), Ref(y), 8)]
    run = machine(program(steps, [x], [y]))
    assert run(np.array([0]))[0] == [15]


# --- frames ---


def test_two_threads_run_one_tape():
    x, y, t = Buffer(8000, "input", 0), Buffer(8000, "output", 0), temp(20_000)
    c = Counter(1000)
    moving = CallStep(Affine(1, 3, 0), (Ref(x, 0, ((c, 8),)),), (Ref(t, 0, ((c, 8),)),))
    steps = [RepeatStep(c, [moving]), CallStep(Affine(1000, 1, 1), (Ref(t),), (Ref(y),))]
    run = machine(program(steps, [x], [y]))
    assert run.tape.nanoseconds < float("inf")
    wrong = []

    def work(number):
        data = np.arange(1000) + number
        for _ in range(200):
            if not np.array_equal(run(data)[0], data * 3 + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_tape_gives_its_frame_back():
    gc.collect()
    before = runtime().statistics()["blocks"]
    x, y = Buffer(80, "input", 0), Buffer(80, "output", 0)
    run = machine(program([CallStep(Affine(10, 3, 1), (Ref(x),), (Ref(y),))], [x], [y]))
    run(np.arange(10))
    assert runtime().statistics()["blocks"] == before + 1
    del run
    gc.collect()
    assert runtime().statistics()["blocks"] == before


def test_no_memory_for_temporaries():
    x, y, t = Buffer(8, "input", 0), Buffer(8, "output", 0), temp(2**43)
    p = program([CopyStep(Ref(x), Ref(t), 8), CopyStep(Ref(t), Ref(y), 8)], [x], [y])
    t_ = Tape(p, engine(isa.current()), runtime())
    one = np.zeros(1, np.int64)
    places = (ctypes.c_void_p * 1)(one.ctypes.data)
    assert runtime().run(t_.address, places, places) == NO_MEMORY
    assert runtime().run(t_.address, places, places) == NO_MEMORY


def test_results_that_are_made_nowhere():
    x, c = Buffer(80, "input", 0), Buffer(80, "const", 0)
    y = Buffer(80, "output", 0)
    steps = [CallStep(Affine(10, 3, 1), (Ref(x),), (Ref(y),))]
    t = Tape(program(steps, [x], [y, x, c, y], [np.arange(10)]), engine(isa.current()), runtime())
    assert [(r.kind, r.index) for r in t.results] == [("new", 0), ("input", 0), ("const", 0), ("result", 0)]
    assert t.overwritten == set()
    written = Tape(program([CallStep(Affine(10), (Ref(x),), (Ref(x),))], [x], [x]), engine(isa.current()), runtime())
    assert written.overwritten == {0}


def test_constants_are_aligned():
    raw = np.zeros(100, np.uint8)
    start = (-raw.ctypes.data % 64) + 8
    crooked = raw[start : start + 16].view(np.int64)
    y = Buffer(16, "output", 0)
    c = Buffer(16, "const", 0)
    p = program([CopyStep(Ref(c), Ref(y), 16)], [], [y], [crooked])
    run = machine(p)
    crooked[:] = 4
    assert run.tape.constants[0].ctypes.data % 64 == 0
    np.testing.assert_array_equal(run()[0], [0, 0])


@pytest.mark.parametrize("shift", [0, 1, 64])
@pytest.mark.parametrize("nbytes", [4, 8, 100, 2**16 * 8 - 1, 2**16 * 8 + 3, 2**24 - 1, 2**24 + 77])
def test_copies_of_any_size_and_place(nbytes, shift):
    x, y = Buffer(nbytes + 128, "input", 0), Buffer(nbytes + 128, "output", 0)
    types = (ArrayType((nbytes + 128,), np.dtype("uint8")),)
    p = CpuProgram(types, types, [x], [y], [], [CopyStep(Ref(x, 3), Ref(y, shift), nbytes)])
    t = Tape(p, engine(isa.current()), runtime())
    data = np.random.default_rng(0).integers(0, 255, nbytes + 128, np.uint8)
    raw = np.full(nbytes + 192, 9, np.uint8)
    out = raw[-raw.ctypes.data % 64 :][: nbytes + 128]
    places = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (data, out)]
    assert runtime().run(t.address, *places) == OK
    np.testing.assert_array_equal(out[shift : shift + nbytes], data[3 : nbytes + 3])
    assert (out[:shift] == 9).all() and (out[shift + nbytes :] == 9).all()


def test_what_a_callback_keeps_stays_what_it_was():
    """The memory of its argument is that of later steps."""
    kept = []

    def keep(a):
        kept.append(a)
        return a

    def turn(c, _):
        c = c * 2 + 1
        nx.experimental.io_callback(lambda a: kept.append(a), None, c + 0.5)
        nx.debug.callback(keep, c + 0.25)
        return nx.pure_callback(keep, nx.ShapeDtypeStruct(c.shape, c.dtype), c + 1) - 1, None

    nx.jit(lambda x: nx.lax.scan(turn, x, None, length=3)[0])(np.zeros(5, np.float32))
    assert sorted({float(np.asarray(a)[4]) for a in kept}) == [1.25, 1.5, 2, 3.25, 3.5, 4, 7.25, 7.5, 8]
