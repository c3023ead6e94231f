"""The native runtime in LLVM's language, and compiled: for a process that finds no code of an earlier one.

``python -m nxjax.backends.cpu.native.emitted`` compiles it for `installed`; `setup.py` runs this.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native import installed, machine, pool, threads
from nxjax.backends.cpu.native.sync import SYSTEM, System
from nxjax.config.digest import digest
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


def write(path: str = installed.FILE) -> None:
    """Compile the runtime for the plain processor of this family, and keep it at ``path``."""
    code = engine(isa.named("portable")).emitted(text())
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "wb") as file:
        file.write(installed.sources() + digest(code).digest() + code)
    os.replace(unfinished, path)


if __name__ == "__main__":
    write()
