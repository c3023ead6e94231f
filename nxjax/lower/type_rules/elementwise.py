"""Rules of ops that work element by element. Must not know any op's own rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from nxjax.lower.type_rules.base import (
    COMPLEX_OF,
    ORDERED,
    PART,
    Params,
    Results,
    Rule,
    Types,
    need,
    of,
    one_dtype,
    one_shape,
    operands,
)
from nxjax.trace import dtypes
from nxjax.trace.dtypes import BITS, COMPLEX, FLOAT, INEXACT, INTEGER, NUMBER, NUMERIC, DType

_REAL: Final = INTEGER | FLOAT
_WIDE: Final = frozenset((dtypes.float32, dtypes.float64))


def _each(
    count: int,
    allowed: Collection[DType],
    result: Callable[[DType], DType] = lambda d: d,
    fits: Callable[[DType, Params], bool] | None = None,
) -> Rule:
    """Operands of one type; a result of their shape. ``fits`` says whether parameters have a meaning."""

    def rule(types: Types, params: Params) -> Results:
        operands(types, count)
        shape, dtype = one_shape(types), one_dtype(types)
        of(allowed, types[0])
        need(fits is None or fits(dtype, params), "parameters out of range", dict(params))
        return [(shape, result(dtype))]

    return rule


def _to_bool(dtype: DType) -> DType:
    return dtypes.bool_


def _part(dtype: DType) -> DType:
    return PART.get(dtype, dtype)


def _select_n(types: Types, params: Params) -> Results:
    which, *cases = types
    need(len(cases) > 0, "no cases")
    shape, dtype = one_shape(cases), one_dtype(cases)
    need(which.dtype == dtypes.int32 or (which.dtype == dtypes.bool_ and len(cases) <= 2), "predicate", which)
    need(which.shape in ((), shape), "predicate and cases differ in shape", which)
    return [(shape, dtype)]


def _clamp(types: Types, params: Params) -> Results:
    low, x, high = operands(types, 3)
    one_dtype(types)
    of(ORDERED, x)
    need({low.shape, high.shape} <= {(), x.shape}, "a bound is neither a scalar nor of the operand's shape", types)
    return [(x.shape, x.dtype)]


def _convert(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    need({x.dtype, params["dtype"]} <= NUMERIC, "no conversion by value", (x, params["dtype"]))
    return [(x.shape, params["dtype"])]


def _width(dtype: DType) -> int:
    """Bits of an element."""
    return {dtypes.bool_: 1, dtypes.int4: 4, dtypes.uint4: 4}.get(dtype, 8 * dtype.itemsize)


def _bitcast(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    dtype = params["dtype"]
    need((x.dtype == dtypes.bool_) == (dtype == dtypes.bool_), "bool has no bit layout of its own", (x, dtype))
    bits, wanted = _width(x.dtype), _width(dtype)
    if bits < wanted:
        need(x.shape[-1:] == (wanted // bits,), "last dimension does not make one element", x)
        return [(x.shape[:-1], dtype)]
    return [(x.shape if bits == wanted else (*x.shape, bits // wanted), dtype)]


def _same(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    return [(x.shape, x.dtype)]


def _barrier(types: Types, params: Params) -> Results:
    return [(t.shape, t.dtype) for t in types]


def _threefry(types: Types, params: Params) -> Results:
    operands(types, 4)
    of((dtypes.uint32,), *types)
    return [(one_shape(types), dtypes.uint32)] * 2


def _rows(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Final[Mapping[str, Rule]] = {
    **_rows("neg sign square", _each(1, NUMBER)),
    **_rows("sqrt rsqrt exp exp2 expm1 log log1p sin cos tan asin acos atan", _each(1, INEXACT)),
    **_rows("sinh cosh tanh asinh acosh atanh logistic", _each(1, INEXACT)),
    **_rows("cbrt silu hard_swish leaky_relu softplus elu gelu floor ceil", _each(1, FLOAT)),
    **_rows("erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e power", _each(1, FLOAT)),
    **_rows("relu relu6", _each(1, _REAL)),
    **_rows("not", _each(1, BITS)),
    **_rows("population_count clz", _each(1, INTEGER)),
    **_rows("add mul max min", _each(2, NUMERIC)),
    **_rows("sub div", _each(2, NUMBER)),
    **_rows("rem", _each(2, _REAL)),
    **_rows("pow atan2", _each(2, INEXACT)),
    **_rows("nextafter zeta polygamma", _each(2, FLOAT)),
    **_rows("and or xor", _each(2, BITS)),
    **_rows("shift_left shift_right_logical shift_right_arithmetic pow_integers", _each(2, INTEGER)),
    **_rows("igamma igammac igamma_grad_a random_gamma_grad", _each(2, FLOAT)),
    "regularized_incomplete_beta": _each(3, FLOAT),
    **_rows("eq ne", _each(2, NUMERIC, _to_bool)),
    **_rows("lt le gt ge", _each(2, ORDERED, _to_bool)),
    "is_finite": _each(1, FLOAT, _to_bool),
    "abs": _each(1, NUMBER, _part),
    **_rows("real imag", _each(1, COMPLEX, _part)),
    "complex": _each(2, _WIDE, lambda d: COMPLEX_OF[d]),
    "conj": _each(1, _WIDE | COMPLEX, lambda d: COMPLEX_OF[d]),
    "integer_pow": _each(1, NUMBER, fits=lambda d, p: p["y"] >= 0 or d not in INTEGER),
    "round": _each(1, FLOAT, fits=lambda d, p: p["rounding_method"] in (0, 1)),
    "reduce_precision": _each(
        1, FLOAT, fits=lambda d, p: 1 <= p["exponent_bits"] < 2**31 and 0 <= p["mantissa_bits"] < 2**31
    ),
    "prelu": _each(2, _REAL),
    "select_n": _select_n,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    **_rows("copy stop_gradient name no_derivative", _same),
    "optimization_barrier": _barrier,
    "threefry2x32": _threefry,
}
