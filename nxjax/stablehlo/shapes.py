"""Rules of operations that make, move and join elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax.ops import slicing
from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.identity import optimization_barrier
from nxjax.ops.shape import broadcast_in_dim, reshape, rev, transpose
from nxjax.stablehlo.walk import Operation, Scope, array_type, literal, refused, result, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType, Shape


@rule("stablehlo.constant", "chlo.constant")
def _constant(_: Scope, op: Operation) -> Array:
    return literal(op.attributes["value"])


def spread(x: Array, shape: Shape, dims: tuple[int, ...]) -> Array:
    """``x`` over ``shape``, its dimension i at ``dims[i]``; sizes of 1 are repeated, and dims come in any order."""
    order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    if order != tuple(range(len(dims))):
        x = transpose(x, permutation=order)
        dims = tuple(dims[i] for i in order)
    kept = tuple(d for d, n in zip(dims, x.shape, strict=True) if n == shape[d])
    if len(kept) < x.ndim:
        x = reshape(x, shape=tuple(shape[d] for d in kept))
    if x.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=kept)


@rule("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def _broadcast_in_dim(scope: Scope, op: Operation, x: Array, *sizes: Array) -> Array:
    dims = tuple(op.attributes["broadcast_dimensions"])
    # A broadcast that only added sizes of 1 before this one is part of it.
    made = scope.maker(op.operands[0])
    if made is not None and made.name == op.name and array_type(made.operands[0]).size == x.size:
        x = scope[made.operands[0]]
        dims = tuple(dims[d] for d in made.attributes["broadcast_dimensions"])
    return spread(x, result(op).shape, dims)


@rule("stablehlo.broadcast")
def _broadcast(_: Scope, op: Operation, x: Array) -> Array:
    shape = result(op).shape
    return spread(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))


@rule("stablehlo.reshape", "stablehlo.dynamic_reshape")
def _reshape(_: Scope, op: Operation, x: Array, *sizes: Array) -> Array:
    shape = result(op).shape
    return x if x.shape == shape else reshape(x, shape=shape)


@rule("stablehlo.transpose")
def _transpose(_: Scope, op: Operation, x: Array) -> Array:
    order = tuple(op.attributes["permutation"])
    return x if order == tuple(range(x.ndim)) else transpose(x, permutation=order)


@rule("stablehlo.reverse")
def _reverse(_: Scope, op: Operation, x: Array) -> Array:
    return rev(x, dimensions=tuple(op.attributes["dimensions"]))


@rule("stablehlo.iota", "stablehlo.dynamic_iota")
def _iota(_: Scope, op: Operation, *sizes: Array) -> Array:
    out, dimension = result(op), op.attributes["iota_dimension"]
    if out.dtype in dtypes.COMPLEX:
        real = iota(dtype=dtypes.real_part(out.dtype), shape=out.shape, dimension=dimension)
        return convert_element_type(real, dtype=out.dtype)
    return iota(dtype=out.dtype, shape=out.shape, dimension=dimension)


@rule("stablehlo.slice")
def _slice(_: Scope, op: Operation, x: Array) -> Array:
    a = op.attributes
    return slicing.slice(
        x,
        start_indices=tuple(a["start_indices"]),
        limit_indices=tuple(a["limit_indices"]),
        strides=tuple(a["strides"]),
    )


def numbers(scope: Scope, op: Operation, i: int) -> tuple[int, ...]:
    """The elements of an operand that has to be a constant."""
    data = scope.known(op.operands[i])
    if data is None:
        raise refused(
            op, f"operand {i} decides about shapes and is not a constant", "export the function with concrete shapes"
        )
    return tuple(int(n) for n in data.reshape(-1))


@rule("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(scope: Scope, op: Operation, x: Array, *bounds: Array) -> Array:
    start, limit, stride = (numbers(scope, op, i) for i in (1, 2, 3))
    return slicing.slice(x, start_indices=start, limit_indices=limit, strides=stride)


@rule("stablehlo.dynamic_slice")
def _dynamic_slice(_: Scope, op: Operation, x: Array, *starts: Array) -> Array:
    return slicing.dynamic_slice(x, *starts, slice_sizes=tuple(op.attributes["slice_sizes"]))


@rule("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(_: Scope, op: Operation, x: Array, update: Array, *starts: Array) -> Array:
    return slicing.dynamic_update_slice(x, update, *starts)


def _padded(x: Array, value: Array, low: Any, high: Any, interior: Any) -> Array:
    config = tuple((int(l), int(h), int(i)) for l, h, i in zip(low, high, interior, strict=True))
    if not any(any(c) for c in config):
        return x
    return slicing.pad(x, value, padding_config=config)


@rule("stablehlo.pad")
def _pad(_: Scope, op: Operation, x: Array, value: Array) -> Array:
    a = op.attributes
    return _padded(x, value, a["edge_padding_low"], a["edge_padding_high"], a["interior_padding"])


@rule("stablehlo.dynamic_pad")
def _dynamic_pad(scope: Scope, op: Operation, x: Array, value: Array, *config: Array) -> Array:
    return _padded(x, value, *(numbers(scope, op, i) for i in (2, 3, 4)))


@rule("stablehlo.concatenate")
def _concatenate(_: Scope, op: Operation, *xs: Array) -> Array:
    return xs[0] if len(xs) == 1 else slicing.concatenate(*xs, dimension=op.attributes["dimension"])


@rule("stablehlo.get_dimension_size")
def _dimension_size(_: Scope, op: Operation, x: Array) -> Array:
    return constant(x.shape[op.attributes["dimension"]], dtypes.int32)


@rule("stablehlo.set_dimension_size")
def _set_dimension_size(scope: Scope, op: Operation, x: Array, size: Array) -> Array:
    if numbers(scope, op, 1) != (x.shape[op.attributes["dimension"]],):
        raise refused(op, "it makes a shape that is not known when the program is read")
    return x


@rule("stablehlo.optimization_barrier")
def _barrier(_: Scope, op: Operation, *xs: Any) -> Any:
    if not xs or not all(isinstance(x, Array) for x in xs):
        return tuple(xs)
    return optimization_barrier(*xs)


@rule("stablehlo.tuple")
def _tuple(_: Scope, op: Operation, *xs: Any) -> Any:
    return tuple(xs)


@rule("stablehlo.get_tuple_element")
def _element(_: Scope, op: Operation, parts: tuple[Any, ...]) -> Any:
    part = parts[op.attributes["index"]]
    return [part] if isinstance(part, tuple) else part


def is_iota(scope: Scope, op: Operation, i: int, axis: int) -> bool:
    """Whether operand ``i`` counts along ``axis``."""
    made = scope.maker(op.operands[i])
    while made is not None and made.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        t = made.operands[0].type
        out = result(made)
        if made.name == "stablehlo.reshape":
            if not isinstance(t, ArrayType) or [n for n in t.shape if n != 1] != [n for n in out.shape if n != 1]:
                return False
            if t.shape != out.shape:
                return _counts(scope, op, i, axis)
        else:
            dims = list(made.attributes["broadcast_dimensions"])
            if axis not in dims:
                return False
            axis = dims.index(axis)
        made = scope.maker(made.operands[0])
    if made is not None and made.name == "stablehlo.iota":
        return made.attributes["iota_dimension"] == axis
    return _counts(scope, op, i, axis) if made is not None and made.name == "stablehlo.constant" else False


def _counts(scope: Scope, op: Operation, i: int, axis: int) -> bool:
    data = scope.known(op.operands[i])
    if data is None or data.dtype not in dtypes.INTEGER or not data.ndim:
        return False
    row = np.arange(data.shape[axis]).reshape([-1 if d == axis else 1 for d in range(data.ndim)])
    return bool(np.array_equal(data, np.broadcast_to(row, data.shape)))
