"""Bytes as people write and read them."""

from __future__ import annotations

import re
from typing import Final

from nxjax.errors import ParameterError

# By the letter: JEDEC's and the kernel's use, where a GB of memory is 2**30 bytes.
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(size: int | str, what: str = "size") -> int:
    """Bytes of a number, or of a text such as ``"512MB"``, ``"2 GiB"`` or ``"1.5G"``; units are powers of 1024.

    Raises:
        ParameterError: it is neither, or negative.

    >>> parse_size("2GB") == 2 * 2**30
    True
    >>> parse_size("1.5 KiB")
    1536
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", size.upper()) if isinstance(size, str) else None
    if found is None:
        raise ParameterError(what, got=repr(size), expected='bytes, or a text such as "512MB" or "2GB"')
    return int(float(found[1]) * _UNITS[found[2]])


def shown(nbytes: int) -> str:
    """Bytes for people.

    >>> shown(3 * 2**20)
    '3.0 MiB'
    """
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
