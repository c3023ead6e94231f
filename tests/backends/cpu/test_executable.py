"""Executables: arguments used where they lie, results without a copy, donated memory used again, clean errors."""

import gc

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.memory import Block, CpuBuffer
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.errors import MemoryLimitError
from nxjax.lower.cpu.tape import Buffer, Call, Copy, CpuProgram, Ref
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.types import ArrayType
from tests.backends.cpu.native.kernels import Affine

INT = np.dtype("int64")


def affine(n, donated=False, a=3, b=1):
    """y = 3 x + 1, in place where the argument is donated."""
    x = Buffer(8 * n, "input", 0)
    y = x if donated else Buffer(8 * n, "output", 0)
    types = (ArrayType((n,), INT),)
    steps = [Call(Affine(n, a, b), (Ref(x),), (Ref(y),))]
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
    other = shared.retyped(shared.type)
    part = ours(1000)
    some = part.numpy()[3:5]
    part._data = None
    for x in (viewed, shared, part, wrap(np.arange(1000))):
        (y,) = step([x])
        np.testing.assert_array_equal(y.numpy(), np.arange(1000) * 3 + 1)
    np.testing.assert_array_equal(data, np.arange(1000))
    np.testing.assert_array_equal(other.numpy(), np.arange(1000))
    np.testing.assert_array_equal(some, [3, 4])


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


def test_no_memory():
    big = 2**43
    x, t, y = Buffer(8, "input", 0), Buffer(8 * big, "temp", offset=0), Buffer(8, "output", 0)
    types = (ArrayType((1,), INT),)
    p = CpuProgram(types, types, [x], [y], [], [Copy(Ref(x), Ref(t), 8), Copy(Ref(t), Ref(y), 8)], 8 * big)
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

    made._runtime = Failing()
    for array in (x, y):
        with pytest.raises(KeyboardInterrupt):
            made([array])
    assert x.is_deleted()
    assert not y.is_deleted()


def test_a_block_says_what_it_is():
    block = Block(100)
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
