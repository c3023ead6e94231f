"""How `lax` functions read their operands: no promotion between arrays, but Python scalars and weak types yield, and a
scalar is repeated into the shape of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.errors import DtypeError, ShapeError
from nxjax.numpy.documented import named, taking
from nxjax.ops.base import Elementwise, check_axes
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.annotations import AccuracyLike, ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array

# What a Python scalar stands for beside an array of 64 bits, which no switch announces here.
_WIDE = {dtypes.float32: dtypes.float64, dtypes.int32: dtypes.int64, dtypes.complex64: dtypes.complex128}


def aligned(name: str, *xs: Any) -> list[Array]:
    """Operands of one dtype, and of one shape if they differ only by being scalars or in sizes of 1.

    Python scalars have their default dtype, which must be that of the others: `lax` promotes nothing.
    """
    values = [as_value(x, name) for x in xs]
    first = values[0].type
    if all(v.type.dtype == first.dtype and v.type.shape == first.shape for v in values):
        return values
    dtype = next((v.dtype for v in values if not v.type.weak), first.dtype)
    for i, v in enumerate(values):
        if v.type.weak and v.dtype != dtype and _WIDE.get(v.dtype) == dtype:
            values[i] = convert_element_type(v, dtype=dtype, weak=True)
        elif v.dtype != dtype:
            raise DtypeError(
                f"{name}: operands differ in dtype",
                got=", ".join(repr(v.type) for v in values),
                expected="equal dtypes, also of Python scalars",
                fix="write 1.0 for 1, cast with lax.convert_element_type, or use the nx.numpy function, which promotes",
            )
    if len({len(v.shape) for v in values}) == 1:
        shape = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*(v.shape for v in values), strict=True))
    else:
        shape = next((v.shape for v in values if v.shape), ())
    return [v if v.shape == shape else _repeated(v, shape) for v in values]


def _repeated(x: Array, shape: tuple[int, ...]) -> Array:
    """``x`` in ``shape``, if it is a scalar or has 1 where it differs; otherwise ``x``, for the op to refuse."""
    if not x.shape:
        return broadcast_scalar(x, shape)
    if len(x.shape) != len(shape) or any(n not in (1, m) for n, m in zip(x.shape, shape, strict=True)):
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(len(shape))))


def broadcast_scalar(x: Array, shape: tuple[int, ...]) -> Array:
    """A scalar repeated into ``shape``."""
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=())


def lax_function(op: Elementwise, own: str, module: str) -> Callable[..., Array]:
    """The function that an op is in `lax` by its name ``own``, as a function of ``module``.

    It takes JAX's keyword ``accuracy`` where that has it, a wish for a faster or a more exact approximation: there is
    one approximation here, the most exact.
    """
    _, line, example, outside = op.public()["lax"]
    assert example is not None, own

    def unary(x: ArrayLike) -> Array:
        return op(as_value(x, own))

    def approximated(x: ArrayLike, *, accuracy: AccuracyLike = None) -> Array:
        return op(as_value(x, own))

    def binary(x: ArrayLike, y: ArrayLike) -> Array:
        return op(*aligned(own, x, y))

    names = op.arguments.split()
    function: Any = {"x": approximated if op.accuracy else unary, "x y": binary}.get(op.arguments)
    if function is None:
        function = taking(names, lambda *xs: op(*aligned(own, *xs)))
    text = _OF_ONE if len(names) == 1 else _OF_SEVERAL
    both = "both" if len(names) == 2 else "all"
    what = text.format(line=line, takes=_KINDS[op.allowed] + op.gives, both=both, outside=outside and f" {outside}.")
    function.__module__ = module
    return named(own, what, *example)(function)


# What operands are called.
_SINGLES = frozenset((dtypes.float32, dtypes.float64))
_KINDS = {
    dtypes.FLOAT: "floats",
    dtypes.INTEGER: "integers",
    dtypes.COMPLEX: "complex numbers",
    dtypes.INEXACT: "floats or complex numbers",
    dtypes.NUMBER: "integers, floats or complex numbers",
    dtypes.NUMERIC: "booleans, integers, floats or complex numbers",
    dtypes.NUMERIC - dtypes.COMPLEX: "booleans, integers or floats",
    dtypes.INTEGER | dtypes.FLOAT: "integers or floats",
    dtypes.BITS: "integers or booleans",
    _SINGLES: "floats of 32 or 64 bits",
    _SINGLES | dtypes.COMPLEX: "complex numbers, or floats of 32 or 64 bits",
}
_OF_ONE = """{line}

Takes {takes}, of any shape.{outside}

Raises:
    DtypeError: dtype not supported.
"""
_OF_SEVERAL = """{line}

Takes {takes}, {both} of one dtype and one shape; a scalar, or a dimension of size 1, is repeated.{outside}

Raises:
    DtypeError: the operands differ in dtype, or their dtype is not supported.
    ShapeError: the shapes do not fit.
"""


def convert_weak(x: Array, dtype: dtypes.DType) -> Array:
    """``x``, if it is weak in the dtype of what it is combined with."""
    return convert_element_type(x, dtype=dtype) if x.type.weak and x.dtype != dtype else x


def reject_bool(name: str, x: Array) -> None:
    """Raise if ``x`` is boolean."""
    if x.dtype == dtypes.bool_:
        raise DtypeError(
            f"{name}: operands are numbers",
            got=x.type,
            expected="integer, float or complex",
            fix="bitwise_or, bitwise_and",
        )


def as_ints(values: Any, name: str) -> tuple[int, ...]:
    """A sequence of Python ints, or one."""
    if isinstance(values, int):
        return (values,)
    return tuple(index(v, name) for v in values)


def sizes_of(shape: Any, name: str) -> tuple[int, ...]:
    """The sizes of a shape."""
    sizes = as_ints(shape, name)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{name}: a size is negative", got=sizes, expected="sizes of 0 or more")
    return sizes


def index(value: Any, name: str) -> int:
    """A Python int; a traced value is refused with the reason."""
    try:
        return value.__index__()
    except (AttributeError, TypeError) as error:
        if isinstance(value, Array):
            raise
        raise DtypeError(f"{name}: sizes and dimensions are Python ints", got=repr(value)) from error


def axes_of(axes: Sequence[int] | int, ndim: int, name: str) -> tuple[int, ...]:
    """Axes counted from the front."""
    return check_axes(name, as_ints(axes, name), ndim)
