"""Machine code that the installation has made, so that no first process has to: the native runtime, and native calls.

`backends.cpu.installing` writes the files, beside this one. The code is good for every processor of the family. A file
names the sources that it was made from, and what else its text depends on: a tree that has changed since, or another
Python, does without. Must not import what writes the code.
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
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
# What the texts come from, beside this folder: LLVM's language.
_LANGUAGE: Final = ("intrinsics.py", "ir.py", "ir_types.py")
_DIGEST: Final = 32  # bytes


def file_of(name: str) -> str:
    """Where the code called ``name`` is."""
    return os.path.join(_HERE, f"{name}-{sys.platform}-{platform.machine().lower()}.bin")


def addresses(symbols: Sequence[str], name: str, *what: str) -> list[int] | None:
    """Where functions are, for good; None where the file is missing, damaged, or not made for ``what``."""
    place = room()
    try:
        with open(file_of(name), "rb") as file:
            data = file.read()
        head, code = data[: 2 * _DIGEST], data[2 * _DIGEST :]
        if place is None or head != _head(code, what):
            return None
        found = place.place(code, outside)
    except (OSError, Unlinkable):
        return None
    if not all(s in found.addresses for s in symbols):
        return None
    keep(found)
    return [found.addresses[s] for s in symbols]


def content(code: bytes, *what: str) -> bytes:
    """A file with object code that was made for ``what``."""
    return _head(code, what) + code


def _head(code: bytes, what: Sequence[str]) -> bytes:
    """What a file begins with: digests of all that its text comes from, and of the code."""
    language = os.path.join(_ROOT, "kernels", "cpu")
    here = sorted(os.path.join(_HERE, n) for n in os.listdir(_HERE) if n.endswith(".py"))
    sources = digest_of_files([*here, *(os.path.join(language, n) for n in _LANGUAGE)], _ROOT)
    return digest("\n".join([sources.hex(), *what]).encode()).digest() + digest(code).digest()
