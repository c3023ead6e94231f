"""What the backend ``cpu`` needs its compiler for: programs to executables and texts. `backend` loads it late."""

from __future__ import annotations

from collections.abc import Mapping

from nxjax.backends import cache
from nxjax.backends.cpu import earlier, engine, stored
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.native.tape import Tape
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.knobs import using
from nxjax.lower.cpu.held import Parts
from nxjax.lower.cpu.lower import lower, lower_parts, prepared
from nxjax.lower.cpu.tape import CpuProgram
from nxjax.lower.reproducible import check_rounding
from nxjax.trace.program import Program


def executable(program: Program, donate: tuple[int, ...], choices: Mapping[str, int], *, hurry: bool) -> CpuExecutable:
    """A program, compiled; ``choices``: of `kernels.cpu.knobs`; ``hurry``: its first code is made quickly."""
    kept = {"cpu_isa": config.cpu_isa, "reproducible": config.reproducible}

    def part(count: int) -> Parts | None:
        with config.using(**kept):
            with using(choices):
                found = lower_parts(program, count, donate)
            if found is None and what is not None:
                stored.keep_whole(what, count)
            return found

    what = stored.key(program, donate, choices)
    steps = lowered(program, donate, choices)

    def record(tape: Tape, quick: bool) -> None:
        written = tape.writer
        if what is not None and written.is_portable:
            files = written.files()
            # The process may hold code whose file the cache has dropped since.
            if not all(map(cache.touch, set(files.values()))):
                return
            links = stored.Links(written.codes, written.places, files)
            payload = stored.packed(written.parts(), tape, links, quick, steps.arena)
            if payload is not None:
                with config.using(**kept):
                    earlier.write(payload, *what)

    return CpuExecutable(steps, part, hurry=hurry, record=record)


def lowered(program: Program, donate: tuple[int, ...], choices: Mapping[str, int]) -> CpuProgram:
    """The steps that compute a program."""
    check_rounding()
    with using(choices):
        return lower(program, donate)


def text(program: Program, donate: tuple[int, ...], choices: Mapping[str, int], dialect: str) -> str | None:
    """A program in a dialect of this backend's; None for another dialect."""
    if dialect == "simplified":
        return str(prepared(program))
    steps = lowered(program, donate, choices)
    if dialect == "tape":
        return str(steps)
    if dialect not in ("llvm", "asm"):
        return None
    found = engine.engine(isa.current())
    kernels = list(dict.fromkeys(c.kernel for c in steps.calls()))
    return found.texts(kernels) if dialect == "llvm" else found.assembly(kernels)


def clear() -> None:
    """Give back code that nobody uses."""
    engine.clear()
