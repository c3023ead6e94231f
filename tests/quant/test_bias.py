"""Corrections of biases: what calibration finds, where they go, and that they help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.quant import bias
from nxjax.quant.effects import GridEffects

RNG = np.random.default_rng(0)
COARSE = nx.quant.Scheme(weights="int4", per_channel=False)
# Activations with a mean: what rounding does to the weights does not cancel.
BATCHES = [abs(RNG.normal(size=(8, 6, 6, 4))).astype(np.float32) + 1 for _ in range(6)]
P = {
    "c": RNG.normal(size=(3, 3, 4, 8)).astype(np.float32),
    "b": RNG.normal(size=8).astype(np.float32),
    "w": RNG.normal(size=(8, 5)).astype(np.float32),
}


def conv(x: Any, w: Any) -> Any:
    return nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def net(p: Any, x: Any) -> Any:
    y = nx.nn.relu(conv(x, p["c"]) + p["b"])
    return y.mean((1, 2)) @ p["w"]


DATA = [(P, x) for x in BATCHES]


def noise(q: Any, x: Any) -> float:
    return float(((np.asarray(q(P, x)) - np.asarray(net(P, x))) ** 2).sum())


def test_results_are_better_on_other_data():
    q = nx.quantize(net, COARSE, calibrate=DATA, error_feedback=False)
    plain = nx.quantize(net, COARSE, calibrate=DATA, bias_correction=False, error_feedback=False)
    assert set(q.corrections) == {"conv_general_dilated_0", "dot_general_0"} and not plain.corrections
    x = abs(RNG.normal(size=(32, 6, 6, 4))).astype(np.float32) + 1
    assert noise(q, x) < 0.5 * noise(plain, x)


def test_a_correction_is_what_the_mean_is_off_by():
    q = nx.quantize(net, COARSE, calibrate=DATA, bias_correction=False, error_feedback=False)
    effects = GridEffects(net, q.policy, None, q.ranges, DATA)
    found = effects.corrections(effects.choice(q.ranges))["conv_general_dilated_0"]
    assert found.shape == (8,) and found.dtype == np.float32
    f = lambda p, x: conv(x, p["c"]) + p["b"]
    grids = {k: v for k, v in q.ranges.items() if k.startswith("in_")}
    wide = {"add_0": (-60.0, 60.0)}
    own = nx.quantize(f, COARSE, ranges=grids | wide)
    off = np.mean([np.asarray(own(P, x)) - np.asarray(f(P, x)) for x in BATCHES], (0, 1, 2, 3))
    np.testing.assert_allclose(found, -off, atol=0.05)


def test_they_go_wherever_the_function_goes():
    q = nx.quantize(net, COARSE, calibrate=DATA)
    x = BATCHES[0]
    y = np.asarray(q(P, x))
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(P, x)), y)
    np.testing.assert_array_equal(np.asarray(nx.vmap(lambda row: q(P, row[None])[0])(nx.array(x))), y)
    np.testing.assert_array_equal(np.asarray(q(q.quantize_params(P, x), x)), y)
    again = nx.quantize(net, COARSE, ranges=q.ranges, corrections=q.corrections)
    np.testing.assert_array_equal(np.asarray(again(P, x)), y)
    g = nx.grad(lambda p: q(p, x).sum())(P)
    assert all(np.isfinite(np.asarray(v)).all() for v in g.values())


@pytest.mark.parametrize(("target", "least"), [("tflite", np.inf), ("onnx", 40.0)])
def test_they_are_constants_of_a_file(target: str, least: float):
    q = nx.quantize(lambda x: net(P, x), COARSE, calibrate=BATCHES)
    assert q.corrections
    # ONNX Runtime rescales sums in floats: some results are a step off.
    assert nx.compile(q, target=target)(BATCHES[0]).deviation.sqnr >= least


def test_what_differs_from_batch_to_batch_is_no_bias():
    means = np.array([[1.0, 3.0], [-1.0, 3.1], [1.0, 2.9], [-1.0, 3.0]])
    found = bias._certain(means, np.zeros_like(means))
    assert found[0] == 0 and abs(found[1] - 3) < 0.01


def test_good_results_need_none():
    f = lambda p, x: x @ p["w"]
    q = nx.quantize(f, "int8", calibrate=[(P, x[0, 0]) for x in [b.repeat(2, -1) for b in BATCHES]])
    assert not q.corrections


@pytest.mark.parametrize("held", [nx.checkpoint, nx.jit, nx.custom_jvp])
def test_what_a_call_holds_is_corrected_as_if_it_stood_there(held: Any):
    inner: Any = held(net)
    if held is nx.custom_jvp:
        inner.defjvp(lambda xs, ts: nx.jvp(net, xs, ts))
    plain, q = (nx.quantize(f, COARSE, calibrate=DATA) for f in (net, inner))
    assert [*plain.corrections] == [*q.corrections]
    x = BATCHES[0]
    np.testing.assert_array_equal(np.asarray(q(P, x)), np.asarray(plain(P, x)))
    np.testing.assert_array_equal(np.asarray(q(q.quantize_params(P, x), x)), np.asarray(plain(P, x)))
    again = nx.quantize(inner, COARSE, ranges=q.ranges, corrections=q.corrections)
    np.testing.assert_array_equal(np.asarray(nx.jit(again)(P, x)), np.asarray(q(P, x)))


def test_what_stands_in_a_loop_has_no_correction():
    f = lambda p, x: nx.lax.scan(lambda c, row: (c, nx.nn.relu(row @ p["w"])), 0.0, x)[1]
    q = nx.quantize(f, COARSE, calibrate=[(P, b.reshape(-1, 8)) for b in BATCHES])
    assert not q.corrections
