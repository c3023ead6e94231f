"""Whether a module that is not trusted can be read: tried in a child process first.

MLIR's reader ends the process, or does not end at all, on some damaged bytes. A module that has been read once on this
machine is known by its hash in the on-disk cache and is not tried again. Run as a program, this file is the child: it
reads a module from its input and says by its exit status and output what came of it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Final

from nxjax.backends import cache
from nxjax.backends.xla import foreign
from nxjax.backends.xla.client import jaxlib_version
from nxjax.errors import LoweringError

# Seconds, and bytes of memory, that reading may take: so much, and so much for each byte of the module.
SECONDS: Final = (20.0, 2e-6)
MEMORY: Final = (8 * 2**30, 64)
_REFUSED: Final = 3
_read: set[str] = set()


def _key(data: bytes) -> str:
    return hashlib.sha256(jaxlib_version().encode() + b"|stablehlo is readable|" + data).hexdigest()


def trust(data: bytes) -> None:
    """Note a module that this process wrote itself."""
    _read.add(_key(data))


def checked(data: bytes) -> None:
    """Return if ``data`` is a module that can be read.

    Raises:
        LoweringError: it is not: not a portable artifact, damaged, or refused by the verifier.
    """
    key = _key(data)
    if key in _read or cache.load(key) is not None:
        return
    if not data.startswith(b"ML\xefR"):
        raise LoweringError("stablehlo: not a portable artifact", got=f"bytes that begin with {data[:8]!r}")
    limit = SECONDS[0] + SECONDS[1] * len(data)
    try:
        child = subprocess.run(
            [sys.executable, "-m", __name__, str(MEMORY[0] + MEMORY[1] * len(data))],
            input=data,
            capture_output=True,
            timeout=limit,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise LoweringError("stablehlo: the module is damaged", got=f"reading it takes over {limit:.0f} s") from None
    if child.returncode == _REFUSED:
        said = child.stdout.decode(errors="replace")
        raise LoweringError("stablehlo: the module cannot be read", got=said[:500])
    if child.returncode:
        said = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise LoweringError(
            "stablehlo: the module is damaged",
            got=f"reading it ends the process (status {child.returncode}{': ' if said else ''}{''.join(said)[:200]})",
        )
    _read.add(key)
    cache.store(key, b"1")


def _child() -> int:
    """Read a module from the input; the exit status, with the error's text on the output."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        foreign.signature(sys.stdin.buffer.read())
    except (LoweringError, MemoryError) as error:
        sys.stdout.write(str(getattr(error, "got", error)))
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_child())
