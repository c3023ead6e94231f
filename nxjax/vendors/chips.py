"""Which NPUs this machine has, read from the files that the kernel's drivers make. Opens no device, loads no SDK.

A chip can be used when its driver made its device file, the package that talks to it is installed, and its target says
that what is compiled here can reach it. Where that fails the reason is kept, so that "there is none" comes with one.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from nxjax.backends import target_registry as registry
from nxjax.backends.extras import installed
from nxjax.backends.target import Kind


def kinds() -> tuple[Kind, ...]:
    """The families that the registered targets have files for; what is built in before what is plugged in."""
    found = dict.fromkeys(kind for cls in registry.classes() for kind in cls.chips)
    return tuple(sorted(found, key=lambda kind: bool(kind.usb)))


@final
@dataclass(frozen=True)
class Chip:
    """An NPU of this machine: its family, where it was found, and why it cannot be used if it cannot."""

    kind: Kind
    place: str
    driver: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind.vendor} {self.kind.name}"

    @property
    def usable(self) -> bool:
        return not self.reason


def find(root: str | Path = "/") -> list[Chip]:
    """Every NPU whose device is below ``root``, usable ones first."""
    found = [chip for kind in kinds() for chip in _of_kind(kind, Path(root))]
    return sorted(found, key=lambda c: not c.usable)


def _of_kind(kind: Kind, root: Path) -> Iterator[Chip]:
    for place, driver in _places(kind, root):
        yield Chip(kind, place, driver, _missing(kind))


def _places(kind: Kind, root: Path) -> Iterator[tuple[str, str]]:
    for entry in sorted(root.glob("sys/class/accel/accel*")):
        driver = (entry / "device" / "driver").resolve().name
        if driver in kind.drivers:
            yield f"/dev/accel/{entry.name}", driver
    for pattern in kind.nodes:
        yield from (("/" + str(node.relative_to(root)), "") for node in sorted(root.glob(pattern)))
    if kind.usb:
        for entry in sorted(root.glob("sys/bus/usb/devices/*/idVendor")):
            if f"{_text(entry)}:{_text(entry.with_name('idProduct'))}" in kind.usb:
                yield f"usb {entry.parent.name}", ""
    if str(root) == "/" and (sys.platform, platform.machine()) in kind.systems:
        yield "this machine's SoC", ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _missing(kind: Kind) -> str:
    """Why a chip that is there cannot be used; empty if it can."""
    if not kind.module and not kind.target:
        return f"nxjax has neither a target nor a runtime for {kind.vendor} {kind.name}"
    if not kind.module:
        file = f"nx.compile(..., target={kind.target!r}) writes a file"
        return f"nxjax has no runtime for {kind.vendor} {kind.name}; {file}"
    if not installed(kind.module):
        return f"the package {kind.module} is not installed: pip install 'nxjax[{kind.extra}]'"
    if kind.target not in registry.names():
        return f"nxjax has no target {kind.target!r}"
    label, reason = registry.get(kind.target).here()
    # Without the vendor's own compiler or provider nothing that this machine makes reaches the chip.
    return (reason or f"target {kind.target} is {label}") if label in ("emitted", "host") else ""


def why_none(root: str | Path = "/", target: str = "") -> str:
    """Why no NPU, or none that ``target`` is for, can be used, in one sentence; empty if one can."""
    chips = [c for c in find(root) if target in ("", c.kind.target)]
    if any(c.usable for c in chips):
        return ""
    if chips:
        return "; ".join(f"{c.title} at {c.place}: {c.reason}" for c in chips)
    looked = ", ".join(f"{k.vendor} {k.name}" for k in kinds() if target in ("", k.target))
    return f"no NPU found on this machine ({platform.system()} {platform.machine()}); looked for {looked}"
