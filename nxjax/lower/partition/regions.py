"""A flat program cut into regions: each a program of its own, in an order in which every value is made before use.

`cut` takes any grouping of equations that leaves no cycle between groups; what runs region by region is the program,
bit for bit. Which equations belong together is decided in `grouping`. Knows no unit and no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import final

from nxjax.errors import ParameterError, ProgramError
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Literal, Program, Var

# What runs a region: its program and its inputs to its results.
Runner = Callable[[Program, Sequence[Array]], Sequence[Array]]


@final
@dataclass(frozen=True, eq=False)
class Region:
    """Some equations of a program, as a program.

    Attributes:
        number: its place among the regions.
        program: takes ``inputs``, gives ``outputs``; holds the consts that it reads.
        equations: numbers of its equations in the whole program, ascending.
        inputs: variables of the whole program that it reads: the program's inputs or other regions' results.
        outputs: variables that it makes and that are read outside.
        after: regions that have to run before it, ascending: makers of its inputs, and what its effects follow.
    """

    number: int
    program: Program
    equations: tuple[int, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    after: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its scopes, or the scope that all of them are in; else the ops that it consists of."""
        scopes = list(dict.fromkeys(e.scope for e in self.program.equations if e.scope))
        common = _common(scopes) if scopes else ""
        if common:
            return common
        if scopes:
            return "+".join(scopes) if len(scopes) <= 3 else f"{scopes[0]}..{scopes[-1]}"
        names = list(dict.fromkeys(e.op.name for e in self.program.equations))
        return "+".join(names[:3]) + (f"+{len(names) - 3}" if len(names) > 3 else "")


def _common(scopes: Sequence[str]) -> str:
    """The scopes within which all are; nested ones by their common part."""
    parts = [s.split("/") for s in scopes]
    shared: list[str] = []
    for words in zip(*parts, strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return "/".join(shared)


@final
@dataclass(frozen=True, eq=False)
class Partition:
    """A program and its regions, in an order in which they can run.

    Attributes:
        program: the whole; its inputs and outputs are those of the partition.
        regions: numbered from 0; a region comes after those that it needs.
        owner: region of each equation.
    """

    program: Program
    regions: tuple[Region, ...]
    owner: tuple[int, ...]

    def maker(self) -> dict[Var, tuple[int, int]]:
        """Which region makes a variable that crosses a border, and as which of its results."""
        return {v: (r.number, i) for r in self.regions for i, v in enumerate(r.outputs)}

    def run(self, args: Sequence[Array], runner: Runner | None = None) -> list[Array]:
        """Region by region, in order; ``runner`` runs one, by default under the current trace.

        >>> p = nx.make_jaxpr(lambda x: nx.sin(x) * 2.0)(1.0)
        >>> parts = cut(p, [0, 1])
        >>> [float(y) for y in parts.run([nx.asarray(0.5)])] == [float(nx.sin(0.5) * 2.0)]
        True
        """
        run = runner or (lambda program, xs: program(*xs))
        p = self.program
        values: dict[Var, Array] = dict(zip(p.inputs, args, strict=True))
        for r in self.regions:
            values.update(zip(r.outputs, run(r.program, [values[v] for v in r.inputs]), strict=True))
        values.update(zip(p.constvars, p.values, strict=True))
        return [a.value if isinstance(a, Literal) else values[a] for a in p.outputs]


def dependencies(program: Program) -> list[set[int]]:
    """For each equation, those that have to run before it: makers of its operands, and the effect before an effect."""
    maker = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
    rows: list[set[int]] = []
    last: int | None = None
    for i, e in enumerate(program.equations):
        row = {maker[a] for a in e.inputs if isinstance(a, Var) and a in maker}
        if e.effect:
            if last is not None:
                row.add(last)
            last = i
        rows.append(row)
    return rows


def cut(program: Program, groups: Sequence[int]) -> Partition:
    """``program`` cut into the regions that ``groups`` names, one number per equation.

    Equations of one number make a region; numbers need not be consecutive. Regions are put into an order in which they
    can run, otherwise that of their first equations.

    Raises:
        ParameterError: not one number per equation.
        ProgramError: two groups need each other's results.

    >>> p = nx.make_jaxpr(lambda x: nx.cos(nx.sin(x)) + nx.tanh(x))(1.0)
    >>> [(r.name, r.after) for r in cut(p, [7, 7, 3, 7]).regions]
    [('tanh', ()), ('sin+cos+add', (0,))]
    """
    equations = program.equations
    if len(groups) != len(equations):
        raise ParameterError("partition: groups", got=len(groups), expected=f"one per equation: {len(equations)}")
    ordered = _ordered(program, groups)
    number = {group: i for i, group in enumerate(ordered)}
    owner = tuple(number[g] for g in groups)
    members: list[list[int]] = [[] for _ in ordered]
    for i, r in enumerate(owner):
        members[r].append(i)
    made_by = {v: owner[i] for i, e in enumerate(equations) for v in e.outputs}
    crossing = _crossing(program, owner, made_by)
    known = dict(zip(program.constvars, program.values, strict=True))
    needs: list[set[int]] = [set() for _ in ordered]
    for i, row in enumerate(dependencies(program)):
        needs[owner[i]].update(owner[j] for j in row if owner[j] != owner[i])
    regions: list[Region] = []
    for r, numbers in enumerate(members):
        inside = [equations[i] for i in numbers]
        read = dict.fromkeys(a for e in inside for a in e.inputs if isinstance(a, Var) and made_by.get(a) != r)
        inputs = tuple(v for v in read if v not in known)
        consts = tuple(v for v in read if v in known)
        outputs = tuple(v for e in inside for v in e.outputs if v in crossing)
        part = Program(inputs, inside, outputs, consts, [known[v] for v in consts], f"{program.name or 'region'}_{r}")
        regions.append(Region(r, part, tuple(numbers), inputs, outputs, tuple(sorted(needs[r]))))
    return Partition(program, tuple(regions), owner)


def _crossing(program: Program, owner: Sequence[int], made_by: dict[Var, int]) -> set[Var]:
    """Variables that equations make and that are read outside of their region."""
    found = {a for a in program.outputs if isinstance(a, Var) and a in made_by}
    for i, e in enumerate(program.equations):
        found.update(a for a in e.inputs if isinstance(a, Var) and made_by.get(a, owner[i]) != owner[i])
    return found


def _ordered(program: Program, groups: Sequence[int]) -> list[int]:
    """The groups in an order in which they can run; of several that can, the one that begins first."""
    before: dict[int, set[int]] = {}
    first: dict[int, int] = {}
    for i, (g, row) in enumerate(zip(groups, dependencies(program), strict=True)):
        first.setdefault(g, i)
        before.setdefault(g, set()).update(groups[j] for j in row if groups[j] != g)
    after: dict[int, list[int]] = {g: [] for g in before}
    waiting = {g: len(row) for g, row in before.items()}
    for g, row in before.items():
        for b in row:
            after[b].append(g)
    ready = [(first[g], g) for g, n in waiting.items() if not n]
    heapify(ready)
    done: list[int] = []
    while ready:
        _, g = heappop(ready)
        done.append(g)
        for b in after[g]:
            waiting[b] -= 1
            if not waiting[b]:
                heappush(ready, (first[b], b))
    if len(done) < len(before):
        stuck: Equation = program.equations[min(first[g] for g in waiting if waiting[g])]
        raise ProgramError(
            "partition: regions need each other's results",
            got=f"groups {sorted(g for g in waiting if waiting[g])}",
            expected="groups without a cycle between them",
            source=stuck.source,
        )
    return done
