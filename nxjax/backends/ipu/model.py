"""The model of one program: its traffic, memory and cycles, each step looked at once; what a report and a target ask.

Says nothing of what a program computes; that is `engine`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.ipu.cycles import CycleCount, StepCycles, count, named, step_cycles
from nxjax.backends.ipu.emit import text
from nxjax.backends.ipu.exchange import Exchange, Footprint, Traffic
from nxjax.backends.ipu.memory import MemoryUse, measure
from nxjax.backends.ipu.perfetto import trace
from nxjax.backends.ipu.pictures import stacked, tile_map, timeline
from nxjax.display import page
from nxjax.lower.ipu.program import Copy, Execute, IpuProgram, Step

_NOTHING: Final = Footprint(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@final
class CycleModel:
    """Memory and cycles of an IPU program, as `nx.compile`'s report has them. An estimate, never a measurement.

    Raises:
        TileMemoryError: its tensors alone are more than some tile's memory. With what the exchange needs, `memory` says
            whether it fits.

    Attributes:
        program: which.
        memory: bytes of tile memory, at every step.
        cycles: of one run; after a run whose loops were counted, of that run.
    """

    def __init__(self, program: IpuProgram) -> None:
        self.program = program
        self._exchange = Exchange(program.system)
        bare = measure(program, self._exchange, lambda _: _NOTHING)
        if not bare.fits:
            # What moves in a program that is far too large would take long, and much of this machine's memory, to find.
            raise bare.error()
        self._costs: dict[int, StepCycles] = {}
        # Of what moves, only what is asked again is kept: all of it would be gigabytes for large systems.
        self._footprints: dict[int, Footprint] = {}
        alike: dict[bytes, tuple[StepCycles, Footprint]] = {}
        for step in program.walk():
            self._look(step, alike)
        self.memory: MemoryUse = measure(program, self._exchange, lambda s: self._footprints[id(s)])
        self.cycles: CycleCount = count(program, self.cost)

    def _look(self, step: Step, alike: dict[bytes, tuple[StepCycles, Footprint]]) -> None:
        """Note what a step takes, as a step like it does if there was one."""
        if not isinstance(step, (Execute, Copy)):
            self._costs[id(step)] = step_cycles(step, self._exchange, None)
            return
        key = self._exchange.likeness.step(step)
        found = alike.get(key)
        if found is None:
            traffic = self.traffic(step)
            found = alike[key] = step_cycles(step, self._exchange, traffic), traffic.footprint()
        self._costs[id(step)] = named(found[0], step)
        self._footprints[id(step)] = found[1]

    def traffic(self, step: Execute | Copy) -> Traffic:
        """What a step moves, counted anew."""
        e = self._exchange
        return e.of_execute(step) if isinstance(step, Execute) else e.of_copy(step)

    def cost(self, step: Step) -> StepCycles:
        """Cycles of one run of a step."""
        return self._costs[id(step)]

    def counted(self, counts: Mapping[int, int]) -> CycleCount:
        """Cycles of the run whose bodies ran so often."""
        self.cycles = count(self.program, self.cost, counts)
        return self.cycles

    @property
    def hlo(self) -> str:
        """The program of tiles, as text."""
        return text(self.program)

    def named(self, arguments: Sequence[str], results: Sequence[str]) -> None:
        """Take the user's own names for what comes in and goes out, in order."""
        for v, name in zip(self.program.inputs, arguments, strict=False):
            v.name = name or v.name
        taken = {id(v) for v in self.program.inputs}
        for v, name in zip(self.program.outputs, results, strict=False):
            if id(v) not in taken:
                v.name = name or v.name

    def lines(self) -> list[str]:
        """What a report says: cycles, then memory."""
        return [*self.cycles.lines(), *self.memory.lines()]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        s = self.program.system
        system = {"name": s.name, "title": s.title, "chip": s.chip.name, "ipus": s.ipus, "tiles": s.chip.tiles * s.ipus}
        return {"system": system, "cycles": self.cycles.to_dict(), "memory": self.memory.to_dict()}

    def svg(self) -> str:
        """Both pictures, one above the other: the tile memory map and the timeline of a run."""
        return stacked([tile_map(self.memory), timeline(self.cycles)])

    def trace(self) -> str:
        """The run as Perfetto JSON: a phase of bulk-synchronous steps each, by the model's cycles."""
        return trace(self.cycles)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return page.page(page.text(str(self)), page.scroll(self.svg()))
