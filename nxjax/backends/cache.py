"""The on-disk executable cache: bytes by content hash. Knows nothing of what they mean; `user_cache` has the files."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from nxjax.config.digest import digest
from nxjax.files import user_cache

_SUFFIX: Final = ".nxc"


def key_of(*parts: str | bytes) -> str:
    """A file name for content described by ``parts``."""
    found = digest()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def load(key: str) -> bytes | None:
    """The payload stored under ``key``, or None."""
    return user_cache.load(key + _SUFFIX)


def store(key: str, payload: bytes) -> None:
    """Keep ``payload`` under ``key``. A folder that cannot be written to is no error: nothing is kept."""
    user_cache.store(key + _SUFFIX, payload)


def touch(key: str) -> bool:
    """Whether something is stored under ``key``, which counts as used now."""
    return user_cache.touch(key + _SUFFIX)


def discard(key: str) -> None:
    """Drop what is stored under ``key``."""
    user_cache.discard(key + _SUFFIX)


def size() -> tuple[int, int]:
    """Number of files and their bytes."""
    found = user_cache.entries()
    return len(found), sum(e.nbytes for e in found)


def clear() -> int:
    """Remove every file; gives how many there were."""
    removed = 0
    for entry in user_cache.entries():
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
            removed += 1
    return removed
