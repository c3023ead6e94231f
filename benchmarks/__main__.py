"""``python -m benchmarks [name ...]``: run them all, or those named; print the ratios, keep the JSON.

``python -m benchmarks bars`` is the table of the CPU compiler: the works that have a bar, each beside its best peer.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.runner import Figure, keep
from nxjax.commands.command import command

NAMES = (
    "imports",
    "eager",
    "calls",
    "transformer",
    "memory",
    "quantization",
    "checkpoints",
    "ipu",
    "distributed",
    "compression",
    "predictions",
    "cpu",
    "convolutions",
    "products",
    "movement",
    "factorizations",
    "cpu_memory",
    "schedules",
    "hybrid_engine",
    "generation",
    "interop",
)
TABLE = "bars"  # made of rows of the others, so no part of "all"
LONG = ("nas", "tuning", "reproducible", "quantizers")  # asked for by name only
STANDARD = "array_api"  # needs a checkout of the standard's test suite


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = (TABLE, STANDARD, *LONG, *NAMES)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    parser.add_argument("--suite", default="", metavar="PATH", help=f"for {STANDARD}: a checkout of array-api-tests")
    given = parser.parse_args()
    names = given.names or NAMES
    if unknown := set(names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found: list[Figure] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        for figure in module.figures(given.suite) if name == STANDARD else module.figures():
            if name != TABLE:
                print(figure.line(), flush=True)
            found.append(figure)
    print(f"kept in {keep(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
