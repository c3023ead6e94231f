"""A graph as an OpenVINO model, op by op, and the model as files.

Knows how a graph is walked, where grids, fused activations and names go, and what lies at the model's ends; what an
op becomes is `openvino_ops`'s, values and layouts are `openvino_net`'s. It knows no device: the same model goes to
OpenVINO's CPU, GPU and NPU plugins.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from nxjax.errors import LoweringError, NxError
from nxjax.lower.npu.formats.channels_first import Value
from nxjax.lower.npu.formats.openvino_net import PORT_TYPES, OpenvinoNet, clean, node_names
from nxjax.lower.npu.formats.openvino_ops import write
from nxjax.lower.npu.formats.openvino_package import package
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.trace.dtypes import short_name


def port_type(t: Tensor) -> Any:
    """The element type of a model input or result."""
    if t.dtype not in PORT_TYPES:
        raise LoweringError(
            "openvino: the type of an input or result",
            got=f"{short_name(t.dtype)} ({t.name})",
            expected="bool, int8 to int64, uint8 to uint64, float16, float32 or float64",
            fix="cast to float16 or float32",
        )
    return t.dtype


def opened(net: OpenvinoNet, t: Tensor) -> tuple[Value, Value]:
    """A model input, and its real value.

    FakeQuantize stands behind a dequantized input though it changes no value: the CPU plugin has no kernel for a
    convolution that reads signed integers with a zero point straight from an input.
    """
    parameter = net.op.parameter(list(t.shape), port_type(t), t.name)
    if t.grid is None:
        return parameter, parameter
    return parameter, net.on_grid(net.dequantize(parameter, t.grid, len(t.shape)), t.grid)


def closed(net: OpenvinoNet, t: Tensor) -> Value:
    """A model result: stored integers where the tensor has a grid."""
    value = net.get(t)
    if t.grid is None:
        return value
    kind = port_type(t)
    numbers = net.numbers(value, t.grid)
    return net.op.convert(net.op.add(numbers, net.real(t.grid.zero_point)) if t.grid.zero_point else numbers, kind)


def build(graph: NpuGraph) -> Any:
    """The ``openvino.Model`` of a graph: fixed shapes, opset 13, friendly names from the nodes' names.

    Inputs and results have the tensors' own shapes and storage types. Values on a grid are float values behind
    FakeQuantize; weights are stored integers behind Convert and Multiply, one scale per output channel. A node called
    ``n`` owns the operations ``n``, ``n:1``, ``n:2``, ... (see `openvino_net.owner`).

    Raises:
        LoweringError: an op, a type or a grid that OpenVINO cannot say; weights that are not constant.

    >>> import numpy as np
    >>> from nxjax.lower.npu.graph import Node
    >>> x, y = (Tensor(name, (2, 3), np.dtype("float32")) for name in "xy")
    >>> model = build(NpuGraph("f", [x], [y], [Node("relu", (x,), (y,), name="r")]))
    >>> sorted(op.get_friendly_name() for op in model.get_ops())
    ['r', 'x', 'y:out']
    """
    net = OpenvinoNet()
    graph.check()
    parameters: list[Value] = []
    for t in graph.inputs:
        parameter, value = opened(net, t)
        parameters.append(parameter)
        net.main(parameter)
        net.name_new(clean(t.name))
        net.put(t, value, False)
    for node, name in zip(graph.nodes, node_names(graph), strict=True):
        try:
            write(net, node)
        except RuntimeError as error:
            # An element type that the operation is not defined for: OpenVINO says so in several lines.
            if isinstance(error, NxError):
                raise
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise LoweringError(
                f"openvino: {node.op} is refused", got=" ".join(lines[-2:])[:300], source=node.source
            ) from error
        net.name_new(name)
    results: list[Value] = []
    for t in graph.outputs:
        results.append(net.op.result(closed(net, t)))
        net.main(results[-1])
        net.name_new(clean(t.name) + ":out")
    return net.ov.Model(results, parameters, graph.name)


def serialize(model: Any, name: str) -> dict[str, bytes]:
    """A model as ``{name.xml: ..., name.bin: ...}``, OpenVINO's intermediate representation."""
    openvino = package()
    with tempfile.TemporaryDirectory() as folder:
        stem = os.path.join(folder, "model")
        openvino.serialize(model, stem + ".xml", stem + ".bin")
        files: dict[str, bytes] = {}
        for end in (".xml", ".bin"):
            with open(stem + end, "rb") as file:
                files[clean(name) + end] = file.read()
    return files
