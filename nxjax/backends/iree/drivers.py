"""Which Vulkan drivers this machine has installed, and whether a GPU was seen; by files alone, nothing is loaded.

The folders and variables are those of the Vulkan loader ("Driver interface to the Vulkan loader", Khronos).
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = os.path.join("vulkan", "icd.d")
# Device files of GPUs: any driver of Linux's DRM, NVIDIA's own, Windows' GPUs inside WSL.
_GPU_FILES: Final = ("/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/dxg")


class Driver(NamedTuple):
    """An installed driver: its manifest, and the library that the manifest names."""

    manifest: str
    library: str


def folders() -> list[str]:
    """Where the loader looks for manifests, in its order."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    configs = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    shared = (os.environ.get("XDG_DATA_DIRS") or os.pathsep.join(("/usr/local/share", "/usr/share"))).split(os.pathsep)
    roots = (config, *configs, "/usr/local/etc", "/etc", data, *shared)
    return list(dict.fromkeys(os.path.join(r, _FOLDER) for r in roots if r))


def _listed(variable: str) -> list[str]:
    """Manifests that a variable names: files, or folders of them."""
    found: list[str] = []
    for part in os.environ.get(variable, "").split(os.pathsep):
        if part:
            found += sorted(glob.glob(os.path.join(part, "*.json"))) if os.path.isdir(part) else [part]
    return found


def _manifests() -> Iterator[str]:
    only = _listed("VK_DRIVER_FILES") or _listed("VK_ICD_FILENAMES")
    yield from only or _listed("VK_ADD_DRIVER_FILES")
    if not only:
        for folder in folders():
            yield from sorted(glob.glob(os.path.join(folder, "*.json")))


def installed() -> list[Driver]:
    """Drivers by their manifests; one that cannot be read is left out, as the loader does.

    >>> all(d.manifest.endswith(".json") for d in installed())
    True
    """
    found: list[Driver] = []
    for path in dict.fromkeys(_manifests()):
        try:
            library = json.loads(Path(path).read_text())["ICD"]["library_path"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append(Driver(path, str(library)))
    return found


def can_be_listed() -> bool:
    """Whether drivers are found by files here: Windows keeps them in its registry, macOS brings none."""
    return sys.platform not in ("win32", "darwin")


def gpu_seen() -> bool:
    """Whether the system shows a GPU's device file; True where it has no such files."""
    return not can_be_listed() or any(glob.glob(pattern) for pattern in _GPU_FILES)


def fingerprint() -> str:
    """A text that changes when drivers are installed, removed or updated, and with every start of the machine."""
    parts: list[str] = []
    for d in installed():
        try:
            status = os.stat(d.manifest)
            parts.append(f"{d.manifest}:{d.library}:{status.st_mtime_ns}:{status.st_size}")
        except OSError:
            parts.append(d.manifest)
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    return "\n".join(parts)
