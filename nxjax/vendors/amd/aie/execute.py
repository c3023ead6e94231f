"""Runs a lowered graph: dispatches on the chip or on the model of the array, other nodes by their meaning on the host.

Knows dispatches and the model; no file, no vendor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from nxjax.kernels.aie.spec import NDArray
from nxjax.lower.aie.design import Design
from nxjax.lower.aie.lower import Dispatch
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.vendors.amd.aie.model import run


@final
@dataclass(frozen=True, eq=False)
class ModelRunner:
    """A graph whose nodes run on the model where they have a dispatch.

    Attributes:
        designs: by dispatch, as they were read back from the text that is in the artifact.
        launch: runs a dispatch on the chip instead of the model: it fills the result's buffer.
    """

    graph: NpuGraph
    dispatches: Mapping[Node, Dispatch]
    designs: Mapping[Node, Design]
    launch: Callable[[Node, dict[str, NDArray]], None] | None = None

    def __call__(self, args: Sequence[NDArray]) -> list[NDArray]:
        values: dict[Tensor, NDArray] = dict(zip(self.graph.inputs, args, strict=True))
        values.update((t, t.data) for t in self.graph.constants() if t.data is not None)
        for node in self.graph.nodes:
            operands = [values[t] for t in node.operands]
            made = self.dispatches.get(node)
            if made is None:
                alone = _alone(node, self.graph)
                found = interpret(alone, [values[t] for t in alone.inputs])
                values.update(zip(node.outputs, found, strict=True))
                continue
            buffers = made.buffers(operands)
            if self.launch is None:
                run(self.designs[node], buffers)
            else:
                self.launch(node, buffers)
            values[node.output] = made.result(buffers)
        return [values[t] for t in self.graph.outputs]


def _alone(node: Node, graph: NpuGraph) -> NpuGraph:
    inputs = [t for t in dict.fromkeys(node.operands) if not t.constant]
    return NpuGraph("", inputs, list(node.outputs), [node], graph.rounding)
