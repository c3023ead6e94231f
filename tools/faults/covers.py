"""Which tests call which function: every file of tests is run once over the tree as it is, in a process of its own.

So a fault is shown first to the tests that can see it, the quickest of them before the others. Kept as JSON lines, one
per file of tests; a file is run again when its text has changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from tools.faults import children

# What is planted in, and the tests that are asked: those that mirror it, then those of whole programs and of the faces.
FOLDERS: Final = (
    "nxjax/lower/cpu", "nxjax/kernels/cpu", "nxjax/backends/cpu", "nxjax/ops", "nxjax/transforms", "nxjax/quant",
    "nxjax/lower/passes",
)  # fmt: skip
ASKED: Final = (
    "kernels/cpu", "lower/cpu", "lower/passes", "backends/cpu", "ops", "transforms", "testing", "test_properties.py",
    "files", "test_testing.py", "lax", "numpy", "nn", "random", "scipy", "test_robustness.py", "experimental",
    "runtime",
    "trace", "profiling", "image", "extend", "test_ad_checkpoint.py", "test_errors.py",
    "test_interrupt.py", "config", "test_sharding.py", "debug", "quant",
    "lower/test_trip_count.py", "lower/test_stablehlo.py", "backends/xla",
)  # fmt: skip
_SECONDS: Final = 900.0


@final
@dataclass(slots=True)
class Cover:
    """One file of tests.

    Attributes:
        file: its path.
        seconds: how long it took, with calls noted.
        tests: names, in order.
        passed: seconds of each test that passes.
        digest: of the file's text.
        failed: tests that fail as things are, with what they say.
        calls: functions, as ``path:qualified name``, to the numbers of the tests that call them.
    """

    file: str
    seconds: float
    tests: list[str]
    passed: dict[str, float]
    calls: dict[str, list[int]]
    failed: list[list[str]] = field(default_factory=list[list[str]])
    digest: str = ""


def files(root: Path, asked: Iterable[str] = ASKED) -> list[str]:
    """Test files, in the order of ``asked``."""
    found: dict[str, None] = {}
    for name in asked:
        place = root / "tests" / name
        for path in [place] if place.is_file() else sorted(place.rglob("test_*.py")):
            found.setdefault(path.relative_to(root).as_posix())
    return list(found)


def load(path: Path) -> dict[str, Cover]:
    """What is known, by file; the last line counts."""
    if not path.exists():
        return {}
    return {(c := Cover(**json.loads(line))).file: c for line in path.read_text().splitlines()}


def stale(root: Path, path: Path) -> list[str]:
    """Files of tests that have not been run yet, or that were changed since."""
    known = load(path)
    return [f for f in files(root) if f not in known or known[f].digest != digest(root / f)]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def measure(tree: Path, path: Path, wanted: Sequence[str]) -> Iterable[Cover]:
    """Run ``wanted`` over ``tree`` and note them in ``path``."""
    for file in wanted:
        begun = time.monotonic()
        outcome = children.pytest_over(tree, [file], _SECONDS, stop=False, folders=FOLDERS)
        report: dict[str, Any] = outcome.report or {"failed": [[file, f"ended with {outcome.status}: {outcome.tail}"]]}
        cover = Cover(
            file, round(time.monotonic() - begun, 2), report.get("tests", []), report.get("passed", {}),
            report.get("calls", {}), report["failed"], digest(tree / file),
        )  # fmt: skip
        with path.open("a") as f:
            f.write(json.dumps(vars_of(cover)) + "\n")
        yield cover


def vars_of(cover: Cover) -> dict[str, Any]:
    return {name: getattr(cover, name) for name in Cover.__slots__}
