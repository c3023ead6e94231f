"""``python -m benchmarks [name ...]``: run them all, or those named; print the ratios, keep the JSON."""

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
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    found: list[Figure] = []
    for name in names:
        for figure in importlib.import_module(f"benchmarks.{name}").figures():
            print(figure.line(), flush=True)
            found.append(figure)
    print(f"kept in {keep(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
