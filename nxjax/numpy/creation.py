"""Making arrays: from data, or filled.

What needs no traced value is a broadcast literal or an `iota` inside a trace, never a large constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import as_operand, as_shape, convert
from nxjax.numpy.shapes import broadcast_to
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DeviceLike, DTypeLike, ShardingLike
from nxjax.trace.array import (
    as_numpy,
    as_value,
    check_items,
    copied,
    fresh_data,
    from_numpy,
    place_of,
    readonly,
    scalar,
    wrap,
)
from nxjax.trace.core import EVAL, Array, current_trace
from nxjax.trace.dtypes import DType
from nxjax.trace.lazy import lazy
from nxjax.trace.types import ArrayType, Shape, ShapeDtypeStruct

_PYTHON_SCALARS = (bool, int, float, complex)


def put_on_device(x: Array, device: DeviceLike) -> Array:
    """``x`` on ``device``, where one is named."""
    if device is None:
        return x
    from nxjax.runtime import device_put

    return device_put(x, device)


# --- from data ---


def array(
    object: object,
    dtype: DTypeLike | None = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """An array from ``object``: a number, a nested list, a NumPy array or anything with ``__array__``.

    Python scalars and 64-bit NumPy data take 32-bit defaults unless ``dtype`` says otherwise.

    Args:
        object: the elements; lists of arrays are stacked.
        dtype: of the result; elements are converted, even if that loses digits.
        copy: True makes a separate array, which remains if the given one is deleted or donated. As arrays are
            immutable, they may share memory.
        order: arrays are row-major.
        ndmin: the smallest number of axes; axes of size 1 are added in front.
        device: where to put it.

    Raises:
        DtypeError: no numbers.
        ShapeError: a list of lists of different lengths.
        NotImplementedError: ``order="F"``.

    >>> array([1, 2, 3])
    Array([1, 2, 3], dtype=int32)
    """
    if order not in (None, "C", "K", "A"):
        raise NotImplementedError(f"array: only row-major order is supported, not order={order!r}")
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    x = _from_object(object, wanted)
    if wanted is not None:
        x = convert(x, wanted)
    if ndmin > x.ndim:
        x = ops.reshape(x, shape=(1,) * (ndmin - x.ndim) + x.shape)
    return put_on_device(copied(x) if copy and x is object else x, device)


def _from_object(x: Any, wanted: DType | None) -> Array:
    if isinstance(x, Array):
        return x
    if type(x) in _PYTHON_SCALARS:
        return scalar(x) if wanted is None else wrap(_numpy_as(x, wanted))
    if isinstance(x, (np.ndarray, np.generic)):
        return from_data(x, wanted)
    if hasattr(x, "__nx_array__") or hasattr(x, "__jax_array__"):
        return as_value(x, "array")
    if isinstance(x, (list, tuple)):
        return _from_sequence(x, wanted)
    if x is None:
        raise ParameterError("array: None is not a valid value for array creation")
    if hasattr(x, "__array__") and not isinstance(x, type):
        return from_data(x, wanted)
    try:
        data = np.asarray(memoryview(x))
    except TypeError:
        if isinstance(x, (set, dict, str)) or not hasattr(x, "__len__") or not hasattr(x, "__getitem__"):
            raise DtypeError(f"array: cannot hold a value of type {type(x)}", got=repr(x)[:60]) from None
        return _from_sequence(list(x), wanted)
    return from_data(data, wanted)


def from_data(x: Any, wanted: DType | None) -> Array:
    """NumPy's data as an array of the dtype that is wanted, or the default one."""
    data = as_numpy(x, "array")
    if wanted is not None and data.dtype != wanted and data.dtype in dtypes.NUMERIC:
        return wrap(_numpy_as(data, wanted))
    if wanted is not None and data.dtype == wanted:
        return wrap(fresh_data(data, data.dtype))
    return from_numpy(data, "array")


def _numpy_as(x: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """NumPy data or a Python scalar by value in ``dtype``, converted as the op would."""
    if type(x) is int and dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        if not info.min <= x <= info.max:
            raise OverflowError(f"Python integer {x} out of bounds for {dtype.name}")
        return np.asarray(x).astype(dtype)
    data = np.asarray(x)
    with np.errstate(all="ignore"):
        y = np.asarray(ops.convert_element_type.eval(data, dtype=dtype))
    return y if y.base is None else readonly(y)  # the real part is a view


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for item in x for leaf in _leaves(item)]
    return [x]


def _from_sequence(x: Sequence[Any], wanted: DType | None) -> Array:
    leaves = _leaves(x)
    if wanted is not None and wanted in dtypes.INTEGER and wanted.isbuiltin == 1:
        info = np.iinfo(wanted)
        for leaf in leaves:
            if isinstance(leaf, (int, np.integer)) and not info.min <= leaf <= info.max:
                raise OverflowError(f"Python integer {leaf} out of bounds for {wanted.name}")
    if any(isinstance(leaf, Array) or hasattr(leaf, "__jax_array__") for leaf in leaves):
        return _stacked(x, wanted or _common([as_value(leaf, "array").type for leaf in leaves]))
    check_items(leaves, "array")
    try:
        data = np.asarray(x)
    except ValueError:
        raise ShapeError("array: the nested lists differ in length", got=str(x)[:80]) from None
    if data.dtype == object or data.dtype not in dtypes.NUMERIC:
        kinds = {type(leaf).__name__ for leaf in leaves}
        if data.dtype == object and all(isinstance(leaf, int) for leaf in leaves):
            raise OverflowError(f"Python integer {max(leaves, key=abs)} out of bounds for int64")
        raise DtypeError("array: cannot hold these values", got=", ".join(sorted(kinds)))
    if wanted is not None:
        return wrap(_numpy_as(data, wanted))
    if not leaves:
        return wrap(np.zeros(data.shape, dtypes.as_dtype(float)))
    if all(type(leaf) in _PYTHON_SCALARS for leaf in leaves):
        dtype = dtypes.canonical(data.dtype)
        if dtype in dtypes.INTEGER and dtype != data.dtype and data.size:
            info = np.iinfo(dtype)
            if data.max() > info.max or data.min() < info.min:
                big = data.max() if data.max() > info.max else data.min()
                raise OverflowError(f"Python integer {big} out of bounds for {dtype.name}")
    else:
        dtype = _common([as_value(leaf, "array").type for leaf in leaves])
    with np.errstate(all="ignore"):
        return wrap(data.astype(dtype))


def _common(types: Sequence[ArrayType]) -> DType:
    return dtypes.promote(*[(t.dtype, t.weak) for t in types])[0]


def _stacked(x: Any, dtype: DType) -> Array:
    if not isinstance(x, (list, tuple)):
        return convert(_from_object(x, None), dtype)
    items = [_stacked(item, dtype) for item in x]
    if not items:
        return zeros((0,), dtype)
    if any(item.shape != items[0].shape for item in items):
        raise ShapeError("array: the items differ in shape", got=", ".join(str(item.shape) for item in items))
    rows = [ops.reshape(item, shape=(1, *item.shape)) for item in items]
    return rows[0] if len(rows) == 1 else ops.concatenate(*rows, dimension=0)


def asarray(
    a: object,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """``a`` as an array of ``dtype``, by default its own. An array that has it already is returned unchanged.

    Python scalars and 64-bit NumPy data take 32-bit defaults unless ``dtype`` says otherwise.

    Raises:
        ValueError: ``copy=False`` for data that is not an array, because host data is always copied.
        DtypeError, ShapeError: as `array`.

    >>> x = jnp.asarray([1.5, 2.5])
    >>> jnp.asarray(x) is x
    True
    >>> jnp.asarray(x, dtype=int)
    Array([1, 2], dtype=int32)
    """
    if copy is False and not isinstance(a, Array):
        raise ValueError("asarray: copy=False is impossible here, since host data is always copied")
    return array(a, dtype, bool(copy), order, device=device)


@example("[1, 2]", "Array([1, 2], dtype=int32)")
def copy(a: object, order: str | None = None) -> Array:
    """A copy; arrays are immutable, so it may share memory."""
    return array(a, copy=True, order=order)


@example(
    "jnp.array([-1.7, 1.7]), jnp.int8",
    "Array([-1,  1], dtype=int8)",
    "jnp.array([0, 2]), bool",
    "Array([False,  True], dtype=bool)",
    raises="DtypeError: a dtype that arrays cannot have.",
)
def astype(x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False, device: DeviceLike = None) -> Array:
    """``x`` converted to ``dtype``; None is the default float.

    A float that becomes an integer loses its fraction; a complex number that becomes real loses its imaginary part.
    """
    v = as_operand(x, "astype")
    wanted = dtypes.as_dtype(float if dtype is None else dtype)
    if v.dtype in dtypes.COMPLEX and wanted in dtypes.FLOAT | dtypes.INTEGER:
        v = ops.real(v)
    y = convert(v, wanted)
    return put_on_device(copied(y) if copy and y is x else y, device)


# --- filled ---


def full_scalar(shape: Shape, fill: ArrayLike, dtype: DType, weak: bool = False) -> Array:
    """``fill``, a Python or NumPy scalar, over ``shape``."""
    if current_trace() is EVAL:
        with np.errstate(all="ignore"):
            value = dtypes.cast(np.asarray(fill), dtype)
        # The system has pages of zeros ready, and gives each when it is used first.
        return wrap(np.full(shape, value, dtype) if any(value.tobytes()) else np.zeros(shape, dtype), weak)
    x = wrap(dtypes.cast(np.asarray(fill), dtype), weak)
    return ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=()) if shape else x


def zeros(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Zeros of ``shape`` in ``dtype``, float32 unless another is given.

    Raises:
        ShapeError: a negative size.
        ConcretizationTypeError: a traced size.

    >>> jnp.zeros((2, 1))
    Array([[0.],
           [0.]], dtype=float32)
    >>> jnp.zeros(2, dtype=complex)
    Array([0.+0.j, 0.+0.j], dtype=complex64)
    """
    return put_on_device(
        full_scalar(as_shape("zeros", shape), 0, dtypes.as_dtype(float if dtype is None else dtype)), device
    )


@example("2, dtype=bool", "Array([ True,  True], dtype=bool)")
def ones(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Ones of ``shape`` in ``dtype``, float32 unless another is given; raises as `zeros`."""
    return put_on_device(
        full_scalar(as_shape("ones", shape), 1, dtypes.as_dtype(float if dtype is None else dtype)), device
    )


@example("(0, 3)", "(0, 3)", then=".shape")
def empty(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Zeros: there is no uninitialized memory. Takes the parameters of `zeros` and raises its errors."""
    return zeros(shape, dtype, device=device)


@example(
    "(2, 2), jnp.array([1, 2])",
    "Array([[1, 2],\n       [1, 2]], dtype=int32)",
    "2, 1.5, dtype=int",
    "Array([1, 1], dtype=int32)",
    raises="ShapeError: ``fill_value`` does not broadcast to ``shape``, or a negative size.",
)
def full(
    shape: int | Sequence[int],
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """An array of ``shape`` filled with ``fill_value``, which broadcasts; by default in its dtype."""
    sizes = as_shape("full", shape)
    x = asarray(fill_value if dtype is None else _wrapped(fill_value, dtypes.as_dtype(dtype)), dtype)
    return put_on_device(broadcast_to(x, sizes), device)


def _wrapped(x: Any, dtype: DType) -> Any:
    """A Python integer that fits the integer ``dtype``, by its lowest bits, as in arithmetic with arrays."""
    if type(x) is not int or dtype not in dtypes.INTEGER:
        return x
    info = dtypes.integer_info(dtype)
    return (x - int(info.min)) % (int(info.max) - int(info.min) + 1) + int(info.min)


def _like(a: Any, shape: Any, dtype: Any, where: str) -> tuple[Shape, DType, bool]:
    if isinstance(a, (ShapeDtypeStruct, ArrayType)):
        t: Any = a
    elif not isinstance(a, Array) and hasattr(a, "shape") and hasattr(a, "dtype") and not hasattr(a, "__array__"):
        t = ShapeDtypeStruct(a.shape, a.dtype)
    else:
        t = as_value(a, where).type
    sizes = tuple(t.shape) if shape is None else as_shape(where, shape)
    weak = dtype is None and bool(getattr(t, "weak_type", False))
    return sizes, dtypes.as_dtype(t.dtype if dtype is None else dtype), weak


def _target_of(a: Any, sizes: Shape, device: Any, out_sharding: Any) -> Any:
    """Where to put what is like ``a``: where it was asked for, else where ``a`` was put if the shape is the same."""
    if device is not None or out_sharding is not None:
        return device if device is not None else out_sharding
    return place_of(a) if getattr(a, "shape", None) == sizes and current_trace() is EVAL else None


@example("jnp.arange(3)", "Array([0, 0, 0], dtype=int32)")
def zeros_like(
    a: object,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Zeros in the shape and dtype of ``a``, which may be a `ShapeDtypeStruct`, unless others are given."""
    sizes, wanted, weak = _like(a, shape, dtype, "zeros_like")
    return put_on_device(full_scalar(sizes, 0, wanted, weak), _target_of(a, sizes, device, out_sharding))


@example("jnp.arange(3), shape=(1, 2)", "Array([[1, 1]], dtype=int32)")
def ones_like(
    a: object,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Ones in the shape and dtype of ``a``, unless others are given."""
    sizes, wanted, weak = _like(a, shape, dtype, "ones_like")
    return put_on_device(full_scalar(sizes, 1, wanted, weak), _target_of(a, sizes, device, out_sharding))


@example("jnp.arange(3), dtype=float", "Array([0., 0., 0.], dtype=float32)")
def empty_like(
    prototype: object,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Zeros in the shape and dtype of ``prototype``: there is no uninitialized memory."""
    return zeros_like(prototype, dtype, shape, device=device)


@example(
    "jnp.arange(3), 2.5",
    "Array([2, 2, 2], dtype=int32)",
    "jnp.arange(3), 2.5, dtype=float",
    "Array([2.5, 2.5, 2.5], dtype=float32)",
    raises="ShapeError: ``fill_value`` does not broadcast to the shape.",
)
def full_like(
    a: object,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """``fill_value`` in the shape and dtype of ``a``, unless others are given."""
    sizes, wanted, weak = _like(a, shape, dtype, "full_like")
    x = broadcast_to(asarray(_wrapped(fill_value, wanted), wanted), sizes)
    return put_on_device(convert(x, wanted, weak) if weak else x, _target_of(a, sizes, device, out_sharding))


# --- printing: NumPy's own ---

array_repr, array_str = np.array_repr, np.array_str
set_printoptions, get_printoptions, printoptions = np.set_printoptions, np.get_printoptions, np.printoptions

# Older pickles look for them here.
__getattr__, _ = lazy(
    __name__,
    dict.fromkeys(
        ["arange", "eye", "fromfunction", "geomspace", "identity", "linspace", "logspace", "tri", "vander"],
        "nxjax.numpy.ranges",
    ),
)
