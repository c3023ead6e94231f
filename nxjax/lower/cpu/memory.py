"""The memory plan of a program: copies that need not be are gone, and every temporary has its place in one arena."""

from __future__ import annotations

from nxjax.config import config
from nxjax.lower.cpu.invariant import without_repetition
from nxjax.lower.cpu.memory_copies import onto_donated, without_copies
from nxjax.lower.cpu.memory_offsets import assigned
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import CpuProgram


def planned(program: CpuProgram) -> CpuProgram:
    """`placed`, and verified to compute what it did before, if the settings say so."""
    if not (config.verify or config.check):
        return placed(program)
    from nxjax.lower.cpu.verify import trace, verify

    before = trace(program)
    verify(placed(program), before)
    return program


def placed(program: CpuProgram) -> CpuProgram:
    """Take out copies and repetition, and give every temporary its offset in the arena; sets ``program.arena``."""
    without_repetition(program.steps)
    without_copies(program.steps)
    onto_donated(program)
    program.arena = assigned(Uses(program.steps))
    return program
