"""The network that a vendor's compiler is asked for besides the user's, once in a process.

A tool that answers both with the same file has read neither. Knows graphs, no vendor and no format.
"""

from __future__ import annotations

from functools import lru_cache

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes


@lru_cache(2)
def probe(quantized: bool) -> NpuGraph:
    """A relu of a shape and a grid that no user's network is likely to have, and no weights."""
    grid = Grid(dtypes.int8, 0.0371, -5) if quantized else None
    x, y = (Tensor(name, (1, 7, 5, 3), dtypes.int8 if quantized else dtypes.float32, grid) for name in "xy")
    return NpuGraph("probe", [x], [y], [Node("relu", (x,), (y,))]).check()
