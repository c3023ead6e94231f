"""Choices and loops whose course is data: nodes that hold graphs. Their operands and results are on no grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.lower.npu.attributes import GRAPH, INTEGER
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, held_graphs
from nxjax.lower.npu.ops.base import OPS, NpuOp, agree, need, op, shape_of
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.types import Shape


def _fits(node: Node, graph: NpuGraph, operands: Sequence[Tensor]) -> None:
    """Refuse operands that a graph does not take."""
    kinds = [[(t.shape, t.dtype) for t in ts] for ts in (graph.inputs, operands)]
    need(kinds[0] == kinds[1], f"{node.op}: a graph of {kinds[0]} on {kinds[1]}")


def _macs(graph: NpuGraph) -> int:
    return sum(OPS[n.op].macs(n) for n in graph.nodes)


class NpuControl(NpuOp):
    """A node of graphs."""

    def shape(self, node: Node) -> Shape:
        return self.shapes(node)[0]

    def check_types(self, node: Node) -> None:
        made = [(t.shape, t.dtype) for t in self.made(node)]
        agree(node, made == [(t.shape, t.dtype) for t in node.outputs])

    def shapes(self, node: Node) -> list[Shape]:
        return [t.shape for t in self.made(node)]

    def made(self, node: Node) -> list[Tensor]:
        """What the results are of the type of."""
        raise NotImplementedError


@final
@op("if")
class NpuIf(NpuControl):
    """``then`` or ``otherwise`` of the operands behind the first, which is one bool and decides."""

    attributes = {"then": GRAPH, "otherwise": GRAPH}

    def made(self, node: Node) -> list[Tensor]:
        need(shape_of(node) == (), f"{node.op}: a condition of shape {shape_of(node)}")
        agree(node, node.operand().dtype == dtypes.bool_)
        for graph in held_graphs(node).values():
            _fits(node, graph, node.operands[1:])
        return node.attrs["then"].outputs

    def eval(self, run: NodeRun, chosen: NDArray, *xs: NDArray) -> list[NDArray]:
        return run.call(run.attrs["then" if bool(chosen) else "otherwise"], xs)

    def macs(self, node: Node) -> int:
        return max(map(_macs, held_graphs(node).values()))


@final
@op("while")
class NpuWhile(NpuControl):
    """``body`` of the operands makes all but the first ``invariant`` of them anew, as long as ``condition`` holds.

    ``steps`` is how often that is, or 0 where it is data.
    """

    attributes = {"condition": GRAPH, "body": GRAPH, "invariant": INTEGER(0), "steps": INTEGER(0)}

    def made(self, node: Node) -> list[Tensor]:
        for graph in held_graphs(node).values():
            _fits(node, graph, node.operands)
        carried, body = node.operands[node.attrs["invariant"] :], node.attrs["body"]
        need([t.shape for t in carried] == [t.shape for t in body.outputs], f"{node.op}: another carry than it makes")
        return body.outputs

    def eval(self, run: NodeRun, *xs: NDArray) -> list[NDArray]:
        kept, carry = xs[: run.attrs["invariant"]], list(xs[run.attrs["invariant"] :])
        while bool(run.call(run.attrs["condition"], [*kept, *carry])[0]):
            carry = run.call(run.attrs["body"], [*kept, *carry])
        return carry

    def macs(self, node: Node) -> int:
        each = _macs(node.attrs["body"]) + _macs(node.attrs["condition"])
        return each * max(node.attrs["steps"], 1)
