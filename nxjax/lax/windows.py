"""`jax.lax.reduce_window`: sums and extrema are ops; any other associative function is a tree of its own calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShapeError
from nxjax.lax._operands import broadcast_scalar
from nxjax.lax.convolution import padtype_to_pads, pairs, sizes
from nxjax.numpy.promotion import convert
from nxjax.ops import vocabulary as ops
from nxjax.ops import window
from nxjax.ops.base import constant, require
from nxjax.ops.conv import dilated
from nxjax.ops.window import Windows
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.core import Array
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.vmap import vmap


def reduce_window(
    operand: PyTree,
    init_value: PyTree,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> PyTree:
    """Reduce each window of an array, or of a tree of arrays of one shape, with an associative function.

    Args:
        operand: array or tree of arrays.
        init_value: scalar, or tree of scalars like ``operand``, the start of each window. Padding does not count.
        computation: ``(accumulated, element) -> accumulated`` on scalars, or on trees of them.
        window_dimensions: size of the window per dimension.
        window_strides: step per dimension; 1 if left out.
        padding: ``"SAME"``, ``"SAME_LOWER"``, ``"VALID"`` or (low, high) per dimension.
        base_dilation, window_dilation: distance of elements of the operand, of the window.

    Returns:
        One element per window, in the structure of ``operand``.

    Raises:
        ParameterError: there is not one number per dimension, or no such padding.
        ShapeError: the arrays differ in shape, or an initial value is not a scalar.

    >>> x = jnp.array([3.0, 1.0, 4.0, 1.0, 5.0])
    >>> lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,))
    Array([3., 4.], dtype=float32)
    >>> lax.reduce_window(x, 0.0, lax.add, (3,), padding="SAME")
    Array([ 4.,  8.,  6., 10.,  6.], dtype=float32)
    """
    name = "reduce_window"
    leaves, treedef = tree.flatten(operand)
    xs = [as_value(x, name) for x in leaves]
    require(name, bool(xs), "no operand")
    inits = [as_value(i, name) for i in tree.flatten_up_to(treedef, init_value, f"{name}: init_value")]
    shape = xs[0].shape
    for x, init in zip(xs, inits, strict=True):
        if x.shape != shape or init.shape:
            raise ShapeError(
                f"{name}: operands have one shape and their initial values are scalars", got=f"{x.type}, {init.type}"
            )
    inits = [
        i if i.dtype == x.dtype else ops.convert_element_type(i, dtype=x.dtype) for x, i in zip(xs, inits, strict=True)
    ]
    window_sizes = sizes(window_dimensions, len(shape), name, "window_dimensions")
    strides = sizes(window_strides, len(shape), name, "window_strides")
    base = sizes(base_dilation, len(shape), name, "base_dilation")
    holes = sizes(window_dilation, len(shape), name, "window_dilation")
    if isinstance(padding, str):
        # Of the sizes before ``base_dilation``, as in JAX.
        padding = padtype_to_pads(
            shape, [dilated(k, d) for k, d in zip(window_sizes, holes, strict=True)], strides, padding
        )
    w = Windows(window_sizes, strides, pairs(padding, name), base, holes)
    if len(xs) == 1:
        found = _monoid(xs[0], inits[0], computation, treedef, w._asdict())
        if found is not None:
            return tree.unflatten(treedef, [found])
    xs = [convert(x, x.dtype) for x in xs]
    out_shape = window.window_shape(window.reduce_window_sum, xs[0].type, **w._asdict())
    if not xs[0].size:
        return tree.unflatten(treedef, [broadcast_scalar(i, out_shape) for i in inits])
    return tree.unflatten(treedef, _by_doubling(xs, inits, computation, treedef, w))


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Number of windows per dimension.

    Raises:
        ParameterError: there is not one number per dimension.

    >>> reduce_window_shape_tuple((8,), (3,), (2,), ((0, 0),))
    (3,)
    """
    name, n = "reduce_window_shape_tuple", len(operand_shape)
    window_sizes = sizes(window_dimensions, n, name, "window_dimensions")
    strides = sizes(window_strides, n, name, "window_strides")
    base = sizes(base_dilation, n, name, "base_dilation")
    holes = sizes(window_dilation, n, name, "window_dilation")
    pads = pairs(padding, name)
    require(name, len(pads) == n, "padding", repr(padding), f"{n} pairs, one per dimension")
    require(name, all(d > 0 for d in (*strides, *base, *holes)), "strides and dilations", expected="positive integers")
    # A size may be -1 here, which stands for a batch that is not known yet: no window fits it.
    inner = [dilated(d, k) + low + high for d, k, (low, high) in zip(operand_shape, base, pads, strict=True)]
    spans = [dilated(d, k) for d, k in zip(window_sizes, holes, strict=True)]
    return tuple((d - k) // s + 1 if d >= k else 0 for d, k, s in zip(inner, spans, strides, strict=True))


def _name_of(computation: Callable[..., Any], treedef: Any, type: ArrayType) -> str | None:
    """The op that ``computation`` is, if it is one op on its two arguments."""

    def flat(x: Array, y: Array) -> Sequence[Any]:
        return tree.flatten(computation(tree.unflatten(treedef, [x]), tree.unflatten(treedef, [y])))[0]

    program = stage(flat, [type, type], "reduce_window")
    while len(program.equations) == 1:
        (equation,) = program.equations
        if set(equation.inputs) != set(program.inputs) or program.outputs != equation.outputs:
            return None
        if not equation.op.plain_call:
            return equation.op.name
        program = equation.params["program"]
    return None


def _monoid(
    x: Array, init: Array, computation: Callable[..., Any], treedef: Any, params: dict[str, Any]
) -> Array | None:
    """The reduction by an op, where ``computation`` is one that has it."""
    kind = _name_of(computation, treedef, ArrayType((), x.dtype))
    if kind in ("max", "min") and x.dtype not in dtypes.COMPLEX:
        op, combine = (window.reduce_window_max, ops.max) if kind == "max" else (window.reduce_window_min, ops.min)
        y = op(x, **params)
        return (
            y
            if _is_constant(init, op.identity(x.dtype))
            else convert(combine(y, broadcast_scalar(init, y.shape)), x.dtype)
        )
    if kind == "add" and x.dtype in dtypes.NUMBER:
        y = window.reduce_window_sum(x, **params)
        return y if _is_constant(init, 0) else convert(ops.add(y, broadcast_scalar(init, y.shape)), x.dtype)
    return None


def _is_constant(init: Array, value: Any) -> bool:
    return isinstance(init, DeviceArray) and bool(init.numpy() == np.asarray(value).astype(init.dtype))


def _by_doubling(
    xs: list[Array], inits: list[Array], computation: Callable[..., Any], treedef: Any, w: Windows
) -> list[Array]:
    """Dimension by dimension, runs of 1, 2, 4, ... elements, from which every window is put together.

    Beside the values goes a mask of the places that hold an element and not padding. Padding is filled with an element
    of the operand, since ``computation`` may have no derivative at the initial value.
    """
    config = w.padding_config
    number = len(xs)
    ys = xs
    if any(c != (0, 0, 0) for c in config):
        corner = {"start_indices": (0,) * len(config), "limit_indices": (1,) * len(config)}
        fill = (ops.reshape(ops.slice(x, **corner), shape=()) for x in xs)
        ys = [ops.pad(x, v, padding_config=config) for x, v in zip(xs, fill, strict=True)]
        here, nothing = constant(True, dtypes.bool_, xs[0].shape), constant(False, dtypes.bool_)
        ys.append(ops.pad(here, nothing, padding_config=config))

    def computed(a: list[Array], b: list[Array]) -> list[Array]:
        shape = a[0].shape
        flat = lambda vs: tree.unflatten(treedef, [ops.reshape(v, shape=(v.size,)) for v in vs])
        found = tree.flatten(vmap(computation)(flat(a), flat(b)))[0]
        return [ops.reshape(as_value(v), shape=shape) for v in found]

    def combined(a: list[Array], b: list[Array]) -> list[Array]:
        """Values, and the mask if there is one."""
        if len(a) == number:
            return computed(a, b)
        (*a, has_a), (*b, has_b) = a, b
        a, b = (
            [ops.select_n(has_a, y, x) for x, y in zip(a, b, strict=True)],
            [ops.select_n(has_b, x, y) for x, y in zip(a, b, strict=True)],
        )
        both = ops.and_(has_a, has_b)
        return [*(ops.select_n(both, x, z) for x, z in zip(a, computed(a, b), strict=True)), ops.or_(has_a, has_b)]

    def part(values: list[Array], axis: int, start: int, length: int, step: int = 1) -> list[Array]:
        starts, limits, steps = [0] * len(config), list(values[0].shape), [1] * len(config)
        starts[axis], limits[axis], steps[axis] = start, start + length, step
        at = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(steps)}
        return [ops.slice(v, **at) for v in values]

    for axis, (k, s, d) in enumerate(zip(w.window_dimensions, w.window_strides, w.window_dilation, strict=True)):
        n = ys[0].shape[axis] - dilated(k, d) + 1
        if n <= 0:
            ys = part(ys, axis, 0, 0)
            continue
        run, length, total, done = ys, 1, None, 0
        while True:
            if k & length:
                taken = part(run, axis, done * d, n)
                total = taken if total is None else combined(total, taken)
                done += length
            length *= 2
            if length > k:
                break
            half = run[0].shape[axis] - (length // 2) * d
            run = combined(part(run, axis, 0, half), part(run, axis, (length // 2) * d, half))
        assert total is not None
        ys = part(total, axis, 0, n, s)
    start = [broadcast_scalar(i, y.shape) for i, y in zip(inits, ys)]
    if not ys[0].size:
        return start
    out = computed(start, ys[:number])
    return out if len(ys) == number else [ops.select_n(ys[-1], i, y) for i, y in zip(start, out, strict=True)]
