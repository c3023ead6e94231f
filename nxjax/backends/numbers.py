"""Programs that come again with other numbers written in them: these become arguments, and one executable serves all.

A loop that is run at once, over and over, may close over a Python number that changes (a learning rate, a time step).
Each time its program is another one. Only numbers that were seen to change become arguments: the others are left for
the compiler to fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast, final

from nxjax.config.forks import fork_lock
from nxjax.lower.passes.loops import HOLDERS, lifted
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Equation, Literal, Program, Var, map_programs

# Programs that are remembered.
_MOST: Final = 256


class _Seen(NamedTuple):
    """The numbers of a program when it first came, and the places of those that have changed since."""

    numbers: tuple[bytes, ...]
    changing: frozenset[int]


# By the program with all its numbers as arguments, and how many these are: others of its arguments may look alike.
_seen: Final[dict[tuple[str, int], _Seen]] = {}
_lock: Final = fork_lock()


def with_arguments(program: Program) -> tuple[Program, tuple[DeviceArray, ...]]:
    """``program`` with the numbers that have changed since it first came as leading arguments, and their values."""
    walk = _Walk(lambda _: True)
    key = walk.outermost(program)[0].fingerprint, len(walk.numbers)
    if not walk.numbers:
        return program, ()
    numbers = tuple(walk.numbers)
    with _lock:
        first = _seen.pop(key, None) or _Seen(numbers, frozenset())
        changed = {i for i, (a, b) in enumerate(zip(numbers, first.numbers, strict=True)) if a != b}
        seen = _seen[key] = first._replace(changing=first.changing | changed)
        if len(_seen) > _MOST:
            del _seen[next(iter(_seen))]
    return _Walk(seen.changing.__contains__).outermost(program)


@final
class _Walk:
    """Numbers in loops and choices as arguments: those that are ``wanted``, counted in order.

    Attributes:
        numbers: the bytes of all.
    """

    def __init__(self, wanted: Callable[[int], bool]) -> None:
        self.wanted = wanted
        self.numbers: list[bytes] = []

    def outermost(self, program: Program) -> tuple[Program, tuple[DeviceArray, ...]]:
        """``program`` with wanted numbers as leading arguments, and their values. Its own numbers stay."""
        made: list[tuple[Var, Array]] = []
        equations: list[Equation] = []
        for e in program.equations:
            if e.op.name in HOLDERS:
                e, found = lifted(e.replaced(e.inputs, e.outputs, map_programs(e.params, self.visit)))
                made += found
            equations.append(e)
        inputs = (*(v for v, _ in made), *program.inputs)
        new = Program(inputs, equations, program.outputs, program.constvars, program.values, program.name)
        return new, tuple([cast(DeviceArray, x) for _, x in made])

    def visit(self, program: Program) -> Program:
        """``program`` with its wanted numbers as consts."""
        made: list[tuple[Var, Array]] = []
        equations: list[Equation] = []
        for e in program.equations:
            e = e.replaced(tuple([self._atom(a, made) for a in e.inputs]), e.outputs)
            if e.op.name in HOLDERS:
                e, found = lifted(e.replaced(e.inputs, e.outputs, map_programs(e.params, self.visit)))
                made += found
            equations.append(e)
        outputs: Sequence[Atom] = [self._atom(a, made) for a in program.outputs]
        consts = [*program.constvars, *(v for v, _ in made)]
        values = [*program.values, *(x for _, x in made)]
        return Program(program.inputs, equations, outputs, consts, values, program.name)

    def _atom(self, a: Atom, made: list[tuple[Var, Array]]) -> Atom:
        if not isinstance(a, Literal) or a.type.dtype not in dtypes.NUMBER:
            return a
        self.numbers.append(a.value.numpy().tobytes())  # pyright: ignore[reportAttributeAccessIssue]
        if not self.wanted(len(self.numbers) - 1):
            return a
        v = Var(a.type)
        made.append((v, a.value))
        return v
