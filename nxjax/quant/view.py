"""What matching asks of a program: who uses a value, what depends on weights alone, which numbers are known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, final

import numpy as np

from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Atom, Equation, Literal, Program, Var

# Ops that only spread or rename one number.
_SPREADING = frozenset(("broadcast_in_dim", "reshape", "convert_element_type", "copy", "stop_gradient"))
_ARRANGING = _SPREADING | {"transpose"}


@final
class WeightView:
    """A program with the inputs marked that hold weights, and values ``kept`` that something else reads too.

    Attributes:
        alone: equations that no group takes in.
    """

    def __init__(self, program: Program, weights: Sequence[bool], kept: Collection[Var] = ()) -> None:
        self.program = program
        self.kept = kept
        self.alone: set[Equation] = set()
        self.producer: dict[Var, Equation] = {v: e for e in program.equations for v in e.outputs}
        self.users: dict[Var, list[Equation]] = {}
        for e in program.equations:
            for a in dict.fromkeys(a for a in e.inputs if isinstance(a, Var)):
                self.users.setdefault(a, []).append(e)
        self.results = {a for a in program.outputs if isinstance(a, Var)}
        self.weights: set[Var] = {v for v, w in zip(program.inputs, weights, strict=True) if w}
        self.weights.update(program.constvars)
        # Numbers that a file holds as constants of one element.
        self.constants = {
            v: x
            for v, x in zip(program.constvars, program.values, strict=True)
            if v.type.size == 1 and isinstance(x, DeviceArray)
        }
        for e in program.equations:
            if not e.effect and not e.op.nested and all(self.is_weight(a) for a in e.inputs):
                self.weights.update(e.outputs)

    def is_weight(self, a: Atom) -> bool:
        """Whether the value depends on weights and numbers only, on no activation."""
        return isinstance(a, Literal) or a in self.weights

    def is_float(self, a: Atom) -> bool:
        return a.type.dtype == dtypes.float32

    def made_by(self, a: Atom, *names: str) -> Equation | None:
        """The equation that makes ``a``, if its op has one of these names."""
        e = self.producer.get(a) if isinstance(a, Var) else None
        return e if e is not None and e.op.name in names else None

    def only_user(self, v: Var) -> Equation | None:
        """The one equation that reads ``v``, if there is exactly one and ``v`` is no result."""
        users = self.users.get(v, [])
        alone = len(users) != 1 or users[0] in self.alone or v in self.results or v in self.kept
        return None if alone else users[0]

    def number(self, a: Atom) -> float | None:
        """The number that every element of ``a`` is, if that is known."""
        while isinstance(a, Var):
            known = self.constants.get(a)
            if known is not None:
                return _number(known.numpy())
            e = self.producer.get(a)
            if e is None or e.op.name not in _SPREADING:
                return None
            a = e.inputs[0]
        return _number(a.value.numpy())

    def spread_from(self, a: Atom) -> Atom:
        """The weight or number that ``a`` only repeats or arranges anew: programs of other sizes may do so or not."""
        while isinstance(a, Var) and a in self.weights:
            e = self.producer.get(a)
            if e is None or e.op.name not in _ARRANGING:
                return a
            a = e.inputs[0]
        return a

    def other(self, e: Equation, v: Var) -> Atom | None:
        """The second operand of a two-operand equation one of whose operands is ``v``."""
        a, b = e.inputs
        if a is v and b is not v:
            return b
        return a if b is v and a is not v else None


def _number(x: Any) -> float | None:
    value = np.asarray(x)
    return float(value.reshape(())) if value.dtype.kind in "fiub" or value.dtype in dtypes.FLOAT else None
