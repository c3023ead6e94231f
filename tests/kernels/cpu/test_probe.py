import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.probe import PeakFma, StreamCopy

from .running import ISAS, run


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("stream", [True, False])
def test_the_copy_copies(name, stream):
    x = (np.arange(3 * 4096) % 251).astype(np.uint8)
    (y,) = run(StreamCopy(3, stream), x, name=name, cuts=[1])
    assert (y == x).all()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_chains_are_counted(name, dtype):
    kernel = PeakFma(2, np.dtype(dtype))
    (y,) = run(kernel, np.zeros((), dtype), name=name)
    assert y == 0
    assert kernel.operations(isa.named(name)) == 2 * 2 * 512 * 12 * isa.named(name).lanes(np.dtype(dtype).itemsize)
