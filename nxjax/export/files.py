"""Exported functions on disk, written whole or not at all."""

from __future__ import annotations

import os
from typing import Final

from nxjax.export.exported import Exported
from nxjax.export.serialization import deserialize
from nxjax.files import safe_io

_MOST: Final = 2**31  # bytes: places in the format are of 32 bits


def save(path: str | os.PathLike[str], exported: Exported, vjp_order: int = 0) -> None:
    """Write ``exported.serialize(vjp_order)``; a failure leaves an existing file unchanged.

    Args:
        path: of the file.
        exported: from `nx.export.export`.
        vjp_order: how many orders of reverse derivatives to include.

    Raises:
        OSError: the disk is full, or a similar problem.

    >>> import nxjax as nx, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "double.nxp")
    >>> save(path, nx.export.export(nx.jit(lambda x: 2 * x))(1.0))
    >>> float(load(path).call(3.0))
    6.0
    """
    safe_io.write(path, exported.serialize(vjp_order))


def load(path: str | os.PathLike[str]) -> Exported:
    """Read a file that `save` or JAX wrote.

    Raises:
        InvalidFileError: not an exported function, or damaged.

    >>> import nxjax as nx, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "double.nxp")
    >>> save(path, nx.export.export(nx.jit(lambda x: 2 * x))(1.0))
    >>> load(path)
    Exported(<lambda>: (f32[]) -> (f32[]), platforms=('cpu',))
    """
    return deserialize(safe_io.read(path, _MOST))
