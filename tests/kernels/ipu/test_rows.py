"""Softmax and normalization of rows: C++ against the meaning and against the ops."""

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.rows import Norm, Softmax
from nxjax.ops import composite_norm, composite_softmax

from .vertices import both, same, ulps, warnings_of

RNG = np.random.default_rng(9)
SOFTMAX = [Softmax(k, d) for k in ("softmax", "log_softmax", "logsumexp") for d in ("float32", "float16")]
NORMS = [Norm(k, d) for k in ("layer_norm", "rms_norm") for d in ("float32", "float16")]
NORMS.append(Norm("layer_norm", "float16", "float32"))
SHAPES = [(1, 1), (3, 10), (7, 33), (2, 200)]


@pytest.fixture(scope="module")
def library():
    return Library([*SOFTMAX, *NORMS], workers=6)


@pytest.mark.parametrize("codelet", SOFTMAX, ids=repr)
def test_softmax(library, codelet):
    for rows, n in SHAPES:
        x = (RNG.normal(size=(2, rows, n)) * 5).astype(codelet.dtype)
        out = (rows,) if codelet.op == "logsumexp" else (rows, n)
        got, want = both(library, codelet, {"x": x}, {"n": n}, {"y": out})
        # Exponentials of C library and NumPy differ in the last places.
        far = np.where(np.abs(got["y"].astype(float) - want["y"]) < 1e-6, 0, ulps(got["y"], want["y"]))
        assert far.max() <= (16 if codelet.dtype == "float32" else 1)
        op = getattr(composite_softmax, codelet.op)
        axis = {"axes": (2,)} if codelet.op == "logsumexp" else {"axis": 2}
        exact = op.eval(x.astype(np.float64), **axis)
        np.testing.assert_allclose(got["y"], exact, rtol=2e-5 if codelet.dtype == "float32" else 2e-3, atol=1e-6)


@pytest.mark.parametrize("codelet", SOFTMAX, ids=repr)
def test_softmax_of_what_is_not_finite(library, codelet):
    x = np.array([[-np.inf, 0, 1], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, np.inf]], codelet.dtype)[None]
    out = (4,) if codelet.op == "logsumexp" else (4, 3)
    got, want = both(library, codelet, {"x": x}, {"n": 3}, {"y": out})
    same(np.isnan(got["y"]), np.isnan(want["y"]))
    if codelet.op == "logsumexp":
        assert got["y"][0, 1] == -np.inf and got["y"][0, 2] == np.inf and np.isnan(got["y"][0, 3])


@pytest.mark.parametrize("codelet", NORMS, ids=repr)
def test_norms(library, codelet):
    for rows, n in SHAPES:
        x = (RNG.normal(size=(2, rows, n)) * 3 + 1).astype(codelet.dtype)
        scale, bias = (RNG.normal(size=(2, n)).astype(codelet.parameters) for _ in range(2))
        arrays = {"x": x, "scale": scale, "bias": bias}
        got, want = both(library, codelet, arrays, {"n": n, "epsilon": 1e-5}, {"y": (rows, n)})
        same(got["y"], want["y"])
        op = getattr(composite_norm, codelet.op)
        for v in range(2):
            more = (scale[v], bias[v]) if codelet.op == "layer_norm" else (scale[v],)
            wide = (a.astype(np.float64) for a in (x[v], *more))
            exact = op.eval(*wide, axis=(1,), epsilon=1e-5)
            np.testing.assert_allclose(got["y"][v], exact, rtol=1e-4 if codelet.dtype == "float32" else 2e-3, atol=1e-5)


def test_cycles_and_sources():
    grown = [Softmax("softmax", "float32").cycles({"x": (12, n)}, {"n": n}, BOW) for n in (1, 10, 100)]
    assert grown == sorted(set(grown))
    assert Norm("rms_norm", "float32").flops({"x": (2, 5)}, {"n": 5}) == 70
    assert warnings_of([*SOFTMAX, *NORMS]) == ""
