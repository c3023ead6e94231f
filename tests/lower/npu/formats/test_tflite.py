"""The TFLite writer against the vendor's own parser and reference kernels."""

import numpy as np
import pytest

from nxjax.lower.npu.formats import tflite
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid, asymmetric

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

I8 = np.dtype("int8")


def conv_net() -> NpuGraph:
    rng = np.random.default_rng(0)
    x = Tensor("x", (1, 9, 9, 4), "int8", asymmetric(-1, 3))
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.01, 0.02, 8))
    w = Tensor("w", (8, 3, 3, 4), "int8", Grid(I8, scales, 0, 0), rng.integers(-127, 128, (8, 3, 3, 4)).astype("int8"))
    b = Tensor("b", (8,), "int32", None, rng.integers(-99, 99, 8).astype("int32"))
    out = asymmetric(-2, 5)
    y, z = Tensor("y", (1, 5, 5, 8), "int8", out), Tensor("z", (1, 5, 5, 8), "int8", out)
    conv = {"strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    pool = {"strides": (1, 1), "window": (2, 2), "padding": ((1, 0), (0, 1)), "activation": None}
    nodes = [Node("conv_2d", (x, w, b), (y,), conv), Node("max_pool_2d", (y,), (z,), pool)]
    return NpuGraph("net", [x], [z], nodes).check()


def test_the_generated_schema_reads_every_field():
    data = tflite.write(conv_net())
    assert data == tflite.write(conv_net())
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    assert model.version == 3
    codes = [(c.deprecatedBuiltinCode, c.builtinCode, c.version) for c in model.operatorCodes]
    assert codes == [(3, 3, 3), (60, 60, 2), (17, 17, 2)]
    graph = model.subgraphs[0]
    tensors = {t.name.decode(): t for t in graph.tensors}
    assert list(tensors["w"].quantization.scale) == list(np.float32(conv_net().nodes[0].inputs[1].grid.scale))
    assert list(tensors["b"].quantization.zeroPoint) == [0] * 8
    options = graph.operators[0].builtinOptions
    assert (options.padding, options.strideH, options.strideW, options.fusedActivationFunction) == (0, 2, 2, 1)
    assert (options.dilationHFactor, options.dilationWFactor) == (1, 1)
    assert model.buffers[0].data is None and tensors["x"].buffer == 0
    assert model.signatureDefs[0].signatureKey == b"serving_default"
    assert model.signatureDefs[0].inputs[0].name == b"x"
    runtime = model.buffers[model.metadata[0].buffer].data.tobytes()
    assert model.metadata[0].name == b"min_runtime_version" and runtime == b"1.14.0".ljust(16, b"\0")
