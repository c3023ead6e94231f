"""How `lax` functions read their operands: no promotion between arrays, but Python scalars and weak types yield, and a
scalar is repeated into the shape of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.errors import DtypeError
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op


def aligned(name: str, *xs: Any) -> list[Array]:
    """Operands of one dtype, and of one shape if they differ only by being scalars."""
    values = [as_value(x, name) for x in xs]
    first = values[0].type
    if all(v.type.dtype == first.dtype and v.type.shape == first.shape for v in values):
        return values
    strong = {v.dtype for v in values if not v.type.weak}
    if len(strong) > 1:
        raise DtypeError(
            f"{name}: operands differ in dtype",
            got=", ".join(repr(v.type) for v in values),
            expected="equal dtypes",
            fix="cast with lax.convert_element_type, or use the nx.numpy function, which promotes",
        )
    dtype, weak = dtypes.promote(*[(v.dtype, v.type.weak) for v in values])
    values = [v if v.dtype == dtype else convert_element_type(v, dtype=dtype, weak=weak) for v in values]
    shape = next((v.shape for v in values if v.shape), ())
    return [v if v.shape or not shape else spread(v, shape) for v in values]


def spread(x: Array, shape: tuple[int, ...]) -> Array:
    """A scalar repeated into ``shape``."""
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=())


def face(op: Op, arity: int, name: str = "", *, accuracy: bool = False) -> Callable[..., Array]:
    """A function of ``arity`` operands (1 or 2) over an op without parameters.

    With ``accuracy`` it takes JAX's keyword of that name, a wish for a faster or a more exact approximation: there is
    one approximation here, the most exact.
    """
    own = name or op.name

    def unary(x: Any) -> Array:
        return op(as_value(x, own))

    def approximated(x: Any, *, accuracy: Any = None) -> Array:
        return op(as_value(x, own))

    def binary(x: Any, y: Any) -> Array:
        return op(*aligned(own, x, y))

    function = binary if arity == 2 else approximated if accuracy else unary
    function.__name__ = function.__qualname__ = own
    function.__module__ = "nxjax.lax"
    function.__doc__ = (type(op).__doc__ or "").split("\n")[0]
    return function


def ints(values: Any, name: str) -> tuple[int, ...]:
    """A sequence of Python ints, or one."""
    if isinstance(values, int):
        return (values,)
    return tuple(index(v, name) for v in values)


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
    from nxjax.ops.base import check_axes

    return check_axes(name, ints(axes, name), ndim)
