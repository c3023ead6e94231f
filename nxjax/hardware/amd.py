"""`nxjax.hardware.amd`: AMD's NPU by the names of its own tools: devices, programs, sessions, sensors, power.

XDNA programs run through XRT (`Runtime`, `Artifact`), ONNX models through ONNX Runtime's provider (`hybrid_session`).
What is not here is an error that says what is missing.
"""

from nxjax.backends.npu.vitisai_session import HybridSession, hybrid_session
from nxjax.backends.npu.xrt import Npu, devices, unavailable
from nxjax.backends.npu.xrt_artifact import XrtArtifact as Artifact
from nxjax.backends.npu.xrt_artifact import XrtBuffer as Buffer
from nxjax.backends.npu.xrt_program import XrtProgram
from nxjax.backends.npu.xrt_runtime import XrtRuntime as Runtime
from nxjax.backends.npu.xrt_runtime import close_shared
from nxjax.hardware.power import AdvancedNPUOptimizer

__all__ = [
    "AdvancedNPUOptimizer",
    "Artifact",
    "Buffer",
    "HybridSession",
    "Npu",
    "Runtime",
    "XrtProgram",
    "close_shared",
    "devices",
    "hybrid_session",
    "unavailable",
]
