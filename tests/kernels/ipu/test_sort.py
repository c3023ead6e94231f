"""Rows sorted on a tile, and blocks merged between two: C++ against the meaning and the op."""

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.sort import MergeBlocks, SortRows
from nxjax.ops.sort import sort

from .vertices import both, run, same, warnings_of

RNG = np.random.default_rng(6)
CASES = [(("float32",), 1), (("float16", "int32"), 1), (("int8", "float32", "int32"), 2), (("bool", "uint32"), 2)]


@pytest.fixture(scope="module")
def library():
    return Library([*(SortRows(*c) for c in CASES), *(MergeBlocks(*c) for c in CASES)], workers=6)


def values(dtype, shape):
    d = np.dtype(dtype)
    if d.kind == "f":
        return RNG.choice(np.array([0.0, -0.0, 1, -1, 2.5, np.nan, np.inf, -np.inf, -3], d), shape)
    return RNG.integers(0, 2 if d.kind == "b" else 5, shape).astype(d)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sort_rows(library, case):
    dtypes, keys = case
    for rows, n in [(1, 1), (3, 7), (13, 16), (2, 33), (1, 100)]:
        xs = {f"x{i}": values(d, (2, rows, n)) for i, d in enumerate(dtypes)}
        outs = {f.name: (rows, n) for f in SortRows(*case).fields if f.io == "out"}
        got, want = both(library, SortRows(*case), xs, {"n": n}, outs)
        expected = sort.eval(*xs.values(), dimension=2, num_keys=keys)
        for i, x in enumerate(expected):
            same(got[f"y{i}"], want[f"y{i}"])
            same(got[f"y{i}"], x)
        same(got["order"], want["order"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_merge_blocks(library, case):
    dtypes, keys = case
    for rows, n in [(1, 1), (7, 6), (2, 17)]:
        both_blocks = [values(d, (1, rows, 2 * n)) for d in dtypes]
        blocks = [
            sort.eval(*(b[..., s] for b in both_blocks), dimension=2, num_keys=keys) for s in (slice(n), slice(n, None))
        ]
        arrays = {f"x{i}": b for i, b in enumerate(blocks[0])} | {f"z{i}": b for i, b in enumerate(blocks[1])}
        joined = [np.concatenate([x, z], 2) for x, z in zip(*blocks, strict=True)]
        whole = sort.eval(*joined, dimension=2, num_keys=keys)
        for upper in (0, 1):
            outs = {f"y{i}": (rows, n) for i in range(len(dtypes))}
            got, want = both(library, MergeBlocks(*case), arrays, {"n": n, "upper": upper}, outs)
            for i, w in enumerate(whole):
                same(got[f"y{i}"], want[f"y{i}"])
                same(got[f"y{i}"], w[..., n:] if upper else w[..., :n])


def test_a_network_of_merges_sorts(library):
    """Odd-even transposition of blocks (Knuth, volume 3): as many rounds as blocks sort them all."""
    case = CASES[0]
    blocks, n = 5, 8
    x = RNG.normal(size=(blocks, 1, n)).astype(np.float32)
    outs = {"y0": (1, n), "order": (1, n), "scratch": (1, n)}
    x = run(library, SortRows(*case), {"x0": x}, {"n": n}, outs)["y0"]
    for turn in range(blocks):
        low = np.arange(turn % 2, blocks - 1, 2)
        own, other = np.concatenate([low, low + 1]), np.concatenate([low + 1, low])
        upper = np.repeat([0, 1], len(low))
        arrays = {"x0": x[own], "z0": x[other]}
        x[own] = run(library, MergeBlocks(*case), arrays, {"n": n, "upper": upper}, {"y0": (1, n)})["y0"]
    same(x.reshape(-1), np.sort(x.reshape(-1)))


def test_cycles_and_sources():
    codelet = SortRows(("float32",), 1)
    grown = [codelet.cycles({"order": (1, n)}, {"n": n}, BOW) for n in (1, 2, 8, 64, 65)]
    assert grown == sorted(set(grown))
    assert warnings_of([*(SortRows(*c) for c in CASES), *(MergeBlocks(*c) for c in CASES)]) == ""
