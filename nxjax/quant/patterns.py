"""What programs spell out in pieces, in the words that integer arithmetic has: one op instead of several roundings.

- a quotient by an activation is a product with its reciprocal, a table; by a square root, with the table of 1 / sqrt,
  as in every norm;
- ``where(x >= 0, x, a * x)``, ``maximum(x, 0) + a * minimum(x, 0)`` and ``maximum(x, a * x)`` are leaky_relu where the
  slope is a number, and prelu where it is a weight;
- a known power is a table, of 0.5 and -0.5 those of sqrt and 1 / sqrt, of 2 a product;
- a known base makes an exponential;
- logaddexp(x, 0) is softplus;
- exp(x) / sum(exp(x)) is softmax, and other functions are what `spelled` finds them to be;
- mean(x * x) - mean(x) ** 2 is the mean of (x - mean(x)) ** 2, which loses no digits.

Only where the policy wants integers: in float these are what they were. Knows no ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import add, div, integer_pow, mul, rsqrt, sqrt, square, sub
from nxjax.ops.composite_activation import gelu, leaky_relu, softplus
from nxjax.ops.composite_softmax import softmax
from nxjax.ops.elementary import exp, log, log1p, logistic, tanh
from nxjax.ops.power import power
from nxjax.ops.prelu import prelu, qprelu
from nxjax.ops.quant_grid import Grid
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.quant.groups import FusedGroup, GridWalk
from nxjax.quant.scheme import Policy, resolve_policy
from nxjax.quant.spelled import SpelledFunction, is_square, softmax_of, spelled
from nxjax.quant.view import WeightView
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Literal, Program, Var

SPREADING: Final = frozenset(("broadcast_in_dim", "reshape"))
# Equations that a pattern reads, and that are dropped when nothing else does.
READ: Final = frozenset(
    ("sqrt", "pow", "broadcast_in_dim", "reshape", "mul", "neg", "relu", "max", "min", "ge", "gt", "le", "lt")
)

# Comparisons with zero, and whether they hold above it.
_ABOVE: Final = {"ge": True, "gt": True, "le": False, "lt": False}
# log(exp(x) + exp(y)) as `numpy.logaddexp` computes it: of 0 it is softplus.
LOGADDEXP: Final = ("max", "sub", "abs", "neg", "exp", "log1p", "add", "ne", "add", "select_n")


@final
@dataclass(eq=False)
class Sloped(FusedGroup):
    """A prelu whose slopes are weights."""

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        (x, x_grid), (y, y_grid) = (walk.on_grid(a, self.dtype) for a in self.activations)
        out = walk.result_grid(self.output, self.dtype)
        return qprelu(x, y, x_grid=x_grid, y_grid=y_grid, out_grid=out, rounding=self.scheme.rounding), out


def fuse_patterns(program: Program, weights: Sequence[bool], policy: Policy, names: dict[Var, str]) -> Program:
    """``program`` in those words. ``names`` gets the names of what is new."""
    return _Speller(program, weights, policy, names).program()


@final
class _Speller:
    def __init__(self, program: Program, weights: Sequence[bool], policy: Policy, names: dict[Var, str]) -> None:
        self.source = program
        self.view = WeightView(program, weights)
        self.policy = policy
        self.names = names
        self.equations: list[Equation] = []
        self.reciprocals: dict[Var, Var] = {}

    def program(self) -> Program:
        p = self.source
        changed = False
        whole: dict[Equation, SpelledFunction] | None = None
        for e in p.equations:
            found = False
            if e.op in _ENDS and (stored := self._stored(e)) is not None:
                whole = spelled(p, self.view) if whole is None else whole
                found = self._whole(e, whole.get(e), stored)
            found = found or self._found(e)
            changed = changed or found
            if not found:
                self.equations.append(e)
        if not changed:
            return p
        needed = {a for a in p.outputs if isinstance(a, Var)}
        kept: list[Equation] = []
        for e in reversed(self.equations):
            if e.op.name not in READ or not needed.isdisjoint(e.outputs):
                kept.append(e)
                needed.update(a for a in e.inputs if isinstance(a, Var))
        return Program(p.inputs, kept[::-1], p.outputs, p.constvars, p.values, p.name)

    def _found(self, e: Equation) -> bool:
        rewrite = _SPELLED.get(e.op.name)
        if rewrite is None or not self.view.is_float(e.outputs[0]):
            return False
        if all(self.view.is_weight(a) for a in e.inputs):
            return False
        scheme = resolve_policy(self.policy, e, self.names)
        if scheme is None or not scheme.integer:
            return False
        # Of 16 bits there is a table of few functions only.
        return rewrite(self, e, scheme.activations == dtypes.int8)

    def _stored(self, e: Equation) -> DType | None:
        """How ``e`` stores its operands, if it computes on integers."""
        if not self.view.is_float(e.outputs[0]) or all(self.view.is_weight(a) for a in e.inputs):
            return None
        scheme = resolve_policy(self.policy, e, self.names)
        return scheme.activations if scheme is not None and scheme.integer else None

    def _whole(self, e: Equation, found: SpelledFunction | None, stored: DType) -> bool:
        """``e`` as the op that `spelled` found it to be: any of 8 bits, for which there are tables; some of 16."""
        if found is None or (stored != dtypes.int8 and (found.op, found.params) not in _OF_SIXTEEN):
            return False
        x = found.x
        if not found.product:
            self.equations.append(Equation(found.op, (x,), e.outputs, found.params, e.source, e.scope))
            return True
        y = self._added(e, Equation(found.op, (x,), (Var(x.type),), found.params), found.op.name)
        self.equations.append(Equation(mul, (x, y), e.outputs, {}, e.source, e.scope))
        return True

    # --- quotients ---

    def quotient(self, e: Equation, tables: bool) -> bool:
        x, divisor = e.inputs
        soft = softmax_of(self.view, e)
        if soft is not None:
            of, axis = soft
            self.equations.append(Equation(softmax, (of,), e.outputs, {"axis": axis}, e.source, e.scope))
            return True
        if not isinstance(divisor, Var) or self.view.is_weight(divisor):
            return False
        chain: list[Equation] = []
        at = divisor
        while (made := self.view.producer.get(at)) is not None and made.op.name in SPREADING:
            inner = made.inputs[0]
            if not isinstance(inner, Var):
                return False
            chain.append(made)
            at = inner
        if not tables and self._radicand(at) is None:
            return False
        y = self._reciprocal(e, at)
        for spread in reversed(chain):
            y = self._added(e, Equation(spread.op, (y,), (Var(spread.outputs[0].type),), spread.params), "spread")
        self.equations.append(Equation(mul, (x, y), e.outputs, {}, e.source, e.scope))
        return True

    def _reciprocal(self, e: Equation, v: Var) -> Var:
        if v not in self.reciprocals:
            x, out = self._radicand(v), (Var(v.type),)
            new = Equation(integer_pow, (v,), out, {"y": -1}) if x is None else Equation(rsqrt, (x,), out, {})
            self.reciprocals[v] = self._added(e, new, "reciprocal")
        return self.reciprocals[v]

    def _radicand(self, v: Var) -> Atom | None:
        """x of sqrt(x), or of x to the power 0.5."""
        e = self.view.made_by(v, "sqrt", "pow")
        return e.inputs[0] if e is not None and (e.op is sqrt or self.view.number(e.inputs[1]) == 0.5) else None

    def _added(self, e: Equation, new: Equation, what: str) -> Var:
        """``new`` for ``e``, at the user's line of ``e``."""
        self.equations.append(Equation(new.op, new.inputs, new.outputs, new.params, e.source, e.scope))
        self.names[new.outputs[0]] = f"{self.names[e.outputs[0]]}/{what}"
        return new.outputs[0]

    # --- powers ---

    def power(self, e: Equation, tables: bool) -> bool:
        x, y = e.inputs
        exponent, base = self.view.number(y), self.view.number(x)
        if exponent is not None and x.type.shape == e.outputs[0].type.shape:
            root = {0.5: sqrt, -0.5: rsqrt, 2.0: square}.get(exponent)
            if root is None and not tables:
                return False
            made = (power, {"y": exponent}) if root is None else (root, {})
            self.equations.append(Equation(made[0], (x,), e.outputs, made[1], e.source, e.scope))
            return True
        if base is None or base <= 0 or y.type.shape != e.outputs[0].type.shape:
            return False
        rate = Literal(wrap(np.asarray(math.log(base), np.float32)))
        wide = {"shape": y.type.shape, "broadcast_dimensions": ()}
        factor = self._added(e, Equation(broadcast_in_dim, (rate,), (Var(y.type),), wide), "rate")
        scaled = self._added(e, Equation(mul, (y, factor), (Var(y.type),), {}), "scaled")
        self.equations.append(Equation(exp, (scaled,), e.outputs, {}, e.source, e.scope))
        return True

    # --- functions with derivatives of their own ---

    def softplus(self, e: Equation, tables: bool) -> bool:
        """logaddexp(x, 0)"""
        (program,) = e.programs()
        if len(e.inputs) != 2 or tuple(inner.op.name for inner in program.equations) != LOGADDEXP:
            return False
        for x, y in (e.inputs, e.inputs[::-1]):
            if self.view.number(y) == 0 and x.type.shape == e.outputs[0].type.shape:
                self.equations.append(Equation(softplus, (x,), e.outputs, {}, e.source, e.scope))
                return True
        return False

    # --- slopes ---

    def choice(self, e: Equation, tables: bool) -> bool:
        return self._leaky(e, tables, self._selected(e))

    def sum(self, e: Equation, tables: bool) -> bool:
        return self._leaky(e, tables, self._summed((e.inputs, e.inputs[::-1]), lambda a: self._bounded(a, "min")))

    def difference(self, e: Equation, tables: bool) -> bool:
        if self._variance(e):
            return True
        return self._leaky(e, tables, self._summed((e.inputs,), self._turned))

    def _variance(self, e: Equation) -> bool:
        """mean(x * x) - mean(x) ** 2 as the mean of (x - mean(x)) ** 2."""
        mean = self._square(e.inputs[1])
        of_squares, of_values = self._mean(e.inputs[0]), None if mean is None else self._mean(mean)
        if of_squares is None or of_values is None or not isinstance(mean, Var):
            return False
        x = self._square(of_squares.inputs[0])
        if x is None or x is not of_values.inputs[0] or of_squares.params != of_values.params:
            return False
        axes = of_squares.params["axes"]
        kept = tuple(i for i in range(x.type.ndim) if i not in axes)
        reduced, count = of_squares.outputs[0], math.prod(x.type.shape[a] for a in axes)
        if mean.type.shape != reduced.type.shape:
            mean = self._added(
                e, Equation(reshape, (mean,), (Var(reduced.type),), {"shape": reduced.type.shape}), "mean"
            )
        wide = {"shape": x.type.shape, "broadcast_dimensions": kept}
        spread = self._added(e, Equation(broadcast_in_dim, (mean,), (Var(x.type),), wide), "spread")
        centred = self._added(e, Equation(sub, (x, spread), (Var(x.type),), {}), "centred")
        squared = self._added(e, Equation(square, (centred,), (Var(x.type),), {}), "squared")
        total = self._added(e, Equation(reduce_sum, (squared,), (Var(reduced.type),), {"axes": axes}), "sum")
        if reduced.type.shape != e.outputs[0].type.shape:
            shape = e.outputs[0].type.shape
            total = self._added(e, Equation(reshape, (total,), (Var(e.outputs[0].type),), {"shape": shape}), "shaped")
        share = Literal(wrap(np.asarray(1 / count, np.float32)))
        factor = Equation(
            broadcast_in_dim, (share,), (Var(total.type),), {"shape": total.type.shape, "broadcast_dimensions": ()}
        )
        self.equations.append(Equation(mul, (total, self._added(e, factor, "share")), e.outputs, {}, e.source, e.scope))
        return True

    def _square(self, a: Atom) -> Atom | None:
        """x of x * x."""
        e = self.view.producer.get(a) if isinstance(a, Var) else None
        return e.inputs[0] if e is not None and is_square(self.view, e) else None

    def _mean(self, a: Atom) -> Equation | None:
        """The sum of which ``a`` is the mean, if it is one; with dimensions of size 1 or without."""
        e = self.view.made_by(a, "div", "mul")
        for y, other in () if e is None else (e.inputs, e.inputs[::-1]):
            number = self.view.number(other)
            total = self.view.made_by(self._shaped(y), "reduce_sum")
            if not number or total is None:
                continue
            count = math.prod(total.inputs[0].type.shape[i] for i in total.params["axes"])
            assert e is not None
            if abs((number if e.op in _QUOTIENTS else 1 / number) - count) <= 1e-6 * count:
                return total
        return None

    def _shaped(self, a: Atom) -> Atom:
        """``a`` before it was only reshaped."""
        while (e := self.view.made_by(a, "reshape")) is not None:
            a = e.inputs[0]
        return a

    def larger(self, e: Equation, tables: bool) -> bool:
        return self._leaky(e, tables, self._larger(e))

    def _leaky(self, e: Equation, tables: bool, found: tuple[Atom, Atom] | None) -> bool:
        """``e`` as the function of a value and its slope below zero, which were found in it."""
        if found is None:
            return False
        x, slope = found
        alpha = self.view.number(slope)
        if alpha is not None:
            self.equations.append(Equation(leaky_relu, (x,), e.outputs, {"alpha": alpha}, e.source, e.scope))
        elif tables and slope.type.shape == x.type.shape:
            self.equations.append(Equation(prelu, (x, slope), e.outputs, {}, e.source, e.scope))
        else:
            return False
        return True

    def _product(self, a: Atom) -> list[tuple[Atom, Atom]]:
        """``a`` as (activation, weight), if it is such a product."""
        e = self.view.made_by(a, "mul")
        pairs = [] if e is None else [e.inputs, e.inputs[::-1]]
        return [(x, w) for x, w in pairs if self.view.is_weight(w) and not self.view.is_weight(x)]

    def _bounded(self, a: Atom, *ops: str) -> Atom | None:
        """x of max(x, 0) or min(x, 0), or of relu(x)."""
        e = self.view.made_by(a, *ops)
        if e is None:
            return None
        if len(e.inputs) == 1:
            return e.inputs[0]
        found = [x for x, bound in (e.inputs, e.inputs[::-1]) if self.view.number(bound) == 0]
        return found[0] if found else None

    def _selected(self, e: Equation) -> tuple[Atom, Atom] | None:
        if len(e.inputs) != 3:
            return None
        test = self.view.made_by(e.inputs[0], *_ABOVE)
        if test is None or self.view.number(test.inputs[1]) != 0:
            return None
        x = test.inputs[0]
        below, above = e.inputs[1:] if _ABOVE[test.op.name] else e.inputs[:0:-1]
        slopes = [w for v, w in self._product(below) if v is x]
        return (x, slopes[0]) if above is x and slopes else None

    def _summed(
        self, terms: Sequence[Sequence[Atom]], lower: Callable[[Atom], Atom | None]
    ) -> tuple[Atom, Atom] | None:
        for first, second in terms:
            x = self._bounded(first, "max", "relu")
            if x is None:
                continue
            for part, slope in self._product(second):
                if lower(part) is x:
                    return x, slope
        return None

    def _turned(self, a: Atom) -> Atom | None:
        """x of max(-x, 0)."""
        inner = self._bounded(a, "max", "relu")
        turned = None if inner is None else self.view.made_by(inner, "neg")
        return None if turned is None else turned.inputs[0]

    def _larger(self, e: Equation) -> tuple[Atom, Atom] | None:
        for x, y in (e.inputs, e.inputs[::-1]):
            for v, slope in self._product(y):
                number = self.view.number(slope)
                if v is x and number is not None and 0 < number < 1:
                    return x, slope
        return None


_QUOTIENTS: Final[frozenset[Op]] = frozenset((div,))
# Where functions of one value end, as `spelled` finds them.
_ENDS: Final[frozenset[Op]] = frozenset((mul, div, add, sub, log, log1p, integer_pow, select_n))
# Those that chips have of 16 bits. More have the pieces of a gelu by tanh than have it whole.
_OF_SIXTEEN: Final[tuple[tuple[Op, dict[str, Any]], ...]] = ((logistic, {}), (tanh, {}), (gelu, {"approximate": False}))
# What may be spelled out; and whether chips have tables of functions for it.
_SPELLED: Final[dict[str, Callable[[_Speller, Equation, bool], bool]]] = {
    "div": _Speller.quotient,
    "pow": _Speller.power,
    "custom_jvp_call": _Speller.softplus,
    "select_n": _Speller.choice,
    "add": _Speller.sum,
    "sub": _Speller.difference,
    "max": _Speller.larger,
}
