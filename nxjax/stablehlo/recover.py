"""Finds nxjax's composite ops in programs that spell them out: gelu, silu, softplus, elu, ..., softmax, log_softmax.

StableHLO has no such operations, but devices have, and an integer program is more exact with one table than with eight
roundings. A piece of elementwise arithmetic between one value and another is such a function if it has its values over
the whole range that floats of use have; softmax is told by its structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.ops import composite_activation as act
from nxjax.ops import composite_softmax
from nxjax.ops.elementary import logistic
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]

_ELEMENTWISE: Final = frozenset(
    ("abs", "add", "and", "clamp", "copy", "div", "elu", "eq", "erf", "erfc", "exp", "expm1", "ge", "gelu", "gt",
     "hard_swish", "integer_pow", "is_finite", "le", "leaky_relu", "log", "log1p", "logistic", "lt", "max", "min",
     "mul", "ne", "neg", "not", "or", "pow", "relu", "relu6", "select_n", "sign", "silu", "softplus", "sqrt", "square",
     "stop_gradient", "sub", "tanh")
)  # fmt: skip
# A piece without one of them is none of the functions below.
_TELLING: Final = frozenset(
    ("clamp", "elu", "erf", "erfc", "exp", "expm1", "leaky_relu", "log1p", "logistic", "max", "min", "relu", "relu6",
     "select_n", "silu", "tanh")
)  # fmt: skip
_ENDS: Final = frozenset(["mul", "div", "min", "max", "clamp", "select_n", "add", "sub"])
SIZE: Final = 24


@lru_cache(1)
def _grid() -> NDArray:
    near = np.linspace(-8, 8, 161)
    return np.concatenate([near, [-60.0, -30.0, -17.3, 13.7, 25.0, 70.0], near[1::7] * 1e-3])


@lru_cache(1)
def _functions() -> tuple[tuple[Op, dict[str, Any], NDArray], ...]:
    x = _grid()
    # Written out, so that each is as exact as its definition.
    sigmoid = 1 / (1 + np.exp(-x))
    erf = np.vectorize(math.erf)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    found: tuple[tuple[Op, dict[str, Any], NDArray], ...] = (
        (act.gelu, {"approximate": True}, 0.5 * x * (1 + np.tanh(inner))),
        (act.gelu, {"approximate": False}, 0.5 * x * (1 + erf(x / np.sqrt(2)))),
        (act.silu, {}, x * sigmoid),
        (act.hard_swish, {}, x * np.clip(x + 3, 0, 6) / 6),
        (act.softplus, {}, np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)),
        (act.elu, {}, np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
        (logistic, {}, sigmoid),
    )
    return found


def _relus() -> tuple[tuple[Op, dict[str, Any], NDArray], ...]:
    x = _grid()
    return ((act.relu, {}, np.maximum(x, 0)), (act.relu6, {}, np.clip(x, 0, 6)))


@final
class _Recovery:
    def __init__(self, program: Program, relus: bool) -> None:
        self.program = program
        self.functions = (*_functions(), *_relus()) if relus else _functions()
        self.made: dict[Var, int] = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
        self.equations = list(program.equations)
        self.inside: set[int] = set()

    def maker(self, a: Atom) -> Equation | None:
        i = self.made.get(a) if isinstance(a, Var) else None
        return None if i is None else self.equations[i]

    def made_by(self, a: Atom, name: str) -> Equation | None:
        """The equation that makes ``a``, if its op has this name."""
        e = self.maker(a)
        return e if e is not None and e.op.name == name else None

    def result(self) -> Program:
        p, changed = self.program, False
        for i in reversed(range(len(self.equations))):
            if i in self.inside:
                continue
            e = self.equations[i]
            found = self.softmax(e) or self.activation(i, e)
            if found is not None:
                op, x, params = found
                self.equations[i] = Equation(op, (x,), e.outputs, params, e.source, e.scope)
                changed = True
        if not changed:
            return p
        return dead_code_eliminated(Program(p.inputs, self.equations, p.outputs, p.constvars, p.values, p.name))

    # --- elementwise functions of one value ---

    def number(self, a: Atom) -> NDArray | None:
        """A scalar, repeated or not."""
        if isinstance(a, Literal):
            return a.value.numpy()
        e = self.made_by(a, "broadcast_in_dim")
        if e is not None and isinstance(e.inputs[0], Literal):
            return e.inputs[0].value.numpy()
        return None

    def activation(self, at: int, e: Equation) -> tuple[Op, Var, dict[str, Any]] | None:
        if e.op.name not in _ENDS or len(e.outputs) != 1:
            return None
        out: ArrayType = e.outputs[0].type
        # Shorter floats are rounded at every step, which says what is meant.
        if out.dtype not in (dtypes.float32, dtypes.float64):
            return None
        for source, region in reversed(list(self.pieces(at, out))):
            if _TELLING.isdisjoint(self.equations[i].op.name for i in region):
                continue
            found = self.match(e.outputs[0], source, region)
            if found is not None:
                self.inside |= region
                return found[0], source, found[1]
        return None

    def pieces(self, at: int, out: ArrayType) -> Iterator[tuple[Var, set[int]]]:
        """Ever larger pieces that end at an equation and begin at one value."""
        front, region = {at}, set[int]()
        values: set[Var] = set()
        while front and len(region) < SIZE:
            i = max(front)
            front.discard(i)
            e = self.equations[i]
            values.difference_update(e.outputs)
            if e.op.name not in _ELEMENTWISE or any(v.type.shape != out.shape for v in e.outputs):
                return
            region.add(i)
            for a in e.inputs:
                if self.number(a) is not None:
                    continue
                if not isinstance(a, Var) or a.type.shape != out.shape:
                    return
                if a.type.dtype != out.dtype and a.type.dtype != dtypes.bool_:
                    return
                values.add(a)
                if a in self.made:
                    front.add(self.made[a])
            if len(values) == 1:
                (source,) = values
                if source.type.dtype == out.dtype:
                    yield source, set(region)
                if source not in self.made:
                    return
            elif any(v not in self.made for v in values) and all(v not in self.made for v in values):
                return

    def match(self, end: Var, source: Var, region: set[int]) -> tuple[Op, dict[str, Any]] | None:
        x = _grid()
        env: dict[Var, NDArray] = {source: x}

        def value(a: Atom) -> NDArray:
            number = self.number(a)
            if number is not None:
                wide = number.astype(np.float64) if number.dtype in dtypes.FLOAT else number
                return np.broadcast_to(wide, x.shape)
            assert isinstance(a, Var)
            return env[a]

        with np.errstate(all="ignore"):
            for i in sorted(region):
                e = self.equations[i]
                try:
                    env[e.outputs[0]] = np.asarray(e.op.eval(*map(value, e.inputs), **e.params))
                except (KeyError, TypeError, ValueError):
                    return None
        y = env[end]
        if y.dtype != np.float64:
            return None
        # Constants are rounded to the program's dtype.
        eps = 4 * float(dtypes.float_info(end.type.dtype).eps)
        for op, params, expected in self.functions:
            if bool(np.all(np.abs(y - expected) <= eps * (1 + np.abs(x)))):
                return op, params
        slope = float(-y[np.argmin(np.abs(x + 1))])
        if 0 < slope < 1 and bool(np.all(np.abs(y - np.where(x >= 0, x, slope * x)) <= eps * (1 + np.abs(x)))):
            return act.leaky_relu, {"alpha": slope}
        return None

    # --- softmax ---

    def softmax(self, e: Equation) -> tuple[Op, Var, dict[str, Any]] | None:
        pattern = _SOFTMAXES.get(e.op.name)
        if pattern is None or e.outputs[0].type.dtype not in (dtypes.float32, dtypes.float64):
            return None
        return pattern(self, e)

    def quotient(self, e: Equation) -> tuple[Op, Var, dict[str, Any]] | None:
        """exp(x) / sum(exp(x))"""
        exp, total = self.made_by(e.inputs[0], "exp"), self.spread(e.inputs[1], "reduce_sum")
        if exp is None or total is None or total.inputs[0] is not e.inputs[0]:
            return None
        return self._shifted(composite_softmax.softmax, exp.inputs[0], total)

    def difference(self, e: Equation) -> tuple[Op, Var, dict[str, Any]] | None:
        """x - log(sum(exp(x)))"""
        total = self.spread(e.inputs[1], "reduce_sum", through="log")
        exp = None if total is None else self.made_by(total.inputs[0], "exp")
        if total is None or exp is None or exp.inputs[0] is not e.inputs[0]:
            return None
        return self._shifted(composite_softmax.log_softmax, e.inputs[0], total)

    def _shifted(self, op: Op, shifted: Atom, total: Equation) -> tuple[Op, Var, dict[str, Any]] | None:
        """``op`` if ``shifted`` is a value less its own maximum along the axis of ``total``."""
        sub = self.made_by(shifted, "sub")
        axes = total.params["axes"]
        if sub is None or len(axes) != 1 or not isinstance(sub.inputs[0], Var):
            return None
        top = self.spread(sub.inputs[1], "reduce_max")
        if top is None or top.inputs[0] is not sub.inputs[0]:
            return None
        if top.params["axes"] != axes:
            return None
        return op, sub.inputs[0], {"axis": axes[0]}

    def spread(self, a: Atom, reduction: str, through: str = "") -> Equation | None:
        """The ``reduction`` that ``a`` repeats along the reduced axes, through `log` once if ``through`` says so."""
        shape = a.type.shape
        dims: tuple[int | None, ...] = tuple(range(len(shape)))
        needed = through
        while True:
            e = self.maker(a)
            if e is None:
                return None
            name = e.op.name
            if name == "broadcast_in_dim":
                inner = e.params["broadcast_dimensions"]
                dims = tuple(dims[d] for d in inner)
            elif name == "reshape":
                # Only sizes of 1 may come and go; where those went is no matter.
                old, new = e.inputs[0].type.shape, e.outputs[0].type.shape
                if [n for n in old if n != 1] != [n for n in new if n != 1]:
                    return None
                wide = iter([d for d, n in zip(dims, new, strict=True) if n != 1])
                dims = tuple(None if n == 1 else next(wide) for n in old)
            elif name in ("stop_gradient", "copy"):
                pass
            elif name == "log" and needed:
                needed = ""
            elif name == "max":
                others = [x for x in e.inputs if not _is_lowest(self.number(x))]
                if len(others) != 1:
                    return None
                a = others[0]
                continue
            elif name == reduction:
                axes = e.params["axes"]
                kept = tuple(i for i in range(len(shape)) if i not in axes)
                whole = e.inputs[0].type.shape == shape
                same = all(d is None or d == k for d, k in zip(dims, kept, strict=False))
                return e if whole and same and len(dims) == len(kept) and not needed else None
            else:
                return None
            a = e.inputs[0]


_SOFTMAXES: Final = {"div": _Recovery.quotient, "sub": _Recovery.difference}


def _is_lowest(number: NDArray | None) -> bool:
    return number is not None and number.dtype in dtypes.FLOAT and bool(number == -np.inf)


def recovered(program: Program, name: str = "") -> Program:
    """``program`` with what it spells out as ops of their own. ``name`` is what its module calls it.

    The largest of zero and a value is left as it is, since its derivative at zero is half of one, unless the function
    is called relu.
    """
    base = name.rstrip("0123456789").rstrip("_")
    return _Recovery(program, base in ("relu", "relu6")).result()
