"""Convolutions of volumes by those of images: the same bits, and what that gives chips that have only these."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax import lax
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.volume import by_images
from tests.lower.npu.formats.tflite_samples import sample
from tests.lower.npu.lowering import normal

LAYOUT = ("NDHWC", "DHWIO", "NDHWC")


@pytest.mark.parametrize("kind", ["f32", "q8", "q16"])
@pytest.mark.parametrize("op", ["conv_3d", "transpose_conv_3d"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_same_bits(op, kind, seed):
    graph, inputs, _ = sample(op, kind, seed)
    images = NpuGraph("images", graph.inputs, graph.outputs, by_images(graph.nodes[0])).check()
    assert not {"conv_3d", "transpose_conv_3d"} & {n.op for n in images.nodes}
    (got,), (want,) = interpret(images, inputs), interpret(graph, inputs)
    if kind == "f32":
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(got, want)


def net(p, x):
    x = nx.nn.relu(lax.conv_general_dilated(x, p["w"], (1, 2, 2), "SAME", dimension_numbers=LAYOUT))
    return lax.conv_transpose(x, p["v"], (2, 2, 2), "SAME", dimension_numbers=LAYOUT)


P, X = {"w": normal(3, 3, 3, 2, 8), "v": normal(2, 2, 2, 8, 4)}, normal(1, 4, 8, 8, 2)


@pytest.mark.parametrize("chip", ["ethos-u55", "ethos-u85"])
def test_ethos_u_takes_them_whole_in_integers(chip):
    pytest.importorskip("ethosu")
    quantized = nx.quantize(net, "int8", calibrate=[(P, X)])
    artifact = nx.compile(quantized, target=chip)(P, X)
    assert artifact.label == "vendor-compiled" and artifact.report.share == 1
    assert artifact.deviation.exact


@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu", "qualcomm-htp"])
def test_the_runtimes_agree(target):
    package = {"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino"}
    pytest.importorskip(package.get(target, "onnxruntime_qnn"))
    artifact = nx.compile(net, target=target)(P, X)
    assert {n.op for n in artifact.graph.nodes} == {"conv_3d", "transpose_conv_3d"}
    assert artifact.deviation.sqnr > (50 if target == "qualcomm-htp" else 100)
    assert artifact.report.share == 1 or target != "qualcomm-htp"
