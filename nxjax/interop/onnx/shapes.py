"""Rules of operators that make, shape, join and cut arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import NeedsValue, as_numpy, concrete, value
from nxjax.interop.onnx.graph import dtype_of, invalid
from nxjax.interop.onnx.walk import OnnxScope, drawing_key, rule
from nxjax.trace import dtypes

# More elements than this are no shape's business: hostile files ask for them.
LARGEST = 1 << 34


def ints(x: Any) -> tuple[int, ...]:
    """The elements of a known vector."""
    return tuple(int(v) for v in np.asarray(x).reshape(-1))


def number(x: Any) -> Any:
    """The only element of a known array."""
    return np.asarray(x).reshape(()).item()


def sized(shape: Sequence[int]) -> tuple[int, ...]:
    """``shape``, if an array can have it."""
    if any(n < 0 for n in shape) or math.prod(shape) > LARGEST:
        raise invalid("a shape that no array can have", tuple(shape))
    return tuple(shape)


def needed(kind: str, *xs: Any) -> list[Any]:
    """Elements that decide how many results there are."""
    for x in xs:
        if not concrete(x):
            raise NeedsValue(
                f"from_onnx: the size of {kind}'s result depends on elements that are traced",
                got=repr(x),
                fix="call the function outside jit",
            )
    return [as_numpy(x) for x in xs]


@rule("Constant")
def _constant(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: str | None = None,
    value_strings: Any = None,
) -> Any:
    kinds = (
        (value, None), (sparse_value, None), (value_float, np.float32), (value_floats, np.float32),
        (value_int, np.int64), (value_ints, np.int64), (value_string, object), (value_strings, object),
    )  # fmt: skip
    given, dtype = next(((x, dtype) for x, dtype in kinds if x is not None), (None, None))
    if given is None:
        raise ValueError("it has no value")
    return _value(np.asarray(given) if dtype is None else np.array(given, dtype))


_value = value


@rule("ConstantOfShape", known=("shape",))
def _constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    fill = np.zeros(1, np.float32) if value is None else value
    return jnp.full(sized(ints(shape)), jnp.asarray(fill).reshape(()), fill.dtype)


@rule("Shape")
def _shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return jnp.asarray(np.array(np.shape(x)[start:end], np.int64))


@rule("Size")
def _size(x: Any) -> Any:
    return jnp.asarray(np.int64(math.prod(np.shape(x))))


@rule("Reshape", known=("shape",), moves=True)
def _reshape(x: Any, shape: Any = None, *, allowzero: int = 0, **old: Any) -> Any:
    wanted = list(ints(shape if shape is not None else old["shape"]))
    if not allowzero:
        wanted = [np.shape(x)[i] if n == 0 else n for i, n in enumerate(wanted)]
    return x.reshape(tuple(wanted))


@rule("Flatten", moves=True)
def _flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis % (x.ndim or 1) if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@rule("Squeeze", known=("given",), moves=True)
def _squeeze(x: Any, given: Any = None, *, axes: Any = None) -> Any:
    along = given if given is not None else axes
    return x.squeeze() if along is None else x.squeeze(ints(along))


@rule("Unsqueeze", known=("given",), moves=True)
def _unsqueeze(x: Any, given: Any = None, *, axes: Any = None) -> Any:
    along = ints(given if given is not None else axes)
    rank = np.ndim(x) + len(along)
    places = sorted(a % rank for a in along)
    shape = list(np.shape(x))
    for a in places:
        shape.insert(a, 1)
    return x.reshape(tuple(shape))


@rule("Transpose", moves=True)
def _transpose(x: Any, *, perm: Any = None) -> Any:
    return x.transpose() if perm is None else x.transpose(ints(perm))


@rule("Expand", known=("shape",), moves=True)
def _expand(x: Any, shape: Any) -> Any:
    spread = np if isinstance(x, np.ndarray) else jnp
    return spread.broadcast_to(x, sized(np.broadcast_shapes(x.shape, ints(shape))))


@rule("Tile", known=("repeats",), moves=True)
def _tile(x: Any, repeats: Any) -> Any:
    sized([n * k for n, k in zip(x.shape, ints(repeats), strict=True)])
    return (np if isinstance(x, np.ndarray) else jnp).tile(x, ints(repeats))


@rule("Concat", moves=True)
def _concat(*xs: Any, axis: int = 1) -> Any:
    return np.concatenate(xs, axis) if isinstance(xs[0], np.ndarray) else jnp.concatenate(xs, axis)


@rule("Split", known=("given",), moves=True)
def _split(
    x: Any, given: Any = None, *, axis: int = 0, split: Any = None, num_outputs: int | None = None, outputs: int
) -> Any:
    sizes = given if given is not None else split
    n = x.shape[axis]
    if sizes is None:
        count = num_outputs or outputs
        size = -(-n // count)
        sizes = [max(min(size, n - i * size), 0) for i in range(count)]
    ends = np.cumsum(ints(sizes))
    if ends[-1] != n or min(ints(sizes)) < 0:
        raise ValueError(f"the parts are {ints(sizes)}, the axis has {n} elements")
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, ends[:-1], axis))
    return tuple(
        lax.slice_in_dim(x, int(e) - int(k), int(e), axis=axis) for e, k in zip(ends, ints(sizes), strict=True)
    )


@rule("Slice", known=("first", "last", "along", "stride"), moves=True)
def _slice(
    x: Any, first: Any = None, last: Any = None, along: Any = None, stride: Any = None,
    *, starts: Any = None, ends: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    first, last = ints(starts if first is None else first), ints(ends if last is None else last)
    along = axes if along is None else along
    places = range(len(first)) if along is None else ints(along)
    steps = (1,) * len(first) if stride is None else ints(stride)
    cut: list[Any] = [slice(None)] * np.ndim(x)
    for a, i, j, k in zip(places, first, last, steps, strict=True):
        n = np.shape(x)[a]
        # A negative end of a negative step means the end itself once n is added; beyond that it is before the start.
        i = min(max(i + n if i < 0 else i, 0), n if k > 0 else n - 1)
        j = j + n if j < 0 else j
        j = min(max(j, 0), n) if k > 0 else min(max(j, -1), n - 1)
        cut[a] = slice(i, None if k < 0 and j < 0 else j, k)
    return x[tuple(cut)]


@rule("Range", "com.microsoft::Range", known=("start", "limit", "delta"))
def _range(start: Any, limit: Any, delta: Any = 1) -> Any:
    if number(delta) == 0:
        raise ValueError("a range without a step")
    count = max(math.ceil((number(limit) - number(start)) / number(delta)), 0)
    sized((count,))
    return jnp.asarray((number(start) + np.arange(count) * number(delta)).astype(start.dtype))


@rule("EyeLike")
def _eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    return jnp.eye(*x.shape, k=k, dtype=x.dtype if dtype is None else dtype_of(dtype))


@rule("Trilu", "com.microsoft::Trilu", known=("k",))
def _trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return (jnp.triu if upper else jnp.tril)(x, 0 if k is None else number(k))


@rule("Pad", "com.microsoft::Pad", known=("given", "axes"))
def _pad(
    x: Any, given: Any = None, fill: Any = None, axes: Any = None,
    *, pads: Any = None, mode: str = "constant", value: float = 0.0,
) -> Any:  # fmt: skip
    sizes = ints(given if given is not None else pads)
    along = [a % x.ndim for a in ints(axes)] if axes is not None else list(range(x.ndim))
    half = len(sizes) // 2
    around = [(0, 0)] * x.ndim
    for i, a in enumerate(along):
        around[a] = (sizes[i], sizes[half + i])
    sized([n + a + b for n, (a, b) in zip(x.shape, around, strict=True)])
    # Negative padding cuts.
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, around, strict=True))]
    more = [(max(a, 0), max(b, 0)) for a, b in around]
    if mode != "constant":
        return jnp.pad(x, more, mode=mode)
    filled = value if fill is None else fill.reshape(()).astype(x.dtype)
    return jnp.pad(x, more, constant_values=filled).astype(x.dtype)


@rule("CenterCropPad", known=("shape",))
def _center(x: Any, shape: Any, *, axes: Any = None) -> Any:
    along = [a % x.ndim for a in axes] if axes is not None else range(x.ndim)
    for a, n in zip(along, ints(shape), strict=True):
        more = n - x.shape[a]
        if more < 0:
            x = lax.slice_in_dim(x, -more // 2, -more // 2 + n, axis=a)
        else:
            around = [(0, 0)] * x.ndim
            around[a] = (more // 2, more - more // 2)
            x = jnp.pad(x, around)
    return x


@rule("DepthToSpace", moves=True)
def _depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b, rest = blocksize, c // blocksize**2
    split = (n, b, b, rest, h, w) if mode == "DCR" else (n, rest, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return x.reshape(split).transpose(order).reshape(n, rest, h * b, w * b)


@rule("SpaceToDepth", moves=True)
def _space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)


@rule("ReverseSequence", known=("lengths",))
def _reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    steps = np.arange(x.shape[time_axis])
    places = [np.where(steps < n, n - 1 - steps, steps) for n in ints(lengths)]
    of: Any = np if isinstance(x, np.ndarray) else jnp
    index = of.asarray(np.stack(places, 1))
    moved = of.moveaxis(x, (time_axis, batch_axis), (0, 1))
    flipped = of.take_along_axis(moved, index.reshape(index.shape + (1,) * (x.ndim - 2)), axis=0)
    return of.moveaxis(flipped, (0, 1), (time_axis, batch_axis))


@rule("OneHot", known=("depth",))
def _one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    n = sized((int(number(depth)),))[0]
    along = axis % (indices.ndim + 1)
    index = jnp.expand_dims(indices.astype(jnp.int64), along)
    index = jnp.where(index < 0, index + n, index)
    shape = [1] * index.ndim
    shape[along] = n
    hot = index == jnp.arange(n, dtype=jnp.int64).reshape(shape)
    if isinstance(values, np.ndarray):
        return values[needed("OneHot", hot)[0].astype(int)]
    return jnp.where(hot, values[1], values[0])


@rule("Dropout", known=("ratio", "training"))
def _dropout(
    x: Any,
    ratio: Any = None,
    training: Any = None,
    *,
    seed: int | None = None,
    scope: OnnxScope,
    opset: int,
    **old: Any,
) -> Any:
    p = 0.5 if ratio is None else float(number(ratio))
    if training is None or not number(training) or p == 0:
        return x, jnp.ones(x.shape, dtypes.bool_ if opset >= 10 else x.dtype)
    kept = random.bernoulli(drawing_key(scope, seed), 1 - p, x.shape)
    return jnp.where(kept, x / (1 - p), 0).astype(x.dtype), kept
