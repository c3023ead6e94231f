"""Choices and loops in TFLite's operators IF and WHILE, whose graphs are further subgraphs of the file."""

from __future__ import annotations

from dataclasses import replace

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator, TFLiteWriter, integers
from nxjax.lower.npu.formats.tflite_file import OperatorUse, TFLiteReader, bad
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.trace import dtypes


def write_if(w: TFLiteWriter, node: Node) -> None:
    a = node.attrs
    w.emit("IF", node.inputs, node.outputs, then_subgraph_index=a["then"], else_subgraph_index=a["otherwise"])


def write_while(w: TFLiteWriter, node: Node) -> None:
    """WHILE carries all of its operands: what does not change is a result of the body as it came."""
    count, body = node.attrs["invariant"], node.attrs["body"]
    whole = replace(body, outputs=[*body.inputs[:count], *body.outputs])
    same = [w.between(t, t.shape, f"{node.name}_kept") for t in node.operands[:count]]
    graphs = {"cond_subgraph_index": node.attrs["condition"], "body_subgraph_index": whole}
    w.emit("WHILE", node.inputs, [*same, *node.outputs], **graphs)


def read_if(r: TFLiteReader, u: OperatorUse) -> None:
    then, otherwise = (r.part(u.options[f"{key}_subgraph_index"]) for key in ("then", "else"))
    _read(r, u, then=then, otherwise=otherwise)


def read_while(r: TFLiteReader, u: OperatorUse) -> None:
    condition, body = (r.part(u.options[f"{key}_subgraph_index"]) for key in ("cond", "body"))
    if [(t.shape, t.dtype) for t in condition.outputs] != [((), dtypes.bool_)]:
        raise bad("a WHILE whose condition does not give one truth value")
    _read(r, u, condition=condition, body=body)


def _read(r: TFLiteReader, u: OperatorUse, **graphs: NpuGraph) -> None:
    """A node that holds graphs, whose operands and results are on no grid."""
    ends = [t for g in graphs.values() for t in (*g.inputs, *g.outputs)]
    operands = [u.operand(i) for i in range(len(u.inputs))]
    if any(t.grid is not None for t in (*operands, *u.outputs, *ends)):
        raise bad(f"a {u.name} of quantized values")
    r.node(u.name.lower(), list(operands), u.outputs, **graphs)


def part(graph: NpuGraph, operations: list[TFLiteOperator]) -> tuple[NpuGraph, list[TFLiteOperator]]:
    """A graph inside of another, and its operators, with a tensor of its own for every result that is made.

    What comes in may go out as it is; a constant, or what goes out twice, is copied. A constant is sliced: LiteRT's
    RESHAPE of one owns its result, which an IF frees once more when the interpreter ends.
    """
    outputs: list[Tensor] = []
    copies: list[TFLiteOperator] = []
    for i, t in enumerate(graph.outputs):
        if t.constant or t in outputs or (t in graph.inputs and graph.inputs.index(t) != i):
            copy = Tensor(f"{t.name}/copy_{i}", t.shape, t.dtype, t.grid)
            if t.data is not None:
                # As a row, since SLICE has at most five axes.
                row = Tensor(f"{t.name}/row_{i}", (t.data.size,), t.dtype, t.grid, t.data.reshape(-1))
                t = Tensor(f"{t.name}/slice_{i}", row.shape, t.dtype, t.grid)
                begin, size = integers(f"{t.name}/begin", [0]), integers(f"{t.name}/size", row.shape)
                copies.append(TFLiteOperator("SLICE", [row, begin, size], [t]))
            shape = integers(f"{copy.name}/shape", copy.shape)
            copies.append(TFLiteOperator("RESHAPE", [t, shape], [copy], {"new_shape": copy.shape}))
            t = copy
        outputs.append(t)
    return replace(graph, outputs=outputs), [*operations, *copies]
