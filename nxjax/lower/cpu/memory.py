"""Where temporaries lie: one arena, in which buffers that are never alive together overlap."""

from __future__ import annotations

from nxjax.lower.cpu.tape import ALIGN, CpuProgram, walk


def planned(program: CpuProgram) -> CpuProgram:
    """Give every temporary its offset in the arena; sets ``program.arena``."""
    top = 0
    for step in walk(program.steps):
        for ref in (*step.reads(), *step.writes()):
            if ref.buffer.kind == "temp" and ref.buffer.offset < 0:
                ref.buffer.offset = top
                top += -(-ref.buffer.nbytes // ALIGN) * ALIGN
    program.arena = top
    return program
