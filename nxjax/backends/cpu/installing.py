"""``python -m nxjax.backends.cpu.installing``: write what `native.installed` reads. `setup.py` runs this."""

from __future__ import annotations

from nxjax.backends.cpu import call, call_layout
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native import emitted, installed
from nxjax.files import safe_io
from nxjax.kernels.cpu import isa
from nxjax.transforms.jit import Jitted


def write() -> None:
    """Compile the runtime and native calls for the plain processor of this family, and keep them with the package."""
    plain = engine(isa.named("portable"))
    safe_io.write(installed.file_of("runtime"), installed.content(plain.emitted(emitted.text())))
    try:
        layout = call_layout.find(Jitted)
    except call_layout.Unknown:  # an interpreter without native calls
        return
    code = plain.emitted(call.text(layout))
    safe_io.write(installed.file_of("calls"), installed.content(code, repr(layout)))


if __name__ == "__main__":
    write()
