"""Recurrent layers in loops: LSTM, GRU and plain RNN, found by what a step computes.

An LSTM (Hochreiter and Schmidhuber 1997, with forget gates) is ``c = f * c + i * g``, ``h = o * tanh(c)``; a GRU (Cho
et al. 2014) ``h = (1 - z) * n + z * h``, whose reset gate works before or after the product with the state; an RNN
(Elman 1990) ``h = tanh(..)`` or ``relu(..)``. Gates are sums of products of the state and of what a step reads. A loop
may hold several such cells, each of which reads what the others make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from nxjax.lower.npu.recurrent.algebra import LOGISTIC, RELU, TANH, Algebra, Atom, Segment, StepValue
from nxjax.lower.npu.recurrent.step import Known
from nxjax.ops.base import NDArray

# The names of plain layers by their function.
_PLAIN: Final = {TANH: "tanh", RELU: "relu"}


@final
@dataclass
class Gate:
    """A sum that a cell takes a function of: matrices ``[columns of it, features]``, and a bias.

    Attributes:
        inputs: of what it reads: the number of a row, or of a cell by its complement ``~number``.
        state: of the cell's own state.
        before: of the state behind the reset gate.
    """

    width: int
    bias: NDArray
    state: NDArray
    inputs: dict[int, NDArray] = field(default_factory=dict[int, NDArray])
    before: NDArray | None = None


@final
@dataclass(frozen=True)
class Cell:
    """A layer.

    Attributes:
        op: that of its node: "lstm", "gru" or "rnn".
        states: the places of its states in the carry: of an LSTM that of the results and that of the cell.
        gates: by name, as `nxjax.lower.npu.ops.recurrent` has them in order.
        function: of a plain RNN.
    """

    op: str
    states: tuple[int, ...]
    gates: dict[str, Gate]
    function: str = ""


def cells_of(algebra: Algebra, states: Mapping[int, StepValue], made: Sequence[Known]) -> list[Cell] | None:
    """The cells that make all of ``states`` anew, in an order in which each reads only those before it; else None."""
    found = _Finder(algebra, states, made)
    left = set(states)
    while left:
        cell = next((c for i in sorted(left) for c in found.candidates(i, left)), None)
        if cell is None:
            return None
        found.add(cell)
        left.difference_update(cell.states)
    return found.cells


@final
class _Finder:
    """States, what a step makes of them, and the cells so far."""

    def __init__(self, algebra: Algebra, states: Mapping[int, StepValue], made: Sequence[Known]) -> None:
        self.algebra = algebra
        self.states = {i: v.segments[0] for i, v in states.items()}
        self.new = {i: _alone(made[i]) for i in states}
        self.cells: list[Cell] = []
        # The results of cells.
        self.results: dict[int, int] = {}

    def add(self, cell: Cell) -> None:
        made = self.new[cell.states[0]]
        self.results[id(made)] = ~len(self.cells)
        self.cells.append(cell)

    def candidates(self, i: int, left: set[int]) -> list[Cell]:
        """The cell whose results are state ``i``, if it is one."""
        makers = (self.lstm(i, j) for j in sorted(left - {i}))
        return [c for c in (*makers, self.gru(i), self.rnn(i)) if c is not None]

    def lstm(self, h: int, c: int) -> Cell | None:
        new_h, new_c, cell = self.new[h], self.new[c], self._state(c)
        if new_h is None or new_c is None or len(new_c.terms) != 2 or self.states[h].width != self.states[c].width:
            return None
        if not all(np.all(k == 1) and len(m) == 2 for m, k in new_c.terms.items()):
            return None
        kept = [m for m in new_c.terms if cell in m]
        out = self._pair(new_h.sole, LOGISTIC, TANH)
        if len(kept) != 1 or out is None or out[1].inner is not new_c:
            return None
        (forget,) = [a for a in kept[0] if a is not cell] or [cell]
        added = self._pair(next(m for m in new_c.terms if m is not kept[0]), LOGISTIC, TANH)
        if forget.kind != LOGISTIC or added is None:
            return None
        atoms = {"input": added[0], "forget": forget, "cell": added[1], "output": out[0]}
        return self._cell("lstm", (h, c), {name: self._gate(a.inner, h) for name, a in atoms.items()})

    def gru(self, h: int) -> Cell | None:
        new, state = self.new[h], self._state(h)
        if new is None or len(new.terms) != 3:
            return None
        for z in {a for m in new.terms for a in m if a.kind == LOGISTIC}:
            others = {a for m in new.terms for a in m} - {z, state}
            if len(others) != 1:
                continue
            (n,) = others
            for kept, swapped in ((n, False), (state, True)):
                moved = state if kept is n else n
                both = [tuple(sorted((z, a), key=lambda a: a.number)) for a in (kept, moved)]
                wanted = {(kept,): 1, both[0]: -1, both[1]: 1}
                if n.kind == TANH and _is(new, wanted):
                    update = self._gate(z.inner, h)
                    gates = {"update": _negated(update) if swapped else update, **self._reset(n.inner, h)}
                    return self._cell("gru", (h,), gates)
        return None

    def _reset(self, x: Segment | None, h: int) -> dict[str, Gate | None]:
        """The gates of a candidate: reset, new, and what the reset gate lets through of the state, if it is last."""
        nothing: dict[str, Gate | None] = {"new": None}
        resets = {a for m in x.terms for a in m if a.kind == LOGISTIC} if x is not None else set[Atom]()
        if x is None:
            return nothing
        if len(resets) == 1:
            (r,) = resets
            inner = {tuple(a for a in m if a is not r): k for m, k in x.terms.items() if r in m}
            outer = {m: k for m, k in x.terms.items() if r not in m}
            if any(m.count(r) > 1 for m in x.terms):
                return nothing
            parts = (self.algebra.segment(x.width, terms) for terms in (outer, inner))
            new, through = (self._gate(part, h) for part in parts)
            if through is None or through.inputs or new is None or np.any(new.state):
                return nothing
            return {"reset": self._gate(r.inner, h), "new": new, "through": through}
        state = self._state(h)
        for a in (m[0] for m in x.terms if len(m) == 1):
            product = a.inner.sole if a.kind == "product" and a.inner is not None else None
            found = None if product is None else self._pair(product, LOGISTIC, "state")
            if found is not None and found[1] is state:
                rest = self.algebra.segment(x.width, {m: k for m, k in x.terms.items() if m != (a,)})
                new = self._gate(rest, h)
                if new is None or np.any(new.state):
                    return nothing
                new.before = (a.columns * x.terms[(a,)]).T
                return {"reset": self._gate(found[0].inner, h), "new": new}
        return nothing

    def rnn(self, h: int) -> Cell | None:
        made = self.new[h]
        sole = None if made is None else made.sole
        if sole is None or len(sole) != 1 or sole[0].kind not in _PLAIN:
            return None
        return self._cell("rnn", (h,), {"new": self._gate(sole[0].inner, h)}, _PLAIN[sole[0].kind])

    def _cell(
        self, op: str, states: tuple[int, ...], gates: Mapping[str, Gate | None], function: str = ""
    ) -> Cell | None:
        width = self.states[states[0]].width
        found = {name: g for name, g in gates.items() if g is not None and g.width == width}
        return Cell(op, states, found, function) if len(found) == len(gates) else None

    def _state(self, i: int) -> Atom:
        ((atom,),) = self.states[i].terms
        return atom

    def _pair(self, m: Sequence[Atom] | None, *kinds: str) -> Sequence[Atom] | None:
        """Two atoms of two kinds, in their order."""
        if m is None or len(m) != 2:
            return None
        return next((pair for pair in (m, m[::-1]) if [a.kind for a in pair] == list(kinds)), None)

    def _gate(self, x: Segment | None, h: int) -> Gate | None:
        """The sum ``x`` of a cell with the state ``h``; None if it is of something else."""
        if x is None:
            return None
        gate = Gate(x.width, x.constant, np.zeros((x.width, self.states[h].width)))
        for m, scale in x.terms.items():
            if len(m) > 1:
                return None
            if m and not self._read(gate, m[0], scale, h):
                return None
        return gate

    def _read(self, gate: Gate, a: Atom, scale: NDArray, h: int) -> bool:
        """Add an atom to a gate: what it is of, and with which matrix."""
        if a.kind != "product":
            return self._source(gate, self.algebra.single(a), np.diag(scale), h)
        return a.inner is not None and self._source(gate, a.inner, (a.columns * scale).T, h)

    def _source(self, gate: Gate, x: Segment, matrix: NDArray, h: int) -> bool:
        cell = self.results.get(id(x))
        if cell is not None:
            return _put(gate, cell, matrix)
        gate.bias = gate.bias + matrix @ x.constant
        for m, scale in x.terms.items():
            if len(m) > 1 or (m and m[0].kind not in ("row", "state")):
                return False
            if not m:
                continue
            (a,) = m
            if a.kind == "state" and a.place != h:
                return False
            wide = _spread(matrix * scale, a.columns, self._width(a, h))
            if a.kind == "row":
                _put(gate, a.place, wide)
            else:
                gate.state = gate.state + wide
        return True

    def _width(self, a: Atom, h: int) -> int:
        """Features of what an atom is a part of."""
        return self.states[h].width if a.kind == "state" else self.algebra.widths[a.place]


def _spread(matrix: NDArray, columns: NDArray, width: int) -> NDArray:
    """The matrix of ``width`` features of which ``matrix`` takes some."""
    if np.array_equal(columns, np.arange(width)):
        return matrix
    wide = np.zeros((len(matrix), width))
    np.add.at(wide.T, columns, matrix.T)
    return wide


def _put(gate: Gate, source: int, matrix: NDArray) -> bool:
    gate.inputs[source] = gate.inputs[source] + matrix if source in gate.inputs else matrix
    return True


def _alone(x: Known) -> Segment | None:
    return x.segments[0] if isinstance(x, StepValue) and len(x.segments) == 1 else None


def _is(x: Segment, wanted: Mapping[tuple[Atom, ...], int]) -> bool:
    return x.terms.keys() == wanted.keys() and all(np.all(x.terms[m] == k) for m, k in wanted.items())


def _negated(gate: Gate | None) -> Gate | None:
    """logistic(-x) is 1 - logistic(x)"""
    if gate is None:
        return None
    inputs = {i: -m for i, m in gate.inputs.items()}
    return Gate(gate.width, -gate.bias, -gate.state, inputs)
