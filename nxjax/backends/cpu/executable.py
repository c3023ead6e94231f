"""A compiled program of this backend: its machine code and its tapes, those of guard mode among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.backends.base import Executable
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.cpu.native.tape import Tape, TapeEncoder
from nxjax.backends.cpu.prepared import Origins, shared
from nxjax.backends.cpu.running import TapeExecutable
from nxjax.config import current_settings
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.isa import Isa
from nxjax.lower.cpu.analysis import MemoryAnalysis, cost_of, memory_of
from nxjax.lower.cpu.held import Parts, origins
from nxjax.lower.cpu.tape import CallStep, CpuProgram, HostStep, walk
from nxjax.lower.cpu.times import time_of
from nxjax.trace.array import DeviceArray
from nxjax.transforms.jit_stages import Repeated

# Kernels of a program, and nanoseconds for each, that are made quickly at first.
_FEW: Final = 4
_SHORT: Final = 100_000


@final
class CpuExecutable(TapeExecutable):
    """A program compiled by nxjax for the host CPU. May be called by several threads at once.

    Args:
        program: what runs.
        part: the program in two parts, for so many held arguments; see `bind_leading`.
        shown: what `text` gives, if that is more than the program.
        hurry: the first code of a short program is made quickly.
        target: what code is made for; None: as the settings say.
        record: told of the tape, and whether its code was made quickly; once more of the better one.
    """

    def __init__(
        self,
        program: CpuProgram,
        part: Callable[[int], Parts | None] | None = None,
        shown: Parts | None = None,
        *,
        hurry: bool = True,
        target: Isa | None = None,
        record: Callable[[Tape, bool], None] | None = None,
    ) -> None:
        self.program = program
        # Code that is made later is for what the program was lowered for, whatever is set by then.
        self._isa = target or isa.current()
        self._part = part
        self._shown = shown or program
        # For numbers of held arguments: what prepares them, what runs then, and which of them that still takes.
        self._parted: dict[int, tuple[CpuExecutable, CpuExecutable, tuple[int, ...], Origins] | None] = {}
        super().__init__(len(program.inputs), program.out_types, program.arena)
        self._quick = hurry and _is_short(program) and not engine(self._isa).has(c.kernel for c in program.calls())
        self._record = record or (lambda tape, quick: None)
        self._tape: Tape | None = None
        self._guards: dict[tuple[str, bool], Tape] = {}
        self._has_run = False

    def __call__(self, args: Sequence[DeviceArray], into: Sequence[PoolBlock | None] = ()) -> list[DeviceArray]:
        """``into``: for each result the memory that it shall be written to, where that is not new.

        Nothing that is read may lie there. A result that is an argument, a constant or another result stays what it is.
        """
        if self._quick and self._has_run:
            self.prepare()
        self._has_run = True
        guard = current_settings().guard
        if not guard:
            return self._run(self.tape, args, into)
        from nxjax.backends.cpu import guarded_tape

        tape = self._guarded(guard, guarded_tape.writer(guard))
        run = lambda ins, outs, blocks: guarded_tape.run(tape, self.program, self._runtime, ins, outs, blocks)
        return self._run(tape, args, into, run)

    def _guarded(self, mode: str, writer: type[TapeEncoder]) -> Tape:
        """The tape for a value of ``config.guard``."""
        key = mode, self._quick
        with COMPILING:
            if key not in self._guards:
                level = 0 if self._quick else 2
                self._guards[key] = Tape(self.program, engine(self._isa, level), self._runtime, writer)
        return self._guards[key]

    @property
    def tape(self) -> Tape:
        """Its code, made when it is first wanted: what `bind_leading` gives may be all that runs."""
        if self._tape is None:
            with COMPILING:
                if self._tape is None:
                    tape = Tape(self.program, engine(self._isa, 0 if self._quick else 2), self._runtime)
                    self._record(tape, self._quick)
                    self._tape = tape
        return self._tape

    def ready(self) -> None:
        _ = self.tape

    def prepare(self) -> None:
        """Have the best code now, where none was made yet, or it was made quickly."""
        if not self._quick:
            self.ready()
        else:
            self._tape = Tape(self.program, engine(self._isa), self._runtime)
            self._quick = False
            self._record(self._tape, False)

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        if self._part is None:
            return None
        count = len(held)
        with COMPILING:
            if count not in self._parted:
                parts = self._part(count)
                self._parted[count] = parts and (
                    CpuExecutable(parts.preparation, target=self._isa),
                    CpuExecutable(parts.main, shown=parts, target=self._isa),
                    parts.kept,
                    origins(parts.preparation),
                )
        found = self._parted[count]
        if found is None:
            return None
        preparation, main, kept, made_of = found
        return main, [*(held[i] for i in kept), *shared(preparation, made_of, held)]

    @property
    def is_native(self) -> bool:
        """Whether no op of it runs by its NumPy meaning."""
        return not any(isinstance(s, HostStep) for s in walk(self.program.steps))

    def shortcut(self, jitted: Any, call: Repeated) -> None:
        """Machine code answers the next call that is like this one; better code, where the first was made quickly."""
        self.prepare()
        if current_settings().guard:
            return  # what machine code runs alone has no notes of what runs
        from nxjax.backends.cpu.call import shortcut

        shortcut(self, self.tape, jitted, call)

    @property
    def text(self) -> str:
        return str(self._shown)

    def cost_analysis(self) -> dict[str, float]:
        return cost_of(self.program)

    def memory_analysis(self) -> MemoryAnalysis:
        return memory_of(self.program)


def _is_short(program: CpuProgram) -> bool:
    """Whether a first run takes less time than better code for it takes to make.

    Many functions are called once. LLVM's quick code (level 0) is made in a millisecond less a kernel, and takes some
    five times as long to run.
    """
    kernels = [s.kernel for s in program.steps if isinstance(s, CallStep)]
    nested = any(s.bodies() for s in program.steps)
    return not nested and 0 < len(kernels) <= _FEW and sum(map(time_of, kernels)) <= _SHORT * len(kernels)
