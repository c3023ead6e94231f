"""The contract of an NPU target: a format, a constraint table, a vendor's compiler, a runtime.

A target can be compiled for whether or not its chip is here. What its tools say is kept beside what its published
rules say; the label tells how far towards silicon a result went.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from nxjax.backends.base import Label
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import Cost, Placement, Verdict
from nxjax.ops.base import NDArray

# Graph inputs to graph outputs, in order, each in its tensor's storage dtype and shape.
Run = Callable[[Sequence[NDArray]], list[NDArray]]


@final
@dataclass
class Build:
    """What a target's tools made of a graph.

    Attributes:
        files: file name to bytes; the first is the artifact itself. A name with "/" lies in a folder (``.mlpackage``).
        label: how far it went: hardware, simulator, vendor-compiled, emitted or host.
        placements: one per node of the graph.
        cost: figures, each with who says so.
        run: executes it (on the chip, the vendor's simulator or a host runtime), or None where nothing here can.
        runs_on: what `run` is, e.g. "QNN HTP simulator 2.51.0" or "LiteRT 2.3.0 reference kernels on the host".
        notes: what the user should know: tools not found, options chosen, conversions added.
    """

    files: dict[str, bytes]
    label: Label
    placements: list[Placement]
    cost: Cost = field(default_factory=Cost)
    run: Run | None = None
    runs_on: str = ""
    notes: list[str] = field(default_factory=list[str])


class NpuTarget(ABC):
    """One thing that can be compiled for. Abstract; implementations are final.

    Attributes:
        name: as in ``nx.compile(f, target=...)``.
        title: vendor and chip, for people.
        format: the file format it reads: "tflite", "onnx", "openvino", "coreml".
        extra: the ``pip install nxjax[...]`` extra that brings the vendor's tools.
        host: its device is this machine's CPU, so that nothing can fall back to it.
        precision: what it computes in: any of "int8", "int16x8", "float32", "float16".
    """

    name: ClassVar[str]
    title: ClassVar[str]
    format: ClassVar[str]
    extra: ClassVar[str] = ""
    host: ClassVar[bool] = False
    precision: ClassVar[tuple[str, ...]] = ("int8",)

    @abstractmethod
    def available(self) -> tuple[Label, str]:
        """The best label reachable on this machine, and why no better one. Imports nothing heavy."""

    @abstractmethod
    def supports(self, node: Node) -> Verdict:
        """The published constraints on one node. Needs no vendor package."""

    def placed(self, graph: NpuGraph) -> list[Placement]:
        """Placement by the published rules alone (a target whose partition is not per node overrides this)."""
        from nxjax.lower.npu.placement import place

        return place(graph, self.supports)

    @abstractmethod
    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the artifact and take it as far as the vendor's tools here go."""
