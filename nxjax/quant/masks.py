"""Masks: numbers far below all others that only mean "not this", and who reads a value so.

A softmax makes 0 of a mask and an argmax passes it over, wherever it lies below the others. On the way to these a mask
needs no part of a grid. Everywhere else it is a value: what makes or reads it stays in float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any, Final, final

from nxjax.ops.argreduce import argmax
from nxjax.ops.arithmetic import add, div, mul, neg, sub
from nxjax.ops.base import DataMovement
from nxjax.ops.compare import eq, ge, gt, le, lt, ne
from nxjax.ops.indexing import gather
from nxjax.ops.rounding import is_finite
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, dynamic_update_slice, pad
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observers import Range
from nxjax.quant.plan import Inner, MaskedRow, QuantPlan
from nxjax.quant.pointwise import (
    LARGEST_FACTOR,
    GridKeeping,
    QuantSoftmax,
    Unify,
    keeps_grid,
)
from nxjax.quant.products import is_product
from nxjax.quant.view import WeightView
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.program import Atom, Equation, Var
from nxjax.trace.types import Shape

# How far below the others a masked value has to lie to become 0: half a step of a softmax's grid, as a logarithm.
MARGINS: Final = {dtypes.int8: 6.5, dtypes.int16: 11.5}
# The same for a mask before it is added to values that differ among themselves.
ADDED: Final = 64.0
# Which part of the largest magnitude on a grid is two steps of 8 bits, or 32 of 16.
SMALL: Final = {dtypes.int8: 1 / 64, dtypes.int16: 1 / 1024}


# A number so low is no value but a mask; a positive one may be a bound, unless it is so high.
LOW: Final = -500.0
HIGH: Final = 1e6
# Sums of 8 bits have room for a mask so high beside values.
SUBTRACTED: Final = 1e5
# Factors below which what lies far below others before a product no longer does behind it.
SHALLOW: Final = 1 / 32


@final
class Masks:
    """Where masks are in a plan.

    Attributes:
        held: float values that may hold a mask -> the lowest and the highest that it can be.
    """

    def __init__(self, plan: QuantPlan, view: WeightView) -> None:
        self.plan = plan
        self.view = view
        self.held: dict[Var, Range] = {}
        self.products: list[Equation] = []
        self.made = {g.output: g for g in plan.integer()}
        self.group_of = {e: g for g in plan.integer() for e in g.equations}

    def mark(self) -> None:
        """Write into the plan which values only have to lie below others where they are masks, and where they may be.

        The calibration data may have nothing to mask.
        """
        program = self.plan.program
        for e in program.equations:
            self._hold(e)
        made = [v for e in program.equations for v in e.outputs]
        for v in (*reversed(made), *program.inputs, *program.constvars):
            self._mask(v)
        self.plan.masking.update(v for v in self.held if v in self.plan.masked)
        for e in self.products:
            if self.plan.masking.intersection(e.outputs):
                self._factors(e)

    def without_room(self) -> set[Equation]:
        """The equations on grids that make or read a mask as a value; products read all values."""
        found: set[Equation] = set()
        for group in self.made.values():
            room = self._has_room(group.output)
            # What a product takes in becomes its bias, where no mask has room either.
            found.update(e for i, e in enumerate(group.equations) if e.outputs[0] in self.held and (i or not room))
            if not isinstance(group, Unify) and not is_product(group.equations[0]):
                bad = {a for a in group.activations if a in self.held and not self._has_room(a)}
                if room and group.equations[0].op in _DIFFERENCES and self._fits(group.activations[1]):
                    bad.discard(group.activations[1])
                found.update(e for e in group.equations if bad.intersection(e.inputs))
        return found

    def _fits(self, v: Atom) -> bool:
        """Whether a high mask leaves the bits of what it is subtracted from."""
        return self.held.get(v, (-1.0, 0.0))[0] > 0 and self.held[v][1] <= SUBTRACTED if isinstance(v, Var) else True

    def _has_room(self, v: Atom) -> bool:
        """Whether no reader tells a mask from the end of the range."""
        if v in self.plan.masked:
            return True
        if not isinstance(v, Var) or self.held.get(v, _EVERYWHERE)[1] > 0:
            return False
        return self.plan.bounds.get(v, _EVERYWHERE)[0] > -math.inf

    def _hold(self, e: Equation) -> None:
        rule = _HOLDING.get(e.op) or (Masks.carried if _moves(e) else None)
        found = rule(self, e) if rule is not None and self.view.is_float(e.outputs[0]) else []
        if found:
            self.held[e.outputs[0]] = min(low for low, _ in found), max(high for _, high in found)

    def carried(self, e: Equation) -> list[Range]:
        """The masks that the result of ``e`` holds: those of the operands."""
        return [self.held[a] for a in e.inputs if isinstance(a, Var) and a in self.held]

    def turned(self, e: Equation) -> list[Range]:
        """What is subtracted changes its sign."""
        *kept, last = e.inputs
        before = [self.held[a] for a in kept if isinstance(a, Var) and a in self.held]
        return before + [
            (-y, -x) for x, y in ([self.held[last]] if isinstance(last, Var) and last in self.held else ())
        ]

    def chosen(self, e: Equation) -> list[Range]:
        """Those of the operands, and operands that are one far number."""
        numbers = [self.view.number(a) for a in e.inputs if self.view.is_float(a)]
        return [(x, x) for x in numbers if x is not None and (x <= LOW or x >= HIGH)] + self.carried(e)

    def scaled(self, e: Equation) -> list[Range]:
        """Those of the operand, or a mask that a product with a large number makes of ``1 - here``."""
        factor = self._factor(e)
        if factor is None:
            return []
        sign = self._sign(e) if abs(factor) >= LARGEST_FACTOR else 0
        if sign:
            self.products.append(e)
            return [(sign * factor, sign * factor)]
        return [(min(x * factor, y * factor), max(x * factor, y * factor)) for x, y in self.carried(e)]

    def _factor(self, e: Equation) -> float | None:
        """The number that ``e`` multiplies its operand by, if it does that."""
        x, y = (self.view.number(a) for a in e.inputs)
        if e.op in _DIVIDING:
            return None if not y else 1 / y
        return x if y is None else y

    def _sign(self, e: Equation) -> int:
        """1 where ``e`` multiplies ``here`` or ``1 - here``, -1 for ``here - 1``, else 0."""
        x: Atom | None = next((a for a in e.inputs if self.view.number(a) is None), None)
        while isinstance(x, Var) and (made := self.view.producer.get(x)) is not None:
            if made.op in _DIFFERENCES:
                ones = [self.view.number(a) == 1 for a in made.inputs]
                return 1 if ones[0] else -1 if ones[1] else 0
            if not _moves(made):
                # From Booleans or whole numbers.
                return 0 if self.view.is_float(made.inputs[0]) else 1
            x = made.inputs[0]
        return 0

    def _factors(self, e: Equation) -> None:
        """What the factors of a mask, such as ``1 - here``, are at least."""
        sign = self._sign(e)
        x = next((a for a in e.inputs if self.view.number(a) is None), None)
        while isinstance(x, Var):
            self.plan.least[x] = (0.0, 1.0) if sign > 0 else (-1.0, 0.0)
            made = self.view.producer.get(x)
            x = made.inputs[0] if made is not None and keeps_grid(made) else None

    def _mask(self, v: Var) -> None:
        """Mark ``v`` if all who tell its values apart only ask which lie far below the others."""
        made = v in self.made
        if not self.view.is_float(v) or (made and v in self.view.results):
            return
        rows: list[MaskedRow] = []
        for e in self.view.users.get(v, ()):
            group = self.group_of.get(e)
            if group is None and (not made or self._asks(e)):
                # Float reads float; and on a grid nothing is a mask any more.
                continue
            row = self._read(v, e, group)
            if row is None:
                return
            rows.append(row)
        if rows:
            axes = {row.axis for row in rows}
            axis = axes.pop() if len(axes) == 1 else None
            highest = max((row.highest for row in rows if row.highest is not None), default=None)
            self.plan.masked[v] = MaskedRow(max(row.margin for row in rows), axis, highest)

    def _asks(self, e: Equation) -> bool:
        """Whether ``e`` asks which elements are masks: what is infinite, or equal to one."""
        numbers = [x for a in e.inputs if (x := self.view.number(a)) is not None]
        return e.op in _FINITE or (e.op in _EQUAL and any(x <= LOW or x >= HIGH for x in numbers))

    def _read(self, v: Var, e: Equation, group: FusedGroup | None) -> MaskedRow | None:
        """How ``e`` reads ``v``, if a mask is no value to it."""
        if group is None:
            # All rows count to an argmax, however far they lie below others: only masks that are known are none.
            highest = self.held.get(v, _EVERYWHERE)[1] / 2
            known = e.op in _CHOOSING and highest <= -LARGEST_FACTOR / 2
            return MaskedRow(0.0, e.params["axes"][0], max(highest, -1e30)) if known else None
        if v not in group.activations:
            return None
        if isinstance(group, QuantSoftmax):
            return MaskedRow(MARGINS[group.dtype], e.params["axis"])
        after = self.plan.masked.get(group.output)
        if after is None:
            return None
        if isinstance(group, (GridKeeping, Unify)):
            return after._replace(axis=_axis_before(e, after.axis, v))
        if e.op in _DIFFERENCES and v is e.inputs[0] and after.highest is None:
            return after._replace(margin=ADDED)
        if e.op in _SCALING:
            return self._before_factor(after, self._factor(e))
        # To an argmax the other operand may be larger than any margin.
        return after._replace(margin=ADDED) if e.op in _ADDING and after.highest is None else None

    def _before_factor(self, after: MaskedRow, factor: float | None) -> MaskedRow | None:
        if factor is None or factor < (SHALLOW if after.highest is None else 1e-6):
            return None
        highest = None if after.highest is None else after.highest / factor
        return MaskedRow(after.margin / factor, after.axis, highest)


def shares(plan: QuantPlan, sites: Container[str]) -> dict[str, float]:
    """By site, of ``sites``, the part of the largest magnitude that hardly has a step; of inner plans too."""
    wide = {v for g in plan.integer() if g.dtype == dtypes.int16 for v in (*g.activations, g.output)}
    found = {s: SMALL[dtypes.int16 if v in wide else dtypes.int8] for v, s in plan.sites.items() if s in sites}
    for step in plan.steps:
        for inner in step.plans if isinstance(step, Inner) else ():
            found.update(shares(inner, sites))
    return found


def layers_without_room(plan: QuantPlan, beside: Container[str], alone: Container[str]) -> set[str]:
    """The layers that make a mask, or read one that float made, but no product; of inner plans too.

    Of a product what follows it. Masks without values beside them are exact on grids, but not in sums.

    Args:
        beside: sites that hold masks and other values in calibration.
        alone: those that hold masks and zeros.
    """
    held = {v for v, site in plan.sites.items() if site in beside}
    added = {v for v, site in plan.sites.items() if site in alone} | held
    made = {g.output for g in plan.integer()}
    found: set[str] = set()
    for g in plan.integer():
        product = is_product(g.equations[0])
        read = [a for a in g.activations if isinstance(a, Var)]
        if g.moves and not added.isdisjoint(read):
            added.add(g.output)
        sums = g.equations[0].op in _SHIFTING and not added.isdisjoint(read) and g.output not in plan.masked
        if g.output in held:
            found.update(plan.names[e.outputs[0]] for e in (g.equations[1:] if product else g.equations))
        elif sums or not (product or (held - made).isdisjoint(read)):
            found.add(plan.layer(g))
    for step in plan.steps:
        for inner in step.plans if isinstance(step, Inner) else ():
            found |= layers_without_room(inner, beside, alone)
    return found


_EVERYWHERE: Final = (-math.inf, math.inf)
_EQUAL: Final[frozenset[Op]] = frozenset((eq, ge, gt, le, lt, ne))
_FINITE: Final[frozenset[Op]] = frozenset((is_finite,))
_ADDING: Final[frozenset[Op]] = frozenset((add,))
_SHIFTING: Final[frozenset[Op]] = frozenset((add, sub))
_DIFFERENCES: Final[frozenset[Op]] = frozenset((sub,))
_DIVIDING: Final[frozenset[Op]] = frozenset((div,))
_SCALING: Final[frozenset[Op]] = frozenset((mul, div))
# What passes over values far below the others, on grids and in float.
_CHOOSING: Final[frozenset[Op]] = frozenset((argmax,))


def _moves(e: Equation) -> bool:
    return isinstance(e.op, DataMovement) and len(e.inputs[e.op.moved]) == 1


def _axis_before(e: Equation, axis: int | None, a: Atom) -> int | None:
    """The axis of ``a`` that becomes ``axis`` of what ``e`` makes of it, if one axis does."""
    if axis is None:
        return None
    old, new = a.type.shape, e.outputs[0].type.shape
    find = _AXES.get(e.op)
    if find is not None:
        return find(e.params, axis, old, new)
    # Others of the same rank leave axes where they are.
    return axis if len(old) == len(new) else None


def _before_reshape(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    after = math.prod(new[axis + 1 :])
    return next((i for i, n in enumerate(old) if n == new[axis] and math.prod(old[i + 1 :]) == after), None)


def _before_broadcast(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    dims = params["broadcast_dimensions"]
    return dims.index(axis) if axis in dims else None


# Ops that move axes: which of the operand's is an axis of the result.
_AXES: Final[dict[Op, Callable[[dict[str, Any], int, Shape, Shape], int | None]]] = {
    transpose: lambda params, axis, old, new: params["permutation"][axis],
    reshape: _before_reshape,
    broadcast_in_dim: _before_broadcast,
    gather: lambda params, axis, old, new: None,
}
# Which masks a result holds; of what moves values, those that it moves.
_HOLDING: Final[dict[Op, Callable[[Masks, Equation], list[Range]]]] = {
    **dict.fromkeys((concatenate, dynamic_update_slice, gather, pad, select_n), Masks.chosen),
    add: Masks.carried,
    **dict.fromkeys((neg, sub), Masks.turned),
    **dict.fromkeys((div, mul), Masks.scaled),
}
