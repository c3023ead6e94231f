"""Rows read and written at computed places: C++ against the meaning, and against loops."""

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.take import Put, Take

from .vertices import both, same, warnings_of

RNG = np.random.default_rng(2)
DTYPES = ["float32", "float16", "int32", "uint8", "bool"]
KINDS = ["set", "add", "sub", "mul", "max", "min"]
PUTS = [(k, d) for d in DTYPES for k in KINDS if d != "bool" or k in ("set", "max", "min")]
SHAPES = [(1, 5, 4, 9), (3, 2, 8, 6), (2, 7, 1, 13), (1, 1, 3, 1)]


@pytest.fixture(scope="module")
def library():
    return Library([*map(Take, DTYPES), *(Put(*p) for p in PUTS)], workers=6)


def numbers(dtype, shape):
    return RNG.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_take(library, dtype):
    for groups, rows, width, count in SHAPES:
        table = numbers(dtype, (2, groups, rows, width))
        first = np.array([0, 10])
        index = RNG.integers(-2, rows + 2, (2, groups, count)) + first.reshape(2, 1, 1)
        attributes = {"groups": groups, "rows": rows, "first": first}
        got, want = both(
            library, Take(dtype), {"table": table, "index": index}, attributes, {"y": (groups, count, width)}
        )
        same(got["y"], want["y"])
        for v, g, k in np.ndindex(2, groups, count):
            at = index[v, g, k] - first[v]
            same(got["y"][v, g, k], table[v, g, at] if 0 <= at < rows else np.zeros(width))


@pytest.mark.parametrize("case", PUTS, ids=str)
def test_put(library, case):
    kind, dtype = case
    for groups, rows, width, count in SHAPES:
        table, updates = numbers(dtype, (2, groups, rows, width)), numbers(dtype, (2, groups, count, width))
        first = np.array([0, -3])
        index = RNG.integers(-2, rows + 2, (2, groups, count)) + first.reshape(2, 1, 1)
        attributes = {"groups": groups, "rows": rows, "first": first}
        arrays = {"table": table, "index": index, "updates": updates}
        got, want = both(library, Put(kind, dtype), arrays, attributes, {})
        same(got["table"], want["table"])
        expected = table.copy()
        join = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        for v, g, k in np.ndindex(2, groups, count):
            at = index[v, g, k] - first[v]
            if 0 <= at < rows:
                with np.errstate(all="ignore"):
                    new = updates[v, g, k] if kind == "set" else join[kind](expected[v, g, at], updates[v, g, k])
                expected[v, g, at] = new
        same(got["table"], expected)


def test_cycles_and_sources():
    sizes = {"table": (1, 9, 8), "index": (1, 12), "y": (1, 12, 8)}
    assert Take("float32").cycles(sizes, {}, BOW) == 6 * (30 + 2 * (25 + 16)) + 11
    sizes = {"table": (1, 9, 8), "index": (1, 12), "updates": (1, 12, 8)}
    assert Put("add", "float32").cycles(sizes, {}, BOW) > Put("set", "float32").cycles(sizes, {}, BOW)
    assert warnings_of([Take("float16"), *(Put(*p) for p in PUTS)]) == ""
