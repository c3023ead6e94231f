"""The test suites of libraries written for JAX, on JAX and on nxjax.

    python -m tools.suites equinox build/equinox                # both, a process per file; cloned where it is not there
    python -m tools.suites flax build/flax --folder tests/linen --limit 300 --record build/flax.json
    python -m tools.suites flax build/flax --only linen_test.py --on nxjax

Runs in an environment that has the library, JAX and the dependencies of nxjax, at the versions that the suite is of. On
nxjax, `nx.interop.as_jax` comes first, so that the library is imported on top of it. The rate is the share of those
tests that pass on JAX which pass on nxjax, too. A file without a report, or late, has no test that passes.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
# What runs first in a process. JAX knows no device but the processor here.
_FIRST: Final = {
    "jax": "",
    "nxjax": "import nxjax as nx; nx.interop.as_jax(); ",
}
_RUN: Final = "import sys; {first}import pytest; sys.exit(pytest.main(sys.argv[1:]))"


class Suite(NamedTuple):
    """Where a library's tests are.

    Attributes:
        source: what is cloned, at ``tag``.
        folders: of tests, in it.
        excluded: why a file does not run, by its path in a folder.
    """

    source: str
    tag: str
    folders: tuple[str, ...]
    excluded: dict[str, str] = {}


SUITES: Final = {
    "equinox": Suite("https://github.com/patrick-kidger/equinox", "v0.13.8", ("tests",)),
    "optax": Suite("https://github.com/google-deepmind/optax", "v0.2.8", ("optax",)),
    "flax": Suite("https://github.com/google/flax", "v0.12.8", ("tests",)),
    "diffrax": Suite("https://github.com/patrick-kidger/diffrax", "v0.7.2", ("test",)),
    "numpyro": Suite(
        "https://github.com/pyro-ppl/numpyro",
        "0.22.0",
        ("test",),
        {"test_examples.py": "starts programs of its own, which `as_jax` does not reach"},
    ),
}


class Ran(NamedTuple):
    """What one file's tests came to.

    Attributes:
        outcomes: "passed", "skipped", or the first line of what went wrong, by the test's name.
        ended: "" or why there is no report.
        seconds: of the process.
    """

    outcomes: dict[str, str]
    ended: str
    seconds: float

    @property
    def passed(self) -> set[str]:
        return {name for name, outcome in self.outcomes.items() if outcome == "passed"}


def run(file: Path, folder: Path, on: str, limit: float, options: Sequence[str] = ()) -> Ran:
    """One file's tests in a process of their own, below ``folder``."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.xml"
        command = [
            sys.executable, "-W", "ignore", "-c", _RUN.format(first=_FIRST[on]), str(file), f"--junitxml={report}",
            "-q", "-p", "no:cacheprovider", "--tb=line", *options,
        ]  # fmt: skip
        env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        try:
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit)
            ended = "" if report.exists() else f"ended with {done.returncode}: {_last(done.stdout + done.stderr)}"
        except subprocess.TimeoutExpired:
            ended = f"ran longer than {limit:.0f} s"
        outcomes = outcomes_of(report.read_text()) if report.exists() else {}
    return Ran(outcomes, ended, round(time.monotonic() - begun, 1))


def outcomes_of(report: str) -> dict[str, str]:
    """What a JUnit report says of each test."""
    outcomes: dict[str, str] = {}
    for case in ET.fromstring(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        wrong = [c for c in case if c.tag in ("failure", "error")]
        if wrong:
            outcomes[name] = _last(wrong[0].get("message") or wrong[0].text or "no message")
        elif name not in outcomes:
            outcomes[name] = "skipped" if case.find("skipped") is not None else "passed"
    return outcomes


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if len(lines) == 1 else " | ".join(lines[:2])[:200] if lines else "nothing was said"


def files_of(folder: Path, only: Sequence[str] = (), excluded: Container[str] = ()) -> list[Path]:
    """The files of tests below ``folder``, by name."""
    found = sorted({*folder.rglob("test_*.py"), *folder.rglob("*_test.py")})
    return [f for f in found if (not only or f.name in only) and str(f.relative_to(folder)) not in excluded]


def compared(jax: Ran, ours: Ran) -> tuple[set[str], set[str]]:
    """The tests that pass on JAX, and those of them that do not on nxjax."""
    return jax.passed, jax.passed - ours.passed


def text(rows: dict[str, dict[str, Ran]]) -> str:
    """Rates by file, and what went wrong, by how many tests say it."""
    lines, wrong, total, kept = [], collections.Counter[str](), 0, 0
    for file, by in rows.items():
        if set(by) != set(_FIRST):
            (one,) = by.values()
            lines.append(f"{file}: {len(one.passed)} of {len(one.outcomes)} pass {one.ended}")
            wrong.update(o for o in one.outcomes.values() if o not in ("passed", "skipped"))
            continue
        passed, lost = compared(by["jax"], by["nxjax"])
        total, kept = total + len(passed), kept + len(passed) - len(lost)
        ended = "".join(f" ({on}: {r.ended})" for on, r in by.items() if r.ended)
        lines.append(f"{file}: {len(passed) - len(lost)} of {len(passed)} that pass on JAX{ended}")
        wrong.update(by["nxjax"].outcomes.get(name, by["nxjax"].ended or "not there") for name in lost)
    if total:
        lines.append(f"all: {kept} of {total}, {100 * kept / total:.1f} %")
    return "\n".join([*lines, *(f"{n:5} {message}" for message, n in wrong.most_common(40))])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.suites", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("library", choices=SUITES)
    parser.add_argument("source", type=Path, help="its repository; cloned where it is not there")
    parser.add_argument("--folder", nargs="*", help="of tests in it, instead of all")
    parser.add_argument("--only", nargs="*", default=[], help="files")
    parser.add_argument("--on", choices=_FIRST, nargs="*", default=list(_FIRST))
    parser.add_argument("--limit", type=float, default=300, help="seconds for each file")
    parser.add_argument("--record", type=Path, help="a JSON file of all outcomes")
    given, options = parser.parse_known_args(argv)
    suite = SUITES[given.library]
    source = given.source.resolve()
    if not source.exists():
        clone = ["git", "clone", "-q", "--depth", "1", "--branch", suite.tag, suite.source, str(source)]
        subprocess.run(clone, check=True)
    rows: dict[str, dict[str, Ran]] = {}
    for folder in (source / f for f in given.folder or suite.folders):
        for file in files_of(folder, given.only, suite.excluded):
            name = str(file.relative_to(source))
            rows[name] = {on: run(file, source, on, given.limit, options) for on in given.on}
            print(
                text({name: rows[name]}).splitlines()[0], *(f"{r.seconds} s" for r in rows[name].values()), flush=True
            )
            if given.record:
                record: Any = {f: {on: r._asdict() for on, r in by.items()} for f, by in rows.items()}
                given.record.write_text(json.dumps(record, indent=1))
    print("\n" + text(rows))
    for file, why in suite.excluded.items():
        print(f"{file} did not run: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
