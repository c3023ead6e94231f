"""Random bits on registers equal those of the ops, bit for bit."""

import numpy as np
import pytest

from nxjax.kernels.cpu import isa, ops
from nxjax.kernels.cpu.threefry import draw
from nxjax.ops import random
from nxjax.trace import dtypes
from tests.kernels.cpu.elementwise import OpKernel
from tests.kernels.cpu.running import ISAS, run

RNG = np.random.default_rng(0)
KEYS = RNG.integers(0, 2**64, 1003, dtype=np.uint64).view(dtypes.key)
DATA = RNG.integers(0, 2**32, 1003, dtype=np.uint32)


class DrawKernel(OpKernel):
    def meaning(self, *xs):
        return [draw.eval(*xs, **self.params)]


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64, dtypes.key], ids=str)
def test_draw(dtype, isa_name):
    kernel = DrawKernel("threefry", (dtypes.key, dtypes.uint32), dtype, 1003, isa.named(isa_name).lanes(4), dtype=dtype)
    (got,) = run(kernel, KEYS, DATA, name=isa_name, cuts=[7])
    assert got.tobytes() == kernel.meaning(KEYS, DATA)[0].tobytes()


def test_draw_is_random_bits():
    """The op's own meaning, so that the kernel is not compared with itself only."""
    for width in (8, 16, 32, 64):
        want = random.random_bits.eval(KEYS[:3], bit_width=width, shape=(5, 7))
        got = draw.eval(KEYS[:3, None], np.arange(35, dtype=np.uint32)[None], dtype=want.dtype)
        assert got.reshape(3, 5, 7).tobytes() == want.tobytes()
    want = random.random_split.eval(KEYS[:3], shape=(4,))
    assert draw.eval(KEYS[:3, None], np.arange(4, dtype=np.uint32), dtype=dtypes.key).tobytes() == want.tobytes()


@pytest.mark.parametrize("isa_name", ISAS)
def test_fold_in(isa_name):
    kernel = OpKernel("random_fold_in", (dtypes.key, dtypes.uint32), dtypes.key, 1003, isa.named(isa_name).lanes(4))
    (got,) = run(kernel, KEYS, DATA, name=isa_name)
    assert got.tobytes() == random.random_fold_in.eval(KEYS, DATA).tobytes()


@pytest.mark.parametrize("isa_name", ISAS)
def test_seed(isa_name):
    for dtype in sorted(dtypes.INTEGER, key=str):
        if dtypes.bit_width(dtype) == 4:
            continue
        seeds = RNG.integers(0, 256, 40 * dtype.itemsize, dtype=np.uint8).view(dtype)
        assert not ops.supported("random_seed", {}, (dtype,), dtypes.key)
        kernel = OpKernel("random_seed", (dtype,), dtypes.key, len(seeds), isa.named(isa_name).lanes(4))
        (got,) = run(kernel, seeds, name=isa_name)
        assert got.tobytes() == random.random_seed.eval(seeds).tobytes()
