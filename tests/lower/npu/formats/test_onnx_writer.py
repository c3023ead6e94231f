"""ONNX files of one-node graphs mean what the nodes mean, on ONNX Runtime without optimizations."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from nxjax.lower.npu.formats.onnx_build import Options
from nxjax.lower.npu.formats.onnx_writer import emit
from tests.lower.npu.formats.onnx_cases import I8, I16, WEIGHTED, cases, float_graph, int8_graph, mixed, steps

CASES = cases()


def run(written, args):
    """Exact int8: ONNX Runtime's optimized kernels saturate on CPUs without VNNI."""
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.log_severity_level = 3
    session = ort.InferenceSession(written.data, so, providers=["CPUExecutionProvider"])
    return written.fetched(session.run([p.name for p in written.outputs], written.feeds(args)))


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_float_files_compute_the_operator(case, opset):
    graph = float_graph(case)
    (got,) = run(emit(graph, Options(opset)), [a for i, a in enumerate(case.arrays) if i not in case.constant])
    assert got.dtype == graph.outputs[0].dtype
    np.testing.assert_allclose(got, case.expected(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("dtype", [I8, I16])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_quantized_files_are_within_one_step(case, dtype, unsigned):
    graph, feeds, y = int8_graph(case, dtype)
    (got,) = run(emit(graph, Options(17, "qdq", unsigned)), feeds)
    grid = graph.outputs[0].grid
    assert got.dtype == grid.dtype
    assert steps(got, y, grid) <= 1


@pytest.mark.parametrize("case", [c for c in CASES if c.op in WEIGHTED], ids=repr)
def test_weights_with_one_scale_have_biases_with_one_scale(case):
    graph, feeds, y = int8_graph(case, channels=False)
    written = emit(graph, Options())
    (got,) = run(written, feeds)
    assert steps(got, y, graph.outputs[0].grid) <= 1
    model = onnx.load_from_string(written.data)
    assert all(not t.dims for t in model.graph.initializer if t.name.startswith(("scale", "zero")))


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("quantized", [False, True])
def test_operators_with_other_operands_are_exact(quantized, opset):
    for graph, feeds, expected in mixed(quantized):
        written = emit(graph, Options(opset, "qdq", quantized))
        for got, want in zip(run(written, feeds), expected, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want, err_msg=graph.nodes[0].op)
