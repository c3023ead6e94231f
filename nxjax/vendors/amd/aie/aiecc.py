"""mlir-aie's compiler driver, where it is installed: C++ kernels to an object file, the design to xclbin and insts.

Finds ``aiecc`` (or ``aiecc.py``) on the PATH, Peano's ``clang++`` by ``PEANO_INSTALL_DIR`` or beside it, and the AIE
API's headers by ``MLIR_AIE_DIR`` or from where aiecc lies. Runs them as processes and keeps what they say. Knows files,
no design.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final, final

from nxjax.backends.tools import NO_MODEL, ask, doubt, read
from nxjax.errors import ExecutionError
from nxjax.vendors.amd.xrt_artifact import refused_instructions, refused_xclbin

NAMES: Final = ("aiecc", "aiecc.py")
# An object file: how it begins, bytes of the header of its 32-bit kind, and the number of its type.
_ELF: Final = b"\x7fELF"
_ELF_HEADER: Final = 52
_RELOCATABLE: Final = 1
_HEXADECIMAL: Final = re.compile(rb"(?:[0-9A-Fa-f]{8}\s+)*[0-9A-Fa-f]{8}\s*")
# What it leaves of a design, and why bytes are none of it.
_REFUSED: Final[Mapping[str, Callable[[bytes], str]]] = {
    ".xclbin": refused_xclbin,
    ".insts.bin": refused_instructions,
}
# Lines of a tool's own words in an error.
_LINES: Final = 12


@final
@dataclass(frozen=True)
class Tools:
    """Where the compilers are."""

    aiecc: str
    clang: str | None
    peano: str | None
    include: str


def found() -> Tools | None:
    """The tools on this machine, or None without aiecc."""
    aiecc = next((path for path in map(shutil.which, NAMES) if path), None)
    if aiecc is None:
        return None
    peano = os.environ.get("PEANO_INSTALL_DIR")
    beside = str(Path(peano) / "bin" / "clang++") if peano else None
    clang = beside if beside and os.access(beside, os.X_OK) else shutil.which("clang++")
    home = os.environ.get("MLIR_AIE_DIR") or str(Path(aiecc).resolve().parents[1])
    # They run in a folder of their own, where a path from here would be another.
    clang = None if clang is None else os.path.abspath(clang)
    return Tools(os.path.abspath(aiecc), clang, peano and os.path.abspath(peano), os.path.abspath(f"{home}/include"))


def kernel_command(clang: str, triple: str, include: str, stem: str) -> list[str]:
    """How the kernels' C++ is compiled; the last macro keeps headers out that only AMD's own compiler has.

    >>> " ".join(kernel_command("clang++", "aie2-none-unknown-elf", "include", "f"))[:44]
    'clang++ -O2 -std=c++20 --target=aie2-none-un'
    """
    return [
        clang, "-O2", "-std=c++20", f"--target={triple}", "-DNDEBUG", "-D__AIE_API_AIE_ADF_HPP__", "-I", include,
        "-c", f"{stem}.cc", "-o", f"{stem}.o",
    ]  # fmt: skip


def design_command(aiecc: str, peano: str | None, stem: str) -> list[str]:
    """How a design is compiled: without AMD's licensed compiler, into ``stem.xclbin`` and ``stem.insts.bin``."""
    return [
        aiecc, "--no-compile-host", "--no-xchesscc", "--no-xbridge", *([f"--peano={peano}"] if peano else []),
        "--aie-generate-xclbin", f"--xclbin-name={stem}.xclbin", "--aie-generate-npu-insts",
        f"--npu-insts-name={stem}.insts.bin", f"{stem}.mlir",
    ]  # fmt: skip


def compile_design(
    tools: Tools, stem: str, files: Mapping[str, bytes], triple: str, another: Mapping[str, bytes]
) -> dict[str, bytes]:
    """``stem.xclbin`` and ``stem.insts.bin`` of ``stem.mlir`` and ``stem.cc``.

    Args:
        another: ``another.mlir`` and ``another.cc``, of another design: what is made of that must be something else.

    Raises:
        ExecutionError: a tool that fails or takes too long, with what it said, leaves no file of the right kind, or
            the same one of every design.
    """
    made = _compiled(tools, stem, files, triple)
    besides = cache(partial(_compiled, tools, "another", another, triple))
    for name, data in made.items():
        end = name.removeprefix(stem)
        why = doubt(
            data, files.values(), partial(_of_no_design, tools, end), tools.aiecc,
            settings=f"{tools.peano} {triple} {end}", of_another=lambda end=end: besides()[f"another{end}"],
        )  # fmt: skip
        if why:
            raise ExecutionError(f"{Path(tools.aiecc).name}: it compiled nothing", got=why)
    return made


def _compiled(tools: Tools, stem: str, files: Mapping[str, bytes], triple: str) -> dict[str, bytes]:
    if tools.clang is None:
        raise ExecutionError(
            "aiecc: no compiler for the cores' kernels", fix="install Peano (llvm-aie) and set PEANO_INSTALL_DIR"
        )
    with tempfile.TemporaryDirectory(prefix="nxjax_aie_") as folder:
        for name in (f"{stem}.mlir", f"{stem}.cc"):
            Path(folder, name).write_bytes(files[name])
        _run(kernel_command(tools.clang, triple, tools.include, stem), folder)
        _left(tools.clang, folder, f"{stem}.o", _refused_object)
        _run(design_command(tools.aiecc, tools.peano, stem), folder)
        return {f"{stem}{end}": _left(tools.aiecc, folder, f"{stem}{end}", check) for end, check in _REFUSED.items()}


def _of_no_design(tools: Tools, end: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="nxjax_aie_") as folder:
        for name in ("none.mlir", "none.o"):
            Path(folder, name).write_bytes(NO_MODEL)
        _run(design_command(tools.aiecc, tools.peano, "none"), folder)
        return _left(tools.aiecc, folder, f"none{end}", _REFUSED[end])


def _left(tool: str, folder: str, name: str, refused: Callable[[bytes], str]) -> bytes:
    """The file that a tool was asked for, if it is of its kind."""
    who = Path(tool).name
    try:
        data = read(Path(folder, name))
    except OSError as error:
        raise ExecutionError(f"{who}: it ended without an error and left no file", got=f"{name}: {error}") from None
    if name.endswith(".insts.bin") and _HEXADECIMAL.fullmatch(data):
        # Older releases write words in hexadecimal digits, one on a line.
        data = b"".join(int(word, 16).to_bytes(4, "little") for word in data.split())
    if why := refused(data):
        raise ExecutionError(f"{who}: it ended without an error, and {name} is not what it should be", got=why)
    return data


def _refused_object(data: bytes) -> str:
    """Why bytes are no object file, which is a relocatable ELF file; empty if they are."""
    if data[:4] != _ELF or len(data) < _ELF_HEADER:
        return f"it begins with {data[:4]!r}, an object file with {_ELF!r}"
    return "" if int.from_bytes(data[16:18], "little") == _RELOCATABLE else "an ELF file, but no relocatable one"


def _run(command: Sequence[str], folder: str) -> None:
    done, name = ask(command, folder), Path(command[0]).name
    if done.trouble:
        said = [line for line in done.said.splitlines() if line.strip()]
        what = f"{name} fails with {done.status}" if done.status else f"{name}: {done.trouble}"
        raise done.error(what, "\n".join(said[-_LINES:]) or "nothing was said")


def script(stems: Sequence[str], triple: str) -> bytes:
    """A shell script that does the same on a machine that has the tools."""
    lines = [
        "#!/bin/sh",
        "# Needs aiecc on the PATH, Peano in PEANO_INSTALL_DIR and mlir-aie's folder in MLIR_AIE_DIR.",
        "set -e",
    ]
    for stem in stems:
        lines.append(" ".join(kernel_command("$PEANO_INSTALL_DIR/bin/clang++", triple, "$MLIR_AIE_DIR/include", stem)))
        lines.append(" ".join(design_command("aiecc", "$PEANO_INSTALL_DIR", stem)))
    return ("\n".join(lines) + "\n").encode()
