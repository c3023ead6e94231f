"""Program -> `CpuProgram`: simplified, then equation by equation through the rules, then the memory plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.builder import Builder, NoKernel, View, dense_view
from nxjax.lower.cpu.held import SMALL, Parts, parted
from nxjax.lower.cpu.lazy import Lazy
from nxjax.lower.cpu.memory import planned
from nxjax.lower.cpu.registry import NAMES, rule_of
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, Ref, TapeStep, walk
from nxjax.lower.passes.simplify import simplified
from nxjax.ops.base import expansion
from nxjax.trace.program import Equation, Literal, Program, Var

LATE: Final = 24  # equations


def prepared(program: Program) -> Program:
    """What is lowered for ``program``: without calls, composites that no rule takes whole, and needless work."""
    return simplified(program, NAMES)


def lower(program: Program, donate: tuple[int, ...] = ()) -> CpuProgram:
    """The steps that compute ``program``, which has no consts."""
    return planned(_lowered(program, donate))


def lower_parts(program: Program, count: int, donate: tuple[int, ...] = ()) -> Parts | None:
    """`lower` where the first ``count`` arguments are held; None: they make no difference."""
    if sum(t.size * t.dtype.itemsize for t in program.in_types[:count]) < SMALL:
        return None
    return parted(_lowered(program, donate, count), count)


def _lowered(program: Program, donate: tuple[int, ...], held: int = 0) -> CpuProgram:
    """The steps before their memory is planned."""
    ready = prepared(program)
    b = Builder()
    inputs = [Buffer(v.type.size * v.type.dtype.itemsize, "input", i) for i, v in enumerate(program.inputs)]
    b.held.update(inputs[:held])
    given = [dense_view(x, v.type) for v, x in zip(ready.inputs, inputs, strict=True)]
    env: dict[Var, Any] = dict(zip(ready.inputs, given, strict=True))
    env.update((v, x.numpy()) for v, x in zip(ready.constvars, ready.values, strict=True))  # pyright: ignore
    lower_equations(b, ready, env, LATE)
    b.equation = None
    values = [a.value.numpy() if isinstance(a, Literal) else env[a] for a in ready.outputs]  # pyright: ignore
    b.together([x for x in values if isinstance(x, Lazy)])
    outputs = _results(b, values, given)
    _join_products(b.steps)
    return CpuProgram(program.in_types, program.out_types, inputs, outputs, b.consts, b.steps, donated=donate)


def _join_products(steps: list[TapeStep]) -> None:
    """Attention as one step, in programs that have two products; others need not import what knows of it."""
    # Blocks of keys would change the order of sums.
    several = sum(type(s.kernel).__name__ == "Gemm" for s in walk(steps) if isinstance(s, CallStep)) > 1
    if several and not isa.current().reproducible:
        from nxjax.lower.cpu.attention import with_attention

        with_attention(steps)


def _results(b: Builder, values: Sequence[Any], given: Sequence[View]) -> list[Buffer]:
    """A buffer for each result: an argument's, a constant's or an equal result's own, else one that is copied to.

    Of equal bytes, that is, and of one shape and dtype: a buffer leaves as one array.
    """
    outputs: list[Buffer] = []
    known: dict[Any, Buffer] = {}
    for i, x in enumerate(map(b.dense, values)):
        if x.ref.buffer.kind in ("input", "const") and _is_all(x):
            kind, index = x.ref.buffer.kind, x.ref.buffer.index
            held: Any = b.consts[index] if kind == "const" else given[index]
            if (held.shape, held.dtype) == (x.shape, x.dtype):
                outputs.append(x.ref.buffer)
                continue
        key = (x.ref, x.shape, x.dtype)
        if key not in known:
            known[key] = out = Buffer(x.size * x.dtype.itemsize, "output", i)
            b.steps.append(CopyStep(x.ref, Ref(out), out.nbytes))
        outputs.append(known[key])
    return outputs


def _is_all(x: View) -> bool:
    return not x.ref.offset and not x.ref.moves and x.ref.buffer.nbytes == x.size * x.dtype.itemsize


def lower_equations(b: Builder, program: Program, env: dict[Var, Any], late: int = 0) -> None:
    """Add the steps of every equation; ``env`` has the values of inputs and consts and gets all others.

    ``late``: 0, or results of the program are computed so many equations after their own, if nobody has wanted them
    before: with others of the same operands, and before these take memory for long.
    """
    around, before = b.equation, b.reads
    reads: Counter[object] = Counter(a for e in program.equations for a in e.inputs)
    reads.update(program.outputs)
    b.reads = reads
    for v in program.inputs:
        b.claim(env[v], reads[v])
    results = set(program.outputs) if late else set[Any]()
    waiting: list[Any] = []
    due = 0
    for i, (e, dead) in enumerate(zip(program.equations, program.last_use, strict=True)):
        if waiting and i >= due:
            b.together(waiting)
            waiting.clear()
        xs = [env[a] if isinstance(a, Var) else a.value.numpy() for a in e.inputs]  # pyright: ignore[reportAttributeAccessIssue]
        b.equation = e
        ys: Sequence[Any]
        try:
            found = rule_of(e.op.name)
            if found is None:
                raise NoKernel("no rule")
            ys = found(b, e, *xs)
        except NoKernel as why:
            ys = _otherwise(b, e, xs, str(why))
        for v, y in zip(e.outputs, ys, strict=True):
            env[v] = y
            b.claim(y, reads[v])
            if v in results and isinstance(y, Lazy):
                due = due if waiting else i + late
                waiting.append(y)
        for x in xs:
            b.drop(x)
        for v in dead:
            env.pop(v, None)
    b.equation, b.reads = around, before


def _otherwise(b: Builder, e: Equation, xs: Sequence[Any], why: str) -> Sequence[Any]:
    """``e`` in the ops that it is made of, or by its NumPy meaning."""
    if e.op.has("expand") and e.op.name in NAMES and not e.op.effect:
        p = simplified(expansion(e.op, [a.type for a in e.inputs], e.params), NAMES)
        if not any(inner.op is e.op for inner in p.equations):
            return inline(b, p, xs)
    return b.host(e, xs, why)


def inline_expansion(b: Builder, e: Equation, xs: Sequence[Any], expand: Callable[..., Any]) -> Sequence[Any]:
    """The results of ``e`` as ``expand`` makes them of other ops."""
    return inline(b, expansion(e.op, [a.type for a in e.inputs], e.params, expand), xs)


def inline(b: Builder, program: Program, xs: Sequence[Any]) -> list[Any]:
    """The results of ``program`` on values."""
    env: dict[Var, Any] = dict(zip(program.inputs, xs, strict=True))
    env.update((v, x.numpy()) for v, x in zip(program.constvars, program.values, strict=True))  # pyright: ignore
    lower_equations(b, program, env)
    found = [np.asarray(a.value.numpy()) if isinstance(a, Literal) else env[a] for a in program.outputs]  # pyright: ignore
    for y in found:
        b.claim(y, -1)  # the program around claims it
    return found
