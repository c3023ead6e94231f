"""Weights that all steps of a loop read are in a file once, in every format, and the numbers stay what they were."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

WIDTH, UNITS = 64, 256
FORMATS = {"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino", "apple-ane": "coremltools"}


def lstm(p, xs):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
        c = nx.nn.sigmoid(f) * c + nx.nn.sigmoid(i) * jnp.tanh(g)
        h = nx.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((1, UNITS))
    return nx.lax.scan(step, (zero, zero), xs)[1]


def parameters(rng):
    w = {"x": rng.normal(size=(WIDTH, 4 * UNITS)) / 16, "h": rng.normal(size=(UNITS, 4 * UNITS)) / 16}
    return {k: v.astype(np.float32) for k, v in {**w, "b": rng.normal(size=4 * UNITS)}.items()}


@pytest.mark.parametrize("target", FORMATS)
def test_four_times_the_steps_are_hardly_more_bytes(target):
    pytest.importorskip(FORMATS[target])
    rng = np.random.default_rng(0)
    p = parameters(rng)
    sizes = []
    for steps in (8, 32):
        xs = rng.normal(size=(steps, 1, WIDTH)).astype(np.float32)
        made = nx.compile(lstm, target=target)(p, xs)
        sizes.append(sum(map(len, made.files.values())))
        if made.deviation is not None:
            assert made.deviation.max_error < 1e-5
    weights = sum(v.size for v in p.values())
    assert sizes[0] < 4 * weights + 200_000
    assert sizes[1] <= 1.3 * sizes[0]


def test_a_quantized_cell_has_its_integers_once():
    rng = np.random.default_rng(1)
    p, xs = parameters(rng), rng.normal(size=(8, 1, WIDTH)).astype(np.float32)
    made = nx.compile(nx.quantize(lstm, "int8", calibrate=[(p, xs)]), target="tflite", verify=False)(p, xs)
    stored = [t.shape for t in made.graph.constants() if t.size > 10_000]
    assert sorted(stored) == [(4 * UNITS, WIDTH), (4 * UNITS, UNITS)]
