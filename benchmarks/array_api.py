"""How much of the Array API standard's test suite passes: nxjax.numpy, nxjax, jax.numpy and array_api_strict.

``python -m benchmarks array_api --suite PATH``: PATH is a checkout of github.com/data-apis/array-api-tests with its
submodule. Every collected test counts, skipped ones too. Both libraries are asked for 64-bit defaults, without which
JAX has no 64-bit dtypes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers import package
from benchmarks.runner import Figure

VERSION = "2024.12"
EXAMPLES = 5  # that the suite draws per test
OURS = ("nxjax.numpy", "nxjax")
PEERS = ("jax.numpy", "array_api_strict")
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")


def counts(summary: str) -> tuple[int, int]:
    """Passed and all tests of pytest's last line.

    >>> counts("28 failed, 1338 passed, 14 skipped in 60.08s")
    (1338, 1380)
    """
    found = {kind: int(n) for n, kind in _COUNT.findall(summary)}
    return found.get("passed", 0), sum(found.values())


def passed(suite: Path, module: str) -> tuple[int, int]:
    """Passed and all tests of the suite for one namespace, in a process of its own."""
    command = (
        *(sys.executable, "-m", "pytest", "array_api_tests", "-q", "-p", "no:cacheprovider", "-W", "ignore"),
        *("--tb=no", "--disable-deadline", f"--max-examples={EXAMPLES}"),
    )
    settings = {
        "ARRAY_API_TESTS_MODULE": module,
        "ARRAY_API_TESTS_VERSION": VERSION,
        "NXJAX_ENABLE_X64": "1",
        "JAX_ENABLE_X64": "1",
    }
    done = subprocess.run(command, cwd=suite, env={**os.environ, **settings}, capture_output=True, text=True)
    found = counts(done.stdout.strip().rpartition("\n")[2])
    if not found[0]:
        raise RuntimeError(f"the suite does not run for {module}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def figures(suite: str) -> Iterator[Figure]:
    path = Path(suite)
    if not (path / "array_api_tests").is_dir():
        raise SystemExit(f"array_api: no checkout of array-api-tests at {suite or '--suite PATH'}")
    others = {module: passed(path, module)[0] for module in PEERS if package(module.partition(".")[0]) is not None}
    best = max(others, key=lambda module: others[module], default="")
    for module in OURS:
        ours, total = passed(path, module)
        note = ", ".join((f"of {total}", *(f"{peer} {n}" for peer, n in others.items())))
        name = f"Array API {VERSION}, {module}"
        yield Figure(name, ours, others.get(best), best, None, note, unit="passed", peers=dict(others.items()))
