"""What one process of a user leaves on disk for the next, in ``config.cache_dir``. Knows nothing of what it means.

It may be machine code, so it is believed only where nobody else can have written it: the folder is the user's own and
closed to all others, and so is each file, which is opened without following links and without waiting. In front of
that stands no secret: who can write here is the user, and could read one, too. A hash of its name and content ends
each file, so one that is cut short, altered or renamed is dropped. Files are written beside their place and moved into
it, so that processes share the folder without locks. The least recently used go when it outgrows
``config.cache_bytes``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import warnings
from collections.abc import Iterator
from typing import Final

from nxjax.config import config
from nxjax.config.digest import digest
from nxjax.config.named_tuple import NamedTuple
from nxjax.files import safe_io

_DIGEST: Final = 32  # bytes
# No file is larger: reading one must not take the memory of the process.
_LARGEST: Final = 2**28
_UNFINISHED: Final = ".part"
# Patterns are compiled where names are looked at: most processes only read.
# <name>.<process>-<random>.part, and names of former releases.
_WRITER: Final = r".*\.([0-9]+)-[0-9a-f]+\.part"
_HOUR: Final = 3600.0
# Which names of the folder are files that are kept, and what else of the cache's may lie there.
_KEPT: Final = r"\w+\.(nxc|so)"
_OURS: Final = r"\w+\.(nxc|so)|.*\.part|\.swept-[0-9-]+|codelets|differential"
# Looking at all files takes longer than writing one: processes leave a note that it was done, where there are many,
# and do it again after a minute, or after they have written so large a part of the limit.
_MANY: Final = 64
_PAUSE: Final = 60.0
_PART: Final = 16
# Neither a link nor a pipe is opened in a file's place. Not every system has all of these.
_FLAGS: Final = sum(getattr(os, f"O_{name}", 0) for name in ("NONBLOCK", "NOFOLLOW", "CLOEXEC", "BINARY"))
# What the folder of a path and a user was found to be, and what was said of it.
_known: dict[tuple[str, int], tuple[int, ...]] = {}
_warned: set[str] = set()
# Per folder: bytes that this process has stored since it last looked at all files.
_stored: dict[str, int] = {}


def load(name: str) -> bytes | None:
    """What is kept under ``name``, or None."""
    folder = _folder()
    if folder is None:
        return None
    path = os.path.join(folder, name)
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
            discard(name)
        return None
    try:
        data = _content(handle)
        if data is not None:
            payload = memoryview(data)[:-_DIGEST]
            if _digest(name, payload) == data[-_DIGEST:]:
                with contextlib.suppress(OSError):
                    os.utime(handle if os.utime in os.supports_fd else path)
                return bytes(payload)
    except (OSError, MemoryError):
        return None
    finally:
        os.close(handle)
    discard(name)
    return None


def store(name: str, payload: bytes) -> str | None:
    """Keep ``payload`` under ``name``; where it lies, or None: a folder that cannot be written to is no error."""
    nbytes = len(payload) + _DIGEST
    folder = _folder(make=True) if nbytes <= min(_limit(), _LARGEST) else None
    if folder is None:
        return None
    path = os.path.join(folder, name)
    temporary = f"{path}.{os.getpid()}-{os.urandom(8).hex()}{_UNFINISHED}"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        try:
            with open(handle, "wb", buffering=0) as file:
                for part in (payload, _digest(name, payload)):
                    view = memoryview(part)
                    while view:
                        view = view[file.write(view) or 0 :]
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError:
        return None
    first = folder not in _stored
    _stored[folder] = _stored.get(folder, 0) + nbytes
    if (first and not _swept_lately(folder)) or _stored[folder] > _limit() // _PART:
        _stored[folder] = 0
        _sweep(folder, path)
    return path


def touch(name: str) -> bool:
    """Whether something lies under ``name``, which counts as used now."""
    folder = _folder()
    try:
        if folder is not None:
            os.utime(os.path.join(folder, name))
        return folder is not None
    except OSError:
        return False


def discard(name: str) -> None:
    """Drop what is kept under ``name``."""
    folder = _folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


class CacheEntry(NamedTuple):
    """A file that is kept, by when it was last used."""

    used: float
    nbytes: int
    path: str


def entries() -> list[CacheEntry]:
    """All that is kept."""
    folder = _folder()
    return [] if folder is None else list(_entries(folder))


def _limit() -> int:
    """Bytes that all files may take."""
    return config.cache_bytes if config.cache_bytes >= 0 else 2**62


def _digest(name: str, payload: bytes | memoryview) -> bytes:
    """Of the content under its own name: a file that was renamed, or copied over another, is not believed either."""
    found = digest(name.encode() + b"\0")
    found.update(payload)
    return found.digest()


def _content(handle: int) -> bytes | None:
    """All bytes of an open file, if nobody else can have written them."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or not _DIGEST <= status.st_size <= _LARGEST:
        return None
    if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        return None
    data = os.read(handle, status.st_size)
    while len(data) < status.st_size:
        more = os.read(handle, status.st_size - len(data))
        if not more:
            return None
        data += more
    return data


# --- the folder ---


def _folder(make: bool = False) -> str | None:
    """The folder, or None where there is none to be used. Looked at each time, as it may be replaced meanwhile."""
    path = config.cache_dir
    if not path or not config.cache_bytes:
        return None
    user = os.geteuid() if os.name == "posix" else 0
    try:
        status = os.stat(path)
        if _known.get((path, user)) != (status.st_dev, status.st_ino, status.st_mode, status.st_uid):
            raise FileNotFoundError
    except OSError:
        return _looked_at(path, user, make)
    return path


def _looked_at(path: str, user: int, make: bool) -> str | None:
    """The folder at ``path``, if it is fit to be used or can be made; one warning if others could meddle with it."""
    why = "" if os.path.isabs(path) else "the path is relative"
    try:
        missing: list[str] = []
        there = path
        while not why and not os.path.lexists(there):
            missing.append(there)
            there = os.path.dirname(there)
        if missing and not make:
            return None
        why = why or _unsafe(there, user)
        for folder in () if why else reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.mkdir(folder, 0o700)  # closed to others whatever the process's umask is
        why = why or _open_to_others(path, user)
        if not why:
            status = os.stat(path)
            _known[path, user] = (status.st_dev, status.st_ino, status.st_mode, status.st_uid)
            return path
    except OSError:
        return None
    if path not in _warned:
        _warned.add(path)
        warnings.warn(
            f"nxjax keeps no machine code on disk, and compiles it in each process: cache_dir {path!r}: {why}; "
            "set NXJAX_CACHE_DIR to an absolute path of a folder of your own, which others may not open (chmod 700)",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _unsafe(path: str, user: int) -> str:
    """Why somebody else could put another folder at ``path``; empty if nobody can.

    Each folder on the way, through all links, belongs to the user or the system, and others cannot rename what is in
    it: they may write to it only where it is sticky, as ``/tmp`` is. A group of the user's own is no other.
    """
    if os.name != "posix":
        return ""
    trusted = {0, user, os.stat("/").st_uid}
    at, left, links = "/", path.split("/")[::-1], 0
    while left:
        name = left.pop()
        if name == "..":
            at = os.path.dirname(at)
        if name in ("", ".", ".."):
            continue
        here = os.path.join(at, name)
        status = os.lstat(here)
        if status.st_uid not in trusted:
            return f"{here} belongs to another user"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > 40:
                return "its links have no end"
            target = os.readlink(here)
            left += target.split("/")[::-1]
            at = "/" if target.startswith("/") else at
            continue
        others = status.st_mode & (0o002 if status.st_gid == os.getegid() else 0o022)
        if others and not status.st_mode & stat.S_ISVTX:
            return f"others may write to {here}"
        at = here
    return ""


def _open_to_others(path: str, user: int) -> str:
    """Why the folder itself cannot be used; one that others may only read is closed, if it is the cache's alone."""
    status = os.stat(path)
    if os.name != "posix":
        return ""
    if status.st_uid != user:
        return f"it belongs to user {status.st_uid}, and this process to user {user}"
    if status.st_mode & 0o022:
        return "others may write to it"
    if status.st_mode & 0o055:
        if not all(re.fullmatch(_OURS, name) for name in os.listdir(path)):
            return "others may read it, and there are other files in it"
        os.chmod(path, 0o700)
    return ""


# --- its size ---


def _entries(folder: str) -> Iterator[CacheEntry]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if re.fullmatch(_KEPT, entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield CacheEntry(status.st_mtime, status.st_size, os.path.join(folder, entry.name))


def _note(folder: str) -> str:
    """The file that says when the folder was last looked through, for this limit."""
    return os.path.join(folder, f".swept-{config.cache_bytes}")


def _swept_lately(folder: str) -> bool:
    try:
        return abs(time.time() - os.lstat(_note(folder)).st_mtime) < _PAUSE
    except OSError:
        return False


def _sweep(folder: str, newest: str) -> None:
    """Remove the least recently used beyond the limit, but ``newest``, and what writers that died have left."""
    found = sorted(_entries(folder))
    total, limit = sum(e.nbytes for e in found), _limit()
    for entry in found if total > limit else ():
        # A little more than need be, so that the next files need no other sweep.
        if total <= limit - limit // _PART:
            break
        if entry.path != newest:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                total -= entry.nbytes
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(_UNFINISHED) and _abandoned(os.path.join(folder, name)):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
        if len(found) >= _MANY:
            for name in (n for n in os.listdir(folder) if n.startswith(".swept-")):
                os.unlink(os.path.join(folder, name))
            os.close(os.open(_note(folder), os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600))


def _abandoned(path: str) -> bool:
    """Whether the writer of an unfinished file is gone. Removing one of a process that is elsewhere does no harm."""
    writer = re.fullmatch(_WRITER, os.path.basename(path))
    if writer is not None and safe_io.is_dead(int(writer[1])):
        return True
    with contextlib.suppress(OSError):
        return time.time() - os.lstat(path).st_mtime > _HOUR
    return False
