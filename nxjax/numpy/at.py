"""Indexed updates of immutable arrays: ``x.at[index].set(value)`` and its relatives, by scatter.

Indices out of range are dropped (``mode="drop"``, the default) or clamped (``"clip"``); where an index occurs more
than once, `set` leaves one of the values, and `add`, `multiply`, `min`, `max` combine all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, final

import numpy as np

from nxjax.errors import DtypeError, ImmutableArrayError
from nxjax.numpy.creation import asarray
from nxjax.numpy.documented import shown
from nxjax.numpy.elementwise import divide, negative
from nxjax.numpy.powers import power
from nxjax.numpy.promotion import as_operand, broadcast_to_shape, convert, python_scalar
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import broadcast_to
from nxjax.numpy.subscripts import canonical, make_plan, mode_name, read, refuse_absent, stacked_starts
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Tracer
from nxjax.trace.dtypes import DType
from nxjax.transforms.control.while_loop import while_loop


class UpdateOptions(NamedTuple):
    """What every update takes: two promises that a faster kernel may use, and how odd indices count."""

    indices_are_sorted: bool
    unique_indices: bool
    mode: Any
    wrap_negative_indices: bool


class Update(Protocol):
    """A method of `IndexedArray` that gives the array with other values there."""

    def __call__(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array: ...


Step = Callable[[Any, Any, UpdateOptions], Array]


def _update(array: str, values: str, result: str) -> Callable[[Step], Update]:
    """Decorator for a method with JAX's options, of which it takes one tuple; ``array.method(values)`` shows it."""

    def complete(step: Step) -> Update:
        def method(
            self: IndexedArray,
            values: Any,
            *,
            indices_are_sorted: bool = False,
            unique_indices: bool = False,
            mode: Any = None,
            out_sharding: Any = None,
            wrap_negative_indices: bool = True,
        ) -> Array:
            return step(self, values, UpdateOptions(indices_are_sorted, unique_indices, mode, wrap_negative_indices))

        method.__name__, method.__qualname__, method.__doc__ = step.__name__, step.__qualname__, step.__doc__
        return cast(Update, shown(f"{array}.{step.__name__}({values})", result)(method))

    return complete


@final
class At:
    """``x.at``: index it to say which elements.

    >>> x = jnp.zeros(3)
    >>> x.at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    >>> x
    Array([0., 0., 0.], dtype=float32)
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexedArray:
        return IndexedArray(self.array, index)

    if not TYPE_CHECKING:  # which refuse it by themselves

        def __setitem__(self, index: Any, x: Any) -> None:
            raise ImmutableArrayError(
                "x.at[index] cannot be assigned to", got=self.array.type, fix="x = x.at[index].set(value)"
            )

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


@final
class IndexedArray:
    """``x.at[index]``: elements to read or to update.

    Every method takes JAX's options ``indices_are_sorted``, ``unique_indices``, ``mode`` and ``wrap_negative_indices``;
    the first two are promises that a faster kernel may use.

    An index out of range is left alone by updates (``mode="drop"``, the default), or taken at the edge (``"clip"``).

    Raises:
        DtypeError: complex values into a real array, or keys into numbers.
        ShapeError: values that do not broadcast to what is indexed.

    >>> x = jnp.arange(4)
    >>> x.at[::2].set(-1)
    Array([-1,  1, -1,  3], dtype=int32)
    >>> x.at[jnp.array([0, 0, 9])].add(10)
    Array([20,  1,  2,  3], dtype=int32)
    >>> x.at[9].set(-1, mode="clip")
    Array([ 0,  1,  2, -1], dtype=int32)
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    @shown(
        "x = jnp.array([1.0, 2.0])",
        "",
        'x.at[5].get(), x.at[5].get(mode="fill"), x.at[5].get(mode="fill", fill_value=0)',
        "(Array(2., dtype=float32), Array(nan, dtype=float32), Array(0., dtype=float32))",
    )
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

    @_update("jnp.zeros((2, 2)).at[:, 0]", "jnp.array([1, 2])", "Array([[1., 0.],\n       [2., 0.]], dtype=float32)")
    def set(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] = values``; where an index occurs more than once, one of the values is left."""
        return write(self.array, self.index, values, "scatter", options)

    @_update("jnp.zeros(2, int).at[jnp.array([0, 0, 1])]", "jnp.array([1, 2, 3])", "Array([3, 3], dtype=int32)")
    def add(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] += values``; where an index occurs more than once, all values are added."""
        return write(self.array, self.index, values, "scatter_add", options)

    @_update("jnp.array([5, 5]).at[0]", "2", "Array([3, 5], dtype=int32)")
    def subtract(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] -= values``."""
        x = _as_updates(values, self.array.dtype)
        less = negative(convert(x, _common_dtype(self.array, x)))  # a dtype of its own may have no sign
        return write(self.array, self.index, less, "scatter_add", options)

    @_update("jnp.array([5, 5]).at[jnp.array([0, 0])]", "2", "Array([20,  5], dtype=int32)")
    def multiply(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] *= values``."""
        return write(self.array, self.index, values, "scatter_mul", options)

    mul = multiply
    sub = subtract

    @_update("jnp.array([6.0, 6.0]).at[0]", "4", "Array([1.5, 6. ], dtype=float32)")
    def divide(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] /= values``."""
        return divide(self.array, write(ones_of(self.array), self.index, values, "scatter_mul", options))

    @_update("jnp.array([2, 3]).at[1]", "2", "Array([2, 9], dtype=int32)")
    def power(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] **= values``."""
        x = self.array
        # Exponents keep their own range: an array of int8 may be raised to 200.
        exponents = asarray(values) if x.dtype in dtypes.INTEGER else None
        wide = x.dtype if exponents is None else dtypes.promote((x.dtype, False), (exponents.dtype, False))[0]
        whole = wide in dtypes.INTEGER
        base = convert(x, wide) if whole else x
        product = write(ones_of(base), self.index, exponents if whole else values, "scatter_mul", options)
        powers = power(base, product)
        return convert(powers, x.dtype, x.type.weak) if whole else powers

    @_update("jnp.array([2, 3]).at[:]", "jnp.array([1, 9])", "Array([1, 3], dtype=int32)")
    def min(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] = minimum(x[index], values)``."""
        return write(self.array, self.index, values, "scatter_min", options)

    @_update("jnp.array([2, 3]).at[:]", "jnp.array([1, 9])", "Array([2, 9], dtype=int32)")
    def max(self, values: Any, options: UpdateOptions) -> Array:
        """``x[index] = maximum(x[index], values)``."""
        return write(self.array, self.index, values, "scatter_max", options)

    @shown("jnp.array([1.0, 4.0, 9.0]).at[1:].apply(jnp.sqrt)", "Array([1., 2., 3.], dtype=float32)")
    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index] = func(x[index])``, as often as ``index`` names the element."""
        options = UpdateOptions(indices_are_sorted, unique_indices, mode, wrap_negative_indices)
        x, index = self.array, self.index
        old = read(x, index, mode, None, indices_are_sorted, unique_indices, wrap_negative_indices)
        once = write(x, index, func(old), "scatter", options)
        return once if unique_indices or old.size < 2 else _reapply(x, index, func, once, options)


# How often a function is applied again without a loop.
_UNROLLED = 8

# Of truths the sum is "or", the product "and".
_OF_TRUTHS = {"scatter_add": "scatter_max", "scatter_mul": "scatter_min"}


def ones_of(x: Array) -> Array:
    """Ones in the shape and dtype of ``x``."""
    return convert(like(x, 1), x.dtype, x.type.weak)


def _reapply(x: Array, index: Any, func: Callable[[Any], Any], once: Array, options: UpdateOptions) -> Array:
    """``once``, and ``func`` applied again where an element is named more than once."""
    from nxjax.runtime import ensure_compile_time_eval

    traced = any(isinstance(i, Tracer) for i in (index if isinstance(index, tuple) else (index,)))
    # What is known while tracing decides how often, and leaves no loop in the program.
    with contextlib.nullcontext() if traced else ensure_compile_time_eval():
        times = write(wrap(np.zeros(x.shape, np.int32)), index, 1, "scatter_add", options)
        most = ops.reduce_max(times, axes=tuple(range(x.ndim)))

    def more(k: Any, y: Array) -> Array:
        return where(k < times, convert(as_operand(func(y), "apply"), y.dtype, y.type.weak), y)

    if traced or int(most) > _UNROLLED:
        start = wrap(np.asarray(1, np.int32))
        return while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, more(*s)), (start, once))[1]
    for k in range(1, int(most)):
        once = more(k, once)
    return once


def write(x: Array, index: Any, values: Any, op: str, options: UpdateOptions) -> Array:
    """``x`` with ``values``, which broadcast, scattered to ``index``."""
    v = _as_updates(values, x.dtype)
    _check_cast(x, v)
    own = x.type
    dtype = x.dtype
    if op != "scatter" and v.dtype != dtype:
        # What combines is computed in the common dtype, as in JAX: 2 of int32 times 1.5 is 3.
        dtype = _common_dtype(x, v)
    if dtype == dtypes.bool_:
        op = _OF_TRUTHS.get(op, op)
    x, v = convert(x, dtype), convert(v, dtype)
    entries = canonical(index, x.ndim)
    refuse_absent(x.shape, entries)
    plan = make_plan(x.shape, entries, options.wrap_negative_indices)
    if plan.empty:
        return convert(x, own.dtype, own.weak)
    # Axes of size 1 that the index does not have may lead, as in NumPy's assignment.
    while v.ndim > len(plan.final) and v.shape[0] == 1:
        v = ops.reshape(v, shape=v.shape[1:])
    v = broadcast_to(v, plan.final)
    v = v if v.shape == plan.shape else ops.reshape(v, shape=plan.shape)
    if plan.flips:
        v = ops.rev(v, dimensions=plan.flips)
    if 0 in plan.final:
        return convert(x, own.dtype, own.weak)
    if not plan.axes and plan.windows == x.shape:
        return convert(_combine_all(x, v, op), own.dtype, own.weak)
    if not plan.axes and 0 in plan.windows:
        return convert(x, own.dtype, own.weak)

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
            update_window_dims=plan.offsets, inserted_window_dims=plan.collapsed, scatter_dims_to_operand_dims=axes
        ),
        indices_are_sorted=options.indices_are_sorted or plan.unique,
        unique_indices=options.unique_indices or plan.unique,
        mode=GatherScatterMode.from_any("fill" if options.mode is None else mode_name(options.mode)),
    )
    return convert(out, own.dtype, own.weak)


def _common_dtype(x: Array, v: Array) -> DType:
    """What elements and updates are combined in."""
    return dtypes.promote((x.dtype, x.type.weak), (v.dtype, v.type.weak))[0]


def _as_updates(values: Any, dtype: DType) -> Array:
    """What is scattered into an array of ``dtype``: a Python integer may be one that only this dtype holds."""
    if isinstance(values, (list, tuple)):
        return asarray(values)
    if type(values) is int and dtype in dtypes.INTEGER:
        return python_scalar(values, dtype, True)
    return as_operand(values, "scatter")


def _combine_all(x: Array, v: Array, op: str) -> Array:
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
