"""The native runtime's machine code as the installation made it, so that no first process has to.

`emitted` writes the file, beside this one. The code is good for every processor of the family. The file names the
sources that it was made from: a tree that has changed since does without. Must not import what writes the code.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Final

from nxjax.backends.cpu.native.loading import Unlinkable, keep, outside, room
from nxjax.config.digest import digest, digest_of_files

_HERE: Final = os.path.dirname(__file__)
FILE: Final = os.path.join(_HERE, f"runtime-{sys.platform}-{platform.machine().lower()}.bin")
# What the runtime's text comes from, beside this folder: LLVM's language.
_LANGUAGE: Final = ("intrinsics.py", "ir.py", "ir_types.py")
_DIGEST: Final = 32  # bytes


def addresses(symbols: Sequence[str], path: str = FILE) -> list[int] | None:
    """Where the runtime's functions are; None where the file is missing, damaged, or made from other sources."""
    place = room()
    try:
        with open(path, "rb") as file:
            data = file.read()
        head, code = data[: 2 * _DIGEST], data[2 * _DIGEST :]
        if place is None or head != sources() + digest(code).digest():
            return None
        found = place.place(code, outside)
    except (OSError, Unlinkable):
        return None
    if not all(s in found.addresses for s in symbols):
        return None
    keep(found)
    return [found.addresses[s] for s in symbols]


def sources() -> bytes:
    """A digest of all that the runtime's text comes from."""
    language = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))), "kernels", "cpu")
    here = sorted(os.path.join(_HERE, n) for n in os.listdir(_HERE) if n.endswith(".py"))
    return digest_of_files([*here, *(os.path.join(language, n) for n in _LANGUAGE)], _HERE)
