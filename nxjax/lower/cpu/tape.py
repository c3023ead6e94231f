"""What a program becomes: buffers, and steps that run kernels on them; printable, with no address and no machine code.

    Buffer   memory of an argument, a result, a constant or a temporary
    Ref      a place in a buffer; inside loops it may move from turn to turn
    Step     call a kernel, copy bytes, run one op by its NumPy meaning (host), repeat, while, branch

Steps run in order. Two steps share no state but memory. Temporaries lie in one arena at offsets that `memory.plan`
chose; buffers that are never alive together overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import Source
from nxjax.kernels.cpu.base import Kernel
from nxjax.lower.trip_count import trip_count
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

Kind = Literal["input", "output", "const", "temp"]
ALIGN = 64  # bytes: a cache line, and the widest vector


@final
@dataclass(eq=False, slots=True)
class Buffer:
    """Contiguous bytes.

    Attributes:
        nbytes: its size; may be 0.
        kind, index: whose memory it is: argument ``index``, result ``index``, constant ``index`` or the arena's.
        offset: where a temporary lies in the arena; -1 before memory is planned.
    """

    nbytes: int
    kind: Kind
    index: int = -1
    offset: int = -1

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}" if self.kind != "temp" else f"temp@{self.offset}"


@final
@dataclass(eq=False, slots=True)
class Counter:
    """The turn of a `RepeatStep`, by which `Ref`s inside it move."""

    count: int


@final
@dataclass(frozen=True, slots=True)
class Ref:
    """``offset`` bytes into a buffer, plus ``stride`` bytes per turn of each loop in ``moves``."""

    buffer: Buffer
    offset: int = 0
    moves: tuple[tuple[Counter, int], ...] = ()

    def __repr__(self) -> str:
        moved = "".join(f"{stride:+}*turn" for _, stride in self.moves)
        return f"{self.buffer!r}[{self.offset}{moved}]" if self.offset or moved else repr(self.buffer)


@dataclass(eq=False, slots=True)
class TapeStep:
    """One thing to do; ``equation`` is the user's, for errors, profiles and pictures."""

    equation: Equation | None = field(default=None, kw_only=True)

    @property
    def source(self) -> Source | None:
        return None if self.equation is None else self.equation.source

    def reads(self) -> Sequence[Ref]:
        return ()

    def writes(self) -> Sequence[Ref]:
        return ()

    def bodies(self) -> Sequence[Sequence[TapeStep]]:
        return ()


@final
@dataclass(eq=False, slots=True)
class CallStep(TapeStep):
    """``kernel`` on all its items. ``words``: its operands' places, then its integers."""

    kernel: Kernel
    ins: tuple[Ref, ...]
    outs: tuple[Ref, ...]

    def reads(self) -> Sequence[Ref]:
        return self.ins

    def writes(self) -> Sequence[Ref]:
        return self.outs

    def __repr__(self) -> str:
        integers = self.kernel.integers
        numbers = f" {list(integers)}" if integers else ""
        return f"{_list(self.outs)} = {self.kernel.key} ({self.kernel.items} items){numbers} {_list(self.ins)}"


@final
@dataclass(eq=False, slots=True)
class CopyStep(TapeStep):
    """``nbytes`` from one place to another; the places may be the same, not overlap otherwise."""

    source_ref: Ref
    target: Ref
    nbytes: int

    def reads(self) -> Sequence[Ref]:
        return (self.source_ref,)

    def writes(self) -> Sequence[Ref]:
        return (self.target,)

    def __repr__(self) -> str:
        return f"{self.target!r} = copy {self.source_ref!r} ({self.nbytes} bytes)"


@final
@dataclass(eq=False, slots=True)
class HostStep(TapeStep):
    """One equation by its NumPy meaning, with the interpreter's lock held: what has no kernel (``why``).

    ``routine``: what writes the same results from the arguments, where a library has something quicker.
    """

    ins: tuple[Ref, ...]
    outs: tuple[Ref, ...]
    in_types: tuple[ArrayType, ...]
    out_types: tuple[ArrayType, ...]
    why: str = ""
    routine: Callable[[Sequence[np.ndarray[Any, Any]], Sequence[np.ndarray[Any, Any]]], None] | None = None

    def reads(self) -> Sequence[Ref]:
        return self.ins

    def writes(self) -> Sequence[Ref]:
        return self.outs

    def run(self, xs: Sequence[np.ndarray[Any, Any]], ys: Sequence[np.ndarray[Any, Any]]) -> None:
        """Write the results for arguments of `in_types` to ``ys``, memory of `out_types`; neither is kept."""
        if self.routine is not None:
            self.routine(xs, ys)
            return
        assert self.equation is not None
        # Copies: an op may give its argument back, whose memory is the next step's.
        found = self.equation.op.eval(*(x.copy() for x in xs), **self.equation.params)
        for y, value in zip(ys, found if self.equation.op.multi else (found,), strict=True):
            y[...] = value

    def __repr__(self) -> str:
        name = "?" if self.equation is None else self.equation.op.name
        return f"{_list(self.outs)} = host {name} {_list(self.ins)}" + (f"  # {self.why}" if self.why else "")


@final
@dataclass(eq=False, slots=True)
class RepeatStep(TapeStep):
    """``body``, ``counter.count`` times; its moving `Ref`s advance after each turn."""

    counter: Counter
    body: list[TapeStep]

    def bodies(self) -> Sequence[Sequence[TapeStep]]:
        return (self.body,)

    def __repr__(self) -> str:
        return f"repeat {self.counter.count}"


@final
@dataclass(eq=False, slots=True)
class WhileStep(TapeStep):
    """``condition`` runs and leaves a bool at ``flag``; while it is true, ``body`` runs and it starts again."""

    condition: list[TapeStep]
    flag: Ref
    body: list[TapeStep]

    def reads(self) -> Sequence[Ref]:
        return (self.flag,)

    def bodies(self) -> Sequence[Sequence[TapeStep]]:
        return (self.condition, self.body)

    @property
    def turns(self) -> int | None:
        """How often the body runs; None where that is not known before it does."""
        return None if self.equation is None else trip_count(self.equation)

    def __repr__(self) -> str:
        return f"while {self.flag!r}"


@final
@dataclass(eq=False, slots=True)
class BranchStep(TapeStep):
    """One of ``branches`` by the ``int32`` at ``index``, which is moved into range."""

    index: Ref
    branches: list[list[TapeStep]]

    def reads(self) -> Sequence[Ref]:
        return (self.index,)

    def bodies(self) -> Sequence[Sequence[TapeStep]]:
        return self.branches

    def __repr__(self) -> str:
        return f"branch on {self.index!r}"


@final
@dataclass(eq=False, slots=True)
class CpuProgram:
    """A program for the CPU, flat arguments to flat results.

    Attributes:
        inputs, outputs: a buffer per argument and result, dense and row-major. A result may be the very buffer of an
            argument or constant (it is copied when it leaves) or of another result.
        consts: constants that the lowering made, with their buffers' indices as positions.
        steps: what to do.
        arena: bytes that temporaries take.
    """

    in_types: tuple[ArrayType, ...]
    out_types: tuple[ArrayType, ...]
    inputs: list[Buffer]
    outputs: list[Buffer]
    consts: list[np.ndarray[Any, Any]]
    steps: list[TapeStep]
    arena: int = 0
    donated: tuple[int, ...] = ()

    def calls(self) -> Iterator[CallStep]:
        """Every kernel call, at any depth."""
        yield from (s for s in walk(self.steps) if isinstance(s, CallStep))

    def __str__(self) -> str:
        lines = [f"cpu program: {_list(self.inputs)} -> {_list(self.outputs)}, arena {self.arena} bytes"]
        for i, value in enumerate(self.consts):
            lines.append(f"  const{i} = {value.dtype.name}{list(value.shape)}")
        _print(self.steps, 1, lines)
        return "\n".join(lines)


def walk(steps: Sequence[TapeStep]) -> Iterator[TapeStep]:
    """Steps in order, those inside loops and branches included."""
    for step in steps:
        yield step
        for body in step.bodies():
            yield from walk(body)


def _list(items: Sequence[Any]) -> str:
    return ", ".join(map(repr, items)) or "()"


def _print(steps: Sequence[TapeStep], depth: int, lines: list[str]) -> None:
    for step in steps:
        where = f"  # {step.source}" if step.source is not None else ""
        lines.append("  " * depth + repr(step) + where)
        for i, body in enumerate(step.bodies()):
            if i:
                lines.append("  " * depth + "or")
            _print(body, depth + 1, lines)
