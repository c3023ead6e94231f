"""`nxjax.hardware.amd`: AMD's NPU by the names of its own tools: devices, programs, sessions, sensors, power.

XDNA programs run through XRT (`Runtime`, `Artifact`), ONNX models through ONNX Runtime's provider (`hybrid_session`).
If something is missing, the error names it.
"""

from nxjax.vendors.amd.power import AdvancedNPUOptimizer
from nxjax.vendors.amd.vitisai_session import HybridSession, hybrid_session
from nxjax.vendors.amd.xrt import Npu, devices, unavailable
from nxjax.vendors.amd.xrt_artifact import XrtArtifact as Artifact
from nxjax.vendors.amd.xrt_artifact import XrtBuffer as Buffer
from nxjax.vendors.amd.xrt_program import XrtProgram
from nxjax.vendors.amd.xrt_runtime import XrtRuntime as Runtime
from nxjax.vendors.amd.xrt_runtime import close_shared

__all__ = [
    "AdvancedNPUOptimizer", "Artifact", "Buffer", "HybridSession", "Npu", "Runtime", "XrtProgram", "close_shared",
    "devices", "hybrid_session", "unavailable",
]  # fmt: skip
