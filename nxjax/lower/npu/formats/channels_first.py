"""What formats share that have images channels first: values in both layouts, and rules that need not know of layouts.

An image is kept channels first from the first op that wants it so, and turned back where an op needs the graph's own
order. A format's rules are functions of values; the decorators of `LayoutRules` say in which layout an op takes its
operands and gives its results. Knows no format and no package.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.blocks import BlockedWeights, blocked, scaled_rows
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.permutation import inverse
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# A value of the format's package.
Value = Any

# Ranks of images and volumes, whose channels may stand first.
IMAGES: Final = (4, 5)

# Ops that these formats name alike: of one or two values by the graph's own names, and along axes.
SAME_BINARY: Final[dict[str, str]] = {
    name: name
    for name in ("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
                 "logical_and", "logical_or")
}  # fmt: skip
SAME_UNARY: Final = {
    name: name for name in ("tanh", "exp", "sqrt", "abs", "sin", "cos", "floor", "sign", "logical_not", "erf")
}
REDUCE: Final = {
    "mean": "reduce_mean", "sum": "reduce_sum", "reduce_max": "reduce_max", "reduce_min": "reduce_min",
    "reduce_prod": "reduce_prod",
}  # fmt: skip


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation that brings the channels of an image or a volume to the front.

    >>> to_first(4), to_first(5)
    ((0, 3, 1, 2), (0, 4, 1, 2, 3))
    """
    return (0, rank - 1, *range(1, rank - 1))


class ChannelsFirst(ABC):
    """Values of the tensors so far, in one or both layouts."""

    format: ClassVar[str]

    def __init__(self) -> None:
        # Per tensor: channels first or not -> value; and the layout that it was made in.
        self.values: dict[Tensor, dict[bool, Value]] = {}
        self.natural: dict[Tensor, bool] = {}
        # What constants on a grid are called once they are taken off it -> the constants; and weights in blocks.
        self.taken: dict[Tensor, Tensor] = {}
        self.blocks: dict[Tensor, BlockedWeights] = {}
        # Weights by tensor and arrangement: several nodes, such as the steps of a loop, read the same.
        self.kernels: dict[tuple[Tensor, Shape, Shape], Value] = {}

    @abstractmethod
    def reshaped(self, value: Value, shape: Sequence[int]) -> Value: ...

    @abstractmethod
    def transposed(self, value: Value, perm: Sequence[int]) -> Value: ...

    @abstractmethod
    def fixed(self, data: NDArray, grid: Grid | None, axis: int | None) -> Value:
        """A constant: what stored integers mean if there is a grid, whose several scales lie along ``axis``."""

    @abstractmethod
    def in_blocks(self, data: NDArray, scales: NDArray, axis: int) -> Value:
        """Stored integers of which blocks along ``axis`` have the ``scales``; these have the shape of the blocks."""

    def takes(self, node: Node) -> bool:
        """Whether a node only says what stored weights mean: they are written where they are read."""
        if node.op == "dequantize" and node.operand().constant:
            self.taken[node.output] = node.operand()
            return node.output.dtype == dtypes.float32
        found = blocked(node, self.taken)
        if found is not None:
            self.blocks[node.output] = found
        return found is not None

    def matrix(self, t: Tensor) -> BlockedWeights | None:
        """A matrix that is made of stored integers, with a scale for each row or block of it."""
        return self.blocks.get(t) or (scaled_rows(self.taken[t]) if t in self.taken else None)

    def turn(self, value: Value, shape: Sequence[int], first: bool) -> Value:
        """An image of channels-last ``shape`` brought to the other layout; a reshape where no element moves."""
        n, *space, c = shape
        if c == 1 or math.prod(space) == 1:
            return self.reshaped(value, [n, c, *space] if first else shape)
        order = to_first(len(shape))
        return self.transposed(value, order if first else inverse(order))

    def literal(self, t: Tensor, first: bool = False, shape: Sequence[int] | None = None) -> Value:
        """A constant tensor, also under another shape with leading ones."""
        assert t.data is not None
        data = t.data if shape is None else t.data.reshape(tuple(shape))
        axis = None if t.grid is None or t.grid.axis is None else t.grid.axis % len(t.shape) + data.ndim - len(t.shape)
        if first:
            order = to_first(data.ndim)
            data = data.transpose(order)
            axis = None if axis is None else order.index(axis)
        return self.fixed(data, t.grid, axis)

    def get(self, t: Tensor, first: bool = False) -> Value:
        """The value of a tensor, channels first if asked for (then an image or a volume)."""
        known = self.values.setdefault(t, {})
        if first not in known:
            stored, w = self.taken.get(t, t) if not known else t, self.blocks.get(t)
            if stored.data is not None:
                known[first] = self.literal(stored, first)
            elif w is not None:
                rank = len(t.shape)
                order = to_first(rank) if first else tuple(range(rank))
                known[first] = self.kernel(t, order, tuple(t.shape[i] for i in order), 0)
            else:
                known[first] = self.turn(known[not first], t.shape, first)
        return known[first]

    def widened(self, t: Tensor, rank: int, first: bool) -> Value:
        """An operand of an elementwise op brought to ``rank`` by leading ones, so that it broadcasts in ``first``."""
        if len(t.shape) == rank or not first:
            return self.get(t, first)
        shape = (1,) * (rank - len(t.shape)) + t.shape
        if t.data is not None:
            return self.literal(t, first, shape)
        return self.turn(self.reshaped(self.get(t), shape), shape, first)

    def follow(self, node: Node) -> bool:
        """The layout of an elementwise op: channels first if any image it reads is, and its result is an image."""
        return len(node.output.shape) in IMAGES and any(self.natural.get(t, False) for t in node.operands)

    def put(self, t: Tensor, value: Value, first: bool) -> None:
        self.values[t] = {first: value}
        self.natural[t] = first

    def weights_of(self, node: Node) -> Tensor:
        """The weights of a product: the stored integers of weights that a node takes off their grid."""
        w = node.operand(1)
        return self.taken.get(w, w)

    def kernel(self, w: Tensor, permutation: Sequence[int], shape: Sequence[int], channel: int) -> Value:
        """Weights rearranged while they are still stored numbers; ``channel`` is where the output channels end up."""
        if w in self.blocks:
            return self._blocks(w, self.blocks[w], permutation, shape)
        if w.data is None:
            raise LoweringError(
                f"{self.format}: weights that are not constant", got=w.name, fix="close over the weights"
            )
        key = (w, tuple(permutation), tuple(shape))
        if key not in self.kernels:
            data = w.data.transpose(tuple(permutation)).reshape(tuple(shape))
            self.kernels[key] = self.fixed(data, w.grid, None if w.grid is None or w.grid.axis is None else channel)
        return self.kernels[key]

    def _blocks(self, t: Tensor, w: BlockedWeights, permutation: Sequence[int], shape: Sequence[int]) -> Value:
        """Weights in blocks, rearranged; only dimensions in front of the one that is cut may be cut or joined."""
        key = (t, tuple(permutation), tuple(shape))
        if key not in self.kernels:
            last = len(permutation) - 1
            axis = list(permutation).index(last) + len(shape) - len(permutation)
            sizes = (*shape[:axis], w.scales.shape[-1], *shape[axis + 1 :])
            data, scales = (x.transpose(tuple(permutation)) for x in (w.data, w.scales))
            self.kernels[key] = self.in_blocks(data.reshape(tuple(shape)), scales.reshape(sizes), axis)
        return self.kernels[key]


def bias_of(node: Node) -> NDArray | None:
    """A bias as real numbers: stored integers count in products of the operands' scales."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    x, w, b = node.operand(), node.operand(1), node.inputs[2]
    if b.data is None:
        raise LoweringError(f"{node.op}: a bias that is not constant", got=b.name, source=node.source)
    if b.grid is not None:
        return b.grid.dequantize(b.data)
    if b.dtype in dtypes.INTEGER and x.grid is not None and w.grid is not None:
        product = np.asarray(x.grid.scale, np.float64) * np.asarray(w.grid.scale, np.float64)
        return b.data.astype(np.float64) * product
    return b.data


Rule = Callable[..., Any]
# What an op becomes: its results (one value, or a list of several), and whether they are channels first.
Row = Callable[[Any, Node], tuple[Any, bool]]


def _elementwise(rule: Rule) -> Row:
    def row(net: ChannelsFirst, node: Node) -> tuple[Any, bool]:
        first, rank = net.follow(node), len(node.output.shape)
        return rule(net, node, *(net.widened(t, rank, first) for t in node.operands)), first

    return row


def _ordered(rule: Rule) -> Row:
    def row(net: ChannelsFirst, node: Node) -> tuple[Any, bool]:
        first = net.follow(node)
        rank = len(node.operand().shape)
        order = to_first(rank) if first else tuple(range(rank))
        return rule(net, node, order, *(net.get(t, first) for t in node.operands)), first

    return row


def _reductions(rule: Rule) -> Row:
    def row(net: ChannelsFirst, node: Node) -> tuple[Any, bool]:
        x, a = node.operand(), node.attrs
        axes, keep = set(a["axes"] if "axes" in a else [a["axis"]]), a.get("keepdims", False)
        # Without its channels or without all its spatial axes an image has the same order in both layouts.
        order = to_first(len(x.shape))
        same = axes >= {order[1]} or axes >= set(order[2:])
        first = net.natural.get(x, False) and (keep or same)
        at = sorted(order.index(i) if first else i for i in axes)
        return rule(net, node, at, net.get(x, first)), first and keep

    return row


_products: Final[Callable[[Rule], Row]] = lambda rule: lambda net, n: (rule(net, n, net.get(n.operand())), False)
_images: Final[Callable[[Rule], Row]] = lambda rule: lambda net, n: (rule(net, n, net.get(n.operand(), True)), True)
_plain: Final[Callable[[Rule], Row]] = lambda rule: lambda net, n: (rule(net, n, *map(net.get, n.operands)), False)


@final
class LayoutRules:
    """The rules of a format by op, each registered with ``kind(*ops)(rule)``; ``rows[op](net, node)`` writes a node.

    Attributes:
        elementwise: ``rule(net, node, *operands)``, in the layout at hand, brought to one rank.
        ordered: ``rule(net, node, order, *operands)``, in the layout at hand, where axis ``order[i]`` lies at place i.
        reductions: ``rule(net, node, axes, x)``, axes where they lie; channels first if the rest has its order so too.
        products: ``rule(net, node, x)``, the first operand in the graph's own order.
        images: the same, operand and result channels first.
        plain: ``rule(net, node, *operands)``, all in the graph's own order.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Callable[[Any, Node], tuple[list[Value], bool]]] = {}
        self.elementwise, self.ordered = self._kind(_elementwise), self._kind(_ordered)
        self.reductions, self.products = self._kind(_reductions), self._kind(_products)
        self.images, self.plain = self._kind(_images), self._kind(_plain)

    def _kind(self, make: Callable[[Rule], Row]) -> Callable[..., Callable[[Rule], Rule]]:
        def of(*ops: str) -> Callable[[Rule], Rule]:
            def register(rule: Rule) -> Rule:
                row = make(rule)

                def written(net: Any, node: Node) -> tuple[list[Value], bool]:
                    made, first = row(net, node)
                    return (made if isinstance(made, list) else [made]), first

                self.rows.update(dict.fromkeys(ops, written))
                return rule

            return register

        return of
