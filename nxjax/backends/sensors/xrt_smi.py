"""AMD's management tool ``xrt-smi``: its report of an NPU as JSON, and its command for the power mode.

Sub-commands, options and the report's layout are XRT's own (github.com/Xilinx/XRT: core/common/smi/smi_ryzen.cpp,
core/common/info_platform.cpp). Every value of the report is text, and "N/A" where nobody measured.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from nxjax.backends.sensors.reading import Reading, Roots, figure
from nxjax.errors import InvalidFileError

PROGRAM: Final = "xrt-smi"
SECONDS: Final = 30.0
# Environment variable that XRT's setup script sets to where XRT lies.
_HOME: Final = "XILINX_XRT"


def program(roots: Roots) -> str | None:
    """The tool's path; None where it is not installed."""
    found = roots.which(PROGRAM)
    if found is None and os.environ.get(_HOME):
        beside = Path(os.environ[_HOME], "bin", PROGRAM)
        found = str(beside) if beside.exists() else None
    return found


def missing() -> str:
    """Why there is no tool, in a few words."""
    return f"{PROGRAM} is not installed (it comes with AMD's XRT)"


def _said(output: str) -> str:
    """The line of the output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "ERROR" in line.upper()), lines[-1] if lines else "it printed nothing")


def examine(roots: Roots, bdf: str = "", report: str = "platform") -> dict[str, Any]:
    """What ``xrt-smi examine -r REPORT -f JSON`` writes.

    Raises:
        OSError: the tool is missing, fails, or does not end.
        InvalidFileError: what it wrote is not JSON.
    """
    tool = program(roots)
    if tool is None:
        raise FileNotFoundError(missing())
    with tempfile.TemporaryDirectory(prefix="nxjax_xrt_") as folder:
        # It refuses to write over a file, so the name has to be new.
        target = Path(folder, "report.json")
        command = [tool, "examine", *(["-d", bdf] if bdf else []), "-r", report]
        status, output = roots.run([*command, "-f", "JSON", "-o", str(target)], SECONDS)
        if status and not target.exists():
            # Newer generations have no -f: a file is JSON without being asked.
            status, output = roots.run([*command, "-o", str(target)], SECONDS)
        if not target.exists():
            raise OSError(f"{PROGRAM} examine ended with status {status}: {_said(output)}")
        content = target.read_text(errors="replace")
    return parsed(content)


def parsed(content: str) -> dict[str, Any]:
    """A report's text as data; `InvalidFileError` where it is none."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise InvalidFileError(f"{PROGRAM}: the report is not JSON", got=str(error)) from error
    if not isinstance(found, dict):
        raise InvalidFileError(f"{PROGRAM}: the report is not a table", got=type(found).__name__)
    return cast("dict[str, Any]", found)


def _platform(report: Mapping[str, Any]) -> Mapping[str, Any]:
    devices = report.get("devices")
    first = cast("list[Any]", devices)[0] if isinstance(devices, list) and devices else {}
    platforms = first.get("platforms") if isinstance(first, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    found = cast("list[Any]", platforms)[0] if isinstance(platforms, list) and platforms else {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _at(tree: object, *path: str) -> object:
    for key in path:
        tree = cast("dict[str, object]", tree).get(key) if isinstance(tree, dict) else None
    return tree


def power_mode(report: Mapping[str, Any]) -> str | None:
    """The power mode in a report; None where it has none."""
    mode = _at(_platform(report), "status", "power_mode")
    return str(mode).lower() if isinstance(mode, str) and mode != "not supported" else None


def reading(report: Mapping[str, Any]) -> Reading:
    """A report's temperature and power."""
    found = _platform(report)
    celsius = figure(_at(found, "thermal", "temp_C"))
    watts = figure(_at(found, "electrical", "power_consumption_watts"))
    reasons = [
        f"{what}: {PROGRAM} reports none"
        for what, value in (("temperature", celsius), ("power", watts))
        if value is None
    ]
    told = celsius is not None or watts is not None
    return Reading(celsius=celsius, watts=watts, source=f"{PROGRAM} examine" if told else "", why="; ".join(reasons))


def configure(roots: Roots, mode: str, bdf: str = "") -> None:
    """``xrt-smi configure --pmode MODE``: OSError with the tool's words where it fails."""
    tool = program(roots)
    if tool is None:
        raise FileNotFoundError(missing())
    status, output = roots.run([tool, "configure", *(["-d", bdf] if bdf else []), "--pmode", mode], SECONDS)
    if status or "ERROR" in output:
        words = _said(output)
        # The driver's answer comes through in the tool's words: "... IOCTL failed (err=13): Permission denied".
        refused = any(mark in output for mark in ("err=13", "err=1)", "ermission denied", "not permitted"))
        if refused:
            raise PermissionError(words)
        raise OSError(f"{PROGRAM} configure ended with status {status}: {words}")
