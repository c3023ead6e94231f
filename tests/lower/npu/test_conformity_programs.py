"""A quantized program, the graph it is lowered to, and the graph's file in LiteRT: one meaning, bit for bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.lower.npu.bind import bind
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from tests.lower.npu.litert import litert

pytest.importorskip("ai_edge_litert.interpreter")


def drawn(seed: int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    return {
        name: (r.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]) or 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


def conv(x: Any, w: Any, strides: int = 1, groups: int = 1) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (strides, strides), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def cnn(p: Any, x: Any) -> Any:
    x = nx.nn.relu6(conv(x, p["first"], 2) + p["bias"])
    y = nx.nn.relu(conv(x, p["depthwise"], 1, 8))
    x = x + conv(y, p["point"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.mean((1, 2))
    return nx.nn.softmax(x @ p["dense"] + p["dense_bias"])


CNN = {
    "first": (3, 3, 3, 8),
    "bias": (8,),
    "depthwise": (3, 3, 1, 8),
    "point": (1, 1, 8, 8),
    "dense": (8, 10),
    "dense_bias": (10,),
}


def mlp(p: Any, x: Any) -> Any:
    x = nx.nn.sigmoid(x @ p["a"] + p["b"])
    x = jnp.tanh(x @ p["c"]) * x
    return x @ p["d"]


def attention(p: Any, x: Any) -> Any:
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    a = nx.nn.softmax(q @ k.swapaxes(-1, -2) * 0.25)
    return x + (a @ v) @ p["o"]


PROGRAMS: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]], tuple[int, ...]]] = {
    "cnn": (cnn, CNN, (2, 12, 12, 3)),
    "mlp": (mlp, {"a": (20, 32), "b": (32,), "c": (32, 32), "d": (32, 7)}, (5, 20)),
    "attention": (attention, dict.fromkeys("qkvo", (16, 16)), (2, 9, 16)),
}


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_graph_and_file(name: str, policy: str):
    f, shapes, shape = PROGRAMS[name]
    p = drawn(1, **shapes)
    r = np.random.default_rng(2)
    batches = [r.standard_normal(shape).astype(np.float32) for _ in range(2)]
    qf = nx.quantize(f, policy, calibrate=[(p, x) for x in batches])
    # One batch of the calibration, and one whose values leave the ranges.
    for x in (batches[0], 4 * r.standard_normal(shape).astype(np.float32)):
        program = nx.make_jaxpr(qf)(p, x)
        count = len(program.inputs) - 1
        graph = lower(bind(program, dict(enumerate(p[k] for k in sorted(p)[:count]))), name).check()
        floats = [n.op for n in graph.nodes if n.output.grid is None]
        assert set(floats) <= {"dequantize"}, f"not on a grid: {floats}"
        assert {n.output.dtype.name for n in graph.nodes[:-1]} == {"int8" if policy == "int8" else "int16"}
        ours = interpret(graph, [x])[0]
        assert np.array_equal(ours, np.asarray(qf(p, x))), "the graph is not the program"
        assert np.array_equal(ours, litert(graph, [x])[0]), "LiteRT is not the graph"
