"""What the native runtime offers to other machine code: addresses, signatures, and where things lie.

    functions = runtime().addresses            # an `Addresses`; constant while the process lives
    tape = Tape(program)                       # tables of one program, see `native.tape`
    status = run(tape.address, ins, outs)      # i64 run(ptr tape, ptr ins, ptr outs)

``run`` is called **with the interpreter's lock held**. It gives the lock back while it works where the program is
estimated to take longer than that costs, and holds it again when it returns. It may be called by any number of threads
at once, for the same tape too, and by Python code that a tape itself calls. Arguments of ``run``:

- ``ins``: an array of addresses, one for each argument of the program: dense, row-major, aligned to its element (not
  more), not written to, except where the tape says that a result is made in an argument's memory (`Tape.results`).
- ``outs``: an array of addresses, one for each result; read where `Tape.results` says ``new`` only. Of `acquire`:
  64-byte aligned, at least the result's bytes.

Status of ``run``: `OK`; `RAISED`: an exception is set in this thread, as a function of CPython's gives NULL (a Host
step failed, or Ctrl-C: KeyboardInterrupt); `NO_MEMORY`: no exception is set, `runtime.out_of_memory` makes it. In the
last two cases what results hold is undefined; the caller releases them.

Memory: ``ptr acquire(i64 nbytes)``, null when there is none; ``i64 release(ptr)``: 0, or a negative number where the
address is none that is in use (see `pool`); null is released in peace. Both need no lock of the interpreter's and may
be called with it.

Threads: ``i64 parallel_for(ptr kernel, ptr words, i64 items, i64 chunk, i64 scratch_bytes, ptr scratch, ptr context)``
runs a kernel (`kernels.cpu.base`) on ``items`` in pieces of ``chunk``; ``scratch`` is the calling thread's, the others
bring their own; ``context`` is null, or that of the run (`machine`). 0, or `RAISED` when it was interrupted.
"""

from __future__ import annotations

from typing import Final

from nxjax.config.named_tuple import NamedTuple

OK: Final = 0
RAISED: Final = 1
NO_MEMORY: Final = 2


class Addresses(NamedTuple):
    """Where the functions begin.

    Attributes:
        run: ``i64 (ptr tape, ptr ins, ptr outs)``.
        acquire: ``ptr (i64 nbytes)``.
        release: ``i64 (ptr)``.
        parallel_for: as above.
        copy: a kernel; words: from, to, number of bytes; its items are blocks of `COPY_BLOCK` bytes.
    """

    run: int
    acquire: int
    release: int
    parallel_for: int
    copy: int


COPY_BLOCK: Final = 64 * 1024
# What the pool counts, in the order of its words.
STATISTICS: Final = ("in_use", "peak", "kept", "blocks", "hits", "misses", "limit", "free_blocks")
