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
    "generation_files",
    "interop",
)
TABLE = "bars"  # made of rows of the others, so no part of "all"
WIDE = "breadth"
CURVES = "scale"
LONG = (WIDE, CURVES, "nas", "tuning", "reproducible", "quantizers", "networks")  # asked for by name only
STANDARD = "array_api"  # needs a checkout of the standard's test suite


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = (TABLE, STANDARD, *LONG, *NAMES)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    parser.add_argument("--suite", default="", metavar="PATH", help=f"for {STANDARD}: a checkout of array-api-tests")
    parser.add_argument(
        "--areas", nargs="+", default=(), metavar="AREA", help=f"for {WIDE}: only these, or AREA.PROGRAM"
    )
    parser.add_argument(
        "--thorough", action="store_true", help=f"for {WIDE}: all inputs, for longer; for {CURVES}: to 10^9 elements"
    )
    given = parser.parse_args()
    options = {STANDARD: (given.suite,), WIDE: (given.areas, given.thorough), CURVES: (given.thorough,)}
    names = given.names or NAMES
    if unknown := set(names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found: list[Figure] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        for figure in module.figures(*options.get(name, ())):
            if name != TABLE:
                print(figure.line(), flush=True)
            found.append(figure)
    print(f"kept in {keep(found)}")
    return int(any(f.most is not None and f.ours > f.most for f in found))


if __name__ == "__main__":
    sys.exit(main())
