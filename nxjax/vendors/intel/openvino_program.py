"""Programs as OpenVINO models on a device of `jit`, compiled at the first call, with weights as constants."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.lower.npu.bind import bind
from nxjax.lower.npu.formats.openvino_writer import build
from nxjax.lower.npu.lower import lower, lowerable
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Program, Var
from nxjax.transforms.inline import inlined
from nxjax.vendors.intel.openvino_run import CPU, OpenVINOSession, open_session
from nxjax.vendors.intel.table import RECURRENT

# What is asked of a plugin: float16 is the GPU's default, and not what a program of float32 means.
_EXACT: Final[dict[str, Mapping[str, str]]] = {
    "GPU": {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"},
    "CPU": CPU,
}
# Models that are kept for other weights.
_KEPT: Final = 8


@final
class OpenVinoExecutable(Executable):
    """A program as an OpenVINO model, compiled when it is first called.

    Where OpenVINO has an operation for constant weights only (convolutions), the arrays that a call gives for them are
    constants of the model: arrays do not change, so that calls with the same ones share it.

    Args:
        program: without consts.
        device: OpenVINO's name of the device.
    """

    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.device = device
        self._weights: tuple[int, ...] | None = None
        # By the identity of the weights, which are kept with their model so that it stays theirs.
        self._sessions: dict[tuple[int, ...], tuple[OpenVINOSession, list[DeviceArray]]] = {}
        self._lock = threading.Lock()

    def _session(self, args: Sequence[DeviceArray]) -> OpenVINOSession:
        with self._lock:
            if self._weights is None:
                self._weights = weights_of(self.program)
            held = [args[i] for i in self._weights]
            key = tuple([id(x) for x in held])
            found = self._sessions.get(key)
            if found is None:
                program = bind(self.program, dict(zip(self._weights, held, strict=True)))
                graph = lower(program, io="float", format="openvino", recurrent=RECURRENT)
                found = open_session(build(graph), self.device, _EXACT[self.device]), held
                if len(self._sessions) >= _KEPT:
                    del self._sessions[next(iter(self._sessions))]
                self._sessions[key] = found
            return found[0]

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Run the model.

        Raises:
            UnsupportedOpsError: OpenVINO has no form of an operation; all of them with their lines.
            ExecutionError: the plugin refuses the model.
        """
        session = self._session(args)
        weights = self._weights or ()
        given = [np.asarray(x.numpy(), order="C") for i, x in enumerate(args) if i not in weights]
        found = zip(session(given), self.program.out_types, strict=True)
        return [DeviceArray(y.astype(t.dtype, copy=False).reshape(t.shape), t) for y, t in found]

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        """The model with what is held as constants of it."""
        return OpenVinoExecutable(bind(self.program, dict(enumerate(held))), self.device), []

    @property
    def text(self) -> str:
        """The graph that the model is made from; weights are zeros in it."""
        shown = {i: np.zeros(t.shape, t.dtype) for i, t in enumerate(self.program.in_types)}
        weights = weights_of(self.program) if self._weights is None else self._weights
        program = bind(self.program, {i: shown[i] for i in weights})
        return str(lower(program, io="float", format="openvino", recurrent=RECURRENT))


def weights_of(program: Program) -> tuple[int, ...]:
    """Positions of the inputs that an operation takes as constants only."""
    flat = inlined(program)
    places = {v: i for i, v in enumerate(flat.inputs)}
    found: set[int] = set()
    for e in flat.equations:
        operands = {v for v in e.inputs if isinstance(v, Var)}
        # What has no other operand would be computed beforehand, and not by the device.
        if len(operands) > 1 and not lowerable(e).ok:
            found.update(places[v] for v in operands if v in places and lowerable(e, {v}).ok)
    return tuple(sorted(found))
