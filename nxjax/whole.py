"""Files that are whole or not there: what is written replaces what was, once all of it is on disk."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put ``data`` at ``path``; a failure, or a crash at any moment, leaves what was there before.

    Raises:
        OSError: the disk is full, the folder is not there, or the like.

    >>> import tempfile
    >>> place = os.path.join(tempfile.mkdtemp(), "numbers.bin")
    >>> write(place, b"one"), write(place, b"two"), Path(place).read_bytes()
    (None, None, b'two')
    """
    target = Path(path)
    # Not of `tempfile`, whose files are readable by their owner only.
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
