"""The family of quantized ops: float in, float out on the grid of the result, integers only inside.

Each op says its integer meaning twice: `exact` in NumPy (the oracle, on stored integers) and `traced` in ops (what
compilers get). Its derivative is straight-through: that of the float op at the grid values, zero where the result is
clamped (Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons"; Jacob et al. 2018).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, NamedTuple, final

from nxjax.ops.arithmetic import add
from nxjax.ops.base import NDArray, check_dtype, require
from nxjax.ops.quant_grid import ROUNDINGS, Grid, Rounding
from nxjax.ops.quant_traced import from_stored, grid_integers, straight_through
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Op, Tangents
from nxjax.trace.types import ArrayType

# What values are stored as between ops; weights have dtypes of their own.
STORED: Final = (dtypes.int4, dtypes.int8, dtypes.uint8, dtypes.int16)
FLOAT32 = frozenset((dtypes.float32,))


@final
class ResultGrid(NamedTuple):
    """Where results go: their grid, the clamp in stored integers, and how rescaling rounds."""

    grid: Grid
    lo: int
    hi: int
    rounding: Rounding


class QuantizedOp(Op):
    """``operands`` names the grid parameter of each leading operand, ``result`` that of the result."""

    absorbs_nan = True
    operands: ClassVar[tuple[str, ...]] = ("x_grid",)
    result: ClassVar[str] = "y_grid"

    @abstractmethod
    def exact(self, *stored: NDArray, **params: Any) -> NDArray:
        """Stored integers of the result from stored integers of the leading operands (others as they are)."""

    @abstractmethod
    def traced(self, *stored: Array, **params: Any) -> Array:
        """`exact` in ops: int32 in, int32 out."""

    @abstractmethod
    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        """The tangent of the float op, not yet masked; None if no tangent arrives."""

    def check(self, *types: ArrayType, **params: Any) -> None:
        """What every `infer` checks."""
        check_dtype(self, FLOAT32, *types)
        for name in (*self.operands, self.result):
            grid = params[name]
            fine = isinstance(grid, Grid) and grid.axis is None and grid.dtype in STORED
            require(self, fine, name, grid, f"a per-tensor Grid of {', '.join(map(dtypes.short_name, STORED))}")
        low, high = params[self.result].limits
        lo, hi = self.limits(**params)
        require(self, low <= lo <= hi <= high, "lo and hi", (lo, hi), f"{low} <= lo <= hi <= {high}")
        if "rounding" in params:
            rounding = params["rounding"]
            require(self, rounding in ROUNDINGS, "rounding", rounding, " or ".join(ROUNDINGS))

    def limits(self, **params: Any) -> tuple[int, int]:
        """The clamp in stored integers of the result."""
        return (params["lo"], params["hi"]) if "lo" in params else params[self.result].limits

    def output(self, params: dict[str, Any]) -> tuple[ResultGrid, dict[str, Any]]:
        """Where results go, and the other parameters."""
        names = (self.result, "lo", "hi", "rounding")
        return ResultGrid(*(params[n] for n in names)), {n: v for n, v in params.items() if n not in names}

    def eval(self, *xs: NDArray, **params: Any) -> NDArray:
        n = len(self.operands)
        stored = [params[g].quantize(x) for g, x in zip(self.operands, xs, strict=False)]
        return params[self.result].dequantize(self.exact(*stored, *xs[n:], **params))

    def expand(self, *xs: Array, **params: Any) -> Array:
        n = len(self.operands)
        stored = [grid_integers(x, params[g]) for g, x in zip(self.operands, xs, strict=False)]
        return from_stored(self.traced(*stored, *xs[n:], **params), params[self.result])

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        y = self(*primals, **params)
        if all(t is None for t in tangents):
            return y, None
        t = self.tangent(y, primals, tangents, **params)
        return y, None if t is None else straight_through(t, y, params[self.result], *self.limits(**params))

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any, **params: Any) -> Any:
        return b.inline(self.expand, xs, params)


def sum_tangents(parts: Tangents) -> Array | None:
    """The sum of the tangents that are there."""
    found: Array | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else add(found, part)
    return found
