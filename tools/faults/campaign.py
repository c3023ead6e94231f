"""Plant faults one at a time, and see who notices: the tests that call the function, then random programs.

Tests come in the order of how soon they may tell: one case of each test that calls the function, the quick ones first;
then all files with such tests; then the generator, for what is left of the time. Who fails, crashes or does not end has
caught the fault. A child that ran out of time or was ended by a signal is asked again without the fault, so that a busy
machine catches none.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tools.faults import children
from tools.faults.covers import Cover, digest
from tools.faults.sites import Fault, Site

_FIRST: Final = 25.0  # seconds of single tests, as they were measured
_SLOW: Final = 8.0  # times what was measured, and as many seconds: then a test hangs
_START: Final = 30.0


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one fault.

    Attributes:
        outcome: ``caught``, ``survived``, or ``stillborn``: it cannot be imported, so it counts for nothing.
        by: ``test``, ``generator`` or nobody.
        who: the test, or the seed.
        how: ``failure``, ``crash`` or ``no end``.
        said: the first words of the failure.
        seconds: until it was caught, or given up.
        asked: how many tests call the function.
    """

    outcome: str
    by: str = ""
    who: str = ""
    how: str = ""
    said: str = ""
    seconds: float = 0.0
    asked: int = 0


def callers(fault: Fault, covers: Mapping[str, Cover]) -> dict[str, list[str]]:
    """Files of tests -> the passing tests that call the function of ``fault``; files that mirror it come first."""
    exact, within = f"{fault.path}:{fault.function}", f"{fault.path}:{fault.function}."
    if not fault.function:
        within = f"{fault.path}:"
    found: dict[str, list[str]] = {}
    for cover in covers.values():
        numbers: set[int] = set()
        names = [n for n in cover.calls if n == exact or n.startswith(within)]
        for n in names:
            numbers.update(cover.calls[n])
        if names:
            found[cover.file] = [t for i, t in enumerate(cover.tests) if i in numbers and t in cover.passed]
    stem = Path(fault.path).stem
    folder = fault.path.removeprefix("nxjax/").rpartition("/")[0]

    def near(file: str) -> tuple[int, float]:
        mirrored = file == f"tests/{folder}/test_{stem}.py"
        return (0 if mirrored else 1 if file.startswith(f"tests/{folder}/") else 2, covers[file].seconds)

    return dict(sorted(found.items(), key=lambda item: near(item[0])))


def singles(found: Mapping[str, Sequence[str]], covers: Mapping[str, Cover], seconds: float = _FIRST) -> list[str]:
    """Tests to begin with: one case of each test, the quick ones first, then more cases, file by file."""
    first: list[tuple[float, str]] = []
    more: list[tuple[float, str]] = []
    for file, tests in found.items():
        seen: set[str] = set()
        for name in sorted(tests, key=lambda t: covers[file].passed[t]):
            base = name.partition("[")[0]
            (more if base in seen else first).append((covers[file].passed[name], name))
            seen.add(base)
    taken: list[str] = []
    spent = 0.0
    for duration, name in (*first, *more):
        if spent + duration <= seconds and len(taken) < 400:
            taken.append(name)
            spent += duration
    return taken


@final
class Campaign:
    """Faults in one copy of the tree.

    Args:
        tree: the copy; changed and put back for each fault.
        covers: which tests call which function, measured over the same tree.
        seconds: for each fault.
        seed: of the generator's first program.
        whole: the same tree without faults, to ask again.
    """

    def __init__(self, tree: Path, whole: Path, covers: Mapping[str, Cover], seconds: float, seed: int) -> None:
        self._tree = tree
        self._whole = whole
        self._covers = covers
        # Files whose tests are called what they were called.
        self._known = {f for f, c in covers.items() if (tree / f).exists() and digest(tree / f) == c.digest}
        self._seconds = seconds
        self._seed = seed

    def verdict(self, site: Site) -> Verdict:
        fault = site.fault
        changed = site.applied((self._tree / fault.path).read_text())
        begun = time.monotonic()
        try:
            ast.parse(changed)
        except SyntaxError:
            return Verdict("stillborn")
        with children.changed(self._tree, fault.path, changed):
            found = callers(fault, self._covers)
            asked = sum(map(len, found.values()))
            for names, measured in self._stages(found):
                left = begun + self._seconds - time.monotonic()
                if names and left > 0:
                    caught = self._tests(fault, names, min(_START + _SLOW * (measured + 5), 3 * left + _START), left)
                    if caught is not None:
                        return self._timed(caught, begun, asked)
            left = begun + self._seconds - time.monotonic()
            caught = self._generator(min(max(left, 20), 120)) if _computes(fault) else None
            return self._timed(caught or Verdict("survived"), begun, asked)

    def _timed(self, verdict: Verdict, begun: float, asked: int) -> Verdict:
        told = (verdict.outcome, verdict.by, verdict.who, verdict.how, verdict.said)
        return Verdict(*told, round(time.monotonic() - begun, 1), asked)

    def _stages(self, found: Mapping[str, Sequence[str]]) -> Iterable[tuple[list[str], float]]:
        """Names for pytest, and about how long they take."""
        names = singles({f: tests for f, tests in found.items() if f in self._known}, self._covers)
        file_of = {t: f for f, tests in found.items() for t in tests}
        # The first child also tells whether the package can be imported, so there is one even where no test is known.
        yield names or ["tests/test_config.py"], sum(self._covers[file_of[t]].passed[t] for t in names)
        for file in found:
            cover = self._covers[file]
            bad = [f"--deselect={name}" for name, _ in cover.failed]
            if cover.passed and (self._tree / file).exists():
                yield [file, *bad], cover.seconds

    def _tests(self, fault: Fault, names: Sequence[str], limit: float, left: float) -> Verdict | None:
        modules = ("nxjax", fault.path.removesuffix(".py").replace("/", "."))
        outcome = children.pytest_over(self._tree, names, min(limit, max(left, _START)), imported=modules)
        if outcome.status == children.CANNOT_IMPORT:
            return Verdict("stillborn", said=outcome.tail[-200:])
        failed: list[list[str]] = outcome.report.get("failed", [])
        if failed:
            return Verdict("caught", "test", failed[0][0], "failure", failed[0][1])
        if outcome.status in (0, 5):
            return None
        if outcome.status is None and limit > left:
            return None  # the time of this fault is over, not the test's
        how = "no end" if outcome.status is None else f"crash ({outcome.status})"
        at = outcome.running or names[0]
        if children.pytest_over(self._whole, [at], limit).status != 0:
            return None
        return Verdict("caught", "test", at, how, outcome.tail[-200:])

    def _generator(self, seconds: float) -> Verdict | None:
        arguments = ["fuzz", "--what", "programs", "--seconds", f"{seconds:.0f}", "--seed", str(self._seed)]
        outcome = children.module(self._tree, "nxjax", arguments, 2 * seconds + 60)
        if outcome.status == 0 or children.module(self._whole, "nxjax", arguments, 2 * seconds + 60).status != 0:
            return None
        how = {1: "failure", None: "no end"}.get(outcome.status, f"crash ({outcome.status})")
        return Verdict("caught", "generator", f"seed {self._seed}", how, outcome.tail[-300:])


def _computes(fault: Fault) -> bool:
    """Whether random programs can meet it: what runs on several devices or quantizes, they don't write."""
    return not any(part in fault.path for part in ("quant", "shard", "collectives", "bucket", "exchanges"))


def as_record(fault: Fault, verdict: Verdict, **more: Any) -> dict[str, Any]:
    """One line of the record."""
    fields = {name: getattr(fault, name) for name in Fault.__slots__}
    return {"id": fault.id, **fields, **{name: getattr(verdict, name) for name in Verdict.__slots__}, **more}
