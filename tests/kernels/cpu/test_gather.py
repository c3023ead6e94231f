import numpy as np
import pytest

from nxjax.kernels.cpu.gather import Gather
from nxjax.kernels.cpu.grid import ItemGrid, Side, joined
from nxjax.kernels.cpu.indices import Component, Vectors
from nxjax.kernels.cpu.move import Move
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("count", [5, 20_011])
def test_rows_in_any_items(name, clip, width, count):
    if width > 1 and count > 10_000:
        count = 1013
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, width)).astype(np.float32)
    i = rng.integers(-3, 33, count).astype(np.int32)
    vectors = Vectors(i.dtype, (Component(0, 29, 4 * width),), clip)
    window = Move((width,), (4,), (4,), 4)
    kernel = Gather([Side(count, (4, 4 * width, 0))], window, vectors, np.float32(7).tobytes())
    wanted = x[np.clip(i, 0, 29)]
    if not clip:
        wanted[(i < 0) | (i > 29)] = 7
    for cuts in (None, range(1, kernel.items)):
        (y,) = run(kernel, x, i, name=name, cuts=cuts)
        assert y.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("clip", [False, True])
def test_a_number_that_does_not_begin_its_vector(name, clip):
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000).astype(np.float32)
    i = rng.integers(-1000, 1000, (2, 333)).astype(np.int32)
    vectors = Vectors(i.dtype, (Component(4 * 333, 999, 4),), clip, 1000)
    kernel = Gather([Side(333, (4, 4, 0))], Move((), (), (), 4), vectors, np.float32(7).tobytes())
    (y,) = run(kernel, x, i, name=name)
    assert y.tobytes() == x[i[1]].tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_elements_at_several_numbers(name, clip, apart, count):
    """Numbers of an element side by side, or each in a row of its own; some are outside."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(9, 7, 11)[:count]).astype(np.float32)
    i = rng.integers(-2, np.array(x.shape) + 2, (333, count)).astype(np.int32)
    last = np.array(x.shape) - 1
    inside = np.clip(i, 0, last)
    wanted = x[tuple(inside.T)]
    if not clip:
        wanted[(i != inside).any(1)] = 7
    step, between = (4 * 333, 4) if apart else (4, 4 * count)
    components = [Component(k * step, int(b), s) for k, (b, s) in enumerate(zip(last, x.strides, strict=True))]
    vectors = Vectors(i.dtype, tuple(components), clip)
    kernel = Gather([Side(333, (between, 4, 0))], Move((), (), (), 4), vectors, np.float32(7).tobytes())
    (y,) = run(kernel, x, np.ascontiguousarray(i.T) if apart else i, name=name)
    assert y.tobytes() == wanted.tobytes()


def test_points_that_are_one_run_are_one_loop():
    assert joined([Side(2, (12, 0)), Side(1, (5, 5)), Side(3, (4, 0))]) == (Side(6, (4, 0)),)
    assert joined([Side(2, (12, 8)), Side(3, (4, 0))]) == (Side(2, (12, 8)), Side(3, (4, 0)))


def test_blocks_of_items_end_with_the_side():
    cut = ItemGrid([Side(10, (400,)), Side(100, (4,))], 4, 130)
    assert cut.items == 10 * 3  # of 34 elements, the last moved back
    assert ItemGrid([Side(10, (4,))], 4, 160).items == 1


MODES = [(clip, wrap) for clip in (False, True) for wrap in (False, True)]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("width", [1, 3])
def test_no_index_passes_either_end(name, dtype, width):
    """In every mode, one by one and in lanes: the array ends, or begins, at a page that may not be touched."""
    signed = np.dtype(dtype).kind == "i"
    near = [0, 1, 28, 29, 30, 31, 100, np.iinfo(dtype).max]
    near += [-1, -2, -29, -30, -31, -100, np.iinfo(dtype).min] if signed else []
    i = np.array([near[k % len(near)] for k in range(5 * len(near) + 3)], dtype)
    x = np.random.default_rng(0).normal(size=(30, width)).astype(np.float32)
    for clip, wrap in MODES:
        vectors = Vectors(i.dtype, (Component(0, 29, 4 * width),), clip, 30 if wrap and signed else 0)
        window = Move((width,), (4,), (4,), 4)
        kernel = Gather([Side(i.size, (i.itemsize, 4 * width, 0))], window, vectors, np.float32(7).tobytes())
        (y,) = run(kernel, x, i, name=name)
        numbers = [int(n) + 30 if wrap and n < 0 else int(n) for n in i]
        wanted = x[[min(max(n, 0), 29) for n in numbers]]
        if not clip:
            wanted[[not 0 <= n <= 29 for n in numbers]] = 7
        assert y.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [4, 8])
def test_one_of_each_row(name, dtype, size):
    """Array and index vectors share a dimension, whose rows lie one after the other, or side by side."""
    rng = np.random.default_rng(0)
    for rows in (5, 16, 17, 40):
        x = rng.integers(0, 1 << 30, (rows, 29)).astype(f"i{size}")
        i = rng.integers(-3, 33, rows).astype(dtype)
        for clip in (False, True):
            wanted = x[np.arange(rows), np.clip(i, 0, 28)]
            if not clip:
                wanted[(i < 0) | (i > 28)] = 7
            for array in (x, np.asfortranarray(x)):
                vectors = Vectors(i.dtype, (Component(0, 28, array.strides[1]),), clip)
                side = Side(rows, (i.itemsize, size, array.strides[0]))
                kernel = Gather([side], Move((), (), (), size), vectors, x.dtype.type(7).tobytes())
                (y,) = run(kernel, array, i, name=name, strided=True)
                assert y.tobytes() == wanted.tobytes()
