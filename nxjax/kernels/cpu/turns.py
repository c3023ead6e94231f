"""A loop of short kernels as one function, which calls none of them: their code is in it.

Between two short kernels the machine of the tape takes longer than they do, and what a turn leaves for the next one
goes through memory. Here a turn's kernels follow each other in one function, in which LLVM sees all places: what lies
in rooms of the function's own stays in registers. Knows no program and no buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.config.forks import cached_property
from nxjax.kernels.cpu.base import Code, Kernel, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa


@final
@dataclass(frozen=True, slots=True)
class TurnPlace:
    """``offset`` bytes after the address in word ``word``, and ``stride`` more for each turn of a loop in ``moves``,
    which are named by how deep they are: the outermost is 0."""

    word: int
    offset: int
    moves: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.word}{self.offset:+}" + "".join(f"{stride:+}*{depth}" for depth, stride in self.moves)


@final
@dataclass(frozen=True)
class CalledKernel:
    """A whole kernel on this thread."""

    kernel: Kernel
    places: tuple[TurnPlace, ...]

    def __str__(self) -> str:
        return f"{self.kernel.key}{list(self.kernel.integers)}*{self.kernel.items}({', '.join(map(str, self.places))})"


@final
@dataclass(frozen=True, slots=True)
class CopiedBytes:
    nbytes: int
    source: TurnPlace
    target: TurnPlace

    def __str__(self) -> str:
        return f"copy {self.nbytes} {self.source} {self.target}"


@final
@dataclass(frozen=True, slots=True)
class CountedLoop:
    """``body``, ``count`` times."""

    count: int
    body: tuple[CalledKernel | CopiedBytes | CountedLoop, ...]

    def __str__(self) -> str:
        return f"{self.count}[{'; '.join(map(str, self.body))}]"


@final
@dataclass(frozen=True, slots=True)
class EndingLoop:
    """``body`` as long as ``condition`` leaves a bool that is true at ``flag``, but at most ``most`` times: the flag
    says then that it is not over."""

    condition: tuple[CalledKernel | CopiedBytes | CountedLoop, ...]
    flag: TurnPlace
    body: tuple[CalledKernel | CopiedBytes | CountedLoop, ...]
    most: int

    def __str__(self) -> str:
        parts = ("; ".join(map(str, steps)) for steps in (self.condition, self.body))
        return f"until {self.flag} {self.most}[{' | '.join(parts)}]"


@final
class Turns(Code):
    """``loop`` from beginning to end.

    Args:
        words: how many there are; each is an address.
        rooms: of which words the bytes (how many, and how many more may be touched) are in the function's own memory
            while it runs: they are copied there first, and back at the end. Nothing else may lie there.
    """

    inlines = True

    def __init__(self, loop: CountedLoop | EndingLoop, words: int, rooms: Mapping[int, tuple[int, int]]) -> None:
        self.loop, self.words, self.rooms = loop, words, dict(rooms)
        steps = loop.body if isinstance(loop, CountedLoop) else (*loop.condition, *loop.body)
        self.kernels = tuple(dict.fromkeys(_kernels(steps)))
        self.scratch = max((kernel.scratch for kernel in self.kernels), default=0)

    @cached_property
    def key(self) -> str:
        return f"turns({self.loop} {self.words} {sorted(self.rooms.items())})"

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        for kernel in self.kernels:
            part = LlvmModule()
            kernel.emit(part, isa)
            module.take(part, kernel.symbol, _inside(kernel), inlined=True)
        f, words, _, _, scratch = self.function(module)
        given = [pointer(f, words, i) for i in range(self.words)]
        bases = list(given)
        for i, (nbytes, more) in self.rooms.items():
            bases[i] = f.alloca("i8", nbytes + more)
            f.call("memcpy", "ptr", bases[i], given[i], f.constant("i64", nbytes))

        def leave() -> None:
            for i, (nbytes, _) in self.rooms.items():
                f.call("memcpy", "ptr", given[i], bases[i], f.constant("i64", nbytes))
            f.ret()

        loop = self.loop
        if isinstance(loop, CountedLoop):
            _steps(f, (loop,), bases, scratch, ())
        else:
            with f.loop(0, loop.most):
                _steps(f, loop.condition, bases, scratch, ())
                with f.if_(f.load("i8", _address(f, bases, loop.flag, ())).eq(0)):
                    leave()
                _steps(f, loop.body, bases, scratch, ())
        leave()


def _steps(
    f: Function,
    steps: Sequence[CalledKernel | CopiedBytes | CountedLoop],
    bases: Sequence[Value],
    scratch: Value,
    turns: tuple[Value, ...],
) -> None:
    at = lambda place: _address(f, bases, place, turns)
    for step in steps:
        match step:
            case CalledKernel(kernel, places):
                call = f.alloca("i64", max(len(places) + len(kernel.integers), 1))
                for k, value in enumerate((*map(at, places), *kernel.integers)):
                    f.store(f.value(value, "i64"), f.at(call, k, 8), 8)
                first, last = f.constant("i64", 0), f.constant("i64", kernel.items)
                f.call(_inside(kernel), "void", call, first, last, scratch)
            case CopiedBytes(nbytes, source, target):
                f.call("memmove", "ptr", at(target), at(source), f.constant("i64", nbytes))
            case CountedLoop():
                with f.loop(0, step.count) as turn:
                    _steps(f, step.body, bases, scratch, (*turns, turn.index))


def _inside(kernel: Kernel) -> str:
    """What the kernel is called in the function that has its code."""
    return f"{kernel.symbol}.inside"


def _kernels(steps: Sequence[CalledKernel | CopiedBytes | CountedLoop]) -> Sequence[Kernel]:
    found: list[Kernel] = []
    for step in steps:
        if isinstance(step, CalledKernel):
            found.append(step.kernel)
        elif isinstance(step, CountedLoop):
            found.extend(_kernels(step.body))
    return found


def _address(f: Function, bases: Sequence[Value], place: TurnPlace, turns: Sequence[Value]) -> Value:
    found = f.at(bases[place.word], place.offset)
    for depth, stride in place.moves:
        found = f.at(found, turns[depth] * stride)
    return found
