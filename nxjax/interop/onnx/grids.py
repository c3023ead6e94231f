"""Stored whole numbers of a file as the real numbers that they stand for, on the grid that the file names.

    real = (stored - zero) * scale

Between a QuantizeLinear and a DequantizeLinear a value stays real, so that what computes on it can become a quantized
op. Knows no operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.config.forks import cached_property
from nxjax.interop.graphs.values import straight_through
from nxjax.ops.fake_quantize import quantize_dequantize, quantize_weight
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import grid_integers
from nxjax.quant.qarray import QArray, float_leaf
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, as_value, readonly, wrap
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]

# The dtype of the grid for each dtype of a file, and how much less its zero point is there.
_GRIDS: Final[dict[Any, tuple[Any, int]]] = {
    dtypes.int8: (dtypes.int8, 0),
    dtypes.uint8: (dtypes.int8, 128),
    dtypes.int16: (dtypes.int16, 0),
    dtypes.uint16: (dtypes.int16, 32768),
}
# The largest stored integer whose real value in float32 leads back to it.
REVERSIBLE: Final = 1 << 22
# Storage of weights that are symmetric, by the dtype of a file.
_WEIGHTS: Final[dict[Any, Any]] = {
    dtypes.int8: dtypes.int8,
    dtypes.uint8: dtypes.int8,
    dtypes.int4: dtypes.int4,
    dtypes.uint4: dtypes.int4,
}
# What a grid can be made of: whole numbers that float32 holds.
_STORED: Final = _GRIDS.keys() | _WEIGHTS.keys()


@final
@dataclass(frozen=True, eq=False)
class OnGrid:
    """A stored value, kept as real numbers.

    Attributes:
        real: float32, on the grid.
        scale, zero: as in the file; zero is None where the file leaves it out.
        axis: the axis along which scales lie; None for one scale.
        dtype: of the stored value.
    """

    real: Array
    scale: NDArray
    zero: NDArray | None
    axis: int | None
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.real.shape

    @property
    def ndim(self) -> int:
        return self.real.ndim

    def same(self, scale: Any, zero: Any, axis: int | None) -> bool:
        """Whether these words mean this grid."""
        if not (_is_known(scale) and (zero is None or _is_known(zero))):
            return False
        zeros = [0 if z is None else np.asarray(z) for z in (self.zero, zero)]
        return (
            np.array_equal(np.asarray(scale).reshape(-1), self.scale.reshape(-1))
            and np.array_equal(*(np.broadcast_to(z, self.scale.shape).reshape(-1) for z in zeros))
            and (self.scale.size == 1 or self.axis is None or axis is None or axis % self.real.ndim == self.axis)
        )

    def holding(self, real: Array) -> OnGrid:
        """Other elements on the same grid."""
        return replace(self, real=real)

    def stored(self) -> Array:
        """The whole numbers."""
        grid = tensor_grid(self.scale, self.zero, self.dtype)
        if grid is None:
            return GridSteps.of(self).whole(self.real).astype(jnp.int32).astype(self.dtype)
        less = _GRIDS[self.dtype][1]
        y = grid_integers(self.real, grid)
        return (y + less if less else y).astype(self.dtype)


def stored(x: Any) -> Any:
    """A value as the file holds it."""
    return x.stored() if isinstance(x, OnGrid) else x


def _is_known(x: Any) -> bool:
    return isinstance(x, (DeviceArray, np.ndarray))


def _words(scale: Any, zero: Any, dtype: Any) -> tuple[float, int] | None:
    """The scale and the zero point of a whole tensor of at most 16 bits, if they are known."""
    if dtype not in _GRIDS or not _is_known(scale) or not (zero is None or _is_known(zero)):
        return None
    if scale.size != 1 or scale.dtype != np.float32 or (zero is not None and zero.size != 1):
        return None
    s = float(np.asarray(scale).reshape(()))
    z = 0 if zero is None else int(np.asarray(zero).reshape(()))
    return (s, z) if math.isfinite(s) and s > 0 else None


def tensor_grid(scale: Any, zero: Any, dtype: Any) -> Grid | None:
    """The grid of a whole tensor, of at most 16 bits, if quantized ops have it."""
    found = _words(scale, zero, dtype)
    if found is None:
        return None
    own, less = _GRIDS[dtype]
    s, z = found[0], found[1] - less
    return None if own == dtypes.int16 and z else Grid(own, s, z)


def _over(v: NDArray, rank: int, axis: int | None) -> NDArray:
    """Scales or zero points with the rank of what they are for."""
    return v.reshape([-1 if i == axis else 1 for i in range(rank)] if v.size > 1 else ())


def _says(scale: NDArray, zero: NDArray | None, shape: tuple[int, ...], axis: int) -> bool:
    """Whether these words are a grid of a value of this shape: one step, or one for each index of ``axis``."""
    if scale.dtype != np.float32 or scale.ndim > 1 or not np.all(np.isfinite(scale) & (scale > 0)):
        return False
    if zero is not None and zero.shape != scale.shape and zero.size != 1:
        return False
    return scale.size == 1 or (-len(shape) <= axis < len(shape) and scale.size == shape[axis])


@final
@dataclass(frozen=True, eq=False)
class GridSteps:
    """The words of a grid with the rank of a value, and the arithmetic that ONNX says.

    Attributes:
        scale, zero: float32.
        low, high: the first and the last whole number, counted from the zero point.
    """

    scale: NDArray
    zero: NDArray
    low: NDArray
    high: NDArray

    @classmethod
    def of(cls, x: OnGrid | StoredParameter) -> GridSteps:
        """The steps of what is on a grid."""
        zero = np.float32(0) if x.zero is None else _over(x.zero, x.ndim, x.axis).astype(np.float32)
        info = dtypes.integer_info(x.dtype)
        ends = (np.asarray(int(v) - zero, np.float32) for v in (info.min, info.max))
        return cls(_over(x.scale, x.ndim, x.axis), np.asarray(zero), *ends)

    def whole(self, x: Any) -> Any:
        """The stored whole numbers nearest to real ones, in floats."""
        return jnp.clip(jnp.round(x / self.scale), self.low, self.high) + self.zero

    def nearest(self, x: Any) -> Any:
        """The real numbers of these; the derivative is that of a clip to the ends."""
        exact = lambda v: jnp.clip(jnp.round(v / self.scale), self.low, self.high) * self.scale
        return straight_through(exact, lambda v: jnp.clip(v, self.low * self.scale, self.high * self.scale), x)


def snapped(x: Any, scale: Any, zero: Any, dtype: Any, axis: int = 1) -> OnGrid | None:
    """Real numbers on the grid that the file names, if it is known: of the whole tensor, or one along ``axis``.

    No quantized op has a grid of 16 bits with a zero point, or one along an axis; they have a derivative all the same.
    """
    if x.dtype != np.float32 or dtype not in _STORED or not _is_known(scale) or not (zero is None or _is_known(zero)):
        return None
    scale, zero = np.asarray(scale), None if zero is None else np.asarray(zero)
    if not _says(scale, zero, x.shape, axis):
        return None
    found = OnGrid(x, scale, zero, axis % x.ndim if scale.size > 1 else None, np.dtype(dtype))
    grid = tensor_grid(scale, zero, dtype)
    return found.holding(GridSteps.of(found).nearest(x) if grid is None else quantize_dequantize(x, grid=grid))


@final
@dataclass(frozen=True, eq=False)
class StoredParameter:
    """A tensor of the file that is stored in whole numbers and read as real ones.

    Attributes:
        scale, zero, axis: as in `OnGrid`.
        dtype: of the tensor in the file.
        initial: the parameter: a `QArray`, or float32 where it is a bias of 32 bits, or no quantized op has its grid:
            weights with a zero point, or of 16 bits.
    """

    scale: NDArray
    zero: NDArray | None
    axis: int | None
    dtype: Any
    initial: Any

    @property
    def grid(self) -> Grid | None:
        """The grid of the whole tensor, if it has one scale and 8 bits."""
        one = self.scale.size == 1 and isinstance(self.initial, QArray) and self.initial.dtype == dtypes.int8
        return Grid(dtypes.int8, float(self.scale.reshape(()))) if one else None

    @property
    def ndim(self) -> int:
        return self.initial.ndim

    @property
    def in_floats(self) -> bool:
        """Whether the parameter is float32."""
        return not isinstance(self.initial, QArray)

    def value(self, x: Any, whole: bool) -> OnGrid:
        """A parameter, given as the real numbers ``x``, on the grid; ``whole`` if that is where they are."""
        if whole:
            return OnGrid(x, self.scale, self.zero, self.axis, self.dtype)
        if self.dtype == np.int32:
            x = straight_through(self._nearest, lambda v: v, as_value(x, "from_onnx"))
        elif self.in_floats:
            x = GridSteps.of(self).nearest(as_value(x, "from_onnx"))
        elif self.grid is not None:
            # Weights end at the same distance on both sides of 0.
            last = self.grid.bounds[1]
            x = quantize_dequantize(jnp.clip(x, -last, last), grid=self.grid)
        else:
            x = quantize_weight(x, as_value(self.initial.scale, "from_onnx"), dtype=self.initial.dtype)
        return OnGrid(x, self.scale, self.zero, self.axis, self.dtype)

    def _nearest(self, x: Any) -> Any:
        """The real numbers of the nearest whole ones, as far from 0 as these lead back to them."""
        scale = self.spread(self.scale)
        steps = jnp.round(x.astype(jnp.float64) / wrap(readonly(scale.astype(np.float64))))
        return jnp.clip(steps, -self._last, self._last).astype(jnp.float32) * wrap(readonly(scale))

    @cached_property
    def _last(self) -> int:
        """How far from 0 a bias goes: as far as all real numbers lead back, and as far as the file's own do."""
        own = np.abs(np.asarray(self.initial).astype(np.float64) / self.spread(self.scale))
        return max(REVERSIBLE, int(np.rint(own.max(initial=0))))

    def written(self, x: Any) -> NDArray:
        """The tensor for the file, of a parameter: a `QArray`, or real numbers."""
        zero = 0 if self.zero is None else self.spread(self.zero).astype(np.int64)
        own = self.initial
        same = isinstance(x, QArray) and isinstance(own, QArray) and x.dtype == own.dtype
        if same and np.array_equal(np.asarray(x.scale), np.asarray(own.scale)):
            whole = np.asarray(x.values).astype(np.int64)
        else:
            real = np.asarray(self.value(as_value(float_leaf(x)).astype(jnp.float32), False).real, np.float64)
            whole = np.rint(real / self.spread(self.scale).astype(np.float64)).astype(np.int64)
        info = dtypes.integer_info(self.dtype)
        return np.clip(whole + zero, int(info.min), int(info.max)).astype(self.dtype)

    def spread(self, v: NDArray) -> NDArray:
        """Scales or zero points with the rank of the parameter."""
        return _over(v, self.ndim, self.axis)


def stored_parameter(x: NDArray, scale: NDArray, zero: NDArray | None, axis: int) -> StoredParameter | None:
    """A stored tensor as a parameter, if its real numbers give back its whole numbers; else None."""
    if not x.ndim or not _says(scale, zero, x.shape, axis):
        return None
    found = axis % x.ndim if scale.size > 1 else None
    over = _over(scale, x.ndim, found)
    wide = x.astype(np.int64)
    if zero is not None:
        wide = wide - _over(zero, x.ndim, found).astype(np.int64)
    own = _WEIGHTS.get(x.dtype)
    last = 0 if own is None else int(dtypes.integer_info(own).max)
    if own is not None and np.abs(wide).max(initial=0) <= last:
        over = np.asarray(over.reshape(over.shape or (1,) * x.ndim))
        held = QArray(wrap(readonly(wide.astype(own))), wrap(readonly(over.copy())))
        return StoredParameter(scale, zero, found, x.dtype, held)
    real = wide.astype(np.float32) * over
    reversible = np.array_equal(np.rint(real.astype(np.float64) / over.astype(np.float64)), wide)
    if not reversible or (x.dtype != np.int32 and x.dtype not in _STORED):
        return None
    return StoredParameter(scale, zero, found, x.dtype, wrap(readonly(real)))
