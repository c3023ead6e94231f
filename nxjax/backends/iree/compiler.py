"""IREE's compiler in a process of its own: StableHLO text in, a module out, or an error that says what it said.

The compiler is C++ that ends its process on names that it does not know and on some programs. Knows text and flags, no
device.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final, final

from nxjax.backends import cache
from nxjax.backends.tools import ask, read
from nxjax.errors import LoweringError, MissingExtraError

EXTRA: Final = "vulkan"
# Seconds after which a compilation counts as one that does not end.
DEADLINE: Final = 900.0
_SOURCE: Final = "program.mlir"
_MODULE: Final = "program.vmfb"
_PACKAGES: Final = ("iree-base-compiler", "iree-base-runtime")
_MISSING: Final = f"pip install 'nxjax[{EXTRA}]'"
# How many programs this process has compiled; one that finds everything in the cache leaves it at zero.
compilations = 0


@lru_cache(1)
def missing() -> str:
    """Which of IREE's packages is not installed; empty where both are."""
    for package in _PACKAGES:
        try:
            version_of(package)
        except PackageNotFoundError:
            return package
    return ""


@lru_cache(1)
def version() -> str:
    """The releases of compiler and runtime, such as "3.13.0".

    Raises:
        MissingExtraError: one is not installed.
    """
    if missing():
        raise MissingExtraError(
            "vulkan: needs a package that is not installed",
            got=f"no package {missing()}",
            expected=f"the extra {EXTRA!r}",
            fix=_MISSING,
        )
    both = [version_of(p) for p in _PACKAGES]
    return both[0] if both[0] == both[1] else "/".join(both)


def tool() -> str:
    """The compiler's own program, found without importing the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    version()
    spec = importlib.util.find_spec("iree")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for name in ("iree-compile", "iree-compile.exe"):
            path = Path(folder, "compiler", "_mlir_libs", name)
            if path.exists():
                return str(path)
    raise MissingExtraError("vulkan: the IREE package has no compiler", got="no iree-compile", fix=_MISSING)


@final
class CompilationFailed(Exception):
    """The compiler made nothing.

    Attributes:
        reason: its own words, in one line.
        line: of the text that they are about, from 1; 0 where it did not say.
        crashed: it ended, or did not end at all, instead of answering.
    """

    def __init__(self, reason: str, line: int = 0, crashed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.crashed = crashed


def compile_text(text: str, flags: Sequence[str], program: Sequence[str] = (), deadline: float = DEADLINE) -> bytes:
    """A module of IREE's for a text of StableHLO, from the cache where it is there.

    Args:
        flags: of the compiler, besides those for StableHLO and for keeping dtypes as they are.
        program: what to run in the compiler's place.
        deadline: seconds that it may take.

    Raises:
        Refused: the compiler refuses the text, ends, or does not end in time.
        MissingExtraError: IREE is not installed.
    """
    global compilations
    flags = ("--iree-input-type=stablehlo", "--iree-input-demote-f64-to-f32=false", *flags)
    key = cache.key_of("iree", "" if program else version(), *flags, text)
    found = None if program else cache.load(key)
    if found is not None:
        return found
    compilations += 1
    with tempfile.TemporaryDirectory(prefix="nxjax-iree-") as folder:
        Path(folder, _SOURCE).write_text(text)
        done = ask([*(program or (tool(),)), _SOURCE, "-o", _MODULE, *flags], folder, deadline)
        if done.status is None:
            raise CompilationFailed(done.trouble, crashed=True)
        if done.status < 0 or (os.name == "nt" and done.status > 0x7FFF):
            raise CompilationFailed(f"{done.trouble}; {words(done.err)[0]}".rstrip("; "), crashed=True)
        if done.status:
            raise CompilationFailed(*words(done.err))
        try:
            made = read(Path(folder, _MODULE))
        except OSError as error:
            raise CompilationFailed(f"it ended well and left no module: {error}") from None
    if not made or made == text.encode():
        raise CompilationFailed(f"it ended well and left {'its input' if made else 'nothing'} as a module")
    if not program:
        cache.store(key, made)
    return made


def words(said: str) -> tuple[str, int]:
    """The first error of a compiler's output, and the line of the text that it is about.

    >>> words('<stdin>:5:10: error: failed to legalize operation "x"\\n  %2 = ...')
    ('failed to legalize operation "x"', 5)
    """
    found = re.search(r"^(?:<stdin>|-|program\.mlir):(\d+):\d+: error: (.*)$", said, re.MULTILINE)
    if found:
        return found[2].strip()[:500], int(found[1])
    found = re.search(r"error: (.*)$", said, re.MULTILINE)
    if found:
        return found[1].strip()[:500], 0
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[0][:500] if lines else ""), 0


def refused(name: str, error: CompilationFailed, located: str) -> LoweringError:
    """The error for a user, with the source line that ``located``, the text with places, has for it."""
    lines = located.splitlines()
    line = lines[error.line - 1].strip() if 0 < error.line <= len(lines) else ""
    place = re.search(r'loc\("(.*?)"\("(.*?)":(\d+):', line)
    more: list[tuple[str, object]] = []
    if place:
        more.append(("from", f"{os.path.basename(place[2])}:{place[3]} ({place[1]})"))
    return LoweringError(
        f"{name}: IREE's compiler {'ended' if error.crashed else 'refuses the program'}",
        got=error.reason + (f", in {line.split(' loc(')[0][:160]}" if line else ""),
        fix=f'leave this part to the CPU, as nx.jit(f, device=nx.Hybrid("{name}", "cpu")) does',
        more=more,
    )
