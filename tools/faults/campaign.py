"""Plant faults one at a time, and see who notices: the tests that call the function, then random programs.

Tests come in the order of how soon they may tell: one case of each test that calls the function, the quick ones first;
then all files with such tests; then the generator, for a time of its own. Who fails, crashes or does not end has caught
the fault. Who crashed or did not end is asked again without the fault. All times are the processor's, so that a busy
machine changes nothing.
"""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tools.faults import children
from tools.faults.covers import Cover, digest
from tools.faults.sites import Fault, Site

_FIRST: Final = 25.0  # seconds of single tests, as they were measured
_SLOW: Final = 10.0  # times what was measured, and seconds more: then a test hangs
_START: Final = 20.0


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
        seconds: of the processor, until it was caught or given up.
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
    """Files of tests -> the passing tests that call the function of ``fault``; files that mirror it come first.

    Where none is known to call it, those that call anything of its file, or of its folder: it may be new.
    """
    exact, within = f"{fault.path}:{fault.function}", f"{fault.path}:{fault.function}."
    wider = (within, f"{fault.path}:", f"{fault.path.rpartition('/')[0]}/")
    known = [p for p in wider if any(n == exact or n.startswith(p) for c in covers.values() for n in c.calls)]
    within = known[0] if fault.function and known else wider[1]
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
        generator: seconds of random programs for what no test has caught; 0: none.
        seed: of the first program.
        whole: the same tree without faults, to ask again.
    """

    def __init__(
        self, tree: Path, whole: Path, covers: Mapping[str, Cover], seconds: float, generator: float, seed: int
    ) -> None:
        self._tree = tree
        self._whole = whole
        self._covers = covers
        # Files whose tests are called what they were called.
        self._known = {f for f, c in covers.items() if (tree / f).exists() and digest(tree / f) == c.digest}
        self._seconds = seconds
        self._programs = generator
        self._seed = seed

    def verdict(self, site: Site) -> Verdict:
        fault = site.fault
        changed = site.applied((self._tree / fault.path).read_text())
        try:
            ast.parse(changed)
        except SyntaxError:
            return Verdict("stillborn")
        found = callers(fault, self._covers)
        asked, used = sum(map(len, found.values())), 0.0
        caught: Verdict | None = None
        with children.changed(self._tree, fault.path, changed):
            for names in self._stages(found):
                if caught is None and used < self._seconds:
                    caught, seconds = self._tests(fault, names, self._seconds - used)
                    used += seconds
            if caught is None and self._programs and _computes(fault):
                caught, seconds = self._generator(self._programs)
                used += seconds
        verdict = caught or Verdict("survived")
        told = (verdict.outcome, verdict.by, verdict.who, verdict.how, verdict.said)
        return Verdict(*told, round(used, 1), asked)

    def _stages(self, found: Mapping[str, Sequence[str]]) -> Iterable[list[str]]:
        """What pytest is given, time after time."""
        # The first child also tells whether the package can be imported, so there is one even where no test is known.
        known = {f: t for f, t in found.items() if f in self._known}
        yield singles(known, self._covers) or ["tests/config/test_config.py"]
        for file in found:
            cover = self._covers[file]
            if cover.passed and (self._tree / file).exists():
                yield [file, *(f"--deselect={name}" for name, _ in cover.failed)]

    def _most(self, name: str) -> float:
        """How long a test may work."""
        cover = self._covers.get(name.partition("::")[0])
        return _START + _SLOW * (cover.passed.get(name, 1.0) if cover is not None else 1.0)

    def _tests(self, fault: Fault, names: Sequence[str], left: float) -> tuple[Verdict | None, float]:
        modules = ("nxjax", fault.path.removesuffix(".py").replace("/", "."))
        outcome = children.pytest_over(self._tree, names, max(left, _START), imported=modules, most=self._most)
        failed: list[list[str]] = outcome.report.get("failed", [])
        verdict = None
        if outcome.status == children.CANNOT_IMPORT:
            verdict = Verdict("stillborn", said=outcome.tail[-200:])
        elif failed:
            verdict = Verdict("caught", "test", failed[0][0], "failure", failed[0][1])
        elif outcome.status not in (0, 4, 5, None):
            hangs = outcome.status in (children.HANGS, -signal.SIGPROF)
            how = "no end" if hangs else f"crash ({outcome.status})"
            at = outcome.running or names[0]
            if children.pytest_over(self._whole, [at], 600, most=self._most).status == 0:
                verdict = Verdict("caught", "test", at, how, outcome.tail[-200:])
        return verdict, outcome.seconds

    def _generator(self, seconds: float) -> tuple[Verdict | None, float]:
        arguments = ["fuzz", "--what", "programs", "--seconds", f"{seconds:.0f}", "--seed", str(self._seed)]
        outcome = children.module(self._tree, "nxjax", arguments, 2 * seconds + 60)
        if outcome.status == 0 or children.module(self._whole, "nxjax", arguments, 2 * seconds + 60).status != 0:
            return None, outcome.seconds
        how = {1: "failure", None: "no end", children.HANGS: "no end"}.get(outcome.status, f"crash ({outcome.status})")
        return Verdict("caught", "generator", f"seed {self._seed}", how, outcome.tail[-300:]), outcome.seconds


def _computes(fault: Fault) -> bool:
    """Whether random programs can meet it: what runs on several devices or quantizes, they don't write."""
    return not any(part in fault.path for part in ("quant", "shard", "collectives", "bucket"))


def as_record(fault: Fault, verdict: Verdict, **more: Any) -> dict[str, Any]:
    """One line of the record."""
    fields = {name: getattr(fault, name) for name in Fault.__slots__}
    return {"id": fault.id, **fields, **{name: getattr(verdict, name) for name in Verdict.__slots__}, **more}
