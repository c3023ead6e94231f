"""Elementwise ops on concatenated pieces, made piece by piece, so that pieces need not lie side by side in between.

``stack([a, b, c])`` that is scaled, added to a state and taken apart again (a step of a differential equation) becomes
arithmetic on ``a``, ``b`` and ``c``. Each element is computed as often as before, with the same bits. Only the last
value of a chain, if it is wanted whole, is concatenated.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.config.named_tuple import NamedTuple
from nxjax.ops.base import Elementwise
from nxjax.ops.shape import BroadcastInDim
from nxjax.ops.slicing import Concatenate, Slice, concatenate
from nxjax.ops.slicing import slice as slice_
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.types import ArrayType, Shape

# More pieces are left together: each is a kernel of its own.
MOST: Final = 8
# Results of at least so many elements lie in memory, whole: what reads a part of one reads it there.
LARGE: Final = 4096


class Pieces(NamedTuple):
    """A value as pieces along ``axis``; piece ``i`` goes from ``ends[i]`` to ``ends[i + 1]``."""

    axis: int
    ends: tuple[int, ...]
    parts: tuple[Atom, ...]


def in_pieces(program: Program) -> Program:
    """``program`` with elementwise ops on concatenations written piece by piece; it may have dead equations.

    >>> def f(x):
    ...     y = 2 * jnp.stack([x, x + 1])
    ...     return y[0] * y[1]
    >>> p = in_pieces(nx.make_jaxpr(f)(jnp.ones(3)))
    >>> p.equations[-1].inputs[0].type.shape
    (3,)
    """
    if not any(isinstance(e.op, Concatenate) for e in program.equations):
        return program
    return _Pass(program).result()


@final
class _Pass:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[Atom, Pieces] = {}
        self.splats: dict[Atom, Equation] = {}
        self.given = frozenset((*program.inputs, *program.constvars))
        self.results = frozenset(program.outputs)
        self.env: dict[Atom, Atom] = {}
        self.equations: list[Equation] = []
        # How many readers want a value whole: all but slices along one axis, and what only these read.
        self.whole: Counter[Atom] = Counter(program.outputs)
        for e in reversed(program.equations):
            if _cut(e) is None and not (isinstance(e.op, Elementwise) and not self.whole[e.outputs[0]]):
                self.whole.update(e.inputs)

    def result(self) -> Program:
        p = self.program
        for e in p.equations:
            e = e.replaced(tuple([self.env.get(a, a) for a in e.inputs]), e.outputs)
            if isinstance(e.op, Concatenate):
                self._concatenated(e)
            elif isinstance(e.op, BroadcastInDim) and not e.inputs[0].type.shape:
                self.splats[e.outputs[0]] = e
            elif self._sliced(e) or (isinstance(e.op, Elementwise) and self._elementwise(e)):
                continue
            self.equations.append(e)
        outputs = [self.env.get(a, a) for a in p.outputs]
        return Program(p.inputs, self.equations, outputs, p.constvars, p.values, p.name)

    def _concatenated(self, e: Equation) -> None:
        axis = e.params["dimension"]
        sizes = [a.type.shape[axis] for a in e.inputs]
        if 1 < len(sizes) <= MOST and all(sizes):
            self.known[e.outputs[0]] = Pieces(axis, (0, *itertools.accumulate(sizes)), tuple(e.inputs))

    def _sliced(self, e: Equation) -> bool:
        """Whether the slice ``e`` lies in one known piece, which it is taken from then."""
        cut = _cut(e)
        found = self.known.get(e.inputs[0]) if cut is not None else None
        if cut is None or found is None or cut[0] != found.axis:
            return False
        _, low, high = cut
        for part, (start, end) in zip(found.parts, itertools.pairwise(found.ends), strict=True):
            if start <= low and high <= end:
                if (start, end) == (low, high):
                    self.env[e.outputs[0]] = part
                else:
                    self.equations.append(_slice(e, part, found.axis, low - start, high - start, e.outputs[0]))
                return True
        return False

    def _elementwise(self, e: Equation) -> bool:
        """Whether ``e`` was written piece by piece."""
        y = e.outputs[0]
        found = [self.known[a] for a in e.inputs if a in self.known]
        if not found or any((p.axis, p.ends) != (found[0].axis, found[0].ends) for p in found):
            return False
        if self.whole[y] and not all(self._free(a) for a in e.inputs):
            return False
        axis, ends, _ = found[0]
        parts: list[Var] = []
        for i, (low, high) in enumerate(itertools.pairwise(ends)):
            inputs = tuple([self._part(e, a, axis, low, high, i) for a in e.inputs])
            part = Var(ArrayType(_resized(y.type.shape, axis, high - low), y.type.dtype, y.type.weak))
            self.equations.append(e.replaced(inputs, (part,)))
            parts.append(part)
        if y not in self.results or y.type.size < LARGE:
            self.known[y] = Pieces(axis, ends, tuple(parts))
        self.equations.append(Equation(concatenate, tuple(parts), (y,), {"dimension": axis}, e.source, e.scope))
        return True

    def _free(self, a: Atom) -> bool:
        """Whether the pieces of an operand cost nothing, and nobody else wants it whole."""
        if a in self.known:
            return self.whole[a] <= 1
        return not a.type.shape or a in self.splats or a in self.given

    def _part(self, e: Equation, a: Atom, axis: int, low: int, high: int, i: int) -> Atom:
        if a in self.known:
            return self.known[a].parts[i]
        if not a.type.shape:
            return a
        shape = _resized(a.type.shape, axis, high - low)
        part = Var(ArrayType(shape, a.type.dtype, a.type.weak))
        made = self.splats.get(a)
        if made is not None:
            params = {**made.params, "shape": shape}
            self.equations.append(made.replaced(made.inputs, (part,), params))
        else:
            self.equations.append(_slice(e, a, axis, low, high, part))
        return part


def _slice(e: Equation, a: Atom, axis: int, low: int, high: int, part: Var) -> Equation:
    shape = a.type.shape
    params: dict[str, Any] = {
        "start_indices": tuple([low if d == axis else 0 for d in range(len(shape))]),
        "limit_indices": _resized(shape, axis, high),
        "strides": None,
    }
    return Equation(slice_, (a,), (part,), params, e.source, e.scope)


def _cut(e: Equation) -> tuple[int, int, int] | None:
    """Axis, begin and end of a slice without steps along one axis."""
    if not isinstance(e.op, Slice) or any(step != 1 for step in e.params.get("strides") or ()):
        return None
    starts, ends = e.params["start_indices"], e.params["limit_indices"]
    axes = [d for d, n in enumerate(e.inputs[0].type.shape) if ends[d] - starts[d] != n]
    return (axes[0], starts[axes[0]], ends[axes[0]]) if len(axes) == 1 else None


def _resized(shape: Sequence[int], axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])
