"""Discrete Fourier transforms over the last one to three dimensions.

Scaling, padding and axes as users name them belong to `nxjax.numpy.fft`.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.arithmetic import mul
from nxjax.ops.base import LastAxes, LinearOp, NDArray, move_batch, require
from nxjax.ops.complex import conj, real
from nxjax.ops.shape import broadcast_in_dim
from nxjax.ops.slicing import pad, zero
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType, Shape


@final
@param_class
class FftType(Enum):
    """Which transform: complex or real, forwards (unscaled) or backwards (divided by the number of elements).

    >>> lax.fft(jnp.array([1.0, 0.0, 0.0]), lax.FftType.RFFT, (3,))
    Array([1.+0.j, 1.+0.j], dtype=complex64)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


@final
class Fft(LastAxes, LinearOp):
    """The transform of the last ``len(fft_lengths)`` dimensions.

    FFT and IFFT map complex to complex of the same shape. RFFT maps real input to the ``n // 2 + 1`` frequencies of the
    last dimension that determine the others; IRFFT is its inverse.
    """

    name = "fft"

    def core_ndim(self, *, fft_lengths: Shape, **params: Any) -> int:
        return len(fft_lengths)

    def infer(self, x: ArrayType, /, *, fft_type: FftType, fft_lengths: Shape) -> ArrayType:
        rank = len(fft_lengths)
        require(self, 1 <= rank <= 3, "number of dimensions", fft_lengths, "1 to 3", "apply it twice for more")
        real = fft_type is FftType.RFFT
        if x.dtype not in ((dtypes.float32, dtypes.float64) if real else dtypes.COMPLEX):
            raise DtypeError(
                f"fft: {fft_type.name} does not take this dtype",
                got=x,
                expected="float32 or float64" if real else "complex64 or complex128",
            )
        last = fft_lengths[-1]
        frequencies = last // 2 + 1 if last else 0
        wanted = (*fft_lengths[:-1], frequencies if fft_type is FftType.IRFFT else last)
        if x.ndim < rank or x.shape[x.ndim - rank :] != wanted:
            raise ShapeError(
                f"fft: {fft_type.name} of lengths {fft_lengths} does not fit the operand",
                got=x,
                expected=f"last dimensions {wanted}",
            )
        front = x.shape[: x.ndim - rank]
        if real:
            return ArrayType((*front, *fft_lengths[:-1], frequencies), dtypes.complex_of(x.dtype))
        if fft_type is FftType.IRFFT:
            return ArrayType((*front, *fft_lengths), dtypes.real_part(x.dtype), x.weak)
        return x

    def eval(self, x: NDArray, /, *, fft_type: FftType, fft_lengths: Shape) -> NDArray:
        axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
        out = self.infer(ArrayType(x.shape, x.dtype), fft_type=fft_type, fft_lengths=fft_lengths)
        if 0 in x.shape:
            return np.zeros(out.shape, out.dtype)
        if fft_type is FftType.FFT:
            y = np.fft.fftn(x, axes=axes)
        elif fft_type is FftType.IFFT:
            y = np.fft.ifftn(x, axes=axes)
        elif fft_type is FftType.RFFT:
            y = np.fft.rfftn(x, axes=axes)
        else:
            y = np.fft.irfftn(x, s=fft_lengths, axes=axes)
        return y.astype(out.dtype, copy=False)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, fft_type: FftType, fft_lengths: Shape) -> Tangents:
        # The matrices of FFT and IFFT are symmetric, and the pairing does not conjugate.
        if fft_type in (FftType.FFT, FftType.IFFT):
            return (self(ct, fft_type=fft_type, fft_lengths=fft_lengths),)

        n = fft_lengths[-1]
        if fft_type is FftType.RFFT:
            # RFFT is FFT without the upper frequencies, of a real operand.
            missing = n - ct.shape[-1]
            full = pad(ct, zero(ct), padding_config=(*((0, 0, 0),) * (ct.ndim - 1), (0, missing, 0)))
            return (real(self(full, fft_type=FftType.FFT, fft_lengths=fft_lengths)),)
        # IRFFT is Re(IFFT) with every frequency counted twice that stands for its mirror image too.
        weights = np.full(x.shape[-1], 2 / math.prod(fft_lengths))
        weights[0] /= 2
        if n % 2 == 0:
            weights[-1] /= 2
        back = conj(self(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
        scale = broadcast_in_dim(
            wrap(weights.astype(back.dtype)), shape=back.shape, broadcast_dimensions=(back.ndim - 1,)
        )
        return (mul(back, scale),)

    def batch(self, size: int, args: Arrays, dims: Dims, *, fft_type: FftType, fft_lengths: Shape) -> tuple[Any, Any]:
        return self(move_batch(args[0], dims[0], size), fft_type=fft_type, fft_lengths=fft_lengths), 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, fft_type: FftType, fft_lengths: Shape) -> Any:
        if 0 in x.type.shape or 0 in out.shape:
            return b.constant(0, out)
        attrs = f"fft_type = #stablehlo<fft_type {fft_type.name}>, fft_length = {b.ints(fft_lengths)}"
        return b.op("stablehlo.fft", (x,), out, attrs)


fft = Fft()
