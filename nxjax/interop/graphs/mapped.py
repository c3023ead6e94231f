"""Files of weights in memory: nothing is read before it is used, and nothing is copied.

A mapped file must stay as it is while its tensors are in use. A writer that replaces a file, as nxjax does, leaves the
mapped one alone.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, final

import numpy as np

from nxjax.files import safe_io
from nxjax.trace.array import UNCHANGING

NDArray = np.ndarray[Any, Any]


@final
class MappedFile(mmap.mmap):
    """The bytes of a file, which nothing in this process can write to."""


UNCHANGING.add(MappedFile)


def mapped(path: Path) -> NDArray:
    """The bytes of a file, uint8; arrays that are views of them enter nxjax without a copy.

    Raises:
        InvalidFileError: a pipe, a device or the like.
        OSError: no such file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "numbers.bin"
    >>> _ = file.write_bytes(b"123")
    >>> mapped(file).tolist()
    [49, 50, 51]
    """
    with safe_io.opened(path) as f:
        # A file without bytes cannot be mapped.
        held: Any = MappedFile(f.fileno(), 0, access=mmap.ACCESS_READ) if f.seek(0, 2) else b""
    return np.frombuffer(held, np.uint8)
