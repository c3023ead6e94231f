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


def words_of(dtype, rows, size, rng):
    """Rows of any words of ``dtype``; in every second row only the last is one that other words are equal to."""
    word = f"u{dtype.itemsize}"
    x = rng.integers(0, 1 << (8 * dtype.itemsize), (rows, size), word, endpoint=False).view(dtype)
    if dtype in dtypes.FLOAT:
        with np.errstate(all="ignore"):
            plain = x[::2].astype(np.float64)
        zero = np.asarray(1).astype(dtype)
        x[::2] = np.where(np.isnan(plain) | (plain == 0), zero, x[::2])
        x[::2, -3:] = np.asarray([0.0, 0.0, -0.0]).astype(dtype)
    return x


KINDS = [*map(np.dtype, ("int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"))]


@pytest.mark.parametrize("dtype", [*KINDS, dtypes.bfloat16, dtypes.float8_e5m2], ids=str)
@pytest.mark.parametrize(("rows", "size", "kept", "descending"), [
    (9, 64, 64, False), (9, 65, 65, False), (3, 67, 67, False), (2, 2051, 2051, False),
    (2, 300, 299, False), (2, 1003, 17, False), (2, 1003, 17, True), (2, 300, 299, True),
])  # fmt: skip
def test_any_words_at_any_end(dtype, rows, size, kept, descending):
    x = words_of(dtype, rows, size, np.random.default_rng(size))
    kernel = Sort([dtype], 1, rows, size, kept, descending=descending)
    word = f"u{dtype.itemsize}"
    for y, w in zip(run(kernel, x), kernel.meaning(x), strict=True):
        np.testing.assert_array_equal(y.view(word), np.ascontiguousarray(w).view(word))
