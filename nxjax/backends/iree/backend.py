"""The backend ``vulkan``: StableHLO through IREE on GPUs that have a Vulkan driver, and on a software rasteriser.

A rasteriser (Mesa's llvmpipe, SwiftShader) runs the same code on the host's CPU. It is labelled ``host``, listed
only where it is named, and never taken for ``device="gpu"``. The rest of this folder is imported once somebody asks
for more than whether a GPU was seen, since `nx.devices` asks all backends that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, final

from nxjax.backends.base import Backend, Device, Executable, ProgramPlacement
from nxjax.backends.evidence import Label
from nxjax.backends.iree import choose, compiler, drivers
from nxjax.backends.iree.buffers import IreeBuffer, held
from nxjax.backends.iree.programs import compiled, put, refusal, text_of
from nxjax.backends.iree.session import IreeSession
from nxjax.errors import ExecutionError, ParameterError
from nxjax.trace.array import DeviceArray, DeviceBuffer
from nxjax.trace.core import Op
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.sharding import Sharding
from nxjax.trace.types import ArrayType

if TYPE_CHECKING:
    from nxjax.backends.iree.choose import Choice
    from nxjax.backends.iree.facts import DeviceProperties


@final
class VulkanBackend(Backend):
    """GPUs by their Vulkan driver."""

    name = "vulkan"
    platform = "gpu"
    device_name: ClassVar[str] = "vulkan"
    priority = 5
    places: ClassVar[bool] = True
    dialects: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(self) -> None:
        self._devices: list[Device] | None = None
        self._sessions: dict[int, IreeSession] = {}
        self._failed = ""
        self._lock = threading.Lock()

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``hardware`` on a GPU, ``host`` on a rasteriser. Where no GPU was seen nobody is asked."""
        if not drivers.gpu_seen():
            return "host"
        found = [] if self._missing() else choose.devices()[0]
        return found[0].label if found else "host"

    @property
    def listed(self) -> bool:
        return self.label == "hardware"

    def _missing(self) -> str:
        """Why there can be no device, as far as files tell."""
        package = compiler.missing()
        if package:
            return f"{package} is not installed; pip install 'nxjax[{compiler.EXTRA}]'"
        if drivers.can_be_listed() and not drivers.installed():
            return "no Vulkan driver is installed (no manifest in vulkan/icd.d)"
        return ""

    def available(self) -> tuple[bool, str]:
        reason = self._missing() or self._failed
        if reason:
            return False, reason
        found, reason = choose.devices()
        if not found:
            return False, f"IREE {compiler.version()}: {reason}"
        what = "a software rasteriser" if found[0].is_software else found[0].vendor_name
        return True, f"IREE {compiler.version()}: {found[0].name} ({what}; {found[0].driver})"

    def devices(self) -> list[Device]:
        if not self.available()[0]:
            return []
        if self._devices is None:
            made = [
                Device(self.platform, i, self, 0, lambda f=f: _details(f)) for i, f in enumerate(choose.devices()[0])
            ]
            self._devices = made
        return list(self._devices)

    def facts(self, device: Device | int = 0) -> DeviceProperties:
        """What a device says of itself: limits, subgroup size, features, driver.

        Raises:
            MissingExtraError: IREE is not installed.
            ExecutionError: there is no such device; the message says why.
        """
        number = device.id if isinstance(device, Device) else device
        compiler.version()
        reason = self._missing()
        found, reason = ([], reason) if reason else choose.devices()
        if number >= len(found):
            raise ExecutionError(f"vulkan: there is no device {number}", got=reason or f"{len(found)} devices")
        return found[number]

    def choice(self, device: Device | int = 0) -> Choice:
        """The target that programs for a device are compiled for; the first question is the self-test.

        Raises:
            ExecutionError: the device computes wrong results with every target.
        """
        f = self.facts(device)
        try:
            return choose.choice(f)
        except ExecutionError as error:
            if len(choose.devices()[0]) == 1:
                self._failed = f"{error.what}: {error.got}"
            raise

    # --- what it can ---

    def supports(self, op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[bool, str]:
        out = op.infer(*types, **params)
        inputs = [Var(t) for t in types]
        outputs = tuple(Var(t) for t in (out if op.multi else (out,)))

        reason = refusal(Equation(op, tuple(inputs), outputs, params), self.choice())
        return not reason, reason

    # --- programs ---

    def session(self, number: int = 0) -> IreeSession:
        """The runtime's device, made when it is first needed.

        Raises:
            ExecutionError: the driver does not start.
        """
        with self._lock:
            found = self._sessions.get(number)
            if found is None:
                f = self.facts(number)
                try:
                    found = self._sessions[number] = IreeSession("vulkan", f.path)
                except Exception as error:
                    raise ExecutionError(f"vulkan: {f.name} does not start", got=str(error)[:800]) from None
            return found

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        return self._compiled(program, 0)

    def compile_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> Executable:
        first = placement.devices[0]
        if len(placement.devices) > 1:
            return super().compile_placed(program, donate, placement)
        return self._compiled(program, first.id)

    def _compiled(self, program: Program, number: int) -> Executable:
        choice = self.choice(number)
        return compiled(program, choice, self.session(number), self.name)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return text_of(program)

    def text(self, program: Program, donate: tuple[int, ...], dialect: str) -> str:
        if dialect in ("stablehlo", "mhlo", "hlo"):
            return self.lower(program)
        if dialect == "target":
            return self.choice().spec.applied(self.lower(program))
        return super().text(program, donate, dialect)

    # --- arrays ---

    def put(self, x: DeviceArray, sharding: Sharding) -> DeviceBuffer | None:
        device: Any = next(iter(sharding.device_list))
        if sharding.num_devices > 1:
            raise ParameterError("vulkan: an array is on one device", got=f"{sharding.num_devices} devices")

        return put(x, self.choice(device), self.session(device.id), self.name)

    def assemble(self, blocks: Sequence[Any], type: ArrayType, sharding: Sharding) -> DeviceBuffer:
        block = blocks[0]
        data = None if isinstance(block, IreeBuffer) else block
        return held(DeviceArray(data, type, None if data is not None else block), self.session(), self.name)

    def memory_stats(self, device: Device) -> dict[str, Any] | None:
        """The allocator's own count; None before anything was there."""
        session = self._sessions.get(device.id)
        counts = {} if session is None else session.statistics()
        if not counts:
            return None
        freed, made = counts["device_bytes_freed"], counts["device_bytes_allocated"]
        return {
            "bytes_in_use": made - freed,
            "peak_bytes_in_use": counts["device_bytes_peak"],
            "bytes_limit": max(self.facts(device).heaps, default=0) or None,
            "accounting": "runtime",
        }

    def clear(self) -> None:
        for session in self._sessions.values():
            session.allocator.trim()


def _details(f: DeviceProperties) -> Any:
    return SimpleNamespace(device_kind=f.name, facts=f)
