"""Scalar types such as `float32`: a dtype wherever one is asked for, and a constructor of arrays when called."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from nxjax import numpy as jnp
from nxjax.config import config
from nxjax.errors import ParameterError
from nxjax.numpy.documented import shown
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType


class ScalarType(type):
    """A class whose call makes an array of one dtype; equal to that dtype and hashed like it.

    >>> jnp.float16(1.5)
    Array(1.5, dtype=float16)
    >>> jnp.float32 == jnp.zeros(2).dtype, jnp.zeros(2, jnp.int8).dtype
    (True, dtype('int8'))
    """

    dtype: DType

    def __call__(cls, x: ArrayLike = 0) -> Array:
        return jnp.asarray(x, dtype=cls.dtype)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (not isinstance(other, ScalarType) and cls.dtype == other)

    def __hash__(cls) -> int:
        return hash(cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'nxjax.numpy.{cls.__name__}'>"


def _example(name: str, dtype: DType) -> str:
    """A call of the scalar type, with what it prints."""
    kinds = ((dtypes.BOOL, "True", "True"), (dtypes.INTEGER, "1", "1"), (dtypes.COMPLEX, "1 + 2j", "1.+2.j"))
    given, shown = next(((x, y) for kind, x, y in kinds if dtype in kind), ("1.5", "1.5"))
    return f">>> jnp.{name}({given})\nArray({shown}, dtype={dtype.name})\n"


def _scalar_type(name: str) -> Any:
    held = hasattr(dtypes, name)
    dtype: DType = getattr(dtypes, name) if held else np.dtype(getattr(ml_dtypes, name))
    doc = f"{dtype.name}: usable as a dtype; ``{name}(x)`` makes an array of it.\n\n{_example(name, dtype)}"
    doc = doc if held else f"{dtype.name}: for `finfo` and `iinfo` only; no array has this dtype."
    return ScalarType(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "nxjax.numpy"})


# The last two lines are formats that no array holds: they can be named and measured, and are refused as dtypes.
_NAMES = """
    bool_ int4 int8 int16 int32 int64 uint4 uint8 uint16 uint32 uint64 bfloat16 float16 float32 float64
    float8_e4m3fn float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz complex64 complex128
    float8_e3m4 float8_e4m3 float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn
    int1 int2 uint1 uint2
"""
_TYPES = {name: _scalar_type(name) for name in _NAMES.split()}
globals().update(_TYPES, bool=_TYPES["bool_"])
bfloat16 = _TYPES["bfloat16"]
single, double, csingle, cdouble = (_TYPES[n] for n in ("float32", "float64", "complex64", "complex128"))

# As in JAX, the platform's defaults: 32 bits unless 64 are switched on when the package is imported.
_wide = config.process.enable_x64
int_, uint = (_TYPES[f"{n}{64 if _wide else 32}"] for n in ("int", "uint"))
float_, complex_ = (double, cdouble) if _wide else (single, csingle)

generic, number, integer, inexact = np.generic, np.number, np.integer, np.inexact
floating, complexfloating = np.floating, np.complexfloating
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
flexible, character, object_ = np.flexible, np.character, np.object_
dtype = np.dtype
ComplexWarning = np.exceptions.ComplexWarning

_PYTHON_SCALARS = (builtins.bool, int, float, complex)
_ABSTRACT: dict[Any, frozenset[DType]] = {
    np.generic: dtypes.NUMERIC,
    np.number: dtypes.NUMBER,
    np.integer: dtypes.INTEGER,
    np.signedinteger: dtypes.SIGNED,
    np.unsignedinteger: dtypes.UNSIGNED,
    np.inexact: dtypes.INEXACT,
    np.floating: dtypes.FLOAT,
    np.complexfloating: dtypes.COMPLEX,
}
_KINDS: dict[str, frozenset[DType]] = {
    "bool": dtypes.BOOL,
    "signed integer": dtypes.SIGNED,
    "unsigned integer": dtypes.UNSIGNED,
    "integral": dtypes.INTEGER,
    "real floating": dtypes.FLOAT,
    "complex floating": dtypes.COMPLEX,
    "numeric": dtypes.NUMBER,
}


@shown("jnp.issubdtype(jnp.bfloat16, jnp.floating), jnp.issubdtype(jnp.int32, jnp.int64)", "(True, False)")
def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> bool:  # type: ignore[valid-type]
    """Whether dtype ``arg1`` is ``arg2`` or of its kind; bfloat16, float8 and int4 count as their kinds."""
    if arg1 in _ABSTRACT or arg1 in (np.flexible, np.character, np.object_):
        return np.issubdtype(arg1, arg2) if isinstance(arg2, type) else False
    if arg1 == dtypes.key or arg1 == dtypes.float0:
        return arg2 is np.generic or arg1 == arg2
    kinds = _ABSTRACT.get(arg2) if isinstance(arg2, type) and not isinstance(arg2, ScalarType) else None
    own = np.dtype(arg1) if not isinstance(arg1, ScalarType) else arg1.dtype
    if kinds is not None:
        return own in kinds
    if own not in dtypes.NUMERIC or arg2 in (np.flexible, np.character, np.object_):
        return np.issubdtype(own, arg2)
    return own == (arg2.dtype if isinstance(arg2, ScalarType) else np.dtype(arg2))


@shown('jnp.isdtype(jnp.int8, "signed integer"), jnp.isdtype(jnp.bool_, ("numeric", jnp.bool_))', "(True, True)")
def isdtype(dtype: DTypeLike | None, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:  # type: ignore[valid-type]
    """Whether ``dtype`` is a ``kind``: a dtype, a name of the Array API such as "integral", or one of a tuple.

    Raises:
        ParameterError: a kind that the Array API does not name.
    """
    own = dtypes.as_dtype(dtype)
    for k in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(k, str) and k in _KINDS:
            if own in _KINDS[k]:
                return True
        elif isinstance(k, str) and k not in dir(np):
            raise ParameterError("isdtype: unknown kind", got=repr(k), expected=", ".join(_KINDS))
        elif own == dtypes.as_dtype(k):
            return True
    return False


@shown(
    "jnp.result_type(jnp.zeros(2, jnp.float16), 1.5), jnp.result_type(jnp.int32, jnp.float16)",
    "(dtype('float16'), dtype('float16'))",
    raises="ParameterError: no argument.",
)
def result_type(*args: ArrayLike | DTypeLike) -> DType:
    """The dtype that the arguments (arrays, scalars or dtypes) promote to."""
    return promoted(*args)[0]


def promoted(*args: Any) -> tuple[DType, bool]:
    """What the arguments of `result_type` promote to, and whether it is weak."""
    if not args:
        raise ParameterError("result_type: at least one array or dtype is required")
    pairs: list[Any] = []
    for x in args:
        if x is None:
            # NumPy's default; promotion has it in 32 bits unless told otherwise.
            pairs.append((dtypes.canonical(dtypes.float64), False))
        elif isinstance(x, Array):
            pairs.append((x.type.dtype, x.type.weak))
        elif type(x) in _PYTHON_SCALARS:
            pairs.append((dtypes.as_dtype(type(x)), True))
        elif x in (int, float, complex) if isinstance(x, type) and not isinstance(x, ScalarType) else False:
            pairs.append((dtypes.as_dtype(x), True))
        else:
            weak = getattr(x, "weak_type", False)
            data = isinstance(x, (np.ndarray, np.generic))
            pairs.append((dtypes.canonical(dtypes.as_dtype(x)) if data else dtypes.as_dtype(x), weak))
    return dtypes.promote(*pairs)


def promote_types(a: DTypeLike, b: DTypeLike) -> DType:
    """The dtype that operands of dtypes ``a`` and ``b`` are brought to, which depends on no value; see JEP 9407.

    >>> jnp.promote_types(jnp.int8, jnp.uint8), jnp.promote_types(jnp.bfloat16, jnp.float16)
    (dtype('int16'), dtype('float32'))
    """
    return dtypes.promote_types(a, b)


@shown(
    'jnp.can_cast(jnp.int16, jnp.float32), jnp.can_cast(jnp.float32, jnp.int32, casting="same_kind")', "(True, False)"
)
def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike, casting: str = "safe") -> bool:
    """Whether NumPy allows the cast under ``casting``: ``"safe"``, ``"same_kind"``, ``"equiv"``, ..."""
    own = from_.dtype if hasattr(from_, "dtype") else from_
    return np.can_cast(own, dtypes.as_dtype(to), casting=casting)  # type: ignore[arg-type]


def _named(dtype: Any) -> DType:
    """A dtype, one that no array holds too."""
    if isinstance(dtype, np.dtype) and hasattr(ml_dtypes, dtype.name):
        return dtype
    return dtype.dtype if isinstance(dtype, ScalarType) else dtypes.as_dtype(dtype)


def finfo(dtype: DTypeLike | None) -> np.finfo[Any]:
    """Limits of a float dtype: ``eps``, ``max``, ``min``, ``tiny``, ``bits``, ...

    >>> jnp.finfo(jnp.bfloat16).bits, float(jnp.finfo(jnp.float32).eps), float(jnp.finfo(jnp.float8_e4m3fn).max)
    (16, 1.1920928955078125e-07, 448.0)
    """
    return ml_dtypes.finfo(dtypes.real_part(_named(dtype)))


@shown("jnp.iinfo(jnp.int8).min, jnp.iinfo(jnp.uint4).max", "(-128, 15)")
def iinfo(dtype: DTypeLike | None) -> np.iinfo[Any]:
    """Limits of an integer dtype: ``min``, ``max``, ``bits``."""
    return ml_dtypes.iinfo(_named(dtype))


e: float = np.e
pi: float = np.pi
inf: float = np.inf
nan: float = np.nan
euler_gamma: float = np.euler_gamma
newaxis = None
