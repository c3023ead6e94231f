"""`nx.profile` and `nx.cost`: the program that `jit` compiles for the CPU, step by step, on the same machine code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter, empty, run_kernel
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.backends.quiet import quiet
from nxjax.errors import ParameterError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.probe import StreamCopy
from nxjax.lower.cpu.lower import lower, lower_parts
from nxjax.lower.cpu.tape import (
    BranchStep,
    CallStep,
    CopyStep,
    CpuProgram,
    HostStep,
    RepeatStep,
    TapeStep,
    WhileStep,
    walk,
)
from nxjax.profiling.peaks import peaks
from nxjax.profiling.rows import Profile, ProfileRow, StepSpan
from nxjax.trace import tree
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import entry
from nxjax.transforms.jit import Jitted, Traced, jit


@entry
def profile(fun: Callable[..., Any], *, repeats: int = 5) -> Callable[..., Profile]:
    """A function that runs ``fun`` as `jit` compiles it for the CPU, and returns the time of every kernel.

    Args:
        fun: a pure function, or a jitted one (its static arguments stay static).
        repeats: number of runs, after one that does not count; the best one is kept.

    Returns:
        A callable of ``fun``'s arguments that returns a `Profile`: rows with time, bytes, FLOP, share of the roofline
        and the user's source line; ``result``; ``table()``, ``save_trace(path)`` (Perfetto), ``roofline()`` (plot).

    Raises:
        ParameterError: ``repeats`` is below 1.

    Steps run one after another from Python, so the gaps between them differ from those of a jitted call. The time
    inside a kernel is the same.

    >>> p = nx.profile(lambda x: jnp.tanh(x).sum())(jnp.ones((64, 64)))
    >>> p.measured, len(p.rows) > 0, float(p.result) > 0
    (True, True, True)
    """
    if repeats < 1:
        raise ParameterError("profile: repeats", got=repeats, expected="1 or more")

    def run(*args: Any, **kwargs: Any) -> Profile:
        traced, program, values = _lowered(fun, args, kwargs)
        found = _profile(_name(fun), program, measured=True)
        rows = _rows(program)
        interpreter, spans = _watched(program, rows)
        xs = [v.numpy() for v in values]
        best: tuple[float, list[StepSpan]] | None = None
        ys: list[Any] = []
        for repeat in range(repeats + 1):
            spans.clear()
            start = time.perf_counter()
            with quiet():
                ys = interpreter(xs)
            if repeat and (best is None or time.perf_counter() - start < best[0]):
                best = (time.perf_counter() - start, _from_zero(spans))
        assert best is not None
        found.spans = best[1]
        found.seconds = max((s.start + s.seconds for s in found.spans), default=0.0)
        for s in found.spans:
            rows[s.row].calls += 1
            rows[s.row].seconds += s.seconds
        _count(program, rows)
        found.rows = rows
        out = [DeviceArray(y, t) for y, t in zip(ys, program.out_types, strict=True)]
        found.result = tree.unflatten(traced.out_tree, out)
        return found

    return run


@entry
def cost(fun: Callable[..., Any]) -> Callable[..., Profile]:
    """As `profile`, estimated without running: every kernel at the limits of the machine.

    Args:
        fun: a pure function, or a jitted one.

    Returns:
        A callable of ``fun``'s arguments (or `nx.ShapeDtypeStruct`s) that returns a `Profile` whose ``measured`` is
        False. A `while` loop counts once per iteration if a counter and its bound give the number, else once. Of
        branches, the most expensive one counts. ``notes`` name these lines.

    >>> c = nx.cost(lambda x: x @ x)(nx.ShapeDtypeStruct((256, 256), "float32"))
    >>> c.measured, c.flops >= 2 * 256**3
    (False, True)
    """

    def run(*args: Any, **kwargs: Any) -> Profile:
        _, program, _ = _lowered(fun, args, kwargs, types=True)
        found = _profile(_name(fun), program, measured=False)
        rows = _rows(program)
        _estimate(program, rows, found)
        _count(program, rows)
        for r in rows:
            r.seconds = found.peaks.seconds(r.flops, r.nbytes)
        found.rows = rows
        found.seconds = sum(r.seconds for r in rows)
        return found

    return run


def _lowered(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], types: bool = False
) -> tuple[Traced, CpuProgram, list[DeviceArray]]:
    jitted: Jitted = fun if isinstance(fun, Jitted) else jit(fun)
    traced = jitted.trace(*args, **kwargs)
    hoisted, consts = traced.program.hoist_consts()
    leaves: list[Any] = [] if types else [as_value(x, "profile") for x in tree.leaves(traced.bind(args, kwargs))]
    held: list[Any] = list(consts)
    parts = lower_parts(hoisted, len(held)) if held else None
    if parts is None:
        return traced, lower(hoisted), [*held, *leaves]
    # As calls run from the second on: what depends on constants alone was done before.
    made = [] if types else TapeInterpreter(parts.preparation, engine(isa.current()))([x.numpy() for x in held])
    return traced, parts.main, [*(held[i] for i in parts.kept), *map(wrap, made), *leaves]


def _name(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", "function").replace("<lambda>", "lambda")


def _profile(name: str, program: CpuProgram, measured: bool) -> Profile:
    def total(types: Any) -> int:
        return sum(t.size * t.dtype.itemsize for t in types)

    return Profile(
        name,
        [],
        [],
        0.0,
        program.arena,
        total(program.in_types),
        total(program.out_types),
        peaks(runtime().thread_statistics()["threads"]),
        measured,
    )


def _leaves(program: CpuProgram) -> list[TapeStep]:
    """The steps that do something themselves, in program order."""
    return [s for s in walk(program.steps) if isinstance(s, (CallStep, CopyStep, HostStep))]


def _rows(program: CpuProgram) -> list[ProfileRow]:
    rows: list[ProfileRow] = []
    for s in _leaves(program):
        e = s.equation
        source = "" if e is None or e.source is None else str(e.source)
        scope = "" if e is None else e.scope
        if isinstance(s, CallStep):
            rows.append(ProfileRow(s.kernel.title, s.kernel.key, source, scope))
        elif isinstance(s, HostStep):
            rows.append(ProfileRow(f"host {'?' if e is None else e.op.name}", s.why, source, scope))
        else:
            rows.append(ProfileRow("copy", "copy", source, scope))
    return rows


def _watched(program: CpuProgram, rows: list[ProfileRow]) -> tuple[TapeInterpreter, list[StepSpan]]:
    spans: list[StepSpan] = []
    number = {id(s): i for i, s in enumerate(_leaves(program))}
    overhead = _overhead()

    def watch(step: TapeStep, start: float, seconds: float) -> None:
        i = number.get(id(step))
        if i is not None:
            spans.append(StepSpan(i, start, max(seconds - overhead, 0.0)))

    return TapeInterpreter(program, engine(isa.current()), watch), spans


def _overhead() -> float:
    """Seconds that timing adds to a call of machine code."""
    kernel = StreamCopy(1)
    (address,) = engine(isa.current()).addresses([kernel])
    source, target = empty(4096), empty(4096)
    words = [source.ctypes.data, target.ctypes.data]
    found = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        run_kernel(address, kernel, words, 0, 0)
        found = min(found, time.perf_counter() - start)
    return found


def _from_zero(spans: list[StepSpan]) -> list[StepSpan]:
    first = min((s.start for s in spans), default=0.0)
    return [StepSpan(s.row, s.start - first, s.seconds) for s in spans]


def _count(program: CpuProgram, rows: list[ProfileRow]) -> None:
    """Operations and bytes: a kernel's own, times its calls."""
    for s, r in zip(_leaves(program), rows, strict=True):
        if isinstance(s, CallStep):
            c = s.kernel.cost()
            r.flops, r.read, r.written = c.flops * r.calls, c.read * r.calls, c.written * r.calls
        elif isinstance(s, CopyStep):
            r.read = r.written = float(s.nbytes * r.calls)
        elif isinstance(s, HostStep):
            r.read = float(r.calls * sum(t.size * t.dtype.itemsize for t in s.in_types))
            r.written = float(r.calls * sum(t.size * t.dtype.itemsize for t in s.out_types))


def _estimate(program: CpuProgram, rows: list[ProfileRow], found: Profile) -> None:
    """How often each step runs."""
    number = {id(s): i for i, s in enumerate(_leaves(program))}

    def add(steps: list[TapeStep], times: int) -> None:
        for s in steps:
            match s:
                case RepeatStep():
                    add(s.body, times * s.counter.count)
                case WhileStep():
                    if s.turns is None:
                        found.notes.append(f"a while loop of unknown length is counted once{_at(s)}")
                        found.open_loops.append(f"while{_at(s)}")
                    n = 1 if s.turns is None else s.turns
                    add(s.condition, times * (n + 1))
                    add(s.body, times * n)
                case BranchStep():
                    found.notes.append(f"of a choice the dearest branch is counted{_at(s)}")
                    add(max(s.branches, key=_weight), times)
                case _:
                    rows[number[id(s)]].calls += times

    add(program.steps, 1)


def _at(step: TapeStep) -> str:
    return "" if step.source is None else f": {step.source}"


def _weight(steps: list[TapeStep]) -> float:
    """About how dear steps are: bytes and operations of their kernels, and a loop of unknown length above all."""
    total = 0.0
    for s in steps:
        match s:
            case CallStep():
                c = s.kernel.cost()
                total += c.flops + c.read + c.written
            case HostStep():
                total += 1
            case RepeatStep() if s.counter.count:
                total += s.counter.count * _weight(s.body)
            case WhileStep() if s.turns != 0:
                total += math.inf if s.turns is None else s.turns * _weight([*s.condition, *s.body])
            case BranchStep():
                total += max(map(_weight, s.branches))
            case _:
                pass
    return total
