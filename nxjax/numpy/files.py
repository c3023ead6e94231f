"""NumPy's files: written and read by NumPy, with errors that say which is damaged. None executes anything unasked.

Before an array is made, it is checked that its header promises no more than there is, and that an archive unpacks to no
more than it may.
"""

from __future__ import annotations

import errno
import math
import os
import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import IO, Any, Final

import numpy as np
from numpy.lib.npyio import NpzFile

from nxjax.errors import InvalidFileError, MemoryLimitError, NxError, ParameterError, described
from nxjax.files import safe_io
from nxjax.numpy.creation import array
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_numpy
from nxjax.trace.core import Array

# All that NumPy, and what it reads with, say of damaged files. An OSError, such as of a missing one, stays what it is.
_DAMAGED: Final = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, MemoryError, OverflowError, SyntaxError,
    RecursionError, NotImplementedError, RuntimeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    pickle.UnpicklingError,
)  # fmt: skip


def _checked(read: Callable[[], Any], name: str) -> Any:
    try:
        return read()
    except NxError:
        raise
    except (*_DAMAGED, OSError) as error:
        # A damaged archive names places that no file has.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise InvalidFileError(
            f"load: {name} is damaged, or not of NumPy's format",
            got=f"{type(error).__name__}: {str(error)[:200]}",
            expected=".npy or .npz; pickled objects only with allow_pickle=True, of files that are trusted",
        ) from None


def _name(file: Any) -> str:
    return os.fspath(file) if isinstance(file, (str, os.PathLike)) else str(getattr(file, "name", "the file"))


# What an archive may unpack to: so much, or so many times its own size. One that is not packed takes no more than that.
_UNPACKED: Final = 2**28
_TIMES: Final = 100
_KINDS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS: Final = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
_MAGIC: Final = b"\x93NUMPY"


def _check_promise(file: Any, end: int) -> None:
    """Raise ValueError if the header of a ``.npy`` file, which is open at its start, says more than follows."""
    major, _ = np.lib.format.read_magic(file)
    if major not in (1, 2, 3):
        raise ValueError(f"version {major} of the format")
    shape, _, dtype = _HEADERS[min(major, 2)](file)  # 3 differs from 2 in how names of fields are written
    promised, nbytes = math.prod(shape) * dtype.itemsize, end - file.tell()
    if promised > nbytes and not dtype.hasobject:
        raise ValueError(f"its header says {dtype}{list(shape)}, {promised:,} bytes, and {nbytes:,} follow")


def _check_archive(found: NpzFile, name: str, limit: int | None) -> None:
    archive: Any = found.zip
    members = archive.infolist()
    if any(m.compress_type not in _KINDS for m in members):
        raise ValueError("an archive that is packed in a way that NumPy does not use")
    # Its own size, whatever its members say of theirs; they may also lie over one another.
    packed, unpacked = archive.fp.seek(0, os.SEEK_END), sum(m.file_size for m in members)
    most = max(_UNPACKED, _TIMES * packed) if limit is None else limit
    if unpacked > most:
        raise MemoryLimitError(
            f"load: {name} unpacks to more than it may take",
            got=f"{unpacked:,} bytes from {packed:,}",
            expected=f"at most {most:,}",
            fix="if the file is trusted: load(..., memory_limit=...)",
        )


def _check_file(file: Any) -> None:
    """Check an array's header before NumPy allocates memory for it. NumPy itself refuses other files."""
    if isinstance(file, (str, os.PathLike)):
        with safe_io.opened(file) as opened:
            _check_file(opened)
    elif hasattr(file, "seek") and hasattr(file, "tell"):
        start = file.tell()
        try:
            if file.read(len(_MAGIC)) == _MAGIC:
                end = file.seek(0, os.SEEK_END)
                file.seek(start)
                _check_promise(file, end)
        finally:
            file.seek(start)


class Archive(NpzFile):
    """A ``.npz`` file: NumPy's, whose members are read when they are asked for."""

    def __getitem__(self, key: str) -> Any:
        archive: Any = self.zip
        name = key if key in archive.NameToInfo else f"{key}.npy"
        if name not in archive.NameToInfo:
            raise KeyError(f"{key} is not a file in the archive: it has {', '.join(self.files[:20])}")
        return _checked(lambda: self._member(key, name), f"{key} in an archive")

    def _member(self, key: str, name: str) -> Any:
        archive: Any = self.zip
        with archive.open(name) as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                file.seek(0)
                _check_promise(file, archive.getinfo(name).file_size)
        return super().__getitem__(key)


def load(
    file: str | PathLike[str] | IO[bytes], *args: object, memory_limit: int | None = None, **kwargs: object
) -> Array | Mapping[str, Array]:
    """Arrays saved with `save` or NumPy; elements of two bytes without a dtype are bfloat16, which NumPy cannot name.

    The members of a ``.npz`` file are NumPy arrays, loaded on access.

    Args:
        file: a path, or a file that is open.
        memory_limit: bytes that a ``.npz`` file may unpack to: a small one may ask for any amount. By default 256 MiB,
            or a hundred times its size.
        args, kwargs: those of `numpy.load`.

    Raises:
        InvalidFileError: a damaged file, also on access to a member; it is a ValueError.
        MemoryLimitError: it unpacks to more than ``memory_limit``.
        OSError: it cannot be opened.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> jnp.save(path, jnp.arange(3))
    >>> jnp.load(path)
    Array([0, 1, 2], dtype=int32)
    """
    _checked(lambda: _check_file(file), _name(file))
    found = _checked(lambda: np.load(file, *args, **kwargs), _name(file))
    if type(found) is NpzFile:
        try:
            _checked(lambda: _check_archive(found, _name(file), memory_limit), _name(file))
        except BaseException:
            found.close()
            raise
        found.__class__ = Archive
    if not isinstance(found, np.ndarray):
        return found
    return array(found.view(dtypes.bfloat16) if found.dtype == "V2" else found)


def save(file: str | PathLike[str] | IO[bytes], arr: ArrayLike | Sequence[Any], allow_pickle: bool = True) -> None:
    """Write one array in NumPy's ``.npy`` format.

    A name without ``.npy`` gets that ending; ``file`` may be an open binary file.

    Raises:
        ParameterError: no file is given first, or a file or a value of several arrays.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.eye(2))
    >>> _ = file.seek(0)
    >>> jnp.load(file).shape
    (2, 2)
    """
    if not isinstance(file, (str, os.PathLike)) and not hasattr(file, "write"):
        raise ParameterError(
            "save: no file", got=described(file), expected="a path or an open file", fix="save(file, x)"
        )
    if isinstance(arr, Mapping) or str(file).endswith((".npz", ".safetensors", ".pt", ".pkl")):
        raise ParameterError(
            "save: one array in a .npy file",
            got=f"{file}, {described(arr)}",
            expected="a .npy file and an array",
            fix="several arrays: savez(file, **arrays); a tree: nx.checkpoints.save(folder, tree)",
        )
    np.save(file, as_numpy(arr, "save"), allow_pickle=allow_pickle)


def savez(
    file: str | PathLike[str] | IO[bytes], *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike
) -> None:
    """Write several arrays in NumPy's ``.npz`` format, under their keywords, or ``arr_0``, ``arr_1``, ...

    Objects of Python's are pickled, unless ``allow_pickle`` is False.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.savez(file, jnp.arange(2), w=jnp.ones(3))
    >>> _ = file.seek(0)
    >>> jnp.load(file).files
    ['w', 'arr_0']
    """
    unnamed, named = [as_numpy(a, "savez") for a in args], {k: as_numpy(v, "savez") for k, v in kwds.items()}
    if not allow_pickle and any(a.dtype.hasobject for a in (*unnamed, *named.values())):
        raise ValueError("Object arrays cannot be saved when allow_pickle=False")
    np.savez(file, *unnamed, **named)
