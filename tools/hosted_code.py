"""Machine code for an emulated machine, made on the host: `python tools/emulate.py --host-llvm test`.

LLVM's code generator is most of what an emulated test of the compiler costs. What it makes depends on the text, the
target and its own version, not on the machine that it runs on: so a process of the host gets the texts of modules and
gives object files. Texts are read and verified where they are made; the code is loaded and run there, too.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Client, Listener
from typing import Any

import llvmlite
import llvmlite.binding as llvm


def serve(place: str) -> None:
    """Answer at the socket ``place``, one after the other."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machines: dict[str, Any] = {}
    with Listener(place) as listener:
        print("ready", flush=True)
        while True:
            # Who asks may die; the next one is served.
            with suppress(EOFError, OSError), listener.accept() as asked:
                asked.send(_made(machines, *asked.recv()))


def _made(machines: dict[str, Any], version: str, triple: str, options: dict[str, Any], text: str) -> bytes | str:
    """An object file, or why there is none."""
    if version != llvmlite.__version__:
        return f"the machine has llvmlite {version}, the host {llvmlite.__version__}"
    key = f"{triple} {options}"
    try:
        if key not in machines:
            machines[key] = llvm.Target.from_triple(triple).create_target_machine(**options)
        return machines[key].emit_object(llvm.parse_assembly(text, llvm.create_context()))
    except RuntimeError as error:
        return str(error)


def ask(place: str) -> None:
    """From now on, this process has its object files made at ``place``."""
    create = llvm.Target.create_target_machine

    def created(target: Any, **options: Any) -> Any:
        machine = create(target, **options)
        machine.wanted = (llvmlite.__version__, target.triple, options)
        return machine

    def emit_object(machine: Any, module: Any) -> bytes:
        with Client(place) as host:
            host.send((*machine.wanted, str(module)))
            made = host.recv()
        if isinstance(made, str):
            raise RuntimeError(made)
        return made

    llvm.Target.create_target_machine = created
    llvm.TargetMachine.emit_object = emit_object


if __name__ == "__main__":
    threading.Thread(target=serve, args=sys.argv[1:], daemon=True).start()
    sys.stdin.read()  # to the end of who started it
