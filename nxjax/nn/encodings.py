"""Integers as vectors."""

from __future__ import annotations

from nxjax import lax
from nxjax.errors import ParameterError
from nxjax.numpy.creation import asarray
from nxjax.numpy.promotion import static_int
from nxjax.ops.base import check_axis
from nxjax.ops.composite_one_hot import one_hot as op
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array


def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int | str = -1) -> Array:
    """Vectors of zeros with a 1 at the position ``x``; all zeros for values outside [0, num_classes).

    Args:
        x: integer array.
        num_classes: size of the new axis.
        dtype: of the result; float32 by default.
        axis: the position of the new axis in the result; or the name of an axis of `vmap` or `shard_map` of size
            ``num_classes``. Then each lane has its own class.

    Raises:
        ParameterError: a named axis has another size.

    >>> one_hot(nx.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    v = asarray(x)
    if v.dtype == dtypes.bool_:
        v = convert_element_type(v, dtype=dtypes.int32)
    found = dtypes.as_dtype(float if dtype is None else dtype)
    if isinstance(axis, str):
        return convert_element_type(v == _lane(axis, num_classes), dtype=found)
    where = check_axis("one_hot", static_int("one_hot", axis), v.ndim + 1)
    return op(v, num_classes=static_int("one_hot", num_classes), dtype=found, axis=where)


def _lane(axis: str, num_classes: int) -> Array:
    size = lax.axis_size(axis)
    if size != num_classes:
        raise ParameterError("one_hot: num_classes is the size of a named axis", got=num_classes, expected=str(size))
    return lax.axis_index(axis)
