"""A unit whose regions are run by a plug-in in a process of its own: programs as text or StableHLO, arrays by memory.

What the plug-in says of itself (ops, label, whether it is exact) is what plans are made by; that integers are exact is
looked at. The contract is in docs/hybrid_faults.md; how the process is kept alive is `remote`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

from nxjax.backends.evidence import LABELS, Label
from nxjax.backends.hybrid.remote import Remote, RemoteStep
from nxjax.backends.hybrid.trying import NOT_INTEGERS, comparable, compared, small
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Step, Unit
from nxjax.errors import ExecutionError, NxError, ParameterError
from nxjax.lower.placement import YES, Verdict
from nxjax.lower.stablehlo.builder import lower
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.boundary import entry
from nxjax.trace.program import Program
from nxjax.trace.text import parse_program

# What a region may be sent as: nxjax's program text, or a StableHLO module in MLIR's text.
FORMS: Final = ("nxjax", "stablehlo")
_PLATFORMS: Final = ("npu", "gpu", "tpu", "cpu")


@final
class Plugin(Unit):
    """A vendor's plug-in as a unit of `nx.Hybrid`.

    Args:
        plugin: a module's name, a Python file, or a command line; see `Remote`.
        name: of the unit.
        options: for the plug-in; JSON.
        lanes: how many regions are sent to it at once. It runs them one after the other.
        start_seconds: how long its process may take to start.

    Raises:
        ParameterError: the plug-in's description is not valid.

    >>> plugin = Plugin("a_vendor_who_is_not_here", "chip")
    >>> plugin.name, plugin.available()[0]
    ('chip', False)
    """

    @entry
    def __init__(
        self,
        plugin: str | Sequence[str],
        name: str = "plugin",
        *,
        options: Mapping[str, Any] | None = None,
        lanes: int = 1,
        start_seconds: float = 30.0,
    ) -> None:
        self.name = name
        self.lanes = lanes
        self.remote = Remote(plugin, name=name, options=options, start_seconds=start_seconds)
        # A process that hangs is killed, and started again by the probe.
        self.interrupt = self.remote.interrupt
        self._why = ""
        self._ops: frozenset[str] | None = None
        self.platform, self.label, self.exact, self.form = "npu", "host", False, "nxjax"
        try:
            said = self.remote.describe()
        except ExecutionError as error:
            self._why = f"{error.what}: {error.got}"
            return
        self.platform = _one_of(said.get("platform", "npu"), _PLATFORMS, name, "platform")
        self.label = cast(Label, _one_of(said.get("label", "host"), LABELS, name, "label"))
        self.form = _one_of(said.get("form", "nxjax"), FORMS, name, "form")
        self.exact = said.get("exact") is True
        ops = said.get("ops")
        if ops is not None:
            if not isinstance(ops, list) or not all(isinstance(op, str) for op in cast(list[Any], ops)):
                raise ParameterError(f"{name}: the plug-in's ops are not a list of names", got=ops)
            self._ops = frozenset(cast(list[str], ops))
        self._device = str(said.get("device", name))
        self._version = str(said.get("version", ""))

    @property
    def key(self) -> str:
        return f"plugin {self._device} {self._version}".strip() if not self._why else self.name

    def available(self) -> tuple[bool, str]:
        return not self._why, self._why or self._device

    def supports(self, program: Program) -> list[Verdict]:
        rows: list[Verdict] = []
        for e in program.equations:
            if e.effect:
                rows.append(Verdict(False, f"{e.op.name} has an effect, which is the host's"))
            elif self._ops is not None and e.op.name not in self._ops:
                rows.append(Verdict(False, f"{self._device} has no {e.op.name}"))
            else:
                rows.append(YES)
        return rows

    def estimate(self, program: Program) -> Estimate | None:
        return None  # it is measured

    def prepare(self, program: Program) -> Step:
        hoisted, consts = program.hoist_consts()
        try:
            text = str(hoisted) if self.form == "nxjax" else lower(hoisted)[0]
        except NxError as error:
            raise RegionRefused(f"it cannot be written as {self.form}: {error.what}") from error
        options = {"consts": len(consts), "results": len(hoisted.outputs)}
        arrays = [cast(DeviceArray, c).numpy() for c in consts]
        try:
            step = self.remote.prepare(text.encode(), self.form, options, arrays)
            made = _PluginStep(step, self.label, self._device)
            made.checked = self._learn(program, step)
        except ExecutionError as error:
            raise RegionRefused(f"{error.what}: {error.got}") from error
        return made

    def _learn(self, program: Program, step: RemoteStep) -> str:
        """What is called exact is, once, on random integers; and probes ask for the same again."""
        if not self.exact:
            return "not compared with a reference: the plug-in does not call itself exact"
        if not comparable(program) or any(v.type.dtype.kind not in "iu" for v in program.inputs):
            return NOT_INTEGERS
        try:
            said, args, wanted = compared(program, step, self._device)
        except (RegionRefused, ExecutionError):
            step.close()
            raise
        if small(program):
            self.remote.know(step, args, wanted)
        return said

    def probe(self) -> bool:
        return self.remote.probe()

    def close(self) -> None:
        """End its process."""
        self.remote.close()


@final
class _PluginStep(Step):
    def __init__(self, step: RemoteStep, label: Label, device: str) -> None:
        self._step = step
        self.label = label
        seconds = step.info.get("seconds")
        if isinstance(seconds, (int, float)) and seconds > 0:
            self.estimate = Estimate(float(seconds), "vendor-estimate", device)
        self.runs_on = f"{device}, in a process of its own"

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        return [wrap(y) for y in self._step([a.numpy() for a in args])]

    def close(self) -> None:
        self._step.close()


@entry
def read_program(payload: bytes) -> Program:
    """For plug-ins in Python: the program of a region in the form "nxjax".

    Its first arguments are the constants that came with it.

    Raises:
        ProgramError: the payload is not a program.

    >>> text = str(nx.make_jaxpr(lambda x: nx.sin(x) * 2)(1.0))
    >>> str(read_program(text.encode())) == text
    True
    """
    return parse_program(payload.decode())


def _one_of(said: Any, known: Sequence[str], name: str, what: str) -> str:
    if said not in known:
        raise ParameterError(f"{name}: the plug-in's description is not valid: its {what}", got=said, expected=known)
    return said
