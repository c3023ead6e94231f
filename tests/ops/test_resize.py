"""Resizing: the laws, the quantized form bit for bit, and jax.image's numbers."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import AxisError, ParameterError
from nxjax.ops.quant_grid import asymmetric, symmetric
from nxjax.ops.quant_resize import qresize
from nxjax.ops.resize import resize
from nxjax.testing import bad, check_op, sample

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 5, 7, 3)).astype(np.float32)
SHAPES = [(2, 10, 14, 3), (2, 3, 4, 3), (2, 12, 7, 3), (4, 5, 7, 1)]


def test_laws():
    params = [
        {"axes": (1, 2), "sizes": (10, 9), "method": "nearest"},
        {"axes": (1, 2), "sizes": (8, 4), "method": "linear"},
        {"axes": (3,), "sizes": (5,), "method": "linear"},
    ]
    check_op(
        resize,
        [sample(X, **p) for p in params],
        [
            bad(X, error=AxisError, says="axis is out of range", axes=(4,), sizes=(2,), method="nearest"),
            bad(X, error=ParameterError, says="method", axes=(1,), sizes=(2,), method="cubic"),
            bad(X, error=ParameterError, says="sizes", axes=(1, 2), sizes=(2,), method="linear"),
        ],
    )


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "lanczos5"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_like_jax(method: str, antialias: bool, shape: tuple[int, ...]):
    ours = nx.image.resize(X, shape, method, antialias=antialias)
    theirs = jax.image.resize(X, shape, method, antialias=antialias)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=2e-6)


def test_gradient_like_jax():
    ours = nx.grad(lambda x: (nx.image.resize(x, (2, 10, 14, 3), "linear") ** 2).sum())(X)
    theirs = jax.grad(lambda x: (jax.image.resize(x, (2, 10, 14, 3), "linear") ** 2).sum())(X)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=1e-4)


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("grid", [asymmetric(-2, 3), symmetric(3.0)], ids=["int8", "int16"])
def test_quantized_expansion_is_the_meaning(rounding: str, grid):
    for axes, sizes in (((1, 2), (10, 9)), ((2, 1), (3, 8)), ((1, 3), (5, 6))):
        params = {"axes": axes, "sizes": sizes, "grid": grid, "rounding": rounding}
        exact = np.asarray(qresize(nx.asarray(X), **params))
        assert (np.asarray(nx.jit(lambda x, p=params: qresize(x, **p))(X)) == exact).all()
        clipped = nx.asarray(np.clip(X, *grid.bounds))
        float_ = np.asarray(resize(clipped, axes=axes, sizes=sizes, method="linear"))
        # Steps have ten bits after the point, and their error adds up over an image.
        assert abs(exact - float_).max() < 1.1 * grid.scale + 20 / 1024


@pytest.mark.parametrize("method", ["nearest", "linear"])
@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_deployed(method: str, policy: str):
    def up(p, x):
        return nx.image.resize(nx.nn.relu(x @ p["w"]), (2, 10, 14, 4), method) @ p["v"]

    params = {"w": rng.normal(size=(3, 4)).astype("f"), "v": rng.normal(size=(4, 5)).astype("f")}
    quantized = nx.quantize(up, policy, calibrate=[(params, X)])
    artifact = nx.compile(quantized, target="tflite")(params, X)
    assert any(n.op.startswith("resize") for n in artifact.graph.nodes)
    assert artifact.deviation is not None and artifact.deviation.exact
    assert (np.asarray(artifact.run(X)) == np.asarray(quantized(params, X))).all()


def test_bad_calls_are_told():
    with pytest.raises(nx.errors.ShapeError, match="one size per dimension"):
        nx.image.resize(X, (2, 3), "linear")
    with pytest.raises(nx.errors.ParameterError, match="method"):
        nx.image.resize(X, X.shape, "sharp")
