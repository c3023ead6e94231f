"""Keys order as the elements do, NaNs last, from the largest down in the total order; elements come back from them."""

import ml_dtypes
import numpy as np
import pytest

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.sort_keys import is_ambiguous, keys_of, ordered, restored
from nxjax.ops.sort import largest_first
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint8", "int32", "uint64", "int64"]


def samples(dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1, 5, info.max // 2, info.min // 2], dtype)
    word = np.dtype(f"u{dtype.itemsize}")
    some = np.array([-np.inf, -3.5, -1.0, -0.0, 0.0, 1e-3, 2.0, np.inf, np.nan, -np.nan], np.float64).astype(dtype)
    return np.concatenate([some, np.array([1, (1 << (8 * dtype.itemsize - 1)) + 1], word).view(dtype)])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_keys_order_as_elements_do(dtype):
    x = samples(dtype)
    (key,) = keys_of(0, x.dtype)
    assert key.bits == 8 * x.itemsize

    def body(f, isa, words, scratch, index):
        base = pointer(f, words, 0)
        for k, descending in enumerate((False, True)):
            f.store(key.read(f, isa, base, index, descending), f.at(pointer(f, words, 1 + k), index, 8))

    empty = [np.empty(len(x), np.uint64)] * 2
    for isa in ISAS:
        up, down = run(Written(body, lambda x: empty, len(x), about=x.dtype.name), x, name=isa)
        wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
        place = np.argsort(largest_first(x, 0))
        for i in range(len(x)):
            for j in range(len(x)):
                a, b = wide[i], wide[j]
                before = bool(a < b) or (bool(b != b) and bool(a == a))
                assert (up[i] < up[j]) == before
                assert (down[i] < down[j]) == (place[i] < place[j] and x[i : i + 1].tobytes() != x[j : j + 1].tobytes())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64"])
def test_elements_come_back(dtype):
    x = samples(dtype)
    word = f"i{8 * x.itemsize}"

    def body(f, isa, words, scratch, index):
        raw = f.load(convert.memory_type(x.dtype), f.at(pointer(f, words, 0), index, x.itemsize), 1)
        back = restored(f, x.dtype, ordered(f, isa, x.dtype, raw))
        f.store(back.bitcast(word), f.at(pointer(f, words, 1), index, x.itemsize), 1)
        doubt = is_ambiguous(f, isa, x.dtype, raw) if x.dtype.kind == "f" else f.constant("i1", False)
        f.store(doubt.convert("i8", signed=False), f.at(pointer(f, words, 2), index))

    kernel = Written(body, lambda x: [x, np.empty(len(x), np.uint8)], len(x), about=dtype)
    back, doubt = run(kernel, x)
    if x.dtype.kind == "f":
        np.testing.assert_array_equal(doubt, np.isnan(x) | ((x == 0) & np.signbit(x)))
    sure = doubt == 0
    np.testing.assert_array_equal(back[sure].view(f"u{x.itemsize}"), x[sure].view(f"u{x.itemsize}"))


def test_complex_numbers_have_two_keys():
    real, imaginary = keys_of(1, np.dtype("complex64"))
    assert (real.dtype, real.offset, imaginary.offset, imaginary.step) == (np.dtype("float32"), 0, 4, 8)
