"""Reductions of a tile's box: C++ against the meaning, bit for bit, and against NumPy."""

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.reduce import UFUNCS, ArgReduce, Reduce

from .vertices import both, same, warnings_of

RNG = np.random.default_rng(1)
CASES = [
    (kind, dtype, out)
    for dtype in ("float32", "float16", "int32", "uint8", "bool")
    for kind in UFUNCS
    for out in ((dtype, "float32") if dtype == "float16" else (dtype,))
    if (kind in ("add", "mul", "max", "min")) or not dtype.startswith("float")
    if not (dtype == "bool" and kind in ("add", "mul"))
]
ARG_DTYPES = ["float32", "float16", "uint32", "int8", "bool"]
SHAPES = [(1, 1, 1), (1, 37, 1), (5, 16, 1), (3, 9, 7), (1, 4, 70), (2, 1, 33), (4, 8, 2)]


def values(dtype, shape):
    d = np.dtype(dtype)
    if d.kind == "f":
        x = RNG.normal(size=shape).astype(d)
        x[RNG.random(shape) < 0.01] = np.nan
        x[RNG.random(shape) < 0.02] = np.inf
        return x
    if d.kind == "b":
        return RNG.random(shape) < 0.5
    return RNG.integers(np.iinfo(d).min, np.iinfo(d).max, shape, endpoint=True).astype(d)


@pytest.fixture(scope="module")
def library():
    made = [Reduce(*case) for case in CASES]
    args = [ArgReduce(top, d, i) for top in (True, False) for d in ARG_DTYPES for i in (True, False)]
    return Library([*made, *args], workers=6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reduce(library, case):
    kind, dtype, out = case
    codelet = Reduce(*case)
    for outer, depth, inner in SHAPES:
        x = values(dtype, (3, outer, depth, inner))
        got, want = both(library, codelet, {"x": x}, {"outer": outer, "inner": inner}, {"y": (outer, inner)})
        same(got["y"], want["y"])
        with np.errstate(all="ignore"):
            wide = np.float64 if np.dtype(dtype).kind == "f" else dtype
            exact = UFUNCS[kind].reduce(x.astype(wide), axis=2, dtype=wide)
            if wide is np.float64 and kind in ("add", "mul"):
                # Of sums, an error of a few units of the largest partial sum; of products, one unit a factor.
                error = np.finfo(out).eps
                bound = np.abs(x.astype(wide)).sum(2) if kind == "add" else np.abs(exact) * depth
                plain = np.isfinite(exact) & (np.abs(exact) < 6e4)
                assert np.all(np.abs(got["y"] - exact)[plain] <= (bound * error + 1e-7)[plain])
            else:
                same(got["y"], exact.astype(out))


def test_reductions_of_nothing(library):
    for kind, start in (("add", 0), ("mul", 1), ("max", -np.inf), ("min", np.inf)):
        x = np.zeros((2, 3, 0, 2), np.float32)
        got, want = both(library, Reduce(kind, "float32", "float32"), {"x": x}, {"outer": 3, "inner": 2}, {"y": (3, 2)})
        assert (got["y"] == start).all() and (want["y"] == start).all()


@pytest.mark.parametrize("dtype", ARG_DTYPES)
@pytest.mark.parametrize("largest", [True, False])
def test_where_the_extremum_is(library, dtype, largest):
    function = np.argmax if largest else np.argmin
    for outer, depth, inner in SHAPES:
        x = values(dtype, (3, outer, depth, inner))
        if np.dtype(dtype).kind != "b":
            x = RNG.choice(x.reshape(-1)[:5], x.shape)  # equals
        attributes = {"outer": outer, "inner": inner, "first": np.array([0, 100, -7])}
        outs = {"y": (outer, inner), "index": (outer, inner)}
        got, want = both(library, ArgReduce(largest, dtype), {"x": x}, attributes, outs)
        for name in outs:
            same(got[name], want[name])
        same(got["index"] - attributes["first"].reshape(3, 1, 1), function(x, 2))
        places = np.argsort(RNG.random(x.shape), 2).astype(np.int32)
        got, want = both(library, ArgReduce(largest, dtype, True), {"x": x, "places": places}, attributes, outs)
        for name in outs:
            same(got[name], want[name])


def test_cycles_are_the_published_ones():
    codelet = Reduce("add", "float32", "float32")
    # 60 results are 15 vectors of four, three a worker; a load of two floats a cycle.
    assert codelet.cycles({"x": (60, 10), "y": (60,)}, {}, BOW) == 6 * (20 + (2 * 10 + 8) * 3) + 33
    halves = Reduce("add", "float16", "float16")
    assert halves.cycles({"x": (48, 5), "y": (48,)}, {}, BOW) == 6 * (20 + 2 * 5 + 9) + 33
    by_depth = [codelet.cycles({"x": (8, n), "y": (8,)}, {}, BOW) for n in (1, 2, 50, 1000)]
    assert by_depth == sorted(set(by_depth))


def test_sources_compile_without_warnings():
    chosen = [Reduce(*c) for c in CASES[::3]] + [ArgReduce(True, "float16"), ArgReduce(False, "int8", True)]
    assert warnings_of(chosen) == ""
