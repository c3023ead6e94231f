"""Sorting: one node for rows in order, by whose places companions are gathered."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, same

TIES = np.float32([[2, 1, 2, 0, 1, 2], [0, 0, 0, -1, 5, 0]])
F = {
    "top_k": lambda x: lax.top_k(x, 2),
    "top_k of the first axis": lambda x: lax.top_k(x, 1, axis=0),
    "sort": jnp.sort,
    "sort of the first axis": lambda x: jnp.sort(x, 0),
    "argsort": jnp.argsort,
    "descending": lambda x: jnp.argsort(x, descending=True),
    "companion": lambda x: lax.sort((x, x * 2 + 1), num_keys=1),
    "median": lambda x: jnp.median(x, 1),
}


@pytest.mark.parametrize("name", F)
@pytest.mark.parametrize("x", [TIES, normal(2, 6)], ids=["ties", "normal"])
def test_one_node_sorts(name, x):
    assert count(same(F[name], x, exact=True))["top_k"] == 1


def test_other_kinds():
    same(lambda x: jnp.sort(x > 0), TIES)
    same(lambda x: lax.top_k(x.astype(int), 3), TIES, exact=True)


def test_several_keys_have_no_node():
    with pytest.raises(UnsupportedOpsError, match="several keys"):
        graph_of(lambda x: lax.sort((x, x), num_keys=2), TIES)


@pytest.mark.parametrize("precision", ["float", "int8"])
@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu"])
@pytest.mark.parametrize("name", ["top_k", "sort of the first axis", "companion"])
def test_the_runtimes_agree(name, target, precision):
    """Of equal elements the first comes first in LiteRT, ONNX Runtime and OpenVINO, too."""
    pytest.importorskip({"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino"}[target])
    f = lambda x: F[name](jnp.tanh(x))
    f = nx.quantize(f, "int8", calibrate=[(TIES,)]) if precision == "int8" else f
    artifact = nx.compile(f, target=target)(TIES)
    for got, want in zip(artifact.run(TIES), artifact.reference(TIES), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
