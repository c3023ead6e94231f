"""Everything around products: sums, tables, means, pools, softmax, moves and joins on integers, close and exact."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn

R = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / max(((q - y) ** 2).sum(), 1e-30)))


P = {"w": normal(8, 8, scale=0.4), "b": normal(8, scale=0.3), "g": np.abs(normal(8)) + 0.5}
X, Z, I = normal(6, 8), normal(6, 8), normal(2, 6, 6, 4)
window = lambda x, start, op, size=2, step=2, padding="VALID": lax.reduce_window(
    x, start, op, (1, size, size, 1), (1, step, step, 1), padding
)

# One activation, or a layer's result, in and one value out.
WHOLE = {
    "add": lambda p, x: jnp.tanh(x) + x,
    "sub": lambda p, x: x - x[::-1],
    "mul": lambda p, x: x * nn.sigmoid(x),
    "add a row": lambda p, x: jnp.tanh(x) + p["b"],
    "add a number": lambda p, x: x + 1.5,
    "from a number": lambda p, x: 1.5 - x,
    "times a row": lambda p, x: x * p["g"],
    "over a row": lambda p, x: x / p["g"],
    "square": lambda p, x: x**2,
    "twice itself": lambda p, x: x + x,
    "relu of a sum": lambda p, x: nn.relu(x + x[::-1]),
    "relu6": lambda p, x: nn.relu6(3 * x),
    "clip": lambda p, x: jnp.clip(x, -0.5, 0.8),
    "leaky_relu": lambda p, x: nn.leaky_relu(x),
    "gelu": lambda p, x: nn.gelu(x),
    "silu": lambda p, x: nn.silu(x),
    "exp": lambda p, x: jnp.exp(x),
    "log": lambda p, x: jnp.log(x**2 + 1),
    "sqrt": lambda p, x: jnp.sqrt(jnp.abs(x)),
    "abs": lambda p, x: jnp.abs(x),
    "softmax": lambda p, x: nn.softmax(3 * x),
    "softmax along rows": lambda p, x: nn.softmax(3 * x, axis=0),
    "sum": lambda p, x: x.sum(0),
    "sum of all": lambda p, x: x.sum(),
    "mean": lambda p, x: (x + 1).mean(1),
    "mean kept": lambda p, x: (x + 1).mean(1, keepdims=True),
    "greatest": lambda p, x: x.max(0),
    "least": lambda p, x: x.min(1),
    "layer_norm": lambda p, x: nn.layer_norm(x, p["g"], p["b"]),
    "rms_norm": lambda p, x: nn.rms_norm(x, p["g"]),
    "reshape": lambda p, x: jnp.tanh(x).reshape(8, 6).T,
    "reverse": lambda p, x: nn.sigmoid(x)[::-1, ::2],
    "take": lambda p, x: jnp.tanh(x)[np.array([3, 0, 3])],
    "pad": lambda p, x: jnp.pad(jnp.tanh(x), ((1, 2), (0, 1))),
    "pad with something": lambda p, x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=-0.7),
    "pad with much": lambda p, x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=9.0),
    "edge": lambda p, x: jnp.pad(x, ((1, 2), (0, 1)), mode="edge"),
    "join": lambda p, x: jnp.concatenate([x, nn.sigmoid(x), 3 * x], 1),
    "stack": lambda p, x: jnp.stack([x, x @ p["w"]]),
    "choose": lambda p, x: jnp.where(x > 0, x, jnp.tanh(x)),
    "choose a number": lambda p, x: jnp.where(x > 0, x, -3.0),
    "maximum": lambda p, x: jnp.maximum(x, nn.sigmoid(x)),
    "split": lambda p, x: jnp.split(x, 2, 1)[0] * jnp.split(x, 2, 1)[1],
    "roll": lambda p, x: jnp.roll(x, 3, 1),
    "update": lambda p, x: lax.dynamic_update_slice(x, jnp.tanh(x[:2]), (1, 0)),
    "attention": lambda p, x: nn.softmax(x @ p["w"] @ x.T / 8**0.5) @ x,
    "gate": lambda p, x: nn.sigmoid(x @ p["w"]) * jnp.tanh(x @ p["w"].T),
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers_all_the_way(name: str):
    f = WHOLE[name]
    for policy, least in (("int8", 24), ("int16x8", 33)):
        q = nx.quantize(f, policy, calibrate=[(P, X), (P, Z)])
        assert not q.plan(q.traced(P, X)).left
        for x in (X, Z):
            y = q(P, x)
            assert y.dtype == np.float32 and sqnr(f(P, x), y) > least, (policy, sqnr(f(P, x), y))
            np.testing.assert_array_equal(np.asarray(nx.jit(q)(P, x)), np.asarray(y))
        g = nx.grad(lambda x, q=q: q(P, x).sum())(nx.asarray(X))
        assert jnp.isfinite(g).all()


POOLS = {
    "mean": lambda p, x: window(x, 0.0, lax.add) / 4,
    "mean by product": lambda p, x: window(x, 0.0, lax.add) * 0.25,
    "mean, border counted": lambda p, x: window(x, 0.0, lax.add, 3, 1, "SAME") / 9,
    "mean, border not counted": lambda p, x: (
        window(x, 0.0, lax.add, 3, 2, "SAME") / window(jnp.ones_like(x), 0.0, lax.add, 3, 2, "SAME")
    ),
    "greatest": lambda p, x: window(x, -jnp.inf, lax.max, 3, 2, "SAME"),
    "global": lambda p, x: x.mean((1, 2)),
    "squeeze and excite": lambda p, x: x * nn.sigmoid(x.mean((1, 2), keepdims=True) @ p["w"][:4, :4]),
    "bilinear": lambda p, x: nx.image.resize(x, (2, 9, 9, 4), "bilinear"),
    "nearest": lambda p, x: nx.image.resize(x, (2, 12, 12, 4), "nearest"),
}


@pytest.mark.parametrize("name", POOLS)
def test_pictures(name: str):
    f = POOLS[name]
    for policy, least in (("int8", 28), ("int16x8", 60)):
        q = nx.quantize(f, policy, calibrate=[(P, I)])
        assert not q.plan(q.traced(P, I)).left
        # Coordinates of a resized picture have ten bits.
        most = {"squeeze and excite": 30, "bilinear": 45}.get(name, least)
        assert sqnr(f(P, I), q(P, I)) > min(most, least)
        np.testing.assert_array_equal(np.asarray(nx.jit(q)(P, I)), np.asarray(q(P, I)))


def test_results_lie_on_their_grids():
    f = lambda p, x: (jnp.tanh(x @ p["w"]), nn.softmax(x), nn.sigmoid(x), nn.relu(x))
    q = nx.quantize(f, "int8", calibrate=[(P, X)])
    t, s, g, r = (np.asarray(v, np.float64) for v in q(P, X))
    assert (t * 128 == np.rint(t * 128)).all() and (s * 256 == np.rint(s * 256)).all()
    assert (g * 256 == np.rint(g * 256)).all() and r.min() == 0
    assert len(np.unique(r)) <= 256


def test_moves_keep_the_bits():
    plain = nx.quantize(lambda p, x: x @ p["w"], calibrate=[(P, X)])
    y = np.asarray(plain(P, X))
    moved = lambda p, x: (x @ p["w"]).T.reshape(2, 24)[:, ::-1].max(0)
    q = nx.quantize(moved, "int8", calibrate=[(P, X)])
    np.testing.assert_array_equal(np.asarray(q(P, X)), y.T.reshape(2, 24)[:, ::-1].max(0))
    assert "requantize" not in str(nx.make_jaxpr(q)(P, X))


def test_what_has_no_integers_is_left_between_them():
    f = lambda p, x: jnp.sort(jnp.tanh(x @ p["w"]), 0) @ p["w"]
    q = nx.quantize(f, "int8", calibrate=[(P, X)])
    assert [e.op.name for e, _ in q.plan(q.traced(P, X)).left] == ["sort"] and sqnr(f(P, X), q(P, X)) > 28


def test_tables_of_ones_own_functions():
    @nx.jit
    def wave(x: Any) -> Any:
        return jnp.sin(3 * x)

    f = lambda p, x: wave(x @ p["w"])
    q = nx.quantize(f, "int8", calibrate=[(P, X)])
    assert [e.params["function"] for e in nx.make_jaxpr(q)(P, X).equations if e.op.name == "qunary"] == ["sin"]
    assert sqnr(f(P, X), q(P, X)) > 22


def test_extreme_values():
    for scale in (1e-30, 1e-6, 1e6, 1e20):
        f = lambda p, x: nn.relu(x @ p["w"]) + jnp.abs(x)
        q = nx.quantize(f, "int8", calibrate=[(P, scale * X)])
        assert sqnr(f(P, scale * X) / scale, q(P, scale * X) / scale) > 28
        np.testing.assert_array_equal(np.asarray(nx.jit(q)(P, scale * X)), np.asarray(q(P, scale * X)))
    constant = nx.quantize(lambda p, x: x @ p["w"], calibrate=[(P, 0 * X)])
    assert not np.asarray(constant(P, 0 * X)).any()


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("fill", [3.0, 0.0, -50.0])
def test_what_a_gather_fills_lies_on_the_grid(policy: str, fill: float):
    """Beyond the range of the array that is indexed, too."""
    indices = jnp.array([9, 0, 0, 3, 8])
    f = lambda x: jnp.take(jnp.tanh(x), indices, axis=-1, mode="fill", fill_value=fill) * 0.5 + x[:, :5]
    y, q = f(X), nx.quantize(f, policy, calibrate=[(X,)])
    assert np.abs(np.asarray(q(X)) - np.asarray(y)).max() < (0.4 if policy == "int8" else 2e-3)
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(X)), np.asarray(q(X)))


def test_an_op_without_results_is_no_obstacle():
    f = lambda x: lax.dce_sink(jnp.sin(x)) or nn.softmax(jnp.tanh(x))
    assert sqnr(f(X), nx.quantize(f, "int8", calibrate=[(X,)])(X)) > 25


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_windows_that_hold_only_padding_have_no_grid(policy: str):
    """Their maximum is minus infinity: refused where it has to lie on a grid, kept where it need not.

    It need not where the start of the window is a bound: nothing below that has a part in the range.
    """
    x = np.linspace(3, 6, 8, dtype=np.float32)[None]
    window = lambda op, start, stride, padding, holes: (
        lambda x: lax.reduce_window(
            x * 2, start, op, (1, 2), (1, stride), ((0, 0), (padding, padding)), base_dilation=(1, holes)
        )
    )
    bounded = (window(lax.max, -5.0, 2, 2, 1), window(lax.max, -5.0, 1, 0, 3), window(lax.min, 50.0, 2, 2, 1))
    for f in bounded:
        np.testing.assert_allclose(nx.quantize(f, policy, calibrate=[(x,)])(x), f(x), atol=0.1)
    alone = lambda x: 2 * lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), ((0, 0), (2, 2)))
    with pytest.raises(nx.errors.ParameterError, match="not finite"):
        nx.quantize(alone, policy, calibrate=[(x,)])
    for f in (window(lax.max, -np.inf, 2, 2, 1), window(lax.max, -np.inf, 1, 1, 1)):
        np.testing.assert_allclose(nx.quantize(f, policy, calibrate=[(x,)])(x), f(x), atol=0.1)


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_sums_are_rounded_alike_in_files(policy: str):
    """LiteRT rounds a SUM in float32; a product with ones is rounded once. Also of nothing, and of single elements."""
    pytest.importorskip("ai_edge_litert")
    x = normal(32, 3, 8)
    f = lambda x: (nn.relu(x).sum(-1), x.sum((0, 1)), x[:1].sum(0, keepdims=True))
    q = nx.quantize(f, policy, calibrate=[(x,)])
    artifact = nx.compile(q, target="tflite")(x)
    assert artifact.deviation.exact and not artifact.report.notes
    assert "sum" not in {n.op for n in artifact.graph}
    for y, z in zip(f(x), q(x), strict=True):
        assert y.shape == z.shape and sqnr(y, z) > 30
    assert nx.quantize(lambda x: x[:0].sum(0), policy, calibrate=[(x,)])(x).tolist() == np.zeros((3, 8)).tolist()
