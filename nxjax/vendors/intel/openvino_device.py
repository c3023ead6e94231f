"""The backend ``openvino-gpu``: programs on an Intel GPU through OpenVINO, as a device of `jit`.

The path is that of the target of this name: a program becomes an `NpuGraph`, that an OpenVINO model, which the GPU's
plugin compiles, here with float32 arithmetic asked for. Weights that a function closes over are constants of the model.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, final

from nxjax.backends import extras
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.evidence import Label
from nxjax.backends.extras import installed
from nxjax.errors import LoweringError
from nxjax.lower.npu.lower import lower, lowerable
from nxjax.trace.core import Op
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.types import ArrayType
from nxjax.vendors.intel import compiler as intel_compiler
from nxjax.vendors.intel.openvino_program import OpenVinoExecutable
from nxjax.vendors.intel.openvino_run import core
from nxjax.vendors.intel.openvino_run import version as runtime_version
from nxjax.vendors.intel.table import RECURRENT

EXTRA: Final = "openvino"
# Where OpenCL's loader finds drivers (cl_khr_icd), by which OpenVINO drives GPUs.
_ICDS: Final = "/etc/OpenCL/vendors/*.icd"


def opencl_drivers() -> list[str]:
    """The OpenCL drivers that are announced on this machine."""
    place = os.environ.get("OCL_ICD_VENDORS", "")
    if place.endswith(".icd"):
        return [place] if os.path.exists(place) else []
    return sorted(glob.glob(os.path.join(place, "*.icd") if place else _ICDS))


@final
class OpenVinoGpuBackend(Backend):
    """Intel's GPUs.

    Args:
        device: OpenVINO's name of the device; its CPU plugin takes the same path.
    """

    name = "openvino-gpu"
    platform = "gpu"
    device_name = "openvino-gpu"
    priority = 3

    def __init__(self, device: str = "GPU") -> None:
        self.device = device
        self._device = Device(self.platform, 0, self, 0, self._details)

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``hardware``, or ``host`` where the CPU plugin stands in."""
        return "hardware" if self.device == "GPU" else "host"

    def available(self) -> tuple[bool, str]:
        if not installed("openvino"):
            return False, f"OpenVINO is not installed; pip install 'nxjax[{EXTRA}]'"
        if self.device == "GPU" and not intel_compiler.gpu_present():
            return False, "no Intel GPU on this machine (no /sys/class/drm/renderD* of Intel's)"
        if self.device == "GPU" and not opencl_drivers():
            return False, f"no OpenCL driver is installed ({_ICDS}): install Intel's compute runtime (intel-opencl-icd)"
        return True, f"OpenVINO {_version()}"

    def devices(self) -> list[Device]:
        return [self._device] if self.available()[0] else []

    def _details(self) -> Any:
        return SimpleNamespace(device_kind=str(core().get_property(self.device, "FULL_DEVICE_NAME")))

    def supports(self, op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[bool, str]:
        out = op.infer(*types, **params)
        inputs = [Var(t) for t in types]
        outputs = tuple(Var(t) for t in (out if op.multi else (out,)))
        found = lowerable(Equation(op, tuple(inputs), outputs, params))
        return found.ok, found.reason

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        ok, reason = self.available()
        if not ok:
            raise LoweringError("openvino-gpu: cannot run programs here", got=reason)

        return OpenVinoExecutable(program, self.device)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return str(lower(program, io="float", format="openvino", recurrent=RECURRENT))


def _version() -> str:
    """OpenVINO's release, without importing it where it is a package; it may be built from source."""
    return extras.version("openvino") or runtime_version()
