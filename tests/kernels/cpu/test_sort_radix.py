"""Sorting by digits: right, stable, and without the passes that would change nothing."""

import numpy as np
import pytest

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.sort_radix import COUNTS, radix
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written


def sorted_by(x, shift, bits, isa=None):
    size, word = len(x), f"i{8 * x.itemsize}"
    half = -(-x.nbytes // 64) * 64

    def body(f, isa, words, scratch, index):
        source, out = pointer(f, words, 0), pointer(f, words, 1)
        first = lambda i: f.load(word, f.at(source, i, x.itemsize), 1)
        room = scratch, f.at(scratch, half)
        here = radix(f, size, first, word, shift, bits, room, f.at(scratch, 2 * half))
        f.call("memcpy", "ptr", out, here, f.constant("i64", x.nbytes))

    kernel = Written(body, lambda x: [x], scratch=2 * half + COUNTS, about=(size, word, shift, bits))
    return run(kernel, x, name=isa)[0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1, 2, 100, 1000])
@pytest.mark.parametrize(("dtype", "most"), [("u4", 2**32), ("u8", 2**64), ("u8", 200), ("u4", 1)])
def test_numbers_are_sorted(isa, size, dtype, most):
    x = np.random.default_rng(size).integers(0, most, size, dtype=dtype)
    np.testing.assert_array_equal(sorted_by(x, 0, 8 * x.itemsize, isa), np.sort(x))


@pytest.mark.parametrize(("shift", "bits"), [(0, 16), (32, 8), (48, 16)])
def test_equal_digits_keep_their_order(shift, bits):
    x = np.random.default_rng(0).integers(0, 2**63, 500, dtype=np.uint64) & ~np.uint64(0xF0 << shift)
    digits = (x >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
    np.testing.assert_array_equal(sorted_by(x, shift, bits), x[np.argsort(digits, kind="stable")])
