"""Poplar projects built and run as processes of their own: with the SDK where it is, against our shim anywhere.

The SDK's libraries belong to a Python and a Linux of their own, so nothing of them is loaded into this process. Knows
files and commands; what is in them is the format's.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.backends import cache
from nxjax.backends.evidence import By
from nxjax.backends.ipu.detect import CODELETS, codelets_compiled
from nxjax.backends.ipu.detect import compiler as popc_here
from nxjax.backends.tools import ask, read
from nxjax.errors import ExecutionError, LoweringError, MissingExtraError
from nxjax.files import safe_io
from nxjax.kernels.ipu.host_compiler import SHIM, compiler
from nxjax.lower.ipu.formats import poplar, poplar_host
from nxjax.lower.ipu.program import IpuProgram, Variable

NDArray = np.ndarray[Any, Any]
# "ipu": hardware; "model": the SDK's IPUModel; "cpu": the SDK's CPU device; "offline": compiled by the SDK only;
# "host": built against our shim, which computes and checks and measures nothing.
On = Literal["ipu", "model", "cpu", "offline", "host"]
RUNS: Final[dict[On, By]] = {
    "ipu": "chip",
    "model": "vendor-simulator",
    "cpu": "host",
    "offline": "vendor-compiler",
    "host": "host",
}


def sdk() -> tuple[bool, str]:
    """Whether Graphcore's compiler works here, and one for the host's part; which it is, or why not."""
    popc, said = popc_here()
    if not popc:
        return False, said
    if not compiler()[0]:
        return False, f"popc is at {popc}, but there is no C++ compiler for the host's part: {compiler()[1]}"
    return True, f"popc at {popc} ({said})"


@final
class PoplarProject:
    """The C++ project of an IPU program.

    Attributes:
        program: what it was written from.
        files: name -> bytes, ``main.cpp`` first.
    """

    def __init__(self, program: IpuProgram) -> None:
        self.program = program
        self.files = poplar.write(program)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the files, each one whole or not at all."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            safe_io.write(path / name, data)
        return path

    def run(self, inputs: Sequence[NDArray], on: On = "ipu", runs: int = 1, timeout: float = 600.0) -> list[NDArray]:
        """Build it in a temporary folder and run it there.

        Args:
            inputs: an array per input of the program, of its shape and dtype.
            on: see `RUNS` for what a result says.
            runs: how often; states stay from run to run.
            timeout: seconds for each command.

        Raises:
            MissingExtraError: the SDK (or, for "host", a C++ compiler) is not here.
            LoweringError: a compiler refused the project.
            ExecutionError: inputs that do not fit, or a run that failed.
        """
        given = self._checked(inputs)
        with tempfile.TemporaryDirectory(prefix="nxjax-poplar-") as name:
            folder = self.save(name)
            self.build(folder, host=on == "host", timeout=timeout)
            for i, x in enumerate(given):
                (folder / f"in_{i}.bin").write_bytes(x.tobytes())
            device = "cpu" if on == "host" else on
            done = ask(["./program", f"--device={device}", "--data=.", f"--runs={runs}"], folder, timeout)
            if done.trouble:
                raise done.error("ipu: the Poplar program failed")
            if on == "offline":
                return []
            return [_result(folder / f"out_{i}.bin", v) for i, v in enumerate(self.program.outputs)]

    def compiled_by_sdk(self, timeout: float = 600.0) -> tuple[bool, str]:
        """Whether popc compiles the project's codelets, and what it made or said. The graph is compiled by a run."""
        popc, said = popc_here()
        if not popc:
            return False, said
        sources = {n: d.decode() for n, d in self.files.items() if n.startswith("codelet_") and n.endswith(".cpp")}
        made, size = codelets_compiled(popc, self.program.system.chip.version, sources, timeout)
        if not made:
            return False, f"popc at {popc} does not compile the codelets: {size}"
        return True, f"{said}, at {popc}, compiled {len(sources)} codelets to {size}; the graph was not compiled"

    def build(self, folder: Path, host: bool = False, timeout: float = 600.0) -> None:
        """Compile the saved project to ``program`` in its folder."""
        if host:
            self._build_here(folder, timeout)
            return
        found, reason = sdk()
        if not found:
            raise MissingExtraError(
                "ipu: Graphcore's Poplar SDK is not here",
                got=reason,
                fix='install the SDK and source its enable.sh, or run with on="host"',
            )
        _compiled(["sh", "build.sh"], folder, timeout)
        for made in (CODELETS, "program"):
            if not _size(folder / made):
                raise LoweringError(f"ipu: build.sh ended without an error and wrote no {made}")

    def _build_here(self, folder: Path, timeout: float) -> None:
        path, version = compiler()
        if not path:
            raise MissingExtraError("ipu: no C++ compiler", got=version, fix="install g++ or clang++, or set CXX")
        found = self.program.codelets()
        for name, text in poplar_host.registrations(found).items():
            safe_io.write(folder / name, text.encode())
        commands = poplar_host.compilations(path, str(SHIM), len(found))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda command: _object(command, version, folder, timeout), commands))
        _compiled(poplar_host.link(path, len(found)), folder, timeout)

    def _checked(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        variables = self.program.inputs
        if len(inputs) != len(variables):
            raise ExecutionError("ipu: wrong number of inputs", got=len(inputs), expected=len(variables))
        for v, x in zip(variables, inputs, strict=True):
            if x.shape != v.shape or x.dtype != v.dtype:
                raise ExecutionError(
                    f"ipu: {v.name} has another type",
                    got=f"{x.dtype}{list(x.shape)}",
                    expected=f"{v.dtype}{list(v.shape)}",
                )
        return [np.ascontiguousarray(x) for x in inputs]


def _size(path: Path) -> int:
    """Bytes of a regular file; 0 where there is none."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0


def _result(path: Path, v: Variable) -> NDArray:
    """What the program wrote of an output."""
    data, size = b"", _size(path)
    if size == v.nbytes:
        with contextlib.suppress(OSError):
            data = read(path)
    if len(data) != v.nbytes or not path.is_file():
        raise ExecutionError(
            f"ipu: the Poplar program ended without an error but did not complete {path.name}",
            got=f"{size:,} bytes",
            expected=f"{v.nbytes:,} bytes, {v.dtype}{list(v.shape)}",
        )
    return np.frombuffer(data, v.dtype).reshape(v.shape)


def _object(command: Sequence[str], version: str, folder: Path, timeout: float) -> None:
    """Compile one file of the project, or take what this machine made of the same texts earlier."""
    source, made = command[-3], folder / command[-1]
    key = cache.key_of("poplar-object", version, *command, *_shim(), *_texts(folder, source))
    data = cache.load(key)
    if data is not None:
        safe_io.write(made, data)
        return
    _compiled(command, folder, timeout)
    if _size(made):
        cache.store(key, made.read_bytes())


def _texts(folder: Path, name: str) -> Iterator[bytes]:
    """A file of the project, and those beside it that it includes."""
    text = (folder / name).read_bytes()
    yield text
    for included in re.findall(rb'^#include "(\w+\.\w+)"', text, re.MULTILINE):
        yield from _texts(folder, included.decode())


@lru_cache(1)
def _shim() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(SHIM.rglob("*")) if path.is_file())


def _compiled(command: Sequence[str], folder: Path, timeout: float) -> None:
    done = ask(command, folder, timeout)
    if done.status is None or done.status < 0:
        raise done.error(f"ipu: {Path(command[0]).name} gave no answer")
    if done.status:
        raise LoweringError(f"ipu: {Path(command[0]).name} refused the project", got=(done.err or done.out)[-2000:])
