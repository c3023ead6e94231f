"""Norms of vectors and matrices, as `nx.numpy.linalg` has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.documented import example
from nxjax.numpy.floats import conjugate, real
from nxjax.numpy.promotion import as_axes, as_operand, convert, promote_inexact
from nxjax.numpy.reductions import max as max_
from nxjax.numpy.reductions import min as min_
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.shapes import expand_dims, moveaxis
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


@example(
    "jnp.array([[3.0, 4.0], [0.0, 0.0]])",
    "Array(5., dtype=float32)",
    "jnp.array([[3.0, 4.0], [6.0, 8.0]]), axis=1",
    "Array([ 5., 10.], dtype=float32)",
    "jnp.array([[3.0, 4.0], [6.0, 8.0]]), ord=1",
    "Array(12., dtype=float32)",
    raises="ValueError: an order that there is not, or more than two axes.",
)
def norm(
    x: ArrayLike, ord: int | float | str | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Array:
    """A norm of vectors (one axis) or matrices (two axes); of the flattened array by default.

    ``ord`` of vectors is any number, inf or -inf; of matrices ``fro`` (None), ``nuc``, 1, -1, 2, -2, inf or -inf.
    """
    (v,) = promote_inexact("norm", x)
    if axis is None and ord is None:
        return ops.sqrt(sum_(real(v * conjugate(v)), keepdims=keepdims))
    axes = as_axes("norm", axis, v.ndim)
    if len(axes) == 1:
        return vector_norm(v, axis=axes[0], ord=2 if ord is None else ord, keepdims=keepdims)
    if len(axes) != 2:
        raise ValueError(f"Improper number of axes for norm: {len(axes)}")
    row, column = axes
    if ord is None or ord in ("f", "fro"):
        return ops.sqrt(sum_(real(v * conjugate(v)), axes, keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        first, second = (row, column) if ord in (1, -1) else (column, row)
        sums, axes = sum_(ops.abs(v), first, keepdims=True), (first, second)
        return (
            max_(sums, axes, keepdims=keepdims, initial=_of_nothing(v))
            if ord > 0
            else min_(sums, axes, keepdims=keepdims)
        )
    if ord in (2, -2, "nuc"):
        s = jnp.linalg.svdvals(moveaxis(v, axes, (-2, -1)))
        y = sum_(s, -1) if ord == "nuc" else max_(s, -1, initial=_of_nothing(s)) if ord == 2 else min_(s, -1)
        return expand_dims(y, axes) if keepdims else y
    raise ValueError(f"Invalid order '{ord}' for matrix norm.")


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: int | float | str | None = 2,
) -> Array:
    """The ``ord``-norm of vectors along ``axis`` (axes are taken together); of integers, those of 1 and inf are some.

    Raises:
        ValueError: an order that is text.
        AxisError: an axis that ``x`` does not have.

    >>> jnp.linalg.vector_norm(jnp.array([[3.0, 4.0], [0.0, 2.0]]), axis=1, ord=jnp.inf)
    Array([4., 2.], dtype=float32)
    >>> jnp.linalg.vector_norm(jnp.array([3.0, 0.0]), ord=0)
    Array(1., dtype=float32)
    """
    v = as_operand(x, "vector_norm")
    axes = as_axes("vector_norm", axis, v.ndim)
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    if ord in (1, np.inf, -np.inf):  # integers stay integers
        size = v if v.dtype == dtypes.bool_ else ops.abs(v)
        if ord == np.inf:
            return max_(size, axes, keepdims=keepdims, initial=_of_nothing(v))
        return (sum_ if ord == 1 else min_)(size, axes, keepdims=keepdims)
    (v,) = promote_inexact("vector_norm", v)
    if ord is None or ord == 2:
        return ops.sqrt(sum_(real(v * conjugate(v)), axes, keepdims=keepdims))
    size = ops.abs(v)
    if ord == 0:
        return sum_(convert(v != 0, size.dtype), axes, keepdims=keepdims)
    return sum_(size**ord, axes, keepdims=keepdims) ** (1.0 / ord)


@example("jnp.array([[3.0, 4.0], [6.0, 8.0]]), ord=jnp.inf", "Array(14., dtype=float32)")
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: int | float | str | None = "fro") -> Array:
    """A norm of matrices in the last two axes; ``ord`` as in `norm`."""
    return norm(x, ord, (-2, -1), keepdims)


def _of_nothing(x: Array) -> int | None:
    """The largest size where there are no elements; None: it is not asked for, which takes less time."""
    return None if x.size else 0
