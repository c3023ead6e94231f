"""What a graph means: every op of the vocabulary in NumPy. The oracle that devices and vendors are held against.

Tensors on a grid are computed in integers by `nxjax.ops.fixed`, bit for bit as LiteRT's reference kernels do; an op for
which TFLite has no integer kernel is a float32 op between DEQUANTIZE and QUANTIZE. Floats are computed in their dtype.
Knows no file format and no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import DtypeError, ProgramError, ShapeError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import conv_dimension_numbers
from nxjax.ops.fixed import elementwise, functions, product, reduce, resize, softmax
from nxjax.ops.fixed.product import Kind
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes


def interpret(graph: NpuGraph, inputs: Sequence[NDArray]) -> list[NDArray]:
    """The results of ``graph``, in order, each in its tensor's storage dtype and shape.

    Args:
        graph: any graph of the vocabulary.
        inputs: one array per graph input, in its storage dtype (integers for a tensor on a grid) and shape.

    Raises:
        ShapeError, DtypeError: an input that is not of its tensor's type.
        ProgramError: a node that no kernel computes, such as a concatenation of operands on different grids; an index
            out of range.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> x, y = Tensor("x", (3,), "int8", g), Tensor("y", (3,), "int8", g)
    >>> graph = NpuGraph("abs", [x], [y], [Node("abs", (x,), (y,))])
    >>> interpret(graph, [np.int8([-3, 0, 5])])[0].tolist()
    [3, 0, 5]
    """
    values = interpret_all(graph, inputs)
    return [values[t] for t in graph.outputs]


def interpret_all(graph: NpuGraph, inputs: Sequence[NDArray]) -> dict[Tensor, NDArray]:
    """The value of every tensor of ``graph``; arguments and errors as of `interpret`."""
    if len(inputs) != len(graph.inputs):
        raise ShapeError("interpret: number of inputs", got=len(inputs), expected=len(graph.inputs))
    values: dict[Tensor, NDArray] = {}
    for t, x in zip(graph.inputs, inputs, strict=True):
        if x.shape != t.shape:
            raise ShapeError(f"interpret: input {t.name!r} has another shape", got=x.shape, expected=t.shape)
        if x.dtype != t.dtype:
            raise DtypeError(f"interpret: input {t.name!r} has another dtype", got=x.dtype, expected=t.dtype)
        values[t] = x
    for t in graph.constants():
        assert t.data is not None
        values[t] = t.data
    for node in graph.nodes:
        run = _Run(node, graph.rounding)
        # Infinities and what becomes of them are results like others.
        with np.errstate(all="ignore"):
            results = run(*(None if t is None else values[t] for t in node.inputs))
        for t, y in zip(node.outputs, results, strict=True):
            if y.shape != t.shape:
                raise ProgramError(
                    f"interpret: {node.op} makes another shape than {t.name!r} has",
                    got=y.shape,
                    expected=t.shape,
                    source=node.source,
                )
            values[t] = y.astype(t.dtype, copy=False)
    return values


Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}


def _rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, rule))
        return rule

    return register


@final
class _Run:
    """One node being computed: what its rule asks about it."""

    def __init__(self, node: Node, rounding: Rounding) -> None:
        self.node = node
        self.op = node.op
        self.attrs = node.attrs
        self.rounding: Rounding = rounding
        self.out = node.output
        self.grids = [None if t is None else t.grid for t in node.inputs]

    def __call__(self, *xs: NDArray | None) -> list[NDArray]:
        rule = _RULES.get(self.op)
        if rule is None:
            raise self.refuse("an op that is not in the vocabulary")
        y = rule(self, *xs)
        return list(y) if isinstance(y, (list, tuple)) else [np.asarray(y)]

    def refuse(self, why: str, got: object = None) -> ProgramError:
        return ProgramError(f"interpret: {self.op}: {why}", got=got, source=self.node.source)

    @property
    def integers(self) -> bool:
        """Whether all operands and the result are on grids; only some of them is a mistake."""
        on = [g is not None for g, t in zip(self.grids, self.node.inputs, strict=True) if t is not None]
        on.append(self.out.grid is not None)
        if any(on) and not all(on):
            raise self.refuse("some operands are on grids and some are not", str(self.node.op))
        return all(on)

    @property
    def grid(self) -> Grid:
        """The grid of the result."""
        assert self.out.grid is not None
        return self.out.grid

    def of(self, i: int) -> Grid:
        """The grid of operand ``i``."""
        grid = self.grids[i]
        assert grid is not None
        return grid

    def same_grids(self, *operands: int) -> None:
        """Refuse operands or results that are on different grids: the op moves stored values as they are."""
        found = {self.grids[i] for i in operands} | {t.grid for t in self.node.outputs}
        if len(found) > 1:
            raise self.refuse("operands and results are not on one grid", ", ".join(map(str, found)))

    def clamp(self, activation: str | None) -> tuple[int, int]:
        """The stored integers of the result between which ``activation`` lets through."""
        low, high = self.grid.limits
        if activation is None:
            return low, high
        ends = _ENDS[activation]
        scale = elementwise.scale_of(self.grid)
        stored = [None if v is None else float(functions.round_away(np.float32(v) / scale)) for v in ends]
        zero = self.grid.zero_point
        below = low if stored[0] is None else max(low, zero + int(max(stored[0], -(2.0**40))))
        above = high if stored[1] is None else min(high, zero + int(min(stored[1], 2.0**40)))
        return below, above

    def activated(self, y: NDArray) -> NDArray:
        """A float result under the fused activation."""
        activation = self.attrs.get("activation")
        return y if activation is None else _real_relu(activation, y)

    def by_floats(self, function: Callable[..., NDArray], *xs: NDArray) -> NDArray:
        """``function`` of the real values, in float32, put on the grid of the result if it has one."""
        real = [x if g is None else g.dequantize(x) for x, g in zip(xs, self.grids, strict=False)]
        with np.errstate(all="ignore"):
            y = np.asarray(function(*real))
        return y if self.out.grid is None else self.out.grid.quantize(y)


# --- products ---

_IMAGE: Final = conv_dimension_numbers((1,) * 4, (1,) * 4, ("NHWC", "OHWI", "NHWC"))


def _products(
    run: _Run, x: NDArray, w: NDArray, b: NDArray | None, sums: Callable[..., NDArray], depth: int, kind: Kind
) -> Any:
    """``sums(x, w)``, of ``depth`` products each, with bias on the grid of the result, or in floats."""
    if run.grids[0] is None:
        w = w if run.grids[1] is None else run.of(1).dequantize(w)
        y = sums(x, w)
        return run.activated(y if b is None else y + b)
    lo, hi = run.clamp(run.attrs.get("activation"))
    x, w = x.astype(np.int64) - run.of(0).zero_point, w.astype(np.int64) - run.of(1).zero_point
    acc = sums(*_exact(x, w, depth)).astype(np.int64)
    if b is not None:
        acc = acc + b.astype(np.int64)
    scale = np.asarray(run.of(1).scale, np.float32)
    return product.requantize_products(acc, _scale(run.of(0)), scale, run.grid, lo, hi, run.rounding, kind)


def _exact(x: NDArray, w: NDArray, depth: int) -> tuple[NDArray, NDArray]:
    """Whole numbers in the fastest dtype that rounds no sum of ``depth`` products: NumPy is fast only with floats."""
    largest = int(np.abs(x).max(initial=0)) * int(np.abs(w).max(initial=0)) * depth
    work = np.float32 if largest <= 2**24 else np.float64 if largest <= 2**53 else np.int64
    return x.astype(work), w.astype(work)


def _scale(grid: Grid) -> float:
    return float(elementwise.scale_of(grid))


@_rule("conv_2d", "depthwise_conv_2d")
def _conv(run: _Run, x: NDArray, w: NDArray, b: NDArray | None = None) -> NDArray:
    a = run.attrs
    groups = a.get("groups", 1) if run.op == "conv_2d" else x.shape[3]

    def sums(x: NDArray, w: NDArray) -> NDArray:
        kernel = w if run.op == "conv_2d" else w.transpose(3, 1, 2, 0)
        return _correlate(x, kernel, a["strides"], a["padding"], (1, 1), a.get("dilations") or (1, 1), groups)

    depth = math.prod(w.shape[1:] if run.op == "conv_2d" else w.shape[1:3])
    return _products(run, x, w, b, sums, depth, "conv")


def _correlate(x: NDArray, w: NDArray, strides: Any, padding: Any, spread: Any, dilations: Any, groups: int) -> NDArray:
    return conv_general_dilated.eval(
        x,
        w,
        window_strides=tuple(strides),
        padding=tuple(tuple(p) for p in padding),
        lhs_dilation=tuple(spread),
        rhs_dilation=tuple(dilations),
        feature_group_count=groups,
        batch_group_count=1,
        dimension_numbers=_IMAGE,
    )


@_rule("transpose_conv")
def _transpose_conv(run: _Run, x: NDArray, w: NDArray, b: NDArray | None = None) -> NDArray:
    cuts = run.attrs["padding"]

    def sums(x: NDArray, w: NDArray) -> NDArray:
        # Each operand element spreads over a window: the correlation of the spread operand with the turned kernel.
        padding = [(k - 1 - low, k - 1 - high) for k, (low, high) in zip(w.shape[1:3], cuts, strict=True)]
        return _correlate(x, w[:, ::-1, ::-1], (1, 1), padding, run.attrs["strides"], (1, 1), 1)

    return _products(run, x, w, b, sums, math.prod(w.shape[1:]), "conv")


@_rule("fully_connected")
def _fully_connected(run: _Run, x: NDArray, w: NDArray, b: NDArray | None = None) -> NDArray:
    def sums(x: NDArray, w: NDArray) -> NDArray:
        return x.reshape(-1, w.shape[1]) @ w.T

    return np.asarray(_products(run, x, w, b, sums, w.shape[1], "dense")).reshape(run.out.shape)


@_rule("batch_matmul")
def _batch_matmul(run: _Run, x: NDArray, y: NDArray) -> NDArray:
    x = x.swapaxes(-1, -2) if run.attrs.get("adj_x") else x
    y = y.swapaxes(-1, -2) if run.attrs.get("adj_y") else y
    return _products(run, x, y, None, np.matmul, x.shape[-1], "matmul")


# --- elementwise ---

_ENDS: Final[dict[str, tuple[float | None, float | None]]] = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}
_SUMS: Final[dict[str, Callable[..., NDArray]]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "squared_difference": elementwise.squared_difference,
}
_BINARY: Final[dict[str, Callable[..., NDArray]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "squared_difference": lambda x, y: np.square(x - y),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}


def _real_relu(name: str, x: NDArray) -> NDArray:
    low, high = _ENDS[name]
    return np.clip(x, low, high)


@_rule("add", "sub", "mul", "div", "squared_difference", "pow")
def _arithmetic(run: _Run, x: NDArray, y: NDArray) -> NDArray:
    wide = run.out.dtype == dtypes.int16 and run.op == "squared_difference"
    if run.integers and run.op in _SUMS and not wide:
        lo, hi = run.clamp(run.attrs.get("activation"))
        return _SUMS[run.op](x, run.of(0), y, run.of(1), run.grid, lo, hi, run.rounding)
    if run.op == "div" and run.out.grid is None and np.issubdtype(x.dtype, np.integer):
        # Whole numbers are cut towards zero.
        return run.activated(np.trunc(x.astype(np.float64) / y).astype(x.dtype))
    return run.by_floats(lambda p, q: run.activated(_BINARY[run.op](p, q)), x, y)


@_rule("maximum", "minimum")
def _extreme(run: _Run, x: NDArray, y: NDArray) -> NDArray:
    run.same_grids(0, 1)
    return _BINARY[run.op](x, y)


@_rule("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or")
def _compare(run: _Run, x: NDArray, y: NDArray) -> NDArray:
    if run.grids[0] is not None and run.grids[1] is not None:
        x, y = (elementwise.comparable(v, run.of(i), run.rounding) for i, v in enumerate((x, y)))
    return _BINARY[run.op](x, y)


@_rule("relu", "relu6", "relu_n1_to_1")
def _relu(run: _Run, x: NDArray) -> NDArray:
    if run.integers:
        return elementwise.relu(x, run.of(0), run.grid, *run.clamp(run.op), run.rounding)
    return _real_relu(run.op, x)


@_rule(
    "logistic", "tanh", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square", "sin", "cos",
    "floor", "ceil", "round", "sign", "leaky_relu", "gelu", "erf",
)  # fmt: skip
def _unary(run: _Run, x: NDArray) -> NDArray:
    if run.integers:
        return functions.unary(run.op, x, run.of(0), run.grid, run.rounding, **run.attrs)
    real = functions.real_function(run.op, **run.attrs)
    with np.errstate(all="ignore"):
        return real(x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float32))


@_rule("logical_not")
def _logical_not(run: _Run, x: NDArray) -> NDArray:
    return np.logical_not(x)


@_rule("prelu")
def _prelu(run: _Run, x: NDArray, alpha: NDArray) -> NDArray:
    if run.integers:
        return functions.prelu(x, run.of(0), alpha, run.of(1), run.grid, run.rounding)
    return np.where(x >= 0, x, x * alpha)


@_rule("table")
def _table(run: _Run, x: NDArray) -> NDArray:
    return np.asarray(run.attrs["values"])[x.astype(np.int32) + 128]


@_rule("select")
def _select(run: _Run, condition: NDArray, x: NDArray, y: NDArray) -> NDArray:
    run.same_grids(1, 2)
    return np.where(condition, x, y)


@_rule("quantize")
def _quantize(run: _Run, x: NDArray) -> NDArray:
    if run.grids[0] is None:
        return run.grid.quantize(x)
    return elementwise.requantize(x, run.of(0), run.grid, *run.grid.limits, run.rounding)


@_rule("dequantize")
def _dequantize(run: _Run, x: NDArray) -> NDArray:
    return run.of(0).dequantize(x)


@_rule("cast")
def _cast(run: _Run, x: NDArray) -> NDArray:
    with np.errstate(all="ignore"):
        return x.astype(run.out.dtype)


# --- pooling and reductions ---


def _windows(run: _Run, x: NDArray, border: Any) -> NDArray:
    """The windows of [n, h, w, c] as [n, h, w, c, kh, kw]; padding holds ``border``."""
    window, strides = run.attrs["window"], run.attrs["strides"]
    padded = np.pad(x, ((0, 0), *run.attrs["padding"], (0, 0)), constant_values=border)
    found = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    return found[:, :: strides[0], :: strides[1]]


@_rule("max_pool_2d")
def _max_pool(run: _Run, x: NDArray) -> NDArray:
    run.same_grids(0)
    least = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
    y = _windows(run, x, least).max((-2, -1))
    return run.activated(y) if run.out.grid is None else np.clip(y, *run.clamp(run.attrs.get("activation")))


@_rule("average_pool_2d")
def _average_pool(run: _Run, x: NDArray) -> NDArray:
    run.same_grids(0)
    ones = np.ones((1, *x.shape[1:3], 1), np.int64)
    counts = _windows(run, ones, 0).sum((-2, -1))
    if run.out.grid is None:
        return run.activated(_windows(run, x, 0).sum((-2, -1)) / counts.astype(x.dtype))
    sums = _windows(run, x.astype(np.int64), 0).sum((-2, -1))
    return reduce.average(sums, counts, *run.clamp(run.attrs.get("activation")))


_REDUCTIONS: Final[dict[str, tuple[Callable[..., NDArray] | None, Callable[..., NDArray]]]] = {
    "mean": (reduce.mean, np.mean),
    "sum": (reduce.sum, np.sum),
    "reduce_prod": (reduce.product, np.prod),
    "reduce_max": (None, np.max),
    "reduce_min": (None, np.min),
}


@_rule("mean", "sum", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(run: _Run, x: NDArray) -> NDArray:
    axes = tuple(a % x.ndim for a in run.attrs["axes"])
    keepdims = bool(run.attrs.get("keepdims"))
    fixed, plain = _REDUCTIONS[run.op]
    if run.out.grid is not None and fixed is not None:
        y = fixed(x, run.of(0), run.grid, axes, run.rounding)
        return np.expand_dims(y, axes) if keepdims else y
    run.same_grids(0)
    return np.asarray(plain(x, axis=axes, keepdims=keepdims))


@_rule("argmax", "argmin")
def _arg(run: _Run, x: NDArray) -> NDArray:
    return np.asarray((np.argmax if run.op == "argmax" else np.argmin)(x, axis=run.attrs["axis"]))


@_rule("softmax")
def _softmax(run: _Run, x: NDArray) -> NDArray:
    beta = float(run.attrs.get("beta", 1.0))
    if run.integers:
        return softmax.softmax(x, run.of(0), run.grid, -1, beta, run.rounding)
    e = np.exp((x - x.max(-1, keepdims=True)) * x.dtype.type(beta))
    return e / e.sum(-1, keepdims=True)


@_rule("log_softmax")
def _log_softmax(run: _Run, x: NDArray) -> NDArray:
    if run.integers and run.out.dtype != dtypes.int16:
        return softmax.log_softmax(x, run.of(0), run.grid, -1, run.rounding)

    def real(x: NDArray) -> NDArray:
        small = x - x.max(-1, keepdims=True)
        return small - np.log(np.exp(small).sum(-1, keepdims=True))

    return run.by_floats(real, x)


@_rule("cumsum")
def _cumsum(run: _Run, x: NDArray) -> NDArray:
    axis = run.attrs["axis"]

    def real(x: NDArray) -> NDArray:
        x = np.flip(x, axis) if run.attrs.get("reverse") else x
        y = np.cumsum(x, axis, dtype=x.dtype)
        y = y - x if run.attrs.get("exclusive") else y
        return np.flip(y, axis) if run.attrs.get("reverse") else y

    return run.by_floats(real, x)


# --- movement: stored values as they are ---


def _moves(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A rule that moves its first operand: its grid is that of the results."""

    def register(move: Callable[..., Any]) -> Callable[..., Any]:
        def rule(run: _Run, x: NDArray, *rest: NDArray) -> Any:
            run.same_grids(0)
            return move(run, x, *rest)

        _RULES.update(dict.fromkeys(ops, rule))
        return move

    return register


@_moves("reshape")
def _reshape(run: _Run, x: NDArray) -> NDArray:
    return x.reshape(run.attrs["shape"])


@_moves("transpose")
def _transpose(run: _Run, x: NDArray) -> NDArray:
    return x.transpose(run.attrs["permutation"])


@_rule("concatenation")
def _concatenation(run: _Run, *xs: NDArray) -> NDArray:
    run.same_grids(*range(len(xs)))
    return np.concatenate(xs, run.attrs["axis"])


@_moves("split")
def _split(run: _Run, x: NDArray) -> list[NDArray]:
    ends = np.cumsum(run.attrs["sizes"])[:-1]
    return list(np.split(x, ends, run.attrs["axis"]))


@_moves("slice")
def _slice(run: _Run, x: NDArray) -> NDArray:
    return x[tuple(slice(b, b + n) for b, n in zip(run.attrs["begin"], run.attrs["size"], strict=True))]


@_moves("strided_slice")
def _strided_slice(run: _Run, x: NDArray) -> NDArray:
    rows = zip(run.attrs["begin"], run.attrs["end"], run.attrs["strides"], strict=True)
    return x[tuple(slice(*row) for row in rows)]


@_moves("pad")
def _pad(run: _Run, x: NDArray) -> NDArray:
    value = run.attrs.get("value") or 0
    grid = run.out.grid
    stored = value if grid is None else grid.quantize(np.asarray(value, np.float32))
    if math.isinf(value) and np.issubdtype(x.dtype, np.integer):
        stored = np.iinfo(x.dtype).min if value < 0 else np.iinfo(x.dtype).max
    return np.pad(x, run.attrs["padding"], constant_values=stored)


@_moves("broadcast_to")
def _broadcast_to(run: _Run, x: NDArray) -> NDArray:
    return np.broadcast_to(x, run.attrs["shape"])


@_moves("tile")
def _tile(run: _Run, x: NDArray) -> NDArray:
    return np.tile(x, run.attrs["multiples"])


@_moves("reverse")
def _reverse(run: _Run, x: NDArray) -> NDArray:
    return np.flip(x, tuple(run.attrs["axes"]))


@_moves("gather")
def _gather(run: _Run, x: NDArray, indices: NDArray) -> NDArray:
    size = x.shape[run.attrs["axis"]]
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise run.refuse("an index out of range", f"{int(indices.min())} to {int(indices.max())} into {size}")
    return np.take(x, indices, run.attrs["axis"])


@_rule("one_hot")
def _one_hot(run: _Run, indices: NDArray) -> NDArray:
    hot = np.expand_dims(indices, run.attrs["axis"])
    shape = [1] * hot.ndim
    shape[run.attrs["axis"]] = -1
    found = (hot == np.arange(run.attrs["depth"]).reshape(shape)).astype(np.float32)
    return found if run.out.grid is None else run.out.grid.quantize(found)


@_moves("resize_nearest")
def _resize_nearest(run: _Run, x: NDArray) -> NDArray:
    return resize.resize_nearest(x, tuple(run.attrs["size"]), *_corners(run))


@_moves("resize_bilinear")
def _resize_bilinear(run: _Run, x: NDArray) -> NDArray:
    size = tuple(run.attrs["size"])
    if run.out.grid is not None:
        return resize.resize_bilinear(x, size, *_corners(run), run.rounding)
    (y0, y1, dy), (x0, x1, dx) = (
        resize.real_positions(n, to, *_corners(run)) for n, to in zip(x.shape[1:3], size, strict=True)
    )
    dy, dx = dy.reshape(-1, 1, 1), dx.reshape(-1, 1)
    one = np.float32(1)
    return (
        x[:, y0][:, :, x0] * (one - dy) * (one - dx)
        + x[:, y1][:, :, x0] * dy * (one - dx)
        + x[:, y0][:, :, x1] * (one - dy) * dx
        + x[:, y1][:, :, x1] * dy * dx
    )


def _corners(run: _Run) -> tuple[bool, bool]:
    return bool(run.attrs.get("align_corners")), bool(run.attrs.get("half_pixel_centers"))
