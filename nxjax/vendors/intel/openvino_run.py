"""An OpenVINO model on a device of this machine: one request kept, its tensors set once, and what precision it ran in.

Knows models and OpenVINO's devices; what they are built from is the caller's business. The host's CPU plugin is asked
for float32 arithmetic and no quantization of its own, so that it computes what the model says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends.extras import installed, need
from nxjax.errors import ExecutionError, ShapeError
from nxjax.lower.npu.formats.openvino_package import package
from nxjax.ops.base import NDArray

EXTRA: Final = "openvino"
# bfloat16 and activations quantized on the fly are the defaults of newer CPUs, and neither is what was asked for.
# Subgraphs that the plugin compiles in one piece ("snippets") are off: chains of quantized dense layers without bias
# come out wrong there, by any number of steps (2026.4.1, CPUs with AVX-512 VNNI, four rows and more).
CPU: Final[dict[str, str]] = {
    "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "SNIPPETS_MODE": "DISABLE",
}
_PLUMBING: Final = frozenset(("Const", "Input", "Output", "Reorder"))
_VNNI: Final = ("avx512_vnni", "avx_vnni", "avx10")


def openvino() -> Any:
    """The package, or an error that names the extra."""
    return package() if installed("openvino") else need("openvino", EXTRA, "OpenVINO")


@lru_cache(1)
def core() -> Any:
    """The process's one `openvino.Core`: plugins load once."""
    return openvino().Core()


def version() -> str:
    """OpenVINO's release, such as "2026.4.1"."""
    return str(openvino().__version__).split("-")[0]


def has_vnni() -> bool | None:
    """Whether this CPU multiplies bytes without saturating between additions; None if the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    return None if flags is None else any(name in flags for name in _VNNI)


@final
class OpenVINOSession:
    """A compiled model and its request. Calling it takes and gives arrays; calls wait for one another.

    Attributes:
        device: OpenVINO's name of the device, "CPU", "GPU" or "NPU".
        title: what the device calls itself.
    """

    def __init__(self, compiled: Any, device: str) -> None:
        ov = openvino()
        self.compiled = compiled
        self.device = device
        self.title = str(core().get_property(device, "FULL_DEVICE_NAME"))
        ran_on = [str(d).strip("()").split(".")[0] for d in compiled.get_property("EXECUTION_DEVICES")]
        if ran_on != [device]:
            raise ExecutionError("openvino: the model was put on another device", got=ran_on, expected=device)
        self.request = compiled.create_infer_request()
        self.lock = threading.Lock()
        self.buffers: list[NDArray] = []
        self.tensors: list[Any] = []
        for i, port in enumerate(compiled.inputs):
            # OpenVINO reads from these arrays: both they and the tensors around them have to live as long as it does.
            self.buffers.append(np.zeros(tuple(port.shape), port.element_type.to_dtype()))
            self.tensors.append(ov.Tensor(self.buffers[-1], shared_memory=True))
            self.request.set_input_tensor(i, self.tensors[-1])
        self.count = len(compiled.outputs)

    def __call__(self, args: Sequence[NDArray]) -> list[NDArray]:
        if len(args) != len(self.buffers) or any(a.shape != b.shape for a, b in zip(args, self.buffers, strict=False)):
            raise ShapeError(
                "openvino: arguments",
                got=[a.shape for a in args],
                expected=[b.shape for b in self.buffers],
            )
        with self.lock:
            for buffer, a in zip(self.buffers, args, strict=True):
                np.copyto(buffer, a, casting="no")
            self.request.infer()
            return [np.array(self.request.get_output_tensor(i).data) for i in range(self.count)]

    def measure(self, seconds: float = 0.3) -> float:
        """The shortest time of a run, in seconds, inputs as they are."""
        best, start = float("inf"), time.perf_counter()
        with self.lock:
            self.request.infer()
            while time.perf_counter() - start < seconds:
                before = time.perf_counter()
                self.request.infer()
                best = min(best, time.perf_counter() - before)
        return best

    def precisions(self, owner: Callable[[str], int | None]) -> dict[int, str]:
        """For each node, the precision that the device's own graph says its kernel runs in.

        ``owner`` says which node made an operation. Nodes that were folded away are absent.

        Raises:
            ExecutionError: the plugin cannot write down its own graph, as with 16-bit integers in some kernels.
        """
        found: dict[int, str] = {}
        try:
            ran = self.compiled.get_runtime_model().get_ordered_ops()
        except RuntimeError as error:
            raise ExecutionError("openvino: the plugin does not say what it runs", got=_words(error)) from error
        for op in ran:
            info: Mapping[str, Any] = op.get_rt_info()
            if text(info, "layerType") in _PLUMBING:
                continue
            names = text(info, "originalLayersNames").split(",")
            for name in names:
                node = owner(name)
                # The operation that bears the node's own name is its principal one: it may overwrite others.
                if node is not None and (node not in found or ":" not in name):
                    found[node] = text(info, "runtimePrecision")
        return found


def _words(error: RuntimeError) -> str:
    from nxjax.vendors.intel.compiler import words

    return words(str(error))


def text(info: Mapping[str, Any], key: str) -> str:
    """An entry of an operation's runtime information."""
    return str(info[key].astype(str)) if key in info else ""


def open_session(model: Any, device: str, config: Mapping[str, str]) -> OpenVINOSession:
    """Compile for a device of this machine, by name: no virtual device chooses another one silently.

    Raises:
        ExecutionError: the plugin refuses the model.
    """
    try:
        compiled = core().compile_model(model, device, dict(config))
    except RuntimeError as error:
        raise ExecutionError(f"openvino: the {device} plugin refuses the model", got=_words(error)) from error
    return OpenVINOSession(compiled, device)
