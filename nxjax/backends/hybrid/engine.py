"""Runs graphs of jobs on units that may fail, and delivers each result once. What users of the engine hold.

The work is done in `core` by threads; this file is the face: it makes the threads' side, ends it, and answers how the
units are. It knows no program and no backend.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from nxjax.backends.hybrid.core import EngineCore
from nxjax.backends.hybrid.health import NO_SENSOR, Event, FaultPolicy, LaneOptions, UnitHealth
from nxjax.backends.hybrid.jobs import Graph, Job, Value
from nxjax.backends.hybrid.run import GraphRun
from nxjax.config.weak_registry import WeakRegistry
from nxjax.errors import ParameterError

# After so many periods without a reading the last one is not shown any more.
_STALE: Final = 10

_cores: WeakRegistry[EngineCore] = WeakRegistry()


def _close_all() -> None:
    for core in _cores:
        core.close()


def _forked() -> None:
    for core in _cores:
        core.forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@final
class Engine:
    """Units, their lanes, and how patient to be with them.

    A unit that raises, hangs, gives results of other types than promised, is found lying or gets too hot is taken out.
    What it had to do is done by the next unit of the job; an answer of it that comes later is dropped. It comes back
    when a probe succeeds. Threads are started when there is work, and are daemons. A forked child has an engine of its
    own, in which the parent's runs have failed.

    Args:
        units: by name, in the order of preference where a job says nothing.
        policy: deadlines, back-off, verification.

    >>> with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}) as engine:
    ...     def broken(args):
    ...         raise OSError("device lost")
    ...     double = Job("double", "npu", {"npu": broken, "cpu": lambda args: [2 * args[0]]}, inputs=((-1, 0),))
    ...     run = engine.submit([double], [21])
    ...     print(run.result(), [span.unit for span in run.spans])
    ...     print(engine.events[-1])
    [42] ['npu', 'cpu']
    npu: taken out: double: OSError: device lost
    """

    def __init__(self, units: Mapping[str, LaneOptions], policy: FaultPolicy | None = None) -> None:
        if not units:
            raise ParameterError("Engine: needs a unit")
        self.policy = policy or FaultPolicy()
        self._core = EngineCore(units, self.policy)
        _cores.add(self._core)
        # The threads hold the core, and nobody but the user this.
        weakref.finalize(self, self._core.close)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(self._core.units)

    def submit(self, graph: Graph | Sequence[Job], inputs: Sequence[Value] = ()) -> GraphRun:
        """Begin to run a graph; several may be under way.

        Args:
            graph: jobs; a `Graph` where they are run more than once.
            inputs: what the jobs name as (-1, n). Not copied: not to be written to while the run lasts.

        Raises:
            ParameterError: too few inputs. ExecutionError: the engine is closed, or has no unit for a job.
        """
        made = graph if isinstance(graph, Graph) else Graph(graph)
        if len(inputs) < made.arity:
            raise ParameterError(f"{made!r}: too few inputs", got=len(inputs), expected=made.arity)
        return self._core.submit(self, made, list(inputs))

    def health(self) -> dict[str, UnitHealth]:
        """How each unit is."""
        core = self._core
        found: dict[str, UnitHealth] = {}
        with core.lock:
            now = time.perf_counter()
            for unit in core.units.values():
                health, thermal = unit.health, unit.thermal
                hot = thermal.heat == "hot" and health.fine
                source = thermal.why if unit.options.sensor else NO_SENSOR
                celsius = thermal.celsius
                if not source and now - thermal.when > _STALE * self.policy.heat_period and core.active:
                    source = "the sensor does not answer"
                    celsius = None
                found[unit.name] = UnitHealth(
                    name=unit.name,
                    state="out" if hot else health.state,
                    reason=f"heat: above {unit.options.heat.maximum:g} degrees C" if hot else health.reason,
                    since=now - health.since,
                    retry_in=None if health.retry == float("inf") else max(0.0, health.retry - now),
                    heat=thermal.heat,
                    celsius=celsius,
                    heat_source=source,
                    answers=health.answers,
                    checked=health.checked,
                    failures=health.failures,
                    lost=unit.lost,
                )
        return found

    def take_out(self, unit: str, reason: str = "taken out by the user") -> None:
        """Use a unit no more, until `readmit`; what it is doing is done by others."""
        member = self._member(unit)
        with self._core.lock:
            self._core.take_out(member, reason, drop=True, by_user=True)
        self._core.log.deliver()

    def readmit(self, unit: str) -> None:
        """Use a unit again, without asking it; also one that lied."""
        member = self._member(unit)
        with self._core.lock:
            self._core.ward.back(member)
        self._core.log.deliver()

    def _member(self, unit: str) -> Any:
        if unit not in self._core.units:
            raise ParameterError("Engine: no such unit", got=unit, expected=", ".join(self._core.units))
        return self._core.units[unit]

    @property
    def events(self) -> list[Event]:
        """The last thousand things that happened to units."""
        return list(self._core.log)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` with each event from now on, in whichever thread it happened; gives what ends that."""
        listeners = self._core.log.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def close(self) -> None:
        """End: runs under way are cancelled, idle threads end at once, others when they come back. More than once."""
        self._core.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<engine: {'; '.join(map(str, self.health().values()))}>"
