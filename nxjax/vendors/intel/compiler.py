"""Intel's NPU compiler, called in a process of its own: whether it is here, what it takes, and what it makes.

``query_model`` promises more than the compiler holds, so a model counts as taken only once it has been compiled. Knows
models as files and OpenVINO's names for operations; what a graph's nodes are called is the caller's business.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final

from nxjax.backends.tools import NO_MODEL, ask, doubt, read, refuses
from nxjax.lower.placement import Cost
from nxjax.vendors.intel import child as intel_child

# Names a Python whose OpenVINO has the compiler, such as one of a folder that `tools.intel_npu` made.
VARIABLE: Final = "OPENVINO_NPU_PYTHON"
_COMPILER: Final = "*openvino_intel_npu_compiler*"
_INTEL: Final = "0x8086"
_LATENCY: Final = re.compile(r"Estimated inference latency: ([\d.]+) us")
_OPERATIONS: Final = {
    "float operations": re.compile(r"Total number of FPOps: (\d+)"),
    "integer operations": re.compile(r"Total number of INTOps: (\d+)"),
}
# OpenVINO's words where the compiler, its device or its settings are wrong, and not the model.
_ELSEWHERE: Final = re.compile(
    r"cannot load library|loading failed|could not find an npu device|no backend|unknown value for platform"
    r"|unsupported (configuration|property|option)|not registered",
    re.IGNORECASE,
)
_NOISE: Final = re.compile(r"^(Exception from .*|Check '.*|\s*)$|^\[\w+\] ")


def libraries() -> list[str]:
    """Files of the compiler that this Python's OpenVINO would load; looked for, not opened."""
    spec = importlib.util.find_spec("openvino")
    places = [os.path.join(p, "libs") for p in (spec.submodule_search_locations or ())] if spec else []
    return sorted(f for p in places for f in glob.glob(os.path.join(p, _COMPILER)))


def interpreter() -> str:
    """The Python that is asked: the one that `VARIABLE` names, or this one where its OpenVINO has the compiler.

    Empty if there is neither.
    """
    return os.environ.get(VARIABLE) or (sys.executable if libraries() else "")


def vendors(pattern: str) -> bool:
    """Whether any device file that Linux lists under ``pattern`` is Intel's."""
    for name in glob.glob(pattern):
        try:
            if Path(name).read_text().strip() == _INTEL:
                return True
        except OSError:
            continue
    return False


def npu_present() -> bool:
    """Whether Linux's driver shows an Intel NPU."""
    return vendors("/sys/class/accel/accel*/device/vendor")


def gpu_present() -> bool:
    """Whether Linux's driver shows an Intel GPU."""
    return vendors("/sys/class/drm/renderD*/device/vendor")


@final
@dataclass
class CompilerReply:
    """What the compiler said of one model.

    Attributes:
        blob: the compiled model; None if there is none.
        error: why there is none.
        refused: whether that is the compiler's own word; if not, the compiler did not come to answer.
        supported: the operations that ``query_model`` says the NPU takes; None if it was not reached.
        devices: what OpenVINO found on the machine.
        cost: the compiler's estimates.
        command: how its process was called.
        status: that process's exit status.
        version: of the OpenVINO that was asked; empty if it did not say.
    """

    blob: bytes | None
    error: str = ""
    supported: frozenset[str] | None = None
    devices: Sequence[str] = ()
    refused: bool = False
    cost: Cost = field(default_factory=Cost)
    command: str = ""
    status: int | None = None
    version: str = ""


def compile_model(
    xml: bytes,
    weights: bytes,
    config: Mapping[str, str],
    another: Callable[[], bytes] | None = None,
    seconds: float | None = None,
) -> CompilerReply:
    """Ask for one model, for so many seconds; never raises for what the compiler does.

    ``another``: a model without weights that its file is held against (`nxjax.backends.tools.doubt`).
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.xml").write_bytes(xml)
        (place / "model.bin").write_bytes(weights)
        (place / "request.json").write_text(json.dumps(dict(config)))
        done = ask([interpreter() or sys.executable, intel_child.__file__, folder], folder, seconds)
        said = done.said
        path = place / "report.json"
        blob = place / "model.blob"
        reply = partial(CompilerReply, command=done.command, status=done.status)
        try:
            report = json.loads(read(path)) if path.exists() else {}
            data = read(blob) if report.get("compiled") else b""
        except (OSError, ValueError, RecursionError) as error:
            return reply(None, f"its answer cannot be read: {error}")
        reply = partial(reply, version=str(report.get("version", "")).split("-")[0])
        found = report.get("supported")
        supported = None if found is None else frozenset(map(str, found))
        devices = tuple(map(str, report.get("devices", ())))
        if report.get("refused"):
            why = words(report["refused"])
            refused = not done.trouble and refuses(why) and not _ELSEWHERE.search(why)
            return reply(None, f"{done.trouble}: {why}" if done.trouble else why, supported, devices, refused=refused)
        if not data or done.trouble:
            ended = done.trouble or "its process ended with status 0"
            return reply(None, f"{ended}: {words(said)[-500:] or 'it said nothing'}", supported, devices)
        reply = partial(reply, supported=supported, devices=devices)
        besides = lambda model: compile_model(model, b"", config).blob or b""
        if another is not None and (
            why := doubt(
                data, (xml, weights), lambda: besides(NO_MODEL), intel_child.__file__,
                settings=json.dumps([interpreter(), dict(config)]), of_another=lambda: besides(another()),
            )
        ):  # fmt: skip
            return reply(None, why)
        return reply(data, cost=estimates(said))


def words(text: str) -> str:
    """An exception's text without the file names and log lines around what is meant for people.

    >>> words("Exception from src/x.cpp:54:\\nCompilation failed. Compiler returned msg:\\nMax striding levels")
    'Compilation failed. Compiler returned msg: Max striding levels'
    """
    return " ".join(line.strip() for line in text.splitlines() if not _NOISE.match(line))


def estimates(said: str) -> Cost:
    """The compiler's figures in what it printed.

    >>> str(estimates("Estimated inference latency: 18.73 us in dpu frequency 1850.00 MHz"))
    'chip time: 1.873e-05 s (vendor-estimate)'
    """
    cost = Cost()
    found = _LATENCY.search(said)
    if found:
        cost.add("chip time", float(found[1]) * 1e-6, "s", "vendor-estimate")
    for name, pattern in _OPERATIONS.items():
        counted = pattern.search(said)
        if counted:
            cost.add(name, float(counted[1]), "operations", "vendor-estimate")
    return cost
