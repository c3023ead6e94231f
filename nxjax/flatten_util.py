"""`nx.flatten_util`: a tree of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """All leaves in one vector of their common dtype, and the function that restores the tree.

    Returns:
        ``(vector, unravel)``; ``unravel(v)`` returns the tree with each leaf's shape and dtype.

    Raises (by ``unravel``):
        ShapeError: the vector has another length.
        DtypeError: the vector has another dtype, while the leaves had one in common.

    >>> v, unravel = ravel_pytree({"a": nx.ones(2), "b": nx.zeros((2, 2))})
    >>> v.shape, unravel(v)["b"].shape
    ((6,), (2, 2))
    """
    leaves, treedef = tree.flatten(pytree)
    values = [as_value(x, "ravel_pytree") for x in leaves]
    types = [v.type for v in values]
    sizes = [t.size for t in types]
    total = sum(sizes)
    if not values:
        return jnp.zeros(0, dtypes.float32), lambda _: tree.unflatten(treedef, [])
    # A Python number counts with its own dtype: to yield, as in arithmetic, would round it.
    dtype = dtypes.promote(*((t.dtype, False) for t in types))[0]
    flat = [reshape(v if v.dtype == dtype else convert_element_type(v, dtype=dtype), shape=(v.size,)) for v in values]
    mixed = any(t.dtype != dtype for t in types)

    def unravel(vector: Any) -> Any:
        x = as_value(vector, "unravel")
        if x.shape != (total,):
            raise ShapeError("unravel: other length than the raveled tree", got=x.type, expected=f"({total},)")
        if x.dtype != dtype:
            raise DtypeError(
                "unravel: other dtype than the raveled tree", got=x.type, expected=dtypes.short_name(dtype)
            )
        out: list[Array] = []
        start = 0
        for t in types:
            stop = start + math.prod(t.shape)
            part = reshape(slice_op(x, start_indices=(start,), limit_indices=(stop,), strides=None), shape=t.shape)
            out.append(convert_element_type(part, dtype=t.dtype) if mixed and t.dtype != dtype else part)
            start = stop
        return tree.unflatten(treedef, out)

    return jnp.concatenate(flat), unravel
