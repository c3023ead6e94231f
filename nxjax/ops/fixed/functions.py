"""Integer functions of one operand: tables, and the functions for which TFLite has arithmetic of its own.

A function without a kernel of its own is a table, as TFLite builds them: one entry per stored int8 value, or 513
entries between which int16 values are interpolated. Entries are computed in float32, each function rounded correctly
(through float64), so that they do not depend on a machine's math library. Where C++ leaves a result undefined (out of
the range of int32, root of a negative number) the value saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.base import NDArray
from nxjax.ops.fixed.point import (
    INT32_MAX,
    INT32_MIN,
    divide_by_power,
    quantize_multiplier,
    rescale,
    round_away,
    wrap32,
)
from nxjax.ops.fixed.series import inverse_root
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

Real = Callable[[NDArray], NDArray]


def _through64(function: Callable[[Any], Any]) -> Real:
    """``function`` of float32 values, computed in float64 and rounded once."""

    def run(x: NDArray) -> NDArray:
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64)), np.float64).astype(np.float32)

    return run


def _each(function: Callable[[float], float]) -> Callable[[NDArray], NDArray]:
    return lambda x: np.array([function(v) for v in x.ravel().tolist()], np.float64).reshape(x.shape)


_exp = _through64(np.exp)
_erfc = _through64(_each(math.erfc))
_tanh = _through64(np.tanh)
_F: Final = np.float32


def _logistic(x: NDArray) -> NDArray:
    return _F(1) / (_F(1) + _exp(-x))


def _gelu(x: NDArray) -> NDArray:
    return _F(0.5) * x * _erfc(x * -_F(math.sqrt(0.5)))


def _gelu_approximate(x: NDArray) -> NDArray:
    inner = _F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)
    return _F(0.5) * x * (_F(1) + _tanh(inner))


def _elu(x: NDArray) -> NDArray:
    return np.where(x < 0, _through64(np.expm1)(x), x)


def _hard_swish(x: NDArray) -> NDArray:
    return x * np.clip(x + _F(3), _F(0), _F(6)) / _F(6)


_REAL: Final[dict[str, Real]] = {
    "logistic": _logistic,
    "tanh": _tanh,
    "elu": _elu,
    "exp": _exp,
    "expm1": _through64(np.expm1),
    "log": _through64(np.log),
    "log1p": _through64(np.log1p),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: _F(1) / np.sqrt(x),
    "square": np.square,
    "sin": _through64(np.sin),
    "cos": _through64(np.cos),
    "erf": _through64(_each(math.erf)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "hard_swish": _hard_swish,
    "silu": lambda x: x * _logistic(x),
    "softplus": _through64(lambda x: np.logaddexp(x, 0)),
    "reciprocal": lambda x: _F(1) / x,
    "abs": np.abs,
    "neg": np.negative,
}


# Every function that `unary` has a meaning for.
FUNCTIONS: Final = frozenset((*_REAL, "gelu", "leaky_relu"))


def real_function(function: str, **parameters: Any) -> Real:
    """The function on float32 arrays that a table of ``function`` holds.

    >>> real_function("gelu", approximate=True)(np.float32([0.0])).tolist()
    [0.0]
    """
    if function == "gelu":
        return _gelu_approximate if parameters.get("approximate", False) else _gelu
    if function == "leaky_relu":
        alpha = _F(parameters["alpha"])
        return lambda x: np.where(x > 0, x, x * alpha)
    if function not in _REAL:
        known = ", ".join(sorted({*_REAL, "gelu", "leaky_relu"}))
        raise ParameterError("unary: no integer meaning for this function", got=function, expected=known)
    return _REAL[function]


# --- tables ---


def table(real: Real, x_grid: Grid, out: Grid) -> NDArray:
    """What each stored value of an 8-bit ``x_grid`` becomes on ``out``: 256 entries, from the least value up.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> table(np.abs, g, g)[[0, 127, 128, 255]].tolist()
    [127, 1, 0, 127]
    """
    low, high = x_grid.limits
    stored = np.arange(low, high + 1, dtype=np.int32) - x_grid.zero_point
    with np.errstate(all="ignore"):
        value = real(scale_of(x_grid) * stored.astype(np.float32))
        steps = round_away(value * (_F(1) / scale_of(out))).astype(np.float32) + _F(out.zero_point)
    least, greatest = out.limits
    return np.clip(np.nan_to_num(steps.astype(np.float64), nan=least), least, greatest).astype(out.dtype)


def interpolated(real: Real, x_scale: float, x_zero: int, y_scale: float, y_zero: int, work: Any) -> NDArray:
    """513 int16 entries of ``real``, 128 stored inputs apart, computed in the float dtype ``work``.

    Every entry takes half of the error that interpolation would make in the middle of the following step.
    """
    f = np.dtype(work).type
    x_scale, y_scale = f(x_scale), f(y_scale)
    first, last = x_scale * f(-32768 - x_zero), x_scale * f(32767 - x_zero)
    least, greatest = y_scale * f(-32768 - y_zero), y_scale * f(32767 - y_zero)
    step = (last - first) / f(512)
    inverse = f(65536) / (greatest - least)
    at = np.arange(512).astype(f)
    nearest: Real = lambda v: round_away(v).astype(f)
    with np.errstate(all="ignore"):
        here = real(first + at * step) * inverse
        middle = real(first + at * step + step / f(2)) * inverse
        following = real(first + (at + f(1)) * step) * inverse
        guess = nearest((following + nearest(here)) / f(2))
        entries = nearest(here) - nearest((guess - nearest(middle)) / f(2))
        end = nearest(real(np.asarray([last], f)) * inverse)
        return np.clip(np.nan_to_num(np.concatenate([entries, end])), -32768, 32767).astype(np.int16)


def lookup(x: NDArray, entries: NDArray) -> NDArray:
    """Values between the 513 ``entries`` for stored int16 ``x``, in int64."""
    x, entries = x.astype(np.int64), entries.astype(np.int64)
    index = 256 + (x >> 7)
    base = entries[index]
    slope = (entries[index + 1] - base).astype(np.int16).astype(np.int64)
    return (base + (slope * (x & 0x7F) + 64 >> 7)).astype(np.int16).astype(np.int64)


def _by_table(function: str, x: NDArray, x_grid: Grid, out: Grid, parameters: dict[str, Any]) -> NDArray:
    real = real_function(function, **parameters)
    if x_grid.dtype == dtypes.int16:
        # Outside its domain a function has the least value of the result, or for 1 / sqrt the greatest.
        edge = out.bounds[1] if function == "rsqrt" else out.bounds[0]
        if function in ("log", "rsqrt"):
            whole, real = real, lambda v: np.where(v <= 0, _F(edge), whole(np.maximum(v, np.finfo(_F).tiny)))
        entries = interpolated(
            real, float(scale_of(x_grid)), x_grid.zero_point, float(scale_of(out)), out.zero_point, _F
        )
        return lookup(x, entries).astype(out.dtype)
    entries = table(real, x_grid, out)
    if function == "log":
        entries[: x_grid.zero_point - x_grid.limits[0] + 1] = out.limits[0]
    return entries[x.astype(np.int64) - x_grid.limits[0]]


# --- functions with arithmetic of their own ---


def _clipped(x: NDArray, out: Grid) -> NDArray:
    return np.clip(wrap32(x + out.zero_point), *out.limits).astype(out.dtype)


def leaky_relu(x: NDArray, x_grid: Grid, out: Grid, alpha: float, rounding: Rounding = "double") -> NDArray:
    """Stored ``where(x > 0, x, alpha * x)``; a negative ``alpha`` negates after rounding.

    >>> g = Grid(np.dtype("int8"), 0.1, 0)
    >>> leaky_relu(np.int8([-100, 100]), g, g, 0.1).tolist()
    [-10, 100]
    """
    sx, sy = scale_of(x_grid), scale_of(out)
    value = x.astype(np.int64) - x_grid.zero_point
    with np.errstate(under="ignore"):
        multiplier, shift = quantize_multiplier(sx * _F(alpha) / sy, rounding)
    above = rescale(value, *quantize_multiplier(sx / sy, rounding), rounding)
    below = rescale(value, np.abs(multiplier), shift, rounding) * np.sign(multiplier)
    return _clipped(np.where(value >= 0, above, below), out)


def prelu(
    x: NDArray, x_grid: Grid, alpha: NDArray, alpha_grid: Grid, out: Grid, rounding: Rounding = "double"
) -> NDArray:
    """Stored ``where(x > 0, x, alpha * x)`` with stored ``alpha`` that broadcasts against x."""
    sx, sy = scale_of(x_grid), scale_of(out)
    value = x.astype(np.int64) - x_grid.zero_point
    product = wrap32(value * (alpha.astype(np.int64) - alpha_grid.zero_point))
    above = rescale(value, *quantize_multiplier(sx / sy, rounding), rounding)
    below = rescale(product, *quantize_multiplier(sx * scale_of(alpha_grid) / sy, rounding), rounding)
    return _clipped(np.where(value >= 0, above, below), out)


def _wrap16(x: NDArray) -> NDArray:
    return x.astype(np.int16).astype(np.int64)


def _divide16(x: NDArray, exponent: int) -> NDArray:
    """`divide_by_power` with a 16-bit mask, as the kernel has it: beyond 15 bits the sign of ``x``, or 1 for 0."""
    if exponent > 15:
        return np.where(x >= 0, 1, -1)
    return divide_by_power(x, exponent)


def _multiplier16(real: np.float32) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(real)
    reduced = 32767 if multiplier >= 2**31 - 1 - (1 << 15) else (int(multiplier) + (1 << 15)) >> 16
    return reduced, int(shift)


def _high16(x: NDArray, multiplier: int) -> NDArray:
    """``x * multiplier / 2**15`` to the nearest integer; the multiplier is positive."""
    product = x * multiplier
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return nudged + np.where(nudged < 0, 32767, 0) >> 15


def coarser_than(out: Grid, limit: float) -> Grid:
    """``out`` if its scale is above ``limit``, else the grid with its zero point and twice the limit as its scale."""
    return out if float(scale_of(out)) > limit else Grid(out.dtype, float(np.float32(2 * limit)), out.zero_point)


def operand_grid(function: str, x_grid: Grid) -> Grid:
    """``x_grid``, or the coarsest grid whose operands the kernel of ``function`` can read.

    Only those of 16-bit logistic and tanh have a limit: products with their multiplier leave 32 bits on a coarser grid.
    Where this one ends, at 131,072, both have long reached their own.

    >>> operand_grid("tanh", Grid(np.dtype("int16"), 1e6)).scale
    4.0
    """
    most = 4.0
    if function not in ("logistic", "tanh") or x_grid.dtype != dtypes.int16 or float(scale_of(x_grid)) <= most:
        return x_grid
    return Grid(x_grid.dtype, most, x_grid.zero_point)


def representable(function: str, x_grid: Grid, out: Grid) -> Grid:
    """``out``, or the finest grid with its zero point that the kernel of ``function`` can write to.

    Only that of 8-bit hard_swish has a limit: a result 128 times finer than the operand.

    >>> g = Grid(np.dtype("int8"), 1.0)
    >>> representable("hard_swish", g, Grid(np.dtype("int8"), 0.001)).scale
    0.015625
    """
    if function != "hard_swish" or x_grid.dtype == dtypes.int16:
        return out
    return coarser_than(out, float(scale_of(x_grid)) / 128)


def _hard_swish8(x: NDArray, x_grid: Grid, out: Grid) -> NDArray:
    """x * relu6(x + 3) / 6 in 16-bit fixed point (8 bits stored; the result's scale at least x_scale / 128)."""
    fine = _F(1 / 128) * scale_of(x_grid)
    value = (x.astype(np.int64) - x_grid.zero_point) << 7
    to_out, exponent = _multiplier16(fine / scale_of(out))
    if exponent > 0:
        raise ParameterError(
            "hard_swish: the result's scale is less than 1/128 of the operand's", got=(x_grid, out), fix="widen it"
        )
    weighted = _high16(value, to_out)
    # The factor relu6(x + 3) / 6 first as a number in [-1, 1] with 15 bits; 3.0 is 32768.
    to_unit, power = _multiplier16(fine / _F(3 / 32768))
    unit = value
    if power > 0:
        unit = np.clip(unit << min(power - 1, 31), -32768, 32767)
    unit = _high16(unit, to_unit)
    if power > 0:
        unit = np.clip(unit << 1, -32768, 32767)
    elif power < 0:
        unit = _divide16(unit, -power)
    gate = (unit + (1 << 15)) >> 1
    product = gate * weighted
    # Cut towards zero: a rounding here would add to the bias of the first one.
    cut = _wrap16(np.where(product >= 0, product >> 15, -(-product >> 15)))
    return np.clip(_wrap16(_divide16(cut, -exponent) + out.zero_point), *out.limits).astype(out.dtype)


def _absolute(x: NDArray, x_grid: Grid, out: Grid, rounding: Rounding) -> NDArray:
    value = np.abs(x.astype(np.int64) - x_grid.zero_point)
    if scale_of(x_grid) != scale_of(out):
        real = scale_of(x_grid) / scale_of(out)
        value = rescale(value, *quantize_multiplier(real, rounding), rounding)
    return _clipped(value, out)


def _square_root(x: NDArray, x_grid: Grid, out: Grid) -> NDArray:
    """Float32 inside and cut down, not rounded."""
    value = scale_of(x_grid) * np.maximum(x.astype(np.int64) - x_grid.zero_point, 0).astype(np.float32)
    steps = np.trunc(np.minimum(np.sqrt(value) / scale_of(out), _F(2**30)))
    return _clipped(steps.astype(np.int64), out)


def _inverse_root8(x: NDArray, x_grid: Grid, out: Grid, rounding: Rounding) -> NDArray:
    value = np.maximum(x.astype(np.int64) - x_grid.zero_point, 0)
    real = 1.0 / np.float64(np.sqrt(scale_of(x_grid)) * scale_of(out))
    multiplier, shift = quantize_multiplier(real, rounding)
    # 20 more bits keep the root of a stored value, which is below 1, a number worth rounding.
    root, exponent = inverse_root(value)
    scaled = rescale(rescale(1, root, exponent + 20, rounding), multiplier, shift - 20, rounding)
    return np.where(value == 0, out.limits[1], _clipped(scaled, out)).astype(out.dtype)


def _sigmoid_table() -> NDArray:
    """The logistic function at i / 24 in 16 bits, each entry raised by half of what interpolation lacks in the middle.

    tanh(x) = 2 * logistic(2 x) - 1 is read from it too. The last entry is the limit 1.
    """
    at: Callable[[NDArray], NDArray] = lambda i: 65536 / (1 + np.exp(-i / 24))
    i = np.arange(256.0)
    lack = at(i + 0.5) - (at(i) + at(i + 1)) / 2
    entries = np.floor(at(i) + lack / 2 + 0.5).astype(np.int64)
    entries[-1] = 65535
    return entries


_SIGMOID16: Final = _sigmoid_table()


def _to_table(x: NDArray, x_grid: Grid, powers: tuple[int, ...]) -> NDArray:
    """Stored int16 ``x`` in steps of 1 / (3 * 4096), the unit of the table of sigmoids."""
    scale = scale_of(x_grid)
    log2 = np.log(scale) * (_F(1) / np.log(_F(2)))
    power = 12 + int(round_away(log2))
    if abs(float(log2 - round_away(log2))) < 1e-3 and power in powers:
        return wrap32(x.astype(np.int64) * (3 << power))
    real, shift = float(scale) * 4096.0 * 3.0, 0
    while real <= 32767.0 / 2.0 and shift <= 30:
        real, shift = real * 2.0, shift + 1
    half = (1 << shift) >> 1
    # A multiplier of more than 16 bits takes products out of 32, far beyond where both functions have their limits.
    product = x.astype(np.int64) * int(min(real, 2.0**32)) + half
    return np.clip(product, INT32_MIN, INT32_MAX) >> shift


def _sigmoid16(x: NDArray, x_grid: Grid) -> NDArray:
    at = _to_table(x, x_grid, (0,))
    size = np.abs(at)
    index = np.minimum(size >> 9, 254)
    low, high = _SIGMOID16[index], _SIGMOID16[index + 1]
    result = np.where(size >> 9 >= 255, 0x7FFF << 10, (low << 9) + (size & 0x1FF) * (high - low))
    return np.where(at >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10


def _tanh16(x: NDArray, x_grid: Grid) -> NDArray:
    at = _to_table(x, x_grid, (0, 1))
    size = np.abs(at)
    index = np.minimum(size >> 8, 254)
    low, high = _SIGMOID16[index], _SIGMOID16[index + 1]
    result = np.where(size >> 8 >= 255, 0xFFFF << 8, (low << 8) + (size & 0xFF) * (high - low))
    return np.where(at >= 0, result - (1 << 23) + (1 << 7), (1 << 23) - result + (1 << 7) - 1) >> 8


def unary(
    function: str, x: NDArray, x_grid: Grid, out: Grid, rounding: Rounding = "double", **parameters: Any
) -> NDArray:
    """Stored ``function(x)`` on grid ``out``, any of TFLite's unary operators or another function by table.

    Parameters: ``alpha`` of leaky_relu, ``approximate`` of gelu. Where LiteRT's kernel ignores a grid it must have the
    one grid the kernel has: 1/256 with -128 for logistic of int8, 1/32768 for logistic and tanh of int16.

    >>> g = Grid(np.dtype("int8"), 1 / 16, 0)
    >>> unary("tanh", np.int8([-32, 0, 32]), g, Grid(np.dtype("int8"), 1 / 128, 0)).tolist()
    [-123, 0, 123]
    """
    wide = x_grid.dtype == dtypes.int16
    if function == "leaky_relu":
        return leaky_relu(x, x_grid, out, parameters["alpha"], rounding)
    if function == "abs":
        return _absolute(x, x_grid, out, rounding)
    if function == "sqrt":
        return _square_root(x, x_grid, out)
    if function == "neg" and scale_of(x_grid) == scale_of(out) and x_grid.zero_point == out.zero_point == 0:
        # TFLite's NEG: two's complement, so that the least value stays.
        return np.negative(x)
    if function == "rsqrt" and not wide:
        return _inverse_root8(x, x_grid, out, rounding)
    if function == "hard_swish" and not wide:
        return _hard_swish8(x, x_grid, out)
    if function in ("logistic", "tanh") and wide:
        if out.dtype != dtypes.int16 or scale_of(out) != _F(1 / 32768):
            raise ParameterError(f"{function}: 16 bits have one grid for the result", got=out, expected="1/32768")
        return (_sigmoid16 if function == "logistic" else _tanh16)(x, x_grid).astype(np.int16)
    return _by_table(function, x, x_grid, out, parameters)


def scale_of(grid: Grid) -> np.float32:
    """The scale of a per-tensor grid in float32, the precision in which files hold it."""
    assert not isinstance(grid.scale, tuple)
    return np.float32(grid.scale)
