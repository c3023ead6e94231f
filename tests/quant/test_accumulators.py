"""Sums of quantized products against a model of their own, in int64 and float64, that shares no rule with nxjax."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError
from nxjax.quant import Scheme

SCHEMES = {
    "int8": Scheme(),
    "int8 per channel": Scheme(dense_per_channel=True),
    "int8 single": Scheme(rounding="single"),
    "int4": Scheme(weights="int4", dense_per_channel=True),
    "int16x8": Scheme(activations="int16"),
    "int16x8 per channel": Scheme(activations="int16", dense_per_channel=True),
}


def own_grid(low: float, high: float, wide: bool) -> tuple[float, int, int, int]:
    """Scale, zero point, least and greatest stored integer."""
    if wide:
        return float(np.float32(max(abs(low), abs(high)) / 32767)), 0, -32768, 32767
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / 255))
    return scale, int(np.clip(np.floor(-128 - low / scale + 0.5), -128, 127)), -128, 127


def dense(p, x):
    return x @ p["w"] + p["b"]


def conv(p, x):
    y = nx.lax.conv(x[:, :, None, None], p["w"].T[:, :, None, None], (1, 1), "VALID")
    return (y + p["b"][:, None, None])[:, :, 0, 0]


def check(f, p, x, scheme: Scheme) -> None:
    """Eager and compiled results are the model's, to a step; its sums fit; its error is that of rounding."""
    q = nx.quantize(f, scheme, calibrate=[(p, x)], bias_correction=False, error_feedback=False)
    y = np.asarray(q(p, x), np.float64)
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(p, x), np.float64), y)
    stored = q.quantize_params(p, x)
    np.testing.assert_array_equal(np.asarray(q(stored, x), np.float64), y, "as QArrays")
    wide, w, b = scheme.activations == np.int16, p["w"].astype(np.float64), p["b"].astype(np.float64)
    spans = list(q.ranges.values())
    x_scale, x_zero, x_low, x_high = own_grid(*spans[0], wide)
    y_scale, y_zero, y_low, y_high = own_grid(*spans[-1], wide)
    centred = np.clip(np.rint(x / x_scale) + x_zero, x_low, x_high).astype(np.int64) - x_zero
    w_scale = np.asarray(stored["w"].scale, np.float64)
    whole = np.asarray(stored["w"].values).astype(np.int64)
    assert (abs(whole * w_scale - w) <= w_scale * 0.5001).all()
    bias = np.rint(b / (x_scale * w_scale)).astype(object).reshape(1, -1)
    sums = centred.astype(object) @ whole.astype(object) + bias
    assert max(map(abs, sums.ravel())) < 2 ** (47 if wide else 31)
    real = sums.astype(np.float64) * x_scale * w_scale
    model = (np.clip(np.rint(real / y_scale) + y_zero, y_low, y_high) - y_zero) * y_scale
    # 16-bit results have multipliers of 15 bits.
    slack = 2.0**-14 * abs(real) if wide else 0
    assert (abs(y - model) <= y_scale * 1.001 + slack).all()
    room = np.maximum(abs(w).max(0) / (7 if scheme.weights == "int4" else 127), abs(b) / (x_scale * 2.0**29))
    room = room if w_scale.size > 1 else room.max()
    allowed = (abs(centred).sum(1, keepdims=True) + 1) * x_scale * room + 1.5 * y_scale + slack
    allowed = allowed + abs(x - centred * x_scale) @ abs(w)
    assert (abs(y - (x.astype(np.float64) @ w + b)) <= allowed).all()


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("seed", range(8))
def test_products_of_all_scales(seed: int, name: str):
    rng = np.random.default_rng([seed, len(name)])
    n, k, m = rng.integers(1, [6, 40, 6])
    scale = lambda low, high: 10.0 ** rng.uniform(low, high)
    w = rng.normal(size=(k, m)) * scale(-12, 6)
    if seed % 2:
        w *= 10.0 ** rng.uniform(-6, 0, m)
    x = rng.normal(size=(n, k)) * scale(-12, 6)
    b = rng.normal(size=m) * abs(x @ w).max() * scale(-3, 9)
    p = {"w": w.astype(np.float32), "b": b.astype(np.float32)}
    for f in (dense, conv) if name in ("int8", "int16x8") else (dense,):
        check(f, p, x.astype(np.float32), SCHEMES[name])


@pytest.mark.parametrize("f", [dense, conv])
@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_large_biases_keep_their_sign(policy: str, f):
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    for weak, size, unit in ((1e-4, 100, 1), (1e-4, 1, 1e-3), (1e10, 1e20, 1), (0, 1, 1)):
        p = {"w": np.full((4, 2), weak, np.float32), "b": np.float32([size, -size])}
        q = nx.quantize(f, policy, calibrate=[(p, x * np.float32(unit))])
        np.testing.assert_allclose(q(p, x * np.float32(unit)), f(p, x * np.float32(unit)), rtol=0.006)


def test_a_bias_that_switches_a_channel_off_costs_the_others_nothing():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
    f = lambda p, x: nx.nn.relu(dense(p, x))
    for off in (-1e9, -1e30):
        p = {"w": w, "b": np.float32([0, off, 1])}
        q = nx.quantize(f, "int8", calibrate=[(p, x)])
        y = np.asarray(q(p, x))
        np.testing.assert_array_equal(
            np.asarray(q.quantize_params(p, x)["w"].scale), abs(w).max(0, keepdims=True) * np.float32(1 / 127)
        )
        assert not y[:, 1].any() and abs(y - f(p, x)).max() < 0.1
        np.testing.assert_array_equal(nx.jit(q)(p, x), y)


def test_deep_products_do_not_wrap():
    rng = np.random.default_rng(2)
    x, w = abs(rng.normal(size=(2, 70_000))).astype(np.float32), np.ones((70_000, 2), np.float32)
    for b in ([0, 0], [1e5, -1e6]):
        p = {"w": w, "b": np.float32(b)}
        q = nx.quantize(dense, "int8", calibrate=[(p, x)])
        y = np.asarray(q(p, x))
        np.testing.assert_allclose(y, dense(p, x), rtol=0.02)
        np.testing.assert_array_equal(nx.jit(q)(p, x), y)
        np.testing.assert_array_equal(q(q.quantize_params(p, x), x), y)


def test_too_deep_a_product_stays_in_float_and_says_why():
    f = lambda p, x: nx.nn.relu((x @ p) + 1.0) * 0.5
    p, x = np.full((1_100_000, 1), 1e-6, np.float32), np.ones((1, 1_100_000), np.float32)
    q = nx.quantize(f, "int8", calibrate=[(p, x)], params=0)
    (why,) = [why for e, why in q.plan(q.traced(p, x)).left if e.op.name == "dot_general"]
    assert why == "sums more elements than integer accumulators hold"
    np.testing.assert_allclose(q(p, x), f(p, x), rtol=0.02)


def test_scales_depend_on_the_biases_of_each_turn_of_a_scan():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 5)).astype(np.float32)
    p = {"w": rng.normal(size=(3, 5, 5)).astype(np.float32) * 1e-6, "b": rng.normal(size=(3, 5)).astype(np.float32)}
    p["b"] *= np.float32([[1], [1e3], [1e-3]])
    f = lambda p, x: nx.lax.scan(lambda h, layer: (nx.nn.relu(dense(layer, h)) * 0.1, None), x, p)[0]
    q = nx.quantize(f, "int8", calibrate=[(p, x)])
    stored = q.quantize_params(p, x)
    assert stored["w"].scale.shape == (3, 1, 5)
    np.testing.assert_array_equal(q(stored, x), q(p, x))


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("size", [1e8, 1e10, 1e15])
def test_what_is_far_beyond_a_grid_is_at_its_end(size: float, policy: str):
    x = np.linspace(-size, size, 9, dtype=np.float32)
    functions = {
        "relu6": lambda x: nx.nn.relu6(jnp.maximum(x, -3.0)),
        "relu6 of a product": lambda x: nx.nn.relu6(x * 1.5),
        "clip": lambda x: jnp.clip(x * 1.5, -2.0, 5.0),
        "tanh": lambda x: jnp.tanh(x * 1.5),
        "product": lambda x: jnp.clip(x[:, None] @ x[None, :], -1.0, 2.0),
        "sum": lambda x: nx.nn.relu6(jnp.stack([x, x]).sum(0)),
    }
    for name, f in functions.items():
        q = nx.quantize(f, policy, calibrate=[x])
        y = np.asarray(q(x))
        np.testing.assert_allclose(y, f(x), atol=0.05, err_msg=name)
        np.testing.assert_array_equal(nx.jit(q)(x), y, name)


def test_products_of_activations_that_could_wrap_stay_float():
    types = nx.ShapeDtypeStruct((1, 40_000), np.float32), nx.ShapeDtypeStruct((40_000, 1), np.float32)
    with pytest.raises(ParameterError, match="nothing in the function is quantized"):
        nx.eval_shape(nx.calibrate(lambda x, y: x @ y), *types)


@pytest.mark.parametrize("policy", ["dynamic-int8", "int8-weights", "int4-weights"])
def test_weights_without_an_integer_are_refused(policy: str):
    x, w, b = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32), np.ones(3, np.float32)
    w[2, 1] = np.nan
    with pytest.raises(ParameterError, match=r"(?s)weights of dot_general have no integer.*nan at \(2, 1\)"):
        nx.quantize(dense, policy)({"w": w, "b": b}, x)


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_numbers_without_an_integer_are_refused(policy: str):
    x, w, b = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32), np.ones(3, np.float32)
    bad, inf, far = w.copy(), b * np.float32(np.inf), x.copy()
    bad[2, 1] = far[1, 2] = np.nan
    for batch, which in ((({"w": bad, "b": b}, x), r"\['w'\]"), (({"w": w, "b": inf}, x), r"\['b'\]"),
                         (({"w": w, "b": b}, far), r"args\[1\]")):  # fmt: skip
        with pytest.raises(ParameterError, match=rf"(?s)not finite.*in batch 1.*{which} is not.*return x @"):
            nx.quantize(dense, policy, calibrate=[batch])
    q = nx.quantize(dense, policy, calibrate=[({"w": w, "b": b}, x)])
    with pytest.raises(
        ParameterError, match=r"(?s)weights of dot_general have no integer.*nan at \(2, 1\).*return x @"
    ):
        q({"w": bad, "b": b}, x)
    with pytest.raises(ParameterError, match=r"biases of dot_general have no integer"):
        q({"w": w, "b": inf}, x)
    for call in (q, nx.jit(q)):
        with nx.debug_nans(True):
            call({"w": w, "b": b}, x)
            with pytest.raises(nx.errors.NonFiniteError, match="debug_nans: the NaN was an input"):
                call({"w": w, "b": b}, far)


@pytest.mark.parametrize(
    ("policy", "most", "name"),
    [
        ("int8", (2**31 - 1) // 255, "mean"),
        *(("int16x8", 2**16 - 1, name) for name in ("sum", "mean", "window")),
    ],
    ids=["int8-mean", "int16x8-sum", "int16x8-mean", "int16x8-window"],
)
def test_sums_of_activations_that_could_wrap_stay_float(policy: str, most: int, name: str):
    f = {
        "sum": lambda x: nx.nn.relu(x).sum(),
        "mean": lambda x: nx.nn.relu(x).mean(),
        "window": lambda x: nx.lax.reduce_window(nx.nn.relu(x), 0.0, nx.lax.add, x.shape, (1,), "VALID") / x.size,
    }[name]
    for n in (most, most + 1):
        x = jnp.full(n, 0.9, np.float32)
        q = nx.quantize(f, policy, calibrate=[(x,)], progress=False)
        ops = {e.op.name for e in nx.make_jaxpr(q)(x).eqns}
        assert ops.isdisjoint({"qdot", "qmean", "qavgpool"}) == (n > most), ops
        if n > most or policy != "int8":  # the other has eight million elements, which say nothing more
            np.testing.assert_allclose(q(x), f(x), rtol=1e-3)


@pytest.mark.parametrize(("policy", "most"), [("int8", 2**12 - 1), ("int16x8", 2**16 - 1)], ids=["int8", "int16x8"])
def test_softmaxes_whose_sum_could_wrap_stay_float(policy: str, most: int):
    f = lambda x: nx.nn.softmax(nx.nn.relu(x))
    for n in (most, most + 1, 2**16 + 1):
        x = jnp.full((1, n), 0.5, np.float32)
        q = nx.quantize(f, policy, calibrate=[(x,)], progress=False)
        assert ("qsoftmax" in {e.op.name for e in nx.make_jaxpr(q)(x).eqns}) == (n <= most)
        np.testing.assert_allclose(q(x), f(x), rtol=0.5, atol=1 / 256)
