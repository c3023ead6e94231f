"""`fuzz`: random programs in random ways, and damaged files, for a while; what goes wrong is told.

Knows what there is to try and how results are told; processes are `nxjax.testing.workers`' business.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nxjax.display.progress import bars
from nxjax.errors import ParameterError
from nxjax.files.safe_io import write
from nxjax.runtime import clear_caches
from nxjax.testing import fuzz_files, fuzz_programs
from nxjax.testing.comparison import executors
from nxjax.testing.fuzz_programs import ProgramOutcome
from nxjax.testing.quantized import quantized
from nxjax.testing.ways import has_jax
from nxjax.testing.workers import KEPT, Try, Workers, serve

WHAT: Final = ("all", "programs", "parsers")
_JOBS: Final = 1024
# What a program's text calls.
_CALLED: Final = re.compile(r"\b(?:jax|jnp|lax)(?:\.\w+)+|\.\w+(?=\()")


@dataclass
class Fuzzed:
    """The result of `fuzz`.

    Attributes:
        tried: how many cases of each kind.
        failures: a text for each kind of failure: Python that reproduces it, with comments on what is wrong. Two are of
            one kind if their messages are equal and the second calls all functions of the first.
        failed: how many cases failed.
        without: executors to compare with and readers that are not installed.
        features: how many programs had each feature: rows of the table of productions, dtypes, executors, settings.
        seed: of the first case.
        seconds: how long it took.

    >>> print(Fuzzed({"programs": 12}))
          12  programs
    no failure
    """

    tried: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    without: list[str] = field(default_factory=list)
    features: Counter[str] = field(default_factory=Counter)
    seed: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        rows = [f"{n:8d}  {name}" for name, n in self.tried.items()]
        if self.features:
            cells = [f"{n:8d}  {name:<20}" for name, n in sorted(self.features.items(), key=lambda x: (-x[1], x[0]))]
            rows += ["of these with", *("".join(cells[i : i + 3]).rstrip() for i in range(0, len(cells), 3))]
        if self.without:
            rows.append(f"not installed, so left out: {', '.join(self.without)}")
        end = "no failure" if any(self.tried.values()) else "nothing was tried"
        if self.failures:
            end = f"{_counted(len(self.failures), 'failure')}, in {_counted(self.failed, 'case')}"
        return "\n".join([*rows, end, *(f"\n{f}" for f in self.failures)])


def fuzz(
    seconds: float | None = None,
    seed: int = 0,
    what: str = "all",
    *,
    cases: int | None = None,
    jobs: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Fuzzed:
    """Try random programs and damaged files until the time is over.

    A random program is the text of a function of JAX's public names, up to about thirty lines. It runs on the CPU
    compiler, and sometimes eagerly, on XLA and on JAX, with random settings, argument layouts, donation, threads and
    numbers of calls. Integers and moves must be equal bit for bit, floats are compared with float64. Quantized networks
    must be equal bit for bit. A damaged file must be read, or refused with an `NxError`.

    Args:
        seconds: time limit; a started case is finished. None: 10, or as long as ``cases`` take.
        seed: of the first case, from 0; later cases have the next seeds, so that a run can be repeated.
        what: ``"programs"``, ``"parsers"``, ``"all"``, or the name of one of `nxjax.testing.fuzz_files.readers`.
        cases: the largest number of rounds, for runs that are the same on every machine.
        jobs: number of processes; a case that crashes one, or never ends, is a failure. 0: run in this process.
        out: a folder for failures, as Python files.
        progress: a bar; None: in a terminal or notebook.

    Raises:
        ParameterError: an unknown ``what``, nothing to try, or ``out`` is not writable.
        MissingExtraError: a package of the reader ``what`` is not installed.

    >>> found = fuzz(seconds=60, what="program text", cases=2)
    >>> found.failures
    []
    """
    chosen = checked(seconds, seed, what, cases=cases, jobs=jobs, out=out)
    if seconds is None:
        seconds = 10.0 if cases is None else math.inf
    result = Fuzzed(dict.fromkeys(chosen, 0), seed=seed, without=_without(what))
    begun = time.monotonic()
    seen: list[tuple[tuple[str, str], frozenset[str]]] = []
    make = bars(progress, "fuzz") if math.isfinite(seconds) else None
    bar = make(total=round(seconds), unit="s", bar_format="{l_bar}{bar}| {n:.0f}/{total} s{postfix}") if make else None

    def took(name: str, one: ProgramOutcome) -> None:
        result.tried[name] += 1
        result.features.update(one.features)
        result.failed += bool(one.failure)
        said, calls = _kind(one.failure)
        # One of a kind is enough.
        if one.failure and not any(s == (name, said) and _covers(c, calls) for s, c in seen):
            seen.append(((name, said), calls))
            result.failures.append(one.failure)
            if out is not None:
                write(os.path.join(out, f"failure-{seed}-{len(result.failures)}.py"), one.failure.encode())
        if bar is not None:
            bar.n = min(round(time.monotonic() - begun), bar.total)
            bar.set_postfix(tried=sum(result.tried.values()), failures=len(result.failures))

    order = _rounds({name: share for name, (share, _) in chosen.items()}, seed, begun + seconds, cases)
    try:
        if jobs:
            Workers(f"from nxjax.testing.fuzzing import child; child({what!r})", jobs).run(order, took)
        else:
            for k, (name, number) in enumerate(order):
                took(name, chosen[name][1](number, None))
                if k % KEPT == KEPT - 1:
                    clear_caches()
    except KeyboardInterrupt:
        pass  # what was found until now is the result
    finally:
        if bar is not None:
            bar.close()
    result.seconds = time.monotonic() - begun
    return result


def checked(
    seconds: float | None,
    seed: int,
    what: str,
    *,
    cases: int | None,
    jobs: int,
    out: str | os.PathLike[str] | None,
) -> dict[str, tuple[int, Try]]:
    """The `targets` of `fuzz`, whose arguments these are. Raises what it raises for wrong ones."""
    for name, value, least in (("seed", seed, 0), ("jobs", jobs, 0), ("cases", 1 if cases is None else cases, 1)):
        if value < least:
            raise ParameterError(f"fuzz: {name}", got=value, expected=f"a whole number from {least}")
    if jobs > _JOBS:
        raise ParameterError("fuzz: jobs", got=jobs, expected=f"at most {_JOBS} processes")
    if seconds is not None and not seconds > 0:
        raise ParameterError("fuzz: seconds", got=seconds, expected="more than 0")
    chosen = targets(what)
    if out is not None:
        _writable(out)
    return chosen


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _kind(failure: str) -> tuple[str, frozenset[str]]:
    """What is wrong, without numbers, which differ from case to case, and what the program calls."""
    comments = [line for line in failure.splitlines() if line.startswith("# ") and not line.startswith("# seed")]
    said = "".join(c for c in comments[0][:60] if not c.isdigit()) if comments else ""
    program = failure.partition("\ntext = '''")[2].partition("'''")[0]
    return said, frozenset(_CALLED.findall(program))


def _covers(known: frozenset[str], calls: frozenset[str]) -> bool:
    """Whether what is known to fail with these calls is likely why this fails: it makes all of them, and others."""
    return known <= calls if known else not calls


def _writable(folder: str | os.PathLike[str]) -> None:
    """Make the folder for failures now: after a night it is too late to find that it cannot be."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ParameterError("fuzz: nothing can be written into `out`", got=f"{os.fspath(folder)}: {error}") from None


def _without(what: str) -> list[str]:
    """What a run leaves out, since it is not installed."""
    found = fuzz_files.missing() if what in ("all", "parsers") else []
    if what in ("all", "programs"):
        found = [*(n for n in ("xla",) if n not in executors()), *(["jax"] if not has_jax() else []), *found]
    return found


def _rounds(shares: Mapping[str, int], seed: int, end: float, cases: int | None) -> Iterator[tuple[str, int]]:
    """Cases by name and seed, until the clock says ``end``."""
    k = 0
    while cases is None or k < cases:
        for name, share in shares.items():
            for i in range(share):
                if time.monotonic() >= end:
                    return
                yield name, seed + k * share + i
        k += 1


def child(what: str) -> None:
    """What a process of `fuzz` runs."""
    serve({name: one for name, (_, one) in targets(what).items()}, {"programs": fuzz_programs.ended})


def targets(what: str) -> dict[str, tuple[int, Try]]:
    """What is tried, by name: how many in a round, and what tries the case of a seed."""
    found: dict[str, tuple[int, Try]] = {}
    if what in ("all", "programs"):
        found["programs"] = 10, fuzz_programs.attempt
        found["quantized programs"] = 2, lambda seed, begun: ProgramOutcome(quantized(seed))
    if what != "programs":
        readers = fuzz_files.readers(None if what in ("all", "parsers") else what)
        if not readers and what in fuzz_files.names():
            fuzz_files.needed(what)
        if not readers:
            names = map(repr, (*WHAT, *fuzz_files.names()))
            raise ParameterError("fuzz: what is to be tried", got=repr(what), expected=", ".join(names))
        for r in readers.values():
            found[r.name] = r.share, lambda seed, begun, r=r: ProgramOutcome(fuzz_files.one(r, seed))
    return found
