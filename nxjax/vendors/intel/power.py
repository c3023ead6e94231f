"""Power modes for Intel's NPU: properties of OpenVINO's NPU plugin that a compiled model is given.

NPU_TURBO asks for the highest clock that the platform's power allows; WORKLOAD_TYPE "EFFICIENT" lets other work go
first and the clock stay low (OpenVINO, "NPU Device"). Which of them there are is for the driver to say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from nxjax.errors import ParameterError

# The modes have the names of AMD's; nothing of OpenVINO's lies between default and turbo.
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "powersaver": {"WORKLOAD_TYPE": "EFFICIENT"},
    "balanced": {"WORKLOAD_TYPE": "DEFAULT"},
    "performance": {"WORKLOAD_TYPE": "DEFAULT"},
    "turbo": {"WORKLOAD_TYPE": "DEFAULT", "NPU_TURBO": "YES"},
}
HINTS: Final = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")


def properties(mode: str) -> dict[str, str]:
    """The plugin's properties for a mode.

    >>> properties("turbo")
    {'WORKLOAD_TYPE': 'DEFAULT', 'NPU_TURBO': 'YES'}
    """
    if mode not in MODES:
        raise ParameterError("intel-npu: no such power mode", got=repr(mode), expected=", ".join(MODES))
    return dict(MODES[mode])


def hint(value: str) -> str:
    """OpenVINO's name of a performance hint, or `ParameterError`."""
    if value.upper() not in HINTS:
        raise ParameterError("openvino: no such performance hint", got=repr(value), expected=", ".join(HINTS))
    return value.upper()


def applied(mode: str, supported: Collection[str]) -> tuple[dict[str, str], str]:
    """The properties of a mode that a driver has, and a note on what became of the mode.

    >>> applied("turbo", ["NPU_TURBO"])
    ({'NPU_TURBO': 'YES'}, 'power turbo: NPU_TURBO=YES; this driver has no WORKLOAD_TYPE')
    """
    wanted = properties(mode)
    known = {name: value for name, value in wanted.items() if name in supported}
    said = ", ".join(f"{name}={value}" for name, value in known.items()) or "as the driver has it"
    missing = ", ".join(name for name in wanted if name not in known)
    return known, f"power {mode}: {said}" + (f"; this driver has no {missing}" if missing else "")
