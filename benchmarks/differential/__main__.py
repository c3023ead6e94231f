"""``python -m benchmarks.differential [AREA ...] [--seed N] [--only TEXT] [--list]``: see the package."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # JAX compiles each call: the values are the same

import argparse
import itertools
import subprocess
import sys
from collections import Counter

import numpy as np

from benchmarks.differential.areas import AREAS, cases
from benchmarks.differential.run import SAME, verdicts
from nxjax.commands.command import command

COLUMNS = ("functions", "answers", "same", "nearer", "other", "accepts", "refuse")
HEAD = f"{'area':<24} {' '.join(f'{column:>9}' for column in COLUMNS)}      right"


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.differential", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--seed", type=int, default=0, help="of the drawn inputs")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has TEXT in it")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases that is asked, such as 0.1")
    parser.add_argument("--list", action="store_true", help="print every difference")
    parser.add_argument("--all", action="store_true", help="print also what was nearer, accepted or refused by both")
    parser.add_argument("--fresh", action="store_true", help="ask JAX again what it has answered in earlier runs")
    given = parser.parse_args()
    if unknown := set(given.areas) - set(AREAS):
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    if len(given.areas) == 1:
        return one(given.areas[0], given)
    print(HEAD, flush=True)
    options = [x for x in sys.argv[1:] if x not in AREAS]
    worst = 0
    for area in given.areas or AREAS:  # each in a process of its own: compiled programs go with it
        done = subprocess.run([sys.executable, "-m", "benchmarks.differential", area, *options], check=False)
        worst = max(worst, abs(done.returncode))
    return worst


def one(area: str, given: argparse.Namespace) -> int:
    kinds: Counter[str] = Counter()
    functions: set[str] = set()
    chosen = [case for case in cases(area, given.seed) if given.only in case.name]
    drawn = np.random.default_rng(given.seed).random(len(chosen)) < given.share
    for verdict in verdicts(itertools.compress(chosen, drawn), fresh=given.fresh):
        kinds[verdict.kind] += 1
        functions.add(verdict.case.name)
        if (given.list and verdict.different) or (given.all and verdict.kind != "same"):
            print(verdict, flush=True)
    right = kinds["same"] + kinds["nearer"]
    answers = sum(kinds.values()) - kinds["accepts"] - kinds["both refuse"]  # what JAX has an answer to
    numbers = (answers, kinds["same"], kinds["nearer"], answers - right, kinds["accepts"], kinds["both refuse"])
    row = " ".join(f"{n:>9}" for n in (len(functions), *numbers))
    print(f"{area:<24} {row}  {100 * right / max(answers, 1):>7.2f} %  {_differences(kinds)}".rstrip(), flush=True)
    return 0


def _differences(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()) if kind not in (*SAME, "accepts"))


if __name__ == "__main__":
    sys.exit(main())
