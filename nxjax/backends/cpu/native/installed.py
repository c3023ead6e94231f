"""The native runtime's machine code as the installation made it, so that no first process has to.

``python -m nxjax.backends.cpu.native.installed`` writes the file beside this one; `setup.py` runs it. The code is good
for every processor of the family. The file names the sources that it was made from: a tree that has changed since does
without. Must not import what writes the code, except to write the file.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Final

from nxjax.backends.cpu.native.loading import Unlinkable, keep, outside, room
from nxjax.config.digest import digest

_HERE: Final = os.path.dirname(__file__)
FILE: Final = os.path.join(_HERE, f"runtime-{sys.platform}-{platform.machine().lower()}.bin")
# What the runtime's text comes from, beside this folder: LLVM's language.
_LANGUAGE: Final = ("intrinsics.py", "ir.py", "ir_types.py")
_DIGEST: Final = 32  # bytes


def addresses(symbols: Sequence[str], path: str = FILE) -> list[int] | None:
    """Where the runtime's functions are; None where the file is missing, damaged, or made from other sources."""
    place = room()
    try:
        data = _read(path)
        head, code = data[: 2 * _DIGEST], data[2 * _DIGEST :]
        if place is None or head != _sources() + digest(code).digest():
            return None
        found = place.place(code, outside)
    except (OSError, Unlinkable):
        return None
    if not all(s in found.addresses for s in symbols):
        return None
    keep(found)
    return [found.addresses[s] for s in symbols]


def write(path: str = FILE) -> None:
    """Compile the runtime for the plain processor of this family, and keep it at ``path``."""
    from nxjax.backends.cpu.engine import engine
    from nxjax.backends.cpu.native import emitted
    from nxjax.kernels.cpu import isa

    code = engine(isa.named("portable")).emitted(emitted.text())
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "wb") as file:
        file.write(_sources() + digest(code).digest() + code)
    os.replace(unfinished, path)


def _sources() -> bytes:
    """A digest of all that the runtime's text comes from."""
    language = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))), "kernels", "cpu")
    found = digest()
    for name in sorted(n for n in os.listdir(_HERE) if n.endswith(".py")):
        found.update(digest(_read(os.path.join(_HERE, name))).digest())
    for name in _LANGUAGE:
        found.update(digest(_read(os.path.join(language, name))).digest())
    return found.digest()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    write()
