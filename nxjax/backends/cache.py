"""The on-disk executable cache: bytes by content hash. Knows nothing of what the bytes mean.

One file per key under ``config.cache_dir``, written atomically, so that processes share it without locks. A file that
is cut short, altered or renamed is dropped: a hash of its name and payload stands in front of it. The least recently
used files go when the folder outgrows its bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nxjax.config import config

_SUFFIX: Final = ".nxc"
_BOUND: Final = 512 * 2**20  # bytes
# Bytes that this process has stored since it last looked at how large the folder is.
_stored = 0


def key_of(*parts: str | bytes) -> str:
    """A file name for content described by ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _digest(key: str, payload: bytes) -> bytes:
    """Of the content under its own name: a file that was renamed, or copied over another, is not believed either."""
    return hashlib.sha256(key.encode() + b"\0" + payload).digest()


def _folder() -> Path | None:
    return Path(config.cache_dir) if config.cache_dir else None


def load(key: str) -> bytes | None:
    """The payload stored under ``key``, or None."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / (key + _SUFFIX)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[:32], data[32:]
    if _digest(key, payload) != digest:
        discard(key)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return payload


def store(key: str, payload: bytes) -> None:
    """Keep ``payload`` under ``key``. A folder that cannot be written to is no error: nothing is kept."""
    folder = _folder()
    if folder is None:
        return
    import tempfile  # takes longer to import than all else that is needed to load

    temporary = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(key, payload) + payload)
        os.replace(temporary, folder / (key + _SUFFIX))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return
    global _stored
    _stored += 32 + len(payload)
    if _stored > _BOUND // 16:  # looking at all files takes longer than writing one
        _stored = 0
        _prune(folder)


def discard(key: str) -> None:
    """Drop what is stored under ``key``."""
    folder = _folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / (key + _SUFFIX)).unlink()


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    with contextlib.suppress(OSError):
        for path in folder.glob("*" + _SUFFIX):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path


def _prune(folder: Path) -> None:
    entries = sorted(_entries(folder))
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= _BOUND:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


def size() -> tuple[int, int]:
    """Number of files and their bytes."""
    folder = _folder()
    sizes = [n for _, n, _ in _entries(folder)] if folder is not None else []
    return len(sizes), sum(sizes)


def clear() -> int:
    """Remove every file; gives how many there were."""
    folder = _folder()
    removed = 0
    for _, _, path in list(_entries(folder)) if folder is not None else []:
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed
