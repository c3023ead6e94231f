"""Rules of ops that work element by element: arithmetic, functions, comparison, choice, conversion.

A value on a grid comes off it, except where the result provably lies on the same grid: maxima, minima, choices, relu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.attributes import SCHEMAS
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.ops.arithmetic import abs as abs_
from nxjax.ops.arithmetic import add, div, mul, neg, sign, sub
from nxjax.ops.arithmetic import pow as pow_
from nxjax.ops.base import like
from nxjax.ops.elementary import cos, exp, log, sin
from nxjax.ops.fixed.elementwise import comparable, scale_of
from nxjax.ops.quant_grid import ROUNDINGS, Grid
from nxjax.ops.rounding import TO_NEAREST_EVEN, floor
from nxjax.ops.special import erf
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType

# Ops whose nodes have their names, and those of their parameters that are attributes.
NODES: Final = (
    "exp log sqrt rsqrt abs neg square sin cos floor ceil sign logistic tanh erf gelu hard_swish leaky_relu elu prelu "
    "add sub mul pow"
)
COMPARE: Final = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _node(name: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, *xs: LogicalTensor, **params: Any) -> LogicalTensor:
        attrs = {key: params[key] for key in SCHEMAS[name] if key in params}
        return b.elementwise(name, [b.real(x) for x in xs], out.dtype, **attrs)

    return rule


def _div(b: GraphBuilder, out: ArrayType, x: LogicalTensor, y: LogicalTensor, **params: Any) -> LogicalTensor:
    if out.dtype in dtypes.INTEGER:
        raise Unsupported("integer division rounds differently on different NPUs", "divide floats")
    return _node("div")(b, out, x, y)


def _extremum(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, y: LogicalTensor) -> LogicalTensor:
        if out.dtype == dtypes.bool_:
            return b.elementwise("logical_or" if node == "maximum" else "logical_and", [x, y], out.dtype)
        put, grid = common(b, x, y)
        return b.elementwise(node, [put(x), put(y)], grid or out.dtype)

    return rule


def shared_grid(b: GraphBuilder, *xs: LogicalTensor) -> Grid | None:
    """The grid that all values lie on, constants included if they happen to; None if there is none."""
    grids = dict.fromkeys(x.grid for x in xs if x.grid is not None and not x.constant)
    if len(grids) != 1:
        return None
    (grid,) = grids
    return grid if all(b.fits(x, grid) for x in xs) else None


def common(b: GraphBuilder, *xs: LogicalTensor) -> tuple[Callable[[LogicalTensor], LogicalTensor], Grid | None]:
    """What puts values on the grid that all of ``xs`` lie on, and that grid; or takes them off theirs, and None."""
    grid = shared_grid(b, *xs)
    return (b.real if grid is None else lambda v: b.on(v, grid)), grid


@lru_cache(256)
def keeps_order(grid: Grid) -> bool:
    """Whether integer comparisons tell all values of ``grid`` apart.

    LiteRT's kernels bring both operands to a common fixed point first, where fine grids run together; and by a factor
    that has to be below 1: of coarse grids they compare nonsense.
    """
    if scale_of(grid) >= 1:
        return False
    low, high = grid.limits
    every = np.arange(low, high + 1).astype(grid.dtype)
    return all(bool(np.all(np.diff(comparable(every, grid, rounding)) > 0)) for rounding in ROUNDINGS)


def _compare(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, y: LogicalTensor) -> LogicalTensor:
        grid = shared_grid(b, x, y)
        if grid is not None and keeps_order(grid):
            return b.elementwise(node, [b.on(x, grid), b.on(y, grid)], dtypes.bool_)
        return b.elementwise(node, [b.real(x), b.real(y)], dtypes.bool_)

    return rule


def _logical(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, *xs: LogicalTensor) -> LogicalTensor:
        if out.dtype != dtypes.bool_:
            raise Unsupported("bits of integers are not reachable on an NPU", "use bool operands, or arithmetic")
        return b.elementwise(node, xs, out.dtype)

    return rule


def _clamp(b: GraphBuilder, out: ArrayType, low: LogicalTensor, x: LogicalTensor, high: LogicalTensor) -> LogicalTensor:
    low, high = (_spread(b, v, x) for v in (low, high))
    put, grid = common(b, low, x, high)
    kind = grid or out.dtype
    y = b.elementwise("maximum", [put(x), put(low)], kind)
    return b.elementwise("minimum", [y, put(high)], kind)


def _spread(b: GraphBuilder, v: LogicalTensor, x: LogicalTensor) -> LogicalTensor:
    """A scalar bound in the rank of ``x``."""
    if v.shape == x.shape:
        return v
    v = b.reshape(v, (1,) * x.ndim)
    return LogicalTensor(x.shape, v.tensor, v.data, v.grid)


def _select(b: GraphBuilder, out: ArrayType, which: LogicalTensor, *cases: LogicalTensor) -> LogicalTensor | None:
    if which.dtype != dtypes.bool_ or len(cases) != 2:
        return _select_by_number(b, which, cases)
    which = _spread(b, which, cases[0])
    put, grid = common(b, *cases)
    no, yes = map(put, cases)
    y = b.elementwise("select", [which, yes, no], grid or out.dtype)
    return LogicalTensor(cases[0].shape, y.tensor)


def _select_by_number(b: GraphBuilder, which: LogicalTensor, cases: Sequence[LogicalTensor]) -> LogicalTensor:
    """A choice among many as choices among two."""
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        chosen = b.elementwise("equal", [which, b.fill(which.shape, i, which.dtype)], dtypes.bool_)
        found = _select(b, ArrayType(result.shape, result.dtype), chosen, result, cases[i])
        assert found is not None
        result = found
    return result


def _relu6(b: GraphBuilder, out: ArrayType, x: LogicalTensor) -> LogicalTensor:
    if x.grid is not None and not b.fits(b.fill((), 6, dtypes.float32), x.grid):
        x = b.real(x)
    return b.elementwise("relu6", [x], x.kind)


def _convert(b: GraphBuilder, out: ArrayType, x: LogicalTensor, dtype: Any, weak: bool = False) -> LogicalTensor:
    x = x if x.grid is not None and dtype == dtypes.float32 else b.real(x)
    if x.grid is not None or x.dtype == dtype:
        return x
    if dtype == dtypes.bool_:
        return b.elementwise("not_equal", [x, b.fill(x.shape, 0, x.dtype)], dtypes.bool_)
    return b.elementwise("cast", [x], dtype)


def _round(b: GraphBuilder, out: ArrayType, x: LogicalTensor, rounding_method: int) -> LogicalTensor:
    x = b.real(x)
    if rounding_method == TO_NEAREST_EVEN:
        return b.elementwise("round", [x], out.dtype)
    half = b.fill(x.shape, 0.5, out.dtype)
    size = b.elementwise("abs", [x], out.dtype)
    away = b.elementwise("floor", [b.elementwise("add", [size, half], out.dtype, activation=None)], out.dtype)
    return b.elementwise("mul", [b.elementwise("sign", [x], out.dtype), away], out.dtype, activation=None)


def _is_finite(b: GraphBuilder, out: ArrayType, x: LogicalTensor) -> LogicalTensor:
    # x - x is 0 for finite x and NaN, which equals nothing, for the others.
    x = b.real(x)
    zero = b.elementwise("sub", [x, x], x.dtype, activation=None)
    return b.elementwise("equal", [zero, b.fill(x.shape, 0, x.dtype)], dtypes.bool_)


def _reduce_precision(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, exponent_bits: int, mantissa_bits: int
) -> LogicalTensor:
    info = dtypes.float_info(out.dtype)
    if mantissa_bits >= info.nmant and exponent_bits >= 8 * out.dtype.itemsize - 1 - info.nmant:
        return x
    raise Unsupported("floats of other widths do not exist on an NPU", "cast to float16 and back")


def _by(function: Any) -> Rule:
    """Through ops that have instructions."""

    def rule(b: GraphBuilder, out: ArrayType, *xs: LogicalTensor, **params: Any) -> LogicalTensor:
        return b.inline(lambda *values: function(*values, **params), *xs)

    return rule


# What has no node -> ops that have.
COMPOSED: Final[dict[str, Callable[[Array], Array]]] = {
    "expm1": lambda x: sub(exp(x), like(x, 1)),
    "log1p": lambda x: log(add(x, like(x, 1))),
    "erfc": lambda x: sub(like(x, 1), erf(x)),
    "tan": lambda x: div(sin(x), cos(x)),
    "sinh": lambda x: mul(sub(exp(x), exp(neg(x))), like(x, 0.5)),
    "cosh": lambda x: mul(add(exp(x), exp(neg(x))), like(x, 0.5)),
    "cbrt": lambda x: mul(sign(x), pow_(abs_(x), like(x, 1 / 3))),
}


def _rem(x: Array, y: Array) -> Array:
    # x - y * trunc(x / y)
    ratio = div(x, y)
    return sub(x, mul(y, mul(sign(ratio), floor(abs_(ratio)))))


def _floats_only(rule: Rule, what: str) -> Rule:
    def checked(b: GraphBuilder, out: ArrayType, *xs: LogicalTensor, **params: Any) -> Any:
        if out.dtype not in dtypes.FLOAT:
            raise Unsupported(f"{what} of integers has no NPU instruction", "cast to float32 first")
        return rule(b, out, *xs, **params)

    return checked


RULES: Final[dict[str, Rule]] = {
    **{op: _node(op) for op in NODES.split()},
    "div": _div,
    **{op: _compare(node) for op, node in COMPARE.items()},
    "max": _extremum("maximum"),
    "min": _extremum("minimum"),
    "and": _logical("logical_and"),
    "or": _logical("logical_or"),
    "not": _logical("logical_not"),
    "xor": _logical("not_equal"),
    "clamp": _clamp,
    "select_n": _select,
    # Zero lies on every grid.
    "relu": lambda b, out, x: b.elementwise("relu", [x], x.kind),
    "relu6": _relu6,
    "convert_element_type": _convert,
    "round": _round,
    "is_finite": _is_finite,
    "reduce_precision": _reduce_precision,
    **dict.fromkeys(("copy", "stop_gradient", "name"), lambda b, out, x, **_: x),
    "optimization_barrier": lambda b, out, *xs: xs,
    **{op: _by(function) for op, function in COMPOSED.items()},
    "rem": _floats_only(_by(_rem), "the remainder"),
}
