"""`jax.lax`'s functions that sort, and those that give back what they get for transforms or compilers to see."""

from __future__ import annotations

from typing import Any

from nxjax.errors import ParameterError
from nxjax.lax._operands import index
from nxjax.numpy.documented import example
from nxjax.ops import identity
from nxjax.ops import sort as sorts
from nxjax.ops.arithmetic import neg
from nxjax.ops.base import check_axis
from nxjax.ops.convert import convert_element_type
from nxjax.trace import tree as trees
from nxjax.trace.annotations import ArrayLike, PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array

# --- sorting ---


def sort(operand: PyTree, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Array | tuple[Array, ...]:
    """One array, or a sequence of arrays sorted together by the first ``num_keys`` of them.

    Floats are ordered with NaN last, complex numbers by real, then imaginary part.

    Args:
        operand: array, or arrays of one shape: keys, then arrays that are moved with them.
        dimension: the axis; negative ones count from the last.
        is_stable: keep equal keys in their order.
        num_keys: how many arrays decide, the first before the second.

    Raises:
        ParameterError: no arrays, or too many keys.
        ShapeError: the shapes differ.
        AxisError: no such axis.

    >>> lax.sort(jnp.array([2.0, jnp.nan, -1.0]))
    Array([-1.,  2., nan], dtype=float32)
    >>> lax.sort((jnp.array([1, 0, 1]), jnp.array([5, 4, 3])), num_keys=2)
    (Array([0, 1, 1], dtype=int32), Array([4, 3, 5], dtype=int32))
    """
    many = isinstance(operand, (tuple, list))
    values = [as_value(x, "sort") for x in (operand if many else (operand,))]
    if not values:
        raise ParameterError("sort: needs at least one operand", got="none")
    axis = check_axis("sort", dimension, values[0].ndim)
    ys = sorts.sort(*values, dimension=axis, is_stable=is_stable, num_keys=num_keys)
    return tuple(ys) if many else ys[0]


@example(
    "jnp.array([3, 1, 2]), jnp.array([30.0, 10.0, 20.0])",
    "(Array([1, 2, 3], dtype=int32), Array([10., 20., 30.], dtype=float32))",
    raises="ShapeError: the shapes differ.",
)
def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Keys in order, and values moved along with them."""
    return sort((keys, values), dimension, is_stable, 1)


@example("jnp.array([1, 9, 9, 4]), 2", "[Array([9, 9], dtype=int32), Array([1, 2], dtype=int32)]")
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]:
    """The k largest along an axis and their indices.

    Values fall; of equal ones the first comes first. Indices are int32.

    Raises:
        ShapeError: the axis has less than ``k`` elements.
        AxisError: no such axis.
    """
    x = as_value(operand, "top_k")
    return list(sorts.top_k(x, k=index(k, "top_k"), axis=check_axis("top_k", axis, x.ndim)))


@example("jnp.array([1.0, 9.0, 4.0]), 2", "[Array([9., 4.], dtype=float32), Array([1, 2], dtype=int32)]")
def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """The k largest elements, as `top_k` gives them: the result is exact."""
    return top_k(operand, k, axis=reduction_dimension)


@example("jnp.array([1.0, 9.0, 4.0]), 2", "[Array([1., 4.], dtype=float32), Array([0, 2], dtype=int32)]")
def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """The k smallest elements in ascending order, and their int32 indices. The result is exact.

    Of equal elements, the one with the smaller index comes first.
    """
    values, where = top_k(neg(as_value(operand, "approx_min_k")), k, axis=reduction_dimension)
    return [neg(values), where]


# --- identities ---


def stop_gradient(x: PyTree) -> PyTree:
    """A tree of values that derivatives take as constants.

    Values, shapes and dtypes are unchanged.

    >>> nx.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return trees.map(_stop_gradient_of, x)


def _stop_gradient_of(v: Any) -> Array:
    x = as_value(v, "stop_gradient")
    if x.type.weak and not isinstance(v, Array):
        x = convert_element_type(x, dtype=x.dtype)  # a Python scalar comes back as an array of its default dtype
    return identity.stop_gradient(x)


@example('{"a": jnp.array([1, 2])}', "{'a': Array([1, 2], dtype=int32)}")
def optimization_barrier(operand: PyTree, /) -> PyTree:
    """A tree of values. A compiler moves and merges no computation across it.

    Values, shapes and dtypes are unchanged.
    """
    leaves, structure = trees.flatten(operand)
    return trees.unflatten(structure, identity.optimization_barrier(*(as_value(x) for x in leaves)))
