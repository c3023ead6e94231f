"""How operands of a NumPy-like function become operands of a strict op: conversion, promotion, broadcasting.

Promotion is that of JEP 9407 (`trace.dtypes`): Python scalars and arrays made from them are weak and yield to any
array of their kind. Knows no function of the face; every one of them starts here.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.config import config, current_settings
from nxjax.errors import ConcretizationTypeError, DtypeError, ParameterError, ShapeError, TracerIntegerConversionError
from nxjax.numpy.methods import concrete_value
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import check_axes, check_axis
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.array import as_value as as_operand
from nxjax.trace.core import EVAL, Array, Tracer, use
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

_PYTHON_SCALARS = (bool, int, float, complex)
# What they are made of, not arrays: those can be deleted.
_scalars: dict[tuple[Any, ...], tuple[np.ndarray[Any, Any], ArrayType]] = {}


def convert(x: Array, dtype: DType, weak: bool = False) -> Array:
    """``x`` by value in ``dtype``; itself when nothing changes but strength that no op can see.

    A concrete scalar is converted on the spot, so that a trace sees a literal of the wanted dtype.
    """
    old = x.type
    if old.dtype == dtype:
        if old.weak == weak:
            return x
        if isinstance(x, DeviceArray):
            return x.with_type(ArrayType(old.shape, dtype, weak))
    elif type(x) is DeviceArray and x.place is None and not old.shape:
        with use(EVAL):
            return ops.convert_element_type(x, dtype=dtype, weak=weak)
    return ops.convert_element_type(x, dtype=dtype, weak=weak)


def boolean(x: Any, where: str) -> Array:
    """``x != 0``."""
    v = as_operand(x, where)
    return v if v.dtype == dtypes.bool_ else convert(v, dtypes.bool_)


def widen_index(index: Array) -> Array:
    """Whole numbers of at least 32 bits: a narrow dtype does not hold the sizes that an index is compared with."""
    return convert(index, dtypes.int32) if index.dtype.itemsize < 4 else index


def python_scalar(x: Any, dtype: DType, weak: bool) -> DeviceArray:
    """A Python number as a 0-d array of ``dtype``."""
    key = (type(x), x, dtype, weak)
    found = _scalars.get(key) if x else None
    if found is None:
        try:
            whole = np.asarray(x, np.int64 if type(x) is int and x < 2**63 else None)
        except OverflowError:
            raise OverflowError(f"Python integer {x} too large to convert to {dtype.name}") from None
        # What fits the default integer wraps around in a narrower one, as in XLA; what does not is a mistake.
        above = 2**32 if dtype == dtypes.uint32 else 2**31
        lost = type(x) is int and not -(2**31) <= x < above and dtype in dtypes.INTEGER and dtype.itemsize < 8
        if whole.dtype == object or lost:
            raise OverflowError(f"Python integer {x} too large to convert to {dtype.name}")
        with np.errstate(all="ignore"):  # integers wrap around, as in XLA
            data = np.asarray(dtypes.cast(whole, dtype))
        data.flags.writeable = False
        found = data, ArrayType((), data.dtype, weak)
        if x and len(_scalars) < 1024:
            _scalars[key] = found
    return DeviceArray(*found)


def dtype_of(x: Any, where: str) -> tuple[DType, bool]:
    """Dtype and weakness of an operand; a Python scalar is not looked at for its size."""
    kind = type(x)
    if kind in _PYTHON_SCALARS:
        return dtypes.as_dtype(kind), kind is not bool
    t = as_operand(x, where).type
    return t.dtype, t.weak


def result_type_of(xs: Sequence[Any], where: str) -> tuple[DType, bool]:
    """Common dtype of operands, and whether it is weak."""
    return dtypes.promote(*[dtype_of(x, where) for x in xs])


def promote_to(where: str, xs: Sequence[Any], dtype: DType, weak: bool = False) -> list[Array]:
    """Operands in ``dtype``; the strong ones among them decide that the result is strong."""
    out: list[Array] = []
    for x in xs:
        kind = type(x)
        if kind in _PYTHON_SCALARS:
            out.append(python_scalar(x, dtype, kind is not bool or weak))
            continue
        v = as_operand(x, where)
        t = v.type
        out.append(v if t.dtype == dtype and (t.weak == weak or not weak) else convert(v, dtype, weak))
    return out


def promote(where: str, *xs: Any) -> list[Array]:
    """Operands in their common dtype, in their own shapes."""
    pairs = [dtype_of(x, where) for x in xs]
    return promote_to(where, xs, *dtypes.promote(*pairs))


def promote_inexact(where: str, *xs: ArrayLike) -> list[Array]:
    """Operands in their common float or complex dtype: integers and booleans become float."""
    dtype, weak = dtypes.promote(*[dtype_of(x, where) for x in xs])
    if dtype not in dtypes.NUMERIC:
        raise DtypeError(f"{where}: does not take this dtype", got=dtypes.short_name(dtype), expected="a number")
    return promote_to(where, xs, dtypes.to_inexact(dtype), weak)


def broadcast_shape(where: str, *shapes: Shape) -> Shape:
    """The shape that operands of these shapes are repeated into."""
    if current_settings().mode is not None and len({len(s) for s in shapes if s}) > 1:
        _ranks_differ(where, shapes)
    return common_shape(where, *shapes)


def common_shape(where: str, *shapes: Shape) -> Shape:
    """As `broadcast_shape`, where a function says that its arguments broadcast; ``numpy_rank_promotion`` allows it."""
    rank = max(map(len, shapes), default=0)
    out: list[int] = []
    for column in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        sizes = {n for n in column if n != 1}
        if len(sizes) > 1:
            raise ShapeError(
                f"{where}: Incompatible shapes for broadcasting",
                got=", ".join(str(tuple(s)) for s in shapes),
                expected="trailing sizes that are equal or 1",
                fix="insert axes with x[:, None] or x[None]",
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def _ranks_differ(where: str, shapes: Sequence[Shape]) -> None:
    """What ``numpy_rank_promotion`` asks for."""
    if config.numpy_rank_promotion == "allow":
        return
    error = ShapeError(
        f"{where}: operands of different ranks are broadcast, and numpy_rank_promotion is "
        f'"{config.numpy_rank_promotion}"',
        got=", ".join(str(tuple(s)) for s in shapes),
        expected="equal ranks, or scalars",
        fix="insert axes with x[None], or set nx.numpy_rank_promotion('allow')",
    )
    if config.numpy_rank_promotion == "raise":
        raise error
    warnings.warn(str(error), stacklevel=2)


def broadcast_to_shape(x: Array, shape: Shape) -> Array:
    """``x`` repeated into ``shape`` by NumPy's rules; the caller knows that it fits."""
    old = x.type.shape
    if old == shape:
        return x
    lead = len(shape) - len(old)
    return ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(lead, len(shape))))


def broadcast(where: str, *xs: Array) -> list[Array]:
    """Operands repeated into their common shape."""
    first = xs[0].type.shape
    if all(x.type.shape == first for x in xs):
        return list(xs)
    shape = broadcast_shape(where, *(x.type.shape for x in xs))
    return [broadcast_to_shape(x, shape) for x in xs]


def operands(where: str, *xs: Any) -> list[Array]:
    """Promoted and broadcast."""
    return broadcast(where, *promote(where, *xs))


def numeric_operands(where: str, *xs: Any) -> list[Array]:
    """Promoted and broadcast; booleans become int32, with ``enable_x64`` too, as in JAX."""
    out = operands(where, *xs)
    return [convert(x, dtypes.int32) for x in out] if out[0].dtype == dtypes.bool_ else out


def inexact_operands(where: str, *xs: Any) -> list[Array]:
    """Promoted to a float or complex dtype and broadcast."""
    return broadcast(where, *promote_inexact(where, *xs))


def refuse_complex(where: str, x: Array) -> None:
    if x.dtype in dtypes.COMPLEX:
        raise DtypeError(f"{where}: does not take complex input", got=x.type)


def full_like(x: Array, fill: Any) -> Array:
    """``fill`` in the shape, dtype and strength of ``x``."""
    t = x.type
    scalar = wrap(np.asarray(fill).astype(t.dtype), t.weak)
    return ops.broadcast_in_dim(scalar, shape=t.shape, broadcast_dimensions=()) if t.shape else scalar


def reject_out(where: str, out: object) -> None:
    """Arrays are immutable: refuse ``out=``."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{where} is not supported.")


def reject_out_and_where(where_: str, out: object, where: object) -> None:
    """Refuse a ufunc's ``out=`` and ``where=``."""
    reject_out(where_, out)
    if where is not None:
        raise NotImplementedError(f"where argument of {where_}: take nx.numpy.where(mask, {where_}(...), x)")


# --- static arguments ---


def static_int(where: str, x: ArrayLike) -> int:
    """A size or an axis: a Python integer, or something that stands for one."""
    try:
        return operator.index(x)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise ParameterError(f"{where}: needs an integer", got=repr(x)[:60]) from None


def check_choice(what: str, given: Any, *allowed: Any) -> None:
    """Raise an error if an argument is not one of the allowed words."""
    if given not in allowed:
        *most, last = map(str, allowed)
        raise ParameterError(what, got=repr(given), expected=f"{', '.join(most)} or {last}")


def concrete_or_error(
    where: str, x: Any, why: str = "its value decides the shape of the result"
) -> np.ndarray[Any, Any]:
    """The elements of ``x``, which must not be traced; of `grad` outside of `jit` the values are known."""
    x = concrete_value(x)
    if isinstance(x, Tracer):
        raise ConcretizationTypeError(
            f"{where}: a concrete value is needed, since {why}",
            got=f"{x.type} {x.origin()}",
            fix="pass a NumPy array or a Python value, or give size= where the function takes it",
        )
    return x.numpy() if isinstance(x, DeviceArray) else np.asarray(x)


def as_shape(where: str, shape: Any) -> Shape:
    """A shape from an integer or a sequence of integers."""
    if isinstance(shape, Tracer) or (isinstance(shape, (tuple, list)) and any(isinstance(n, Tracer) for n in shape)):
        traced = shape if isinstance(shape, Tracer) else next(n for n in shape if isinstance(n, Tracer))
        raise ConcretizationTypeError(
            f"{where}: Shapes must be 1D sequences of concrete values of integer type",
            got=f"{traced.type} {traced.origin()}",
            fix="mark the argument as static: nx.jit(f, static_argnums=...)",
        )
    if isinstance(shape, (np.ndarray, DeviceArray)):
        shape = concrete_or_error(where, shape).tolist()
    if not isinstance(shape, (tuple, list)):
        try:
            shape = (operator.index(shape),)
        except TypeError:
            try:
                shape = tuple(shape)
            except TypeError:
                raise ParameterError(f"{where}: not a shape", got=repr(shape)[:60]) from None
    out = tuple(static_int(where, n) for n in shape)
    if any(n < 0 for n in out):
        raise ShapeError(f"{where}: negative size", got=out)
    return out


def index_dtype(n: int) -> DType:
    """The default integer, or int64 where that does not hold ``n``: of indices and counts of ``n`` elements."""
    default = dtypes.as_dtype(int)
    return default if n <= dtypes.integer_info(default).max else dtypes.int64


def as_axes(where: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front and distinct; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list, range)) else (axis,)
    return check_axes(where, [static_int(where, a) for a in axes], ndim)


def as_axis(where: str, axis: int | Sequence[int] | None, ndim: int) -> int:
    """One axis, counted from the front."""
    return check_axis(where, static_int(where, axis), ndim)


def along(where: str, x: Array, axis: Any) -> tuple[Array, int]:
    """An array and its axis; for None, the flattened array and its only one."""
    if axis is not None:
        return x, as_axis(where, axis, x.ndim)
    return x if x.ndim == 1 else ops.reshape(x, shape=(x.size,)), 0
