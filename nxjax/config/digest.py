"""The digest by which programs and kept files are known: 32 bytes of BLAKE2b.

CPython's own module of it is taken where there is one: `hashlib` loads OpenSSL as well, which takes some 8 ms.
"""

from __future__ import annotations

from collections.abc import Iterable

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


def digest(data: bytes = b"") -> blake2b:
    """A digest to which more can be added.

    >>> digest(b"a").hexdigest()[:8], digest().digest_size
    ('8928aae6', 32)
    """
    return blake2b(data, digest_size=32)


def digest_of_files(paths: Iterable[str], root: str) -> bytes:
    """A digest of the paths of files below ``root``, and of what is in them."""
    found = digest()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        name = path.removeprefix(root).encode()
        # With both lengths before them no other names and contents give the same bytes.
        found.update(b"%d %d %s" % (len(name), len(data), name))
        found.update(data)
    return found.digest()
