"""Executables: arguments used where they lie, results without a copy, donated memory used again, clean errors."""

import gc
import sys
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu import executable, running
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.memory import CpuBuffer, PoolBlock
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.config import config
from nxjax.errors import MemoryLimitError
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, Ref
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.types import ArrayType
from tests.backends.cpu.native.kernels import Affine

INT = np.dtype("int64")


def affine(n, donated=False, a=3, b=1):
    """y = 3 x + 1, in place where the argument is donated."""
    x = Buffer(8 * n, "input", 0)
    y = x if donated else Buffer(8 * n, "output", 0)
    types = (ArrayType((n,), INT),)
    steps = [CallStep(Affine(n, a, b), (Ref(x),), (Ref(y),))]
    return CpuExecutable(CpuProgram(types, types, [x], [y], [], steps, donated=(0,) if donated else ()))


def ours(n):
    """An array in the pool's memory."""
    return affine(n, a=1, b=0)([wrap(np.arange(n))])[0]


def test_results_lie_in_the_pool_and_are_seen_without_a_copy():
    (y,) = affine(1000)([wrap(np.arange(1000))])
    assert type(y.buffer) is CpuBuffer
    data = y.numpy()
    assert data.__array_interface__["data"][0] == y.buffer.block.address
    assert not data.flags.writeable
    np.testing.assert_array_equal(data, np.arange(1000) * 3 + 1)
    assert np.from_dlpack(y).__array_interface__["data"][0] == y.buffer.block.address


def test_arguments_are_used_where_they_lie():
    data = np.arange(100)
    same = CpuExecutable(CpuProgram(*[(ArrayType((100,), INT),)] * 2, *[[Buffer(800, "input", 0)]] * 2, [], []))
    (y,) = same([wrap(data)])
    assert y.numpy() is data


@pytest.mark.parametrize(
    "data",
    [
        np.arange(200)[::2],
        np.arange(100)[::-1],
        np.frombuffer(b"\0" + np.arange(100).tobytes(), np.uint8)[1:].view(np.int64),
        np.broadcast_to(np.int64(4), (100,)),
    ],
    ids=["strided", "reversed", "crooked", "repeated"],
)
def test_arguments_that_do_not_lie_well_are_copied(data):
    before = data.copy()
    (y,) = affine(100)([wrap(data)])
    np.testing.assert_array_equal(y.numpy(), before * 3 + 1)
    (y,) = affine(100, donated=True)([wrap(data)])
    np.testing.assert_array_equal(y.numpy(), before * 3 + 1)
    np.testing.assert_array_equal(data, before)


def test_donated_memory_is_used_again():
    x = ours(1000)
    address = x.buffer.block.address
    (y,) = affine(1000, donated=True)([x])
    assert y.buffer.block.address == address
    np.testing.assert_array_equal(y.numpy(), np.arange(1000) * 3 + 1)


def test_donated_memory_that_others_see_is_left_alone():
    step = affine(1000, donated=True)
    viewed = ours(1000)
    data = viewed.numpy()
    shared = ours(1000)
    other = shared.with_type(shared.type)
    part = ours(1000)
    some = part.numpy()[3:5]
    part._data = None
    for x in (viewed, shared, part, wrap(np.arange(1000))):
        (y,) = step([x])
        np.testing.assert_array_equal(y.numpy(), np.arange(1000) * 3 + 1)
    np.testing.assert_array_equal(data, np.arange(1000))
    np.testing.assert_array_equal(other.numpy(), np.arange(1000))
    np.testing.assert_array_equal(some, [3, 4])


@pytest.mark.unguarded
def test_memory_comes_back():
    gc.collect()
    before = runtime().statistics()["blocks"]
    step = affine(1000)
    ys = [step([wrap(np.arange(1000))])[0] for _ in range(5)]
    assert runtime().statistics()["blocks"] == before + 6  # and the frame
    view = ys[0].numpy()[5:]
    del ys
    gc.collect()
    assert runtime().statistics()["blocks"] == before + 2
    del view, step
    gc.collect()
    assert runtime().statistics()["blocks"] == before


@pytest.mark.unguarded
def test_no_memory():
    big = 2**43
    x, t, y = Buffer(8, "input", 0), Buffer(8 * big, "temp", offset=0), Buffer(8, "output", 0)
    types = (ArrayType((1,), INT),)
    p = CpuProgram(types, types, [x], [y], [], [CopyStep(Ref(x), Ref(t), 8), CopyStep(Ref(t), Ref(y), 8)], 8 * big)
    gc.collect()
    before = runtime().statistics()["blocks"]
    made = CpuExecutable(p)
    with pytest.raises(MemoryLimitError, match="out of memory"):
        made([wrap(np.arange(1))])
    # A result that does not fit, after one that does.
    ys = [Buffer(8, "output", 0), Buffer(8 * big, "output", 1)]
    two = CpuExecutable(CpuProgram(types, (types[0], ArrayType((big,), INT)), [x], ys, [], []))
    with pytest.raises(MemoryLimitError, match="out of memory"):
        two([wrap(np.arange(1))])
    del made, two
    gc.collect()
    assert runtime().statistics()["blocks"] == before


def test_a_failed_run_takes_what_it_was_donated(monkeypatch):
    """Nobody reads memory that was half written over."""
    made = affine(100, donated=True)
    x, y = ours(100), wrap(np.arange(100))

    def fails(*_):
        raise KeyboardInterrupt

    class Failing:
        run = staticmethod(fails)
        release = staticmethod(lambda *_: None)

    made.ready()
    made._runtime = Failing()
    for array in (x, y):
        with pytest.raises(KeyboardInterrupt):
            made([array])
    assert x.is_deleted()
    assert not y.is_deleted()


@pytest.mark.unguarded  # guarded code is written anew
def test_a_function_of_a_large_array_is_compiled_once(monkeypatch):
    """What is made of the array, and what is left: both before the first call, and nothing for the second."""
    made = []
    own = executable.Tape
    monkeypatch.setattr(executable, "Tape", lambda *args: made.append(args) or own(*args))
    w = nx.numpy.ones((600, 600))
    f = nx.jit(lambda x: nx.numpy.tanh(x @ w))
    for _ in range(3):
        np.testing.assert_allclose(f(np.ones((40, 600), np.float32)), 1)
        assert len(made) == 2


def test_a_block_says_what_it_is():
    block = PoolBlock(100)
    array = DeviceArray(
        None, ArrayType((100,), np.dtype("uint8")), CpuBuffer(block, ArrayType((100,), np.dtype("uint8")))
    )
    assert array.numpy().nbytes == 100
    nx.block_until_ready(array)


def test_clear_caches_keeps_what_is_in_use():
    y = ours(1000)
    CpuBackend().clear()
    np.testing.assert_array_equal(y.numpy(), np.arange(1000))


def test_another_instruction_set_is_another_executable() -> None:
    f = nx.jit(lambda x: nx.numpy.sin(x) + 1)
    x = np.arange(100, dtype=np.float32)
    for _ in range(4):
        f(x)  # the last ones in machine code, which looks at the setting, too
    with nx.config.using(cpu_isa="portable"):
        y = f(x)
        assert f._cache_size() == 2
        assert "<8 x float>" in f.lower(x).as_text(dialect="llvm")
    np.testing.assert_allclose(y, f(x), rtol=1e-6)


# --- held arguments ---


def weights(seed, *shape):
    return nx.numpy.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def bits(x):
    return np.asarray(x).tobytes()


def way(f):
    (entry,) = f._entries.values()
    return entry.prepared


def test_the_second_call_runs_what_was_not_prepared():
    w, x = weights(0, 200, 400), weights(1, 40, 200)
    f = nx.jit(lambda x: nx.numpy.tanh(x @ w))
    first = f(x)
    assert [id(x.numpy()) for x in way(f).leading] == [id(w.numpy())] and not way(f).final
    for _ in range(4):
        assert bits(f(x)) == bits(first)
    (packed,) = way(f).leading
    assert way(f).final and packed.shape == (packed.size,) and packed is not w
    assert "once:" in way(f).executable.text
    assert way(f).executable.memory_analysis().argument_size_in_bytes == packed.size + 40 * 200 * 4


def test_functions_with_other_weights_share_what_runs():
    def make(seed):
        w = weights(seed, 200, 400)
        f = nx.jit(lambda x: nx.numpy.tanh(x @ w))
        x = weights(2, 40, 200)
        return f, [f(x) for _ in range(3)][-1], nx.jit(lambda w, x: nx.numpy.tanh(x @ w))(w, x)

    (f, y, wanted), (g, z, other) = make(0), make(1)
    assert way(f).executable is way(g).executable and way(f).leading[0] is not way(g).leading[0]
    assert bits(y) == bits(wanted) != bits(z) == bits(other)


def test_arguments_after_held_ones_are_donated():
    w, v = weights(0, 300, 300), weights(1, 300)
    f = nx.jit(lambda a, b: (nx.numpy.tanh(a @ w) + v, b + 1), donate_argnums=1)
    for _ in range(4):
        a, b = weights(2, 40, 300), weights(3, 7)
        y, z = f(a, b)
        assert b.is_deleted() and not a.is_deleted() and not w.is_deleted()
        assert bits(z) == bits(weights(3, 7) + 1)
        assert np.abs(np.asarray(y) - (np.tanh(np.asarray(a) @ np.asarray(w)) + np.asarray(v))).max() < 1e-4


def test_results_that_are_held_themselves():
    w, v = weights(0, 300, 300), weights(1, 5)
    f = nx.jit(lambda x: (w, x @ w, v, w * 2))
    for _ in range(4):
        a, _, b, c = f(weights(2, 40, 300))
        assert (bits(a), bits(b), bits(c)) == (bits(w), bits(v), bits(w * 2))
        assert a.shape == c.shape == (300, 300)


def test_small_arrays_and_first_calls_are_as_they_are():
    v = weights(0, 8, 8)
    f = nx.jit(lambda x: nx.numpy.tanh(x @ v))
    for _ in range(3):
        f(weights(1, 8, 8))
    assert [id(x.numpy()) for x in way(f).leading] == [id(v.numpy())] and way(f).final


def test_what_is_compiled_ahead_of_time_has_its_weights_prepared():
    w, x = weights(0, 200, 400), weights(1, 40, 200)
    f = nx.jit(lambda x: nx.numpy.tanh(x @ w))
    made = f.lower(x).compile()
    assert "once:" in made.as_text() and bits(made(x)) == bits(f(x))


def test_a_profile_is_that_of_repeated_calls():
    w, x = weights(0, 200, 400), weights(1, 40, 200)
    f = nx.jit(lambda x: nx.numpy.tanh(x @ w))
    p, c = nx.profile(f)(x), nx.cost(f)(nx.ShapeDtypeStruct(x.shape, x.dtype))
    assert bits(p.result) == bits(f(x)) and [r.key for r in p.rows] == [r.key for r in c.rows]
    assert not any("pack" in r.name for r in p.rows)


def test_a_donated_array_lets_go_before_it_is_asked_who_else_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thread that looks at it between the question and the writing sees memory that is written over."""
    f = nx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    deleted: list[bool] = []
    x: list[Any] = [None]

    class Sys:
        @staticmethod
        def getrefcount(value: Any) -> int:
            deleted.append(x[0].is_deleted())
            return sys.getrefcount(value) - named

    anything = object()
    named = (lambda value: sys.getrefcount(value))(anything) - sys.getrefcount(anything)  # what a parameter counts

    monkeypatch.setattr(running, "sys", Sys)
    with config.using(fast_calls=False):
        for _ in range(3):
            x[0] = nx.jit(lambda x: x + 1)(np.arange(4, dtype=np.float32))
            address = x[0].buffer.block.address
            y = f(x[0])
            assert y.tolist() == [3, 5, 7, 9] and y.buffer.block.address == address  # written over
    assert deleted == [True] * 6


def test_results_that_are_arguments_survive_their_deletion_meanwhile() -> None:
    def delete(v: Any) -> Any:
        given.delete()
        return np.asarray(v)

    f = nx.jit(lambda x: (x, nx.pure_callback(delete, nx.ShapeDtypeStruct((4,), "float32"), x + 1)))
    for settings in ({}, {"fast_calls": False}):
        for _ in range(4):
            given = nx.jit(lambda x: x + 1)(np.arange(4, dtype=np.float32))
            with config.using(**settings):
                x, y = f(given)
            assert x.tolist() == [1, 2, 3, 4] and y.tolist() == [2, 3, 4, 5]
