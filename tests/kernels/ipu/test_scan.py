"""Running reductions: C++ against the meaning and NumPy."""

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.scan import Cumulative

from .vertices import both, same, ulps, warnings_of

RNG = np.random.default_rng(5)
CASES = [
    (kind, dtype, reverse)
    for dtype in ("float32", "float16", "int32", "uint8")
    for kind in ("add", "mul", "max", "min", "logsumexp")
    for reverse in (False, True)
    if kind != "logsumexp" or dtype.startswith("float")
]


@pytest.fixture(scope="module")
def library():
    return Library([Cumulative(*c) for c in CASES], workers=6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cumulative(library, case):
    kind, dtype, reverse = case
    for outer, depth, inner in [(1, 20, 1), (7, 5, 1), (3, 4, 8), (2, 9, 3), (1, 1, 1), (2, 0, 3)]:
        x = (
            RNG.normal(size=(2, outer, depth, inner))
            if "float" in dtype
            else RNG.integers(0, 9, (2, outer, depth, inner))
        )
        x = x.astype(dtype)
        if "float" in dtype and x.size > 3:
            x.reshape(-1)[1:3] = np.nan, -np.inf
        attributes = {"outer": outer, "inner": inner}
        got, want = both(library, Cumulative(*case), {"x": x}, attributes, {"y": (outer, depth, inner)})
        if not x.size:
            continue
        if kind == "logsumexp":
            far = ulps(got["y"], want["y"])
            with np.errstate(all="ignore"):
                near = np.abs(got["y"].astype(np.float64) - want["y"]) < 1e-5
            assert np.where(near, 0, far).max() <= 8
        else:
            same(got["y"], want["y"])
        ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "logsumexp": np.logaddexp}
        wide = np.float32 if dtype == "float16" else dtype
        with np.errstate(all="ignore"):
            along = np.flip(x, 2) if reverse else x
            exact = ufunc[kind].accumulate(along.astype(wide), 2, dtype=wide).astype(dtype)
            exact = np.flip(exact, 2) if reverse else exact
            np.testing.assert_allclose(got["y"].astype(float), exact.astype(float), rtol=2e-3, atol=1e-5)


def test_cycles_and_sources():
    codelet = Cumulative("add", "float32")
    by_depth = [codelet.cycles({"x": (6, n, 1)}, {"outer": 6, "inner": 1}, BOW) for n in (1, 5, 50)]
    assert by_depth == sorted(set(by_depth)) and by_depth[0] == 6 * (30 + 15) + 11
    assert warnings_of([Cumulative(*c) for c in CASES]) == ""
