"""The command line: ``nxjax info``, ``nxjax cache clear``, ``nxjax fuzz``, ``nxjax --version``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; without one, `info`."""
    parser = argparse.ArgumentParser(prog="nxjax", description="JAX-style arrays for the chips that JAX forgot")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("info", help="versions, devices, backends, extras, cache, settings (the default)")
    cache_parser = commands.add_parser("cache", help="the on-disk executable cache")
    cache_parser.add_argument("action", choices=("size", "clear"))
    fuzz_parser = commands.add_parser("fuzz", help="random programs and damaged files, for a while")
    fuzz_parser.add_argument("--seconds", type=float, default=10.0, help="how long (10)")
    fuzz_parser.add_argument("--seed", type=int, default=0, help="of the first case (0)")
    fuzz_parser.add_argument("--what", default="all", help='"programs", "parsers", "all" or the name of a reader')
    options = parser.parse_args(arguments)

    if options.version:
        import nxjax

        print(nxjax.__version__)
    elif options.command == "cache":
        from nxjax.backends import cache

        if options.action == "clear":
            print(f"removed {cache.clear()} executables")
        else:
            files, size = cache.size()
            print(f"{files} executables, {size} bytes")
    elif options.command == "fuzz":
        from nxjax.testing import fuzz

        found = fuzz(options.seconds, options.seed, options.what)
        print(found)
        return 1 if found.failures else 0
    else:
        from nxjax import info

        return info.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
