"""The few operations on files that checkpoints are made of. One object does them all, so that a test can make any fail.

Knows names and bytes. What has been synced survives a crash; a rename is all or nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, final


class File:
    """A file being written."""

    def __init__(self, path: Path) -> None:
        self.raw = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by `close`

    def write(self, data: Any) -> None:
        """All of ``data`` at the end of the file."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self.raw.write(view) or 0 :]

    def write_at(self, position: int, data: bytes) -> None:
        """Over what was written there before."""
        os.pwrite(self.raw.fileno(), data, position)

    def sync(self) -> None:
        """Until what was written is on the disk."""
        os.fsync(self.raw.fileno())

    def close(self) -> None:
        self.raw.close()


class Disk:
    """Operations on the file system."""

    def create(self, path: Path) -> File:
        return File(path)

    def make_folder(self, path: Path, parents: bool = False) -> None:
        path.mkdir(parents=parents, exist_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Until the names in a folder are on the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove_folder(self, path: Path) -> None:
        """Of a link to a folder elsewhere, the link alone."""
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)


@final
class _Current:
    """The disk that everything goes through."""

    def __init__(self) -> None:
        self.disk = Disk()


current = _Current()


def disk() -> Disk:
    return current.disk
