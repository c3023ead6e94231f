"""Many small programs in the words of JAX's users, on nxjax and on every peer that has their names.

``python -m benchmarks breadth`` runs each with its first inputs, for about 0.3 s; ``--thorough`` with all of them, for
longer, and beside `torch.compile`. ``--areas`` names files of `benchmarks/breadth/areas`, or single programs as
``area.name``.

Results are compared with JAX's first. A program whose result differs is named, and its time is not measured. A peer
whose result differs means something else by the same names (``torch.std``), and is left out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence

from benchmarks.breadth.areas import AREAS, programs
from benchmarks.breadth.compare import differs
from benchmarks.breadth.libraries import PEERS, QUICK, nxjax_work, wide
from benchmarks.breadth.program import Inputs, Program
from benchmarks.breadth.table import PREFIX, RELEASES, history, table
from benchmarks.peers import Work, missing, times
from benchmarks.runner import Figure


class WrongResult(Exception):
    """nxjax's result is not JAX's."""


def works(program: Program, inputs: Inputs, peers: Sequence[str]) -> dict[str, Work]:
    """Ours first, then the peers' that give the same result.

    Raises:
        WrongResult: JAX's differs from ours.
    """
    arrays = program.arrays(inputs)
    found = {"nxjax": nxjax_work(program, arrays)}
    ours = found["nxjax"]()
    for who in peers:
        try:
            with warnings.catch_warnings(action="ignore"):  # peers' own, of names that they will change
                work = PEERS[who](program, arrays)
                result = None if work is None else work()
            found |= {} if work is None else {who: work}
        except Exception:  # it has not all of the program's names, or not with these meanings
            if who == "jax":
                raise
            continue
        if work is not None and (wrong := differs(ours, result, dtype=inputs.dtype, tolerance=program.tolerance)):
            if who == "jax":
                raise WrongResult(wrong)
            del found[who]
    return found


def measured(program: Program, inputs: Inputs, *, thorough: bool) -> Figure:
    """The smallest times of all in turn."""
    with wide(inputs.wide):
        made = works(program, inputs, tuple(PEERS) if thorough else QUICK)
        found = times(made, rounds=5, seconds=2.0) if thorough else times(made, rounds=4, seconds=0.3, pause=0.02)
    ours = found.pop("nxjax")
    best = min(found, key=lambda who: found[who], default="")
    note = ", ".join(f"{who} {found[who] / ours:.2f}x" for who in sorted(found, key=lambda who: found[who]))
    return Figure(PREFIX + program.title(inputs), ours, found.get(best), best, None, note, peers=found)


def chosen(areas: Sequence[str]) -> list[Program]:
    """The programs of the areas, and those named ``area.name``; of all areas where none is given."""
    known = {f"{p.area}.{p.name}": p for area in AREAS for p in programs(area)}
    return [p for name, p in known.items() if not areas or name in areas or p.area in areas]


def figures(areas: Sequence[str] = (), thorough: bool = False) -> Iterator[Figure]:
    """Measure, then print the table. The last figure is the number of wrong results."""
    kept, found, wrong = history(RELEASES), list[Figure](), dict[str, str]()
    for program in chosen(areas):
        for inputs in program.rows if thorough else program.rows[:1]:
            title = program.title(inputs)
            try:
                found.append(measured(program, inputs, thorough=thorough))
                yield found[-1]
            except Exception as error:  # the other programs are worth having
                wrong[title] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                print(f"WRONG: {title}: {wrong[title]}", file=sys.stderr, flush=True)
    print(table(found, kept))
    for title, why in wrong.items():
        print(f"WRONG: {title}: {why}")
    if missing():
        print(f"not compared with, since not installed: {', '.join(missing())}")
    yield Figure(f"{PREFIX}wrong results", len(wrong), None, "", None, unit="programs", most=0)
