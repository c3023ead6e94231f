"""Indexed updates of immutable arrays: ``x.at[index].set(value)`` and its relatives, by scatter.

Indices out of range are dropped (``mode="drop"``, the default) or clamped (``"clip"``); where an index occurs more
than once, `set` leaves one of the values, and `add`, `multiply`, `min`, `max` combine all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError
from nxjax.numpy import vocabulary as ops
from nxjax.numpy.promotion import broadcast_to_shape, convert, value
from nxjax.numpy.shapes import broadcast_to
from nxjax.numpy.subscripts import canonical, make_plan, mode_name, read, stacked_starts
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array


@final
class At:
    """``x.at``: index it to say which elements."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


@final
class Place:
    """``x.at[index]``: elements to read or to update.

    Every method takes JAX's options ``indices_are_sorted``, ``unique_indices``, ``mode`` and ``wrap_negative_indices``;
    the first two are promises that a faster kernel may use.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
        out_sharding: Any = None,
    ) -> Array:
        """``x[index]``; ``mode="fill"`` gives ``fill_value`` (nan) out of range."""
        return read(self.array, self.index, mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices)

    def set(self, values: Any, **options: Any) -> Array:
        """``x[index] = values``."""
        return write(self.array, self.index, values, "scatter", **options)

    def add(self, values: Any, **options: Any) -> Array:
        """``x[index] += values``."""
        return write(self.array, self.index, values, "scatter_add", **options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """``x[index] -= values``."""
        from nxjax.numpy.elementwise import negative

        return write(self.array, self.index, negative(values), "scatter_add", **options)

    def multiply(self, values: Any, **options: Any) -> Array:
        """``x[index] *= values``."""
        return write(self.array, self.index, values, "scatter_mul", **options)

    mul = multiply
    sub = subtract

    def divide(self, values: Any, **options: Any) -> Array:
        """``x[index] /= values``."""
        from nxjax.numpy.elementwise import divide

        return divide(self.array, write(ones_of(self.array), self.index, values, "scatter_mul", **options))

    def power(self, values: Any, **options: Any) -> Array:
        """``x[index] **= values``."""
        from nxjax.numpy.powers import power

        return power(self.array, write(ones_of(self.array), self.index, values, "scatter_mul", **options))

    def min(self, values: Any, **options: Any) -> Array:
        """``x[index] = minimum(x[index], values)``."""
        return write(self.array, self.index, values, "scatter_min", **options)

    def max(self, values: Any, **options: Any) -> Array:
        """``x[index] = maximum(x[index], values)``."""
        return write(self.array, self.index, values, "scatter_max", **options)

    def apply(self, ufunc: Callable[[Any], Any], **options: Any) -> Array:
        """``x[index] = ufunc(x[index])``, once per place."""
        options.pop("out_sharding", None)
        reading = {k: v for k, v in options.items() if k != "mode"}
        old = read(self.array, self.index, options.get("mode"), **reading)
        return write(self.array, self.index, ufunc(old), "scatter", **options)


# Of truths the sum is "or", the product "and".
_OF_TRUTHS = {"scatter_add": "scatter_max", "scatter_mul": "scatter_min"}


def ones_of(x: Array) -> Array:
    """Ones in the shape and dtype of ``x``."""
    from nxjax.ops.base import like

    return convert(like(x, 1), x.dtype, x.type.weak)


def write(
    x: Array,
    index: Any,
    values: Any,
    op: str,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    wrap_negative_indices: bool = True,
    out_sharding: Any = None,
) -> Array:
    """``x`` with ``values``, which broadcast, scattered to ``index``."""
    v = value(values, "scatter")
    _check_cast(x, v)
    own = x.type
    dtype = x.dtype
    if op != "scatter" and v.dtype != dtype:
        # What combines is computed in the common dtype, as in JAX: 2 of int32 times 1.5 is 3.
        dtype = dtypes.promote((dtype, own.weak), (v.dtype, v.type.weak))[0]
    if dtype == dtypes.bool_:
        op = _OF_TRUTHS.get(op, op)
    x, v = convert(x, dtype), convert(v, dtype)
    plan = make_plan(x.shape, canonical(index, x.ndim), wrap_negative_indices)
    if plan.empty:
        return convert(x, own.dtype, own.weak)
    # Axes of size 1 that the index does not have may lead, as in NumPy's assignment.
    while v.ndim > len(plan.final) and v.shape[0] == 1:
        v = ops.reshape(v, shape=v.shape[1:])
    v = broadcast_to(v, plan.final)
    v = v if v.shape == plan.shape else ops.reshape(v, shape=plan.shape)
    if plan.flips:
        v = ops.rev(v, dimensions=plan.flips)
    if not plan.axes and plan.windows == x.shape:
        return convert(_whole(x, v, op), own.dtype, own.weak)
    if not plan.axes and 0 in plan.windows:
        return convert(x, own.dtype, own.weak)
    from nxjax.ops.indexing import GatherScatterMode
    from nxjax.ops.scatter import ScatterDimensionNumbers

    starts = stacked_starts(plan)
    axes = plan.axes
    if not axes:
        # A window that starts at zero on every axis.
        batch = tuple(n for i, n in enumerate(plan.shape) if i not in plan.offsets)
        axes, starts = (0,), wrap(np.zeros((*batch, 1), np.int32))
    out = getattr(ops, op)(
        x,
        starts,
        v,
        dimension_numbers=ScatterDimensionNumbers(
            update_window_dims=plan.offsets,
            inserted_window_dims=plan.collapsed,
            scatter_dims_to_operand_dims=axes,
        ),
        indices_are_sorted=indices_are_sorted or plan.unique,
        unique_indices=unique_indices or plan.unique,
        mode=GatherScatterMode.from_any("fill" if mode is None else mode_name(mode)),
    )
    return convert(out, own.dtype, own.weak)


def _whole(x: Array, v: Array, op: str) -> Array:
    """The update of every element."""
    # A true scalar mask leads with an axis of one element.
    v = ops.reshape(v, shape=x.shape) if v.size == x.size else broadcast_to_shape(v, x.shape)
    combine = {"scatter_add": "add", "scatter_mul": "mul", "scatter_min": "min", "scatter_max": "max"}
    return v if op == "scatter" else getattr(ops, combine[op])(x, v)


def _check_cast(x: Array, v: Array) -> None:
    """Refuse what NumPy would not assign even by force: complex into real, keys into numbers."""
    keys = dtypes.key in (x.dtype, v.dtype)
    if (keys and x.dtype != v.dtype) or (v.dtype in dtypes.COMPLEX and x.dtype not in dtypes.COMPLEX):
        raise DtypeError("scatter: the values cannot be cast to the array's dtype", got=v.type, expected=x.type)
