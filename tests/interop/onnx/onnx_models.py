"""ONNX models of one operator, and ONNX Runtime to run them on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nxjax as nx

onnx: Any = pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")


def one(
    kind: str,
    given: Mapping[str, Any],
    results: int = 1,
    opset: int = 19,
    domain: str = "",
    version: int = 3,
    **more: Any,
) -> bytes:
    """A model of one operator; an input of None is left out. ``version`` is that of a domain of its own."""
    helper = onnx.helper
    known = {k: np.asarray(v) for k, v in given.items() if v is not None}
    outputs = [f"y{i}" for i in range(results)]
    node = helper.make_node(kind, [k if k in known else "" for k in given], outputs, domain=domain, **more)
    typed = [helper.make_tensor_value_info(k, _code(v), v.shape) for k, v in known.items()]
    graph = helper.make_graph([node], "net", typed, [onnx.ValueInfoProto(name=y) for y in outputs])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, version)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _code(x: Any) -> int:
    return onnx.TensorProto.STRING if x.dtype == object else onnx.helper.np_dtype_to_tensor_dtype(x.dtype)


def expected(data: bytes, given: Mapping[str, Any]) -> list[Any]:
    """The results of ONNX Runtime, which does what the model says without another form of it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {k: np.asarray(v) for k, v in given.items() if v is not None})


def made(data: bytes, given: Mapping[str, Any]) -> list[Any]:
    y = nx.interop.from_onnx(data, closed=True)(**{k: np.asarray(v) for k, v in given.items() if v is not None})
    return list(y) if isinstance(y, tuple) else [y]


def compare(kind: str, given: Mapping[str, Any], results: int = 1, rtol: float = 1e-5, **more: Any) -> None:
    """Compare the results of one operator with those of ONNX Runtime."""
    data = one(kind, given, results, **more)
    for y, x in zip(made(data, given), expected(data, given), strict=True):
        y = np.asarray(y)
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        if y.dtype == object or y.dtype.kind in "iub":
            assert y.tolist() == x.tolist()
        else:
            np.testing.assert_allclose(y, x, rtol=rtol, atol=rtol * np.abs(x[np.isfinite(x)]).max(initial=0))
