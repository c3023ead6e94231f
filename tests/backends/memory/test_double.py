"""Copies that overlap with computing keep order, limits and errors; results are written where they shall be."""

import threading

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.memory.pool import MemoryPools
from nxjax.config import config
from nxjax.errors import ExecutionError, ImmutableArrayError, MemoryLimitError, ParameterError, ShapeError


def test_two_buffers_take_turns():
    pair = nx.DoubleBuffer((3,), "int32", pools=MemoryPools(), name="frames")
    first = pair.back.address
    pair.back.write(np.array([1, 2, 3], np.int32))
    shown = pair.swap().array()
    assert shown.numpy().ctypes.data == first
    pair.back.write(np.array([4, 5, 6], np.int32))  # while the front one is read
    assert shown.tolist() == [1, 2, 3]
    assert pair.swap().array().tolist() == [4, 5, 6]
    pair.close()
    assert pair.front.pool.statistics.in_use == 0


def test_items_are_moved_ahead_by_another_thread():
    moved, seen = [], []
    ready = threading.Event()

    def put(i):
        moved.append((i, threading.current_thread().name))
        if len(moved) == 2:
            ready.set()
        return i * 10

    for x in nx.prefetch(range(5), put=put):
        if not seen:
            assert ready.wait(5)  # the second one was moved while nobody asked for it
        seen.append(x)
    assert seen == [0, 10, 20, 30, 40]
    assert [i for i, _ in moved] == [0, 1, 2, 3, 4]
    assert all(name.startswith("nxjax-prefetch") for _, name in moved)


def test_trees_go_to_a_device():
    device = nx.devices("cpu")[-1]
    items = [{"x": np.full(2, i, np.float32), "n": i} for i in range(3)]
    found = list(nx.prefetch(items, device, depth=1))
    assert [float(t["x"].sum()) for t in found] == [0, 2, 4]
    assert all(t["x"].device == device for t in found)
    with pytest.raises(MemoryLimitError):
        list(nx.prefetch(items, device, pools=MemoryPools(cpu=1)))


def test_errors_come_where_their_item_would_have():
    def items():
        yield 1
        raise OSError("the disk is gone")

    found = nx.prefetch(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    with pytest.raises(ParameterError, match="depth"):
        nx.prefetch([], depth=0)


def test_a_consumer_that_stops_stops_the_thread():
    asked = []
    found = nx.prefetch((asked.append(i) or i for i in range(1000)), depth=2)
    assert next(found) == 0
    found.close()
    assert len(asked) < 10
    assert not [t for t in threading.enumerate() if t.name.startswith("nxjax-prefetch")]


def test_results_are_written_into_buffers():
    pools = MemoryPools()
    out = {"y": pools.unified_buffer((3, 4)), "n": pools.unified_buffer(3, "int32")}
    step = nx.write_into(lambda x, s: {"y": nx.numpy.tanh(x) * s, "n": nx.numpy.argmax(x, 1)}, out)
    for i in range(4):
        x = np.random.default_rng(i).standard_normal((3, 4), np.float32)
        found = step(x, float(i))
        np.testing.assert_allclose(found["y"].numpy(), np.tanh(x) * i, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(found["n"].numpy(), x.argmax(1))
    assert pools["cpu"].statistics.copied == 0
    assert pools["cpu"].statistics.shared == 4 * (48 + 12)


def test_results_that_are_no_new_memory_are_copied():
    pools = MemoryPools()
    out = (pools.unified_buffer(2), pools.unified_buffer(2), pools.unified_buffer(2))
    nx.write_into(lambda x: (x, x + 1, nx.numpy.ones(2)), out)(np.array([5, 6], np.float32))
    assert [b.numpy().tolist() for b in out] == [[5, 6], [6, 7], [1, 1]]
    with config.using(executor="reference"):
        nx.write_into(lambda x: (x, x - 1, x * 0), out)(np.array([5, 6], np.float32))
    assert [b.numpy().tolist() for b in out] == [[5, 6], [4, 5], [0, 0]]


def test_what_cannot_be_written_is_refused():
    out = nx.unified_buffer(2, pools=MemoryPools())
    twice = nx.write_into(lambda x: x * 2, out)
    with pytest.raises(ShapeError, match="do not fit"):
        twice(np.ones(3, np.float32))
    x = out.array()
    with pytest.raises(ImmutableArrayError):
        twice(np.ones(2, np.float32))
    del x
    with pytest.raises(ExecutionError, match="flat argument 0"):
        twice(nx.numpy.from_dlpack(out.numpy(), copy=False))
    with pytest.raises(ParameterError, match="unified buffers"):
        nx.write_into(lambda x: x, np.ones(2))
    with pytest.raises(ParameterError, match="twice"):
        nx.write_into(lambda x: (x, x), (out, out))
