"""The same program with less to do: known results folded, equal equations made once, identities taken, dead ones gone.

One walk over the equations, in order: operands are replaced by what they were found to be, then the equation by what
`algebra` knows about it, by its number if it only reads literals, or by an equal equation that is there already.
Programs held by loops and choices are simplified too, with what they need not compute each turn taken out of them
(`loops`). No bit of a result changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config
from nxjax.lower.passes.algebra import rewritten
from nxjax.lower.passes.flatten import flattened
from nxjax.lower.passes.fold import KEPT, folded
from nxjax.lower.passes.invariants import passed
from nxjax.lower.passes.loops import HOLDERS, LOOPS, hoisted, lifted, trimmed, with_constant_results
from nxjax.lower.passes.pieces import in_pieces
from nxjax.lower.passes.updates import reads_first
from nxjax.lower.reproducible import by_numpy
from nxjax.trace.array import wrap
from nxjax.trace.program import Atom, Equation, Literal, Program, Var, map_programs

# Elements of the largest result that is worth computing when a program is lowered.
LARGEST: Final = 1 << 16
# What must stay as it is written: a barrier is there to keep equal things apart.
_SEPARATE: Final = frozenset(("optimization_barrier", "pure_callback"))


def simplified(program: Program, opaque: frozenset[str] = frozenset()) -> Program:
    """``program``, flat and with less to do; results keep their bits, shapes and dtypes. Kept with ``program``.

    ``opaque`` names composites that a device has (see `flattened`).

    >>> p = nx.make_jaxpr(lambda x: nx.sin(x * 1.0) + nx.sin(x) * (2.0 - 1.0))(0.5)
    >>> [e.op.name for e in simplified(p).equations]
    ['sin', 'add']
    """
    return program.derive(("simplified", opaque, config.reproducible), lambda: _simplified(program, opaque))


def _simplified(program: Program, opaque: frozenset[str]) -> Program:
    while True:
        program = passed(program, flattened(program, opaque))
        program = passed(program, folded(program, HOLDERS, LARGEST))
        program = passed(program, in_pieces(program))
        program = passed(program, _Simplifier(program, opaque).result(), used=True)
        program = passed(program, reads_first(program), used=True)
        # A choice may be known only now.
        if not any(e.op.name == "cond" and isinstance(e.inputs[0], Literal) for e in program.equations):
            return program


@final
class _Simplifier:
    def __init__(self, program: Program, opaque: frozenset[str]) -> None:
        self.program = program
        self.opaque = opaque
        self.env: dict[Var, Atom] = {}
        self.makers: dict[Var, Equation] = {}
        self.splats: dict[Var, Any] = {}
        self.equal: dict[Any, Equation] = {}
        self.equations: list[Equation] = []
        self.reads = Counter(a for e in program.equations for a in e.inputs)
        self.reads.update(program.outputs)

    # --- what rows of algebra ask ---

    def made_by(self, a: Atom, *names: str) -> Equation | None:
        found = self.makers.get(a) if isinstance(a, Var) else None
        return found if found is not None and found.op.name in names else None

    def splat(self, a: Atom) -> Any:
        if isinstance(a, Literal):
            return a.value.numpy()[()]  # pyright: ignore[reportAttributeAccessIssue]
        return self.splats.get(a)

    def once(self, a: Atom) -> bool:
        return self.reads[a] == 1

    # --- the walk ---

    def result(self) -> Program:
        p = self.program
        consts, values = list(p.constvars), list(p.values)
        for e in p.equations:
            inputs = self._now(e.inputs)
            if e.op.name in HOLDERS:
                params = map_programs(e.params, lambda p: simplified(p, self.opaque))
                e, made = lifted(e.replaced(inputs, e.outputs, params))
                consts += [v for v, _ in made]
                values += [x for _, x in made]
                if e.op.name in LOOPS:
                    e, known = with_constant_results(e)
                    self.env.update(known)
                    before, e = hoisted(e)
                    for first in before:
                        self._add(first.replaced(self._now(first.inputs), first.outputs))
                    e = e.replaced(self._now(e.inputs), e.outputs)
            elif inputs != e.inputs:
                e = e.replaced(inputs, e.outputs)
            self._add(e)
        outputs = self._now(p.outputs)
        equations, read = self._live(outputs)
        held = [i for i, v in enumerate(consts) if v in read]
        return Program(p.inputs, equations, outputs, [consts[i] for i in held], [values[i] for i in held], p.name)

    def _live(self, outputs: Sequence[Atom]) -> tuple[list[Equation], set[Atom]]:
        """The equations that results and effects need, and all that is read."""
        read: set[Atom] = set(outputs)
        kept: list[Equation] = []
        for e in reversed(self.equations):
            if read.isdisjoint(e.outputs) and not e.effect:
                continue
            if e.op.name in HOLDERS:
                e = trimmed(e, read)  # pyright: ignore[reportArgumentType]
            kept.append(e)
            read.update(e.inputs)
        return kept[::-1], read

    def _now(self, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        env = self.env
        return tuple([env.get(a, a) if isinstance(a, Var) else a for a in atoms])

    def _add(self, e: Equation) -> None:
        found = rewritten(e, self)
        while found is not None:
            if not isinstance(found, tuple):
                self.env[e.outputs[0]] = found
                return
            for first in found[:-1]:
                self._emit(first)
            last = found[-1]
            e = last.replaced(self._now(last.inputs), last.outputs)
            found = rewritten(e, self)
        self._emit(e)

    def _emit(self, e: Equation) -> None:
        name = e.op.name
        if e.inputs and all(isinstance(a, Literal) for a in e.inputs):
            number = _number(e)
            if number is not None:
                self.env[e.outputs[0]] = number
                return
        key = None if name in _SEPARATE or e.effect else _key(e)
        if key is not None:
            same = self.equal.setdefault(key, e)
            if same is not e:
                self.env.update(zip(e.outputs, same.outputs, strict=True))
                for kept, gone in zip(same.outputs, e.outputs, strict=True):
                    self.reads[kept] += self.reads[gone]
                return
        self.equations.append(e)
        for v in e.outputs:
            self.makers[v] = e
        if name == "broadcast_in_dim":
            number = self.splat(e.inputs[0])
            if number is not None:
                self.splats[e.outputs[0]] = number


def _number(e: Equation) -> Literal | None:
    """The one number that an equation of literals gives, if it does."""
    op = e.op
    if op.multi or op.effect or op.nested or op.name in KEPT or not op.has("eval") or e.outputs[0].type.shape:
        return None
    t = e.outputs[0].type
    if config.reproducible and not by_numpy(op, [t.dtype, *(a.type.dtype for a in e.inputs)]):
        return None
    with np.errstate(all="ignore"):
        y: Any = op.eval(*(a.value.numpy() for a in e.inputs), **e.params)  # pyright: ignore
    return Literal(wrap(np.asarray(y, t.dtype), t.weak))


def _key(e: Equation) -> Any:
    """Equal for equations with equal results; None: it has no such key."""
    operands = tuple([a if isinstance(a, Var) else (a.type.dtype, a.value.numpy().tobytes()) for a in e.inputs])  # pyright: ignore
    try:
        params = tuple([(name, _exact(value)) for name, value in e.params.items()])
        key = (e.op, operands, params, *[(v.type.shape, v.type.dtype) for v in e.outputs])
        hash(key)
    except TypeError:
        return None
    return key


def _exact(value: Any) -> Any:
    """A parameter as a key that tells 0.0 from -0.0 and 1 from True, which are equal."""
    if type(value) is tuple:
        return tuple([_exact(v) for v in value])  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, complex | np.generic):
        return type(value), np.asarray(value).tobytes()
    return value.hex() if isinstance(value, float) else (type(value), value)  # pyright: ignore[reportUnknownVariableType]
