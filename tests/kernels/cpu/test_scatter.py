import itertools

import numpy as np
import pytest

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import run_kernel
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.grid import Side
from nxjax.kernels.cpu.indices import Component, Vectors
from nxjax.kernels.cpu.scatter import Scatter
from tests.kernels.cpu.running import ISAS


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("op", ["set", "add", "max"])
@pytest.mark.parametrize("width", [1, 100, 333])
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
