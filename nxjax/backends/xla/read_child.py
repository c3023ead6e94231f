"""Run as a program of its own: a StableHLO module in any form on standard input, MLIR bytecode on standard output.

MLIR's readers of bytecode end the process on damaged input, so what is not known to be sound is read here first.
Imports nothing of nxjax; `read_module` is shared with the reader that runs in the user's process.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

BYTECODE = b"ML\xefR"
PORTABLE = b"StableHLO_v"
# To begin with, and per byte: a dimension number of 2^31 is a table of so many entries to MLIR's reader.
BYTES = (4 * 2**30, 100)


def context() -> Any:
    """A context that knows the dialects of StableHLO modules."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo  # type: ignore[import-not-found]

    made: Any = ir.Context()
    dialects: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    made.append_dialect_registry(dialects)
    made.load_all_available_dialects()
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(made)
    mhlo.register_mhlo_dialect(made)
    return made


def read_module(data: bytes) -> Any:
    """The verified module of a portable artifact, of bytecode or of text; MLIRError or ValueError if it is none."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import stablehlo  # type: ignore[import-not-found]

    known = context()
    if data.startswith(BYTECODE) and data[5:].startswith(PORTABLE):
        module: Any = stablehlo.deserialize_portable_artifact(known, data)
    else:
        module = ir.Module.parse(data if data.startswith(BYTECODE) else data.decode(), known)
    module.operation.verify()
    return module


def bounded(size: int) -> None:
    """Have a reader that asks for more memory than a module of ``size`` bytes can need run out of it at once."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return
    most = BYTES[0] + BYTES[1] * size
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def main() -> int:
    # Messages of the parser go nowhere but into the one line that is reported.
    report = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        data = sys.stdin.buffer.read()
        bounded(len(data))
        module = read_module(data)
        written = io.BytesIO()
        module.operation.write_bytecode(written)
    except Exception as error:
        os.write(report, str(error)[:2000].encode(errors="replace"))
        return 1
    sys.stdout.buffer.write(written.getvalue())
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    code = main()
    # MLIR's own clean-up has nothing to add.
    os._exit(code)
