"""LAPACK routines emitted as custom calls, against NumPy and the defining equations, batched, all four dtypes."""

import numpy as np
import pytest

from nxjax.backends.xla import lapack
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.lower.stablehlo.builder import ModuleBuilder, SsaName, StablehloBuilder
from nxjax.lower.stablehlo.types import tensor
from nxjax.trace.array import wrap

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(3, 3), (2, 4, 4), (2, 3, 1, 1)]


def run(emit, *arrays):
    xs = [wrap(a) for a in arrays]
    b = StablehloBuilder(ModuleBuilder())
    refs = [SsaName(f"%a{i}", x.type) for i, x in enumerate(xs)]
    ys = emit(b, *refs)
    ys = ys if isinstance(ys, tuple) else (ys,)
    header = ", ".join(f"{r}: {tensor(r.type)}" for r in refs)
    outs = ", ".join(tensor(y.type) for y in ys)
    end = f"return {', '.join(y.name for y in ys)} : {outs}"
    text = "\n".join([f"module @m {{ func.func public @main({header}) -> ({outs}) {{", *b.lines, end, "} }"])
    return [y.numpy() for y in XlaExecutable(compile_text(text), text, [y.type for y in ys])(xs)]


def matrix(dtype, shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def h(x):
    return np.swapaxes(x, -1, -2).conj()


def close(a, b):
    single = np.float32 in {np.asarray(v).real.dtype.type for v in (a, b)}
    tolerance = 1e-4 if single else 1e-10
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factorizations(dtype, shape):
    x = matrix(dtype, shape)
    n = shape[-1]
    positive = (x @ h(x) + n * np.eye(n)).astype(dtype)
    close(np.tril(run(lapack.potrf, positive)[0]), np.linalg.cholesky(positive))
    v, w = run(lapack.syevd, positive)
    close(v * w[..., None, :], positive @ v)
    close(w, np.linalg.eigvalsh(positive))
    lu, pivots = run(lapack.getrf, x)
    for index in np.ndindex(shape[:-2]):
        rows = list(range(n))
        for i, p in enumerate(pivots[index]):
            rows[i], rows[p] = rows[p], rows[i]
        close((np.tril(lu[index], -1) + np.eye(n)) @ np.triu(lu[index]), x[index][rows])
    w, vl, vr = run(lambda b, r: lapack.geev(b, r, True, True), x)
    close(x @ vr, vr * w[..., None, :])
    close(h(vl) @ x, w[..., :, None] * h(vl))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (5, 2, 2)])
def test_rectangular(dtype, shape):
    x = matrix(dtype, shape)
    k = min(shape[-2:])
    for full in (False, True):
        s, u, vt = run(lambda b, r, full=full: lapack.gesdd(b, r, full), x)
        close(s, np.linalg.svd(x, compute_uv=False))
        close((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], x)
    close(run(lambda b, r: lapack.gesdd(b, r, False, compute_uv=False)[0], x)[0], s)
    packed, taus = run(lapack.geqrf, x)
    q = run(lapack.orgqr, packed[..., :k].copy(), taus)[0]
    close(q @ np.triu(packed)[..., :k, :], x)
    close(h(q) @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)))


def test_failure_is_nan():
    assert np.isnan(run(lapack.potrf, -np.eye(2, dtype=np.float32))[0]).all()
    batch = np.stack([np.eye(2), -np.eye(2)]).astype(np.float64)
    y = run(lapack.potrf, batch)[0]
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()
