"""Whether a tape may run: found from the tape alone, by other rules than those that it was planned by.

The tape is followed step by step with names of values in place of bytes (`contents`), once from its arguments to its
results: a loop's first two turns and its last one, a `While`'s condition and two turns, every branch. Equal carries
hide faults: where a loop begins with some, it is followed until no more of them become different. Of loops in many
others fewer turns are followed (`verify_loops`). Kernels say which bytes they touch (`Kernel.touches`).

It is an error if

    unwritten    a step reads bytes that are not written on every path that leads there, or a result is not complete
    overwritten  what it reads there is another temporary's, which lies in the same place of the arena
    outside      a kernel can form an address outside of the buffer that it is given
    constant     a constant, or an argument that is not donated, is written
    overlap      operands of one call overlap where its kernel does not allow it, or temporaries lie outside the arena
    size         a call has more or fewer operands than its kernel
    kernel       a kernel's plan of its own scratch memory is wrong (`Kernel.flaw`)
    changed      what the tape computes is not what it computed before its memory was planned (`TapeMeaning`)

The last compares names: each says what a step makes of which others, so a copy that should have stayed, a step that is
missing, or an argument that is overwritten before its last reader changes those of the results. Knows no kernel, and
nothing of how memory is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nxjax.errors import VerificationError
from nxjax.lower.cpu.contents import UNKNOWN, ByteRun
from nxjax.lower.cpu.tape import Buffer, CpuProgram, TapeStep
from nxjax.lower.cpu.verify_steps import REPORT, Follower, TapeMeaning


def trace(program: CpuProgram) -> TapeMeaning:
    """Follow ``program`` before its memory is planned; raises `VerificationError`."""
    return Follower(program, _arguments(program), planned=False).run()


def argument(i: int, b: Buffer) -> list[ByteRun]:
    """What argument ``i`` holds, where nobody says anything else."""
    return [ByteRun(0, b.nbytes, hash(("input", i)), 0, None)]


def _arguments(program: CpuProgram) -> list[list[ByteRun]]:
    return [argument(i, b) for i, b in enumerate(program.inputs)]


def _check_places(program: CpuProgram) -> None:
    """Whether arguments and results are numbered as a call passes them, and as large as the types that it has."""
    arguments, results = (program.inputs, program.in_types), (program.outputs, program.out_types)
    for kind, (buffers, types) in (("input", arguments), ("output", results)):
        for i, (b, t) in enumerate(zip(buffers, types, strict=False)):
            if b.nbytes != t.size * t.dtype.itemsize or (b.kind == kind and b.index != buffers.index(b)):
                raise VerificationError(
                    f"verify: {kind} {i} of a compiled program is not what a call passes",
                    got=f"{b}, {b.nbytes} bytes",
                    expected=f"{kind}{i}, {t}",
                    fix=REPORT,
                )


def verify(
    program: CpuProgram,
    before: TapeMeaning | None = None,
    arguments: Sequence[Sequence[ByteRun]] | None = None,
    *,
    complete: bool = True,
    ends: int = 0,
    turns: Mapping[TapeStep, Sequence[int]] | None = None,
    lent: int = 0,
) -> TapeMeaning:
    """Follow ``program``, whose memory is planned; raises `VerificationError`.

    Args:
        before: what it has to compute.
        arguments: what the arguments hold; by default each has a name of its own.
        complete: every byte of the results is written; otherwise they are what another tape reads.
        ends: `TapeMeaning.ends` of a tape that ran before this one, where both together do what ``before`` did.
        turns: `TapeMeaning.turns` of what it has to compute; by default those of ``before``.
        lent: how many arguments, the first ones, the next call gets again: nothing may be written there.
    """
    _check_places(program)
    if turns is None and before is not None:
        turns = before.turns
    held = _arguments(program) if arguments is None else arguments
    follower = Follower(program, held, turns=turns)
    follower.donated -= set(program.inputs[:lent])
    follower.ends = ends
    found = follower.run(complete)
    if before is None:
        return found
    pairs = enumerate(zip(before.results, found.results, strict=True))
    wrong = [i for i, (x, y) in pairs if x != y and UNKNOWN not in (x, y)]
    same = (before.effects, before.ends) == (found.effects, found.ends)
    acts = not (same or before.vague or found.vague)
    if wrong or acts:
        Follower(program, held, before=before, turns=turns).run()  # raises at the step that reads something else
        what = f"result {wrong[0]}" if wrong else "an effect"
        raise VerificationError(
            f"verify: changed: {what} of a compiled program is not what it was before its memory was planned",
            fix=REPORT,
        )
    return found


def verify_parts(
    preparation: CpuProgram, main: CpuProgram, kept: Sequence[int], whole: TapeMeaning, count: int
) -> None:
    """Raise where two programs together do not what ``whole`` says that one did.

    Args:
        preparation, main: what is made of the first ``count`` inputs, and the rest.
        kept: which of those ``main`` is given too.
    """
    made = verify(preparation, complete=False, turns=whole.turns)  # packed weights have padding
    n = len(kept)
    given = [argument(i, b) for i, b in zip(kept, main.inputs, strict=False)]
    rest = [argument(i, b) for i, b in enumerate(main.inputs[n + len(made.contents) :], count)]
    verify(main, whole, [*given, *made.contents, *rest], ends=made.ends, lent=n + len(made.contents))
