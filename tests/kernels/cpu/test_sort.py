import numpy as np
import pytest

from nxjax.kernels.cpu.sort import Sort
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run

CASES = [
    ([dtypes.float32], 1, 40, 33, {}),  # squares in lanes
    ([dtypes.float32, dtypes.int32], 1, 21, 33, {}),  # pairs in lanes
    ([dtypes.float64, dtypes.int32], 2, 9, 20, {}),  # two words
    ([dtypes.float32], 1, 3, 5000, {}),  # by digits
    ([dtypes.int64, dtypes.float32], 2, 3, 700, {}),  # by digits of both
    ([dtypes.float32], 1, 5, 900, {"kept": 10, "descending": True, "indexed": True}),  # by a list
    ([dtypes.int64], 1, 5, 900, {"kept": 10, "descending": True, "indexed": True}),
]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[2]}x{c[3]}-{len(c[0])}")
def test_rows_in_any_items(name, case):
    kinds, keys, rows, size, more = case
    rng = np.random.default_rng(0)
    xs = [(rng.normal(size=(rows, size)) * 4).round().astype(d) for d in kinds]
    kernel = Sort(kinds, keys, rows, size, more.get("kept"), **{k: v for k, v in more.items() if k != "kept"})
    assert kernel.work == 0
    wanted = kernel.meaning(*xs)
    for cuts in (None, range(1, kernel.items), [0, kernel.items // 2]):
        for y, w in zip(run(kernel, *xs, name=name, cuts=cuts), wanted, strict=True):
            np.testing.assert_array_equal(y, w)


def test_long_rows_work_in_memory_of_the_program():
    assert Sort([dtypes.float32, dtypes.int32], 1, 1, 100_000).work
    # The result is one of the two places that elements move between.
    assert Sort([dtypes.int32], 1, 1, 1_000_000).work < 4_001_000
    assert not Sort([dtypes.float32], 1, 0, 100_000).items
