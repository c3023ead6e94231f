"""Calls written out: one flat program without jit, checkpoint and custom derivatives; short scans unrolled.

A derivative rule has done its work when a program is lowered: what is left of such a call is its program. Loops whose
number of steps is data (``while``) and choices (``cond``) stay; a choice by a literal is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate, slice
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.nested import clamped_branch

CALLS: Final = frozenset(("jit", "bucketed", "checkpoint", "custom_jvp_call", "custom_vjp_call", "call_exported"))


def inlined(program: Program, unroll: int = 0, calls: frozenset[str] = CALLS) -> Program:
    """``program`` with calls written out, and its scans of at most ``unroll`` steps. Kept with ``program``.

    ``calls`` names the ops that are: those that only compute their program, or only jit for users who differentiate
    what comes out.

    Equations keep their own source line and get the scopes of the calls they come from.

    >>> import nxjax as nx
    >>> p = nx.make_jaxpr(nx.jit(lambda x: nx.jit(nx.sin)(x) + 1.0))(0.5)
    >>> [e.op.name for e in inlined(p).equations]
    ['sin', 'add']
    """
    if not any(_opens(e, unroll, calls) for e in program.equations):
        return program
    return program.derive(("inlined", unroll, calls), lambda: _Inliner(program, unroll, calls).result())


def _opens(e: Equation, unroll: int, calls: frozenset[str]) -> bool:
    name = e.op.name
    if name == "scan":
        return e.params["length"] <= unroll
    return name in calls or (name == "cond" and isinstance(e.inputs[0], Literal) and not e.inputs[0].type.shape)


@final
class _Inliner:
    def __init__(self, program: Program, unroll: int, calls: frozenset[str]) -> None:
        self.program = program
        self.unroll = unroll
        self.calls = calls
        self.consts = list(program.constvars)
        self.values = list(program.values)
        self.equations: list[Equation] = []
        self.captured: dict[int, Var] = {}

    def result(self) -> Program:
        p = self.program
        env: dict[Var, Atom] = {v: v for v in (*p.constvars, *p.inputs)}
        outputs = self._equations(p, env, "")
        return Program(p.inputs, self.equations, outputs, self.consts, self.values, p.name)

    def _equations(self, p: Program, env: dict[Var, Atom], scope: str) -> list[Atom]:
        def atom(a: Atom) -> Atom:
            return env[a] if isinstance(a, Var) else a

        for e in p.equations:
            inputs = [atom(a) for a in e.inputs]
            within = _joined(scope, e.scope)
            found: Sequence[Atom] | None = None
            if _opens(e.replaced(tuple(inputs), e.outputs), self.unroll, self.calls):
                found = self._opened(e, inputs, within)
            if found is None:
                found = outputs = tuple(Var(v.type) for v in e.outputs)
                self.equations.append(Equation(e.op, tuple(inputs), outputs, e.params, e.source, within))
            env.update(zip(e.outputs, found, strict=True))
        return [atom(a) for a in p.outputs]

    def _opened(self, e: Equation, inputs: Sequence[Atom], scope: str) -> list[Atom] | None:
        if e.op.name == "scan":
            return self._unrolled(e, inputs, scope)
        if e.op.name == "cond":
            index = inputs[0]
            assert isinstance(index, Literal)
            branches: Sequence[Program] = e.params["branches"]
            return self._call(clamped_branch(branches, int(index.value.numpy())), inputs[1:], scope)  # pyright: ignore
        program: Program | None = e.op.called(**e.params)
        return None if program is None else self._call(program, inputs, scope)

    def _call(self, p: Program, inputs: Sequence[Atom], scope: str) -> list[Atom]:
        env: dict[Var, Atom] = dict(zip(p.inputs, inputs, strict=True))
        env.update((v, self._const(v, x)) for v, x in zip(p.constvars, p.values, strict=True))
        return self._equations(p, env, scope)

    def _const(self, v: Var, value: Array) -> Var:
        """A const of the flat program; one per array, however often its program is called."""
        found = self.captured.get(id(value))
        if found is None:
            found = self.captured[id(value)] = Var(v.type)
            self.consts.append(found)
            self.values.append(value)  # also keeps id(value) from being reused
        return found

    def _emit(self, op: Op, inputs: Sequence[Atom], e: Equation, scope: str, **params: Any) -> Var:
        out = Var(op.infer(*(a.type for a in inputs), **params))
        self.equations.append(Equation(op, tuple(inputs), (out,), params, e.source, scope))
        return out

    def _unrolled(self, e: Equation, inputs: Sequence[Atom], scope: str) -> list[Atom]:
        loop = LoopParams.of(e.params)
        x = loop.split(inputs)
        carry, makers = x.carry, loop.results(e.outputs)[1]
        columns: list[list[Atom]] = [[] for _ in makers]
        for i in loop.order():
            slices = [self._step(s, i, e, scope) for s in x.xs]
            carry, ys = loop.results(self._call(loop.body, [*x.consts, *carry, *slices], scope))
            for column, y in zip(columns, ys, strict=True):
                column.append(y)
        stacked: list[Atom] = []
        for column, v in zip(columns, makers, strict=True):
            if not loop.length:
                stacked.append(self._const(v, wrap(np.zeros(v.type.shape, v.type.dtype))))
                continue
            rows = [self._emit(reshape, [y], e, scope, shape=(1, *y.type.shape)) for y in column]
            stacked.append(self._emit(concatenate, rows[::-1] if loop.reverse else rows, e, scope, dimension=0))
        return [*carry, *stacked]

    def _step(self, x: Atom, i: int, e: Equation, scope: str) -> Var:
        t: ArrayType = x.type
        starts, limits = (i, *(0,) * (t.ndim - 1)), (i + 1, *t.shape[1:])
        row = self._emit(slice, [x], e, scope, start_indices=starts, limit_indices=limits, strides=None)
        return self._emit(reshape, [row], e, scope, shape=t.shape[1:])


def _joined(outer: str, inner: str) -> str:
    """The scope of an equation in a call: that of the call, unless tracing has already put it in front."""
    if outer and inner and not inner.startswith(outer):
        return f"{outer}/{inner}"
    return inner or outer
