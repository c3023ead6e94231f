"""The host's C++ compiler: which one there is, and shared libraries from C++ text, kept on disk by content.

Knows no codelet.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Final

from nxjax.errors import ExecutionError, KernelError
from nxjax.files import user_cache

SHIM: Final = Path(__file__).parent / "shim"
VERTEX_HEADERS: Final = ("HalfFloat.hpp", "Vertex.hpp")
# Results must not depend on what the host's compiler makes of an expression: products and sums are not contracted.
# Vertices' memory is written through other types than it is read.
FLAGS: Final = (
    *(
        "-std=c++17",
        "-O2",
        "-ftree-vectorize",
        "-march=native",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
    ),
    *("-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared", "-w"),
)
_NAMES: Final = ("c++", "g++", "clang++")


@lru_cache(8)
def _found(wanted: str) -> tuple[str, str]:
    """Path and version of the compiler; a reason instead of the version when the path is empty."""
    tried: list[str] = []
    for name in (wanted,) if wanted else _NAMES:
        path = shutil.which(name)
        if path is None:
            tried.append(f"{name}: not found")
            continue
        try:
            path = os.path.abspath(path)
            with tempfile.TemporaryDirectory(prefix="nxjax-ipu-") as folder:
                run = subprocess.run(
                    [path, "--version"], cwd=folder, capture_output=True, text=True, errors="replace", timeout=30,
                    check=False,
                )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{name}: {error}")
            continue
        if run.returncode == 0:
            return path, run.stdout.splitlines()[0] if run.stdout else name
        tried.append(f"{name}: {run.stderr.strip()}")
    return "", "; ".join(tried)


def compiler() -> tuple[str, str]:
    """Path and version of the C++ compiler (``CXX``, else c++, g++, clang++); ("", reason) if there is none."""
    return _found(os.environ.get("CXX", ""))


@lru_cache(1)
def _machine() -> str:
    """What ``-march=native`` depends on."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
    return f"{platform.machine()} {platform.processor()}"


@lru_cache(1)
def _shim_digest() -> bytes:
    digest = hashlib.sha256()
    for path in (*sorted((SHIM / "host").iterdir()), *(SHIM / "poplar" / name for name in VERTEX_HEADERS)):
        if path.is_file():
            digest.update(str(path.relative_to(SHIM)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


_loaded: dict[str, ctypes.CDLL] = {}


def _load(data: bytes, name: str) -> ctypes.CDLL:
    """The library of these bytes, from a folder that only this process knows: a place that all of the user's processes
    know may hold another file when the linker opens it. It outlives its file.
    """
    with tempfile.TemporaryDirectory(prefix="nxjax-codelets-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)


def libraries(texts: Sequence[str], defines: Sequence[str] = ()) -> list[ctypes.CDLL]:
    """Shared libraries of these C++ texts, each compiled at most once per machine, several at a time.

    Raises:
        ExecutionError: there is no compiler.
        KernelError: it refuses a text; with its message.
    """
    keys = [_key(text, defines) for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if not _from_cache(key)}
    if missing:
        with ThreadPoolExecutor(max(1, min(len(missing), os.cpu_count() or 1))) as pool:
            list(pool.map(lambda item: _compile(item[0], item[1], defines), missing.items()))
    return [_loaded[key] for key in keys]


def _key(text: str, defines: Sequence[str]) -> str:
    path, version = compiler()
    digest = hashlib.sha256(_shim_digest())
    for part in (path, version, _machine(), *FLAGS, *defines, text):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _from_cache(key: str) -> bool:
    if key in _loaded:
        return True
    name = f"{key}.so"
    data = user_cache.load(name)
    if data is None:
        return False
    try:
        _loaded[key] = _load(data, name)
    except OSError:
        # Of another machine that shares the folder.
        user_cache.discard(name)
        return False
    return True


def _compile(key: str, text: str, defines: Sequence[str]) -> None:
    path, version = compiler()
    if not path:
        raise ExecutionError(
            "ipu: no C++ compiler for the model's codelets",
            got=version,
            expected=f"CXX, or one of {', '.join(_NAMES)}",
            fix="install g++ or clang++, or set CXX",
        )
    with tempfile.TemporaryDirectory(prefix="nxjax-codelets-") as work:
        source, built = Path(work) / "codelets.cpp", Path(work) / f"{key}.so"
        source.write_text(text)
        options = [*FLAGS, *(f"-D{d}" for d in defines), f"-I{SHIM / 'host'}", f"-I{SHIM}"]
        run = subprocess.run(
            [path, *options, str(source), "-o", str(built)],
            cwd=work,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if run.returncode == 0 and not built.is_file():
            raise KernelError(
                "ipu: the host's C++ compiler ended without an error and wrote no library",
                got=f"{path} ({version})",
                fix="set CXX to a compiler that works",
            )
        if run.returncode != 0:
            raise KernelError(
                "ipu: the host's C++ compiler refuses a codelet",
                got="\n".join(run.stderr.strip().splitlines()[:20]),
                expected=f"text that {version} compiles",
                fix="correct the codelet's source; it is compiled as C++17",
            )
        data = built.read_bytes()
    user_cache.store(built.name, data)
    try:
        _loaded[key] = _load(data, built.name)
    except OSError as error:
        raise ExecutionError(
            "ipu: the system does not load the library of a codelet",
            got=error,
            fix="set TMPDIR to a folder of a file system from which programs may run",
        ) from None
