"""Rules of ops that move, reduce, order and make elements. Must not know any op's own rules."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

from nxjax.lower.type_rules.base import (
    COMPLEX_OF,
    ORDERED,
    PART,
    Params,
    Results,
    Rule,
    Types,
    distinct,
    need,
    of,
    one_dtype,
    one_shape,
    operands,
    put,
    sizes,
    without,
)
from nxjax.trace import dtypes
from nxjax.trace.dtypes import BITS, FLOAT, INTEGER, NUMBER, NUMERIC, DType

_METHODS: Final = ("nearest", "linear")
_WORDS: Final = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def _iota(types: Types, params: Params) -> Results:
    operands(types, 0)
    shape = tuple(sizes(params["shape"]))
    distinct([params["dimension"]], len(shape), "dimension")
    need(params["dtype"] in NUMBER, "dtype", params["dtype"])
    return [(shape, params["dtype"])]


def _broadcast(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    shape, dims = tuple(sizes(params["shape"])), params["broadcast_dimensions"]
    need(len(dims) == len(x.shape), "one dimension per dimension of the operand", dims)
    distinct(dims, len(shape), "broadcast_dimensions")
    for n, d in zip(x.shape, dims, strict=True):
        need(n == shape[d] or n == 1, "operand does not fit the shape", (x, shape, dims))
    return [(shape, x.dtype)]


def _reshape(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    shape = tuple(sizes(params["shape"]))
    need(math.prod(shape) == math.prod(x.shape), "another number of elements", (x, shape))
    return [(shape, x.dtype)]


def _transpose(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    order = distinct(params["permutation"], len(x.shape), "permutation")
    need(len(order) == len(x.shape), "permutation lacks a dimension", order)
    return [(tuple([x.shape[d] for d in order]), x.dtype)]


def _rev(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    distinct(params["dimensions"], len(x.shape), "dimensions")
    return [(x.shape, x.dtype)]


def _slice(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    rank = len(x.shape)
    starts, limits = sizes(params["start_indices"], rank), sizes(params["limit_indices"], rank)
    steps = sizes(params.get("strides") or (1,) * rank, rank, 1, "strides")
    for n, start, limit in zip(x.shape, starts, limits, strict=True):
        need(start <= limit <= n, "bounds outside of the operand", (x, start, limit))
    return [(tuple([len(range(*bounds)) for bounds in zip(starts, limits, steps, strict=True)]), x.dtype)]


def _pad(types: Types, params: Params) -> Results:
    x, value = operands(types, 2)
    need(value.shape == (), "the padding value is no scalar", value)
    one_dtype(types)
    config = params["padding_config"]
    need(len(config) == len(x.shape), "one (low, high, interior) per dimension", config)
    shape: list[int] = []
    for n, (low, high, interior) in zip(x.shape, config, strict=True):
        need(interior >= 0, "interior padding is negative", config)
        shape.append(low + high + n + interior * (n - 1 if n else 0))
    sizes(shape)
    return [(tuple(shape), x.dtype)]


def _concatenate(types: Types, params: Params) -> Results:
    need(len(types) > 0, "no operands")
    d = params["dimension"]
    dtype = one_dtype(types)
    distinct([d], len(types[0].shape), "dimension")
    need(len({len(t.shape) for t in types}) == 1, "operands differ in rank", types)
    need(len({without(t.shape, (d,)) for t in types}) == 1, "operands differ outside of the dimension", types)
    return [(put(types[0].shape, d, sum([t.shape[d] for t in types])), dtype)]


def _split(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    d, parts = params["axis"], sizes(params["sizes"])
    distinct([d], len(x.shape), "axis")
    need(sum(parts) == x.shape[d], "sizes do not add up", (x, parts))
    return [(put(x.shape, d, n), x.dtype) for n in parts]


def _starts(types: Types, count: int) -> None:
    operands(types, count)
    of(INTEGER, *types)
    need(all(t.shape == () for t in types), "start indices are no scalars", types)


def _dynamic_slice(types: Types, params: Params) -> Results:
    x, *starts = types
    _starts(starts, len(x.shape))
    block = tuple(sizes(params["slice_sizes"], len(x.shape)))
    need(all(k <= n for k, n in zip(block, x.shape, strict=True)), "the block is larger than the operand", (x, block))
    return [(block, x.dtype)]


def _dynamic_update_slice(types: Types, params: Params) -> Results:
    x, update, *starts = types
    _starts(starts, len(x.shape))
    one_dtype([x, update])
    need(len(update.shape) == len(x.shape), "operand and update differ in rank", types)
    need(all(k <= n for k, n in zip(update.shape, x.shape, strict=True)), "the update is larger than the operand")
    return [(x.shape, x.dtype)]


def _reduction(allowed: Collection[DType], name: str = "axes") -> Rule:
    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(allowed, x)
        return [(without(x.shape, distinct(params[name], len(x.shape), name)), x.dtype)]

    return rule


def _arg_extremum(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of(ORDERED, x)
    (d,) = sizes(params["axes"], 1, what="axes")
    distinct([d], len(x.shape), "axes")
    dtype = params["index_dtype"]
    need(dtype in INTEGER, "index_dtype is no integer", dtype)
    bits = (4 if dtype in (dtypes.int4, dtypes.uint4) else 8 * dtype.itemsize) - (dtype in dtypes.SIGNED)
    need(0 < x.shape[d] <= 1 << bits, "no extremum of nothing, or an index that index_dtype does not hold", x)
    return [(without(x.shape, (d,)), dtype)]


def _along(allowed: Collection[DType], name: str = "axis") -> Rule:
    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(allowed, x)
        distinct([params[name]], len(x.shape), name)
        return [(x.shape, x.dtype)]

    return rule


def _sort(types: Types, params: Params) -> Results:
    need(len(types) > 0, "no operands")
    shape, keys = one_shape(types), params.get("num_keys", 1)
    distinct([params["dimension"]], len(shape), "dimension")
    need(1 <= keys <= len(types), "num_keys", keys)
    of(NUMERIC, *types[:keys])
    return [(shape, t.dtype) for t in types]


def _top_k(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of(ORDERED, x)
    k, d = params["k"], params["axis"]
    distinct([d], len(x.shape), "axis")
    need(0 <= k <= x.shape[d] <= 2**31, "k", (k, x))
    shape = put(x.shape, d, k)
    return [(shape, x.dtype), (shape, dtypes.int32)]


def _searchsorted(types: Types, params: Params) -> Results:
    x, q = operands(types, 2)
    of(INTEGER | FLOAT, x, q)
    need(x.dtype == q.dtype, "the dtypes differ", (x, q))
    need(x.shape[:-1] == q.shape[: len(x.shape) - 1], "the leading dimensions differ", (x, q))
    need(params["side"] in ("left", "right"), "side", params["side"])
    return [(q.shape, dtypes.int32 if x.shape[-1] < 2**31 else dtypes.int64)]


def _one_hot(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of(INTEGER | FLOAT, x)
    d, n = params["axis"], params["num_classes"]
    distinct([d], len(x.shape) + 1, "axis")
    need(n >= 0, "num_classes", n)
    return [((*x.shape[:d], n, *x.shape[d:]), params["dtype"])]


def _fft(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    kind, lengths = params["fft_type"].name, tuple(sizes(params["fft_lengths"]))
    need(1 <= len(lengths) <= 3 and len(lengths) <= len(x.shape), "fft_lengths", lengths)
    batch, given = x.shape[: len(x.shape) - len(lengths)], x.shape[len(x.shape) - len(lengths) :]
    # Frequencies from 0 to half of the last length.
    half = (*lengths[:-1], len(range(0, lengths[-1] + 1, 2)) if lengths[-1] else 0)
    of(PART.values() if kind == "RFFT" else PART, x)
    need(given == (half if kind == "IRFFT" else lengths), "lengths do not fit the operand", (x, lengths))
    dtype = {"RFFT": COMPLEX_OF[x.dtype], "IRFFT": PART.get(x.dtype, x.dtype)}.get(kind, x.dtype)
    return [((*batch, *(half if kind == "RFFT" else lengths)), dtype)]


def _resize(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    need(params["method"] in _METHODS, "method", params["method"])
    of(FLOAT if params["method"] == "linear" else dtypes.NAMED, x)
    return [(resized(x.shape, params), x.dtype)]


def resized(shape: tuple[int, ...], params: Params) -> tuple[int, ...]:
    axes = distinct(params["axes"], len(shape), "axes")
    for d, n in zip(axes, sizes(params["sizes"], len(axes), 1), strict=True):
        shape = put(shape, d, n)
    return shape


def _keys(shape: str = "", word: str = "", dtype: DType = dtypes.key, taken: Collection[DType] = (dtypes.key,)) -> Rule:
    """Of keys, or a result of keys; ``shape`` and ``word`` name the parameters of what is drawn from each."""

    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(taken, x)
        need(not word or params[word] in _WORDS, word)
        drawn = tuple(sizes(params[shape])) if shape else ()
        return [((*x.shape, *drawn), _WORDS[params[word]] if word else dtype)]

    return rule


def _wrap(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    need(x.dtype == dtypes.uint32 and x.shape[-1:] == (2,), "a key is two words of u32", x)
    return [(x.shape[:-1], dtypes.key)]


def _unwrap(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of((dtypes.key,), x)
    return [((*x.shape, 2), dtypes.uint32)]


def _fold_in(types: Types, params: Params) -> Results:
    keys, data = operands(types, 2)
    need((keys.dtype, data.dtype) == (dtypes.key, dtypes.uint32), "keys, and a u32 for each", types)
    return [(one_shape(types), dtypes.key)]


RULES: Final[Mapping[str, Rule]] = {
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "rev": _rev,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "split": _split,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    **dict.fromkeys(("reduce_sum", "reduce_prod"), _reduction(NUMBER)),
    **dict.fromkeys(("reduce_max", "reduce_min"), _reduction(ORDERED)),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor"), _reduction(BITS)),
    "logsumexp": _reduction(FLOAT),
    **dict.fromkeys(("argmax", "argmin"), _arg_extremum),
    **dict.fromkeys(("softmax", "log_softmax", "cumlogsumexp"), _along(FLOAT)),
    **dict.fromkeys(("cumsum", "cumprod"), _along(NUMBER)),
    **dict.fromkeys(("cummax", "cummin"), _along(ORDERED)),
    "sort": _sort,
    "top_k": _top_k,
    "one_hot": _one_hot,
    "searchsorted": _searchsorted,
    "fft": _fft,
    "resize": _resize,
    "random_wrap": _wrap,
    "random_unwrap": _unwrap,
    "random_clone": _keys(),
    "random_seed": _keys(taken=INTEGER),
    "random_bits": _keys("shape", "bit_width"),
    "random_split": _keys("shape"),
    "random_fold_in": _fold_in,
}
