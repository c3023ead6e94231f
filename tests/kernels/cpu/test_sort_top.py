"""The first few of a row: the same as a stable sort's, wherever they lie and however many are equal."""

import numpy as np
import pytest

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.sort_top import AT_ONCE, room, select
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("size", "kept"), [(1, 1), (20, 3), (100, 8), (1003, 17), (40, 40)])
@pytest.mark.parametrize("order", ["random", "falling", "rising", "equal"])
def test_the_smallest_come_first_and_equal_ones_in_order(isa, size, kept, order):
    x = np.random.default_rng(size).integers(0, 50, size).astype(np.uint32)
    x = {"random": x, "falling": np.sort(x)[::-1], "rising": np.sort(x), "equal": np.full(size, 7, np.uint32)}[order]

    def body(f, isa, words, scratch, index):
        source = pointer(f, words, 0)
        key = lambda i: f.load("i32", f.at(source, i, 4)).convert("i64", signed=False)
        keys = lambda i: f.load(f"<{AT_ONCE} x i32>", f.at(source, i, 4), 4)
        best = select(f, size, kept, key, keys, scratch)
        f.call("memcpy", "ptr", pointer(f, words, 1), best, f.constant("i64", 8 * kept))

    def meaning(x):
        first = np.argsort(x, kind="stable")[:kept].astype(np.uint64)
        return [(x[first].astype(np.uint64) << np.uint64(32)) | first]

    kernel = Written(body, meaning, scratch=room(kept), about=(size, kept))
    np.testing.assert_array_equal(run(kernel, x, name=isa)[0], meaning(np.ascontiguousarray(x))[0])
