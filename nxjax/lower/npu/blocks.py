"""Weights of which every block has a scale: what is known of a constant on the way to the node that reads it.

Tensors of a graph have one scale per slice of an axis at most. Weights in blocks are therefore stored as rows, one for
each block, that are taken off their grid and put under the shape of the weights: ``reshape(dequantize(rows))``. Every
format can say that; some know it as one thing, see `blocked`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import blocks, weight_integers
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, bit_width
from nxjax.trace.types import Shape

# What is said of weights that have to be stored as what they mean.
IN_FLOAT: Final = (
    "weights with scales for groups are stored in float32, on the same grids: their groups do not lie in rows as they "
    "are read; to store them in few bits, quantize with a Scheme whose group is None"
)


@final
@dataclass(frozen=True)
class WeightBlocks:
    """The scales of a constant, of its rank, each for a block of equal size; and the dtype of what they scale."""

    scales: NDArray
    dtype: DType

    def transposed(self, permutation: Sequence[int]) -> WeightBlocks:
        return WeightBlocks(self.scales.transpose(permutation), self.dtype)

    def flipped(self, axes: Sequence[int]) -> WeightBlocks:
        return WeightBlocks(np.flip(self.scales, tuple(axes)), self.dtype)

    def span(self, shape: Shape, axes: Sequence[int]) -> bool:
        """Whether a block of a constant of ``shape`` has several elements along ``axes``."""
        return any(self.scales.shape[a] < shape[a] for a in axes)

    def reshaped(self, old: Shape, new: Shape) -> WeightBlocks | None:
        """Of the same elements under another shape; None if blocks are not blocks of it.

        >>> WeightBlocks(np.ones((4, 1, 2)), np.dtype("int4")).reshaped((4, 3, 64), (12, 64)).scales.shape
        (12, 2)
        """
        flat = self._flat(old)
        shape, left = list[int](), flat.size
        for n in new:
            k = math.gcd(left, n)
            if k not in (n, left):
                return None
            shape.append(k)
            left //= k
        return WeightBlocks(flat.reshape(shape), self.dtype)

    def _flat(self, shape: Shape) -> NDArray:
        """The scales in the order of the elements, each for a run of equal length."""
        own = self.scales.shape
        last = max((i for i, k in enumerate(own) if k > 1), default=0)
        return blocks(self.scales, (*shape[:last], *own[last:])).reshape(-1)

    def rows(self, data: NDArray) -> tuple[NDArray, Grid] | None:
        """The stored integers of ``data`` as one row per block, and their grid; None if that is not much smaller."""
        scales = self._flat(data.shape)
        length = data.size // scales.size
        if bit_width(self.dtype) / 8 + 4 / length > 2:
            return None
        stored = weight_integers(data.reshape(-1, length), scales.reshape(-1, 1), self.dtype)
        if scales.size == 1:
            return stored, Grid(self.dtype, float(scales[0]))
        return stored, Grid(self.dtype, tuple(map(float, scales)), 0, 0)


@final
@dataclass(frozen=True)
class BlockedWeights:
    """Stored integers under the shape of weights whose last dimension is cut into blocks, and a scale for each."""

    data: NDArray
    scales: NDArray

    @property
    def length(self) -> int:
        """Elements of a block."""
        return self.data.shape[-1] // self.scales.shape[-1]


def taken_off(graph: NpuGraph) -> dict[Tensor, Tensor]:
    """What constants on a grid are called once they are taken off it, and the constants."""
    off = (n for n in graph.nodes if n.op == "dequantize" and n.operand().constant)
    return {n.output: n.operand() for n in off}


def compact(graph: NpuGraph) -> bool:
    """Whether weights of 4 bits or in blocks are among the constants, which newer versions of formats have."""
    off = taken_off(graph)
    return any(t.dtype == dtypes.int4 for t in graph.constants()) or any(blocked(n, off) for n in graph.nodes)


def blocked(node: Node, off: Mapping[Tensor, Tensor]) -> BlockedWeights | None:
    """What a ``reshape`` makes of rows with a scale each, if these are blocks of its last dimension.

    Args:
        node: any node.
        off: as `taken_off` gives it.
    """
    rows = off.get(node.operand()) if node.op == "reshape" else None
    if rows is None or rows.data is None or rows.grid is None or rows.grid.zero_point or len(rows.shape) != 2:
        return None
    shape, length = node.output.shape, rows.shape[1]
    if rows.grid.axis == 1 or not shape or shape[-1] % length:
        return None
    scales = np.broadcast_to(np.asarray(rows.grid.scale, np.float32), rows.shape[:1])
    return BlockedWeights(rows.data.reshape(shape), scales.reshape(*shape[:-1], shape[-1] // length))
