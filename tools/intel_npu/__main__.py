"""Intel's NPU compiler on a plain Linux machine: the one of OpenVINO for Windows, run by Wine.

    apt-get install wine64 gcc gcc-mingw-w64-x86-64     # once, as root
    python -m tools.intel_npu setup                     # once: about 500 MB in ~/.cache/nxjax/intel-npu, or in --folder
    python -m tools.intel_npu test                      # tests that need the compiler; arguments of pytest may follow
    python -m tools.intel_npu run script.py             # a script whose target "intel-npu" has the compiler

OpenVINO for Linux comes without the compiler, and its NPU plugin loads any library of the compiler's name. `setup`
makes one (`loader.c`) in an environment of its own, so the environment in use stays as it is. The library hands each
call to a Windows process (`host.c`), which loads Intel's own compiler from the Windows wheel. Nothing here computes.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
VERSION = "2026.4.1"
WINE = ("wine64", "/usr/lib/wine/wine64")
PARTS = ("openvino_intel_npu_compiler_loader.dll", "openvino_intel_npu_compiler.dll", "tbb12.dll")
LOADER = "libopenvino_intel_npu_compiler_loader.so"


def default_folder() -> Path:
    """Where `setup` puts everything."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "nxjax" / "intel-npu"


def program(*names: str) -> str:
    """The first of these programs that is installed."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    sys.exit(f"{names[0]} is not installed: apt-get install wine64 gcc gcc-mingw-w64-x86-64")


def call(*command: str | Path) -> None:
    """Run a command; its failure ends this program."""
    done = subprocess.run([str(word) for word in command])
    if done.returncode:
        sys.exit(f"{Path(command[0]).name} ended with status {done.returncode}")


def interpreter(folder: Path) -> Path:
    """The Python of a folder that `setup` made."""
    return folder / "python" / "bin" / "python"


def setup(folder: Path) -> None:
    """Make ``folder``; it is complete or absent."""
    if interpreter(folder).exists():
        print(f"{folder} is there; remove it to make it anew")
        return
    wine, gcc, cross = program(*WINE), program("gcc"), program("x86_64-w64-mingw32-gcc")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    environment = folder / "python.part"
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", f"openvino=={VERSION}")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        wanted = [
            "--only-binary=:all:",
            "--platform=win_amd64",
            f"--python-version={sys.version_info[0]}.{sys.version_info[1]}",
        ]
        call(python, "-m", "pip", "download", "--quiet", "--no-deps", *wanted, "-d", place, f"openvino=={VERSION}")
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for part in PARTS:
                (folder / part).write_bytes(archive.read(f"openvino/libs/{part}"))
    call(cross, "-O1", "-o", folder / "host.exe", HERE / "host.c")
    places = {
        "WINE": wine,
        "PREFIX": folder / "wine",
        "HOST": folder / "host.exe",
        "COMPILER": f"Z:{folder / PARTS[0]}",
    }
    (libraries,) = environment.glob("lib/python*/site-packages/openvino/libs")
    call(
        gcc, "-O1", "-shared", "-fPIC", "-pthread", *(f'-D{name}="{place}"' for name, place in places.items()),
        "-o", libraries / LOADER, HERE / "loader.c",
    )  # fmt: skip
    environment.rename(folder / "python")
    print(f"done. OPENVINO_NPU_PYTHON={interpreter(folder)} lets any Python of nxjax find the compiler.")


def run(folder: Path, arguments: Sequence[str]) -> int:
    """Python of the environment in use, which finds the compiler of ``folder``."""
    if not interpreter(folder).exists():
        sys.exit(f"there is no {interpreter(folder)}: python -m tools.intel_npu setup")
    env = os.environ | {"OPENVINO_NPU_PYTHON": str(interpreter(folder))}
    return subprocess.call([sys.executable, *arguments], env=env, cwd=PROJECT)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.intel_npu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("what", choices=("setup", "test", "run"))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of Python, or of pytest")
    given = parser.parse_args()
    folder = given.folder.absolute()
    if given.what == "setup":
        setup(folder)
        return 0
    tests = ["-m", "pytest", "-q", *(given.arguments or ["tests/vendors/intel"])]
    return run(folder, given.arguments if given.what == "run" else tests)


if __name__ == "__main__":
    sys.exit(main())
