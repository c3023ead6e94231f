"""`nx.hybrid`: one function on NPU, GPU and CPU. `Hybrid` selects the units. This module has the queries and settings.

Knows the public side of `nxjax.backends.hybrid` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nxjax.backends.hybrid.health import Event, FaultPolicy, HeatLimits, UnitHealth
from nxjax.backends.hybrid.plan import Place, Plan
from nxjax.backends.hybrid.planner import SCOPE
from nxjax.backends.hybrid.plugin import Plugin, read_program
from nxjax.backends.hybrid.spec import Hybrid
from nxjax.backends.hybrid.trying import History
from nxjax.backends.hybrid.unit import Estimate, Link, RegionRefused, Step, Unit
from nxjax.errors import ParameterError
from nxjax.trace.scope import named_scope

__all__ = [
    "Estimate",
    "Event",
    "FaultPolicy",
    "HeatLimits",
    "History",
    "Hybrid",
    "Link",
    "Place",
    "Plan",
    "Plugin",
    "RegionRefused",
    "Step",
    "Unit",
    "UnitHealth",
    "device_scope",
    "events",
    "plan",
    "read_program",
    "stream",
    "timeline",
]


def _device(fun: Any, device: Hybrid | None, what: str) -> Hybrid:
    found = device if device is not None else getattr(fun, "device", None)
    if not isinstance(found, Hybrid):
        raise ParameterError(
            f"hybrid.{what}: the function is for no Hybrid device",
            got=repr(found),
            expected='nx.jit(f, device=nx.Hybrid("npu", "cpu")), or device=',
        )
    return found


def plan(fun: Callable[..., Any], *, device: Hybrid | None = None) -> Callable[..., Plan]:
    """A function of example arguments that returns the plan of a call with them: regions, where each runs, and why.

    Args:
        fun: a function jitted for a `Hybrid`, or any function.
        device: the `Hybrid`, if the function is not jitted for one.

    Returns:
        ``plan(f)(*args)`` is a `Plan`: printed as text, in notebooks with its timeline. The call itself is not made.

    Raises:
        ParameterError: no `Hybrid`. PlacementError: equations that no unit supports, or pins that cannot be kept.

    >>> f = nx.jit(lambda x: nx.sin(x) * 2, device=nx.Hybrid("cpu"))
    >>> print(plan(f)(1.0).assignment)
    ('cpu',)
    """
    return _device(fun, device, "plan").plan(fun)


def timeline(fun: Callable[..., Any], *, device: Hybrid | None = None) -> Callable[..., str]:
    """Like `plan`; returns the timeline as one ``<svg>``.

    >>> timeline(lambda x: nx.sin(x) * 2, device=nx.Hybrid("cpu"))(1.0)[:4]
    '<svg'
    """
    made = plan(fun, device=device)
    return lambda *args, **kwargs: made(*args, **kwargs).timeline()


def stream(
    fun: Callable[..., Any], inputs: Iterable[Any], *, in_flight: int | None = None, device: Hybrid | None = None
) -> Iterator[Any]:
    """The results of ``fun`` for each of ``inputs``, in order, with several in progress at a time.

    Args:
        fun: a function jitted for a `Hybrid`, or any function.
        inputs: argument tuples; any other input is the only argument. Read when calls start.
        in_flight: how many are under way; by default what the schedule has, and at least 4.
        device: the `Hybrid`, if the function is not jitted for one.

    Raises:
        ParameterError: no `Hybrid`, or ``in_flight`` is below 1. An error of a call names its input.

    >>> f = nx.jit(lambda x: x + 1, device=nx.Hybrid("cpu"))
    >>> [int(y) for y in stream(f, range(4))]
    [1, 2, 3, 4]
    """
    return _device(fun, device, "stream").stream(fun, inputs, in_flight=in_flight)


def events(fun: Callable[..., Any], *, device: Hybrid | None = None) -> list[Event]:
    """The events of the units that ``fun`` runs on: taken out, redone, readmitted.

    >>> events(nx.jit(nx.sin, device=nx.Hybrid("cpu")))
    []
    """
    return _device(fun, device, "events").events


def device_scope(unit: str) -> named_scope:
    """``with nx.hybrid.device_scope("npu"):`` pins the equations traced inside to a unit; also a decorator.

    It has no effect if the function runs on one device. The innermost scope counts. If the unit is missing, the planner
    decides, with a note in the plan. If the unit does not support an equation, the error names both.

    Args:
        unit: a unit's name as in `Hybrid`; ``/NPU:0`` is read as ``npu``.

    >>> def f(x):
    ...     with device_scope("cpu"):
    ...         return nx.sin(x)
    >>> nx.make_jaxpr(f)(1.0).equations[0].scope
    'device:cpu'
    """
    name = str(unit).strip("/").split("/")[-1]
    if name.upper() == name or name.endswith(":0"):
        name = name.lower().removesuffix(":0").removeprefix("device:")
    if not name:
        raise ParameterError("hybrid.device_scope: names no unit", got=repr(unit))
    return named_scope(SCOPE + name)
