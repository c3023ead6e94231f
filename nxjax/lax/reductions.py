"""`jax.lax`'s reductions: by a named operation, by any associative function, running, and of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError
from nxjax.lax import elementwise
from nxjax.lax._operands import axes_of
from nxjax.ops import argreduce, cumulative
from nxjax.ops import reduce as reduces
from nxjax.ops.base import check_axis
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op, Tracer
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.reduce import reduce as reduction


def _over_axes(op: Op) -> Callable[..., Array]:
    def function(operand: Any, axes: Sequence[int]) -> Array:
        x = as_value(operand, op.name)
        found = axes_of(axes, x.ndim, op.name)
        if x.dtype in dtypes.COMPLEX and op.name in ("reduce_max", "reduce_min"):
            from nxjax import numpy as jnp  # the order of complex numbers is the face's

            return (jnp.max if op.name == "reduce_max" else jnp.min)(x, axis=found)
        return op(x, axes=found)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = type(op).__doc__
    return function


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum along ``axes``."""
    x = as_value(operand, "reduce_sum")
    return reduces.reduce_sum(x, axes=axes_of(axes, x.ndim, "reduce_sum"))


reduce_prod = _over_axes(reduces.reduce_prod)
reduce_max = _over_axes(reduces.reduce_max)
reduce_min = _over_axes(reduces.reduce_min)
reduce_and = _over_axes(reduces.reduce_and)
reduce_or = _over_axes(reduces.reduce_or)
reduce_xor = _over_axes(reduces.reduce_xor)

_MONOIDS: dict[Any, reduces.Reduce] = {
    elementwise.add: reduces.reduce_sum,
    elementwise.mul: reduces.reduce_prod,
    elementwise.max: reduces.reduce_max,
    elementwise.min: reduces.reduce_min,
    elementwise.bitwise_and: reduces.reduce_and,
    elementwise.bitwise_or: reduces.reduce_or,
    elementwise.bitwise_xor: reduces.reduce_xor,
}


def _is_identity(op: reduces.Reduce, start: Array) -> bool:
    if isinstance(start, Tracer):
        return False
    return bool(start.numpy() == np.asarray(op.identity(start.dtype)).astype(start.dtype))


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[..., Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Arrays reduced along ``dimensions`` by an associative function of (accumulated, next).

    Args:
        operands: a tree of arrays of one shape.
        init_values: a tree of scalars, the identity of ``computation``.
        computation: gives the tree of combined scalars; elements are combined in an unspecified order.

    >>> import nxjax as nx
    >>> float(reduce(nx.arange(4.0), 0.0, lambda x, y: x + y, (0,)))
    6.0
    """
    leaves, treedef = tree.flatten(operands)
    xs = [as_value(x, "reduce") for x in leaves]
    starts = [as_value(s, "reduce") for s in tree.flatten_up_to(treedef, init_values, "reduce: init_values")]
    starts = [
        convert_element_type(s, dtype=x.dtype) if s.dtype != x.dtype else s for s, x in zip(starts, xs, strict=True)
    ]
    axes = axes_of(dimensions, xs[0].ndim, "reduce")
    monoid = _MONOIDS.get(computation)
    if monoid is not None and len(xs) == 1 and _is_identity(monoid, starts[0]):
        return tree.unflatten(treedef, [monoid(xs[0], axes=axes)])

    def scalars(*pair: Array) -> list[Array]:
        n = len(xs)
        total = computation(tree.unflatten(treedef, pair[:n]), tree.unflatten(treedef, pair[n:]))
        ys = tree.flatten_up_to(treedef, total, "reduce: computation")
        return [_yielding(as_value(y, "reduce"), x.dtype) for y, x in zip(ys, xs, strict=True)]

    scalar_types = [ArrayType((), x.dtype) for x in xs]
    program = stage(scalars, [*scalar_types, *scalar_types], getattr(computation, "__name__", "reduce"))
    op_params: dict[str, Any] = {"computation": program, "dimensions": axes}
    captured = [v for v in program.values if isinstance(v, Tracer)]
    ys = reduction.expand(*xs, *starts, **op_params) if captured else reduction(*xs, *starts, **op_params)
    return tree.unflatten(treedef, ys)


def _yielding(y: Array, dtype: dtypes.DType) -> Array:
    """A weak scalar in the dtype of the array that it is to be accumulated in."""
    return convert_element_type(y, dtype=dtype) if y.type.weak and y.dtype != dtype else y


# What runs for complex numbers, whose order and logarithms the NumPy face knows.
_OF_COMPLEX = {"cummax": "maximum", "cummin": "minimum", "cumlogsumexp": "logaddexp"}


def _running(op: Op) -> Callable[..., Array]:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
        x = as_value(operand, op.name)
        dim = check_axis(op, axis, x.ndim)
        if x.dtype in dtypes.COMPLEX and op.name in _OF_COMPLEX:
            from nxjax import numpy as jnp
            from nxjax.transforms.control.mapping import associative_scan

            return associative_scan(getattr(jnp, _OF_COMPLEX[op.name]), x, reverse=bool(reverse), axis=dim)
        return op(x, axis=dim, reverse=bool(reverse))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = type(op).__doc__
    return function


cumsum = _running(cumulative.cumsum)
cumprod = _running(cumulative.cumprod)
cummax = _running(cumulative.cummax)
cummin = _running(cumulative.cummin)
cumlogsumexp = _running(cumulative.cumlogsumexp)


def _index_of(op: Op, operand: Any, axis: int, index_dtype: Any) -> Array:
    x = as_value(operand, op.name)
    dtype = dtypes.as_dtype(index_dtype)
    if dtype not in dtypes.INTEGER:
        raise ParameterError(f"{op}: index_dtype is an integer dtype", got=dtype.name)
    return op(x, axes=(check_axis(op, axis, x.ndim),), index_dtype=dtype)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Array:
    """Index of the first largest element along ``axis``."""
    return _index_of(argreduce.argmax, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Array:
    """Index of the first smallest element along ``axis``."""
    return _index_of(argreduce.argmin, operand, axis, index_dtype)


__all__ = [
    "argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "reduce", "reduce_and", "reduce_max",
    "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor",
]  # fmt: skip
