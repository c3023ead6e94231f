"""Arrays of what others wrote: memory, text, files of bare numbers, iterators, and other libraries' arrays."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import IO

import numpy as np

from nxjax.errors import ParameterError
from nxjax.numpy.creation import from_data, put_on_device
from nxjax.numpy.documented import example
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DeviceLike, DTypeLike
from nxjax.trace.array import check_unmasked, wrap
from nxjax.trace.core import Array


def fromfile(
    file: str | PathLike[str] | IO[bytes],
    dtype: DTypeLike | None = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    like: None = None,
) -> Array:
    """The numbers of a file, which are bare bytes, or text with ``sep`` between. The bytes are read as ``dtype``.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.bin")
    >>> np.arange(3, dtype=">i2").tofile(path)
    >>> jnp.fromfile(path, dtype=">i2")
    Array([0, 1, 2], dtype=int16)
    """
    data = np.fromfile(file, dtypes.as_stored(dtype), count, sep, offset)
    return from_data(data, dtypes.as_dtype(dtype))


@example("(n * n for n in range(4)), dtype=int", "Array([0, 1, 4, 9], dtype=int32)")
def fromiter(
    iter: Iterable[ArrayLike], dtype: DTypeLike | None = float, count: int = -1, *, like: None = None
) -> Array:
    """The numbers of an iterator; by default float32."""
    wanted = dtypes.as_dtype(dtype)
    return from_data(np.fromiter(iter, wanted, count), wanted)


def fromstring(string: str, dtype: DTypeLike | None = float, count: int = -1, *, sep: str) -> Array:
    """The numbers of a text, separated by ``sep``.

    Raises:
        ParameterError: something is not a number, or there are fewer than ``count``; it is a ValueError.

    >>> fromstring("1 2 3", sep=" ").tolist()
    [1.0, 2.0, 3.0]
    """
    wanted = dtypes.as_dtype(dtype)
    try:
        return from_data(np.fromstring(string, dtype=wanted, count=count, sep=sep), wanted)
    except ValueError as error:
        raise ParameterError(
            f"fromstring: {error}", got=repr(string)[:80], expected=f"numbers with {sep!r} between"
        ) from None


@example('b"abc", dtype=jnp.uint8', "Array([97, 98, 99], dtype=uint8)")
def frombuffer(buffer: object, dtype: DTypeLike | None = float, count: int = -1, offset: int = 0) -> Array:
    """The bytes of ``buffer`` read as ``dtype``.

    Raises:
        ValueError: the bytes are not a whole number of elements, or fewer than ``count``.
    """
    data = np.frombuffer(buffer, dtype=dtypes.as_stored(dtype), count=count, offset=offset)
    return from_data(data, dtypes.as_dtype(dtype))


def from_dlpack(x: object, /, *, device: DeviceLike = None, copy: bool | None = None) -> Array:
    """An array that another library made, through DLPack.

    It is a copy, because arrays are immutable and the other library may write to its memory. With ``copy=False`` the
    memory is shared: later writes change this array, also in compiled functions that use it.

    >>> import numpy as np
    >>> x = np.arange(3, dtype=np.float32)
    >>> np.shares_memory(x, np.asarray(from_dlpack(x))), np.shares_memory(x, np.asarray(from_dlpack(x, copy=False)))
    (False, True)
    """
    if isinstance(x, Array):
        return put_on_device(x, device)
    check_unmasked(x, "from_dlpack")
    data = np.from_dlpack(x)
    if copy is not False:
        return put_on_device(wrap(np.array(data, order="C")), device)
    data = data.view()
    data.flags.writeable = False
    return put_on_device(wrap(data), device)
