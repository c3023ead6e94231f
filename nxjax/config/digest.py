"""The digest by which programs and kept files are known: 32 bytes of BLAKE2b.

CPython's own module of it is taken where there is one: `hashlib` loads OpenSSL as well, which takes some 8 ms.
"""

from __future__ import annotations

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
