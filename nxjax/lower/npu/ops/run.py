"""One node while it is computed: what the meaning of its op asks about grids and activations. Names no op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from nxjax.errors import ProgramError
from nxjax.lower.npu.attributes import ACTIVATIONS
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import elementwise, functions
from nxjax.ops.quant_grid import Grid, Rounding

# A graph on stored values.
Call = Callable[[NpuGraph, Sequence[NDArray]], list[NDArray]]


@final
class NodeRun:
    """A node, how its chip rounds, its grids, and what computes the graphs that it holds."""

    def __init__(self, node: Node, rounding: Rounding, call: Call) -> None:
        self.node = node
        self.call = call
        self.attrs = node.attrs
        self.rounding: Rounding = rounding
        self.out = node.output
        self.grids = [None if t is None else t.grid for t in node.inputs]

    def refuse(self, why: str, got: object = None) -> ProgramError:
        return ProgramError(f"interpret: {self.node.op}: {why}", got=got, source=self.node.source)

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
        scale, zero = elementwise.scale_of(self.grid), self.grid.zero_point
        least, most = (functions.round_away(np.float32(v) / scale) for v in ACTIVATIONS[activation])
        return max(low, zero + int(max(least, -(2.0**40)))), min(high, zero + int(min(most, 2.0**40)))

    @property
    def limits(self) -> tuple[int, int]:
        """`clamp` of the fused activation."""
        return self.clamp(self.attrs["activation"])

    def activated(self, y: NDArray) -> NDArray:
        """A float result under the fused activation."""
        activation = self.attrs.get("activation")
        return y if activation is None else np.clip(y, *ACTIVATIONS[activation])

    def by_floats(self, function: Callable[..., NDArray], *xs: NDArray) -> NDArray:
        """``function`` of the real values, in float32, put on the grid of the result if it has one."""
        real = [x if g is None else g.dequantize(x) for x, g in zip(xs, self.grids, strict=False)]
        y = np.asarray(function(*real))
        return y if self.out.grid is None else self.out.grid.quantize(y)
