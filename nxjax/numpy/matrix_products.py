"""The products of `nx.numpy.linalg`: of matrices and vectors that are said by axes, and of several matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from nxjax.errors import ShapeError
from nxjax.numpy import contractions as _products
from nxjax.numpy.contractions import cross as _cross
from nxjax.numpy.documented import example
from nxjax.numpy.grids import diagonal as _diagonal
from nxjax.numpy.promotion import as_operand
from nxjax.ops.precision import PrecisionLike
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.core import Array


@example("jnp.array([1, 0, 0]), jnp.array([0, 1, 0])", "Array([0, 0, 1], dtype=int32)")
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The vector product of vectors of three components along ``axis``.

    Raises:
        ShapeError: another number of components.
    """
    a, b = as_operand(x1, "cross"), as_operand(x2, "cross")
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ShapeError("linalg.cross: both inputs must have 3 components", got=f"{a.type} and {b.type}")
    return _cross(a, b, axis=axis)


@example("jnp.arange(8).reshape(2, 2, 2)", "Array([[0, 3],\n       [4, 7]], dtype=int32)")
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Diagonals of matrices in the last two axes.

    Raises:
        ShapeError: fewer than two axes.
    """
    return _diagonal(x, offset, -2, -1)


@example("jnp.arange(8).reshape(2, 2, 2)", "Array([ 3, 11], dtype=int32)", raises="ShapeError: fewer than two axes.")
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sums of the diagonals of matrices in the last two axes."""
    return _products.trace(x, offset, -2, -1, dtype)


@example("jnp.ones((5, 1, 2, 3)), jnp.ones((4, 3, 2))", "(5, 4, 2, 2)", then=".shape")
def matmul(
    x1: ArrayLike, x2: ArrayLike, /, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Matrix product over the last two axes; leading axes broadcast, a vector is a row or a column.

    Arguments and errors are those of `nx.numpy.matmul`.
    """
    return _products.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


@example("jnp.array([1, 2]), jnp.array([3, 4])", "Array([[3, 4],\n       [6, 8]], dtype=int32)")
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of all pairs of elements of two vectors.

    Raises:
        ShapeError: an operand is not a vector; `nx.numpy.outer` flattens.
    """
    a, b = as_operand(x1, "outer"), as_operand(x2, "outer")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError("linalg.outer: both inputs must have one axis", got=f"{a.type} and {b.type}")
    return _products.outer(a, b)


@example("jnp.ones((2, 3, 4)), jnp.ones((3, 4, 5))", "(2, 5)", then=".shape")
def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Sum of products over ``axes``: how many trailing and leading axes, or a list of them for each operand."""
    return _products.tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


@example("[jnp.ones(100), jnp.ones((100, 3)), jnp.ones((3, 2))]", "Array([300., 300.], dtype=float32)")
def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """The product of several matrices, in the cheapest order; the first and last may be vectors.

    Raises:
        ValueError: fewer than two arrays, or an inner one is not a matrix.
        ShapeError: neighbours do not fit.
    """
    xs = [as_operand(x, "multi_dot") for x in arrays]
    if len(xs) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(xs)}")
    if any(x.ndim != 2 for x in xs[1:-1]) or any(x.ndim not in (1, 2) for x in (xs[0], xs[-1])):
        raise ValueError("multi_dot: arrays must all be two-dimensional, except the first and last array")
    names = [chr(97 + i) + chr(98 + i) for i in range(len(xs))]
    names[0] = names[0][-xs[0].ndim :]
    names[-1] = names[-1][: xs[-1].ndim]
    output = (names[0][0] if xs[0].ndim == 2 else "") + (names[-1][-1] if xs[-1].ndim == 2 else "")
    for left, right in itertools.pairwise(xs):
        if left.shape[-1] != right.shape[0]:
            raise ShapeError("multi_dot: neighbours do not fit", got=f"{left.type} and {right.type}")
    return _products.einsum(f"{','.join(names)}->{output}", *xs, optimize="auto", precision=precision)
