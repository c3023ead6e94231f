"""The native runtime in LLVM's language, and compiled: for a process that finds no code of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native import machine, pool, threads
from nxjax.backends.cpu.native.sync import SYSTEM, System
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import LlvmModule


def text(system: System = SYSTEM) -> str:
    """The runtime in LLVM's language."""
    module = LlvmModule()
    pool.emit(module, system)
    threads.emit(module, system)
    machine.emit(module, system)
    return module.text


def addresses(symbols: Sequence[str]) -> list[int]:
    """Where the runtime's functions are, made now or found by their text; later processes find them by a record."""
    made, written = engine(isa.current()), text()
    found = made.module(written, symbols)
    earlier.write(made.module_file(written).encode(), "runtime")
    return found
