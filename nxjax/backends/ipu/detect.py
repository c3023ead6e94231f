"""Whether this machine has IPUs and the tools that drive them, and what was looked for. Loads nothing of a vendor."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

_LIBRARIES: Final = ("/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64")


@final
@dataclass(frozen=True)
class Hardware:
    """What a machine has.

    Attributes:
        ipus: how many IPUs its driver, or Graphcore's own tool, shows.
        sdk: path of the Poplar SDK, or of its compiler; empty where there is none.
        missing: what was looked for and not found, in words.
    """

    ipus: int
    sdk: str
    missing: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether programs could be compiled for, and run on, an IPU here."""
        return self.ipus > 0 and bool(self.sdk)

    @property
    def reason(self) -> str:
        """What is here, or what is missing."""
        here = [f"{self.ipus} IPU{'s' * (self.ipus > 1)}"] if self.ipus else []
        here += [f"Poplar SDK at {self.sdk}"] if self.sdk else []
        return "; ".join([*here, *self.missing])


def hardware() -> Hardware:
    """What this machine has now."""
    sdk = os.environ.get("POPLAR_SDK_ENABLED", "")
    popc = shutil.which("popc") or ""
    info = shutil.which("gc-info") or ""
    nodes = [*glob.glob("/dev/ipu[0-9]*"), *glob.glob("/dev/ipu*_ex")]
    missing: list[str] = []
    if not nodes:
        missing.append("no device /dev/ipu*")
    if not info:
        missing.append("no gc-info on PATH")
    if not (sdk or popc):
        missing.append("no Poplar SDK (POPLAR_SDK_ENABLED is not set, no popc on PATH)")
    if not _library("libgcda.so"):
        missing.append("no library libgcda")
    count = max(len({n.split("_")[0] for n in nodes}), _listed(info) if info else 0)
    return Hardware(count, sdk or os.path.dirname(popc), tuple(missing))


def _listed(tool: str) -> int:
    """IPUs that Graphcore's tool lists; 0 where it fails."""
    try:
        done = subprocess.run([tool, "--list-devices"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # One line per device, "-+- Id: [0], target: [PCIe], ..."; groups of several repeat them with a larger number.
    lines = [line for line in done.stdout.splitlines() if "Id:" in line]
    return sum("Multi IPU" not in line for line in lines) if done.returncode == 0 else 0


def _library(name: str) -> bool:
    """Whether a shared library lies where the loader looks first."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(glob.glob(os.path.join(f, name + "*")) for f in (*filter(None, folders), *_LIBRARIES))


def without_hardware(found: Hardware) -> str:
    """Why results are the model's, in one line."""
    absent: Sequence[str] = found.missing
    return "a model of the chip runs it here" + (f": {', '.join(absent)}" if absent else "")
