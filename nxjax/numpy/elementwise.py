"""Functions of one and two arrays, element by element: promote, broadcast, one op.

Plain functions come from factories, float functions from what their ops say of themselves; those with a rule of their
own are in `floats` and `integers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError
from nxjax.numpy import eager
from nxjax.numpy.documented import example, named, taking
from nxjax.numpy.promotion import (
    as_operand,
    boolean,
    broadcast_shape,
    broadcast_to_shape,
    convert,
    dtype_of,
    full_like,
    inexact_operands,
    operands,
    promote_inexact,
    promote_to,
    reject_out_and_where,
    result_type_of,
)
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import Unary as OpUnary
from nxjax.ops.vocabulary import functions
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import DeviceArray, copied, wrap
from nxjax.trace.core import Array

Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]

# What stands between the parentheses of a function's example, and what the call prints.
_EXAMPLES: dict[str, tuple[str, str]] = {
    "negative": ("jnp.array([1, 0], jnp.uint8)", "Array([255,   0], dtype=uint8)"),
    "add": ("jnp.array([1, 2], jnp.int8), 1.5", "Array([2.5, 3.5], dtype=float32, weak_type=True)"),
    "subtract": ("jnp.array([1, 2], jnp.uint8), 2", "Array([255,   0], dtype=uint8)"),
    "multiply": ("jnp.array([True, False]), 2.5", "Array([2.5, 0. ], dtype=float32, weak_type=True)"),
    "maximum": ("jnp.array([1.0, jnp.nan]), 3", "Array([ 3., nan], dtype=float32)"),
    "minimum": ("jnp.array([1, 5]), 3", "Array([1, 3], dtype=int32)"),
    "bitwise_and": ("jnp.array([12, 5]), 10", "Array([8, 0], dtype=int32)"),
    "bitwise_or": ("jnp.array([True, False]), False", "Array([ True, False], dtype=bool)"),
    "bitwise_xor": ("jnp.array([12, 5]), 10", "Array([ 6, 15], dtype=int32)"),
    "bitwise_not": ("jnp.array([0, 7])", "Array([-1, -8], dtype=int32)"),
    "floor": ("jnp.array([-1.5, 1.5])", "Array([-2.,  1.], dtype=float32)"),
    "ceil": ("jnp.array([-1.5, 0.5])", "Array([-1.,  1.], dtype=float32)"),
    "equal": ("jnp.array([1.0, jnp.nan]), jnp.nan", "Array([False, False], dtype=bool)"),
    "not_equal": ("jnp.array([1.0, jnp.nan]), jnp.nan", "Array([ True,  True], dtype=bool)"),
    "less": ("jnp.array([1, 2, 3]), 2.5", "Array([ True,  True, False], dtype=bool)"),
    "less_equal": ("jnp.array([1 + 2j, 1 + 3j]), 1 + 2j", "Array([ True, False], dtype=bool)"),
    "greater": ("jnp.array([jnp.nan, jnp.inf]), 0", "Array([False,  True], dtype=bool)"),
    "greater_equal": ("jnp.array([1, 2, 3]), 2", "Array([False,  True,  True], dtype=bool)"),
    "logical_and": ("jnp.array([0.0, 2.0]), 3", "Array([False,  True], dtype=bool)"),
    "logical_or": ("jnp.array([0, 2]), False", "Array([False,  True], dtype=bool)"),
    "logical_xor": ("jnp.array([1, 0]), jnp.array([5, 5])", "Array([False,  True], dtype=bool)"),
}
_BROADCASTS = """

Raises:
    ShapeError: the shapes do not broadcast.
"""
_NO_BITS = "DtypeError: neither integers nor booleans."
_OF_BITS = f"{_BROADCASTS}    {_NO_BITS}\n"


def plain_ufunc(op: Any) -> Any:
    """The NumPy function that is all of the op's `eval` in real single and double precision, or None."""
    from nxjax.ops.arithmetic import Square
    from nxjax.ops.elementary import Expm1, Log1p, Smooth

    known = (OpUnary.eval, Smooth.eval, Expm1.eval, Log1p.eval, Square.eval)
    whole = isinstance(op, OpUnary) and type(op).eval in known
    return type(op).ufunc if whole else None


def _inexact(op: Any, name: str) -> Unary:
    """The function that an op of one operand is."""
    _, line, example, _ = op.public()["numpy"]
    ufunc = plain_ufunc(op)

    @named(name, line + " Integers and booleans become float.", *example)
    def function(x: ArrayLike, /) -> Array:
        if type(x) is DeviceArray and ufunc is not None:
            y = eager.unary(x, ufunc, eager.WIDE)
            if y is not None:
                return y
        if isinstance(x, Array) and x.type.dtype in dtypes.INEXACT:
            return op(x)
        return op(*promote_inexact(name, x))

    return function


def _inexact_several(op: Any, name: str) -> Callable[..., Array]:
    """The function that an op of several operands is."""
    _, line, example, _ = op.public()["numpy"]
    arguments = op.arguments.split()
    if len(arguments) == 2:
        arguments = ["x", "y"]  # NumPy's names, whatever those of `lax` are

    function = taking(arguments, lambda *xs: op(*inexact_operands(name, *xs)), positional=True)
    return named(name, line + " Broadcasts; integers and booleans become float." + _BROADCASTS, *example)(function)


def _plain(name: str, op: str, doc: str, raises: str = "") -> Unary:
    @named(name, doc + " Keeps the dtype." + raises, *_EXAMPLES[name])
    def function(x: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
        if out is not None or where is not None:
            reject_out_and_where(name, out, where)
        return getattr(ops, op)(as_operand(x, name))

    return function


def _plain2(
    name: str,
    op: str,
    doc: str,
    ufunc: Any = None,
    rule: Callable[[Any, Any], Any] | None = None,
    raises: str = _BROADCASTS,
) -> Binary:
    """``rule`` gives the result where it knows better than the op, else None."""

    @named(name, doc + " Broadcasts and promotes." + raises, *_EXAMPLES[name])
    def function(x: ArrayLike, y: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
        if out is not None or where is not None:
            reject_out_and_where(name, out, where)
        if ufunc is not None:
            if type(x) is DeviceArray:
                out = eager.binary(x, y, ufunc, eager.NUMBERS, False)
            elif type(y) is DeviceArray:
                out = eager.binary(y, x, ufunc, eager.NUMBERS, False, True)
            if out is not None:
                return out
        if rule is not None:
            out = rule(x, y)
            if out is not None:
                return out
        return getattr(ops, op)(*operands(name, x, y))

    return function


def _masked(x: Any, y: Any) -> Any:
    """The product of booleans and floats: the floats where True, 0 elsewhere, even of infinity and NaN.

    So it is in XLA where the booleans have the shape of the product. Booleans that are repeated become numbers first.
    """
    (a, _), (b, _) = dtype_of(x, "multiply"), dtype_of(y, "multiply")
    if (a == dtypes.bool_) == (b == dtypes.bool_):
        return None
    mask, rest = (x, y) if a == dtypes.bool_ else (y, x)
    dtype, weak = result_type_of((x, y), "multiply")
    if dtype not in dtypes.INEXACT:
        return None
    (v,) = promote_to("multiply", (rest,), dtype, weak)
    which = as_operand(mask, "multiply")
    shape = broadcast_shape("multiply", which.type.shape, v.type.shape)
    if which.type.shape != shape:
        return None
    v = broadcast_to_shape(v, shape)
    return ops.select_n(which, full_like(v, 0), v)


def with_methods(identity: Any, nin: int = 2) -> Callable[[Any], Any]:
    """Give a function of ``nin`` arrays a ufunc's methods; `ufuncs` is loaded when one is first called."""

    def mark(function: Any) -> Any:
        def forward(method: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                from nxjax.numpy.ufuncs import ufunc_of

                return getattr(ufunc_of(function, identity), method)(*args, **kwargs)

            call.__name__ = method
            return call

        for method in ("reduce", "accumulate", "outer", "at", "reduceat"):
            setattr(function, method, forward(method))
        function.nin, function.nout, function.nargs, function.identity = nin, 1, nin, identity
        return function

    return mark


# --- float functions: those that an op says of itself ---

__getattr__ = functions(
    "numpy", __name__, globals(), lambda op, name: (_inexact if op.arguments == "x" else _inexact_several)(op, name)
)


# --- arithmetic ---

_MULTIPLY = "x * y. A boolean array of the result's shape times floats is where(x, y, 0), so False times inf is 0."
negative = with_methods(None, 1)(_plain("negative", "neg", "-x."))
add = with_methods(0)(_plain2("add", "add", "x + y.", np.add))
subtract = with_methods(None)(_plain2("subtract", "sub", "x - y.", np.subtract))
multiply = with_methods(1)(_plain2("multiply", "mul", _MULTIPLY, np.multiply, _masked))
maximum = with_methods(None)(_plain2("maximum", "max", "The larger of x and y; nan if either is.", np.maximum))
minimum = with_methods(None)(_plain2("minimum", "min", "The smaller of x and y; nan if either is.", np.minimum))
bitwise_and = with_methods(-1)(
    _plain2("bitwise_and", "and_", "x & y, bit by bit, of integers or booleans.", raises=_OF_BITS)
)
bitwise_or = with_methods(0)(
    _plain2("bitwise_or", "or_", "x | y, bit by bit, of integers or booleans.", raises=_OF_BITS)
)
bitwise_xor = with_methods(0)(
    _plain2("bitwise_xor", "xor", "x ^ y, bit by bit, of integers or booleans.", raises=_OF_BITS)
)
bitwise_not = _plain(
    "bitwise_not", "not_", "~x, bit by bit, of integers or booleans.", f"\n\nRaises:\n    {_NO_BITS}\n"
)
bitwise_invert = invert = bitwise_not


@example("jnp.array([-1, 2], jnp.int8)", "Array([-1,  2], dtype=int8)")
def positive(x: ArrayLike, /) -> Array:
    """x itself, of any numeric dtype."""
    return copied(as_operand(x, "positive"))


def square(x: ArrayLike, /) -> Array:
    """x * x. Keeps the dtype, but booleans become integers.

    >>> jnp.square(jnp.array([12, 20], jnp.uint8)), jnp.square(True)
    (Array([144, 144], dtype=uint8), Array(1, dtype=int32))
    """
    v = as_operand(x, "square")
    return ops.square(convert(v, dtypes.int32) if v.dtype == dtypes.bool_ else v)


@example("jnp.array([-2.5, 0.0, jnp.nan])", "Array([-1.,  0., nan], dtype=float32)")
def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1 in the dtype of x; nan for nan, x / abs(x) for complex x."""
    return ops.sign(as_operand(x, "sign"))


@example("jnp.array([3 + 4j, -1])", "Array([5., 1.], dtype=float32)")
def absolute(x: ArrayLike, /) -> Array:
    """The absolute value. Real for complex x; unsigned integers and booleans are themselves."""
    v = as_operand(x, "absolute")
    return v if v.dtype == dtypes.bool_ or v.dtype in dtypes.UNSIGNED else ops.abs(v)


abs = absolute


@example("jnp.array([-1, 2])", "Array([1., 2.], dtype=float32)")
def fabs(x: ArrayLike, /) -> Array:
    """The absolute value as a float."""
    return ops.abs(*promote_inexact("fabs", x))


def _rounding(name: str, op: str, doc: str) -> Unary:
    @named(name, doc + " Integers and booleans stay unchanged.", *_EXAMPLES[name])
    def function(x: ArrayLike, /) -> Array:
        v = as_operand(x, name)
        if v.dtype in dtypes.BITS:
            return v
        return getattr(ops, op)(v)

    return function


floor = _rounding("floor", "floor", "The largest integer not above x.")
ceil = _rounding("ceil", "ceil", "The smallest integer not below x.")


@example("jnp.array([-1.7, 1.7])", "Array([-1.,  1.], dtype=float32)")
def trunc(x: ArrayLike) -> Array:
    """x without its fraction. Integers and booleans stay unchanged."""
    v = as_operand(x, "trunc")
    if v.dtype in dtypes.BITS:
        return v
    return jnp.where(ops.lt(v, 0), ops.ceil(v), ops.floor(v))


# --- comparison ---


def _comparison(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Broadcasts and promotes; the result is boolean." + _BROADCASTS, *_EXAMPLES[name])
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
        a, b = operands(name, x, y)
        try:
            return getattr(ops, op)(a, b)
        except DtypeError:
            if a.dtype == dtypes.float0:
                return wrap(np.full(a.shape, op == "eq"))  # the tangents of integers are all zero
            if a.dtype != dtypes.key:
                raise
        differ = ops.reduce_or(ops.ne(ops.random_unwrap(a), ops.random_unwrap(b)), axes=(a.ndim,))
        return differ if op == "ne" else ops.not_(differ)

    return function


equal = _comparison("equal", "eq", "x == y.")
not_equal = _comparison("not_equal", "ne", "x != y.")


def _ordering(name: str, op: str, doc: str) -> Binary:
    @named(
        name, doc + " Complex numbers are ordered by real part, then imaginary part." + _BROADCASTS, *_EXAMPLES[name]
    )
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
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


def _logical(name: str, op: str, doc: str) -> Binary:
    @named(name, doc + " Numbers count as true unless zero." + _BROADCASTS, *_EXAMPLES[name])
    def function(x: ArrayLike, y: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
        if out is not None or where is not None:
            reject_out_and_where(name, out, where)
        return getattr(ops, op)(*operands(name, boolean(x, name), boolean(y, name)))

    return function


logical_and = with_methods(True)(_logical("logical_and", "and_", "x and y."))
logical_or = with_methods(False)(_logical("logical_or", "or_", "x or y."))
logical_xor = with_methods(False)(_logical("logical_xor", "xor", "x or y, but not both."))


@example("jnp.array([0.0, -2.0, jnp.nan])", "Array([ True, False, False], dtype=bool)")
def logical_not(x: ArrayLike, /) -> Array:
    """Whether x is zero, as booleans."""
    return ops.not_(boolean(x, "logical_not"))
