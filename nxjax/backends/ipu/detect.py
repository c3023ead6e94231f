"""Whether this machine has IPUs and the tools that drive them, and what was looked for. Loads nothing of a vendor."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from nxjax.backends.tools import ask, read

# What popc makes of codelets.
CODELETS: Final = "codelets.gp"
_SMALLEST: Final = """#include <poplar/Vertex.hpp>

class Smallest : public poplar::Vertex {
public:
  poplar::Output<float> y;
  bool compute() {
    *y = 1.0f;
    return true;
  }
};
"""
# What no compiler takes.
_BROKEN: Final = "#error a compiler refuses this\n"
_LIBRARIES: Final = ("/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64")


@final
@dataclass(frozen=True)
class Hardware:
    """What a machine has.

    Attributes:
        ipus: how many IPUs its driver, or Graphcore's own tool, shows. Nothing has run on them.
        sdk: path of the Poplar SDK's compiler, which has answered; empty where none does.
        missing: what was looked for and not found, in words.
    """

    ipus: int
    sdk: str
    missing: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether it is worth trying to compile for, and run on, an IPU here."""
        return self.ipus > 0 and bool(self.sdk)

    @property
    def reason(self) -> str:
        """What is here, or what is missing."""
        here = [f"{self.ipus} IPU{'s' * (self.ipus > 1)} listed"] if self.ipus else []
        here += [f"Poplar SDK at {self.sdk}"] if self.sdk else []
        return "; ".join([*here, *self.missing])


def hardware() -> Hardware:
    """What this machine has now."""
    popc, reason = compiler()
    info = shutil.which("gc-info") or ""
    nodes = [*glob.glob("/dev/ipu[0-9]*"), *glob.glob("/dev/ipu*_ex")]
    missing: list[str] = []
    if not nodes:
        missing.append("no device /dev/ipu*")
    if not info:
        missing.append("no gc-info on PATH")
    if not popc:
        missing.append(f"no Poplar SDK ({reason})")
    if not _library("libgcda.so"):
        missing.append("no library libgcda")
    count = max(len({n.split("_")[0] for n in nodes}), _listed(os.path.abspath(info)) if info else 0)
    return Hardware(count, os.path.dirname(popc), tuple(missing))


def compiler() -> tuple[str, str]:
    """Path of Graphcore's popc, which has compiled a codelet, and its version; ("", reason) where none has."""
    path = shutil.which("popc")
    if path is None:
        return "", "popc is not on PATH; source the SDK's enable.sh first, which sets POPLAR_SDK_ENABLED"
    path = os.path.abspath(path)
    try:
        status = os.stat(path)
    except OSError as error:
        return "", f"popc at {path}: {error}"
    made, said = _tried(path, status.st_mtime_ns, status.st_size)
    return (path, said) if made else ("", said)


@lru_cache(8)
def _tried(path: str, changed: int, size: int) -> tuple[bytes, str]:
    """What a compiler makes of the smallest codelet, and its version, or why it is none; asked again when it changes.

    The format of what it writes is not published. That it compiles shows in what it refuses, and in that it does not
    write the same of different sources.
    """
    made, said = _compiled(path, "ipu2", {"codelet_0.cpp": _SMALLEST}, 60)
    if not made:
        return b"", f"popc at {path} does not work: {said}"
    if _compiled(path, "ipu2", {"codelet_0.cpp": _BROKEN}, 60)[0]:
        return b"", f"popc at {path} does not work: it compiles a source that is an error"
    lines = _output([path, "--version"], 60)
    return made, next((line.strip() for line in lines if line.strip()), "popc of a version that it does not say")


def codelets_compiled(popc: str, chip: str, sources: Mapping[str, str], timeout: float) -> tuple[bool, str]:
    """Whether popc, which `compiler` found, makes codelets of sources; how many bytes, or what is wrong."""
    status = os.stat(popc)
    made, said = _compiled(popc, chip, sources, timeout)
    if made and made == _tried(popc, status.st_mtime_ns, status.st_size)[0]:
        return False, f"it ended with 0 and wrote the same {CODELETS} as for another source"
    if made and _compiled(popc, chip, {name: text + _BROKEN for name, text in sources.items()}, timeout)[0]:
        return False, f"it ended with 0 and writes {CODELETS} of a source that is an error too"
    return bool(made), said


def _compiled(popc: str, chip: str, sources: Mapping[str, str], timeout: float) -> tuple[bytes, str]:
    """Run popc on sources in a folder of its own: what it made of them, and how many bytes; or nothing, and why."""
    with tempfile.TemporaryDirectory(prefix="nxjax-popc-") as folder:
        for name, text in sources.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        command = [popc, f"--target={chip}", "-O3", *sorted(sources), "-o", CODELETS]
        done = ask(command, folder, timeout)
        if done.trouble:
            return b"", f"{done.trouble}: {done.said.strip()[-500:] or 'it says nothing'}"
        try:
            made = read(os.path.join(folder, CODELETS))
        except OSError as error:
            return b"", f"it ended with 0 and wrote no {CODELETS}: {error}"
    if not made:
        return b"", f"it ended with 0 and wrote an empty {CODELETS}"
    if any(text.encode() in made for text in sources.values()):
        return b"", f"it ended with 0, and {CODELETS} holds the source itself"
    return made, f"{len(made):,} bytes"


def _output(command: Sequence[str], timeout: float) -> list[str]:
    """Lines that a command prints, run in an empty folder, in which it may leave what it likes; none where it fails."""
    with tempfile.TemporaryDirectory(prefix="nxjax-popc-") as folder:
        done = ask(command, folder, timeout)
    return [] if done.trouble else done.out.splitlines()


def _listed(tool: str) -> int:
    """IPUs that Graphcore's tool lists; 0 where it fails."""
    # One line per device, "-+- Id: [0], target: [PCIe], ..."; groups of several repeat them with a larger number.
    lines = [line for line in _output([tool, "--list-devices"], 20) if "Id:" in line]
    return sum("Multi IPU" not in line for line in lines)


def _library(name: str) -> bool:
    """Whether a shared library lies where the loader looks first."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(glob.glob(os.path.join(f, name + "*")) for f in (*filter(None, folders), *_LIBRARIES))


def without_hardware(found: Hardware) -> str:
    """Why results are the model's, in one line."""
    absent: Sequence[str] = found.missing
    return "a model of the chip runs it here" + (f": {', '.join(absent)}" if absent else "")
