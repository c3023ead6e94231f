"""At scales far apart our integers are still LiteRT's: factors that vanish, and left shifts that wrap 32 bits."""

import numpy as np
import pytest
from hypothesis import given

import nxjax as nx
from nxjax.ops.fixed.softmax import softmax_grid
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.litert import I8, I16, Random, conforms, randoms

pytest.importorskip("ai_edge_litert.interpreter")

both = pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16"])


def far(r: Random, dtype: np.dtype, low: float, high: float) -> Grid:
    return Grid(dtype, r.scale(low, high), 0 if dtype == I16 else r.choice(-128, 127, r.size(-128, 127)))


@pytest.mark.parametrize("to", [I8, I16], ids=["int8", "int16"])
@both
@given(r=randoms)
def test_requantize(r: Random, dtype: np.dtype, to: np.dtype):
    r.agree("quantize", [far(r, dtype, 1e-6, 1e6)], [(99,)], r.tensor((99,), far(r, to, 1e-6, 1e6)))


@both
@given(r=randoms)
def test_mul(r: Random, dtype: np.dtype):
    grids = [far(r, dtype, 1e-4, 1e4) for _ in range(2)]
    r.agree("mul", grids, [(99,), (99,)], r.tensor((99,), far(r, dtype, 1e-6, 1e6)), activation=None)


@both
@given(r=randoms)
def test_add_of_operands_far_apart(r: Random, dtype: np.dtype):
    x, y = far(r, dtype, 1e-9, 1.0), far(r, dtype, 1.0, 1e3)
    z = far(r, dtype, 1.0, 1e9)
    for op in ("add", "sub"):
        r.agree(op, r.choice([x, y], [y, x]), [(99,), (99,)], r.tensor((99,), z), activation=None)


@both
@given(r=randoms)
def test_mean(r: Random, dtype: np.dtype):
    shape, out = (3, r.size(1, 500)), r.tensor((3,), far(r, dtype, 1e-9, 1e9))
    r.agree("mean", [far(r, dtype, 1e-3, 1e3)], [shape], out, axes=(1,), keepdims=False)


@both
@given(r=randoms)
def test_softmax(r: Random, dtype: np.dtype):
    g = far(r, dtype, 1e-6, 1e8)
    r.agree("softmax", [g], [(3, 50)], r.tensor((3, 50), softmax_grid(dtype)), beta=1.0)


@both
@given(r=randoms)
def test_abs_and_leaky_relu(r: Random, dtype: np.dtype):
    x, y = far(r, dtype, 1e-6, 1e6), far(r, dtype, 1e-6, 1e6)
    r.agree("abs", [x], [(99,)], r.tensor((99,), y))
    r.agree("leaky_relu", [x], [(99,)], r.tensor((99,), y), alpha=0.01)
    r.agree("relu", [x], [(99,)], r.tensor((99,), y))


@given(r=randoms)
def test_tables(r: Random):
    x, y = far(r, I8, 1e-6, 1e6), far(r, I8, 1e-6, 1e6)
    r.agree("tanh", [x], [(256,)], r.tensor((256,), y))
    r.agree("log", [x], [(256,)], r.tensor((256,), y))


@given(r=randoms)
def test_hard_swish(r: Random):
    r.agree("hard_swish", [far(r, I8, 1e-6, 10.0)], [(256,)], r.tensor((256,), far(r, I8, 1.0, 1e6)))


@both
@given(r=randoms)
def test_products(r: Random, dtype: np.dtype):
    """Up to factors of 2**14 beside 16-bit activations; the published routine has no meaning beyond."""
    x, scale = far(r, dtype, 1e-2, 1e2), r.scale(1e-2, 1e2)
    limit = 1e4 if dtype == I16 else 1e9
    out = float(np.float32(float(x.scale) * scale / r.scale(1e-12, limit)))  # pyright: ignore[reportArgumentType]
    w = r.tensor((5, 1, 1, 40), Grid(I8, scale), np.maximum(r.stored((5, 1, 1, 40)), -127))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1, "activation": None}
    y = r.tensor((1, 2, 2, 5), Grid(dtype, out, 0))
    conforms(r.node("conv_2d", [r.tensor((1, 2, 2, 40), x), w, None], y, **attrs), [r.stored((1, 2, 2, 40), dtype)])


def near(x: np.ndarray) -> np.ndarray:
    return x + np.float32(1e-6) * np.abs(x)


X = np.random.default_rng(0).uniform(-100, 100, (4, 16)).astype(np.float32)
BEYOND = {
    # What kernels abort on, or compute nonsense from: a grid that is too fine for what is left of the operands.
    "operands that cancel": (lambda x, y: x - y, (X, near(X))),
    "a sum that cancels, clamped": (lambda x, y: nx.nn.relu(x + y), (X, -near(X))),
    "hard_swish far below -3": (nx.nn.hard_swish, (np.float32([[-1000, -500, -2.9, 0]]),)),
    "scores that are hardly there": (nx.nn.softmax, (np.float32([[-1e-8, 0, 1e-8, 3e-9]]),)),
}


# TFLite has no hard_swish of 16 bits.
@pytest.mark.parametrize(
    ("name", "policy"),
    [(n, p) for n in sorted(BEYOND) for p in ("int8", "int16x8") if (n[:4], p) != ("hard", "int16x8")],
)
def test_quantize_asks_for_no_grid_that_kernels_lack(name: str, policy: str):
    f, args = BEYOND[name]
    qf = nx.quantize(f, policy, calibrate=[args], progress=False)
    want = np.asarray(qf(*args))
    artifact = nx.compile(qf, target="tflite")(*args)
    assert artifact.deviation is not None and artifact.deviation.exact, name
    assert np.array_equal(want, np.asarray(artifact.run(*args)))
    assert np.array_equal(want, np.asarray(nx.jit(qf)(*args)))
    # Nothing is lost but what lies below the operands' own steps.
    step = 2 * np.abs(args[0]).max() / 250
    assert np.abs(want - np.asarray(f(*args))).max() <= step


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.9, 1.5, 300.0])
def test_comparisons_on_grids_of_any_coarseness(scale: float):
    """Two values that a program computes on one grid, and zero: told apart in the file as in the program."""
    x = np.random.default_rng(1).uniform(-100, 100, (2, 4, 9)).astype(np.float32) * np.float32(scale)

    def f(x: np.ndarray):
        a, b = x[0], x[1]
        return nx.numpy.where(a > b, a + b, a), nx.numpy.where(b < 0, a * 2, b), nx.numpy.where(a == b, a, b)

    qf = nx.quantize(f, "int8", calibrate=[(x,)], progress=False)
    artifact = nx.compile(qf, target="tflite")(x)
    for got, want in zip(artifact.run(x), qf(x), strict=True):
        assert np.array_equal(got, want)
    assert artifact.deviation is not None and artifact.deviation.exact
