"""Rules of the quantized ops: one node each, on the grids that the op names.

Weights are stored as the op stores them, so that the integer graph computes the program's bits. A clamp that is a
relu of the grid becomes the node's activation; any other clamp becomes a maximum and a minimum behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from nxjax.errors import ParameterError
from nxjax.lower.npu.blocks import WeightBlocks
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.rules.convolution import Convolution, convolved
from nxjax.lower.npu.rules.products import connected, matmul
from nxjax.lower.npu.rules.reduce import last_axis, reduced
from nxjax.lower.npu.rules.window import box_of, pooled
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import quantize_weight, weight_integers
from nxjax.ops.quant_elementwise import qunary
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_products import stored_bias
from nxjax.ops.quant_traced import symmetric_limit
from nxjax.ops.rounding import TO_NEAREST_EVEN
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

# Functions that are nodes of their own; the others of eight bits are tables.
NODES: Final = frozenset(
    (
        "logistic", "tanh", "hard_swish", "leaky_relu", "elu", "gelu", "exp", "log", "sqrt", "rsqrt", "abs", "neg",
        "square", "sin", "cos", "floor", "ceil", "round", "sign", "erf",
    )
)  # fmt: skip
# A product with weights of its own for every element of a batch is written as so many layers at most.
LAYERS: Final = 64


def activation_of(grid: Grid, lo: int, hi: int) -> str | None:
    """The activation whose clamp on ``grid`` is [lo, hi] (TFLite, CalculateActivationRangeQuantized); "" if none is.

    >>> activation_of(Grid(np.dtype("int8"), 0.1, 0), 0, 60)
    'relu6'
    """
    low, high = grid.limits
    if (lo, hi) == (low, high):
        return None
    at = lambda v: int(grid.quantize(np.asarray(v, np.float32)))
    ranges = {"relu": (at(0), high), "relu6": (at(0), at(6)), "relu_n1_to_1": (at(-1), at(1))}
    return next((name for name, pair in ranges.items() if pair == (lo, hi)), "")


def _clamped(b: GraphBuilder, y: LogicalTensor, grid: Grid, lo: int, hi: int) -> LogicalTensor:
    """A clamp that no activation is, in stored integers."""
    low, high = grid.limits
    for node, bound, end in (("maximum", lo, low), ("minimum", hi, high)):
        if bound != end:
            limit = LogicalTensor(y.shape, data=np.full((1,) * y.ndim, bound).astype(grid.dtype), grid=grid)
            y = b.elementwise(node, [y, limit], grid)
    return y


def _with_clamp(
    b: GraphBuilder, grid: Grid, make: Callable[[str | None], LogicalTensor], *, lo: int, hi: int, **_: Any
) -> LogicalTensor:
    """``make(activation)`` and what of the clamp it does not do."""
    activation = activation_of(grid, lo, hi)
    if activation == "":
        return _clamped(b, make(None), grid, lo, hi)
    return make(activation)


def _on_grids(rule: Rule) -> Rule:
    """A rule whose operands come on the grids that the op names, ``grid`` being that of the result."""

    def noted(
        b: GraphBuilder,
        out: ArrayType,
        *xs: LogicalTensor,
        x_grid: Grid,
        y_grid: Grid,
        out_grid: Grid | None = None,
        **params: Any,
    ) -> LogicalTensor:
        b.roundings.add(params["rounding"])
        grids = (x_grid,) if out_grid is None else (x_grid, y_grid)
        on = [b.on(x, grid) for x, grid in zip(xs, grids)]
        return rule(b, out, *on, *xs[len(on) :], grid=out_grid or y_grid, **params)

    return noted


def _scales(w_scale: NDArray, dtype: DType, axis: int) -> Grid:
    """The grid of weights with one scale per slice of ``axis``, or one for all."""
    scales = np.asarray(w_scale, np.float32).reshape(-1)
    if scales.size == 1:
        return Grid(dtype, float(scales[0]))
    return Grid(dtype, tuple(map(float, scales)), 0, axis)


def _known(x: LogicalTensor, what: str) -> NDArray:
    """A constant operand in full."""
    known = x.known
    if known is None:
        raise Unsupported(
            f"{what} are not constant",
            "pass the parameters as constants: nx.compile(f, constants=(0,), ...) or functools.partial(f, params)",
            mistake=True,
        )
    value = np.asarray(known.full)
    if not np.isfinite(value).all():
        raise ParameterError(
            f"quantize: {what} have no integer",
            got=f"NaN or infinity in f32{list(value.shape)}",
            expected="finite numbers",
        )
    return value


def _bias(b: GraphBuilder, bias: NDArray, x_grid: Grid | None, w_scale: NDArray, w_grid: Grid) -> LogicalTensor | None:
    """The bias as accumulators hold it, with one scale where the weights have one; None if it is zero."""
    assert x_grid is not None
    scale = np.broadcast_to(np.asarray(w_scale, np.float32).reshape(-1), bias.shape)
    stored = stored_bias(bias, x_grid, scale)
    if not stored.any():
        return None
    dtype = dtypes.int64 if x_grid.dtype == dtypes.int16 else dtypes.int32
    product = np.float32(cast(float, x_grid.scale)) * scale
    product = np.maximum(product, np.finfo(np.float32).tiny)
    return b.constant(stored.astype(dtype), grid=_scales(product[:1] if w_grid.axis is None else product, dtype, 0))


def _qconv(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, w: LogicalTensor, w_scale: LogicalTensor, bias: LogicalTensor,
    *, grid: Grid, lo: int, hi: int, w_dtype: DType, rounding: Rounding, dimension_numbers: Any, **window: Any,
) -> LogicalTensor:  # fmt: skip
    floats, scale = _known(w, "the weights"), _known(w_scale, "the scales of the weights")
    o = dimension_numbers.rhs_spec[0]
    channels = np.broadcast_to(scale.reshape(-1), (floats.shape[o],))
    w_grid = _scales(scale, w_dtype, o)
    weights = b.constant(weight_integers(floats, scale, w_dtype), grid=w_grid)
    stored = _bias(b, _known(bias, "the biases"), x.grid, channels, w_grid)
    how = Convolution(**window, kind=grid, bias=stored)
    make = lambda a: convolved(b, x, weights, replace(how, activation=a), dimension_numbers)
    return _with_clamp(b, grid, make, lo=lo, hi=hi)


def _qdot(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, w: LogicalTensor, w_scale: LogicalTensor, bias: LogicalTensor,
    *, grid: Grid, w_dtype: DType, dimension_numbers: Any, **clamp: Any,
) -> LogicalTensor:  # fmt: skip
    if dimension_numbers[1][1]:
        shared = {"grid": grid, "w_dtype": w_dtype, **clamp}
        return _layers(b, out, x, w, w_scale, bias, dimension_numbers, shared)
    (xc, wc), _ = dimension_numbers
    floats, scale = _known(w, "the weights"), _known(w_scale, "the scales of the weights")
    wf = tuple(i for i in range(w.ndim) if i not in wc)
    stored = weight_integers(floats, scale, w_dtype)
    columns = math.prod(w.shape[i] for i in wf)
    # [o, i] before the scales are put on, since they may lie in several free dimensions.
    order = sorted(range(len(xc)), key=xc.__getitem__)
    flat = stored.transpose(*wf, *(wc[i] for i in order)).reshape(columns, -1)
    rows = scale.transpose(*wf, *wc).reshape([scale.shape[i] for i in wf])
    channels = np.broadcast_to(rows, [w.shape[i] for i in wf]).reshape(-1)
    w_grid = _scales(rows if rows.size == 1 else channels, w_dtype, 0)
    weights = b.constant(flat, grid=w_grid)
    stored_b = _bias(b, _known(bias, "the biases").reshape(-1), x.grid, channels, w_grid)
    xf = tuple(i for i in range(x.ndim) if i not in xc)
    depth = math.prod(x.shape[i] for i in xc)
    moved = b.transpose(x, (*xf, *(xc[i] for i in order)))
    moved = b.reshape(moved, (*(x.shape[i] for i in xf), depth))
    axis = moved.ndim - 1
    make = lambda a: connected(b, moved, weights, (axis,), (1,), grid, stored_b, a)
    return b.reshape(_with_clamp(b, grid, make, **clamp), out.shape)


def _layers(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    w: LogicalTensor,
    w_scale: LogicalTensor,
    bias: LogicalTensor,
    numbers: Any,
    params: dict[str, Any],
) -> LogicalTensor:
    """A product whose batch elements have weights of their own: one layer for each."""
    (xc, wc), (xb, wb) = numbers
    batch = tuple(x.shape[a] for a in xb)
    count = math.prod(batch)
    if count > LAYERS:
        raise Unsupported(
            f"each of {count} elements of the batch has weights of its own", "share them, or compile smaller batches"
        )
    floats, scale = _known(w, "the weights"), _known(w_scale, "the scales of the weights")
    biases = _known(bias, "the biases")
    left = lambda axes, gone, ndim: tuple([i for i in range(ndim) if i not in gone].index(a) for a in axes)
    inner = ((left(xc, xb, x.ndim), left(wc, wb, w.ndim)), ((), ()))
    shape = out.shape[len(batch) :]
    parts: list[LogicalTensor] = []
    for at in np.ndindex(batch):
        begin, end = [0] * x.ndim, list(x.shape)
        for a, i in zip(xb, at, strict=True):
            begin[a], end[a] = i, i + 1
        row = b.reshape(b.slice(x, begin, end), tuple(n for a, n in enumerate(x.shape) if a not in xb))
        own = (_element(floats, wb, at), _element(scale, wb, at), biases[at])
        made = _qdot(b, ArrayType(shape, out.dtype), row, *map(b.constant, own), **params, dimension_numbers=inner)
        parts.append(b.reshape(made, (1, *shape)))
    return b.reshape(b.concatenate(parts, 0), out.shape)


def _element(data: NDArray, axes: Shape, at: Shape) -> NDArray:
    """``data`` at one place along ``axes``, without them; size 1 stands for any."""
    places = [slice(None)] * data.ndim
    for a, i in zip(axes, at, strict=True):
        places[a] = slice(i, i + 1) if data.shape[a] > 1 else slice(0, 1)
    return data[tuple(places)].reshape([n for a, n in enumerate(data.shape) if a not in axes])


def _qmatmul(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    y: LogicalTensor,
    *,
    grid: Grid,
    lo: int,
    hi: int,
    dimension_numbers: Any,
    **_: Any,
) -> LogicalTensor:
    return _clamped(b, matmul(b, x, y, dimension_numbers, grid), grid, lo, hi)


def _binary(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, *xs: LogicalTensor, grid: Grid, **clamp: Any) -> LogicalTensor:
        return _with_clamp(b, grid, lambda a: b.elementwise(node, xs, grid, activation=a), **clamp)

    return rule


def _requantize(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, *, grid: Grid, lo: int, hi: int, **_: Any
) -> LogicalTensor:
    activation = activation_of(grid, lo, hi)
    # Alone, this one has no kernel of 16 bits; as a part of other nodes it has.
    alone = activation if (activation, grid.dtype) != ("relu_n1_to_1", dtypes.int16) else ""
    if alone:
        return b.elementwise(alone, [x], grid)
    y = x if x.grid == grid else b.elementwise("quantize", [x], grid)
    return _clamped(b, y, grid, lo, hi) if alone == "" else y


def _weight(
    b: GraphBuilder, out: ArrayType, w: LogicalTensor, scale: LogicalTensor, dtype: DType
) -> LogicalTensor | None:
    """Stored integers with their grid, or in blocks; floats of float8; ops where they are computed."""
    if w.known is None or scale.known is None:
        return _computed_weight(b, w, scale, dtype)
    floats, scales = _known(w, "the weights"), _known(scale, "the scales of the weights")
    busy = [i for i, n in enumerate(scales.shape) if n > 1]
    integers = dtype in (dtypes.int4, dtypes.int8)
    if not integers or len(busy) > 1 or any(scales.shape[i] != floats.shape[i] for i in busy):
        data = quantize_weight.eval(floats, scales, dtype=dtype)
        return LogicalTensor(data.shape, data=data, blocks=WeightBlocks(scales, dtype) if integers else None)
    stored = weight_integers(floats, scales, dtype)
    return b.constant(stored, grid=_scales(scales, dtype, busy[0] if busy else 0))


def _computed_weight(b: GraphBuilder, w: LogicalTensor, scale: LogicalTensor, dtype: DType) -> LogicalTensor | None:
    """What is put on a grid whose scale is computed: rint(w / scale) * scale, in floats."""
    w, scale = b.real(w), b.real(scale)
    if dtype not in (dtypes.int4, dtypes.int8):
        raise Unsupported(
            f"values are not brought to {dtypes.short_name(dtype)} while an NPU graph runs",
            "quantize with 'int8' or 'int16x8'; or weights alone, with Scheme(activations=None)",
        )
    if any(k not in (1, n) for k, n in zip(scale.shape, w.shape)):
        return None
    spread = LogicalTensor(w.shape, scale.tensor, scale.data)
    last = symmetric_limit(dtype)
    y = b.elementwise("div", [w, spread], w.dtype, activation=None)
    y = b.elementwise("round", [y], w.dtype)
    y = b.elementwise("maximum", [y, b.fill(w.shape, -last, w.dtype)], w.dtype)
    y = b.elementwise("minimum", [y, b.fill(w.shape, last, w.dtype)], w.dtype)
    return b.elementwise("mul", [y, spread], w.dtype, activation=None)


def _unary(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    *,
    function: str,
    grid: Grid,
    rounding: Rounding,
    parameters: Any = (),
) -> LogicalTensor:
    settings = dict(parameters)
    # The node rounds halves to even; other ways are tables.
    usual = settings.pop("rounding_method", TO_NEAREST_EVEN) == TO_NEAREST_EVEN
    if function in NODES and usual:
        return b.elementwise(function, [x], grid, **settings)
    assert x.grid is not None
    if x.grid.dtype != dtypes.int8:
        raise Unsupported(f"{function} of {dtypes.short_name(x.grid.dtype)} has no NPU instruction", "use int8 for it")
    low, high = x.grid.limits
    every = np.arange(low, high + 1).astype(x.grid.dtype)
    params: dict[str, Any] = {"function": function, "x_grid": x.grid, "y_grid": grid, "rounding": rounding}
    values = tuple(int(v) for v in qunary.exact(every, **params, parameters=tuple(parameters)))
    return b.elementwise("table", [x], grid, function=function, values=values)


def _reduction(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, *, axes: Shape, grid: Grid, **_: Any) -> LogicalTensor:
        if all(x.shape[a] == 1 for a in axes) and x.grid != grid:
            # Nothing to add up, but the grid changes; any axis of size 1 will do.
            shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
            return b.emit(node, [x], shape, grid, axes=tuple(axes), keepdims=False)
        return b.reshape(reduced(b, node, x, axes, grid), out.shape)

    return rule


def _avgpool(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    *,
    grid: Grid,
    window_dimensions: Shape,
    window_strides: Shape,
    padding: Any,
) -> LogicalTensor:
    box = box_of(x, window_dimensions, window_strides, padding)
    if len(box.busy) > 2:
        raise Unsupported(
            "an average over three dimensions is rounded once, which no NPU instruction does", "pool in two steps"
        )
    return pooled(b, "average_pool_2d", b.on(x, grid), box, grid)


_ROWS: Final[dict[str, Rule]] = {
    "requantize": _requantize,
    "qconv": _qconv,
    "qdot": _qdot,
    "qmatmul": _qmatmul,
    **{f"q{node}": _binary(node) for node in ("add", "sub", "mul")},
    "qprelu": lambda b, out, *xs, grid, **_: b.elementwise("prelu", xs, grid),
    "qunary": _unary,
    "qsoftmax": lambda b, out, x, *, axis, grid, **_: last_axis(b, "softmax", x, axis, grid, beta=1.0),
    "qmean": _reduction("mean"),
    "qsum": _reduction("sum"),
}
RULES: Final[dict[str, Rule]] = {
    "quantize_dequantize": lambda b, out, x, grid: b.on(x, grid),
    "quantize_weight": _weight,
    "quantize_rows": lambda b, out, x, axes: b.emit("quantize_rows", [b.real(x)], out.shape, out.dtype, axes=axes),
    "qavgpool": _avgpool,
    **{op: _on_grids(rule) for op, rule in _ROWS.items()},
}
