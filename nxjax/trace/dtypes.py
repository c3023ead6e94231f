"""Element types: names, kinds, defaults and the promotion lattice.

Knows NumPy and ml_dtypes only. Promotion follows JAX's JEP 9407: a lattice of dtypes in which a Python scalar is a
*weak* node that yields to any array of its kind. Nothing here is a global switch: 64-bit types appear whenever a dtype
asks for them, and `config.enable_x64` only moves the defaults.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from nxjax.config import current_settings
from nxjax.errors import DtypeError, TypePromotionError

DType = np.dtype[Any]

bool_: Final = np.dtype(np.bool_)
int4: Final = np.dtype(ml_dtypes.int4)
uint4: Final = np.dtype(ml_dtypes.uint4)
int8, int16, int32, int64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = (np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
float16, float32, float64 = (np.dtype(t) for t in (np.float16, np.float32, np.float64))
bfloat16: Final = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn: Final = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3b11fnuz: Final = np.dtype(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fnuz: Final = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2: Final = np.dtype(ml_dtypes.float8_e5m2)
float8_e5m2fnuz: Final = np.dtype(ml_dtypes.float8_e5m2fnuz)
complex64, complex128 = (np.dtype(t) for t in (np.complex64, np.complex128))


class prng_key(np.void):
    """The class of a random key's scalar. Libraries compare its name."""


# A random key is one opaque 8-byte scalar: every op that only moves data moves keys too, and no op can do arithmetic
# on one by accident, because its dtype is of no numeric kind.
key: Final = np.dtype((prng_key, [("threefry", np.uint32, (2,))]))
# The tangent type of integers: no information at all.
float0: Final = np.dtype([("float0", np.void, 0)])

_FLOAT8: Final = (float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz)
SIGNED: Final = frozenset((int4, int8, int16, int32, int64))
UNSIGNED: Final = frozenset((uint4, uint8, uint16, uint32, uint64))
INTEGER: Final = SIGNED | UNSIGNED
FLOAT: Final = frozenset((*_FLOAT8, bfloat16, float16, float32, float64))
# Held in fewer than 32 bits, computed in float32.
NARROW: Final = FLOAT - {float32, float64}
COMPLEX: Final = frozenset((complex64, complex128))
BOOL: Final = frozenset((bool_,))
INEXACT: Final = FLOAT | COMPLEX
NUMBER: Final = INTEGER | INEXACT
NUMERIC: Final = NUMBER | BOOL
BITS: Final = INTEGER | BOOL

_SHORT: Final[dict[DType, str]] = {
    bool_: "bool",
    **{d: d.name.replace("uint", "u").replace("int", "i") for d in INTEGER},
    **{d: d.name.replace("bfloat", "bf").replace("float", "f") for d in FLOAT},
    complex64: "c64",
    complex128: "c128",
    key: "key<fry>",
    float0: "float0",
}
NAMED: Final = frozenset(_SHORT)
_FROM_SHORT: Final = {short: d for d, short in _SHORT.items()}


def short_name(dtype: DType) -> str:
    """``f32`` for float32, ``bf16`` for bfloat16, ``key<fry>`` for random keys."""
    found = _SHORT.get(dtype)
    return dtype.name if found is None else found  # NumPy takes its time to find a name


def from_short_name(name: str) -> DType:
    """The inverse of `short_name`."""
    try:
        return _FROM_SHORT[name]
    except KeyError:
        raise DtypeError(f"no dtype is called {name!r}", expected=", ".join(_FROM_SHORT)) from None


_X32: Final[dict[DType, DType]] = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}
_PYTHON: Final[dict[Any, DType]] = {bool: bool_, int: int64, float: float64, complex: complex128}


def canonical(dtype: DType) -> DType:
    """The dtype that input takes which names none: 64-bit types become 32-bit ones unless `enable_x64` is set."""
    return dtype if current_settings().enable_x64 else _X32.get(dtype, dtype)


def _suggestion(spec: Any) -> str | None:
    import difflib

    if isinstance(spec, int):
        return "sizes go in one tuple, as in zeros((2, 3)); another shape is given by x.reshape(2, 3)"
    close = difflib.get_close_matches(str(spec), [d.name for d in NUMERIC], 2)
    return f"perhaps {' or '.join(map(repr, close))}" if close else None


def as_dtype(spec: Any) -> DType:
    """What a user's ``dtype=`` means. Python's `int`, `float`, `complex` are defaults; everything else is exact.

    >>> as_dtype(float).name, as_dtype("float64").name, as_dtype("bfloat16").name
    ('float32', 'float64', 'bfloat16')
    """
    python = _PYTHON.get(spec) if isinstance(spec, type) else None
    if python is not None:
        return canonical(python)
    own = None if isinstance(spec, str) else getattr(spec, "dtype", None)  # NumPy's strings have one
    if not isinstance(own, np.dtype):  # NumPy's scalar classes have a descriptor of that name
        own = spec
    if isinstance(own, str) and own in ("bfloat16", "int4", "uint4"):
        own = getattr(ml_dtypes, own)
    elif isinstance(own, str) and own.startswith("float8_"):
        own = getattr(ml_dtypes, own, own)
    try:
        dtype = np.dtype(own)
    except TypeError:
        raise DtypeError(
            "dtype: not understood", got=repr(spec), expected="a dtype such as nx.float32", fix=_suggestion(spec)
        ) from None
    if dtype in _SHORT and (dtype.isbuiltin or dtype.kind == "V"):
        return dtype
    native = dtype.newbyteorder("=")
    if native in _SHORT:
        return np.dtype(native.type)  # NumPy's own object, not one that is equal to it
    raise DtypeError(
        "dtype: arrays cannot hold this type", got=dtype, expected="bool, int, uint, float or complex types"
    )


def as_stored(spec: Any) -> DType:
    """How elements lie in memory that ``spec`` describes: in any order of bytes; Python's own types have NumPy's width.

    >>> as_stored(">i4").isnative, as_stored(float).name, as_stored("bfloat16").name
    (False, 'float64', 'bfloat16')
    """
    wanted = as_dtype(spec)
    python = _PYTHON.get(spec) if isinstance(spec, type) else None
    if python is not None:
        return python
    own = None if isinstance(spec, str) else getattr(spec, "dtype", None)
    try:
        stored = np.dtype(own if isinstance(own, np.dtype) else spec)
    except TypeError:  # a name that NumPy does not know
        return wanted
    return wanted if stored.isnative else stored


def as_bits(spec: Any, where: str) -> DType:
    """The dtype that bits of an array are read as, which can only be of this machine's order of bytes."""
    wanted = as_dtype(spec)
    if not as_stored(spec).isnative:
        raise DtypeError(
            f"{where}: arrays have this machine's order of bytes",
            got=repr(spec),
            expected=repr(wanted.name),
            fix="read bytes of another order with frombuffer(data, dtype)",
        )
    return wanted


# The lattice. Strings are weak nodes: what a Python int, float or complex is before it meets an array.
_WEAK: Final = {"int": int64, "float": float64, "complex": complex128}
_ABOVE: Final[dict[Any, tuple[Any, ...]]] = {
    bool_: ("int",),
    "int": (uint4, int4, uint8, int8),
    uint4: (),
    int4: (),
    uint8: (int16, uint16),
    uint16: (int32, uint32),
    # uint32 with int32 stays in 32 bits unless 64 bits are already asked for.
    uint32: (int32, uint64),
    uint64: ("float",),
    int8: (int16,),
    int16: (int32,),
    int32: (int64,),
    int64: ("float",),
    "float": (*_FLOAT8, bfloat16, float16, "complex"),
    **dict.fromkeys(_FLOAT8, ()),
    bfloat16: (float32,),
    float16: (float32,),
    float32: (float64, complex64),
    float64: (complex128,),
    "complex": (complex64,),
    complex64: (complex128,),
    complex128: (),
}


@lru_cache(None)
def _upper(node: Any, x64: bool) -> frozenset[Any]:
    above = (int64, uint64) if x64 and node == uint32 else _ABOVE[node]
    return frozenset((node,)).union(*(_upper(n, x64) for n in above))


def _node(dtype: DType, weak: bool) -> Any:
    if not weak or dtype == bool_:
        return dtype
    if dtype in INTEGER:
        return "int"
    return "float" if dtype in FLOAT else "complex"


def _describe(pair: tuple[DType, bool]) -> str:
    return short_name(pair[0]) + ("*" if pair[1] else "")


@lru_cache(4096)
def _promote(pairs: tuple[tuple[DType, bool], ...], x64: bool) -> tuple[DType, bool]:
    if any(d not in NUMERIC for d, _ in pairs):
        kinds = {d for d, _ in pairs}
        if len(kinds) == 1:
            return pairs[0][0], False
        raise DtypeError(
            "promotion: these dtypes do not mix",
            got=", ".join(map(_describe, pairs)),
            fix="keys are no numbers: draw from them, or take their words with nx.random.key_data"
            if key in kinds
            else None,
        )
    nodes = {_node(d, w) for d, w in pairs}
    common = frozenset.intersection(*(_upper(n, x64) for n in nodes))
    least = [n for n in common if common <= _upper(n, x64)]
    if not least:
        raise TypePromotionError(
            "promotion: no common dtype",
            got=", ".join(map(_describe, pairs)),
            fix="cast one operand, e.g. x.astype(nx.float32)",
        )
    (node,) = least
    if not isinstance(node, str):
        return node, False
    # A weak result keeps the widest weak dtype that took part.
    candidates = [d for d, w in pairs if _node(d, w) == node]
    default = _WEAK[node] if x64 else _X32[_WEAK[node]]
    widest = max(candidates, key=lambda d: d.itemsize, default=default)
    return (widest if candidates else default), True


@lru_cache(4096)
def _promote_strictly(pairs: tuple[tuple[DType, bool], ...], x64: bool) -> tuple[DType, bool]:
    """As `_promote`, where Python scalars yield and nothing else changes its dtype."""
    strong = dict.fromkeys(d for d, w in pairs if not w or d == bool_)
    dtype, weak = _promote(pairs, x64) if len(strong) < 2 else (bool_, False)
    if len(strong) > 1 or (strong and dtype not in strong):
        raise TypePromotionError(
            'promotion: dtypes differ, and numpy_dtype_promotion is "strict"',
            got=", ".join(map(_describe, pairs)),
            expected="equal dtypes, or Python scalars of the kind of the array",
            fix="cast one operand, e.g. x.astype(y.dtype)",
        )
    return dtype, weak


def promote(*pairs: tuple[DType, bool]) -> tuple[DType, bool]:
    """Least upper bound of (dtype, weak) pairs.

    >>> promote((int32, False), (float32, True))[0].name
    'float32'
    >>> promote((bfloat16, False), (float32, True))[0].name
    'bfloat16'
    """
    settings = current_settings()
    if settings.mode is not None and settings.numpy_dtype_promotion == "strict":
        return _promote_strictly(pairs, settings.enable_x64)
    return _promote(pairs, settings.enable_x64)


def promote_types(a: Any, b: Any) -> DType:
    """The dtype that operands of dtypes ``a`` and ``b`` are brought to."""
    weak = (int, float, complex)
    return promote((as_dtype(a), a in weak), (as_dtype(b), b in weak))[0]


def to_inexact(dtype: DType) -> DType:
    """The float type that integer and boolean input of a float function takes: float32, of 64-bit integers float64."""
    if dtype in INEXACT:
        return dtype
    return canonical(float64) if dtype.itemsize == 8 else float32


def real_part(dtype: DType) -> DType:
    """float32 for complex64, float64 for complex128, itself otherwise."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts hold ``dtype``."""
    if dtype in COMPLEX:
        return dtype
    return complex128 if dtype == float64 else complex64


def is_differentiable(dtype: DType) -> bool:
    return dtype in INEXACT


def integer_info(dtype: DType) -> Any:
    """``min``, ``max`` and ``bits`` of an integer dtype, int4 included."""
    return ml_dtypes.iinfo(dtype)


def float_info(dtype: DType) -> Any:
    """``min``, ``max``, ``eps``, ... of a float dtype, bfloat16 and float8 included; of the parts for complex."""
    return ml_dtypes.finfo(real_part(dtype))


def bit_width(dtype: DType) -> int:
    return 4 if dtype in (int4, uint4) else 8 * dtype.itemsize


def cast(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """``x.astype(dtype)``. To 8- and 16-bit floats, float64 rounds once and integers go by way of float32, as in XLA.

    What ``astype`` does there depends on the version of ml_dtypes.
    """
    if dtype not in NARROW:
        return x.astype(dtype)
    with np.errstate(all="ignore"):  # what is too large becomes infinite
        if x.dtype == float64:
            x = _to_odd(x)
        elif x.dtype in INTEGER:
            x = x.astype(np.float32)
        return x.astype(dtype)


def _to_odd(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float64 as that of its two neighbours in float32 whose last bit is set, unless float32 has it: what rounds that
    once more rounds as if it had seen ``x`` (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    near = x.astype(np.float32)
    cut = (near != x) & (near.view(np.uint32) & 1 == 0) & ~np.isnan(x)
    return np.where(cut, np.nextafter(near, np.where(near < x, np.float32(np.inf), np.float32(-np.inf))), near)


def lowest(dtype: DType) -> Any:
    """The value below all others: -inf, the smallest integer, False."""
    if dtype in INEXACT:
        return float("-inf") if has_infinity(dtype) else float(float_info(dtype).min)
    return False if dtype == bool_ else integer_info(dtype).min


def highest(dtype: DType) -> Any:
    """The value above all others: inf, the largest integer, True."""
    if dtype in INEXACT:
        return float("inf") if has_infinity(dtype) else float(float_info(dtype).max)
    return True if dtype == bool_ else integer_info(dtype).max


def has_infinity(dtype: DType) -> bool:
    """False for the 8-bit formats that spend all codes on finite values."""
    return dtype not in FLOAT or dtype.itemsize > 1 or dtype == float8_e5m2
