"""Change of element type, by value and by bits."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.base import Elementwise, NDArray, Nondifferentiable, move_batch
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


@final
class ConvertElementType(Elementwise):
    """``x`` by value in another dtype: floats round to nearest even, float to integer truncates and saturates.

    Integers become 8- and 16-bit floats by way of float32, as in XLA.
    Linear between inexact dtypes (for complex to real it drops the imaginary part). To bool it is ``x != 0``.
    """

    name = "convert_element_type"
    makes_nan = False
    aliases = {"new_dtype": "dtype", "weak_type": "weak"}

    def infer(self, x: ArrayType, /, *, dtype: DType, weak: bool = False) -> ArrayType:
        if (x.dtype not in dtypes.NUMERIC) or (dtype not in dtypes.NUMERIC):
            raise DtypeError(
                f"{self}: no conversion by value", got=f"{x} to {dtypes.short_name(dtype)}", expected="numeric dtypes"
            )
        return ArrayType(x.shape, dtype, weak)

    def eval(self, x: NDArray, /, *, dtype: DType, weak: bool = False) -> NDArray:
        if dtype == dtypes.bool_:
            return np.asarray(x != 0)
        if x.dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX:
            x = x.real
        if x.dtype in dtypes.FLOAT and dtype in dtypes.INTEGER:
            # XLA saturates and sends NaN to zero; NumPy leaves both undefined.
            wide = np.nan_to_num(np.asarray(x, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
            info = dtypes.integer_info(dtype)
            inside = np.clip(
                np.trunc(wide),
                float(info.min),
                np.nextafter(float(info.max) + 1.0, 0.0) if info.bits == 64 else float(info.max),
            )
            exact = inside.astype(np.int64 if info.min < 0 else np.uint64)
            if info.bits == 64:
                exact = np.where(wide >= float(info.max), np.array(info.max, exact.dtype), exact)
            return np.asarray(exact.astype(dtype))
        if x.dtype in (dtypes.int4, dtypes.uint4) and dtype in (dtypes.int4, dtypes.uint4):
            x = x.astype(np.int8)  # ml_dtypes has no cast between its two
        return np.asarray(dtypes.cast(x, dtype))

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, dtype: DType, weak: bool = False
    ) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x, dtype=dtype, weak=weak)
        if t is None or dtype not in dtypes.INEXACT:
            return y, None
        return y, self(t, dtype=dtype, weak=False)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, dtype: DType, weak: bool = False) -> Tangents:
        return (convert_element_type(ct, dtype=x.dtype),)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, dtype: DType, weak: bool = False) -> Any:
        if dtype == dtypes.bool_:
            return b.compare("NE", x, b.constant(0, x.type), out)
        if x.type.dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX:
            x = b.op("stablehlo.real", (x,), ArrayType(x.type.shape, dtypes.real_part(x.type.dtype)))
        if x.type.dtype == dtype:
            return x
        return b.op("stablehlo.convert", (x,), out)


@final
class BitcastConvertType(Nondifferentiable, Op):
    """The same bits read as another dtype; a change of width adds or removes a trailing dimension."""

    name = "bitcast_convert_type"
    makes_nan = False
    aliases = {"new_dtype": "dtype"}

    def infer(self, x: ArrayType, /, *, dtype: DType) -> ArrayType:
        old, new = dtypes.bit_width(x.dtype), dtypes.bit_width(dtype)
        if dtypes.bool_ in (x.dtype, dtype) and x.dtype != dtype:
            raise DtypeError(f"{self}: bool has no bit layout of its own", got=f"{x} to {dtypes.short_name(dtype)}")
        if old == new:
            return ArrayType(x.shape, dtype)
        if old > new:
            return ArrayType((*x.shape, old // new), dtype)
        if not x.shape or x.shape[-1] != new // old:
            raise ShapeError(
                f"{self}: last dimension", got=x, expected=f"size {new // old} to make one {dtypes.short_name(dtype)}"
            )
        return ArrayType(x.shape[:-1], dtype)

    def eval(self, x: NDArray, /, *, dtype: DType) -> NDArray:
        shape = self.infer(ArrayType(x.shape, x.dtype), dtype=dtype).shape
        return (
            np.ascontiguousarray(x).reshape(x.shape).view(dtype).reshape(shape)
            if x.ndim
            else x.reshape(1).view(dtype).reshape(shape)
        )

    def batch(self, size: int, args: Arrays, dims: Dims, *, dtype: DType) -> tuple[Any, Any]:
        return self(move_batch(args[0], dims[0], size), dtype=dtype), 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, dtype: DType) -> Any:
        return b.op("stablehlo.bitcast_convert", (x,), out)


convert_element_type = ConvertElementType()
bitcast_convert_type = BitcastConvertType()


def cast(x: Array, dtype: DType) -> Array:
    """``x`` in ``dtype``; itself where it is."""
    return x if x.dtype == dtype else convert_element_type(x, dtype=dtype)
