"""Weights of 4 and 8 bits, rounded with calibration data: better on other data, the same bits, any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.quant import weight_rounding

R = np.random.default_rng(3)
MIX = (R.standard_normal((64, 64)) * np.logspace(0, -1.5, 64)).astype(np.float32)


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def correlated(*shape: int) -> np.ndarray:
    """Data whose last dimension, of 64, has few directions."""
    return normal(*shape, 64) @ MIX


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / ((q - y) ** 2).sum()))


def conv(x: Any, w: Any, numbers: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC"), groups: int = 1) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)


STATIC = nx.quant.Scheme(weights="int4", dense_per_channel=True)
FOUR = "int4-weights"
CASES: dict[str, tuple[Any, Any, Any]] = {
    "dot": (lambda p, x: x @ p["w"], (64, 24), lambda: correlated(80)),
    "transposed": (lambda p, x: x @ p["w"].T, (24, 64), lambda: correlated(80)),
    "swapped": (lambda p, x: p["w"] @ x.T, (24, 64), lambda: correlated(80)),
    "heads": (lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["w"]), (64, 3, 8), lambda: correlated(80)),
    "experts": (lambda p, x: jnp.einsum("ebi,eio->ebo", x, p["w"]), (3, 64, 8), lambda: correlated(3, 80)),
    "conv": (lambda p, x: conv(x, p["w"]), (3, 3, 64, 8), lambda: correlated(2, 6, 6)),
    "conv NCHW": (
        lambda p, x: conv(x.transpose(0, 3, 1, 2), p["w"], ("NCHW", "OIHW", "NCHW")), (8, 64, 3, 3),
        lambda: correlated(2, 6, 6),
    ),
    "conv of groups": (lambda p, x: conv(x, p["w"], groups=2), (3, 3, 32, 8), lambda: correlated(2, 6, 6)),
    "norm": (lambda p, x: (x @ p["w"]) * p["s"] + p["b"], (64, 24), lambda: correlated(80)),
}  # fmt: skip


@pytest.mark.parametrize("policy", [FOUR, STATIC], ids=["weights", "static"])
@pytest.mark.parametrize("name", CASES)
def test_better_than_the_nearest_on_other_data(name: str, policy: Any):
    f, shape, make = CASES[name]
    p = {"w": normal(*shape), "s": 1 + abs(normal(24)), "b": normal(24)}
    data = [(p, make()) for _ in range(4)]
    x = make()
    q = nx.quantize(f, policy, calibrate=data)
    nearest = nx.quantize(f, policy, calibrate=data, error_feedback=False)
    y = f(p, x)
    assert sqnr(y, q(p, x)) > sqnr(y, nearest(p, x)) + 1
    assert not any(k.endswith((":steps", ":shares")) for k in nearest.corrections)
    # Integers are the same however the function is run, and with weights that are stored.
    close = np.testing.assert_array_equal if policy is STATIC else np.testing.assert_allclose
    how = {} if policy is STATIC else {"rtol": 1e-3, "atol": 1e-3}
    close(np.asarray(nx.jit(q)(p, x)), np.asarray(q(p, x)), **how)
    if name != "norm":
        close(np.asarray(q(q.quantize_params(p, x), x)), np.asarray(q(p, x)), **how)
    again = nx.quantize(f, policy, ranges=q.ranges, corrections=q.corrections)
    np.testing.assert_array_equal(np.asarray(again(p, x)), np.asarray(q(p, x)))


def test_weights_of_8_bits_where_results_are_poor():
    """Large weights of small operands make the others' steps long; without them the nearest numbers are good enough."""
    f = lambda p, x: x @ p["w"]
    w = normal(64, 24)
    share = np.where(np.arange(64) == 5, np.float32(1 / 40), np.float32(1))
    make = lambda: correlated(80) * share
    p, x = {"w": w / share[:, None]}, make()
    data = [(p, make()) for _ in range(4)]
    q = nx.quantize(f, "int8", calibrate=data)
    nearest = nx.quantize(f, "int8", calibrate=data, error_feedback=False)
    assert {"dot_general_0:steps", "dot_general_0:shares"} <= set(q.corrections)
    y = f(p, x)
    assert sqnr(y, nearest(p, x)) < 30 and sqnr(y, q(p, x)) > sqnr(y, nearest(p, x)) + 1
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(p, x)), np.asarray(q(p, x)))
    fine = nx.quantize(f, "int8", calibrate=[({"w": w}, correlated(80)) for _ in range(4)])
    assert not any(k.endswith((":steps", ":shares")) for k in fine.corrections)


def test_weights_that_a_function_closes_over():
    w = normal(64, 16)
    f = lambda x: nn.relu(x @ w)
    data = [correlated(80) for _ in range(4)]
    x = correlated(80)
    q, nearest = (nx.quantize(f, FOUR, calibrate=data, error_feedback=fed) for fed in (True, False))
    assert sqnr(f(x), q(x)) > sqnr(f(x), nearest(x)) + 1


def test_products_of_the_same_weights_store_them_alike():
    def f(p: Any, x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ p["w"])
        return x

    p = {"w": normal(64, 64) / 8}
    data = [(p, correlated(40)) for _ in range(2)]
    q = nx.quantize(f, FOUR, calibrate=data)
    steps = [v for k, v in q.corrections.items() if k.endswith(":steps")]
    assert len(steps) == 3 and all(v is steps[0] or (v == steps[0]).all() for v in steps)
    assert isinstance(q.quantize_params(p, data[0][1])["w"], nx.QArray)
    x = correlated(40)
    assert sqnr(f(p, x), q(p, x)) > sqnr(f(p, x), nx.quantize(f, FOUR)(p, x)) + 1


def test_weights_that_something_else_reads_are_left():
    f = lambda p, x, ids: (p["w"][ids] @ p["v"], x @ p["w"].T)
    p = {"w": normal(20, 64), "v": normal(64, 8)}
    q = nx.quantize(f, FOUR, calibrate=[(p, correlated(40), np.arange(4))])
    assert {k.split(":")[0] for k in q.corrections} == {"dot_general_0"}


def test_gradients_are_those_of_the_weights():
    f = lambda p, x: x @ p["w"]
    p = {"w": normal(64, 8)}
    q = nx.quantize(f, FOUR, calibrate=[(p, correlated(80))])
    x = correlated(5)
    g = nx.grad(lambda p: q(p, x).sum())(p)["w"]
    np.testing.assert_allclose(g, np.broadcast_to(x.sum(0)[:, None], (64, 8)), rtol=1e-4, atol=1e-4)


def test_parts_and_deep_products(monkeypatch: pytest.MonkeyPatch):
    f = lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"]
    p = {"w": normal(64, 64) / 8, "v": normal(64, 8)}
    data = [(p, correlated(80))]
    whole = nx.quantize(f, FOUR, calibrate=data).corrections
    monkeypatch.setattr(weight_rounding, "HELD", 1)
    parts = nx.quantize(f, FOUR, calibrate=data).corrections
    assert whole.keys() == parts.keys()
    # Compiled apart, sums may differ in their last bits.
    assert all((whole[k] == parts[k]).mean() > 0.95 for k in whole)
    monkeypatch.setattr(weight_rounding, "DEEPEST", 8)
    shallow = nx.quantize(f, FOUR, calibrate=data).corrections
    assert not any(v.any() for k, v in shallow.items() if k.endswith(":steps"))


def test_no_rows_and_zeros():
    f = lambda p, x: x @ p["w"]
    p = {"w": normal(8, 3)}
    for x in (np.zeros((0, 8), np.float32), np.zeros((4, 8), np.float32)):
        y = nx.quantize(f, FOUR, calibrate=[(p, x)])(p, normal(4, 8))
        assert np.isfinite(np.asarray(y)).all()


def test_calibration_that_is_not_finite_is_refused_and_large_numbers_are_not():
    w, x = normal(64, 8), normal(3, 64)
    f = lambda x: jnp.tanh(x) @ w
    with pytest.raises(
        nx.errors.ParameterError, match=r"dot_general_0 is not finite\n.*batch 2, in which args\[0\] is"
    ):
        nx.quantize(f, FOUR, calibrate=[x, np.where(x == x[0, 0], np.float32(np.nan), x)])
    nearest = nx.quantize(lambda x: x @ w, FOUR)(x)
    # Their squares have no float32.
    large = nx.quantize(lambda x: x @ w, FOUR, calibrate=[x * 1e30, x * 1e30])
    assert abs(large(x) - x @ w).mean() <= 1.1 * abs(nearest - x @ w).mean()
    weights = nx.quantize(lambda x: x @ (w * 1e30), FOUR, calibrate=[x, x])
    assert bool(jnp.isfinite(weights(x)).all())


@pytest.mark.parametrize(("numbers", "shape", "scales"), [
    (("NHWC", "HWIO", "NHWC"), (3, 3, 64, 8), (1, 1, 2, 8)),
    (("NHWC", "OHWI", "NHWC"), (8, 3, 3, 64), (8, 1, 1, 2)),
    (("NHWC", "OIHW", "NHWC"), (8, 64, 3, 3), (8, 2, 1, 1)),
])  # fmt: skip
def test_groups_of_convolutions_are_input_channels(numbers: Any, shape: Any, scales: Any):
    p, x = {"w": normal(*shape)}, normal(1, 5, 5, 64)
    q = nx.quantize(lambda p, x: conv(x, p["w"], numbers), FOUR)
    assert q.quantize_params(p, x)["w"].scale.shape == scales


def test_groups_of_equal_length():
    p, x = {"w": normal(80, 8)}, normal(3, 80)
    q = nx.quantize(lambda p, x: x @ p["w"], FOUR)
    assert q.quantize_params(p, x)["w"].scale.shape == (5, 8)
    np.testing.assert_allclose(q(q.quantize_params(p, x), x), q(p, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["tflite", "onnx"])
def test_files_have_the_groups(target: str):
    w, x = normal(64, 8), correlated(5)
    grouped = nx.compile(nx.quantize(lambda x: x @ w, FOUR, calibrate=[x]), target=target)(x)
    assert not any("groups" in note for note in grouped.notes) and grouped.deviation.sqnr > 80
