"""Transforms, interpolation, integrals, nearest codes, iterative solvers and rotations: as SciPy's."""

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.interpolate
import scipy.ndimage
import scipy.signal
import scipy.spatial.transform

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError, ShapeError, TreeError

rng = np.random.default_rng(0)
ours = nx.scipy


def close(got, want, atol=1e-4):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=atol)


def numbers(*shape):
    return rng.normal(size=shape).astype(np.float32)


def test_every_module_is_an_attribute():
    for name in ours.__all__:
        module = getattr(ours, name)
        assert module.__all__ and set(module.__all__) <= set(dir(module))
        assert all(getattr(module, n) is not None for n in module.__all__)
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            _ = module.nonsense
    assert ours.sparse.linalg.cg and ours.cluster.vq.vq and ours.spatial.transform.Rotation


def test_cosine_transforms():
    x = numbers(2, 3, 5)
    for norm in (None, "ortho"):
        for axis in (0, -1):
            close(ours.fft.dct(x, axis=axis, norm=norm), scipy.fft.dct(x, axis=axis, norm=norm))
            close(ours.fft.idct(x, axis=axis, norm=norm), scipy.fft.idct(x, axis=axis, norm=norm))
        for f in ("dctn", "idctn"):
            close(getattr(ours.fft, f)(x, norm=norm), getattr(scipy.fft, f)(x, norm=norm))
            want = getattr(scipy.fft, f)(x, s=(2, 7), axes=(1, 2), norm=norm)
            close(getattr(ours.fft, f)(x, s=(2, 7), axes=(1, 2), norm=norm), want)
    close(ours.fft.dct(x + 1j * x), scipy.fft.dct(x + 1j * x))
    assert ours.fft.dct(np.arange(3), n=5).dtype == np.float32
    with pytest.raises(NotImplementedError, match="type=2"):
        ours.fft.dct(x, type=1)
    with pytest.raises(ParameterError, match="norm"):
        ours.fft.dct(x, norm="forward")


def test_map_coordinates():
    x, places = numbers(4, 5), [(rng.random(9) * 12 - 4).astype(np.float32) for _ in range(2)]
    for mode in ("constant", "nearest", "mirror", "reflect"):
        for order in (0, 1):
            for image in (x, (x * 10).astype(np.int32)):
                want = scipy.ndimage.map_coordinates(image.astype(float), places, order=order, mode=mode, cval=2)
                if mode == "constant":  # SciPy's outside begins at the border's own sample
                    inside = (places[0] >= 0) & (places[0] <= 3) & (places[1] >= 0) & (places[1] <= 4)
                else:
                    inside = np.ones(9, bool)
                got = ours.ndimage.map_coordinates(image, places, order, mode, 2)
                assert got.dtype == image.dtype
                np.testing.assert_allclose(got.numpy()[inside], want[inside], atol=0.51 if image is not x else 1e-4)
    gradient = nx.grad(lambda c: ours.ndimage.map_coordinates(x[0], [c], 1).sum())(np.array([0.5, 2.25], np.float32))
    close(gradient, np.diff(x[0])[[0, 2]])
    with pytest.raises(NotImplementedError, match="order"):
        ours.ndimage.map_coordinates(x, places, 2)
    with pytest.raises(ParameterError, match="per dimension"):
        ours.ndimage.map_coordinates(x, places[:1], 1)


def test_interpolator_integral_and_codes():
    grid, values, at = (np.sort(numbers(5)), np.sort(numbers(4))), numbers(5, 4, 2), numbers(6, 2) * 1.5
    for method in ("linear", "nearest"):
        for fill in (np.nan, None, 3.0):
            f = scipy.interpolate.RegularGridInterpolator(grid, values, method, False, fill)
            g = ours.interpolate.RegularGridInterpolator(grid, values, method, False, fill)
            close(g(at), f(at), 1e-3)
            close(g((at[:, 0], at[:, 1])), f(at), 1e-3)
            close(nx.jit(lambda g, x: g(x))(g, at), f(at), 1e-3)
    with pytest.raises(ParameterError, match="method"):
        ours.interpolate.RegularGridInterpolator(grid, values, "cubic")
    with pytest.raises(NotImplementedError):
        ours.interpolate.RegularGridInterpolator(grid, values, bounds_error=True)
    y, x = numbers(3, 5), np.sort(numbers(5))
    close(ours.integrate.trapezoid(y, x), np.trapezoid(y, x))
    obs, codes = numbers(6, 3), numbers(4, 3)
    for a, b in zip(ours.cluster.vq.vq(obs, codes), scipy.cluster.vq.vq(obs, codes), strict=True):
        close(a, b)
    with pytest.raises(ShapeError, match="rank"):
        ours.cluster.vq.vq(obs, codes[0])


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_iterative_solvers(name):
    solve = getattr(ours.sparse.linalg, name)
    a = numbers(5, 5)
    a = a @ a.T + 3 * np.eye(5, dtype=np.float32)
    a = a if name == "cg" else a + np.triu(numbers(5, 5))
    b = numbers(5)
    want = np.linalg.solve(a, b)
    close(solve(a, b)[0], want, 1e-3)
    pre = np.diag(1 / np.diag(a))
    close(solve(lambda v: jnp.dot(a, v), b, x0=numbers(5), M=lambda v: jnp.dot(pre, v))[0], want, 1e-3)
    close(nx.jit(nx.vmap(lambda r: solve(a, r)[0]))(np.stack([b, 2 * b]))[1], 2 * want, 2e-3)
    tree, _ = solve(lambda t: {"p": 2 * t["p"], "q": jnp.dot(a, t["q"])}, {"p": np.ones((2, 1), np.float32), "q": b})
    close(tree["p"], np.full((2, 1), 0.5))
    close(tree["q"], want, 1e-3)
    gradient = nx.grad(lambda m, r: solve(m, r)[0].sum(), argnums=(0, 1))(a, b)
    back = np.linalg.solve(a.T, np.ones(5))
    close(gradient[1], back, 1e-3)
    close(gradient[0], -np.outer(back, want), 1e-3)
    first = solve(a, b, maxiter=0)[0]
    np.testing.assert_array_equal(np.asarray(first), 0)
    z = (a + 1j * (a - a.T)).astype(np.complex64)
    close(solve(z @ z.conj().T, b + 0j, tol=1e-7)[0], np.linalg.solve(z @ z.conj().T, b), 1e-2)
    if name == "gmres":
        close(solve(a, b, restart=2, solve_method="incremental")[0], want, 1e-3)
        with pytest.raises(ParameterError, match="solve_method"):
            solve(a, b, solve_method="x")
    with pytest.raises(ShapeError, match="square"):
        solve(a[:3], b)
    with pytest.raises(TreeError, match="structure"):
        solve(a, b, x0=(b,))


def test_rotations():
    mine, peer = ours.spatial.transform.Rotation, scipy.spatial.transform.Rotation
    for q in (numbers(4), numbers(3, 4)):
        r, s = mine.from_quat(q), peer.from_quat(q)
        v = numbers(3)
        for name in ("as_matrix", "as_mrp", "as_rotvec", "magnitude"):
            close(getattr(r, name)(), getattr(s, name)())
        close(r.as_quat(canonical=True, scalar_first=True), s.as_quat(canonical=True, scalar_first=True))
        for inverse in (False, True):
            close(r.apply(v, inverse), s.apply(v, inverse))
        close((r * r.inv()).as_matrix(), (s * s.inv()).as_matrix())
        for seq in ("xyz", "ZYX", "zxz", "XYX"):
            close(r.as_euler(seq, degrees=True), s.as_euler(seq, degrees=True), 1e-2)
        close(mine.from_matrix(s.as_matrix()).as_matrix(), s.as_matrix())
        close(mine.from_rotvec(s.as_rotvec()).as_matrix(), s.as_matrix())
        close(mine.from_mrp(s.as_mrp()).as_matrix(), s.as_matrix())
    for seq, angles in (("z", numbers(1)), ("XY", numbers(2)), ("zyx", numbers(4, 3))):
        close(
            mine.from_euler(seq, angles).as_matrix(),
            peer.from_euler(seq, angles).as_matrix().reshape((*angles.shape[:-1], 3, 3)),
        )
    close(r.mean().as_matrix(), s.mean().as_matrix())
    assert len(r) == 3 and r[1].single
    close(mine.concatenate([r, r]).quat, np.concatenate([r.quat, r.quat]))
    at = np.array([0.5, 2.0], np.float32)
    times = np.array([0.0, 1.0, 3.0], np.float32)
    slerp = scipy.spatial.transform.Slerp(times, s)
    close(ours.spatial.transform.Slerp.init(times, r)(at).as_matrix(), slerp(at).as_matrix())
    assert nx.jit(lambda r: r.inv())(r).quat.shape == (3, 4)
    for bad in ("xX", "abc", "xx", ""):
        with pytest.raises(ParameterError, match="Rotation"):
            mine.from_euler(bad, numbers(2))


def test_spectra():
    x = numbers(2, 40)
    signal, peer = ours.signal, scipy.signal
    for kw in ({"nperseg": 8}, {"nperseg": 9, "noverlap": 3, "nfft": 16}, {"nperseg": 8, "boundary": "odd"}):
        for a, b in zip(signal.stft(x, **kw), peer.stft(x, **kw), strict=True):
            close(a, b)
    for kw in ({"nperseg": 8}, {"nperseg": 7, "average": "median"}, {"nperseg": 8, "scaling": "spectrum", "fs": 4.0}):
        for name, operands in (("welch", (x,)), ("csd", (x, x[::-1]))):
            for a, b in zip(getattr(signal, name)(*operands, **kw), getattr(peer, name)(*operands, **kw), strict=True):
                close(a, b)
    for window in ("hamming", "flattop", "bartlett", "cosine", "boxcar", ("kaiser", 3.0), ("gaussian", 2.0)):
        for n in (1, 7, 8):
            got, want = (f.stft(x, nperseg=n, noverlap=0, window=window)[2] for f in (signal, peer))
            close(got, want)
    with pytest.raises(ParameterError, match="window"):
        signal.stft(x, nperseg=8, window="unknown")
    close(signal.istft(signal.stft(x, nperseg=8)[2])[1], x)
    with pytest.raises(ParameterError, match="noverlap"):
        signal.stft(x, nperseg=8, noverlap=8)
    close(signal.detrend(x, bp=[10]), peer.detrend(x, bp=[10]))
    close(signal.fftconvolve(x, x[:, :3], axes=1), peer.fftconvolve(x, x[:, :3], axes=1))
