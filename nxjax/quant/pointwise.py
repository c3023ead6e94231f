"""Everything else that computes on integers: sums and products of activations, functions of one, means, pools, softmax.

And what only moves values, and so keeps their grid; and what needs several operands on one grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import div
from nxjax.ops.base import DataMovement, Unary, constant, like
from nxjax.ops.dimension_numbers import GatherScatterMode
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.fixed.elementwise import wide_enough
from nxjax.ops.fixed.functions import FUNCTIONS, operand_grid, representable
from nxjax.ops.fixed.softmax import TOO_LONG, softmax_grid, softmax_operand
from nxjax.ops.quant_elementwise import has_table, qadd, qmul, qsub, qunary
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_products import largest_centred, qdot
from nxjax.ops.quant_reduce import qavgpool, qmean
from nxjax.ops.quant_resize import qresize
from nxjax.ops.quant_softmax import qsoftmax
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import pad
from nxjax.quant.accumulators import holds_sum, product_size, regridded, saturated
from nxjax.quant.groups import FusedClamp, FusedGroup, GridWalk, Values
from nxjax.quant.patterns import Sloped
from nxjax.quant.products import match_clamp, match_epilogue
from nxjax.quant.scheme import Scheme
from nxjax.quant.view import WeightView
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var

Operands = tuple[Atom, ...]
BINARY: Final = {"add": qadd, "sub": qsub, "mul": qmul}
# Functions of 16-bit integers that chips have; the others stay float between two grids, having no table.
SIXTEEN: Final = frozenset(("logistic", "tanh", "gelu", "leaky_relu", "exp", "log", "sqrt", "rsqrt", "abs"))
# A greater number is no scale but a mask in the making; integer arithmetic has no room for it.
LARGEST_FACTOR: Final = 1e4
# What chooses among its elements keeps their grid, as does what moves them.
CHOOSES: Final = frozenset((
    "reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min", "cummax", "cummin",
))  # fmt: skip
# Several operands that have to lie on the grid of the result: which.
UNIFIES: Final = {
    **dict.fromkeys(("concatenate", "max", "min"), slice(None)),
    "select_n": slice(1, None),
    "dynamic_update_slice": slice(2),
    "pad": slice(1),
    "gather": slice(1),
}
# Functions of one operand that no table stands for.
UNTABLED: Final = frozenset(("convert_element_type", "reduce_precision", "neg", "is_finite", "quantize_dequantize"))


def logistic_grid(dtype: DType) -> Grid:
    """The grid that TFLite gives a logistic function's result: 256 or 32768 steps of [0, 1)."""
    return softmax_grid(dtype)


def tanh_grid(dtype: DType) -> Grid:
    """The grid that TFLite gives tanh's result: [-1, 1) in 256 or 65536 steps."""
    return Grid(dtype, 1 / 32768 if dtype == dtypes.int16 else 1 / 128)


FIXED: Final = {"logistic": logistic_grid, "tanh": tanh_grid}


def keeps_grid(e: Equation) -> bool:
    """Whether results are elements of the first operand; the others (indices, bounds) are none of a grid's business."""
    return e.op.name in CHOOSES or (isinstance(e.op, DataMovement) and len(e.inputs[e.op.moved]) == 1)


@final
@dataclass(eq=False)
class QuantBinary(FusedGroup):
    """Sum, difference or product of two values, at least one of them an activation."""

    clamp: FusedClamp

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        (x, x_grid), (y, y_grid) = (walk.on_grid(a, self.dtype) for a in self.activations)
        out = walk.result_grid(self.output, self.dtype)
        # A square has one operand, and is written with two.
        op = BINARY.get(self.equations[0].op.name, qmul)
        if op is not qmul:
            # Operands that cancel leave less than the bits that sums are computed with.
            out = wide_enough(out, x_grid, y_grid)
        lo, hi = self.clamp.stored(out)
        make = partial(op, x, y, x_grid=x_grid, y_grid=y_grid, rounding=self.scheme.rounding)
        if op is not qmul:
            return make(out_grid=out, lo=lo, hi=hi), out
        return saturated(make, *product_size(x_grid, y_grid), out, lo, hi, self.scheme.rounding), out


@final
@dataclass(eq=False)
class QuantQuotient(FusedGroup):
    """Division by weights or a number: a product with the reciprocal, which is taken in float."""

    reciprocal: Var

    def prepare(self, walk: Values) -> dict[Var, Array]:
        divisor = walk.value(self.equations[0].inputs[1])
        return {self.reciprocal: div(like(divisor, 1), divisor)}

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        (x, x_grid), (y, y_grid) = (walk.on_grid(a, self.dtype) for a in self.activations)
        out = walk.result_grid(self.output, self.dtype)
        lo, hi = out.limits
        make = partial(qmul, x, y, x_grid=x_grid, y_grid=y_grid, rounding=self.scheme.rounding)
        return saturated(make, *product_size(x_grid, y_grid), out, lo, hi, self.scheme.rounding), out


@final
@dataclass(eq=False)
class Negative(FusedGroup):
    """-x as a product with -1, which every NPU has; where few have a NEG of 8 bits."""

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, x_grid = walk.on_grid(self.activations[0], self.dtype)
        out, one = walk.result_grid(self.output, self.dtype), Grid(self.dtype, 1.0)
        lo, hi = out.limits
        y = constant(-1, x.dtype, x.shape)
        value = qmul(x, y, x_grid=x_grid, y_grid=one, out_grid=out, lo=lo, hi=hi, rounding=self.scheme.rounding)
        return value, out


@final
@dataclass(eq=False)
class TableFunction(FusedGroup):
    """A function of one value, by table."""

    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def function(self) -> str:
        return self.equations[0].op.name

    def fixed_grid(self) -> Grid | None:
        made = FIXED.get(self.function)
        return None if made is None else made(self.dtype)

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        _, own = walk.on_grid(self.activations[0], self.dtype)
        x_grid = operand_grid(self.function, own)
        x = walk.moved_to(self.activations[0], x_grid)
        out = self.fixed_grid() or representable(self.function, x_grid, walk.result_grid(self.output, self.dtype))
        value = qunary(
            x,
            function=self.function,
            x_grid=x_grid,
            y_grid=out,
            rounding=self.scheme.rounding,
            parameters=self.parameters,
        )
        return value, out


@final
@dataclass(eq=False)
class ClampedGrid(FusedGroup):
    """A relu-like function that follows no product: a change of grid with a clamp."""

    clamp: FusedClamp

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, x_grid = walk.on_grid(self.activations[0], self.dtype)
        out = walk.result_grid(self.output, self.dtype)
        lo, hi = self.clamp.stored(out)
        return regridded(x, x_grid, out, lo, hi, self.scheme.rounding), out


@final
@dataclass(eq=False)
class QuantSoftmax(FusedGroup):
    """softmax along an axis."""

    def fixed_grid(self) -> Grid | None:
        return softmax_grid(self.dtype)

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        _, own = walk.on_grid(self.activations[0], self.dtype)
        x_grid = softmax_operand(own)
        x = walk.moved_to(self.activations[0], x_grid)
        out = softmax_grid(self.dtype)
        axis = self.equations[0].params["axis"]
        return qsoftmax(x, axis=axis, x_grid=x_grid, y_grid=out, rounding=self.scheme.rounding), out


@final
@dataclass(eq=False)
class Total(FusedGroup):
    """Sum or mean over axes."""

    mean: bool

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, x_grid = walk.on_grid(self.activations[0], self.dtype)
        out = walk.result_grid(self.output, self.dtype)
        axes = self.equations[0].params["axes"]
        rounding = self.scheme.rounding
        sizes = tuple(x.shape[a] for a in axes)

        def make(out_grid: Grid, lo: int, hi: int) -> Array:
            if self.mean:
                return qmean(x, axes=axes, x_grid=x_grid, y_grid=out_grid, rounding=rounding)
            # Products with ones, which runtimes round once and alike; of sums they round some elements otherwise.
            filled = lambda value, *shape: constant(value, dtypes.float32, shape)
            return qdot(
                x, filled(1, *sizes, 1), filled(1, *(1 for _ in sizes), 1), filled(0, 1), x_grid=x_grid,
                y_grid=out_grid, lo=lo, hi=hi, w_dtype=dtypes.int8, rounding=rounding,
                dimension_numbers=((axes, tuple(range(len(axes)))), ((), ())),
            )  # fmt: skip

        count = 2 if self.mean else math.prod(sizes)
        assert not isinstance(x_grid.scale, tuple)
        y = saturated(make, x_grid.scale, count * largest_centred(x_grid), out, *out.limits, rounding)
        shape = self.output.type.shape
        return (reshape(y, shape=shape) if y.shape != shape else y), out


@final
@dataclass(eq=False)
class AveragePool(FusedGroup):
    """Mean of windows; ``counted`` says that padding is part of the mean."""

    counted: bool

    @property
    def moves(self) -> bool:
        return True

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, grid = walk.on_grid(self.activations[0], self.dtype)
        return pooled(x, grid, self.equations[0].params, self.counted), grid


def pooled(x: Array, grid: Grid, params: dict[str, Any], counted: bool) -> Array:
    """The mean of windows; ``counted`` says that padding is part of it."""
    padding = params["padding"]
    if counted and any(p != (0, 0) for p in padding):
        config = tuple((low, high, 0) for low, high in padding)
        x = pad(x, constant(0, x.dtype), padding_config=config)
        padding = ((0, 0),) * x.ndim
    windows = {k: params[k] for k in ("window_dimensions", "window_strides")}
    return qavgpool(x, grid=grid, padding=padding, **windows)


@final
@dataclass(eq=False)
class WindowSum(FusedGroup):
    """Sum of windows: as many times their mean."""

    size: Var

    def prepare(self, walk: Values) -> dict[Var, Array]:
        count = math.prod(self.equations[0].params["window_dimensions"])
        shape = self.size.type.shape
        return {self.size: broadcast_in_dim(constant(count, dtypes.float32), shape=shape, broadcast_dimensions=())}

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, grid = walk.on_grid(self.activations[0], self.dtype)
        out = walk.result_grid(self.output, self.dtype)
        means = pooled(x, grid, self.equations[0].params, counted=True)
        size, size_grid = walk.on_grid(self.size, self.dtype)
        lo, hi = out.limits
        grids = {"x_grid": grid, "y_grid": size_grid, "out_grid": out}
        return qmul(means, size, lo=lo, hi=hi, rounding=self.scheme.rounding, **grids), out


@final
@dataclass(eq=False)
class GridKeeping(FusedGroup):
    """An op that keeps values, and so their grid."""

    @property
    def moves(self) -> bool:
        return True

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, grid = walk.on_grid(self.activations[0], self.dtype)
        e = self.equations[0]
        return e.op(x, *(walk.value(a) for a in e.inputs[1:]), **e.params), grid


@final
@dataclass(eq=False)
class Unify(FusedGroup):
    """An op whose operands have to share the grid of its result."""

    positions: tuple[int, ...] = field(default=())
    # What stands where no element of an operand does, and the parameter that holds it; empty: the second operand.
    border: float | None = None
    parameter: str = ""

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        e = self.equations[0]
        grids = {walk.grid_of(a) for a in self.activations}
        shared = grids.pop() if len(grids) == 1 else None
        if shared is not None and self.border is not None and not _holds(shared, self.border):
            shared = None
        out = shared if shared is not None and shared.dtype == self.dtype else walk.result_grid(self.output, self.dtype)
        xs = [walk.moved_to(a, out) if i in self.positions else walk.value(a) for i, a in enumerate(e.inputs)]
        params = dict(e.params)
        if self.parameter:
            params[self.parameter] = float(out.dequantize(out.quantize(np.asarray(self.border, np.float32))))
        elif self.border is not None:
            xs[1] = quantize_dequantize(xs[1], grid=out)
        return e.op(*xs, **params), out


def _holds(grid: Grid, value: float) -> bool:
    """Whether a value lies within a grid's ends."""
    low, high = grid.bounds
    half = float(np.asarray(grid.scale)) / 2
    return low - half <= value <= high + half


@final
@dataclass(eq=False)
class QuantResize(FusedGroup):
    """Linear resizing of one or two dimensions; its grid stays."""

    @property
    def moves(self) -> bool:
        return True

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, grid = walk.on_grid(self.activations[0], self.dtype)
        params = self.equations[0].params
        axes, sizes = tuple(params["axes"]), tuple(params["sizes"])
        if len(axes) == 1:
            # Another dimension is resized to what it is.
            (a,) = axes
            other = a + 1 if a + 1 < x.ndim else a - 1
            axes, sizes = (a, other), (*sizes, x.shape[other])
        return qresize(x, axes=axes, sizes=sizes, grid=grid, rounding=self.scheme.rounding), grid


def match_pointwise(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    """The group that begins with ``e``, if it computes on integers and is no product with weights."""
    if not scheme.integer or e.op.multi or not e.inputs or not view.is_float(e.outputs[0]):
        return None
    name, y = e.op.name, e.outputs[0]
    active: Operands = tuple(a for a in e.inputs if view.is_float(a) and not view.is_weight(a))
    if not active and name != "gather":
        return None
    own = _MATCHES.get(name)
    if own is not None:
        return own(view, e, scheme, active)
    bound = match_clamp(view, e, active[0]) if active and isinstance(active[0], Var) else None
    if bound is not None:
        return ClampedGrid((e,), active[:1], y, scheme, bound)
    if keeps_grid(e):
        return GridKeeping((e,), e.inputs[:1], y, scheme)
    if name in UNIFIES:
        return _match_unify(e, scheme)
    return _match_function(view, e, scheme, active)


def _by_table(e: Equation) -> bool:
    """Whether a table of the op can stand for it: elementwise ops that users declared, and float functions."""
    return has_table(e.op.name) and e.op.name not in UNTABLED


def _match_binary(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    chain, _, clamp = match_epilogue(view, e, None)
    return QuantBinary(chain, e.inputs, chain[-1].outputs[0], scheme, clamp)


def _match_multiplied(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    masking = any(abs(view.number(a) or 0.0) >= LARGEST_FACTOR for a in e.inputs)
    return None if masking else _match_binary(view, e, scheme, active)


def _match_square(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    (x,) = e.inputs
    return QuantBinary((e,), (x, x), e.outputs[0], scheme, FusedClamp())


def _match_power(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    return (_match_square if e.params["y"] == 2 else _match_function)(view, e, scheme, active)


def _match_quotient(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    if not view.is_weight(e.inputs[1]):
        return None
    reciprocal = Var(e.inputs[1].type)
    return QuantQuotient((e,), (e.inputs[0], reciprocal), e.outputs[0], scheme, reciprocal)


def _match_sloped(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    return Sloped((e,), e.inputs, e.outputs[0], scheme) if view.is_weight(e.inputs[1]) else None


def _match_resize(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    if e.params["method"] != "linear":
        return GridKeeping((e,), e.inputs[:1], e.outputs[0], scheme)
    few = len(e.params["axes"]) <= 2 <= active[0].type.ndim
    return QuantResize((e,), active, e.outputs[0], scheme) if few else None


def _match_function(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    """A function of one value, by a table or by chips' own arithmetic."""
    name = e.op.name
    if scheme.activations == dtypes.int16 and name not in SIXTEEN:
        return None
    if (name in FUNCTIONS and isinstance(e.op, Unary)) or (len(e.inputs) == 1 and _by_table(e)):
        return TableFunction((e,), active, e.outputs[0], scheme, tuple(sorted(e.params.items())))
    return None


def _match_total(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    """A sum, or with the division that follows it a mean; a reshape may stand between (``keepdims``).

    None where 32 bits do not hold so many elements.
    """
    count = math.prod(e.inputs[0].type.shape[a] for a in e.params["axes"])
    assert scheme.activations is not None
    if not holds_sum(scheme.activations, count):
        return None
    chain = [e]
    user = view.only_user(e.outputs[0])
    if user is not None and user.op is reshape:
        chain.append(user)
        user = view.only_user(user.outputs[0])
    divisor = _divisor(view, user, chain[-1].outputs[0])
    if user is not None and divisor is not None and abs(divisor - count) <= 1e-6 * count:
        chain.append(user)
        return Total(tuple(chain), e.inputs, user.outputs[0], scheme, True)
    return Total((e,), e.inputs, e.outputs[0], scheme, False)


def _quotient(view: WeightView, user: Equation, y: Var) -> Atom | None:
    """What ``user`` divides ``y`` by."""
    return user.inputs[1] if user.inputs[0] is y and user.inputs[1] is not y else None


# The number that a value is divided by, in a quotient or in a product with the reciprocal.
_DIVISORS: Final[dict[str, tuple[Callable[[WeightView, Equation, Var], Atom | None], Callable[[float], float]]]] = {
    "div": (_quotient, lambda number: number),
    "mul": (WeightView.other, lambda number: 1 / number if number else math.inf),
}


def _divisor(view: WeightView, user: Equation | None, y: Var) -> float | None:
    """The number that ``user`` divides ``y`` by, if it does that."""
    if user is None or user.op.name not in _DIVISORS:
        return None
    find, divisor = _DIVISORS[user.op.name]
    other = find(view, user, y)
    number = None if other is None else view.number(other)
    return None if number is None else divisor(number)


def _match_windows(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    assert scheme.activations is not None
    if not holds_sum(scheme.activations, math.prod(e.params["window_dimensions"])):
        return None
    return _match_pool(view, e, scheme) or _match_window_sum(view, e, scheme)


def _match_pool(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    """A window sum with the division by the window's size, or by the number of elements in it."""
    user = view.only_user(e.outputs[0])
    params = e.params
    plain = all(d == 1 for d in (*params["base_dilation"], *params["window_dilation"]))
    if user is None or not plain:
        return None
    size = math.prod(params["window_dimensions"])
    divisor = _divisor(view, user, e.outputs[0])
    if divisor is not None:
        if abs(divisor - size) > 1e-6 * size:
            return None
        return AveragePool((e, user), e.inputs, user.outputs[0], scheme, True)
    other = _quotient(view, user, e.outputs[0]) if user.op is div else None
    counts = None if other is None else _spread_from(view, other)
    if counts is None or counts.op is not e.op:
        return None
    if view.number(counts.inputs[0]) != 1.0 or not _same_windows(counts.params, params):
        return None
    return AveragePool((e, user), e.inputs, user.outputs[0], scheme, False)


def _match_window_sum(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    """A window sum of at most two dimensions, which is what chips take the mean of."""
    params, y = e.params, e.outputs[0]
    plain = all(d == 1 for d in (*params["base_dilation"], *params["window_dilation"]))
    if not plain or sum(n > 1 for n in params["window_dimensions"]) > 2:
        return None
    size = Var(y.type)
    return WindowSum((e,), (e.inputs[0], size), y, scheme, size)


def _match_extreme_windows(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    """None where a window holds no element: what it gives, infinity, has no place on a grid."""
    p = e.params
    rows = zip(
        e.inputs[0].type.shape, e.outputs[0].type.shape, p["window_dimensions"], p["window_strides"], p["padding"],
        p["base_dilation"], p["window_dilation"], strict=True,
    )  # fmt: skip
    for n, outputs, size, stride, (low, _), base, dilation in rows:
        places = np.arange(outputs)[:, None] * stride + np.arange(size) * dilation - low
        inside = (places >= 0) & (places <= (n - 1) * base) & (places % base == 0)
        if not inside.any(1).all():
            return None
    return GridKeeping((e,), e.inputs[:1], e.outputs[0], scheme)


def _spread_from(view: WeightView, a: Atom) -> Equation | None:
    """The equation that makes ``a``, before it is only spread over more dimensions."""
    while (e := view.made_by(a, "broadcast_in_dim", "reshape")) is not None:
        a = e.inputs[0]
    return view.producer.get(a) if isinstance(a, Var) else None


def _same_windows(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether both run the same windows, leaving out dimensions where nothing happens."""

    def trimmed(p: dict[str, Any]) -> list[Any]:
        rows = zip(p["window_dimensions"], p["window_strides"], p["padding"], strict=True)
        return [row for row in rows if row != (1, 1, (0, 0))]

    return trimmed(a) == trimmed(b)


def _match_unify(e: Equation, scheme: Scheme, border: float | None = None, parameter: str = "") -> FusedGroup | None:
    positions = tuple(range(len(e.inputs)))[UNIFIES[e.op.name]]
    wanted = tuple(e.inputs[i] for i in positions)
    return Unify((e,), wanted, e.outputs[0], scheme, positions, border, parameter)


def _match_pad(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    border = view.number(e.inputs[1])
    return None if border is None or not math.isfinite(border) else _match_unify(e, scheme, border)


def _match_gather(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    """What is filled has a place on the grid; NaN, which says that an index is wrong, has none."""
    fill = e.params.get("fill_value")
    if e.params["mode"] is not GatherScatterMode.FILL_OR_DROP or fill is None or not math.isfinite(fill):
        return GridKeeping((e,), e.inputs[:1], e.outputs[0], scheme)
    return _match_unify(e, scheme, float(fill), "fill_value")


def _match_negative(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    return Negative((e,), active, e.outputs[0], scheme)


def _match_softmax(view: WeightView, e: Equation, scheme: Scheme, active: Operands) -> FusedGroup | None:
    assert scheme.activations is not None
    if e.inputs[0].type.shape[e.params["axis"]] >= TOO_LONG[scheme.activations]:
        return None
    return QuantSoftmax((e,), active, e.outputs[0], scheme)


# What computes on integers in a way of its own.
_MATCHES: Final[dict[str, Callable[[WeightView, Equation, Scheme, Operands], FusedGroup | None]]] = {
    "add": _match_binary,
    "sub": _match_binary,
    "mul": _match_multiplied,
    "square": _match_square,
    "integer_pow": _match_power,
    "neg": _match_negative,
    "div": _match_quotient,
    "prelu": _match_sloped,
    "softmax": _match_softmax,
    "reduce_sum": _match_total,
    "reduce_window_sum": _match_windows,
    "reduce_window_max": _match_extreme_windows,
    "reduce_window_min": _match_extreme_windows,
    "resize": _match_resize,
    "pad": _match_pad,
    "gather": _match_gather,
}
