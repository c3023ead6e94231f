"""Products and what follows them: convolution and dot with weights, dot of two activations.

After a product with weights, bias and per-channel scale and shift (a folded or unfolded batch norm) go into weights and
bias, and a relu-like function into the clamp.
"""

from __future__ import annotations

import builtins
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.arithmetic import add, div, max, min, mul, neg, sub
from nxjax.ops.base import Contraction, constant, like
from nxjax.ops.conv import ConvGeneralDilated, conv_general_dilated
from nxjax.ops.dot import DotGeneral, dot_general, free
from nxjax.ops.fake_quantize import quantize_rows, quantize_weight
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_products import qconv, qdot, qmatmul
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.quant.accumulators import fitting, holds, holds_weighted, product_size, saturated
from nxjax.quant.groups import FusedClamp, FusedGroup, GridWalk, Values
from nxjax.quant.scheme import Scheme
from nxjax.quant.view import WeightView
from nxjax.quant.weight_groups import Axes, Storing, weight_scale
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var

AFFINE: Final = frozenset(("add", "sub", "mul", "div"))


@final
@dataclass(frozen=True)
class ChannelStep:
    """One per-channel step after a product: ``op`` with a value that varies along ``dims`` of the result only.

    The value may have further dimensions of size 1.
    """

    op: str
    operand: Atom
    dims: Axes


@dataclass(eq=False)
class Weighted(Storing):
    """A product with weights.

    Attributes:
        channels: dimensions of the product's result that belong to output channels.
        steps: per-channel steps after it.
        clamp: the fused activation.
    """

    channels: Axes
    steps: tuple[ChannelStep, ...]
    clamp: FusedClamp

    @property
    def product(self) -> Equation:
        return self.equations[0]

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        w = walk.value(self.weight)
        shape = self.bias_shape
        w, b = self._folded(walk, w, shape)
        scheme = self.scheme
        if scheme.integer:
            b = self._corrected(walk, b)
            x, x_grid = walk.on_grid(self.activations[0], self.dtype)
            y_grid = walk.result_grid(self.output, self.dtype)
            w, scale = self.stored(walk, w)
            self._check_finite("weights", scale, w)
            self._check_finite("biases", b, b)
            lo, hi = self.clamp.stored(y_grid)
            scale, b = self.fitting(w, scale, b, x_grid, y_grid)
            if b is None:
                b = constant(0, dtypes.float32, shape)
            shared: dict[str, Any] = {
                "x_grid": x_grid, "y_grid": y_grid, "lo": lo, "hi": hi, "w_dtype": scheme.weights,
                "rounding": scheme.rounding,
            }  # fmt: skip
            return self.integer(x, w, scale, b, shared), y_grid
        x = walk.value(self.activations[0])
        if scheme.activations is not None:
            row = () if scheme.activations in dtypes.FLOAT else self.row()
            x = quantize_rows(x, axes=row) if row else x
            x = spanned(x, scheme.activations) if scheme.activations in dtypes.FLOAT else x
        if scheme.weights is not None:
            w, scale = self.stored(walk, w)
            if scheme.weights in dtypes.INTEGER:
                self._check_finite("weights", scale, w)
            w = quantize_weight(w, scale, dtype=scheme.weights)
        return self._finished(self.plain(x, w), b), None

    def stored_beside(self, values: Values, w: Any, grids: tuple[Grid, Grid] | None) -> tuple[Any, Any]:
        moved, scale = self._rounded(values, wrap(w))
        if grids is not None:
            _, b = self._folded(values, moved, self.bias_shape)
            scale, _ = self.fitting(moved, scale, self._corrected(values, b), *grids)
        return moved.numpy(), scale.numpy()

    def folded_weights(self, values: Values) -> Array:
        """The weights with all steps in them, before they are stored."""
        return self._folded(values, values.value(self.weight), self.bias_shape)[0]

    def in_float(self, values: Values, x: Array, w: Array) -> Array:
        """The group's result for its operand ``x`` and weights ``w`` with all steps in them."""
        b = self._folded(values, w, self.bias_shape)[1]
        return self._finished(self.plain(x, w), self._corrected(values, b))

    def mean_error(self, x: Array, stored: Array, exact: Values, w: Array) -> tuple[Array, Array]:
        """How much the product of stored weights is above the float one, per channel: the mean, its squared error.

        Args:
            x: the operand of the stored weights.
            stored: the values of the stored weights.
            exact: all in float.
            w: the float weights, with all steps in them.
        """
        error = sub(self.plain(x, stored), self.plain(exact.value(self.activations[0]), w))
        axes = tuple(a for a in range(error.ndim) if a not in self.channels)
        count = builtins.max(math.prod(error.shape[a] for a in axes), 1)
        over = lambda x, n: mul(reduce_sum(x, axes=axes), constant(1 / n, dtypes.float32, self.bias_shape))
        mean = over(error, count)
        rest = sub(error, broadcast_in_dim(mean, shape=error.shape, broadcast_dimensions=self.channels))
        # Of one row alone nothing is known: as if it were 0.
        return mean, over(mul(rest, rest), count * builtins.max(count - 1, 1))

    def stored_values(self, values: Values, w: Array) -> Array:
        """What weights ``w``, with all steps in them, are as they are stored."""
        assert self.scheme.weights is not None
        return quantize_weight(*self.stored(values, w), dtype=self.scheme.weights)

    def _corrected(self, values: Values, b: Array | None) -> Array | None:
        """The bias with the correction that calibration found."""
        shift = values.correction(self)
        return b if shift is None else shift if b is None else add(b, shift)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """One entry per output channel."""
        return tuple(self.product.outputs[0].type.shape[d] for d in self.channels)

    def _check_finite(self, what: str, shows: Array | None, x: Array | None) -> None:
        """Refuse numbers that have no integer, as far as they are known; ``shows`` is not finite where x is not."""
        if not isinstance(shows, DeviceArray) or np.isfinite(shows.numpy()).all() or not isinstance(x, DeviceArray):
            return
        value = x.numpy()
        place = tuple(map(int, np.argwhere(~np.isfinite(value))[0]))
        raise ParameterError(
            f"quantize: the {what} of {self.product.op.name} have no integer",
            got=f"{value[place]} at {place} of {x.type}",
            expected="finite numbers",
            fix="look for what made them: training that diverged, or a file read with the wrong dtype",
            source=self.product.source,
        )

    @property
    def changes_weights(self) -> bool:
        return any(step.op in ("mul", "div") for step in self.steps)

    def _scale(self, w: Array) -> Array:
        assert self.scheme.weights is not None
        summed = self.summed()
        axes = summed if self.per_channel else tuple(range(w.ndim))
        group = None if self.scheme.integer else self.scheme.group
        return weight_scale(w, axes, self.scheme.weights, group, self.grouped())

    def grouped(self) -> Axes:
        """The dimensions of the weights that are summed over, first the one that is cut into groups."""
        return self.summed()

    @property
    @abstractmethod
    def per_channel(self) -> bool:
        """Whether each output channel has a scale of its own."""

    @abstractmethod
    def row(self) -> Axes:
        """The dimensions of the activation that one int8 scale spans where it has the ranges of each call, or none."""

    @abstractmethod
    def integer(self, x: Array, w: Array, scale: Array, b: Array, shared: dict[str, Any]) -> Array:
        """The quantized product."""

    @abstractmethod
    def plain(self, x: Array, w: Array) -> Array:
        """The float product."""

    @property
    @abstractmethod
    def weight_channels(self) -> Axes:
        """The dimensions of the weights that the output channels are, in the order of ``channels``."""

    def over_weights(self, row: Array, w: Array) -> Array:
        """A value per channel, over the weights."""
        return broadcast_in_dim(row, shape=w.shape, broadcast_dimensions=self.weight_channels)

    def fitting(
        self, w: Array, scale: Array, b: Array | None, x_grid: Grid, y_grid: Grid
    ) -> tuple[Array, Array | None]:
        """Scales and bias with which no sum leaves its accumulator."""
        assert self.scheme.weights is not None
        return fitting(w, scale, b, x_grid, y_grid, self.scheme.weights, self.summed(), self.weight_channels)

    def _finished(self, y: Array, b: Array | None) -> Array:
        if b is not None:
            y = add(y, broadcast_in_dim(b, shape=y.shape, broadcast_dimensions=self.channels))
        if self.clamp.low is not None:
            y = max(y, like(y, self.clamp.low))
        if self.clamp.high is not None:
            y = min(y, like(y, self.clamp.high))
        return y

    def _folded(self, walk: Values, w: Array, shape: tuple[int, ...]) -> tuple[Array, Array | None]:
        """Weights and bias with all steps in them."""
        scale: Array | None = None
        b: Array | None = None
        for step in self.steps:
            row = self._row(walk.value(step.operand), step.dims, shape)
            if step.op in ("add", "sub"):
                row = neg(row) if step.op == "sub" else row
                b = row if b is None else add(b, row)
                continue
            operation = mul if step.op == "mul" else div
            scale = operation(like(row, 1) if scale is None else scale, row)
            b = None if b is None else operation(b, row)
        return (w if scale is None else mul(w, self.over_weights(scale, w))), b

    def _row(self, value: Array, dims: Axes, shape: tuple[int, ...]) -> Array:
        """The operand of a step as one value per channel; ``dims`` are the dimensions it lies in."""
        places = tuple(self.channels.index(d) for d in dims)
        kept = tuple(shape[i] for i in places)
        row = value if value.shape == kept else reshape(value, shape=kept)
        return broadcast_in_dim(row, shape=shape, broadcast_dimensions=places)


@final
@dataclass(eq=False)
class QuantConv(Weighted):
    """Convolution with constant weights."""

    @property
    def per_channel(self) -> bool:
        return self.scheme.per_channel

    def _params(self) -> dict[str, Any]:
        left = ("batch_group_count", "precision", "preferred_element_type")
        return {k: v for k, v in self.product.params.items() if k not in left}

    def integer(self, x: Array, w: Array, scale: Array, b: Array, shared: dict[str, Any]) -> Array:
        return qconv(x, w, scale, b, **self._params(), **shared)

    def row(self) -> Axes:
        _, features, *window = self.product.params["dimension_numbers"].lhs_spec
        if self.product.params["feature_group_count"] == self.product.inputs[0].type.shape[features] > 1:
            # Channels that share no sum share no scale: the small ones would lose everything.
            return ()
        return tuple(sorted((features, *window)))

    def plain(self, x: Array, w: Array) -> Array:
        return conv_general_dilated(x, w, **self.product.params)

    @property
    def weight_channels(self) -> Axes:
        return (self.product.params["dimension_numbers"].rhs_spec[0],)

    def summed(self) -> Axes:
        return tuple(sorted(self.grouped()))

    def grouped(self) -> Axes:
        # Input channels, whatever the layout.
        return self.product.params["dimension_numbers"].rhs_spec[1:]


@final
@dataclass(eq=False)
class Dot(Weighted):
    """Product of an activation with constant weights, which are the second operand unless ``swapped``."""

    swapped: bool

    @property
    def per_channel(self) -> bool:
        return self.scheme.dense_per_channel

    def _numbers(self) -> Any:
        (xc, wc), (xb, wb) = self.product.params["dimension_numbers"]
        return ((wc, xc), (wb, xb)) if self.swapped else ((xc, wc), (xb, wb))

    def input_axes(self) -> Axes:
        """The dimensions of the activation that are summed over, in the order of the weights'."""
        return self._numbers()[0][0]

    def summed_in_order(self) -> Axes:
        """The dimensions of the weights that are summed over, in the order of `input_axes`."""
        return self._numbers()[0][1]

    def shared(self) -> tuple[Axes, Axes]:
        """The dimensions of the activation and of the weights that are no sum, but go along with each other."""
        return self._numbers()[1]

    def _back(self, y: Array, x: Array, w: Array) -> Array:
        """The result in the order of the original product: batch, first operand's dimensions, second's."""
        if not self.swapped:
            return y
        (xc, wc), (xb, wb) = self._numbers()
        n, rows, columns = len(xb), len(free(x.ndim, xc, xb)), len(free(w.ndim, wc, wb))
        order = (*range(n), *range(n + rows, n + rows + columns), *range(n, n + rows))
        return transpose(y, permutation=order) if order != tuple(range(y.ndim)) else y

    def integer(self, x: Array, w: Array, scale: Array, b: Array, shared: dict[str, Any]) -> Array:
        return self._back(qdot(x, w, scale, b, dimension_numbers=self._numbers(), **shared), x, w)

    def row(self) -> Axes:
        return tuple(sorted(self.input_axes()))

    def plain(self, x: Array, w: Array) -> Array:
        return self._back(dot_general(x, w, dimension_numbers=self._numbers()), x, w)

    @property
    def weight_channels(self) -> Axes:
        (_, wc), (_, wb) = self._numbers()
        return (*wb, *free(len(self.weight.type.shape), wc, wb))

    def summed(self) -> Axes:
        return tuple(sorted(self._numbers()[0][1]))


@final
@dataclass(eq=False)
class QuantMatmul(FusedGroup):
    """Product of two activations."""

    clamp: FusedClamp

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        x, y = self.activations
        numbers = self.equations[0].params["dimension_numbers"]
        if not self.scheme.integer:
            assert self.scheme.activations is not None
            left, right = (spanned(walk.value(a), self.scheme.activations) for a in (x, y))
            return dot_general(left, right, dimension_numbers=numbers), None
        (left, x_grid), (right, y_grid) = walk.on_grid(x, self.dtype), walk.on_grid(y, self.dtype)
        out = walk.result_grid(self.output, self.dtype)
        lo, hi = self.clamp.stored(out)
        depth = math.prod(left.shape[a] for a in numbers[0][0])
        rounding = self.scheme.rounding
        make = partial(qmatmul, left, right, x_grid=x_grid, y_grid=y_grid, rounding=rounding, dimension_numbers=numbers)
        return saturated(make, *product_size(x_grid, y_grid, depth), out, lo, hi, rounding), out


def spanned(x: Array, dtype: DType) -> Array:
    """An activation in a float8, scaled by its own largest value."""
    return quantize_weight(x, weight_scale(x, tuple(range(x.ndim)), dtype, None, ()), dtype=dtype)


# --- matching ---


def channel_step(view: WeightView, e: Equation, y: Var, channels: Axes) -> ChannelStep | None:
    """``e`` as a step per channel on ``y``, if it is one."""
    other = view.other(e, y)
    if other is None or not view.is_weight(other) or (e.op.name in ("sub", "div") and e.inputs[0] is not y):
        return None
    if not isinstance(other, Var):
        return ChannelStep(e.op.name, other, ())
    inner: Atom = other
    dims: Axes = tuple(range(other.type.ndim))
    source = view.made_by(other, "broadcast_in_dim")
    if source is not None:
        inner, dims = source.inputs[0], source.params["broadcast_dimensions"]
    kept = tuple(d for d, n in zip(dims, inner.type.shape, strict=True) if n > 1)
    return ChannelStep(e.op.name, inner, kept) if set(kept) <= set(channels) else None


def match_clamp(view: WeightView, e: Equation, y: Var) -> FusedClamp | None:
    """The bounds that ``e`` puts on ``y``, if it is a relu-like op."""
    bounds = _CLAMPING.get(e.op.name)
    return None if bounds is None else bounds(view, e, y)


def _bound(view: WeightView, e: Equation, y: Var) -> float | None:
    other = view.other(e, y)
    return None if other is None else view.number(other)


def _at_least(view: WeightView, e: Equation, y: Var) -> FusedClamp | None:
    low = _bound(view, e, y)
    return None if low is None else FusedClamp(low, None)


def _at_most(view: WeightView, e: Equation, y: Var) -> FusedClamp | None:
    high = _bound(view, e, y)
    return None if high is None else FusedClamp(None, high)


def _within(view: WeightView, e: Equation, y: Var) -> FusedClamp | None:
    low, high = view.number(e.inputs[0]), view.number(e.inputs[2])
    return None if low is None or high is None or e.inputs[1] is not y else FusedClamp(low, high)


_CLAMPING: Final[dict[str, Callable[[WeightView, Equation, Var], FusedClamp | None]]] = {
    "relu": lambda view, e, y: FusedClamp(0.0, None),
    "relu6": lambda view, e, y: FusedClamp(0.0, 6.0),
    "max": _at_least,
    "min": _at_most,
    "clamp": _within,
}


def match_epilogue(
    view: WeightView, e: Equation, channels: Axes | None
) -> tuple[tuple[Equation, ...], tuple[ChannelStep, ...], FusedClamp]:
    """The chain after ``e`` that its group takes in: steps per channel, then a relu-like function."""
    chain, steps, clamp = [e], list[ChannelStep](), FusedClamp()
    while (user := view.only_user(chain[-1].outputs[0])) is not None:
        y = chain[-1].outputs[0]
        if channels is not None and clamp == FusedClamp() and user.op.name in AFFINE:
            step = channel_step(view, user, y, channels)
            if step is None:
                break
            steps.append(step)
        else:
            bound = match_clamp(view, user, y)
            if bound is None:
                break
            clamp = clamp.within(bound.low, bound.high)
        chain.append(user)
    return tuple(chain), tuple(steps), clamp


def match_product(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    """The group that begins with ``e``, if it is a product that the scheme covers."""
    match = _MATCHES.get(e.op.name)
    return None if match is None or too_deep(e, scheme) else match(view, e, scheme)


def too_deep(e: Equation, scheme: Scheme) -> bool:
    """Whether a product sums more elements than integer accumulators hold with any scale of its weights."""
    return is_product(e) and scheme.integer and not holds_weighted(scheme.activations or dtypes.int8, _depth(e))


def _depth(e: Equation) -> int:
    """How many products each element of a contraction sums."""
    x, w = (a.type for a in e.inputs[:2])
    if isinstance(e.op, DotGeneral):
        return math.prod(x.shape[i] for i in e.params["dimension_numbers"][0][0])
    if isinstance(e.op, ConvGeneralDilated):
        return w.size // builtins.max(w.shape[e.params["dimension_numbers"].rhs_spec[0]], 1)
    return 0


def _match_conv(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    x, w = e.inputs
    if not (view.is_float(x) and view.is_float(w) and view.is_weight(w)) or view.is_weight(x):
        return None
    if e.params["batch_group_count"] != 1 or not view.is_float(e.outputs[0]):
        return None
    channels = (e.params["dimension_numbers"].out_spec[1],)
    chain, steps, clamp = match_epilogue(view, e, channels)
    return QuantConv(chain, (x,), chain[-1].outputs[0], scheme, w, channels, steps, clamp)


def _match_dot(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    x, y = e.inputs
    if not (view.is_float(x) and view.is_float(y) and view.is_float(e.outputs[0])):
        return None
    first, second = view.is_weight(x), view.is_weight(y)
    (xc, _), (xb, _) = e.params["dimension_numbers"]
    if first and second:
        return None
    if not first and not second:
        depth = math.prod(x.type.shape[a] for a in xc)
        if scheme.activations is None or (scheme.integer and not holds(scheme.activations, depth)):
            return None
        if scheme.dynamic and scheme.activations not in dtypes.FLOAT:
            # Runtimes bring only the operand of stored weights to 8 bits as they go.
            return None
        chain, _, clamp = match_epilogue(view, e, None) if scheme.integer else ((e,), (), FusedClamp())
        return QuantMatmul(chain, (x, y), chain[-1].outputs[0], scheme, clamp)
    n = len(xb)
    rows = len(free(x.type.ndim, xc, xb))
    if second:
        channels = (*range(n), *range(n + rows, e.outputs[0].type.ndim))
    else:
        channels = (*range(n), *range(n, n + rows))
    chain, steps, clamp = match_epilogue(view, e, channels)
    activation, weight = (y, x) if first else (x, y)
    return Dot(chain, (activation,), chain[-1].outputs[0], scheme, weight, channels, steps, clamp, first)


_MATCHES: Final = {"conv_general_dilated": _match_conv, "dot_general": _match_dot}


def is_product(e: Equation) -> bool:
    return isinstance(e.op, Contraction)


def macs(group: Any) -> int:
    """Multiply-accumulates of a group's product; 0 for other groups."""
    e = group.equations[0]
    out = e.outputs[0].type.size
    if isinstance(group, QuantConv):
        w, spec = e.inputs[1].type, e.params["dimension_numbers"].rhs_spec
        return out * (w.size // w.shape[spec[0]])
    if isinstance(group, (Dot, QuantMatmul)):
        (xc, _), _ = e.params["dimension_numbers"]
        return out * math.prod(e.inputs[0].type.shape[i] for i in xc)
    return 0
