"""Which equations make a region: merged along data flow while a unit is left that runs all of it, and no cycle arises.

Two groups are merged only where that takes no unit away from the heavier one, and where parallel branches of some
weight stay apart, so that a scheduler has something to decide. Knows sets of units' names and weights in seconds, no
unit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, final

from nxjax.errors import ParameterError
from nxjax.lower.partition.regions import dependencies
from nxjax.trace.program import Program

# A branch lighter than this (seconds) is not worth a place of its own in a schedule.
LIGHT: Final = 20e-6
# At most so many regions are handed to a scheduler.
MOST: Final = 64


def grouped(
    program: Program,
    units: Sequence[frozenset[str]],
    seconds: Sequence[float],
    *,
    light: float = LIGHT,
    most: int = MOST,
) -> list[int]:
    """A group number per equation, for `regions.cut`.

    Args:
        program: flat.
        units: for each equation, the units that can run it.
        seconds: about how long each equation takes, on any unit; only compared with each other and ``light``.
        light: groups below this are merged into neighbours.
        most: about how many groups there may be; groups whose units have nothing in common are never merged.

    Raises:
        ParameterError: an equation that no unit runs, or lists of other lengths.

    >>> p = nx.make_jaxpr(lambda x: nx.cos(nx.sin(x)))(1.0)
    >>> npu, both = frozenset({"cpu"}), frozenset({"cpu", "npu"})
    >>> grouped(p, [both, both], [1.0, 1.0]), grouped(p, [both, npu], [1.0, 1.0])
    ([0, 0], [0, 1])
    """
    if not len(program.equations) == len(units) == len(seconds):
        raise ParameterError(
            "partition: units or seconds", got=(len(units), len(seconds)), expected=f"{len(program.equations)} each"
        )
    for e, found in zip(program.equations, units, strict=True):
        if not found:
            raise ParameterError(
                f"partition: no unit runs {e.op.name}", got="none", expected="at least one", source=e.source
            )
    groups = _Groups(program, units, seconds)
    groups.chains()
    groups.absorb(light)
    groups.shrink(most)
    return groups.numbers()


def joined(program: Program, groups: Sequence[int], units: Sequence[str], several: Collection[str] = ()) -> list[int]:
    """Groups with neighbours on one unit merged where nobody waits for more than before.

    A group and one that reads it, if all that read the first and all that the second reads are on that unit too; where
    a unit runs ``several`` at once, only chains.

    Args:
        groups, units: of each equation; all of a group are on one unit.

    >>> p = nx.make_jaxpr(lambda x: nx.cos(nx.sin(x)))(1.0)
    >>> joined(p, [0, 1], ["cpu", "cpu"]), joined(p, [0, 1], ["cpu", "npu"])
    ([0, 0], [0, 1])
    """
    found = _Groups(program, [frozenset((u,)) for u in units], [0.0] * len(units))
    first: dict[int, int] = {}
    for i, g in enumerate(groups):
        if first.setdefault(g, i) != i:
            found.merge(first[g], i)
    found.join(several)
    return found.numbers()


@final
class _Groups:
    """Groups in the making: a graph whose nodes are groups, kept free of cycles."""

    def __init__(self, program: Program, units: Sequence[frozenset[str]], seconds: Sequence[float]) -> None:
        n = len(program.equations)
        self.parent = list(range(n))
        self.units = list(units)
        self.seconds = list(seconds)
        self.before: dict[int, set[int]] = dict(enumerate(dependencies(program)))
        self.after: dict[int, set[int]] = {i: set() for i in range(n)}
        for i, row in self.before.items():
            for j in row:
                self.after[j].add(i)

    def numbers(self) -> list[int]:
        roots: dict[int, int] = {}
        return [roots.setdefault(self._root(i), len(roots)) for i in range(len(self.parent))]

    def _root(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def merge(self, a: int, b: int) -> None:
        """``b`` into ``a``."""
        self.parent[b] = a
        self.units[a] &= self.units[b]
        self.seconds[a] += self.seconds[b]
        for there, back in ((self.before, self.after), (self.after, self.before)):
            for other in there.pop(b):
                back[other].discard(b)
                if other != a:
                    there[a].add(other)
                    back[other].add(a)

    def _cyclic(self, a: int, b: int) -> bool:
        """Whether a way leads from ``a`` to ``b`` through others, so that merging them would close a circle."""
        ahead = [g for g in self.after[a] if g != b]
        seen = set(ahead)
        while ahead:
            for g in self.after[ahead.pop()]:
                if g == b:
                    return True
                if g not in seen:
                    seen.add(g)
                    ahead.append(g)
        return False

    def _costs_nothing(self, a: int, b: int) -> bool:
        """Whether merged groups run wherever the heavier of the two does."""
        both = self.units[a] & self.units[b]
        heavy = a if self.seconds[a] >= self.seconds[b] else b
        return bool(both) and both == self.units[heavy]

    def chains(self) -> None:
        """A group and the only one that reads it, which reads nothing else: there is nothing to decide between them."""
        for g in sorted(self.before):
            while g in self.after and len(self.after[g]) == 1:
                (b,) = self.after[g]
                if self.before[b] != {g} or self.units[b] != self.units[g]:
                    break
                self.merge(g, b)

    def absorb(self, light: float) -> None:
        """Light groups into neighbours that run where they do.

        Into what alone reads them, or what alone they read, or another light group: so no heavy branch comes to wait
        for another. A light group that no neighbour can take without losing a unit stays what it is.
        """
        changed = True
        while changed:
            changed = False
            for g in sorted(self.before, key=lambda i: (self.seconds[i], i)):
                if g in self.before and self.seconds[g] < light:
                    changed |= self._absorbed(g, light)

    def _absorbed(self, g: int, light: float) -> bool:
        ways = [(b, g, b, len(self.after[g]) == 1) for b in self.after[g]]
        ways += [(a, a, g, len(self.before[g]) == 1) for a in self.before[g]]
        ways.sort(key=lambda way: (-len(self.units[way[0]] & self.units[g]), -self.seconds[way[0]], way[0]))
        for other, a, b, alone in ways:
            free = alone or self.seconds[other] + self.seconds[g] < light
            if free and self._costs_nothing(other, g) and not self._cyclic(a, b):
                self.merge(other, g)
                return True
        return False

    def join(self, several: Collection[str]) -> None:
        """Neighbours of the same units, as `joined` says."""
        changed = True
        while changed:
            changed = False
            for a in sorted(self.after):
                for b in sorted(self.after.get(a, ())):
                    if self._free(a, b, several) and not self._cyclic(a, b):
                        self.merge(a, b)
                        changed = True
                        break

    def _free(self, a: int, b: int, several: Collection[str]) -> bool:
        """Whether nobody comes to wait for ``b`` who waits for ``a``, and ``b`` for nobody but those that it does."""
        if self.units[a] != self.units[b]:
            return False
        if not self.units[a].isdisjoint(several):
            return self.after[a] == {b} and self.before[b] == {a}
        return all(self.units[g] == self.units[a] for g in self.after[a] | self.before[b])

    def shrink(self, most: int) -> None:
        """The lightest neighbours first, until there are few enough."""
        while len(self.before) > most:
            pairs = ((self.seconds[a] + self.seconds[b], a, b) for a, row in self.after.items() for b in row)
            for _, a, b in sorted(pairs):
                if self.units[a] & self.units[b] and self._costs_nothing(a, b) and not self._cyclic(a, b):
                    self.merge(a, b)
                    break
            else:
                return
