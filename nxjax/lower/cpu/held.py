"""A program in two parts: what depends on held inputs alone, and the rest.

Arrays that a function closes over are the same in every call: they are held. Steps that read nothing else (weights are
packed for a kernel, multipliers of quantized channels are made) are the preparation, which runs once; its buffers are
further inputs of the main program, which runs in every call. Knows no kernel and no rule: rules make of held operands
whatever serves the main program best (`Builder.is_held`), since its cost before is paid once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config
from nxjax.config.dataclass import dataclass
from nxjax.config.digest import digest
from nxjax.lower.cpu.analysis import cost_of
from nxjax.lower.cpu.invariant import without_repetition
from nxjax.lower.cpu.memory import placed
from nxjax.lower.cpu.memory_uses import replace
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, HostStep, Ref, TapeStep, walk
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
# Bytes that a preparation moves, and those of what it reads: less is not worth a program of its own.
_WORTH: Final = 16 << 10
SMALL: Final = 4 << 10
# Times the bytes of held inputs that prepared buffers may take: more would be memory spent on saving little.
_MOST: Final = 4


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """Two programs that do together what one did.

    Attributes:
        preparation: from the held inputs to the prepared buffers, as bytes.
        main: takes ``kept``, the prepared buffers, then all inputs that are not held.
        kept: which held inputs the main program reads.
    """

    preparation: CpuProgram
    main: CpuProgram
    kept: tuple[int, ...]

    def __str__(self) -> str:
        kept = ", ".join(f"input{i}" for i in self.kept) or "no held input"
        return f"once:\n{self.preparation}\nthen, on {kept}, what was prepared, and the arguments:\n{self.main}"


def parted(program: CpuProgram, count: int) -> Parts | None:
    """``program``, whose memory is not planned, with its first ``count`` inputs held; None: it is not worth it."""
    if not (config.verify or config.check):
        return _parted(program, count)
    from nxjax.lower.cpu.verify import trace, verify_parts

    whole = trace(program)
    parts = _parted(program, count)
    if parts is not None:
        verify_parts(parts.preparation, parts.main, parts.kept, whole, count)
    return parts


def _parted(program: CpuProgram, count: int) -> Parts | None:
    without_repetition(program.steps)
    given, types = program.inputs, program.in_types
    fixed = _fixed(program.steps, set(given[:count]))
    before = [s for i, s in enumerate(program.steps) if i in fixed]
    after = [s for i, s in enumerate(program.steps) if i not in fixed]
    read = {b for s in after for b in _reads(s)} | set(program.outputs)
    crossing = [b for b in dict.fromkeys(b for s in before for b in _writes(s)) if b in read]
    bytes_of = [ArrayType((b.nbytes,), dtypes.uint8) for b in crossing]
    preparation = _program(before, program.consts, given[:count], types[:count], crossing, bytes_of)
    simple = not any(isinstance(s, HostStep) or s.bodies() for s in before)
    if simple and cost_of(preparation)["bytes accessed"] < _WORTH:
        return None
    if sum(b.nbytes for b in crossing) > _MOST * sum(b.nbytes for b in given[:count]):
        return None
    kept = tuple(i for i, b in enumerate(given[:count]) if b in read)
    main = _program(
        after,
        program.consts,
        [*(given[i] for i in kept), *crossing, *given[count:]],
        [*(types[i] for i in kept), *bytes_of, *types[count:]],
        program.outputs,
        program.out_types,
    )
    main.donated = tuple(i - count + len(kept) + len(crossing) for i in program.donated)
    return Parts(placed(preparation), placed(main), kept)


def _reads(step: TapeStep) -> set[Buffer]:
    return {r.buffer for s in walk([step]) for r in s.reads()}


def _writes(step: TapeStep) -> set[Buffer]:
    return {r.buffer for s in walk([step]) for r in s.writes()}


def _fixed(steps: Sequence[TapeStep], held: set[Buffer]) -> set[int]:
    """Indices of the steps that do the same in every call, for the sake of something that is made of what is held."""
    reads, writes = [_reads(s) for s in steps], [_writes(s) for s in steps]
    last = len(steps)
    done = {b: i for i in range(last) for b in writes[i]}
    moving = {i for i, s in enumerate(steps) if any(map(_acts, walk([s])))}
    varies = {b for i in moving for b in writes[i]}
    changed = True
    while changed:
        changed = False
        for i in range(last):
            touched = reads[i] | writes[i]
            if i not in moving and any(b in varies or not _may_be_fixed(b, held) for b in touched):
                moving.add(i)
                changed = True
            if i in moving:
                varies |= writes[i]
        # Whoever runs later has to find what the preparation leaves at its end.
        begun = {b: i for i in sorted(moving, reverse=True) for b in reads[i]}
        early = {b for b, i in begun.items() if b not in varies and i < done.get(b, -1)}
        varies |= early
        unasked = set(range(last)) - moving - _asked(reads, writes, moving, held)
        moving |= unasked
        changed = changed or bool(early or unasked)
    return set(range(last)) - moving


def _may_be_fixed(b: Buffer, held: set[Buffer]) -> bool:
    return b.kind in ("temp", "const") or b in held


def _asked(reads: list[set[Buffer]], writes: list[set[Buffer]], moving: set[int], held: set[Buffer]) -> set[int]:
    """Steps that read, directly or not, what is held; and those that make for them what is constant."""
    rest = [i for i in range(len(reads)) if i not in moving]
    made, count = set(held), -1
    while count != len(made):
        count = len(made)
        for i in rest:
            if not made.isdisjoint(reads[i]):
                made |= writes[i]
    count = -1
    while count != len(made):
        count = len(made)
        for i in reversed(rest):
            if not made.isdisjoint(writes[i]):
                made |= reads[i]
    return {i for i in rest if not made.isdisjoint(writes[i])}


def _acts(step: TapeStep) -> bool:
    """Whether a step may do more than write its results."""
    return isinstance(step, HostStep) and (step.equation is None or step.equation.op.effect)


def _program(
    steps: list[TapeStep],
    consts: Sequence[NDArray],
    inputs: Sequence[Buffer],
    in_types: Sequence[ArrayType],
    outputs: Sequence[Buffer],
    out_types: Sequence[ArrayType],
) -> CpuProgram:
    """These steps as a program, with arguments, results and constants numbered anew."""
    own = dict.fromkeys(b for b in outputs if b.kind in ("output", "temp"))
    places = {b: Buffer(b.nbytes, "output", outputs.index(b)) for b in own}
    places |= {b: Buffer(b.nbytes, "input", i) for i, b in enumerate(inputs)}
    used: list[NDArray] = []

    def of(b: Buffer) -> Buffer:
        found = places.get(b)
        if found is None:
            found = b
            if b.kind == "const":
                found = Buffer(b.nbytes, "const", len(used))
                used.append(consts[b.index])
            places[b] = found
        return found

    for step in walk(steps):
        replace(step, lambda ref: Ref(of(ref.buffer), ref.offset, ref.moves))
    results = [of(b) for b in outputs]
    return CpuProgram(tuple(in_types), tuple(out_types), [of(b) for b in inputs], results, used, steps)


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """What a prepared buffer is made of.

    Attributes:
        digest: of the kernels, their places and the constants. Two buffers of one digest, made of the same arrays, have
            the same bytes, whatever programs they are for.
        inputs: which held inputs it is made of, in the digest's order.
    """

    digest: str
    inputs: tuple[int, ...]


def origins(preparation: CpuProgram) -> tuple[Origin | None, ...]:
    """What each result of a preparation is made of; None where that is not known."""
    known: dict[Buffer, Origin | None] = {b: Origin("input", (i,)) for i, b in enumerate(preparation.inputs)}

    def origin(b: Buffer) -> Origin | None:
        if b not in known:
            bytes_of = preparation.consts[b.index].tobytes() if b.kind == "const" else b""
            known[b] = Origin(_digest(b.kind if bytes_of else "empty", b.nbytes, bytes_of), ())
        return known[b]

    for step in preparation.steps:
        writes = step.writes()
        found = [origin(r.buffer) for r in (*step.reads(), *writes)]
        if not isinstance(step, (CallStep, CopyStep)) or any(x is None for x in found):
            known |= dict.fromkeys(_writes(step))
            continue
        inputs = tuple(dict.fromkeys(i for x in found if x for i in x.inputs))
        order = {r.buffer: i for i, r in reversed(list(enumerate((*step.reads(), *writes))))}
        parts = [
            (x.digest, [inputs.index(i) for i in x.inputs], r.offset, order[r.buffer])
            for x, r in zip(found, (*step.reads(), *writes), strict=True)
            if x
        ]
        does = (step.kernel.key, step.kernel.integers) if isinstance(step, CallStep) else step.nbytes
        for b in dict.fromkeys(r.buffer for r in writes):
            known[b] = Origin(_digest(does, parts, order[b]), inputs)
    return tuple(map(origin, preparation.outputs))


def _digest(*parts: Any) -> str:
    return digest(repr(parts).encode()).hexdigest()
