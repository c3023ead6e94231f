"""A graph brought onto power-of-two scales, which requantize by shifts: what AMD's XINT8 and other such NPUs read.

This changes what the graph computes: grids get coarser by up to a factor of two, and lose their zero points. The notes
say so; quantizing with such grids from the start is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, held_graphs
from nxjax.lower.npu.ops import op_of
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType


def power_of_two(scale: float) -> bool:
    """Whether a scale is 2**k.

    >>> power_of_two(0.125), power_of_two(0.1)
    (True, False)
    """
    return math.frexp(scale)[0] == 0.5


def regular(grid: Grid | None) -> bool:
    """Whether all scales of a grid are powers of two."""
    if grid is None:
        return True
    return all(map(power_of_two, grid.scale if isinstance(grid.scale, tuple) else (grid.scale,)))


def covering(bound: float, dtype: DType) -> Grid:
    """The symmetric grid on the least power of two that reaches ``bound``, which may saturate by two steps.

    >>> covering(1.0, np.dtype("int8")).scale
    0.0078125
    """
    low, high = Grid(dtype, 1.0).limits
    middle = 0 if low else (high + 1) // 2
    mantissa, exponent = math.frexp(bound / (high - middle + 2)) if bound > 0 else (0.5, 0)
    return Grid(dtype, math.ldexp(1.0, exponent - (mantissa == 0.5)), middle)


def regrid(graph: NpuGraph, per_channel: bool = False) -> tuple[NpuGraph, list[str]]:
    """The graph with every scale a power of two, and what was changed.

    Activations on other scales move to the finest symmetric grid that covers the same range; constants and tables are
    rounded onto their new grids, biases onto the product of them.

    Args:
        graph: any graph; it stays as it is.
        per_channel: whether weights may keep one scale per channel; shift-only NPUs take one per tensor.
    """
    made: dict[Tensor, Tensor] = {}
    notes = _Notes()

    def activation(grid: Grid) -> Grid:
        if regular(grid):
            return grid
        low, high = grid.bounds
        return covering(max(-low, high), grid.dtype)

    def constant(t: Tensor, grid: Grid, weights: bool) -> Tensor:
        assert t.data is not None
        real = grid.dequantize(t.data)
        if regular(grid) and (per_channel or grid.axis is None):
            return t
        if grid.axis is not None and per_channel:
            rows = np.moveaxis(np.abs(real), grid.axis, 0).reshape(real.shape[grid.axis], -1).max(1, initial=0)
            scales = [covering(float(r), grid.dtype).scale for r in rows]
            new = replace(grid, scale=tuple(s for s in scales if isinstance(s, float)))
        elif not weights and grid.axis is None:
            # As activations on that grid: some operators want their operands on one.
            new = activation(grid)
        else:
            new = covering(float(np.abs(real).max(initial=0)), grid.dtype)
        # The least integer has no counterpart, and symmetric weights do without it.
        data = np.maximum(new.quantize(real), new.limits[0] + 1).astype(t.dtype)
        notes.constant(t.name, real, new.dequantize(data))
        return Tensor(t.name, t.shape, t.dtype, new, data)

    def moved(t: Tensor, weights: bool = False) -> Tensor:
        if t not in made:
            if t.grid is None or t.dtype in (dtypes.int32, dtypes.int64):
                made[t] = t if t.constant else Tensor(t.name, t.shape, t.dtype, t.grid)
            elif t.constant:
                made[t] = constant(t, t.grid, weights)
            else:
                grid = activation(t.grid)
                notes.activation(t.grid, grid)
                made[t] = Tensor(t.name, t.shape, t.dtype, grid)
        return made[t]

    nodes: list[Node] = []
    inputs = [moved(t) for t in graph.inputs]
    for n in graph.nodes:
        weighted = op_of(n).weighted
        operands = [None if t is None else moved(t, weighted and i == 1) for i, t in enumerate(n.inputs)]
        if weighted and len(n.inputs) > 2 and (b := n.inputs[2]) is not None:
            operands[2] = _bias(n, b, operands)
        outputs = tuple(moved(t) for t in n.outputs)
        attrs = _table(n, operands, outputs)
        for name, inner in held_graphs(n).items():
            attrs = {**attrs, name: regrid(inner, per_channel)[0]}
        new = replace(n, inputs=tuple(operands), outputs=outputs, attrs=attrs)
        nodes.append(new if n.output.grid == new.output.grid else said(n, new))
    result = NpuGraph(graph.name, inputs, [moved(t) for t in graph.outputs], nodes, graph.rounding)
    return result.check(), notes.lines()


def _bias(n: Node, b: Tensor, operands: list[Tensor | None]) -> Tensor:
    """An integer bias on the product of the new scales of operand and weights."""
    x, w = n.inputs[:2]
    new_x, new_w = operands[:2]
    if x is None or w is None or new_x is None or new_w is None or b.data is None or b.dtype.kind != "i":
        return b
    if not (x.grid and w.grid and new_x.grid and new_w.grid):
        return b
    old = np.float64(np.asarray(x.grid.scale)) * np.asarray(w.grid.scale, np.float64)
    new = np.float64(np.asarray(new_x.grid.scale)) * np.asarray(new_w.grid.scale, np.float64)
    info: Any = np.iinfo(b.dtype)
    data = np.clip(np.rint(b.data * (old / new)), info.min, info.max).astype(b.dtype)
    grid = None if b.grid is None else Grid(b.dtype, float(new)) if new.ndim == 0 else replace(b.grid, scale=tuple(new))
    return Tensor(b.name, b.shape, b.dtype, grid, data)


def said(old: Node, new: Node) -> Node:
    """``new`` with the activation that ``old``'s grid was: one from 0 up saturates as a relu does."""
    grid = old.output.grid
    if grid is None or grid.axis is not None:
        return new
    low, high = grid.bounds
    assert isinstance(grid.scale, float)
    if low == 0:
        kind = "relu6" if abs(high - 6) <= grid.scale else "relu"
    elif max(abs(low + 1), abs(high - 1)) <= grid.scale:
        kind = "relu_n1_to_1"
    else:
        return new
    if "activation" in new.attrs and new.attrs["activation"] is None:
        return replace(new, attrs={**new.attrs, "activation": kind})
    if new.op == "quantize" and old.operands[0].grid is not None:
        return replace(new, op=kind)
    return new


def _table(n: Node, operands: list[Tensor | None], outputs: tuple[Tensor, ...]) -> dict[str, Any]:
    """The attributes, with a table read at the new operand's values and rounded onto the new result's grid."""
    x, new_x = n.inputs[0] if n.inputs else None, operands[0] if operands else None
    y, new_y = n.output, outputs[0]
    if n.op != "table" or x is None or new_x is None or not (x.grid and new_x.grid and y.grid and new_y.grid):
        return n.attrs
    stored = np.arange(-128, 128)
    at = x.grid.quantize(new_x.grid.dequantize(stored)).astype(np.int64) + 128
    values = y.grid.dequantize(np.asarray(n.attrs["values"], y.dtype).reshape(256)[at])
    return {**n.attrs, "values": new_y.grid.quantize(values)}


class _Notes:
    """What a regridding changed, in a few lines."""

    def __init__(self) -> None:
        self.growth: list[float] = []
        self.errors: dict[str, float] = {}

    def activation(self, old: Grid, new: Grid) -> None:
        if new != old:
            assert isinstance(old.scale, float) and isinstance(new.scale, float)
            self.growth.append(new.scale / old.scale)

    def constant(self, name: str, old: NDArray, new: NDArray) -> None:
        top = float(np.abs(old).max(initial=0)) or 1.0
        self.errors[name] = float(np.abs(old - new).max(initial=0)) / top

    def lines(self) -> list[str]:
        out: list[str] = []
        if self.growth:
            out.append(
                f"{len(self.growth)} activations moved to symmetric power-of-two scales, "
                f"up to {max(self.growth):.2f} times coarser; results differ from the integer reference"
            )
        if self.errors:
            worst: Mapping[str, float] = self.errors
            name = max(worst, key=lambda k: worst[k])
            out.append(
                f"{len(worst)} constants rounded onto power-of-two scales; "
                f"{name} worst, by {worst[name]:.2%} of its range"
            )
        return out
