"""Executables as bytes, for the on-disk cache.

The header names jaxlib's version, the flags and the machine, so bytes of another one are compiled anew, never loaded.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from typing import Any

from nxjax.backends import cache
from nxjax.backends.base import ProgramPlacement
from nxjax.backends.xla.client import Client, client, client_for, jaxlib_version
from nxjax.backends.xla.executable import compile_options


@lru_cache(1)
def _machine() -> str:
    features = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}|{cache.key_of(features)}"


def _flags() -> str:
    """XLA's flags in the environment, without the one that sets the number of devices."""
    return " ".join(f for f in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in f)


def fingerprint(place: str = "cpu") -> str:
    """What the bytes depend on besides the program: jaxlib, its flags, and the CPU's features or the chip's name."""
    if place == "cpu":
        return f"nxjax-xla-2|{jaxlib_version()}|{_machine()}|{_flags()}"
    raw = client_for(place).raw
    return f"nxjax-xla-2|{jaxlib_version()}|{raw.platform_version}|{raw.local_devices()[0].device_kind}|{_flags()}"


def dump(executable: Any, c: Client | None = None) -> bytes:
    """The bytes of a loaded executable."""
    c = c or client()
    header = fingerprint(c.platform).encode()
    return len(header).to_bytes(4, "little") + header + c.raw.serialize_executable(executable)


def load(data: bytes, c: Client | None = None, placement: ProgramPlacement | None = None) -> Any | None:
    """The executable, or None if the bytes are of another version or machine, or do not load."""
    c = c or client()
    size = int.from_bytes(data[:4], "little")
    if data[4 : 4 + size] != fingerprint(c.platform).encode():
        return None
    devices = c.devices if placement is None else c.device_list(placement.devices)
    try:
        return c.raw.deserialize_executable(data[4 + size :], devices, compile_options(c, placement))
    except Exception:
        # Whatever jaxlib says of bytes it cannot read, the answer is to compile.
        return None
