"""What lies in memory while a tape runs, by names of values in place of bytes.

A `ByteRun` says of some bytes which value they are part of, where that value begins, and whose memory they were written
as. Names are numbers: what a step makes of which names. So two tapes that leave the same names have computed the same
thing, wherever their temporaries lie. Knows no step and no kernel.
"""

from __future__ import annotations

import bisect
import itertools
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.named_tuple import NamedTuple
from nxjax.lower.cpu.tape import Buffer

Repeats = tuple[tuple[int, int], ...]
Owner = Buffer | None
Cells = np.ndarray[Any, np.dtype[np.int32]]
UNKNOWN: Final = 0  # the name of what is not followed: more pieces than are worth it
_TOP: Final = 1 << 62  # beyond all places
_FEW: Final = 64  # runs up to which a strided box is taken run by run
_MOST: Final = 1 << 22  # cells of an extent, at most


class ByteRun(NamedTuple):
    """Bytes ``start`` to ``end``: those of value ``name`` that lies at ``base``, written as a part of ``owner``.

    ``owner``: None where only one buffer lies in the memory, so that copies of it have the very same runs.
    ``pattern``: there are many values, in cells of so many bytes; ``name`` is that of all of them.
    ``era``: when it was written, by a clock that ticks at the beginning of loops.
    """

    start: int
    end: int
    name: int
    base: int
    owner: Owner
    pattern: RunPattern | None = None
    era: int = 0


@final
class RunPattern:
    """Runs without number: ``ids`` of cells of ``size`` bytes from ``base`` on, into ``table``; 0 is a hole."""

    __slots__ = ("base", "ids", "size", "table")

    def __init__(self, ids: Cells, size: int, base: int, table: list[ByteRun | None]) -> None:
        self.ids, self.size, self.base, self.table = ids, size, base, table


class Missing(Exception):
    """Bytes ``start`` to ``end`` are not what is read there: nothing (``run`` is None), or another buffer's."""

    def __init__(self, start: int, end: int, run: ByteRun | None) -> None:
        super().__init__(start, end, run)
        self.start, self.end, self.run = start, end, run


@final
class MemoryContents:
    """The runs of one memory, in order, and where each begins; what is in none of them has not been written."""

    __slots__ = ("runs", "starts")

    def __init__(self, runs: Iterable[ByteRun] = ()) -> None:
        self.runs = list(runs)
        self.starts = [r.start for r in self.runs]

    def copied(self) -> MemoryContents:
        other = object.__new__(MemoryContents)
        other.runs, other.starts = self.runs.copy(), self.starts.copy()
        return other

    def whole(self, owner: Owner, lo: int, hi: int) -> ByteRun | None:
        """The one value of ``owner`` that all from ``lo`` to ``hi`` is a part of, if there is one."""
        i = bisect.bisect_right(self.starts, lo)
        if i:
            run = self.runs[i - 1]
            if run.end >= hi and run.owner is owner and run.pattern is None:
                return run
        return None

    def within(self, lo: int, hi: int) -> list[ByteRun]:
        """The runs between ``lo`` and ``hi``, cut to them."""
        starts, runs = self.starts, self.runs
        i = bisect.bisect_right(starts, lo)
        if i and runs[i - 1].end > lo:
            i -= 1
        found = runs[i : bisect.bisect_left(starts, hi, i)]
        if found:
            if found[0].start < lo:
                found[0] = found[0]._replace(start=lo)
            if found[-1].end > hi:
                found[-1] = found[-1]._replace(end=hi)
        return found

    def lay(self, run: ByteRun) -> None:
        """``run`` in place of all that lies there."""
        lo, hi = run.start, run.end
        starts, runs = self.starts, self.runs
        i = bisect.bisect_right(starts, lo)
        if i:
            last = runs[i - 1]
            if last.start == lo and last.end == hi:
                runs[i - 1] = run
                return
            free = last.end <= lo
        else:
            free = True
        if free and (i == len(starts) or starts[i] >= hi):
            starts.insert(i, lo)
            runs.insert(i, run)
        else:
            self.put([run], lo, hi)

    def put(self, new: Iterable[ByteRun], lo: int, hi: int) -> None:
        """``new`` in place of all that lies between ``lo`` and ``hi``."""
        starts, runs = self.starts, self.runs
        i = bisect.bisect_right(starts, lo)
        if i and runs[i - 1].end > lo:
            i -= 1
        j = bisect.bisect_left(starts, hi, i)
        new = list(new)
        if j > i:
            first, last = runs[i], runs[j - 1]
            if first.start < lo:
                new.insert(0, first._replace(end=lo))
            if last.end > hi:
                new.append(last._replace(start=hi))
        runs[i:j] = new
        starts[i:j] = [r.start for r in new]


def given(run: ByteRun) -> ByteRun:
    """``run`` in the memory of an argument: written before the tape begins, in memory where no other buffer lies."""
    p = run.pattern
    if p is not None:
        p = RunPattern(p.ids, p.size, p.base, [None if r is None else given(r) for r in p.table])
    return run._replace(owner=None, pattern=p, era=0) if run.owner or run.era or p is not None else run


# --- reading ---


def plain(runs: Iterable[ByteRun]) -> list[ByteRun]:
    """Runs without patterns, joined where one goes on with the other."""
    found: list[ByteRun] = []
    for run in runs:
        for r in [run] if run.pattern is None else _spread(run, run.pattern):
            last = found[-1] if found else None
            if last is not None and last.end == r.start and last[2:] == r[2:]:
                found[-1] = last._replace(end=r.end)
            else:
                found.append(r)
    return found


def _spread(run: ByteRun, p: RunPattern) -> list[ByteRun]:
    first, last = (run.start - p.base) // p.size, -(-(run.end - p.base) // p.size)
    ids = p.ids[first:last]
    cuts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    found: list[ByteRun] = []
    for a, b in itertools.pairwise(cuts):
        of = p.table[int(ids[a])]
        if of is not None:
            start, end = p.base + (first + a) * p.size, p.base + (first + b) * p.size
            found.append(of._replace(start=max(start, run.start), end=min(end, run.end)))
    return found


def read(space: MemoryContents, owner: Owner, at: int, lo: int, hi: int, repeats: Repeats = (), top: int = 0) -> int:
    """The name of all bytes of a box of ``owner``, as an operand at ``at`` sees them; raises `Missing`.

    The box is the run from ``lo`` to ``hi`` and its repetitions, up to ``top`` (found here, if it is 0). Which bytes a
    reader asks for it knows itself: they are no part of the name of those of one value.
    """
    top = top or hi + sum([(n - 1) * s for n, s in repeats])
    whole = space.whole(owner, lo, top)
    if whole is not None:
        return seen(whole, at)
    length = hi - lo
    few = not repeats or math.prod([n for n, _ in repeats]) <= _FEW
    if few:
        pieces: list[tuple[int, ByteRun]] = []
        for i, k in enumerate(sorted(starts(repeats))):
            found = space.within(lo + k, hi + k)
            if any(r.pattern is not None for r in found):
                break
            complete(found, owner, lo + k, hi + k)
            pieces += [(i * length + r.start - lo - k, r) for r in found]
        else:
            return _named(pieces, at, lo, top)
    made = cells(space, lo, top, [length, *(s for _, s in repeats)])
    if made is None:
        return UNKNOWN
    view = boxed(made, 0, length, repeats)
    ids = np.flatnonzero(np.bincount(view.reshape(-1), minlength=len(made.table))).tolist()
    runs = [made.table[i] for i in ids]
    for r, i in zip(runs, ids, strict=True):
        if r is None or r.owner is not owner:
            mask = np.zeros(made.ids.shape, np.bool_)
            boxed(RunPattern(mask, made.size, lo, []), 0, length, repeats)[...] = True  # pyright: ignore[reportArgumentType]
            k = lo + int(np.flatnonzero((made.ids == i) & mask)[0]) * made.size
            raise Missing(k, k + made.size, r)
        if r.name == UNKNOWN:
            return UNKNOWN
    if len({(r.name, r.base) for r in runs if r is not None}) == 1:
        return _named([(0, r) for r in runs if r is not None], at, lo, top)
    names = np.array([0 if r is None else seen(r, at) for r in made.table], np.int64)
    # Cells are as long as they happen to be: names are taken where they change.
    flat = names[view].reshape(-1)
    cuts = np.flatnonzero(np.diff(flat, prepend=~flat[:1]))
    return hash((lo - at, top - at, (cuts * made.size).tobytes(), flat[cuts].tobytes()))


def complete(runs: Sequence[ByteRun], owner: Owner, lo: int, hi: int) -> None:
    """Raise unless ``runs`` are all that is from ``lo`` to ``hi``, and parts of ``owner``."""
    at = lo
    for run in runs:
        if run.start > at:
            raise Missing(at, run.start, None)
        if run.owner is not owner:
            raise Missing(run.start, run.end, run)
        at = run.end
    if at < hi:
        raise Missing(at, hi, None)


def seen(run: ByteRun, at: int) -> int:
    """The name of bytes of one value, as an operand at ``at`` sees it."""
    return run.name if run.base == at or run.name == UNKNOWN else hash((run.name, at - run.base))


def _named(pieces: Sequence[tuple[int, ByteRun]], at: int, lo: int, top: int) -> int:
    """The name of runs, each at its position among the bytes of the box."""
    places: list[int] = []
    names: list[int] = []
    for place, r in pieces:
        if r.name == UNKNOWN:
            return UNKNOWN
        name = seen(r, at)
        if not names or names[-1] != name:
            places.append(place)
            names.append(name)
    if len(names) == 1:
        return names[0]
    return hash((lo - at, top - at, array("q", places).tobytes(), array("q", names).tobytes()))


def _joined(runs: Sequence[ByteRun]) -> list[ByteRun]:
    found: list[ByteRun] = []
    for r in runs:
        last = found[-1] if found else None
        if last is not None and last.end == r.start and last.name == r.name and last.base == r.base:
            found[-1] = last._replace(end=r.end)
        else:
            found.append(r)
    return found


def old(space: MemoryContents, at: int, boxes: Iterable[tuple[int, int, Repeats]]) -> int:
    """The name of whatever lies in ``boxes``, holes included; unknown if a part is."""
    found: list[tuple[int, ...]] = []
    for lo, hi, repeats in boxes:
        top = hi + sum((n - 1) * s for n, s in repeats)
        runs = _joined(plain(space.within(lo, top)))
        if any(r.name == UNKNOWN for r in runs):
            return UNKNOWN
        found += [(r.start - at, r.end - at, r.name, at - r.base) for r in runs]
    return hash(tuple(found))


# --- writing ---


def write(
    space: MemoryContents, owner: Owner, name: int, at: int, lo: int, hi: int, repeats: Repeats = (), era: int = 0
) -> None:
    """A box of ``owner`` becomes a part of value ``name``, which lies at ``at``."""
    if hi <= lo:
        return
    if not repeats:
        space.lay(ByteRun(lo, hi, name, at, owner, None, era))
        return
    if math.prod(n for n, _ in repeats) <= _FEW:
        for k in starts(repeats):
            space.lay(ByteRun(lo + k, hi + k, name, at, owner, None, era))
        return
    top = hi + sum((n - 1) * s for n, s in repeats)
    made = cells(space, lo, top, [hi - lo, *(s for _, s in repeats)])
    if made is None:
        space.put([ByteRun(lo, top, UNKNOWN, lo, owner)], lo, top)
        return
    made.table.append(ByteRun(lo, top, name, at, owner, None, era))
    boxed(made, 0, hi - lo, repeats)[...] = len(made.table) - 1
    _store(space, owner, made, lo, top)


def change(
    space: MemoryContents, owner: Owner, name: int, at: int, lo: int, hi: int, repeats: Repeats = (), era: int = 0
) -> None:
    """As `write`, of what has been written only: nothing becomes whole by it."""
    top = hi + sum((n - 1) * s for n, s in repeats)
    if hi <= lo:
        return
    if not repeats:
        runs = [r._replace(name=name, base=at, owner=owner, era=era) for r in plain(space.within(lo, hi))]
        space.put(plain(runs), lo, hi)
        return
    made = cells(space, lo, top, [hi - lo, *(s for _, s in repeats)])
    if made is None:
        space.put([ByteRun(lo, top, UNKNOWN, lo, owner)], lo, top)
        return
    made.table.append(ByteRun(lo, top, name, at, owner, None, era))
    view = boxed(made, 0, hi - lo, repeats)
    view[view != 0] = len(made.table) - 1
    _store(space, owner, made, lo, top)


def _store(space: MemoryContents, owner: Owner, made: RunPattern, lo: int, top: int) -> None:
    space.put(_packed(made, owner, lo, top), lo, top)


def _packed(made: RunPattern, owner: Owner, lo: int, top: int) -> list[ByteRun]:
    """The cells from ``lo`` to ``top`` as runs: a few, or one with a pattern."""
    run = ByteRun(lo, top, UNKNOWN, lo, owner, made)
    few = np.count_nonzero(np.diff(made.ids)) < _FEW
    return plain([run]) if few else [run]


def starts(repeats: Repeats) -> list[int]:
    """Where the repetitions of a run begin."""
    found = [0]
    for n, s in repeats:
        found = [k + i * s for i in range(n) for k in found]
    return found


def cells(space: MemoryContents, lo: int, hi: int, steps: Sequence[int]) -> RunPattern | None:
    """All that lies between ``lo`` and ``hi`` as cells that ``steps`` are whole numbers of; None: too many."""
    runs = space.within(lo, hi)
    size = math.gcd(hi - lo, *steps)
    for r in runs:
        size = math.gcd(size, r.start - lo, r.end - lo)
        if r.pattern is not None:
            size = math.gcd(size, r.pattern.size, r.pattern.base - lo)
    if (hi - lo) // size > _MOST:
        return None
    table: list[ByteRun | None] = [None]
    ids = np.zeros((hi - lo) // size, np.int32)
    # A pattern that later writes have cut comes several times, and not all of its values are left.
    numbers: dict[int, int] = {id(None): 0}
    for r in runs:
        part = slice((r.start - lo) // size, (r.end - lo) // size)
        p = r.pattern
        if p is None:
            table.append(r)
            ids[part] = len(table) - 1
            continue
        first, last = (r.start - p.base) // p.size, -(-(r.end - p.base) // p.size)
        theirs = p.ids[first:last]
        ours = np.zeros(len(p.table), np.int32)
        for i in np.flatnonzero(np.bincount(theirs, minlength=1)).tolist():
            held = p.table[i]
            number = numbers.setdefault(id(held), len(table))
            if number == len(table):
                table.append(held)
            ours[i] = number
        skipped = (r.start - p.base) // size - first * (p.size // size)
        ids[part] = np.repeat(ours[theirs], p.size // size)[skipped : skipped + (r.end - r.start) // size]
    return RunPattern(ids, size, lo, table)


def boxed(made: RunPattern, first: int, length: int, repeats: Repeats) -> Cells:
    """The cells of a box that begins ``first`` bytes into ``made``."""
    size = made.ids.itemsize
    shape = (*(n for n, _ in reversed(repeats)), length // made.size)
    strides = (*(s // made.size * size for _, s in reversed(repeats)), size)
    return np.lib.stride_tricks.as_strided(made.ids[first // made.size :], shape, strides)


def repeat(space: MemoryContents, owner: Owner, lo: int, hi: int, stride: int, count: int) -> None:
    """What lies between ``lo`` and ``hi``, again ``count`` times, ``stride`` bytes further each."""
    if count <= 0 or hi <= lo:
        return
    row = [r for r in plain(space.within(lo, hi)) if r.owner is owner]
    if not row:
        return
    first, last = sorted((lo + stride, lo + stride * count))
    last += hi - lo
    whole = abs(stride) == hi - lo == sum([r.end - r.start for r in row])
    if count <= _FEW:
        moves = [k * stride for k in range(1, count + 1)]
        if whole and stride < 0:
            moves.reverse()
        rows = [ByteRun(r.start + m, r.end + m, r.name, r.base + m, owner, None, r.era) for m in moves for r in row]
        if whole:
            space.put(rows, first, last)
        else:
            for r in rows:
                space.lay(r)
    elif whole and all(r.name != UNKNOWN for r in row):
        name = hash(("rows", *((r.start - lo, r.end - lo, r.name, lo - r.base) for r in _joined(row))))
        space.put([ByteRun(first, last, name, first, owner, None, min([r.era for r in row]))], first, last)
    else:
        space.put([ByteRun(first, last, UNKNOWN, first, owner)], first, last)


# --- two ways ---


def merged(a: MemoryContents, b: MemoryContents, why: int) -> MemoryContents:
    """What is sure where either ``a`` or ``b`` holds, by a choice named ``why``."""
    found: list[ByteRun] = []
    left, right = plain(a.runs), plain(b.runs)
    i = k = 0
    while i < len(left) and k < len(right):
        x, y = left[i], right[k]
        start, end = max(x.start, y.start), min(x.end, y.end)
        if start < end and x.owner is y.owner:
            era = max(x.era, y.era)
            if x.name == y.name and x.base == y.base:
                found.append(x._replace(start=start, end=end, era=era))
            else:
                unknown = UNKNOWN in (x.name, y.name)
                name = UNKNOWN if unknown else hash((why, x.name, y.name, x.base - y.base))
                found.append(ByteRun(start, end, name, x.base, x.owner, None, era))
        if x.end <= end:
            i += 1
        if y.end <= end:
            k += 1
    return MemoryContents(plain(found))


def varied(space: MemoryContents, was: MemoryContents, era: int, now: int, why: int) -> MemoryContents:
    """``space`` with other names, made with ``why``, where another value was written since ``era`` and since ``now``.

    ``was``: what lay there just before ``now``.
    """
    found: list[ByteRun] = []
    for run in space.runs:
        if run.pattern is None and run.era < now:
            found.append(run)
            continue
        there = was.within(run.start, run.end)
        if run.pattern is not None or any(r.pattern is not None for r in there):
            found += _varied_cells(space, was, run, era, now, why)
            continue
        at = run.start
        for r in there:
            if _is_other(run, r, era, now):
                if at < r.start:
                    found.append(run._replace(start=at, end=r.start))
                found.append(run._replace(start=r.start, end=r.end, name=_variant(run, r, why)))
                at = r.end
        if at < run.end:
            found.append(run if at == run.start else run._replace(start=at))
    return MemoryContents(found)


def _is_other(run: ByteRun, was: ByteRun, era: int, now: int) -> bool:
    """Whether ``run`` was written since ``now``, over another value that was written since ``era``."""
    return run.era >= now and was.era >= era and (run.name, run.base) != (was.name, was.base)


def _variant(run: ByteRun, was: ByteRun, why: int) -> int:
    return UNKNOWN if UNKNOWN in (run.name, was.name) else hash((why, run.name))


def _varied_cells(
    space: MemoryContents, was: MemoryContents, run: ByteRun, era: int, now: int, why: int
) -> list[ByteRun]:
    """What `varied` makes of ``run``, cell by cell."""
    lo, hi = run.start, run.end
    after = cells(space, lo, hi, [])
    before = None if after is None else cells(was, lo, hi, [after.size])
    after = None if before is None else cells(space, lo, hi, [before.size])
    if after is None or before is None:
        return [run]
    n = len(before.table)
    pairs = after.ids.astype(np.int64) * n + before.ids
    for pair in np.unique(pairs).tolist():
        x, y = after.table[pair // n], before.table[pair % n]
        if x is not None and y is not None and _is_other(x, y, era, now):
            after.table.append(x._replace(name=_variant(x, y, why)))
            after.ids[pairs == pair] = len(after.table) - 1
    return _packed(after, run.owner, lo, hi)
