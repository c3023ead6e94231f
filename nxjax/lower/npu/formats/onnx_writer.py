"""NpuGraph -> ONNX model bytes: plain float operators, or QDQ, which every ONNX-reading NPU compiler takes.

QDQ keeps the graph's integers exactly; what a runtime computes between DequantizeLinear and QuantizeLinear is float
arithmetic of its own, so results may differ from the integer reference where a float sum falls on another side of a
rounding boundary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

from nxjax.errors import LoweringError, ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxBuilder, OnnxOptions, Port, Style, package
from nxjax.lower.npu.formats.onnx_ops import EMIT
from nxjax.lower.npu.formats.onnx_pow2 import regular, said
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.ops.base import NDArray

# IR version written for each range of operator sets (onnx.ai/onnx/repo-docs/Versioning): old enough for vendors' tools.
_IR: Final = ((10, 4), (19, 9), (21, 10), (23, 11))
# The oldest operator sets that are written, of files with grids and of float files.
OLDEST: Final = 13
OLDEST_FLOAT: Final = 10
# Protocol buffers end here.
_LIMIT: Final = 2**31 - 1


@final
@dataclass
class OnnxModel:
    """A model and how it answers to the graph.

    Attributes:
        data: the bytes of the file.
        owners: name of each ONNX node to the graph's node it was written for; None for transposes at the edges.
        inputs, outputs: the graph's inputs and outputs in the file.
        notes: what differs from the graph.
    """

    data: bytes
    owners: dict[str, Node | None]
    inputs: list[Port]
    outputs: list[Port]
    notes: list[str]

    def feeds(self, args: Sequence[NDArray]) -> dict[str, NDArray]:
        """The file's inputs by name for the graph's inputs in order."""
        return {p.name: p.encode(x) for p, x in zip(self.inputs, args, strict=True)}

    def fetched(self, results: Sequence[NDArray]) -> list[NDArray]:
        """The graph's outputs for the file's."""
        return [p.decode(x) for p, x in zip(self.outputs, results, strict=True)]


def write(graph: NpuGraph, opset: int = 17, style: Style = "qdq", unsigned: bool = False) -> bytes:
    """An ONNX model, checked with onnx's checker and shape inference.

    Tensors of the file keep the graph's names, shapes and (channels last) order at its inputs and outputs. Node names
    are the graph's, with "/..." behind them for helpers such as DequantizeLinear.

    Args:
        graph: any `NpuGraph`.
        opset: version of the standard operator set, 13 to 23, in float files from 10 on. Below 21, 16-bit grids use
            ONNX Runtime's own Quantize/DequantizeLinear and int4 weights are stored as int8.
        style: "qdq"; "qdq-pow2", which refuses scales that are not powers of two; "float", which drops the grids.
        unsigned: int8 activations as uint8, int16 as uint16.

    Raises:
        LoweringError: an operator or a constant that ONNX has no form for.
        ParameterError: an opset out of range; another scale than a power of two under "qdq-pow2".
    """
    return emit(graph, OnnxOptions(opset, style, unsigned)).data


def emit(graph: NpuGraph, options: OnnxOptions) -> OnnxModel:
    """Like `write`, with the names that map a runtime's answers back to the graph."""
    oldest = OLDEST_FLOAT if options.style == "float" else OLDEST
    if not oldest <= options.opset <= 23:
        raise ParameterError("onnx: opset", got=options.opset, expected=f"{oldest} to 23 of style {options.style!r}")
    if options.style == "qdq-pow2":
        require_powers_of_two(graph)
    onnx = package()
    origin = {n: n for n in graph.nodes}
    if options.style == "float":
        # Without grids nothing saturates: activations that grids were have to be said.
        origin = {said(n, replace(n)): n for n in graph.nodes}
        graph = replace(graph, nodes=list(origin))
    b = OnnxBuilder(onnx, graph, options)
    inputs = [b.port_in(t) for t in graph.inputs]
    for n in graph.nodes:
        b.enter(n)
        EMIT[n.op](b, n)
    b.enter(None)
    outputs: list[Port] = []
    for t in graph.outputs:
        outputs.append(b.port_out(t, {p.name for p in [*inputs, *outputs]}))
    model = _model(onnx, b, graph, inputs, outputs)
    if model.ByteSize() > _LIMIT:
        raise LoweringError("onnx: the model is larger than one file can be", got=f"{model.ByteSize()} bytes")
    owners = {name: n if n is None else origin[n] for name, n in b.owners.items()}
    _check(onnx, model, owners)
    return OnnxModel(model.SerializeToString(), owners, inputs, outputs, b.notes)


def _check(onnx: Any, model: Any, owners: dict[str, Node | None]) -> None:
    """ONNX's own checker, whose words become ours: types that the format has for other operators, but not for these."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        named = re.search(r"node name: ([^)]*)\)", str(e))
        node = owners.get(named[1]) if named else None
        raise LoweringError(
            f"onnx: {node.op if node else 'the graph'} is not one that ONNX can say",
            got=str(e).strip().split("\n")[0][:300],
            fix="compute it in float32 or quantized",
            source=node.source if node else None,
        ) from e


def _model(onnx: Any, b: OnnxBuilder, graph: NpuGraph, inputs: list[Port], outputs: list[Port]) -> Any:
    helper = onnx.helper

    def info(p: Port) -> Any:
        return helper.make_tensor_value_info(p.name, helper.np_dtype_to_tensor_dtype(p.dtype), p.tensor.shape)

    body = helper.make_graph(
        b.nodes,
        graph.name or "graph",
        [info(p) for p in inputs],
        [info(p) for p in outputs],
        list(b.initializers.values()),
    )
    sets = [helper.make_opsetid("", b.opset), *(helper.make_opsetid(d, 1) for d in sorted(b.domains))]
    ir = next((version for last, version in _IR if b.opset <= last), 11)
    model = helper.make_model(body, opset_imports=sets, ir_version=ir, producer_name="nxjax")
    helper.set_model_props(model, {"nxjax.rounding": graph.rounding})
    return model


def require_powers_of_two(graph: NpuGraph) -> None:
    """Raise `ParameterError` that names the tensors whose scales are not powers of two."""
    wrong = [t.name for g in graph.all_graphs() for t in g.tensors() if not regular(t.grid)]
    if wrong:
        raise ParameterError(
            "onnx: scales that are not powers of two",
            got=", ".join(wrong[:8]) + (f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""),
            fix="bring the graph onto powers of two first, with onnx_pow2.regrid(graph)",
        )
