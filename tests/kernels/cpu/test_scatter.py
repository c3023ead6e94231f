import itertools

import numpy as np
import pytest

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import run_kernel
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.grid import Side
from nxjax.kernels.cpu.indices import Component, Vectors
from nxjax.kernels.cpu.scatter import AHEAD, AT_ONCE, CLOSE, Scatter
from tests.kernels.cpu.running import ISAS, guarded


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("op", ["set", "add", "max"])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 15, 20, 100, 333])
def test_columns_in_any_items(name, op, width):
    """Items are columns, so that the order of updates is that of the indices however they are cut."""
    rng = np.random.default_rng(0)
    x, u = (rng.normal(size=(n, width)).astype(np.float32) for n in (20, 201))
    i = rng.integers(-2, 22, 201).astype(np.int32)
    window = [Side(width, (0, 4, 4))] if width > 1 else []
    vectors = Vectors(i.dtype, (Component(0, 19, 4 * width),), False)
    kernel = Scatter(op, x.dtype, [], [Side(201, (4, 4 * width, 0))], window, vectors)
    (wanted,) = kernel.meaning(i, u, x)
    (address,) = engine(isa.named(name)).addresses([kernel])
    for cuts in ([], range(1, kernel.items)):
        y = x.copy()
        for lo, hi in itertools.pairwise([0, *cuts, kernel.items]):
            run_kernel(address, kernel, [i.ctypes.data, u.ctypes.data, y.ctypes.data], lo, hi)
        assert y.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("bound", [9, CLOSE // 8 - 1, CLOSE // 8, CLOSE // 8 + 1], ids=str)
@pytest.mark.parametrize("clip", [False, True])
def test_any_number_of_updates_near_and_far(name, bound, clip):
    """Groups of updates, and those that ask for memory ahead; all operands end where no memory is."""
    for count in (1, AT_ONCE - 1, AT_ONCE, AHEAD, AHEAD + AT_ONCE - 1, AHEAD + AT_ONCE, AHEAD + 3 * AT_ONCE + 1):
        rng = np.random.default_rng(count)
        i, u = rng.integers(-3, bound + 3, count).astype(np.int32), rng.integers(-99, 99, count).astype(np.float64)
        i[-1] = bound
        vectors = Vectors(i.dtype, (Component(0, bound, 8),), clip)
        kernel = Scatter("add", u.dtype, [], [Side(count, (4, 8, 0))], [], vectors)
        assert (vectors.reach > CLOSE) == (8 * bound > CLOSE)
        wanted = np.zeros(bound + 1)
        np.add.at(
            wanted,
            np.clip(i, 0, bound) if clip else i[(i >= 0) & (i <= bound)],
            u if clip else u[(i >= 0) & (i <= bound)],
        )
        pieces = [guarded(v.nbytes, b"\0", "an operand") for v in (i, u, wanted)]
        for (_, raw), v in zip(pieces, (i, u), strict=False):
            raw[...] = v.view(np.uint8)
        (address,) = engine(isa.named(name)).addresses([kernel])
        run_kernel(address, kernel, [piece.address for piece, _ in pieces])
        np.testing.assert_array_equal(pieces[2][1].view(np.float64), wanted)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("op", ["set", "min"])
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
def test_shared_dimensions_are_items(name, op, dtype):
    """Updates of some pairs of matrices, windows of rows with a gap and without, steps of several along them."""
    if op == "min" and dtype == "complex128":
        op = "mul"
    dtype, rng = np.dtype(dtype), np.random.default_rng(0)
    size = dtype.itemsize
    for step in (1, 2):
        x, u = rng.integers(1, 9, (2, 4, 20, 8)).astype(dtype), rng.integers(1, 9, (2, 3, 5, 2, 4)).astype(dtype)
        i = np.stack([rng.integers(-4, 22, (2, 3, 5)), rng.integers(-1, 4, (2, 3, 5))], -1)
        vectors = Vectors(i.dtype, (Component(0, 19, 8 * size), Component(8, 2, size)), False)
        shared = [Side(2, tuple(v.strides[0] for v in (i, u, x))), Side(3, tuple(v.strides[1] for v in (i, u, x)))]
        batch = [Side(5, (i.strides[2], u.strides[2], 0))]
        window = [Side(2, (0, u.strides[3], 0)), Side(4, (0, size, step * size))]
        if step == 2:
            window[0] = Side(2, (0, u.strides[3], size))
            vectors = Vectors(i.dtype, (Component(0, 19, 8 * size), Component(8, 0, size)), False)
        kernel = Scatter(op, dtype, shared, batch, window, vectors)
        wanted = x.copy()
        for at in np.ndindex(2, 3, 5):
            row, column = i[at]
            if 0 <= row <= 19 and 0 <= column <= vectors.components[1].bound:
                for k in range(2):
                    start = column + (k if step == 2 else 0)
                    part = wanted[at[0], at[1], row, start : start + 4 * step : step]
                    part[...] = {"set": lambda a, b: b, "min": np.minimum, "mul": np.multiply}[op](part, u[(*at, k)])
        assert (wanted != x).any()
        (address,) = engine(isa.named(name)).addresses([kernel])
        for cuts in ([], [1, 4]):
            y = x.copy()
            for lo, hi in itertools.pairwise([0, *cuts, kernel.items]):
                run_kernel(address, kernel, [i.ctypes.data, u.ctypes.data, y.ctypes.data], lo, hi)
            np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", ISAS)
def test_into_an_array_larger_than_the_caches(name):
    rng = np.random.default_rng(0)
    x, u = np.zeros(100_000, np.float32), rng.normal(size=3001).astype(np.float32)
    i = rng.integers(-5, 100_005, 3001).astype(np.int32)
    vectors = Vectors(i.dtype, (Component(0, 99_999, 4),), False)
    kernel = Scatter("add", x.dtype, [], [Side(3001, (4, 4, 0))], [], vectors)
    (wanted,) = kernel.meaning(i, u, x)
    (address,) = engine(isa.named(name)).addresses([kernel])
    run_kernel(address, kernel, [i.ctypes.data, u.ctypes.data, x.ctypes.data])
    assert x.tobytes() == wanted.tobytes()
