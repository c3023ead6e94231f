"""Whole numbers that are wanted exactly: on a grid that does not have them, 1 is 0.996, and as an integer 0.

A sign, a rounded value or a count that becomes an integer, or is compared for equality, is made in float.
"""

from __future__ import annotations

from typing import Final

from nxjax.ops.arithmetic import add, max, min, mul, rem, sign, sub
from nxjax.ops.compare import eq, ne
from nxjax.ops.convert import convert_element_type
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.rounding import ceil, floor, round
from nxjax.ops.select import clamp, select_n
from nxjax.quant.plan import QuantPlan
from nxjax.quant.pointwise import keeps_grid
from nxjax.quant.view import WeightView
from nxjax.trace.core import Op
from nxjax.trace.program import Atom, Equation, Var

# What makes whole numbers of any, and of whole ones.
_MAKES: Final[frozenset[Op]] = frozenset((ceil, floor, round, sign))
_KEEPS: Final[frozenset[Op]] = frozenset((add, clamp, max, min, mul, reduce_sum, select_n, sub))
# To an integer or a Boolean.
_WANTS: Final[frozenset[Op]] = frozenset((convert_element_type, eq, ne))
_REMAINDERS: Final[frozenset[Op]] = frozenset((rem,))


def wanted_whole(plan: QuantPlan, view: WeightView) -> set[Equation]:
    """The equations on grids that make whole numbers which something wants exactly."""
    equations = plan.program.equations
    whole: set[Var] = set()

    def is_whole(a: Atom) -> bool:
        number = view.number(a) if view.is_float(a) else 0.0
        return a in whole or not view.is_float(a) or (number is not None and number == number // 1)

    for e in equations:
        made = e.op in _MAKES or (e.op is convert_element_type and not view.is_float(e.inputs[0]))
        if made or ((e.op in _KEEPS or keeps_grid(e)) and all(map(is_whole, e.inputs))):
            whole.update(v for v in e.outputs if view.is_float(v))
    if not whole:
        return set()
    group_of = {e: g for g in plan.integer() for e in g.equations}
    wanted: set[Var] = set()
    found: set[Equation] = set()
    for e in reversed(equations):
        exact = e.op in _REMAINDERS or (e.op in _WANTS and not (e.outputs and view.is_float(e.outputs[0])))
        if exact or not wanted.isdisjoint(e.outputs):
            wanted.update(a for a in e.inputs if isinstance(a, Var) and a in whole)
        if e in group_of and not wanted.isdisjoint(e.outputs):
            found.add(e)
    return found
