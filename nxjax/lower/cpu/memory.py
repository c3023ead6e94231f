"""The memory plan of a program: copies that need not be are gone, and every temporary has its place in one arena."""

from __future__ import annotations

from nxjax.lower.cpu.invariant import without_repetition
from nxjax.lower.cpu.memory_copies import onto_donated, without_copies
from nxjax.lower.cpu.memory_offsets import assigned
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import CpuProgram


def planned(program: CpuProgram) -> CpuProgram:
    """Take out copies and repetition, and give every temporary its offset in the arena; sets ``program.arena``."""
    without_repetition(program.steps)
    without_copies(program.steps)
    onto_donated(program)
    program.arena = assigned(Uses(program.steps))
    return program
