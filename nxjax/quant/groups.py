"""Groups: equations that become one quantized op, and the interpreter's interface for them.

A group says which values it needs on grids, which grid its result has, and how it is computed. What follows a product
(bias, scale and shift per channel, relu) belongs to its group, as in every NPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import numpy as np

from nxjax.ops.quant_grid import Grid
from nxjax.quant.scheme import Scheme
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var


class StoredWeight(NamedTuple):
    """How a weight comes that is quantized: its scales and the dtype of what they scale."""

    scale: Array
    dtype: DType


class Rounding(NamedTuple):
    """Weights in the product's layout: shares of their usual scales, and what is added to the nearest whole numbers."""

    shares: Array
    steps: Array | None


class Values(Protocol):
    """What has been computed so far."""

    def value(self, a: Atom) -> Array:
        """The float value."""
        ...

    def correction(self, group: FusedGroup) -> Array | None:
        """What is added to the bias of a product, per channel; None where nothing is."""
        ...

    def weight_scale(self, a: Atom) -> StoredWeight | None:
        """How a weight that comes quantized is stored; the scales are of its own rank."""
        ...

    def rounding(self, group: FusedGroup) -> Rounding | None:
        """How the weights of a product are stored where calibration found better than the nearest numbers."""
        ...


class GridWalk(Values, Protocol):
    """The interpreter on grids, as groups see it."""

    def on_grid(self, a: Atom, dtype: DType) -> tuple[Array, Grid]:
        """The value on a grid of ``dtype``: its own, or the one its range gives."""
        ...

    def grid_of(self, a: Atom) -> Grid | None:
        """The grid that the value lies on already."""
        ...

    def moved_to(self, a: Atom, grid: Grid) -> Array:
        """The value on ``grid``."""
        ...

    def result_grid(self, v: Var, dtype: DType) -> Grid:
        """The grid that the range of ``v`` gives."""
        ...


@dataclass(eq=False)
class FusedGroup(ABC):
    """Equations that are computed as one.

    Attributes:
        equations: in program order; the last makes ``output``.
        activations: operands that are wanted on grids.
        output: what the group makes.
        scheme: what the policy said.
    """

    equations: tuple[Equation, ...]
    activations: tuple[Atom, ...]
    output: Var
    scheme: Scheme

    @property
    def dtype(self) -> DType:
        """The storage dtype of activations."""
        assert self.scheme.activations is not None
        return self.scheme.activations

    def fixed_grid(self) -> Grid | None:
        """The grid that the op's specification gives its result, if it does."""
        return None

    def prepare(self, walk: Values) -> dict[Var, Array]:
        """Operands that no equation makes and the group computes itself."""
        return {}

    @property
    def moves(self) -> bool:
        """Whether the result keeps the operand's grid."""
        return False

    @abstractmethod
    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        """The value of ``output``, and its grid if it lies on one."""


@final
@dataclass(frozen=True)
class FusedClamp:
    """A fused activation: bounds in real numbers, None where there is none."""

    low: float | None = None
    high: float | None = None

    def stored(self, grid: Grid) -> tuple[int, int]:
        """The bounds as stored integers of ``grid``."""
        least, most = grid.limits
        if self.low is not None:
            least = max(least, int(grid.quantize(np.asarray([self.low], np.float32))[0]))
        if self.high is not None:
            most = min(most, int(grid.quantize(np.asarray([self.high], np.float32))[0]))
        return least, max(least, most)

    def within(self, low: float | None, high: float | None) -> FusedClamp:
        """This clamp and then another."""
        lows = [v for v in (self.low, low) if v is not None]
        highs = [v for v in (self.high, high) if v is not None]
        return FusedClamp(max(lows, default=None), min(highs, default=None))
