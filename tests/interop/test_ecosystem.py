"""Libraries written for JAX run on nxjax, and give what they give on JAX; nxjax's arrays in other libraries."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

HERE = Path(__file__).parent


def test_libraries_give_what_they_give_on_jax():
    """The golden numbers are JAX's: ``python tests/interop/ecosystem_program.py > tests/golden/ecosystem.json``."""
    for package in ("optax", "chex", "einops", "jaxtyping"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    program = [sys.executable, str(HERE / "ecosystem_program.py"), "nxjax"]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout.splitlines()[-1])
    theirs = json.loads((HERE.parent / "golden/ecosystem.json").read_text())
    assert ours.keys() == theirs.keys() and len(ours) > 40
    for name, found in ours.items():
        np.testing.assert_allclose(found, theirs[name], rtol=1e-3, atol=2e-5, err_msg=name)


def test_numpy_and_scipy():
    from scipy import linalg, optimize

    x = jnp.arange(6.0).reshape(2, 3)
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x)) and not view.flags.writeable
    assert np.array(x, copy=True).flags.writeable and type(np.sin(x)) is np.ndarray
    assert (
        isinstance(np.ones(3, np.float32) * x, nx.Array) and np.sum(x) == 15 and np.concatenate([x, x]).shape == (4, 3)
    )
    np.testing.assert_allclose(linalg.svdvals(x), np.linalg.svd(view, compute_uv=False), rtol=1e-5)
    found = optimize.minimize(
        nx.jit(lambda p: ((p - 1) ** 2).sum()), np.zeros(2), jac=nx.grad(lambda p: ((p - 1) ** 2).sum())
    )
    np.testing.assert_allclose(found.x, 1, atol=1e-4)
    for kept in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy([x])[0]):
        assert isinstance(kept, nx.Array) and kept.dtype == x.dtype and (kept == x).all()
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(x)
    assert json.dumps(x.tolist()) == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"


def test_matplotlib():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    x = jnp.linspace(0.0, 1.0, 9)
    figure, axes = plt.subplots(3)
    line, *_ = axes[0].plot(x, jnp.sin(x))
    axes[1].imshow(x.reshape(3, 3))
    counts, *_ = axes[2].hist(x, bins=3)
    figure.canvas.draw()
    plt.close(figure)
    np.testing.assert_array_equal(line.get_xdata(), np.asarray(x))
    assert counts.sum() == 9


def test_scikit_learn():
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    x = nx.random.normal(nx.random.key(0), (20, 3))
    y = x @ jnp.array([1.0, -2.0, 0.5])
    assert Ridge(1e-3).fit(StandardScaler().fit_transform(x), y).score(StandardScaler().fit_transform(x), y) > 0.99


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    x = jnp.arange(4.0)
    safetensors.save_file({"x": np.asarray(x)}, tmp_path / "x.safetensors")
    assert (jnp.asarray(safetensors.load_file(tmp_path / "x.safetensors")["x"]) == x).all()


def test_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x = jnp.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame(x, columns=["a", "b"])
    assert (jnp.asarray(frame.to_numpy()) == x).all() and (jnp.asarray(frame["a"]) == x[:, 0]).all()


def test_torch_without_a_copy():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = jnp.arange(4.0)
    t = torch.arange(4.0)
    y = jnp.from_dlpack(t)
    t[0] = 7.0
    assert y[0] == 7 and torch.from_dlpack(x).tolist() == [0, 1, 2, 3]
    assert torch.utils.dlpack.from_dlpack(x).data_ptr() == np.asarray(x).ctypes.data
