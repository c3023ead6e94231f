"""Equations written out: one flat program without jit, checkpoint and custom derivatives; short scans unrolled.

When a program is lowered, derivative rules are no longer needed, so such a call becomes its program. Loops with a
number of steps that is data (``while``) stay, and so do choices (``cond``), except those by a literal. `Inliner` takes
a table of rules by op, and a device may add rows. It must not know which devices there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from nxjax.ops.base import expansion
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import concatenate, slice
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.transforms.subprograms import clamped_branch

if TYPE_CHECKING:
    from nxjax.transforms.control.loop_params import LoopParams


def inlined(
    program: Program, unroll: int = 0, calls: frozenset[str] | None = None, keep: Keep | None = None
) -> Program:
    """``program`` with calls written out, and its scans of at most ``unroll`` steps. Kept with ``program``.

    ``calls`` names the ops that are; None: all that say so of themselves (`Op.call_for_transforms`). Scans of which
    ``keep`` holds stay; it is given the equation, and the consts that are known.

    Equations keep their own source line and get the scopes of the calls they come from.

    >>> p = nx.make_jaxpr(nx.jit(lambda x: nx.jit(nx.sin)(x) + 1.0))(0.5)
    >>> [e.op.name for e in inlined(p).equations]
    ['sin', 'add']
    """

    def call(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
        return flat.call(e) if (e.op.call_for_transforms if calls is None else e.op.name in calls) else None

    def loop(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
        short = e.params["length"] <= unroll
        return flat.unrolled(e) if short and not (keep is not None and keep(e, flat.known)) else None

    rules = {"cond": Inliner.known_branch, "scan": loop}
    return program.derive(("inlined", unroll, calls, keep), lambda: Inliner(program, rules, call).result())


@final
class Inliner:
    """Writes a program out.

    Args:
        program: stays as it is.
        rules: an op's name -> its rule, which gets this object and the equation, with the flat program's operands and
            the scopes around it. It gives the results of what it wrote, or None: the equation stays.
        default: the rule of all other ops.
    """

    def __init__(self, program: Program, rules: Mapping[str, Rule], default: Rule | None = None) -> None:
        self._program = program
        self._rules = rules
        self._default = default
        self._consts = list(program.constvars)
        self._values = list(program.values)
        self._equations: list[Equation] = []
        self._captured: dict[int, Var] = {}
        self._changed = False

    @property
    def known(self) -> dict[Var, Array]:
        """The consts of the flat program so far."""
        return dict(zip(self._consts, self._values, strict=True))

    def result(self) -> Program:
        """The flat program; the same one where no rule wrote anything."""
        p = self._program
        env: dict[Var, Atom] = {}
        self._write(p, env, "", None)
        if not self._changed:
            return p
        outputs = [env.get(a, a) if isinstance(a, Var) else a for a in p.outputs]
        return Program(p.inputs, self._equations, outputs, self._consts, self._values, p.name)

    def _write(self, p: Program, env: dict[Var, Atom], scope: str, caller: Equation | None) -> None:
        """Add the equations of ``p``; ``env`` says what its inputs are and gets what its variables become.

        ``caller`` is the equation that ``p`` is the expansion of, whose line and scope everything gets.
        """
        at_top = p is self._program
        for e in p.equations:
            inputs = tuple([env.get(a, a) if isinstance(a, Var) else a for a in e.inputs])
            source = e.source if caller is None else caller.source
            within = _joined(scope, e.scope) if caller is None else scope
            if at_top and inputs == e.inputs and within == e.scope:
                now = e
            else:
                outputs = e.outputs if at_top else tuple([Var(v.type) for v in e.outputs])
                now = Equation(e.op, inputs, outputs, e.params, source, within)
            rule = self._rules.get(e.op.name, self._default)
            found = None if rule is None else rule(self, now)
            if found is not None:
                self._changed = True
            else:
                self._equations.append(now)
                if at_top:
                    continue
                found = now.outputs
            env.update(zip(e.outputs, found, strict=True))

    def inline(self, p: Program, inputs: Sequence[Atom], scope: str, caller: Equation | None = None) -> list[Atom]:
        """The results of ``p``, whose equations are written here.

        Args:
            inputs: its arguments, of the flat program.
            scope: of what calls it.
            caller: the equation whose line and scope everything gets; None: they keep their own, within ``scope``.
        """
        env: dict[Var, Atom] = dict(zip(p.inputs, inputs, strict=True))
        env.update((v, self._const(v, x)) for v, x in zip(p.constvars, p.values, strict=True))
        self._write(p, env, scope, caller)
        return [env[a] if isinstance(a, Var) else a for a in p.outputs]

    def expand(self, e: Equation, rule: Callable[..., Any]) -> list[Atom]:
        """The results of ``rule``, a function of the equation's operands and parameters, staged once per type."""
        p = expansion(e.op, [a.type for a in e.inputs], e.params, rule)
        return self.inline(p, e.inputs, e.scope, e)

    def emit(self, e: Equation, op: Op, inputs: Sequence[Atom], **params: Any) -> tuple[Var, ...]:
        """The results of ``op``, at the line and in the scope of ``e``."""
        types = op.infer(*(a.type for a in inputs), **params)
        outputs = tuple([Var(t) for t in (types if op.multi else (types,))])
        self._equations.append(Equation(op, tuple(inputs), outputs, params, e.source, e.scope))
        return outputs

    def _const(self, v: Var, value: Array) -> Var:
        """A const of the flat program; one per array, however often its program is called."""
        found = self._captured.get(id(value))
        if found is None:
            found = self._captured[id(value)] = Var(v.type)
            self._consts.append(found)
            self._values.append(value)  # also keeps id(value) from being reused
        return found

    # --- rules ---

    def call(self, e: Equation) -> list[Atom] | None:
        """A call is its program."""
        found = e.op.called(*e.inputs, **e.params)
        return None if found is None else self.inline(*found, e.scope)

    def known_branch(self, e: Equation) -> list[Atom] | None:
        """A choice by a literal is its branch."""
        index = e.inputs[0]
        if not isinstance(index, Literal) or index.type.shape:
            return None
        branches: Sequence[Program] = e.params["branches"]
        at = int(index.value.numpy())  # pyright: ignore[reportAttributeAccessIssue]
        return self.inline(clamped_branch(branches, at), e.inputs[1:], e.scope)

    def unrolled(self, e: Equation) -> list[Atom]:
        """A scan is its steps."""
        loop: LoopParams = e.params["loop"]
        operands, makers = loop.split(e.inputs), loop.results(e.outputs)[1]
        carry: Sequence[Atom] = operands.carry
        columns: list[list[Atom]] = [[] for _ in makers]
        for i in loop.step_indices():
            now = operands._replace(carry=carry, xs=[self._row(x, i, e) for x in operands.xs])
            carry, ys = loop.results(self.inline(loop.body, now.body_inputs, e.scope))
            for column, y in zip(columns, ys, strict=True):
                column.append(y)
        if loop.reverse:
            columns = [c[::-1] for c in columns]
        return [*carry, *(self._stacked(c, v, e) for c, v in zip(columns, makers, strict=True))]

    def _row(self, x: Atom, i: int, e: Equation) -> Var:
        shape = x.type.shape
        if shape[0] > 1:
            starts, limits = (i, *(0,) * (len(shape) - 1)), (i + 1, *shape[1:])
            (x,) = self.emit(e, slice, [x], start_indices=starts, limit_indices=limits, strides=None)
        return self.emit(e, reshape, [x], shape=shape[1:])[0]

    def _stacked(self, ys: Sequence[Atom], v: Var, e: Equation) -> Var:
        if not ys:
            return self._const(v, wrap(np.zeros(v.type.shape, v.type.dtype)))
        shape = (1, *v.type.shape[1:])
        dims = tuple(range(1, len(shape)))
        rows = [self.emit(e, broadcast_in_dim, [y], shape=shape, broadcast_dimensions=dims)[0] for y in ys]
        return rows[0] if len(rows) == 1 else self.emit(e, concatenate, rows, dimension=0)[0]


Rule = Callable[[Inliner, Equation], Sequence[Atom] | None]
Keep = Callable[[Equation, dict[Var, Array]], bool]


def _joined(outer: str, inner: str) -> str:
    """The scope of an equation in a call: that of the call, unless tracing has already put it in front."""
    if outer and inner and not inner.startswith(outer):
        return f"{outer}/{inner}"
    return inner or outer
