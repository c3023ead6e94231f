"""The command line: ``nxjax info``, ``explain``, ``cache``, ``sensors``, ``power``, ``fuzz``, ``generate``,
``doctor``."""

from __future__ import annotations

import importlib
import secrets
import sys
from collections.abc import Sequence
from typing import Any, Final

import nxjax
from nxjax.commands.command import Parser, command
from nxjax.display import pages
from nxjax.errors import NxError

# Commands of a room of their own, which is imported only if they are asked for.
_COMMANDS: Final = {"generate": "nxjax.generation.command", "doctor": "nxjax.doctor.command"}


def _command(name: str) -> Any:
    return importlib.import_module(_COMMANDS[name])


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; without one, `info`."""
    parser = Parser(prog="nxjax", description="JAX-style arrays for the chips that JAX forgot")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    info_parser = commands.add_parser("info", help="what is here and what can run: ten lines (the default)")
    info_parser.add_argument("--all", action="store_true", help="all versions, backends, targets, extras, settings")
    explain_parser = commands.add_parser("explain", help="what an error means and how to fix it; any page of the docs")
    explain_parser.add_argument("topic", nargs="*", help="such as ShapeError or quantization; without one, a list")
    cache_parser = commands.add_parser("cache", help="the on-disk executable cache")
    cache_parser.add_argument("action", choices=("size", "clear"))
    sensors_parser = commands.add_parser("sensors", help="temperature, power, load and clock of NPU, CPU and GPU")
    sensors_parser.add_argument("--over", type=float, default=1.0, help="seconds to watch counters for (1)")
    power_parser = commands.add_parser("power", help="the NPU's power mode: which it is, or set it")
    power_parser.add_argument("mode", nargs="?", help="default, powersaver, balanced, performance or turbo")
    power_parser.add_argument("--device", default="", help="PCI address, where there are several NPUs")
    fuzz_parser = commands.add_parser("fuzz", help="random programs and damaged files, for a while")
    fuzz_parser.add_argument("--seconds", type=float, help="how long (10, or until --cases are done)")
    fuzz_parser.add_argument("--cases", type=int, help="how many rounds at most; one has some of each kind")
    fuzz_parser.add_argument("--seed", type=int, help="of the first case; without it, one that is drawn and printed")
    fuzz_parser.add_argument("--jobs", type=int, default=1, help="processes (1); 0: none but this one")
    fuzz_parser.add_argument("--out", help="a folder that failures are written into, as Python files")
    fuzz_parser.add_argument("--what", default="all", help='"programs", "parsers", "all" or the name of a reader')
    generate_parser = commands.add_parser("generate", help="generates text and prints each token as it is made")
    doctor_parser = commands.add_parser("doctor", help="what each chip makes of a model's file")
    given = sys.argv[1:] if arguments is None else arguments
    for name, its in (("generate", generate_parser), ("doctor", doctor_parser)):
        if name in given[:1]:
            _command(name).arguments(its)
    options = parser.parse_args(arguments)

    if options.version:
        print(nxjax.__version__)
    elif options.command in _COMMANDS:
        return _command(options.command).run(options)
    elif options.command == "cache":
        from nxjax.backends import cache

        if options.action == "clear":
            print(f"removed {cache.clear()} executables")
        else:
            files, size = cache.size()
            print(f"{files} executables, {size} bytes")
    elif options.command == "sensors":
        from nxjax.backends.sensors import sensors

        print(sensors(options.over))
    elif options.command == "explain":
        return _explain("_".join(options.topic))
    elif options.command == "power":
        return _power(options.mode, options.device)
    elif options.command == "fuzz":
        from nxjax.testing import fuzzing

        seed = secrets.randbelow(2**40) if options.seed is None else options.seed
        asked = options.seconds, seed, options.what
        more = {"cases": options.cases, "jobs": options.jobs, "out": options.out}
        try:
            fuzzing.checked(*asked, **more)
            print(f"seed {seed}", flush=True)
            found = fuzzing.fuzz(*asked, **more)
        except NxError as error:
            print(error, file=sys.stderr)
            return 2
        print(found)
        print(f"seed {seed}, {found.seconds:.0f} s")
        return 1 if found.failures else 0
    else:
        from nxjax.commands import info

        return info.main(getattr(options, "all", False))
    return 0


def _explain(topic: str) -> int:
    try:
        print(pages.explained(topic) if topic else pages.listed(), end="")
    except NxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _power(mode: str | None, device: str) -> int:
    from nxjax.vendors.amd import power

    try:
        if mode is not None:
            power.set(mode, device)
        print(power.get(device))
    except NxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
