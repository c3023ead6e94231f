"""The network sorts: by the zero-one principle it does if it sorts all rows of zeros and ones."""

import itertools

import numpy as np
import pytest

from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.sort_network import LISTED, network, rounds
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written


@pytest.mark.parametrize("size", range(12))
def test_all_rows_of_zeros_and_ones_are_sorted(size):
    rows = np.array(list(itertools.product((0, 1), repeat=size)), np.int8)
    for p, r, d in rounds(size):
        for i in range(size - d):
            if i & p == r:
                a, b = rows[:, i].copy(), rows[:, i + d].copy()
                rows[:, i], rows[:, i + d] = np.minimum(a, b), np.maximum(a, b)
    assert (rows[:, 1:] >= rows[:, :-1]).all()


@pytest.mark.parametrize("size", [0, 1, 2, 7, 33, LISTED, LISTED + 3])
@pytest.mark.parametrize("words", [1, 2])
def test_rows_are_sorted_lane_by_lane(size, words):
    rng = np.random.default_rng(size)
    x = rng.integers(0, 5 if words == 2 else 1 << 60, (size, words, 4)).astype(np.uint64)
    x[:, -1] += np.arange(size, dtype=np.uint64)[:, None] << np.uint64(61 if size < 8 else 50)  # no two are equal

    def body(f, isa, words_, scratch, index):
        here = pointer(f, words_, 1)
        f.call("memcpy", "ptr", here, pointer(f, words_, 0), f.constant("i64", x.nbytes))
        network(f, isa, here, size, words, 4)

    def meaning(x):
        order = np.lexsort([x[:, k] for k in reversed(range(words))], axis=0)
        return [np.take_along_axis(x, order[:, None], 0)]

    kernel = Written(body, meaning, about=(size, words))
    for name in ISAS:
        np.testing.assert_array_equal(run(kernel, x, name=name)[0], meaning(x)[0])
    # LLVM makes masked stores of choices, on AMD's processors they take longer than all the rest.
    if "avx2" in ISAS:
        assert "vpmaskmov" not in engine(isa.named("avx2")).assembly([kernel])
