"""The grid of a quantized tensor: storage dtype, scale and zero point. The words in which all quantization is said.

    real = (stored - zero_point) * scale

Per tensor, or per slice of one axis (then with zero point 0, as weights are). Integer dtypes follow TFLite's 8-bit
specification (tensorflow.org/lite/performance/quantization_spec): activations int8 with any zero point, int16 with
zero point 0, weights int8 in [-127, 127].
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.text import param_class

# How a sum of products comes back to eight bits: gemmlowp's two roundings (the default of TFLite), or one.
Rounding = Literal["double", "single"]
ROUNDINGS: Final[tuple[Rounding, ...]] = ("double", "single")


@final
@param_class
@dataclass(frozen=True)
class Grid:
    """Where the representable values of a tensor lie.

    Attributes:
        dtype: storage dtype: int4, int8, uint8, int16 or int32.
        scale: distance between neighbours, a positive float32 value; a tuple, one per slice, if ``axis`` is given.
        zero_point: the stored integer that means 0.
        axis: the axis whose slices have their own scale.

    >>> Grid(np.dtype("int8"), 0.5, -128).bounds
    (0.0, 127.5)
    """

    dtype: DType
    scale: float | tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    def __post_init__(self) -> None:
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        if not all(math.isfinite(s) and s > 0 for s in scales):
            raise ParameterError(
                "quantize: a scale is not positive and finite",
                got=self.scale,
                fix="calibrate on data that has no infinities or NaN",
            )
        if isinstance(self.scale, tuple) != (self.axis is not None):
            raise ParameterError("quantize: one scale per slice goes with an axis", got=self)
        low, high = self.limits
        if not low <= self.zero_point <= high or (self.axis is not None and self.zero_point):
            raise ParameterError("quantize: zero point", got=self.zero_point, expected=f"in [{low}, {high}]")

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest stored integer that the dtype has."""
        info = dtypes.integer_info(self.dtype)
        return int(info.min), int(info.max)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest real value of a per-tensor grid."""
        assert not isinstance(self.scale, tuple)
        low, high = self.limits
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    def scales(self, ndim: int) -> NDArray:
        """The scales as float32, shaped so that they broadcast against a tensor of ``ndim`` dimensions."""
        scale = np.asarray(self.scale, np.float32)
        if self.axis is None:
            return scale
        return scale.reshape(tuple(-1 if i == self.axis else 1 for i in range(ndim)))

    def quantize(self, x: NDArray) -> NDArray:
        """Stored integers for real ``x``: division in float32, halves away from zero, as TFLite's QUANTIZE does."""
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.asarray(x, np.float32) / self.scales(x.ndim)
            # Adding 0.5 first would lift 0.5 - 1ulp to 1; what is left after the cut is exact.
            whole = np.trunc(ratio)
            rounded = whole + np.where(np.abs(ratio - whole) >= 0.5, np.copysign(np.float32(1), ratio), np.float32(0))
        low, high = self.limits
        kept = np.clip(np.nan_to_num(rounded.astype(np.float64)) + self.zero_point, low, high)
        return np.asarray(kept.astype(self.dtype))

    def dequantize(self, q: NDArray) -> NDArray:
        """Real float32 values of stored integers: one float32 product."""
        # Of rank 0, NumPy gives scalars where arrays are meant.
        return np.asarray((q.astype(np.int32) - self.zero_point).astype(np.float32) * self.scales(q.ndim))


def asymmetric(low: float, high: float, dtype: DType = dtypes.int8) -> Grid:
    """The grid that covers [low, high] and holds 0 exactly (nudged as in TensorFlow's ``fake_quant`` ops).

    >>> asymmetric(0.0, 6.0).zero_point
    -128
    """
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if high == low:
        high = 1.0
    info: Any = dtypes.integer_info(dtype)
    first, last = int(info.min), int(info.max)
    # Not below the least normal number: compilers take smaller ones for 0.
    scale = max(float(np.float32((high - low) / (last - first))), float(np.finfo(np.float32).tiny))
    zero = int(min(max(math.floor(first - low / scale + 0.5), first), last))
    return Grid(dtype, _finite(scale, max(zero - first, last - zero)), zero)


def symmetric(bound: float, dtype: DType = dtypes.int16) -> Grid:
    """The grid with zero point 0 that covers [-bound, bound].

    >>> symmetric(1.0, np.dtype("int8")).quantize(np.float32([1, -1])).tolist()
    [127, -127]
    """
    last = int(dtypes.integer_info(dtype).max)
    bound = abs(float(bound)) or 1.0
    # The integer below -last is on the grid, too.
    return Grid(dtype, _finite(max(float(np.float32(bound / last)), float(np.finfo(np.float32).tiny)), last + 1), 0)


def _finite(scale: float, steps: int) -> float:
    """``scale``, or the largest with which ``steps`` of it are a finite float32."""
    most = float(np.finfo(np.float32).max)
    return scale if scale * steps <= most else float(np.nextafter(np.float32(most / steps), np.float32(0)))
