"""What is installed and what can run here: the texts of ``nxjax info``, ten lines or all. Imports no vendor package."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final, get_args

from nxjax import version as release
from nxjax.backends import cache, registry
from nxjax.backends.evidence import Label
from nxjax.commands.command import command
from nxjax.config import config
from nxjax.config.table import NAMES
from nxjax.display.columns import columns

_CORE: Final = ("numpy", "ml_dtypes", "optree", "opt_einsum", "llvmlite")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extras() -> dict[str, dict[str, str | None]]:
    """Extra -> package -> installed version or None, as the package's own metadata lists them."""
    found: dict[str, dict[str, str | None]] = {}
    others: list[tuple[str, str]] = []
    try:
        listed = requires("nxjax") or []
    except PackageNotFoundError:  # a copy on the path, which nobody has installed
        listed = []
    for requirement in listed:
        if "extra ==" not in requirement:
            continue
        package, _, rest = requirement.split(";")[0].partition("[")
        for mark in "<>=!~ ":
            package = package.split(mark)[0]
        extra = requirement.split("extra ==")[1].strip().strip("\"'")
        packages = found.setdefault(extra, {})
        if package == "nxjax":
            others += [(extra, other.strip()) for other in rest.split("]")[0].split(",")]
        else:
            packages[package] = _version(package)
    # An extra that names others is all of them.
    for extra, other in others:
        found[extra].update(found.get(other, {}))
    return found


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    return columns(rows, indent="  ")


def _targets() -> dict[tuple[str, str], list[str]]:
    """Best label here and why no better one -> the targets for which that holds, sizes of one chip counted once."""
    from nxjax.deploy.targets import targets

    listed = targets()
    known = {t.name for t in listed}
    found: dict[tuple[str, str], list[str]] = {}
    for t in listed:
        if t.name.rpartition("-")[0] not in known:
            found.setdefault((t.label, t.reason), []).append(t.name)
    return found


def brief() -> str:
    """What is here in ten lines: each begins with what it is about, and the last says where there is more."""
    backends = {n: registry.get(n) for n in registry.names()}
    here = [n for n, b in backends.items() if b.available()[0]]
    found = _targets()
    counts = {label: 0 for label in get_args(Label) if any(label == best for best, _ in found)}
    for (label, _), names in found.items():
        counts[label] += len(names)
    of_extras = {extra: all(packages.values()) for extra, packages in extras().items()}
    absent = [extra for extra, complete in of_extras.items() if not complete]
    files, size = cache.size()
    set_here = sorted(n for n in os.environ if n.startswith("NXJAX_"))
    rows = [
        ("nxjax", str(release.__version__)),
        ("python", ", ".join((platform.python_version(), *(f"{p} {_version(p) or 'missing'}" for p in _CORE)))),
        ("machine", f"{platform.platform()}, {os.cpu_count()} CPUs"),
        ("devices", ", ".join(f"{d} ({d.backend.label})" for d in registry.devices())),
        ("backends", f"{', '.join(here)}; missing: {', '.join(n for n in backends if n not in here) or 'none'}"),
        ("targets", ", ".join(f"{count} {label}" for label, count in counts.items())),
        ("extras", f"{len(of_extras) - len(absent)} complete; missing: {', '.join(absent) or 'none'}"),
        ("cache", f"{config.cache_dir or 'off'}: {files} executables, {size / 2**20:.1f} MiB"),
        ("settings", ", ".join(set_here) or "none in the environment (NXJAX_...)"),
        ("more", "nxjax info --all: why something is missing, and how to get it; nxjax explain: errors and pages"),
    ]
    return "\n".join(columns(rows))


def text() -> str:
    """Versions, devices, backends, targets and extras with the reason for each that is missing, cache, settings."""
    lines = [f"nxjax {release.__version__}", "", "versions"]
    lines += _table([("python", platform.python_version()), *((p, _version(p) or "missing") for p in _CORE)])
    lines += [f"  {platform.platform()}, {os.cpu_count()} CPUs", "", "devices"]
    lines += _table([(str(d), d.backend.name, d.backend.label) for d in registry.devices()])
    lines += ["", "backends"]
    backends = [(n, registry.get(n)) for n in registry.names()]
    lines += _table(
        [(n, b.platform, "available" if b.available()[0] else "missing", b.available()[1]) for n, b in backends]
    )
    lines += ["", "targets"]
    lines += _table([(", ".join(names), label, reason) for (label, reason), names in _targets().items()])
    lines += ["", "extras"]
    rows: list[tuple[str, ...]] = []
    for extra, packages in extras().items():
        absent = [p for p, v in packages.items() if v is None]
        have = ", ".join(f"{p} {v}" for p, v in packages.items() if v is not None)
        state = f'missing {", ".join(absent)}; pip install "nxjax[{extra}]"' if absent else "complete"
        rows.append((extra, state, have))
    lines += _table(rows)
    files, size = cache.size()
    lines += ["", "cache", f"  {config.cache_dir or 'off'}: {files} executables, {size / 2**20:.1f} MiB"]
    lines += ["", "settings"]
    # A device is an object, which no variable of the environment holds.
    told = {name: "" if name == "default_device" else f"NXJAX_{name.upper()}" for name in NAMES}
    lines += _table([(name, repr(getattr(config, name)), told[name]) for name in NAMES])
    return "\n".join(lines)


@command
def main(all: bool = False) -> int:
    print(text() if all else brief())
    return 0
