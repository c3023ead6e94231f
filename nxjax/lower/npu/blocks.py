"""Weights of which every block has a scale: what is known of a constant on the way to the node that reads it.

Tensors of a graph have one scale per slice of an axis at most. Weights in blocks are therefore stored as rows, one for
each block, that are taken off their grid and put under the shape of the weights: ``reshape(dequantize(rows))``. Every
format can say that; some know it as one thing, see `blocked`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.ops.recurrent import NpuRecurrent
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import blocks, weight_integers
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import symmetric_limit
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


def recovered(data: NDArray, kinds: Iterable[tuple[DType, int]]) -> WeightBlocks | None:
    """The blocks that the rows of a float32 matrix are made of, to the last bit; None if there are none.

    Args:
        kinds: dtypes of stored integers, and how many of them have a scale.
    """
    for dtype, length in kinds:
        length = min(length, data.shape[1])
        if length and not data.shape[1] % length:
            scales = _scales(data.reshape(-1, length), int(symmetric_limit(dtype)))
            if scales is not None:
                return WeightBlocks(scales.reshape(len(data), -1), dtype)
    return None


def _scales(rows: NDArray, limit: int) -> NDArray | None:
    """A scale for each row of which all its elements are multiples, up to ``limit`` times as large."""
    top = np.abs(rows).max(1)
    found, left = np.ones(len(rows), np.float32), np.flatnonzero(top)
    # The largest is the last number of its grid, or was rounded down; other rows only choose.
    for most in (limit, limit - 1, limit - 2, 1):
        for end in (None, 0, np.inf):
            scale = top[left] / np.float32(most)
            scale = scale if end is None else np.nextafter(scale, np.float32(end))
            part = rows[left]
            with np.errstate(all="ignore"):
                good = np.all(np.rint(part / scale[:, None]) * scale[:, None] == part, 1)
            found[left[good]] = scale[good]
            left = left[~good]
            if not left.size:
                return found
    return None


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

    @property
    def real(self) -> NDArray:
        """What they mean."""
        return self.data.astype(np.float32) * blocks(self.scales, self.data.shape)

    def rows(self, order: Sequence[int], width: int) -> BlockedWeights:
        """Those of gates of ``width`` rows, in another order."""
        places = np.concatenate([np.arange(i * width, (i + 1) * width) for i in order])
        return BlockedWeights(self.data[places], self.scales[places])


def taken_off(graph: NpuGraph) -> dict[Tensor, Tensor]:
    """What constants on a grid are called once they are taken off it, and the constants."""
    off = (n for n in graph.nodes if n.op == "dequantize" and n.operand().constant)
    return {n.output: n.operand() for n in off}


def stored_matrices(graph: NpuGraph) -> dict[Tensor, BlockedWeights]:
    """Matrices that are made of stored integers, with a scale for each row or block of it."""
    off = taken_off(graph)
    found = {n.output: b for n in graph.nodes if (b := blocked(n, off)) is not None}
    return found | {t: w for t, rows in off.items() if (w := scaled_rows(rows)) is not None}


def scaled_rows(t: Tensor) -> BlockedWeights | None:
    """A constant matrix on a grid with a scale for each row, or one for all."""
    if t.data is None or t.grid is None or len(t.shape) != 2 or t.grid.axis == 1 or t.grid.zero_point:
        return None
    scales = np.broadcast_to(np.asarray(t.grid.scale, np.float32).reshape(-1), t.shape[:1])
    return BlockedWeights(t.data, scales[:, None])


def reads(node: Node, blocks: Collection[Tensor], matrices: Collection[Tensor]) -> list[Tensor]:
    """The values that a node's operations read, if weights are written with what reads them.

    Args:
        blocks: weights in blocks, each written as one.
        matrices: what recurrent layers write themselves.
    """
    if node.output in blocks:
        return []
    apart = matrices if isinstance(op_of(node), NpuRecurrent) else ()
    return [t for t in node.operands if t not in apart]


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
    w, shape = None if rows is None else scaled_rows(rows), node.output.shape
    if w is None or not shape or shape[-1] % w.length:
        return None
    return BlockedWeights(w.data.reshape(shape), w.scales.reshape(*shape[:-1], shape[-1] // w.length))
