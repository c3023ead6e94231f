"""Files of users: written whole or not at all, and read without trust in what lies at their place.

What is written replaces what was, once all of it is on disk. What is read is a file that ends: no pipe that keeps the
process waiting, and no more bytes than the reader says.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Generator
from typing import Any, BinaryIO, Final

from nxjax.errors import InvalidFileError

# No text that describes something (a model's settings, a tree, a table of times) is larger.
TEXT: Final = 2**28
_NESTED: Final = 900  # lists and objects in one another
_STRING: Final = rb'(?s)"(?:[^"\\]|\\.)*"'
_MARKS: Final = rb"[\[\]{}]"


def opened(path: str | os.PathLike[str], folder: int | None = None) -> BinaryIO:
    """A file to read from, which is one; a link to one serves, too.

    Args:
        folder: an open folder that ``path`` is in, whatever its name is meanwhile.

    Raises:
        InvalidFileError: it is a pipe, a device or the like.
        OSError: it is not there, a folder, or not to be read.

    >>> with opened(__file__) as file:
    ...     len(file.read(3))
    3
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode) and not stat.S_ISDIR(os.fstat(handle).st_mode):
            raise InvalidFileError(f"{os.fspath(path)}: not a file", got="a pipe, a device or a socket")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: str | os.PathLike[str], most: int, folder: int | None = None) -> bytes:
    """All bytes of a file.

    Args:
        most: how many it may have.
        folder: see `opened`.

    Raises:
        InvalidFileError: it has more, or is no file.
        OSError: it is not there, or not to be read.

    >>> len(read(__file__, 100_000)) < 100_000
    True
    """
    with opened(path, folder) as file:
        nbytes = os.fstat(file.fileno()).st_size
        if nbytes > most:
            raise InvalidFileError(
                f"{os.fspath(path)}: larger than a file of its kind",
                got=f"{nbytes:,} bytes",
                expected=f"at most {most:,}",
            )
        return file.read(nbytes)  # no more, should it grow meanwhile: room for all is made before


def described(path: str | os.PathLike[str], folder: int | None = None) -> Any:
    """What a file of JSON says.

    Args:
        folder: see `opened`.

    Raises:
        InvalidFileError: it is too large, no file, or no JSON.
        OSError: it is not there, or not to be read.

    >>> import tempfile
    >>> place = os.path.join(tempfile.mkdtemp(), "settings.json")
    >>> write(place, b'{"layers": 2}'), described(place)
    (None, {'layers': 2})
    """
    try:
        return parsed(read(path, TEXT, folder))
    except ValueError as error:
        if isinstance(error, InvalidFileError):
            raise
        raise InvalidFileError(f"{os.fspath(path)}: not a file of JSON", got=str(error)[:200]) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object that has a key twice")
    return found


def parsed(text: str | bytes, unique: bool = False) -> Any:
    """A JSON text of bounded depth; with ``unique``, no object may have a key twice.

    Python's reader runs over the end of the stack where programs that are nested deep have raised the recursion limit.

    Raises:
        ValueError: it is not JSON, nested too deep, or has a key twice.

    >>> parsed("[1, [2]]")
    [1, [2]]
    """
    data = text.encode() if isinstance(text, str) else bytes(text)
    if data.count(b"[") + data.count(b"{") > _NESTED:
        depth = 0
        for mark in re.finditer(_MARKS, re.sub(_STRING, b"", data)):
            depth += 1 if mark[0] in b"[{" else -1
            if depth > _NESTED:
                raise ValueError(f"nested more than {_NESTED} deep")
    import json

    return json.loads(data, object_pairs_hook=_unique if unique else None)


def memory() -> int:
    """Bytes of memory that this machine has: no file is read whole that has more."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**36


def is_dead(process: int) -> bool:
    """Whether no process of this machine has that number; False where nobody tells."""
    if os.name != "posix":  # elsewhere the question would end it
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[BinaryIO, None, None]:
    """A file to write to, which is at ``path`` afterwards; a failure, or a crash, leaves what was there before.

    Raises:
        OSError: the disk is full, the folder is not there, or the like.

    >>> import tempfile
    >>> place = os.path.join(tempfile.mkdtemp(), "numbers.bin")
    >>> with replacing(place) as file:
    ...     _ = file.write(b"one")
    >>> read(place, 10)
    b'one'
    """
    folder, name = os.path.split(path)
    # Not of `tempfile`, whose files are readable by their owner only.
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put ``data`` at ``path``; a failure, or a crash at any moment, leaves what was there before.

    Raises:
        OSError: the disk is full, the folder is not there, or the like.

    >>> import tempfile
    >>> place = os.path.join(tempfile.mkdtemp(), "numbers.bin")
    >>> write(place, b"one"), write(place, b"two"), read(place, 10)
    (None, None, b'two')
    """
    with replacing(path) as file:
        file.write(data)
