"""NumPy's files: written and read by NumPy, with errors that say which is damaged. None executes anything unasked.

A header that promises more than the file holds takes no memory: NumPy asks the system for room that is never touched.
"""

from __future__ import annotations

import os
import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.lib.npyio import NpzFile

from nxjax.errors import InvalidFileError

# All that NumPy, and what it reads with, say of damaged files. An OSError, such as of a missing one, stays what it is.
_DAMAGED: Final = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, MemoryError, OverflowError, SyntaxError,
    RecursionError, NotImplementedError, RuntimeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    pickle.UnpicklingError,
)  # fmt: skip


def _checked(read: Callable[[], Any], name: str) -> Any:
    try:
        return read()
    except _DAMAGED as error:
        raise InvalidFileError(
            f"load: {name} is damaged, or not of NumPy's format",
            got=f"{type(error).__name__}: {str(error)[:200]}",
            expected=".npy or .npz; pickled objects only with allow_pickle=True, of files that are trusted",
        ) from None


def _name(file: Any) -> str:
    return os.fspath(file) if isinstance(file, (str, os.PathLike)) else str(getattr(file, "name", "the file"))


class Archive(NpzFile):
    """A ``.npz`` file: NumPy's, whose members are read when they are asked for."""

    def __getitem__(self, key: str) -> Any:
        if key not in self.files and key not in self._files:
            raise KeyError(f"{key} is not a file in the archive: it has {', '.join(self.files[:20])}")
        return _checked(lambda: super(Archive, self).__getitem__(key), f"{key} in an archive")


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Arrays saved with `save` or NumPy; extended dtypes such as bfloat16 are read back by their width.

    A ``.npz`` file gives its members, as NumPy's arrays, when they are asked for.

    Raises:
        InvalidFileError: a damaged file, also when a member is asked for; it is a ValueError.
        OSError: it cannot be opened.

    >>> import os, tempfile
    >>> import nxjax.numpy as jnp
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> jnp.save(path, jnp.arange(3))
    >>> jnp.load(path)
    Array([0, 1, 2], dtype=int32)
    """
    from nxjax.numpy.creation import array

    found = _checked(lambda: np.load(file, *args, **kwargs), _name(file))
    if type(found) is NpzFile:
        found.__class__ = Archive
    return array(found) if isinstance(found, np.ndarray) else found


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write one array in NumPy's ``.npy`` format.

    A name without ``.npy`` gets that ending; ``file`` may be an open binary file.

    >>> import io
    >>> import nxjax.numpy as jnp
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.eye(2))
    >>> _ = file.seek(0)
    >>> jnp.load(file).shape
    (2, 2)
    """
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write several arrays in NumPy's ``.npz`` format, under their keywords, or ``arr_0``, ``arr_1``, ...

    Objects of Python's are pickled, unless ``allow_pickle`` is False.

    >>> import io
    >>> import nxjax.numpy as jnp
    >>> file = io.BytesIO()
    >>> jnp.savez(file, jnp.arange(2), w=jnp.ones(3))
    >>> _ = file.seek(0)
    >>> jnp.load(file).files
    ['w', 'arr_0']
    """
    unnamed, named = [np.asarray(a) for a in args], {k: np.asarray(v) for k, v in kwds.items()}
    if not allow_pickle and any(a.dtype.hasobject for a in (*unnamed, *named.values())):
        raise ValueError("Object arrays cannot be saved when allow_pickle=False")
    np.savez(file, *unnamed, **named)
