"""Why a jitted function was traced again: `nx.explain_retrace` shows the reason, and `explain_cache_misses` logs it.

`jit` leaves one `TraceRecord` here per trace; calls without a new trace cost nothing. The comparison runs on demand.
Knows types, trees and settings, but not how functions are traced or compiled.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary, ref

from nxjax.config import CallSettings, config
from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import ParameterError, user_source
from nxjax.trace.pages import render
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of

if TYPE_CHECKING:
    from logging import Logger

    from nxjax.transforms.jit_trace import TracedCall

_KEPT: Final = 256  # signatures of one function; the oldest go
_KEPT_OF_CODE: Final = 16  # of all functions that were jitted of one code
_STATE: Final = (
    "the named axes in scope",
    "the current mesh",
    *("settings" if name == "mode" else name for name in CallSettings.names),
)


def _log() -> Logger:
    import logging  # a program that says nothing starts without it

    return logging.getLogger("nxjax")


@final
class TraceRecord:
    """One trace of a function.

    Attributes:
        names, types, in_tree: of the traced arguments, flat.
        statics: (name, what tells it from equal ones, value) of the others.
        state: the settings that a trace depends on.
        source: the user's line that called.
        captures_tracers: it closes over values of an enclosing trace, and is good for that trace only.
        tracing, compiling: seconds.
    """

    __slots__ = (
        "captures_tracers", "compiling", "in_tree", "name", "names", "source", "state", "statics", "tracing", "types"
    )  # fmt: skip

    def __init__(self, call: TracedCall, names: Sequence[str], captures_tracers: bool, tracing: float) -> None:
        self.name = ""
        self.names = tuple(names) or tuple(f"leaf {i}" for i in range(len(call.types)))
        self.types = call.types
        self.in_tree = call.in_tree
        self.statics: tuple[tuple[Any, Any, Any], ...] = call.statics or ()
        self.state: tuple[Any, ...] = call.state
        self.source = user_source()
        self.captures_tracers = captures_tracers
        self.tracing = tracing
        self.compiling = 0.0

    def __str__(self) -> str:
        parts = [f"{n}: {t}{' (weak)' if t.weak else ''}" for n, t in zip(self.names, self.types, strict=True)]
        parts += [f"{n} = {_short(v)}" for n, _, v in self.statics]
        return ", ".join(parts) or "no arguments"


class Reason(NamedTuple):
    """What differs from the nearest earlier signature, and what to do about it."""

    what: str
    fix: str


# The jitted functions of each piece of code: a line that runs `jit` again makes a new function.
_of_code: WeakKeyDictionary[CodeType, list[tuple[ref[Any], TraceRecord]]] = WeakKeyDictionary()


def record_trace(jitted: Any, new: TraceRecord) -> None:
    """Keep ``new`` with the function; log what is asked for."""
    history: list[TraceRecord] = jitted.history
    new.name = name_of(jitted.fun)
    code = _code(jitted.fun)
    others = _of_code.setdefault(code, []) if code is not None else []
    if config.log_compiles:
        _log().warning("Finished tracing %s for jit in %.6f s: %s", new.name, new.tracing, new)
    if config.explain_cache_misses:
        found = explain(new, history, jitted, others)
        at = f" at {new.source}" if new.source is not None else ""
        _log().warning("Tracing %s%s%s", new.name, at, "".join(f"\n  {what}\n    fix: {fix}" for what, fix in found))
    history.append(new)
    others.append((ref(jitted), new))
    if len(history) > _KEPT:
        del history[0]
    if len(others) > _KEPT_OF_CODE:
        del others[0]


@contextmanager
def time_compilation(signature: TraceRecord | None) -> Generator[None]:
    """Count the time of compiling."""
    begin = perf_counter()
    yield
    if signature is not None:
        seconds = perf_counter() - begin
        signature.compiling += seconds
        if config.log_compiles:
            _log().warning("Compiled %s in %.6f s: %s", signature.name, seconds, signature)


def _code(fun: Any) -> CodeType | None:
    try:
        return getattr(inspect.unwrap(fun), "__code__", None)
    except ValueError:
        return None


def explain(new: TraceRecord, earlier: Sequence[TraceRecord], jitted: Any, others: Sequence[Any] = ()) -> list[Reason]:
    """Why ``new`` was traced although ``earlier`` were; empty for a first trace."""
    if earlier:
        old = min(reversed(earlier), key=lambda s: len(_differences(s, new)) + 10 * (s.in_tree != new.in_tree))
        found = _differences(old, new)
        if not found and (old.captures_tracers or new.captures_tracers):
            return [
                Reason(
                    "the function closes over traced values of the function around it, so it is traced with it",
                    "pass them as arguments",
                )
            ]
        if not found:
            return [Reason("nothing differs: it was traced ahead of time, or its cache was cleared", "none is needed")]
        where = f" (nearest earlier call: {old.source.shown()})" if old.source is not None else ""
        return [Reason(found[0].what + where, found[0].fix), *found[1:]]
    same = [s for r, s in others if r() is not jitted and s.in_tree == new.in_tree and s.types == new.types]
    if same:
        at = f" at {same[-1].source.shown()}" if same[-1].source is not None else ""
        return [
            Reason(
                f"a new function object: this code was jitted and traced {len(same)} times before with the same "
                f"types, last{at}",
                "call nx.jit once, outside of the loop or function, and keep what it gives",
            )
        ]
    return []


def _differences(old: TraceRecord, new: TraceRecord) -> list[Reason]:
    found: list[Reason] = []
    if old.in_tree != new.in_tree:
        found.append(_tree(old, new))
    else:
        for name, a, b in zip(new.names, old.types, new.types, strict=True):
            if a != b:
                found.append(_type(name, a, b))
    before = {n: (t, v) for n, t, v in old.statics}
    for name, exact, value in new.statics:
        if name not in before:
            found.append(Reason(f"static argument {name!r} was not given before", "give it in all calls, or in none"))
        elif before[name] != (exact, value):
            found.append(_static(name, before[name], value))
    for what, a, b in zip(_STATE, _flat(old.state), _flat(new.state), strict=True):
        if a != b:
            was, now = _setting(a), _setting(b)
            found.append(Reason(f"{what} changed: {was} -> {now}", "set it once, before the first call"))
    return found


def _flat(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `_STATE` names."""
    *scopes, call = state
    return (*scopes, *call.values)


def _setting(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return ", ".join(f"{n}={v!r}" for n, v in value)  # pyright: ignore[reportUnknownVariableType]
    return _short(value)


def _type(name: str, a: ArrayType, b: ArrayType) -> Reason:
    if a.dtype != b.dtype:
        return Reason(
            f"{name}: dtype {a.dtype.name} -> {b.dtype.name}",
            f"cast before the call: {name}.astype({a.dtype.name!r}), or nx.asarray({name}, {a.dtype.name!r})",
        )
    if a.shape != b.shape:
        fix = "pad to one shape, or let nx.bucketed(f) pad to a few"
        if len(a.shape) != len(b.shape):
            fix = "give it one rank: x[None] or x.reshape(...)"
        return Reason(f"{name}: shape {a.shape} -> {b.shape}", fix)
    if a.weak != b.weak:
        kinds = ("an array", "a Python number (weak type)")
        return Reason(
            f"{name}: {kinds[a.weak]} -> {kinds[b.weak]}, both {a.dtype.name}",
            f"give it a strong dtype in all calls: nx.asarray({name}, {a.dtype.name!r})",
        )
    return Reason(f"{name}: {a} -> {b}", "give it one type in all calls")


def _tree(old: TraceRecord, new: TraceRecord) -> Reason:
    gone = [n for n in old.names if n not in new.names]
    come = [n for n in new.names if n not in old.names]
    if gone or come:
        parts = [f"without {', '.join(gone[:4])}"] if gone else []
        parts += [f"with {', '.join(come[:4])}"] if come else []
        what = f"the arguments are another tree: now {' and '.join(parts)}"
    else:
        what = f"the arguments are another tree: {old.in_tree} -> {new.in_tree}"
    return Reason(what, "pass the same names, keys and lengths, each by position or each by name, in all calls")


def _static(name: Any, before: tuple[Any, Any], value: Any) -> Reason:
    was = before[1]
    was_kind, kind = type(was), type(value)
    if callable(value) and getattr(was, "__qualname__", was) == getattr(value, "__qualname__", value):
        return Reason(
            f"static argument {name!r} is a new function object of the same code, {_short(value)}",
            "define the function once, outside of the loop: a lambda or partial made anew is another value",
        )
    if (was_kind is kind and repr(was) == repr(value)) or (was_kind is kind and kind.__eq__ is object.__eq__):
        return Reason(
            f"static argument {name!r} is another object that looks the same, {_short(value)}",
            f"give {kind.__name__} an __eq__ and a __hash__, as @dataclass(frozen=True) does",
        )
    if was_kind is not kind:
        change = f"{was_kind.__name__} {_short(was)} -> {kind.__name__} {_short(value)}"
    else:
        change = f"{_short(was)} -> {_short(value)}"
    return Reason(
        f"static argument {name!r}: {change}",
        "every value is a program of its own; make the argument traced if no shape and no branch depends on it",
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@final
class RetraceReport:
    """What `explain_retrace` found.

    Attributes:
        name: of the function.
        signatures: its traces in order.
        reasons: per trace, why; empty for a first one.
    """

    def __init__(self, name: str, signatures: Sequence[TraceRecord], reasons: Sequence[Sequence[Reason]]) -> None:
        self.name = name
        self.signatures = tuple(signatures)
        self.reasons = tuple(tuple(r) for r in reasons)

    @property
    def count(self) -> int:
        """How many times it was traced."""
        return len(self.signatures)

    @property
    def seconds(self) -> tuple[float, float]:
        """Time spent tracing and compiling."""
        return sum(s.tracing for s in self.signatures), sum(s.compiling for s in self.signatures)

    def __len__(self) -> int:
        return len(self.signatures)

    @property
    def head(self) -> str:
        tracing, compiled = self.seconds
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"{self.name}: traced {times}, {shown_time(tracing)} tracing, {shown_time(compiled)} compiling"

    def __str__(self) -> str:
        if not self.signatures:
            return f"{self.name}: was not traced yet"
        lines = [self.head]
        for i, (s, found) in enumerate(zip(self.signatures, self.reasons, strict=True), 1):
            lines.append(f"  {i}. {s}")
            lines.append(f"     tracing {shown_time(s.tracing)}, compiling {shown_time(s.compiling)}")
            if s.source is not None:
                lines.append(f"     at:  {s.source.shown()}")
            for what, fix in found:
                lines += [f"     why: {what}", f"     fix: {fix}"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render("retrace_page", self)


def shown_time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def explain_retrace(fun: Callable[..., Any]) -> RetraceReport:
    """Why ``fun`` was traced each time: what differs from the most similar earlier trace, and the fix.

    Args:
        fun: a jitted function that was called before; or the plain function, for all jitted versions of it.

    Returns:
        a report, to print or to display in a notebook.

    Raises:
        ParameterError: it is not a jitted function, and was never jitted.

    >>> f = nx.jit(lambda x: x + 1)
    >>> _ = f(nx.zeros(2)), f(nx.zeros(3))
    >>> explain_retrace(f).reasons[1][0].what[:21]
    'x: shape (2,) -> (3,)'
    """
    while isinstance(fun, functools.partial):
        fun = fun.func
    name = getattr(fun, "__name__", type(fun).__name__)
    history: list[TraceRecord] | None = getattr(fun, "history", None)
    code = _code(fun)
    others = _of_code.get(code, []) if code is not None else []
    if isinstance(history, list) and hasattr(fun, "trace_count"):
        first = [o for o in others if history and o[1] is not history[0]]
        if history:
            before = [s for _, s in others]
            first = others[: before.index(history[0])] if history[0] in before else []
        reasons = [explain(s, history[:i], fun, first) for i, s in enumerate(history)]
        return RetraceReport(name, history, reasons)
    if not others:
        raise ParameterError(
            "explain_retrace: needs a jitted function",
            got=name,
            expected="what nx.jit gives, or a function that was jitted",
            fix="f = nx.jit(f), call it, then nx.explain_retrace(f)",
        )
    signatures = [s for _, s in others]
    reasons: list[list[Reason]] = []
    for i, (made, s) in enumerate(others):
        own = [t for r, t in others[:i] if r() is not None and r() is made()]
        reasons.append(explain(s, own, made(), others[:i]))
    return RetraceReport(name, signatures, reasons)
