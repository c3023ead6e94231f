"""NumPy's files: read by NumPy, with errors that say which is damaged. Nothing in one is executed, unless asked for.

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


def loaded(file: Any, *args: Any, **kwargs: Any) -> Any:
    """`numpy.load`.

    Raises:
        InvalidFileError: damaged.
        OSError: it cannot be opened.
    """
    found = _checked(lambda: np.load(file, *args, **kwargs), _name(file))
    if type(found) is NpzFile:
        found.__class__ = Archive
    return found
