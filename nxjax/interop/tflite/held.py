"""A value on a grid while a graph is walked: its stored integers, or the real numbers that they stand for.

Quantized ops of nxjax take and give real numbers on a grid; operators without such an op compute on stored integers.
Either form is made from the other when it is asked for. Knows no operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, concrete, straight_through
from nxjax.interop.tflite.graph import REVERSIBLE, Quantization, TFLiteTensor, invalid
from nxjax.ops.fake_quantize import quantize_dequantize, quantize_weight
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import from_stored, grid_integers
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, readonly, wrap


@final
class GridValue:
    """A value on the grid of ``quantization``.

    Attributes:
        tensor: the constant of the file that it is, if it is one.
    """

    def __init__(
        self, quantization: Quantization, *, stored: Any = None, real: Any = None, tensor: TFLiteTensor | None = None
    ) -> None:
        assert stored is not None or real is not None
        self.quantization, self.tensor = quantization, tensor
        self._stored: Any = stored
        self._real: Any = real

    @property
    def grid(self) -> Grid:
        """The grid of the whole value."""
        return self.quantization.grid

    @property
    def is_real(self) -> bool:
        """Whether it came as real numbers."""
        return self._real is not None

    @property
    def known(self) -> bool:
        return concrete(self._stored if self._real is None else self._real)

    @property
    def either(self) -> Any:
        """The form that is there."""
        return self._stored if self._real is None else self._real

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.either.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> Any:
        return self.either.type

    @property
    def real(self) -> Any:
        """Real numbers, float32."""
        if self._real is None:
            q = self.quantization
            if q.per_tensor and q.dtype in dtypes.INTEGER and dtypes.bit_width(q.dtype) <= 16:
                self._real = from_stored(self._stored.astype(jnp.int32), q.grid)
            else:
                rank = self._stored.ndim
                shifted = self._stored.astype(jnp.int64) - jnp.asarray(q.spread(q.zeros, rank))
                self._real = shifted.astype(jnp.float32) * jnp.asarray(q.spread(q.scales, rank))
        return self._real

    @property
    def stored(self) -> Any:
        """Stored integers, in the dtype of the file."""
        if self._stored is None:
            self._stored = self._from_real()
        return self._stored

    def _from_real(self) -> Any:
        q, x = self.quantization, self._real
        if q.per_tensor and dtypes.bit_width(q.dtype) <= 16:
            return whole(lambda v: grid_integers(v, q.grid), x).astype(q.dtype)
        return whole(lambda v: _rounded(q, v, 1 << 53), x)

    def centred(self, dtype: Any = jnp.int32) -> Any:
        """Stored integers less the zero point."""
        q = self.quantization
        x = self.stored.astype(dtype)
        return x - jnp.asarray(q.spread(q.zeros, x.ndim).astype(dtype)) if q.zeros.any() else x

    def __repr__(self) -> str:
        return f"GridValue({self.type})"


def parameter(tensor: TFLiteTensor, x: Any) -> Any:
    """Real numbers as ``tensor`` can store them: on its grid, with the derivative of ``x`` within its ends.

    A sparse tensor keeps what it does not store. `TFLiteFunction.save` writes what this is.
    """
    q = tensor.grid
    x = as_value(x, tensor.name).astype(tensor.dtype if q is None else jnp.float32)
    if tensor.places is not None:
        kept = np.zeros(tensor.shape, np.bool_)
        kept.reshape(-1)[tensor.places] = True
        x = jnp.where(constant(kept), x, constant(tensor.real))
    if q is None:
        return x
    if tensor.symmetric:
        scale = constant(np.broadcast_to(q.spread(q.scales, x.ndim), q.scale_shape(x.ndim)))
        real = quantize_weight(x, scale, dtype=q.dtype)
    elif q.per_tensor and dtypes.bit_width(q.dtype) <= 16:
        real = quantize_dequantize(x, grid=q.grid)
    else:
        real = straight_through(lambda v: GridValue(q, stored=_rounded(q, v, REVERSIBLE - 1)).real, lambda v: v, x)
    return GridValue(q, real=real, tensor=tensor)


def _rounded(q: Quantization, x: Any, most: int) -> Any:
    """The stored integers nearest to real numbers, at most so many steps from 0."""
    info = dtypes.integer_info(q.dtype)
    steps = jnp.round(x.astype(jnp.float64) / constant(q.spread(q.scales, x.ndim).astype(np.float64)))
    steps = jnp.clip(jnp.where(jnp.isnan(steps), 0.0, steps), -most, most)
    placed = steps.astype(jnp.int64) + constant(q.spread(q.zeros, x.ndim))
    return jnp.clip(placed, int(info.min), int(info.max)).astype(q.dtype)


def whole(function: Callable[[Any], Any], x: Any) -> Any:
    """``function`` of real numbers, which gives integers and so has no derivative."""
    return function(lax.stop_gradient(x))


def grid_of(tensor: TFLiteTensor | None) -> Quantization:
    """The grid that a tensor must have."""
    if tensor is None or tensor.grid is None:
        raise invalid("a quantized operator with a tensor that has no grid", tensor and tensor.name)
    return tensor.grid


def numbers(x: Any) -> Any:
    """The elements of a held value that is known."""
    if not x.known:
        raise Refused("from_tflite: a quantized operand decides shapes")
    return np.asarray(x.stored)


def constant(x: Any) -> Any:
    """An array that is known."""
    return wrap(readonly(np.asarray(x)))
