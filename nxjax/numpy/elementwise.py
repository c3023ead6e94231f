"""Functions of one and two arrays, element by element: promote, broadcast, one op.

Plain functions come from four factories; those with a rule of their own are in `floats` and `integers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax.numpy import eager
from nxjax.numpy import vocabulary as ops
from nxjax.numpy.promotion import convert, inexact_operands, named, operands, promote_inexact, value
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array

Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]


def plain_ufunc(op: Any) -> Any:
    """The NumPy function that is all of the op's `eval` in single and double precision, or None."""
    from nxjax.ops.base import Unary
    from nxjax.ops.elementary import Expm1, Smooth

    whole = isinstance(op, Unary) and type(op).eval in (Unary.eval, Smooth.eval, Expm1.eval)
    return type(op).ufunc if whole else None


def _inexact(name: str, op: str, doc: str) -> Unary:
    ufuncs: list[Any] = []

    @named(name, doc + " Integers and booleans become float.")
    def function(x: Any, /) -> Array:
        if type(x) is DeviceArray:
            if not ufuncs:
                ufuncs.append(plain_ufunc(getattr(ops, op)))
            y = eager.unary(x, ufuncs[0], eager.WIDE) if ufuncs[0] is not None else None
            if y is not None:
                return y
        if isinstance(x, Array) and x.type.dtype in dtypes.INEXACT:
            return getattr(ops, op)(x)
        return getattr(ops, op)(*promote_inexact(name, x))

    return function


def _inexact2(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Broadcasts; integers and booleans become float.")
    def function(x: Any, y: Any, /) -> Array:
        return getattr(ops, op)(*inexact_operands(name, x, y))

    return function


def _plain(name: str, op: str, doc: str) -> Unary:
    @named(name, doc + " Keeps the dtype.")
    def function(x: Any, /) -> Array:
        return getattr(ops, op)(value(x, name))

    return function


def _plain2(name: str, op: str, doc: str, ufunc: Any = None) -> Binary:
    @named(name, doc + " Broadcasts and promotes.")
    def function(x: Any, y: Any, /) -> Array:
        if ufunc is not None and type(x) is DeviceArray:
            out = eager.binary(x, y, ufunc, eager.NUMBERS, False)
            if out is not None:
                return out
        return getattr(ops, op)(*operands(name, x, y))

    return function


def _ufunc(identity: Any) -> Callable[[Binary], Any]:
    """Give a binary function a ufunc's methods; `ufuncs` is loaded when one is first called."""

    def mark(function: Any) -> Any:
        def forward(method: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                from nxjax.numpy.ufuncs import ufunc_of

                return getattr(ufunc_of(function, identity), method)(*args, **kwargs)

            call.__name__ = method
            return call

        for method in ("reduce", "accumulate", "outer", "at", "reduceat"):
            setattr(function, method, forward(method))
        function.nin, function.nout, function.nargs, function.identity = 2, 1, 3, identity
        return function

    return mark


# --- float functions ---

sin = _inexact("sin", "sin", "Sine of x, in radians.")
cos = _inexact("cos", "cos", "Cosine of x, in radians.")
tan = _inexact("tan", "tan", "Tangent of x, in radians.")
arcsin = _inexact("arcsin", "asin", "Inverse sine.")
arccos = _inexact("arccos", "acos", "Inverse cosine.")
arctan = _inexact("arctan", "atan", "Inverse tangent.")
sinh = _inexact("sinh", "sinh", "Hyperbolic sine.")
cosh = _inexact("cosh", "cosh", "Hyperbolic cosine.")
tanh = _inexact("tanh", "tanh", "Hyperbolic tangent.")
arcsinh = _inexact("arcsinh", "asinh", "Inverse hyperbolic sine.")
arccosh = _inexact("arccosh", "acosh", "Inverse hyperbolic cosine.")
arctanh = _inexact("arctanh", "atanh", "Inverse hyperbolic tangent.")
asin, acos, atan, asinh, acosh, atanh = arcsin, arccos, arctan, arcsinh, arccosh, arctanh
exp = _inexact("exp", "exp", "e to the power x.")
exp2 = _inexact("exp2", "exp2", "2 to the power x.")
expm1 = _inexact("expm1", "expm1", "exp(x) - 1, exact for small x.")
log = _inexact("log", "log", "Natural logarithm.")
log1p = _inexact("log1p", "log1p", "log(1 + x), exact for small x.")
sqrt = _inexact("sqrt", "sqrt", "Square root.")
cbrt = _inexact("cbrt", "cbrt", "Cube root.")
arctan2 = _inexact2("arctan2", "atan2", "Angle of the point (y, x): arctan2(y, x).")
atan2 = arctan2
nextafter = _inexact2("nextafter", "nextafter", "The next float after x in the direction of y.")

# --- arithmetic ---

negative = _plain("negative", "neg", "-x.")
add = _ufunc(0)(_plain2("add", "add", "x + y.", np.add))
subtract = _ufunc(None)(_plain2("subtract", "sub", "x - y.", np.subtract))
multiply = _ufunc(1)(_plain2("multiply", "mul", "x * y.", np.multiply))
maximum = _ufunc(None)(_plain2("maximum", "max", "The larger of x and y; nan if either is.", np.maximum))
minimum = _ufunc(None)(_plain2("minimum", "min", "The smaller of x and y; nan if either is.", np.minimum))
divide = _inexact2("divide", "div", "x / y, always inexact.")
true_divide = divide
bitwise_and = _ufunc(-1)(_plain2("bitwise_and", "and_", "x & y, bit by bit."))
bitwise_or = _ufunc(0)(_plain2("bitwise_or", "or_", "x | y, bit by bit."))
bitwise_xor = _ufunc(0)(_plain2("bitwise_xor", "xor", "x ^ y, bit by bit."))
bitwise_not = _plain("bitwise_not", "not_", "~x, bit by bit.")
bitwise_invert = invert = bitwise_not


def positive(x: Any, /) -> Array:
    """x itself."""
    return value(x, "positive")


def square(x: Any, /) -> Array:
    """x * x. Keeps the dtype."""
    v = value(x, "square")
    return ops.mul(v, v) if v.dtype == dtypes.bool_ else ops.square(v)


def sign(x: Any, /) -> Array:
    """-1, 0 or 1; x / |x| for complex x."""
    return ops.sign(value(x, "sign"))


def absolute(x: Any, /) -> Array:
    """|x|; real for complex x. Unsigned integers and booleans are themselves."""
    v = value(x, "absolute")
    return v if v.dtype == dtypes.bool_ or v.dtype in dtypes.UNSIGNED else ops.abs(v)


abs = absolute


def fabs(x: Any, /) -> Array:
    """|x| as a float."""
    return ops.abs(*promote_inexact("fabs", x))


def _rounding(name: str, op: str, doc: str) -> Unary:
    @named(name, doc + " Integers and booleans are themselves.")
    def function(x: Any, /) -> Array:
        v = value(x, name)
        if v.dtype in dtypes.BITS:
            return v
        return getattr(ops, op)(v)

    return function


floor = _rounding("floor", "floor", "The largest integer not above x.")
ceil = _rounding("ceil", "ceil", "The smallest integer not below x.")


def trunc(x: Any, /) -> Array:
    """x without its fraction. Integers and booleans are themselves."""
    from nxjax.numpy.selection import where

    v = value(x, "trunc")
    if v.dtype in dtypes.BITS:
        return v
    return where(ops.lt(v, 0), ops.ceil(v), ops.floor(v))


# --- comparison ---


def _comparison(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Broadcasts and promotes; the result is boolean.")
    def function(x: Any, y: Any, /) -> Array:
        return getattr(ops, op)(*operands(name, x, y))

    return function


equal = _comparison("equal", "eq", "x == y.")
not_equal = _comparison("not_equal", "ne", "x != y.")


def _ordering(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Complex numbers are ordered by real part, then imaginary part.")
    def function(x: Any, y: Any, /) -> Array:
        a, b = operands(name, x, y)
        if a.dtype not in dtypes.COMPLEX:
            return getattr(ops, op)(a, b)
        strict = getattr(ops, op.replace("e", "t") if op in ("le", "ge") else op)
        ar, br = ops.real(a), ops.real(b)
        ties = ops.and_(ops.eq(ar, br), getattr(ops, op)(ops.imag(a), ops.imag(b)))
        return ops.or_(strict(ar, br), ties)

    return function


less = _ordering("less", "lt", "x < y.")
less_equal = _ordering("less_equal", "le", "x <= y.")
greater = _ordering("greater", "gt", "x > y.")
greater_equal = _ordering("greater_equal", "ge", "x >= y.")


def boolean(x: Any, where: str) -> Array:
    """``x != 0``."""
    v = value(x, where)
    return v if v.dtype == dtypes.bool_ else convert(v, dtypes.bool_)


def _logical(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Numbers count as true unless zero.")
    def function(x: Any, y: Any, /) -> Array:
        return getattr(ops, op)(*operands(name, boolean(x, name), boolean(y, name)))

    return function


logical_and = _ufunc(True)(_logical("logical_and", "and_", "x and y."))
logical_or = _ufunc(False)(_logical("logical_or", "or_", "x or y."))
logical_xor = _ufunc(False)(_logical("logical_xor", "xor", "Either x or y."))


def logical_not(x: Any, /) -> Array:
    """not x."""
    return ops.not_(boolean(x, "logical_not"))
