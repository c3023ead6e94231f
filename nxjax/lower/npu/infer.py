"""Result types of the NPU vocabulary, for graphs that come from files and cannot be trusted.

A rule gives the shapes that a node's operands and attributes imply, or refuses operands that fit no result at all; the
dtypes and grids of a node go together or are refused. Knows no file: the reader says which one an error is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

Rule = Callable[[Node], Shape]


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise ShapeError(f"graph: {why}")


def _shape(node: Node, i: int = 0) -> Shape:
    t = node.inputs[i]
    if t is None:
        raise ShapeError(f"graph: {node.op} lacks operand {i}")
    return t.shape


def _windows(node: Node, shape: Shape, window: Sequence[int]) -> Shape:
    """Spatial sizes of a convolution or pooling."""
    strides, dilations = node.attrs["strides"], node.attrs.get("dilations", (1, 1))
    sizes: list[int] = []
    for n, k, s, d, (low, high) in zip(shape[1:3], window, strides, dilations, node.attrs["padding"], strict=True):
        _need(min(k, s, d) > 0, f"{node.op}: window {k}, stride {s}, dilation {d}")
        span = n + low + high - ((k - 1) * d + 1)
        _need(span >= 0, f"{node.op}: a window of {k} does not fit {n}")
        sizes.append(span // s + 1)
    return tuple(sizes)


def _bias(node: Node, channels: int) -> None:
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        _need(_shape(node, 2) == (channels,), f"{node.op}: bias of shape {_shape(node, 2)} for {channels} channels")


def _conv(node: Node) -> Shape:
    x, w = _shape(node), _shape(node, 1)
    _need(len(x) == len(w) == 4, f"{node.op}: ranks {len(x)} and {len(w)}")
    groups = node.attrs["groups"]
    _need(groups > 0 and x[3] == w[3] * groups and w[0] % groups == 0, f"conv_2d: channels {x[3]}, weights {w}")
    _bias(node, w[0])
    return (x[0], *_windows(node, x, w[1:3]), w[0])


def _depthwise(node: Node) -> Shape:
    x, w = _shape(node), _shape(node, 1)
    _need(len(x) == len(w) == 4 and w[0] == 1, f"{node.op}: operands {x} and {w}")
    _need(w[3] % x[3] == 0, f"{node.op}: {w[3]} filters for {x[3]} channels")
    _bias(node, w[3])
    return (x[0], *_windows(node, x, w[1:3]), w[3])


def _transpose_conv(node: Node) -> Shape:
    x, w = _shape(node), _shape(node, 1)
    _need(len(x) == len(w) == 4 and x[3] == w[3], f"{node.op}: operands {x} and {w}")
    _bias(node, w[0])
    rows = zip(x[1:3], w[1:3], node.attrs["strides"], node.attrs["padding"], strict=True)
    sizes = tuple((n - 1) * s + k - low - high for n, k, s, (low, high) in rows)
    _need(min(sizes) > 0, f"{node.op}: result sizes {sizes}")
    return (x[0], *sizes, w[0])


def _fully_connected(node: Node) -> Shape:
    x, w = _shape(node), _shape(node, 1)
    _need(len(w) == 2 and len(x) > 0 and x[-1] == w[1], f"{node.op}: operands {x} and {w}")
    _bias(node, w[0])
    return (*x[:-1], w[0])


def _batch_matmul(node: Node) -> Shape:
    x, y = _shape(node), _shape(node, 1)
    _need(min(len(x), len(y)) >= 2, f"{node.op}: operands {x} and {y}")
    m, k = x[-2:] if not node.attrs["adj_x"] else x[:-3:-1]
    l, n = y[-2:] if not node.attrs["adj_y"] else y[:-3:-1]
    _need(k == l, f"{node.op}: operands {x} and {y}")
    return (*_broadcast(x[:-2], y[:-2]), m, n)


def _broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"graph: shapes {shapes} do not go together") from None


def _elementwise(node: Node) -> Shape:
    return _broadcast(*(_shape(node, i) for i in range(len(node.inputs))))


def _pool(node: Node) -> Shape:
    x = _shape(node)
    _need(len(x) == 4, f"{node.op}: rank {len(x)}")
    return (x[0], *_windows(node, x, node.attrs["window"]), x[3])


def _axes(node: Node, rank: int, axes: Sequence[int]) -> None:
    good = all(0 <= a < rank for a in axes) and len(set(axes)) == len(axes)
    _need(good, f"{node.op}: axes {tuple(axes)} of {rank} dimensions")


def _reduce(node: Node) -> Shape:
    x, axes = _shape(node), node.attrs["axes"]
    _axes(node, len(x), axes)
    if node.attrs["keepdims"]:
        return tuple(1 if i in axes else n for i, n in enumerate(x))
    return tuple(n for i, n in enumerate(x) if i not in axes)


def _arg(node: Node) -> Shape:
    x, axis = _shape(node), node.attrs["axis"]
    _axes(node, len(x), (axis,))
    return x[:axis] + x[axis + 1 :]


def _same(node: Node) -> Shape:
    return _shape(node)


def _last_axis(node: Node) -> Shape:
    _need(len(_shape(node)) > 0, f"{node.op} of a scalar")
    beta = node.attrs.get("beta", 1.0)
    _need(0 < beta < math.inf, f"{node.op}: beta {beta}")
    return _shape(node)


def _leaky(node: Node) -> Shape:
    alpha = node.attrs["alpha"]
    _need(math.isfinite(alpha), f"leaky_relu: alpha {alpha}")
    return _shape(node)


def _along(node: Node) -> Shape:
    _axes(node, len(_shape(node)), (node.attrs["axis"],))
    return _shape(node)


def _reverse(node: Node) -> Shape:
    _axes(node, len(_shape(node)), node.attrs["axes"])
    return _shape(node)


def _reshape(node: Node) -> Shape:
    shape = tuple(node.attrs["shape"])
    _need(math.prod(shape) == math.prod(_shape(node)), f"reshape of {_shape(node)} to {shape}")
    return shape


def _transpose(node: Node) -> Shape:
    x, permutation = _shape(node), node.attrs["permutation"]
    _need(sorted(permutation) == list(range(len(x))), f"transpose: permutation {tuple(permutation)} of {x}")
    return tuple(x[p] for p in permutation)


def _concatenation(node: Node) -> Shape:
    first, axis = _shape(node), node.attrs["axis"]
    _axes(node, len(first), (axis,))
    shapes = [_shape(node, i) for i in range(len(node.inputs))]
    rest = {s[:axis] + s[axis + 1 :] for s in shapes if len(s) == len(first)}
    _need(len(rest) == 1 and all(len(s) == len(first) for s in shapes), f"concatenation of {shapes}")
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def _slice(node: Node) -> Shape:
    x, begin, size = _shape(node), node.attrs["begin"], node.attrs["size"]
    _need(len(begin) == len(size) == len(x), f"slice: {len(begin)} starts for {x}")
    inside = all(b >= 0 and n > 0 and b + n <= full for b, n, full in zip(begin, size, x, strict=True))
    _need(inside, f"slice at {tuple(begin)} of size {tuple(size)} from {x}")
    return tuple(size)


def _strided_slice(node: Node) -> Shape:
    x, (begin, end, strides) = _shape(node), (node.attrs[key] for key in ("begin", "end", "strides"))
    _need(len(begin) == len(end) == len(strides) == len(x), f"strided_slice: {len(begin)} starts for {x}")
    rows = list(zip(begin, end, strides, x, strict=True))
    _need(all(s > 0 and 0 <= b < e <= n for b, e, s, n in rows), f"strided_slice of {x}: {rows}")
    return tuple(-(-(e - b) // s) for b, e, s, _ in rows)


def _pad(node: Node) -> Shape:
    x, padding = _shape(node), node.attrs["padding"]
    _need(len(padding) == len(x) and all(min(p) >= 0 for p in padding), f"pad of {x} by {padding}")
    return tuple(n + low + high for n, (low, high) in zip(x, padding, strict=True))


def _broadcast_to(node: Node) -> Shape:
    shape = tuple(node.attrs["shape"])
    _need(_broadcast(_shape(node), shape) == shape, f"broadcast_to of {_shape(node)} to {shape}")
    return shape


def _tile(node: Node) -> Shape:
    x, multiples = _shape(node), node.attrs["multiples"]
    _need(len(multiples) == len(x) and all(m > 0 for m in multiples), f"tile of {x} by {tuple(multiples)}")
    return tuple(n * m for n, m in zip(x, multiples, strict=True))


def _gather(node: Node) -> Shape:
    x, axis = _shape(node), node.attrs["axis"]
    _axes(node, len(x), (axis,))
    indices = node.operands[1].data
    if indices is not None and indices.size:
        low, high = int(indices.min()), int(indices.max())
        _need(low >= 0 and high < x[axis], f"gather: indices from {low} to {high} into {x[axis]}")
    return (*x[:axis], *_shape(node, 1), *x[axis + 1 :])


def _one_hot(node: Node) -> Shape:
    x, axis, depth = _shape(node), node.attrs["axis"], node.attrs["depth"]
    _need(0 <= axis <= len(x) and depth > 0, f"one_hot: axis {axis}, depth {depth}")
    return (*x[:axis], depth, *x[axis:])


def _resize(node: Node) -> Shape:
    x, size = _shape(node), node.attrs["size"]
    _need(len(x) == 4 and len(size) == 2 and min(size) > 0, f"{node.op} of {x} to {tuple(size)}")
    both = node.attrs["align_corners"] and node.attrs["half_pixel_centers"]
    _need(not both, f"{node.op}: corners are aligned or centers are at halves, not both")
    return (x[0], *size, x[3])


_RULES: Final[dict[str, Rule]] = {
    "conv_2d": _conv,
    "depthwise_conv_2d": _depthwise,
    "transpose_conv": _transpose_conv,
    "fully_connected": _fully_connected,
    "batch_matmul": _batch_matmul,
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow"), _elementwise),
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _elementwise),
    **dict.fromkeys(("logical_and", "logical_or", "select", "prelu"), _elementwise),
    **dict.fromkeys(("max_pool_2d", "average_pool_2d"), _pool),
    **dict.fromkeys(("mean", "sum", "reduce_max", "reduce_min", "reduce_prod"), _reduce),
    **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("softmax", "log_softmax"), _last_axis),
    "cumsum": _along,
    "leaky_relu": _leaky,
    "reverse": _reverse,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenation": _concatenation,
    "slice": _slice,
    "strided_slice": _strided_slice,
    "pad": _pad,
    "broadcast_to": _broadcast_to,
    "tile": _tile,
    "gather": _gather,
    "one_hot": _one_hot,
    **dict.fromkeys(("resize_bilinear", "resize_nearest"), _resize),
}


def shapes(node: Node) -> list[Shape]:
    """The shapes of a node's results; ops without a rule of their own keep their operand's.

    Raises:
        ShapeError: no result fits the operands and attributes.
    """
    if node.op == "split":
        x, axis, sizes = _shape(node), node.attrs["axis"], node.attrs["sizes"]
        _axes(node, len(x), (axis,))
        _need(min(sizes, default=0) > 0 and sum(sizes) == x[axis], f"split of {x} at axis {axis} into {tuple(sizes)}")
        return [(*x[:axis], n, *x[axis + 1 :]) for n in sizes]
    return [_RULES.get(node.op, _same)(node)]


def check(node: Node) -> None:
    """Refuse a node whose results are not what its operands make.

    Raises:
        ShapeError, DtypeError: of what its results, dtypes or grids are, and what they would have to be.
    """
    _need(all(0 not in t.shape for t in [*node.operands, *node.outputs]), f"{node.op} of tensors without elements")
    stated, expected = [t.shape for t in node.outputs], shapes(node)
    if stated != expected:
        raise ShapeError(
            f"graph: a result of {node.op} whose shape does not follow from its operands", got=stated, expected=expected
        )
    check_dtypes(node)
    check_grids(node)


_WEIGHTED: Final = ("conv_2d", "depthwise_conv_2d", "transpose_conv", "fully_connected")
_COMPARE: Final = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_CONVERT: Final = ("quantize", "dequantize", "cast")
# Functions of real numbers: integers that mean themselves have none.
_REAL: Final = frozenset((
    "softmax", "log_softmax", "logistic", "tanh", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "sin", "cos",
    "gelu", "erf", "leaky_relu", "prelu", "average_pool_2d", "resize_bilinear", "table",
))  # fmt: skip


def check_dtypes(node: Node) -> None:
    """Raise `DtypeError` unless the node's operands and results are of dtypes that go together."""
    operands, out = node.operands, node.output
    first = operands[1 if node.op == "select" else 0]
    if node.op in _CONVERT:
        return
    if node.op in ("argmax", "argmin"):
        _agree(node, out.dtype in (dtypes.int32, dtypes.int64))
    elif node.op == "one_hot":
        _agree(node, first.dtype in dtypes.INTEGER)
    elif node.op in _COMPARE:
        _agree(node, out.dtype == dtypes.bool_ and operands[1].dtype == first.dtype)
    elif node.op in _WEIGHTED:
        _agree(node, out.dtype == first.dtype and _weights_agree(first, operands[1:]))
    elif node.op in _REAL and first.grid is None and first.dtype not in dtypes.FLOAT:
        _agree(node, False)
    else:
        data = {"gather": operands[:1], "select": operands[1:]}.get(node.op, operands)
        _agree(node, all(t.dtype == first.dtype for t in [*data, *node.outputs]))


def check_grids(node: Node) -> None:
    """Raise `DtypeError` where only some of the values that a node computes with are on grids."""
    tensors = [*node.operands, *node.outputs]
    if node.op in (*_CONVERT, *_COMPARE, "argmax", "argmin", "one_hot", "logical_and", "logical_or", "logical_not"):
        return
    if node.op in _WEIGHTED:
        # Floats take weights on grids, which are compressed; a bias may be plain integers.
        tensors = [node.operands[0], *node.outputs]
    elif node.op in ("gather", "select"):
        tensors = [t for t in tensors if t is not node.operands[1 if node.op == "gather" else 0]]
    if len({t.grid is None for t in tensors}) > 1:
        without = ", ".join(t.name for t in tensors if t.grid is None)
        raise DtypeError(f"graph: {node.op}: some values are on grids and some are not", got=f"not: {without}")


def _weights_agree(x: Tensor, rest: Sequence[Tensor]) -> bool:
    """Floats with floats, or with integers on a grid; integers on a grid with such, and an integer bias."""
    if x.grid is None:
        biases = all(t.dtype == x.dtype for t in rest[1:])
        return x.dtype in dtypes.FLOAT and biases and (rest[0].grid is not None or rest[0].dtype == x.dtype)
    return rest[0].grid is not None and all(t.dtype in (dtypes.int32, dtypes.int64) for t in rest[1:])


def _agree(node: Node, condition: bool) -> None:
    if not condition:
        short = [dtypes.short_name(t.dtype) for t in [*node.operands, *node.outputs]]
        raise DtypeError(f"graph: {node.op}: dtypes that do not go together", got=", ".join(short))
