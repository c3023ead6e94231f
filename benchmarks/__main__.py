"""``python -m benchmarks [name ...]``: run them all, or those named; print the ratios, keep the JSON.

``python -m benchmarks bars`` is the table of the CPU compiler: the works that have a bar, each beside its best peer.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.runner import Figure, keep

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
    "cpu",
    "convolutions",
    "products",
    "movement",
    "cpu_memory",
)
TABLE = "bars"  # made of rows of the others, so no part of "all"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join((TABLE, *NAMES)))
    names = parser.parse_args().names or NAMES
    if unknown := set(names) - {TABLE, *NAMES}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join((TABLE, *NAMES))}")
    found: list[Figure] = []
    for name in names:
        for figure in importlib.import_module(f"benchmarks.{name}").figures():
            if name != TABLE:
                print(figure.line(), flush=True)
            found.append(figure)
    print(f"kept in {keep(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
