"""`jax.lax`'s reductions: by a named operation, by any associative function, running, and of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.lax import elementwise
from nxjax.lax._operands import axes_of, convert_weak
from nxjax.numpy.documented import example, named
from nxjax.numpy.promotion import convert
from nxjax.ops import argreduce, cumulative
from nxjax.ops import reduce as reduces
from nxjax.ops.base import check_axis
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, DTypeLike, PyTree, ShardingLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op, Tracer
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.mapping import associative_scan
from nxjax.transforms.control.reduce import reduce as reduction

# What stands between the parentheses of a function's example, and what the call prints.
_EXAMPLES: dict[str, tuple[str, str]] = {
    "reduce_prod": ("jnp.array([[1, 2], [3, 4]]), (0,)", "Array([3, 8], dtype=int32)"),
    "reduce_max": ("jnp.array([[1.0, jnp.nan], [3.0, 2.0]]), (1,)", "Array([nan,  3.], dtype=float32)"),
    "reduce_min": ("jnp.zeros((2, 0)), (1,)", "Array([inf, inf], dtype=float32)"),
    "reduce_and": ("jnp.array([[12, 10], [7, 8]]), (1,)", "Array([8, 0], dtype=int32)"),
    "reduce_or": ("jnp.array([[True, False], [False, False]]), (1,)", "Array([ True, False], dtype=bool)"),
    "reduce_xor": ("jnp.array([[12, 10], [7, 7]]), (-1,)", "Array([6, 0], dtype=int32)"),
    "cumsum": ("jnp.array([1, 2, 3]), reverse=True", "Array([6, 5, 3], dtype=int32)"),
    "cumprod": ("jnp.array([[1, 2], [3, 4]]), axis=1", "Array([[ 1,  2],\n       [ 3, 12]], dtype=int32)"),
    "cummax": ("jnp.array([1.0, 3.0, 2.0, jnp.nan, 5.0])", "Array([ 1.,  3.,  3., nan, nan], dtype=float32)"),
    "cummin": ("jnp.array([3, 1, 2]), reverse=True", "Array([1, 1, 2], dtype=int32)"),
    "cumlogsumexp": ("jnp.array([-jnp.inf, 0.0, -jnp.inf])", "Array([-inf,   0.,   0.], dtype=float32)"),
}
_OVER_AXES = """{line}

Args:
    operand: array of {takes}; the dtype stays.
    axes: the dimensions that go; negative ones count from the last.

Raises:
    AxisError: no such axis, or one is named twice.
    DtypeError: dtype not supported.
"""
_RUNNING = """{line}

Args:
    operand: array of {takes}; shape and dtype stay.
    axis: the dimension to run along; a negative one counts from the last.
    reverse: run from the end.

Raises:
    AxisError: no such axis.
    DtypeError: dtype not supported.
"""


def _takes_text(name: str) -> str:
    """The kinds of elements that a function takes."""
    if name in ("reduce_and", "reduce_or", "reduce_xor"):
        return "integers or booleans"
    if name == "cumlogsumexp":
        return "floats or complex numbers"
    return "integers, floats or complex numbers" + (", or booleans" if name.endswith(("max", "min")) else "")


def _documented(op: Op, text: str) -> Callable[[Any], Any]:
    line = (type(op).__doc__ or "").split("\n")[0]
    return named(op.name, text.format(line=line, takes=_takes_text(op.name)), *_EXAMPLES[op.name])


def _over_axes(op: Op) -> Callable[..., Array]:
    @_documented(op, _OVER_AXES)
    def function(operand: ArrayLike, axes: Sequence[int]) -> Array:
        x = as_value(operand, op.name)
        found = axes_of(axes, x.ndim, op.name)
        if x.type.weak and op.name in ("reduce_and", "reduce_or", "reduce_xor"):
            x = convert_element_type(x, dtype=x.dtype)
        if x.dtype in dtypes.COMPLEX and op.name in ("reduce_max", "reduce_min"):
            if any(x.shape[d] == 0 for d in found):
                kept = tuple(n for d, n in enumerate(x.shape) if d not in found)
                return jnp.full(kept, -np.inf if op.name == "reduce_max" else np.inf, x.dtype)
            return (jnp.max if op.name == "reduce_max" else jnp.min)(x, axis=found)
        return op(x, axes=found)

    return function


@example("jnp.array([[200, 100], [1, 2]], jnp.uint8), (1,)", "Array([44,  3], dtype=uint8)")
def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: ShardingLike = None) -> Array:
    """Sum along ``axes``.

    The dtype stays: sums of short integers wrap around. A sum of nothing is 0.

    Raises:
        AxisError: no such axis, or one is named twice.
        DtypeError: the operand is boolean.
    """
    x = as_value(operand, "reduce_sum")
    return reduces.reduce_sum(x, axes=axes_of(axes, x.ndim, "reduce_sum"))


reduce_prod = _over_axes(reduces.reduce_prod)
reduce_max = _over_axes(reduces.reduce_max)
reduce_min = _over_axes(reduces.reduce_min)
reduce_and = _over_axes(reduces.reduce_and)
reduce_or = _over_axes(reduces.reduce_or)
reduce_xor = _over_axes(reduces.reduce_xor)

_MONOIDS: dict[Any, reduces.ReduceOp] = {
    elementwise.add: reduces.reduce_sum,
    elementwise.mul: reduces.reduce_prod,
    elementwise.max: reduces.reduce_max,
    elementwise.min: reduces.reduce_min,
    elementwise.bitwise_and: reduces.reduce_and,
    elementwise.bitwise_or: reduces.reduce_or,
    elementwise.bitwise_xor: reduces.reduce_xor,
}


def _is_identity(op: reduces.ReduceOp, start: Array) -> bool:
    if isinstance(start, Tracer):
        return False
    return bool(start.numpy() == np.asarray(op.identity(start.dtype)).astype(start.dtype))


def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable[..., Any],
    dimensions: Sequence[int],
    out_sharding: ShardingLike = None,
) -> PyTree:
    """Arrays reduced along ``dimensions`` by an associative function of (accumulated, next).

    Args:
        operands: a tree of arrays of one shape.
        init_values: a tree of scalars, the identity of ``computation``.
        computation: returns the tree of combined scalars; elements are combined in an unspecified order.

    Raises:
        AxisError: no such dimension.
        ShapeError: the arrays differ in shape.

    >>> x = jnp.array([[1, 2, 3], [4, 5, 6]])
    >>> lax.reduce(x, 0, lambda x, y: x + y, (0,))
    Array([5, 7, 9], dtype=int32)
    >>> lax.reduce(x, 1, lax.mul, (1,))
    Array([  6, 120], dtype=int32)
    """
    leaves, treedef = tree.flatten(operands)
    xs = [as_value(x, "reduce") for x in leaves]
    starts = [as_value(s, "reduce") for s in tree.flatten_up_to(treedef, init_values, "reduce: init_values")]
    weak = all(x.type.weak for x in (*xs, *starts))
    starts = [
        convert_element_type(s, dtype=x.dtype) if s.dtype != x.dtype else s for s, x in zip(starts, xs, strict=True)
    ]
    axes = axes_of(dimensions, xs[0].ndim, "reduce")
    monoid = _MONOIDS.get(computation)
    if monoid is not None and len(xs) == 1 and _is_identity(monoid, starts[0]):
        return tree.unflatten(treedef, [convert(monoid(xs[0], axes=axes), xs[0].dtype, weak)])

    def scalars(*pair: Array) -> list[Array]:
        n = len(xs)
        total = computation(tree.unflatten(treedef, pair[:n]), tree.unflatten(treedef, pair[n:]))
        ys = tree.flatten_up_to(treedef, total, "reduce: computation")
        return [convert_weak(as_value(y, "reduce"), x.dtype) for y, x in zip(ys, xs, strict=True)]

    scalar_types = [ArrayType((), x.dtype) for x in xs]
    program = stage(scalars, [*scalar_types, *scalar_types], getattr(computation, "__name__", "reduce"))
    op_params: dict[str, Any] = {"computation": program, "dimensions": axes}
    captured = [v for v in program.values if isinstance(v, Tracer)]
    ys = reduction.expand(*xs, *starts, **op_params) if captured else reduction(*xs, *starts, **op_params)
    return tree.unflatten(treedef, [convert(y, y.dtype, weak) for y in ys])


# What runs for complex numbers, whose order and logarithms the NumPy face knows.
_OF_COMPLEX = {"cummax": "maximum", "cummin": "minimum", "cumlogsumexp": "logaddexp"}


def _running(op: Op) -> Callable[..., Array]:
    @_documented(op, _RUNNING)
    def function(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x = as_value(operand, op.name)
        dim = check_axis(op, axis, x.ndim)
        if x.dtype in dtypes.COMPLEX and op.name in _OF_COMPLEX:
            return associative_scan(getattr(jnp, _OF_COMPLEX[op.name]), x, reverse=bool(reverse), axis=dim)
        return op(x, axis=dim, reverse=bool(reverse))

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


@example("jnp.array([[1, 7, 7], [5, 0, 2]]), 1, jnp.int32", "Array([1, 0], dtype=int32)")
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the first largest element along ``axis``.

    NaN counts as the largest.

    Raises:
        AxisError: no such axis.
        ParameterError: ``index_dtype`` is not an integer dtype.
        ShapeError: the axis is empty.
    """
    return _index_of(argreduce.argmax, operand, axis, index_dtype)


@example("jnp.array([1.0, jnp.nan, -2.0]), 0, jnp.uint8", "Array(1, dtype=uint8)")
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Index of the first smallest element along ``axis``.

    NaN counts as the smallest.

    Raises:
        AxisError: no such axis.
        ParameterError: ``index_dtype`` is not an integer dtype.
        ShapeError: the axis is empty.
    """
    return _index_of(argreduce.argmin, operand, axis, index_dtype)
