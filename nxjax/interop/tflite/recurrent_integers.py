"""LSTM in whole numbers: 8-bit values and weights, 16-bit cells and gates, as LiteRT's reference kernels compute it.

Gates are sums of products in Q3 of 16 bits; the logistic function and tanh are those of 16-bit fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.graph import TFLiteNode, invalid
from nxjax.interop.tflite.held import GridValue, grid_of
from nxjax.ops.fixed.functions import scale_of
from nxjax.ops.fixed.series16 import logistic16, tanh16
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import rescale_static, take_row, wrap_int32
from nxjax.trace import dtypes

_F = np.float32
_Q3 = _F(2**-12)


def _saturated(x: Any) -> Any:
    return jnp.clip(x, -32768, 32767)


def _rescaled(x: Any, real: Any) -> Any:
    """int64 values times a scale that was rounded to float32."""
    return rescale_static(wrap_int32(x), np.float64(_F(real)), "double")


def _by_table(table: Any, x: Any) -> Any:
    return take_row(table, (x + 32768).astype(jnp.int32)).astype(jnp.int64)


def _by_power(x: Any, bits: int) -> Any:
    """``x / 2**bits`` to the nearest, halves away from zero."""
    return jnp.sign(x) * ((jnp.abs(x) + ((1 << bits) >> 1)) >> bits)


class IntegerLstm:
    """One LSTM whose operands are those of UNIDIRECTIONAL_SEQUENCE_LSTM."""

    def __init__(self, xs: Sequence[Any], node: TFLiteNode, clip: float, proj_clip: float) -> None:
        self.xs, self.node = xs, node
        norms = any(self.at(i) is not None for i in range(20, 24))
        if norms or len(node.intermediates) != 5:
            raise Refused("from_tflite: an integer LSTM with normalized gates, or with 8-bit cells", got=node)
        x, h, cell = (self.held(i) for i in (0, 18, 19))
        hidden = grid_of(node.intermediates[4])
        self.x, self.h, self.hidden = x.grid, h.grid, (_F(hidden.scales[0]), int(hidden.zeros[0]))
        power = float(np.log2(scale_of(cell.grid)))
        if self.x.dtype != dtypes.int8 or cell.grid.dtype != dtypes.int16 or abs(power - round(power)) > 1e-3:
            raise Refused("from_tflite: an LSTM of whole numbers that are not 8 bits with 16-bit cells", got=node)
        self.power = round(power)
        self.clip = min(int(_F(clip) / scale_of(cell.grid)), 32767)
        self.proj_clip = min(int(_F(proj_clip) / scale_of(self.h)), 127)
        self.coupled = self.at(1) is None

    def at(self, i: int) -> Any:
        return self.xs[i] if i < len(self.xs) else None

    def held(self, i: int) -> GridValue:
        found = self.at(i)
        if not isinstance(found, GridValue):
            raise invalid("an integer LSTM with an operand that has no grid", f"{self.node}: operand {i}")
        return found

    def product(self, v: Any, grid: Grid, w: GridValue, bias: Any, to: Any) -> Any:
        """Rows of stored integers less their zero point with weights, on a scale."""
        total = jnp.matmul(v - grid.zero_point, w.stored.astype(jnp.int64).T)
        total = total if bias is None else total + bias.stored.astype(jnp.int64)
        return _rescaled(total, scale_of(w.grid) * scale_of(grid) / to)

    def gate(self, k: int, x: Any, h: Any, cell: Any) -> Any:
        """Gate ``k`` of input, forget, cell and output, before its activation."""
        y = _saturated(self.product(x, self.x, self.held(1 + k), self.at(12 + k), _Q3))
        y = _saturated(y + self.product(h, self.h, self.held(5 + k), None, _Q3))
        peep = None if k == 2 else self.at(9 + (k if k < 2 else 2))
        if peep is None:
            return y
        real = 2.0**self.power * np.float64(scale_of(peep.grid)) / np.float64(_Q3)
        return _saturated(y + _rescaled(cell * peep.stored.astype(jnp.int64), real))

    def step(self, state: Any, x: Any) -> Any:
        h, cell = (v.astype(jnp.int64) for v in state)
        x = x.astype(jnp.int64)
        f = _by_table(logistic16(), self.gate(1, x, h, cell))
        i = 32767 - f if self.coupled else _by_table(logistic16(), self.gate(0, x, h, cell))
        g = _by_table(tanh16(3), self.gate(2, x, h, cell))
        new = _saturated(_by_power(f * cell, 15) + _by_power(i * g, 30 + self.power))
        new = jnp.clip(new, -self.clip, self.clip) if self.clip > 0 else new
        o = _by_table(logistic16(), self.gate(3, x, h, new))
        scale, zero = self.hidden
        y = _rescaled(o * _by_table(tanh16(15 + self.power), new), 2.0**-15 / np.float64(scale) * 2.0**-15)
        # In front of a projection the kernel takes the zero point off, which shows where values saturate.
        zero = zero if self.at(16) is None else -zero
        y = jnp.clip(y + zero, -128, 127)
        if self.at(16) is not None:
            grid = Grid(dtypes.int8, float(scale), zero)
            y = self.product(y, grid, self.held(16), self.at(17), scale_of(self.h)) + self.h.zero_point
            y = jnp.clip(y, -128, 127)
            y = jnp.clip(y, -self.proj_clip, self.proj_clip) if self.proj_clip > 0 else y
        after = y.astype(jnp.int8), new.astype(jnp.int16)
        return after, after[0]

    def run(self, time_major: bool, keep: Callable[[int, Any], None]) -> Any:
        """Stored results of all steps; ``keep`` takes the states for the next call."""
        x = self.held(0).stored
        rows = x if time_major else x.swapaxes(0, 1)
        (h, cell), ys = lax.scan(self.step, (self.held(18).stored, self.held(19).stored), rows)
        keep(18, h)
        keep(19, cell)
        return ys if time_major else ys.swapaxes(0, 1)
