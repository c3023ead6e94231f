"""A unit whose regions are run by a plug-in in a process of its own, which may crash, hang, or answer nonsense.

The process is started when it is first needed, and again after it has died; what was prepared in it is prepared again.
Programs go as text or StableHLO, arrays by memory. What the plug-in says of itself (ops, label, whether it is exact) is
what plans are made by; that integers are exact is looked at. The contract is in docs/hybrid_faults.md.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from nxjax.backends.children.child import Child, served
from nxjax.backends.evidence import LABELS, Label
from nxjax.backends.hybrid.trying import NOT_INTEGERS, comparable, compared, small
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Step, Unit
from nxjax.errors import ExecutionError, NxError, ParameterError
from nxjax.lower.placement import YES, Verdict
from nxjax.lower.stablehlo.builder import lower
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.boundary import entry
from nxjax.trace.program import Program
from nxjax.trace.text import parse_program

# How many known answers a probe compares.
_KNOWN: Final = 4


@final
class Remote:
    """A plug-in in a process of its own.

    Args:
        plugin: a module's name, a Python file, or the command line of a program that speaks the protocol itself.
        name: of the unit, for messages.
        options: given to the plug-in when it opens; JSON.
        start_seconds: how long the process may take to start and to open the plug-in.
        seconds: how long it may take to prepare or to run something; None: as long as it likes, which is right where
            the engine's deadlines count.

    Raises:
        ParameterError: no plug-in is named.
    """

    def __init__(
        self,
        plugin: str | Sequence[str],
        *,
        name: str = "plug-in",
        options: Mapping[str, Any] | None = None,
        start_seconds: float = 30.0,
        seconds: float | None = None,
    ) -> None:
        if not plugin:
            raise ParameterError("Remote: names no plug-in")
        self.name = name
        self._command = served(plugin) if isinstance(plugin, str) else list(plugin)
        self._options = dict(options or {})
        self._start_seconds = start_seconds
        self.seconds = seconds
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._closed = False
        self._describe: dict[str, Any] = {}
        self._ids = itertools.count(1)
        self._gone: list[int] = []
        self._known: list[tuple[RemoteStep, list[Any], list[Any]]] = []
        # How often a process was started.
        self.starts = 0

    def child(self) -> Child:
        """The process, started if there is none or it has died.

        Raises:
            ExecutionError: it does not start.
        """
        with self._lock:
            if self._closed:
                raise ExecutionError(f"{self.name}: the plug-in is closed")
            child = self._child
            if child is None or not child.alive:
                if child is not None:
                    child.close()
                self._child = None
                self.starts += 1
                child = Child(self._command, self.name, self._start_seconds)
                # From here on `interrupt` finds it.
                self._child = child
                answer, _, _ = child.ask({"do": "open", "options": self._options}, seconds=self._start_seconds)
                said = answer.get("describe")
                self._describe = said if isinstance(said, dict) else {}  # pyright: ignore[reportUnknownMemberType]
                self._gone.clear()
            return child

    def describe(self) -> dict[str, Any]:
        """What the plug-in says of itself: device, label, forms of payloads that it takes."""
        self.child()
        return dict(self._describe)

    def prepare(
        self,
        payload: bytes,
        form: str = "",
        options: Mapping[str, Any] | None = None,
        arrays: Sequence[Any] = (),
    ) -> RemoteStep:
        """Make something ready to run there: ``payload`` in the form that the plug-in knows as ``form``.

        ``arrays`` (constants) are sent once to every process; they are kept here, for the next one.

        Raises:
            ExecutionError: the plug-in refuses it, or dies of it.
        """
        step = RemoteStep(self, next(self._ids), bytes(payload), form, dict(options or {}), arrays)
        step.ready()
        return step

    def know(self, step: RemoteStep, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """A question with a known answer: `probe` asks it too, and compares bit for bit. The last ones are kept."""
        self._known = [*self._known[1 - _KNOWN :], (step, list(inputs), list(outputs))]

    def probe(self) -> bool:
        """Whether the plug-in answers, says that its device works, and gives the known answers. Starts it if need be.

        Raises:
            ExecutionError: it does not start, dies, or is silent.
        """
        answer, _, _ = self.child().ask({"do": "probe"}, seconds=self.seconds)
        if answer.get("right") is not True:
            return False
        for step, inputs, outputs in self._known:
            got = step(inputs)
            if len(got) != len(outputs):
                return False
            for x, y in zip(got, map(np.asarray, outputs), strict=True):
                if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
                    return False
        return True

    def interrupt(self) -> None:
        """Kill the process: whoever waits for it gets an `ExecutionError`. The next call starts another."""
        child = self._child
        if child is not None:
            child.kill("was killed, because it did not answer in time")

    def forget(self, id: int) -> None:
        """A step is not used any more; the plug-in hears of it with the next request."""
        self._gone.append(id)

    def drop(self, child: Child) -> None:
        """Tell the plug-in what is not used any more."""
        while self._gone:
            child.ask({"do": "drop", "id": self._gone.pop()}, seconds=self.seconds)

    def close(self) -> None:
        """End the process. More than once."""
        self._closed = True
        child = self._child
        if child is not None:
            child.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        child = self._child
        return f"<remote {self.name}: {f'process {child.pid}' if child is not None and child.alive else 'no process'}>"


@final
class RemoteStep:
    """Something that a plug-in has made ready.

    Attributes:
        info: what the plug-in said of it. artifact: bytes that it made, such as a compiled binary.
    """

    def __init__(
        self, remote: Remote, id: int, payload: bytes, form: str, options: dict[str, Any], arrays: Sequence[Any]
    ) -> None:
        self._remote, self._id, self._form, self._options = remote, id, form, options
        self._sent = [np.frombuffer(payload, np.uint8), *map(np.asarray, arrays)]
        self._child: Child | None = None
        self._lock = threading.Lock()
        self.info: dict[str, Any] = {}
        self.artifact = b""

    def ready(self) -> Child:
        """The process in which it is ready; made ready again, if that is a new one."""
        remote = self._remote
        child = remote.child()
        with self._lock:
            if self._child is not child:
                head = {"do": "prepare", "id": self._id, "form": self._form, "options": self._options}
                answer, _, rest = child.ask(head, self._sent, seconds=remote.seconds)
                said = answer.get("info")
                self.info = said if isinstance(said, dict) else {}  # pyright: ignore[reportUnknownMemberType]
                self.artifact = rest
                self._child = child
        return child

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Its results for ``arrays``, as NumPy arrays of their own.

        Raises:
            ExecutionError: the plug-in fails, dies, is silent, or answers nonsense.
        """
        child = self.ready()
        self._remote.drop(child)
        given = [np.asarray(a) for a in arrays]
        _, found, _ = child.ask({"do": "run", "id": self._id}, given, seconds=self._remote.seconds)
        return found

    def close(self) -> None:
        """Give it back."""
        if self._child is not None:
            self._child = None
            self._remote.forget(self._id)


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
