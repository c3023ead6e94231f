"""nxjax types and constants as MLIR text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType

_ELEMENT: Final[dict[DType, str]] = {
    dtypes.bool_: "i1",
    **{d: d.name.replace("uint", "ui").replace("int", "i").replace("ui", "ui") for d in dtypes.INTEGER},
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
    dtypes.float8_e4m3fn: "f8E4M3FN",
    dtypes.float8_e4m3b11fnuz: "f8E4M3B11FNUZ",
    dtypes.float8_e4m3fnuz: "f8E4M3FNUZ",
    dtypes.float8_e5m2: "f8E5M2",
    dtypes.float8_e5m2fnuz: "f8E5M2FNUZ",
    dtypes.complex64: "complex<f32>",
    dtypes.complex128: "complex<f64>",
    # A random key is one opaque 8-byte scalar (see `dtypes.key`).
    dtypes.key: "ui64",
    dtypes.float0: "i1",
}


# Constants of more elements are written in hexadecimal.
_SPELLED: Final = 256


def element(dtype: DType) -> str:
    """``f32``, ``ui8``, ``complex<f32>``, ..."""
    return _ELEMENT[dtype]


@lru_cache(65536)
def tensor(type: ArrayType) -> str:
    """``tensor<3x4xf32>``"""
    return f"tensor<{''.join(f'{n}x' for n in type.shape)}{_ELEMENT[type.dtype]}>"


def ints(values: Any) -> str:
    """``array<i64: 1, 2>``"""
    return "array<i64: " + ", ".join(map(str, values)) + ">" if len(values) else "array<i64>"


def bools(values: Any) -> str:
    return "array<i1: " + ", ".join("true" if v else "false" for v in values) + ">" if len(values) else "array<i1>"


def _float(value: Any, dtype: DType) -> str:
    if np.isfinite(value):
        return f"{float(value):.17e}" if dtype == dtypes.float64 else f"{float(value):.9e}"
    # Infinities and NaNs are written by their bits.
    bits = np.asarray(value, dtype).tobytes()[::-1].hex().upper()
    return f"0x{bits}"


def scalar_text(value: Any, dtype: DType) -> str:
    """A scalar as it stands inside ``dense<...>``."""
    if dtype == dtypes.bool_:
        return "true" if value else "false"
    if dtype in dtypes.COMPLEX:
        part = dtypes.real_part(dtype)
        return f"({_float(np.asarray(value.real), part)}, {_float(np.asarray(value.imag), part)})"
    if dtype in dtypes.FLOAT:
        return _float(value, dtype)
    return str(int(value))


def dense(value: np.ndarray[Any, Any], dtype: DType) -> str:
    """``dense<...>`` for an array or a scalar that fills its tensor."""
    if value.ndim == 0:
        return f"dense<{scalar_text(value[()], dtype)}>"
    if value.size == 0:
        return "dense<>"
    if value.size > _SPELLED and dtypes.bit_width(dtype) == 8 * dtype.itemsize and dtype in dtypes.NUMBER:
        # Weights are millions of numbers: their bytes, which MLIR reads as they are, cost no work per element.
        little = np.ascontiguousarray(value, dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype)
        return f'dense<"0x{little.tobytes().hex().upper()}">'

    def nested(a: np.ndarray[Any, Any]) -> str:
        if a.ndim == 1:
            return "[" + ", ".join(scalar_text(v, dtype) for v in a) + "]"
        return "[" + ", ".join(nested(row) for row in a) + "]"

    return f"dense<{nested(value)}>"


def location(file: str, line: int, name: str) -> str:
    """A place in a source file, under the name of what was written there.

    >>> location("a.py", 3, "block/add")
    '"block/add"("a.py":3:0)'
    """
    quoted = lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
    return f"{quoted(name)}({quoted(file)}:{line}:0)"
