"""An executable for a slice that is not here: what `jit(f).lower(...).compile()` gives over a mesh of its devices.

It says what the compiler says; calling it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.backends.base import Executable
from nxjax.backends.tpu.analysis import TpuAnalysis
from nxjax.backends.tpu.build import built
from nxjax.backends.tpu.chips import Topology
from nxjax.backends.tpu.compiler import ModuleMemory
from nxjax.backends.tpu.topologies import nothing_runs
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Program


@final
class AheadExecutable(Executable):
    """A program compiled for a slice.

    Attributes:
        analysis: the compiler's whole answer.
    """

    def __init__(
        self, program: Program, topology: Topology, ins: Sequence[Any], outs: Sequence[Any], donate: tuple[int, ...]
    ) -> None:
        self._topology = topology
        _, self.analysis = built(program, topology, tuple(ins), tuple(outs), donate)
        self.input_shardings = tuple(ins)
        self.output_shardings = tuple(outs)

    analysis: TpuAnalysis

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        raise nothing_runs(self._topology, "compiled call")

    @property
    def text(self) -> str:
        return self.analysis.hlo

    def cost_analysis(self) -> dict[str, float]:
        return self.analysis.counts

    def memory_analysis(self) -> ModuleMemory:
        return self.analysis.memory
