"""One flat program: calls written out, composites as the ops they are made of, choices that are known made.

A derivative rule has done its work when a program is lowered, so what is left of such a call is its program. What a
device matches whole, it names. Programs held by loops and choices stay where they are; `lower.passes.simplify` goes
into them. Expansions are staged once per op, operand types and parameters, whatever the number of equal layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, final

from nxjax.ops.base import expansion
from nxjax.ops.identity import optimization_barrier
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.cond import choose
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.inline import CALLS
from nxjax.transforms.nested import clamped_branch

# What gives its operand back; on one device a layout is one of them.
IDENTITIES: Final = frozenset(("copy", "name", "stop_gradient", "sharding_constraint"))


def flattened(program: Program, opaque: Collection[str] = ()) -> Program:
    """``program`` with calls and composites written out, but for ops named in ``opaque``. Kept with ``program``.

    Equations keep the user's source line and scope; those of a composite get its.

    >>> import nxjax as nx
    >>> p = nx.make_jaxpr(nx.jit(lambda x: nx.nn.relu(x) + 1.0))(0.5)
    >>> [e.op.name for e in flattened(p).equations]
    ['max', 'add']
    """
    kept = frozenset(opaque)
    return program.derive(("flat", kept), lambda: _Flattener(program, kept).result())


@final
class _Flattener:
    def __init__(self, program: Program, opaque: frozenset[str]) -> None:
        self.program = program
        self.opaque = opaque
        self.consts = list(program.constvars)
        self.values = list(program.values)
        self.equations: list[Equation] = []
        self.captured: dict[int, Var] = {}
        self.changed = False

    def result(self) -> Program:
        p = self.program
        env: dict[Var, Atom] = {}
        self._equations(p, env, "", None)
        if not self.changed:
            return p
        outputs = [env.get(a, a) if isinstance(a, Var) else a for a in p.outputs]
        return Program(p.inputs, self.equations, outputs, self.consts, self.values, p.name)

    def _equations(self, p: Program, env: dict[Var, Atom], scope: str, caller: Equation | None) -> None:
        """Add the equations of ``p``; ``env`` says what its inputs are and gets what its variables become.

        ``caller`` is the composite that ``p`` is the expansion of, whose line and scope everything gets.
        """
        at_top = p is self.program
        for e in p.equations:
            inputs = tuple([env.get(a, a) if isinstance(a, Var) else a for a in e.inputs])
            source = e.source if caller is None else caller.source
            within = _joined(scope, e.scope) if caller is None else scope
            if e.op.name in IDENTITIES:
                env[e.outputs[0]] = inputs[0]
                self.changed = True
                continue
            opened = self._opened(e, inputs, within, source)
            if opened is not None:
                env.update(zip(e.outputs, opened, strict=True))
                self.changed = True
                continue
            if at_top:
                same = inputs == e.inputs and within == e.scope
                self.equations.append(e if same else Equation(e.op, inputs, e.outputs, e.params, e.source, within))
                continue
            outputs = tuple([Var(v.type) for v in e.outputs])
            env.update(zip(e.outputs, outputs, strict=True))
            self.equations.append(Equation(e.op, inputs, outputs, e.params, source, within))

    def _opened(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        """The results of an equation by those it stands for; None: it stays."""
        return _OPENING.get(e.op.name, _Flattener.composite)(self, e, inputs, scope, source)

    def composite(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        if e.op.has("expand") and not e.op.effect and e.op.name not in self.opaque:
            return self._expanded(e, inputs, scope, source, e.op.expand)
        return None

    def call(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        program: Program | None = e.op.called(**e.params)
        return None if program is None else self._call(program, inputs, scope)

    def recomputed(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        if e.params["differentiated"] and e.params["prevent_cse"] and inputs:
            # What is computed again must not be found to be known already.
            inputs = self._emit(optimization_barrier, inputs, scope, source, [a.type for a in inputs], {})
        return self.call(e, inputs, scope, source)

    def linear_solve(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom]:
        # The program that solves, its constants, and the right-hand side.
        counts: tuple[int, ...] = e.params["counts"]
        start = sum(counts[:2])
        given = [*inputs[start : start + counts[2]], *inputs[sum(counts) :]]
        return self._call(e.params["programs"][2], given, scope)

    def root(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom]:
        return self._call(e.params["solve"], inputs[e.params["counts"][0] :], scope)

    def choice(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        index = inputs[0]
        if index.type.shape:
            return self._expanded(e, inputs, scope, source, _every_branch)
        if isinstance(index, Literal):
            branches: Sequence[Program] = e.params["branches"]
            at = int(index.value.numpy())  # pyright: ignore[reportAttributeAccessIssue]
            return self._call(clamped_branch(branches, at), inputs[1:], scope)
        return None

    def loop(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom] | None:
        opened = self._one_turn if e.params["length"] == 1 else self.composite
        return opened(e, inputs, scope, source)

    def _call(self, p: Program, inputs: Sequence[Atom], scope: str, caller: Equation | None = None) -> list[Atom]:
        env: dict[Var, Atom] = dict(zip(p.inputs, inputs, strict=True))
        env.update((v, self._const(v, x)) for v, x in zip(p.constvars, p.values, strict=True))
        self._equations(p, env, scope, caller)
        return [env[a] if isinstance(a, Var) else a for a in p.outputs]

    def _expanded(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any, expand: Any) -> list[Atom]:
        p = expansion(e.op, [a.type for a in inputs], e.params, expand)
        return self._call(
            p, inputs, scope, e.replaced(tuple(inputs), e.outputs) if source is e.source else _at(e, source)
        )

    def _one_turn(self, e: Equation, inputs: Sequence[Atom], scope: str, source: Any) -> list[Atom]:
        """A scan of one step: its body, on the only slices there are."""
        loop = LoopParams.of(e.params)
        operands, slices = loop.split(inputs), list[Atom]()
        for x in operands.xs:
            shape = x.type.shape[1:]
            slices += self._emit(reshape, [x], scope, source, [x.type.with_shape(shape)], {"shape": shape})
        carry, ys = loop.results(self._call(loop.body, operands._replace(xs=slices).body_inputs, scope))
        out = list(carry)
        for y in ys:
            shape = (1, *y.type.shape)
            params = {"shape": shape, "broadcast_dimensions": tuple(range(1, len(shape)))}
            out += self._emit(broadcast_in_dim, [y], scope, source, [y.type.with_shape(shape)], params)
        return out

    def _emit(
        self,
        op: Op,
        inputs: Sequence[Atom],
        scope: str,
        source: Any,
        types: Sequence[ArrayType],
        params: dict[str, Any],
    ) -> list[Atom]:
        outputs = tuple([Var(t) for t in types])
        self.equations.append(Equation(op, tuple(inputs), outputs, params, source, scope))
        return list(outputs)

    def _const(self, v: Var, value: Array) -> Var:
        """A const of the flat program; one per array, however often its program is called."""
        found = self.captured.get(id(value))
        if found is None:
            found = self.captured[id(value)] = Var(v.type)
            self.consts.append(found)
            self.values.append(value)  # also keeps id(value) from being reused
        return found


# How an equation is written out that is no composite.
_OPENING: Final[dict[str, Callable[..., list[Atom] | None]]] = {
    **dict.fromkeys(CALLS, _Flattener.call),
    "checkpoint": _Flattener.recomputed,
    "custom_linear_solve": _Flattener.linear_solve,
    "custom_root": _Flattener.root,
    "cond": _Flattener.choice,
    "scan": _Flattener.loop,
}


def _at(e: Equation, source: Any) -> Equation:
    return Equation(e.op, e.inputs, e.outputs, e.params, source, e.scope)


def _joined(outer: str, inner: str) -> str:
    """The scope of an equation in a call: that of the call, unless tracing has already put it in front."""
    if outer and inner and not inner.startswith(outer):
        return f"{outer}/{inner}"
    return inner or outer


def _every_branch(index: Array, *xs: Array, branches: tuple[Program, ...]) -> tuple[Array, ...]:
    """A choice made for each element: all branches, and of each result the elements that were chosen."""
    columns = zip(*(branch(*xs) for branch in branches), strict=True)
    return tuple(choose(index, column) for column in columns)
