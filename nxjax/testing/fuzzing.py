"""`fuzz`: random programs under random transforms, and damaged files, for a while; what goes wrong is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nxjax.errors import ParameterError

WHAT: Final = ("all", "programs", "parsers")


@dataclass
class Fuzzed:
    """What `fuzz` has tried.

    Attributes:
        tried: how many cases of each kind.
        failures: a text for each kind of failure: Python that does it again, and what is wrong as comments.

    >>> print(Fuzzed({"programs": 12}))
          12  programs
    no failure
    """

    tried: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{n:8d}  {name}" for name, n in self.tried.items()]
        end = f"{len(self.failures)} failures" if self.failures else "no failure"
        return "\n".join([*rows, end, *(f"\n{f}" for f in self.failures)])


def fuzz(seconds: float = 10.0, seed: int = 0, what: str = "all", *, cases: int | None = None) -> Fuzzed:
    """Try random programs and damaged files until the time is over.

    A random program is computed as it is and through up to four of `jit` (on each executor), `vmap`, `jvp`,
    `linearize`, `vjp`, `grad`, `checkpoint`, `scan`, `cond`, printing and parsing: values, shapes and dtypes are the
    same. Quantized networks are the same to the bit. A damaged file is read, or refused with an `NxError`.

    Args:
        seconds: how long; a case that has begun is ended.
        seed: of the first case; the next ones have the next seeds, so that a run can be done again.
        what: ``"programs"``, ``"parsers"``, ``"all"``, or the name of one of `nxjax.testing.fuzz_files.readers`.
        cases: how many rounds at most, for runs that are the same on every machine.

    Raises:
        ParameterError: there is no such ``what``.

    >>> found = fuzz(seconds=60, what="program text", cases=2)
    >>> found.failures
    []
    """
    targets = _targets(what)
    result = Fuzzed(dict.fromkeys((name for name, _, _ in targets), 0))
    seen: set[tuple[str, str]] = set()
    end = time.monotonic() + seconds
    rounds = 0
    while (cases is None or rounds < cases) and time.monotonic() < end:
        for name, share, one in targets:
            for k in range(share):
                if time.monotonic() >= end:
                    break
                found = one(seed + rounds * share + k)
                result.tried[name] += 1
                # One of a kind is enough: alike are those whose last comments begin alike.
                kind = (name, found[found.find("\n# ") :][:60])
                if found and kind not in seen:
                    seen.add(kind)
                    result.failures.append(found)
        rounds += 1
    return result


def _targets(what: str) -> list[tuple[str, int, Callable[[int], str]]]:
    targets: list[tuple[str, int, Callable[[int], str]]] = []
    if what in ("all", "programs"):
        from nxjax.testing import fuzz_programs

        targets += [("programs", 10, fuzz_programs.one), ("quantized networks", 1, fuzz_programs.quantized)]
    if what != "programs":
        from nxjax.testing import fuzz_files

        readers = fuzz_files.readers(None if what in ("all", "parsers") else what)
        if not readers:
            raise ParameterError(
                "fuzz: what is to be tried", got=repr(what), expected=", ".join([*WHAT, *fuzz_files.names()])
            )
        for r in readers.values():
            targets.append((r.name, r.share, lambda seed, r=r: fuzz_files.one(r, seed)))
    return targets
