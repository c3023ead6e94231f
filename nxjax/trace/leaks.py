"""Traced values that outlive their trace: `nx.checking_leaks` finds them, and the objects that hold them.

The check runs when a trace ends. All its traced values should be gone by then. If one is left, some object holds it,
and Python's references lead from that object to the value. If nothing refers to the trace itself, no value is left:
its reference count shows that. Otherwise the check walks over all objects, so it runs only if ``check_tracer_leaks``
is set. Knows no op and no transform.
"""

from __future__ import annotations

import gc
import sys
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from nxjax.errors import LeakedTracerError, is_internal, user_source
from nxjax.trace.core import Trace, Tracer

_DEPTH: Final = 6
# What nxjax keeps of an outer trace's values on purpose: functions that close over them.
_OWN: Final = ("Entry", "_Entry", "Program", "Traced", "StageTrace", "PartialTrace")


def check(trace: Trace, where: str) -> None:
    """Raise if values of ``trace``, which has ended, are still held by something other than nxjax itself."""
    if _references(trace) == _ALONE:
        return
    found = _alive(trace)
    if found:
        gc.collect()
        found = _alive(trace)
    held = [(x, way) for x in found if (way := _reference_path(x, found)) is not None]
    if not held:
        return
    x, way = held[0]
    more = f", and {len(held) - 1} more" if len(held) > 1 else ""
    raise LeakedTracerError(
        f"checking_leaks: a traced value is still held after {where} has returned",
        got=f"{x.type} {x.origin()}{more}",
        more=[("held by", way)],
        expected="traced values that end with their function",
        source=user_source(),
        fix="return the value from the function; do not store it in a global, a list, an attribute or a closure",
    )


def _alive(trace: Trace) -> list[Tracer]:
    return [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and getattr(x, "owner", None) is trace]


def _references(x: object) -> int:
    return sys.getrefcount(x)


def _as_check(x: object) -> int:
    return _references(x)


def _as_caller() -> int:
    x = object()
    return _as_check(x)


# References to what only the caller of `check` holds, however many of them this Python counts for calls.
_ALONE: Final = _as_caller()


def _reference_path(x: Any, found: list[Tracer]) -> str | None:
    """How ``x`` is reached from something of the user's, such as ``global KEPT of __main__, [0]``; None: not at all."""
    seen = {id(found), id(sys._getframe())}  # pyright: ignore[reportPrivateUsage]
    level: list[tuple[Any, str]] = [(x, "")]
    for _ in range(_DEPTH):
        above: list[tuple[Any, str]] = []
        own = {id(level), id(above)}
        for held, way in level:
            for holder in gc.get_referrers(held):
                if id(holder) in seen or id(holder) in own or (isinstance(holder, FrameType) and _is_own(holder)):
                    continue
                seen.add(id(holder))
                root = _root(holder, held)
                if root is not None:
                    return root + way
                if type(holder).__name__ in _OWN or (isinstance(holder, (tuple, list)) and holder is level):
                    continue
                above.append((holder, _step(holder, held) + way))
        level = above
    return None


def _is_own(frame: FrameType) -> bool:
    return bool(is_internal(frame.f_code.co_filename))


def _root(holder: Any, held: Any) -> str | None:
    """What to call ``holder`` where the way begins: a module, a frame, a closure; None elsewhere."""
    if isinstance(holder, FrameType):
        name = next((n for n, v in holder.f_locals.items() if v is held), "?")
        return f"local {name!r} of {holder.f_code.co_qualname}"
    if isinstance(holder, dict):
        name = next((k for k, v in holder.items() if v is held), None)  # pyright: ignore[reportUnknownVariableType]
        module = holder.get("__name__")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(name, str) and isinstance(module, str) and "__builtins__" in holder:
            return f"global {name!r} of {module}"
    if isinstance(holder, CellType):
        for function in gc.get_referrers(holder):
            for f in gc.get_referrers(function) if isinstance(function, tuple) else ():
                if (
                    isinstance(f, FunctionType)
                    and f.__closure__ is function
                    and not is_internal(f.__code__.co_filename)
                ):
                    name = f.__code__.co_freevars[function.index(holder)]  # pyright: ignore[reportUnknownMemberType]
                    return f"closure variable {name!r} of {f.__qualname__}"
    if isinstance(holder, type):
        name = next((k for k, v in vars(holder).items() if v is held), "?")
        return f"attribute {name!r} of class {holder.__qualname__}"
    if isinstance(holder, ModuleType):
        return f"module {holder.__name__}"
    return None


def _step(holder: Any, held: Any) -> str:
    """One step of the way, as it is written in Python."""
    if isinstance(holder, (list, tuple)):
        place = next((i for i, v in enumerate(holder) if v is held), None)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return "" if place is None else f", [{place}]"
    if isinstance(holder, dict):
        key = next((k for k, v in holder.items() if v is held), None)  # pyright: ignore[reportUnknownVariableType]
        return f", [{key!r}]"
    for name in getattr(type(holder), "__slots__", ()):
        if getattr(holder, name, None) is held:
            return f", .{name} of a {type(holder).__qualname__}"
    attribute = next((k for k, v in getattr(holder, "__dict__", {}).items() if v is held), None)
    return f", .{attribute} of a {type(holder).__qualname__}" if attribute else f", a {type(holder).__qualname__}"
