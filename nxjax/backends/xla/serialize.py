"""Executables as bytes, for the on-disk cache.

The header names jaxlib's version and the machine's CPU, so bytes of another one are compiled anew, never loaded.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from typing import Any

from nxjax.backends import cache
from nxjax.backends.xla.client import client, jaxlib_version


@lru_cache(1)
def fingerprint() -> str:
    """What the bytes depend on besides the program: jaxlib and the CPU's features."""
    features = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"nxjax-xla-1|{jaxlib_version()}|{platform.machine()}|{cache.key_of(features)}"


def dump(executable: Any) -> bytes:
    """The bytes of a loaded executable."""
    header = fingerprint().encode()
    return len(header).to_bytes(4, "little") + header + client().raw.serialize_executable(executable)


def load(data: bytes) -> Any | None:
    """The executable, or None if the bytes are of another version or machine, or do not load."""
    size = int.from_bytes(data[:4], "little")
    if data[4 : 4 + size] != fingerprint().encode():
        return None
    c = client()
    try:
        return c.raw.deserialize_executable(data[4 + size :], c.devices, c.xla_client.CompileOptions())
    except Exception:
        # Whatever jaxlib says of bytes it cannot read, the answer is to compile.
        return None
