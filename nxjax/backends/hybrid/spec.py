"""`nx.Hybrid`: which units a function runs on, and how they are used. Goes wherever a device goes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from numbers import Real
from threading import Lock
from typing import Any, ClassVar, Final, final
from weakref import WeakKeyDictionary

from nxjax.backends import sensors
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.evidence import LABELS, Label
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.executable import IN_FLIGHT, Begun, HybridExecutable
from nxjax.backends.hybrid.health import HEAT, Event, FaultPolicy, HeatLimits, LaneOptions, UnitHealth
from nxjax.backends.hybrid.plan import Plan
from nxjax.backends.hybrid.planner import PlanOptions, PlanSetting
from nxjax.backends.hybrid.run import streamed
from nxjax.backends.hybrid.schedule import OBJECTIVES, Objective
from nxjax.backends.hybrid.trying import History
from nxjax.backends.hybrid.unit import Unit
from nxjax.backends.hybrid.units import BackendUnit, resolve
from nxjax.errors import ParameterError
from nxjax.trace import tree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.program import Program
from nxjax.transforms.jit import Jitted, jit
from nxjax.transforms.jit_stages import Traced, current_compiler

_numbers: Final = count()


@final
class HybridBackend(Backend):
    """Programs planned over units, and one engine for all of them.

    Args:
        setting: what plans are made from.
        policy: how patient the engine is.
        heat: limits by unit or by its platform, where they are not the usual ones.
    """

    name = "hybrid"
    platform: ClassVar[str] = "hybrid"
    label: ClassVar[Label] = "hardware"

    def __init__(self, setting: PlanSetting, policy: FaultPolicy, heat: Mapping[str, HeatLimits]) -> None:
        number = next(_numbers)
        # Executables are found by their backend's name: every `nx.Hybrid` has its own.
        self.name = f"hybrid:{number}"
        # A result through several units says no more of a chip than the one that says the least.
        self.label = max((u.label for u in setting.units), key=LABELS.index)  # pyright: ignore[reportAttributeAccessIssue]
        self.setting, self.policy, self.heat = setting, policy, heat
        self._device = Device("hybrid", number, self)
        self._engine: Engine | None = None
        self._lock = Lock()

    @property
    def listed(self) -> bool:
        return False

    def available(self) -> tuple[bool, str]:
        return True, ", ".join(u.name for u in self.setting.units)

    def devices(self) -> list[Device]:
        return [self._device]

    @property
    def engine(self) -> Engine:
        """What runs; made, and its threads begun, when something has to run on more than the host."""
        with self._lock:
            if self._engine is None:
                self._engine = self.engine_with(self.policy)
            return self._engine

    def engine_with(self, policy: FaultPolicy) -> Engine:
        """Another engine over the same units."""
        return Engine({u.name: self._lanes(u) for u in self.setting.units}, policy)

    @property
    def running(self) -> Engine | None:
        """The engine, if there is one yet."""
        return self._engine

    def _lanes(self, unit: Unit) -> LaneOptions:
        sensor: Callable[[], Any] | None = None
        if unit.label == "hardware" and unit.platform in sensors.KINDS:
            sensor = sensors.SensorSampler(unit.platform)
        usual = HEAT.get(unit.platform, HEAT["npu"])
        return LaneOptions(
            lanes=unit.lanes,
            probe=unit.probe,
            interrupt=unit.interrupt,
            sensor=sensor,
            heat=self.heat.get(unit.name, self.heat.get(unit.platform, usual)),
            group="host" if unit.host and self.setting.options.redo == "any" else "",
            trusted=unit.host,
            receive=lambda value, _: unit.receive(value),
        )

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        first, *others = self.setting.units
        if not others and isinstance(first, BackendUnit) and first.host:
            return first.backend.compile(program, donate)
        return self.hybrid(program, donate)

    def hybrid(self, program: Program, donate: tuple[int, ...] = ()) -> HybridExecutable:
        """The executable, also where one unit is all there is."""
        trial = lambda: self.engine_with(self.policy)
        return HybridExecutable(program, donate, self.setting, lambda: self.engine, trial)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        """The program that is planned; a plan needs a call's arguments, see `nx.hybrid.plan`."""
        return str(program)

    def close(self) -> None:
        """End the engine's threads; the next call begins them again."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
            self._engine = None

    def clear(self) -> None:
        for unit in self.setting.units:
            if isinstance(unit, BackendUnit):
                unit.backend.clear()


def _positive(what: str, value: Any, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ParameterError(f"Hybrid: {what}", got=repr(value), expected=expected)


@final
class Hybrid:
    """Several units as one device: ``nx.jit(f, device=nx.Hybrid("npu", "gpu", "cpu"))``.

    A function is split into regions by what each unit supports. Each region is placed by its cost, and values are moved
    between units. Units that are not available are left out, with the reason in the plan. If a unit fails, others do
    its work until it recovers.

    Args:
        *units: by priority: ``"npu"``, ``"gpu"``, ``"tpu"`` (whichever is here), an executor (``"cpu"``, ``"xla"``,
            ``"reference"``), a backend, a target of `nx.targets` (``"tflite"``, ``"intel-npu"``, ``"openvino-cpu"``,
            ``"qualcomm-htp"``), or an object derived from `nx.hybrid.Unit`.
        objective: "latency" of one call, "throughput" of a stream, or "energy" of one call.
        deadline: seconds that a call may take at most, for "energy".
        pin: scope or op -> unit. Equations of that `nx.named_scope` or op run there. `nx.hybrid.device_scope` does the
            same inside the function.
        sessions: unit -> how many regions it runs at once; 1 by default.
        simulators: ``"npu"`` may be a vendor's simulator. A unit named by its target always may.
        measure: time each region on all units that support it, when a plan is first made on this machine. Otherwise
            estimates decide until calls have been measured.
        redo: which units do the work of a failed one. "exact": units with exact integers, such as the host. "same": the
            same, but only if the failed unit is exact, too, so that no bit can change; otherwise it is an error. "any":
            all units that support it; executors of the host also take ready work from one another.
        watts: unit -> power while it computes, for the objective "energy"; others are unknown.
        policy: deadlines, back-off and verification; see `nx.hybrid.FaultPolicy`.
        heat: unit or platform -> limits of temperature.
        history: measured times; by default those of this machine, kept in the cache folder.

    Raises:
        ParameterError: an unknown name, or no unit is available.

    >>> device = nx.Hybrid("npu", "cpu")
    >>> f = nx.jit(lambda x: nx.sin(x) + 1, device=device)
    >>> float(f(0.0)), [name for name, why in device.missing]
    (1.0, ['npu'])
    """

    def __init__(
        self,
        *units: str | Unit,
        objective: Objective = "latency",
        deadline: float | None = None,
        pin: Mapping[str, str] | None = None,
        sessions: Mapping[str, int] | None = None,
        simulators: bool = False,
        measure: bool = True,
        redo: str = "exact",
        watts: Mapping[str, float] | None = None,
        policy: FaultPolicy | None = None,
        heat: Mapping[str, HeatLimits] | None = None,
        history: History | None = None,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ParameterError("Hybrid: objective", got=repr(objective), expected=", ".join(map(repr, OBJECTIVES)))
        if redo not in ("exact", "same", "any"):
            raise ParameterError("Hybrid: redo", got=repr(redo), expected="'exact', 'same' or 'any'")
        for name, n in dict(sessions or {}).items():
            if not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ParameterError(f"Hybrid: sessions of {name}", got=n, expected="a number, at least 1")
        if deadline is not None:
            _positive("deadline", deadline, "seconds, more than 0")
        named = {u if isinstance(u, str) else getattr(u, "name", "") for u in units}
        for name, power in dict(watts or {}).items():
            _positive(f"watts of {name}", power, "watts, more than 0")
            if name not in named:
                raise ParameterError("Hybrid: watts of a unit that it does not have", got=name, expected=sorted(named))
        for name, limits in dict(heat or {}).items():
            if not isinstance(limits, HeatLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ParameterError(
                    f"Hybrid: heat of {name}", got=repr(limits), expected="nx.hybrid.HeatLimits(warning, maximum)"
                )
        if policy is not None and not isinstance(policy, FaultPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("Hybrid: policy", got=repr(policy), expected="nx.hybrid.FaultPolicy(...)")
        found, missing = resolve(units, simulators=simulators, sessions=dict(sessions or {}))
        if objective == "energy" and not watts and all(u.watts is None for u in found):
            raise ParameterError(
                "Hybrid: the energy of no unit is known",
                got="objective='energy' without watts",
                expected="the power of each unit while it computes",
                fix=f"watts={{{', '.join(f'{u.name!r}: ...' for u in found)}}}, from a meter or a data sheet",
            )
        policy = policy or FaultPolicy()
        options = PlanOptions(objective, deadline, dict(pin or {}), measure, redo, dict(watts or {}), policy.verify)
        setting = PlanSetting(tuple(found), tuple(missing), options, history or History())
        self.backend = HybridBackend(setting, policy, dict(heat or {}))
        self._calls: WeakKeyDictionary[Any, dict[Any, _Call]] = WeakKeyDictionary()
        self._jitted: WeakKeyDictionary[Any, Jitted[..., Any]] = WeakKeyDictionary()

    @property
    def device(self) -> Device:
        """The device for `jit`."""
        return self.backend.devices()[0]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The available units, by priority."""
        return self.backend.setting.units

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """(name, reason) of the missing units."""
        return self.backend.setting.missing

    @property
    def history(self) -> History:
        """What was measured."""
        return self.backend.setting.history

    def plan(self, fun: Callable[..., Any]) -> Callable[..., Plan]:
        """A function of example arguments that returns the plan of a call with them; ``fun`` does not run.

        >>> plan = nx.Hybrid("cpu").plan(lambda x: nx.sin(x) * 2)(1.0)
        >>> plan.assignment
        ('cpu',)
        """

        def planned(*args: Any, **kwargs: Any) -> Plan:
            call = self._call(fun, args, kwargs)
            return call.executable.planned(call.values(args, kwargs))

        return planned

    def stream(self, fun: Callable[..., Any], inputs: Iterable[Any], *, in_flight: int | None = None) -> Iterator[Any]:
        """The results of ``fun`` for each of ``inputs``, in order, with several calls in progress at a time.

        Args:
            fun: a function, jitted or not.
            inputs: argument tuples; any other input is the only argument. Read when calls start.
            in_flight: how many calls are in progress; by default the schedule's number, and at least 4.

        Raises:
            ParameterError: ``in_flight`` is below 1. An error of a call names its input.

        >>> [float(y) for y in nx.Hybrid("cpu").stream(lambda x: x * 2, range(3))]
        [0.0, 2.0, 4.0]
        """
        if in_flight is not None and in_flight < 1:
            raise ParameterError("Hybrid.stream: in_flight", got=in_flight, expected="1 or more")
        calls: deque[_Call] = deque()

        def begin(given: Any) -> Begun:
            args = given if isinstance(given, tuple) else (given,)
            calls.append(self._call(fun, args, {}))
            return calls[-1].begin(args)

        ahead = lambda: in_flight or max(IN_FLIGHT, calls[0].in_flight)
        return streamed(begin, lambda begun: calls.popleft().finish(begun), Begun.cancel, inputs, ahead)

    # --- how units are ---

    @property
    def events(self) -> list[Event]:
        """The events of units: taken out, redone, readmitted."""
        running = self.backend.running
        return [] if running is None else running.events

    def health(self) -> dict[str, UnitHealth]:
        """The state of each unit."""
        return self.backend.engine.health()

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` with each event from now on; returns a function that stops it."""
        return self.backend.engine.listen(listener)

    def take_out(self, unit: str, reason: str = "taken out by the user") -> None:
        """Stop using a unit until `readmit`."""
        self.backend.engine.take_out(unit, reason)

    def readmit(self, unit: str) -> None:
        """Use a unit again."""
        self.backend.engine.readmit(unit)

    def close(self) -> None:
        """Stop its threads; a later call starts them again."""
        self.backend.close()

    def __repr__(self) -> str:
        gone = "".join(f", {name} missing" for name, _ in self.missing)
        return f"Hybrid({', '.join(u.name for u in self.units)}{gone}; {self.backend.setting.options.objective})"

    # --- calls ---

    def _call(self, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        """The call of ``fun`` with arguments of these types, compiled for this device."""
        if isinstance(fun, Jitted) and getattr(fun.device, "device", fun.device) == self.device:
            jitted: Jitted[..., Any] = fun
        else:
            found = self._jitted.get(fun)
            if found is None:
                inner: Any = fun
                options: dict[str, Any] = {}
                if isinstance(fun, Jitted):
                    inner, told = fun.fun, fun.arguments
                    options = {"static_argnums": told.static_argnums, "static_argnames": tuple(told.static_argnames)}
                found = self._jitted[fun] = jit(inner, device=self, **options)
            jitted = found
        leaves, treedef = tree.flatten(jitted.arguments.dynamic(args, kwargs))
        types = tuple([as_value(x, "Hybrid").type for x in leaves])
        key = (treedef, types, jitted.arguments.statics(args, kwargs))
        known = self._calls.setdefault(jitted, {})
        if key not in known:
            known[key] = _Call(jitted.trace(*args, **kwargs), self)
        return known[key]


@final
class _Call:
    """A traced function with its executable: calls that are begun and ended apart."""

    def __init__(self, traced: Traced, hybrid: Hybrid) -> None:
        self.traced = traced
        hoisted, self.leading = traced.program.hoist_consts()
        found = current_compiler().compile(hoisted, device=hybrid)
        # Where the host is all there is, calls are the host's, and plans and streams are made here.
        self.executable = found if isinstance(found, HybridExecutable) else hybrid.backend.hybrid(hoisted)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[DeviceArray]:
        leaves = tree.leaves(self.traced.bind(args, kwargs))
        return [*self.leading, *(as_value(x, "Hybrid") for x in leaves)]  # pyright: ignore[reportReturnType]

    @property
    def in_flight(self) -> int:
        plan = self.executable.plan
        return 1 if plan is None else plan.schedule.inflight

    def begin(self, args: tuple[Any, ...]) -> Begun:
        return self.executable.begin(self.values(args, {}))

    def finish(self, begun: Begun) -> Any:
        return self.traced.out_tree.unflatten(self.executable.finish(begun))
