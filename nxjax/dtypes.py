"""`nx.dtypes`, as `jax.dtypes`: names of special dtypes, canonical dtypes, promotion."""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import bfloat16 as bfloat16

from nxjax.errors import DtypeError as TypePromotionError
from nxjax.numpy.scalar_types import issubdtype as issubdtype
from nxjax.numpy.scalar_types import promoted
from nxjax.trace import dtypes as _dtypes
from nxjax.trace.array import type_of as _type_of

# The dtype of random keys; `issubdtype(x.dtype, prng_key)` asks for it.
prng_key = _dtypes.key
extended = _dtypes.key
# The dtype of tangents of integers.
float0 = _dtypes.float0


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that the arguments (arrays, scalars or dtypes) promote to; None is the default float.

    Args:
        args: at least one.
        return_weak_type_flag: return the dtype and whether it is weak, as for Python's numbers.

    Raises:
        ParameterError: no argument.

    >>> result_type(np.float16, 1.5), result_type(1, 2.0, return_weak_type_flag=True)
    (dtype('float16'), (dtype('float32'), True))
    """
    dtype, weak = promoted(*args)
    return (dtype, weak) if return_weak_type_flag else dtype


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> np.dtype[Any]:
    """The default dtype for data of ``dtype``: 32 bits unless `enable_x64` is set.

    >>> canonicalize_dtype("float64").name
    'float32'
    """
    return _dtypes.canonical(_dtypes.as_dtype(dtype))


def scalar_type_of(x: Any) -> type:
    """The Python type of the kind of ``x``: bool, int, float or complex.

    Raises:
        TypePromotionError: not a number.

    >>> scalar_type_of(np.float32(1))
    <class 'float'>
    """
    dtype = _type_of(x, "scalar_type_of").dtype
    kinds = ((_dtypes.BOOL, bool), (_dtypes.INTEGER, int), (_dtypes.FLOAT, float), (_dtypes.COMPLEX, complex))
    for kind, scalar in kinds:
        if dtype in kind:
            return scalar
    raise TypePromotionError("scalar_type_of: not a number", got=_dtypes.short_name(dtype))


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element; 4 for int4.

    >>> itemsize_bits("int4"), itemsize_bits("bfloat16")
    (4, 16)
    """
    return _dtypes.bit_width(_dtypes.as_dtype(dtype))


def finfo(dtype: Any) -> Any:
    """Limits of a float dtype: ``eps``, ``max``, ``min``, ``tiny``, ``bits``, ...

    >>> float(finfo("float16").max), finfo("bfloat16").bits
    (65504.0, 16)
    """
    return _dtypes.float_info(_dtypes.as_dtype(dtype))


def iinfo(dtype: Any) -> Any:
    """Limits of an integer dtype: ``min``, ``max``, ``bits``.

    >>> iinfo("int4").min, iinfo("uint8").max
    (-8, 255)
    """
    return _dtypes.integer_info(_dtypes.as_dtype(dtype))


__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]
