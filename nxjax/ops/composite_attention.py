"""Scaled dot-product attention with grouped heads, bias and masks, and of a cache of keys and values, as one equation.

Vaswani et al., "Attention is all you need" (2017); grouped heads from Ainslie et al., "GQA" (2023).
"""

from __future__ import annotations

from typing import Any, final

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import CompositeOp, check_dtype, equal_dtypes, like, move_batch, require
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import ge, le
from nxjax.ops.composite_softmax import softmax
from nxjax.ops.convert import cast
from nxjax.ops.create import iota
from nxjax.ops.dot import dot_general
from nxjax.ops.elementary import tanh
from nxjax.ops.select import clamp, select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.types import ArrayType

Window = tuple[int, int] | None


@final
class DotProductAttention(CompositeOp):
    """softmax(query key^T * scale + bias) value, head by head.

    Operands: query [B, T, N, H], key and value [B, S, K, H], then bias and mask (bool, False is left out) if
    ``has_bias`` and ``has_mask``, each [B or 1, N or 1, T or 1, S or 1]. N is a multiple of K; heads share keys in
    groups of N / K. ``is_causal`` leaves out s > t, ``local_window_size`` (left, right) s < t - left and s > t + right.
    Logits and softmax are float32, for float64 operands float64.
    """

    name = "dot_product_attention"

    def infer(
        self,
        query: ArrayType,
        key: ArrayType,
        value: ArrayType,
        /,
        *extras: ArrayType,
        scale: float,
        is_causal: bool,
        local_window_size: Window,
        has_bias: bool,
        has_mask: bool,
    ) -> ArrayType:
        check_dtype(self, dtypes.FLOAT, query, key, value)
        equal_dtypes(self, query, key, value)
        if not query.ndim == key.ndim == value.ndim == 4:
            raise ShapeError(
                f"{self}: operands have 4 dimensions", got=f"{query}, {key}, {value}", expected="[B,T,N,H]"
            )
        b, t, n, h = query.shape
        s, k = key.shape[1:3]
        if key.shape != value.shape or (key.shape[0], key.shape[3]) != (b, h) or not k or n % k:
            raise ShapeError(
                f"{self}: query, key and value do not fit",
                got=f"{query}, {key}, {value}",
                expected="[B,T,N,H], [B,S,K,H] twice; N must be a multiple of K",
            )
        require(self, len(extras) == has_bias + has_mask, "one operand for bias and mask each", len(extras))
        for e in extras:
            if e.ndim != 4 or any(m not in (1, full) for m, full in zip(e.shape, (b, n, t, s), strict=True)):
                raise ShapeError(
                    f"{self}: bias or mask does not fit", got=e, expected=f"[{b},{n},{t},{s}] or 1 for any"
                )
        if has_mask and extras[-1].dtype != dtypes.bool_:
            raise DtypeError(f"{self}: the mask is boolean", got=extras[-1])
        return query.strong()

    def expand(
        self,
        query: Array,
        key: Array,
        value: Array,
        /,
        *extras: Array,
        scale: float,
        is_causal: bool,
        local_window_size: Window,
        has_bias: bool,
        has_mask: bool,
    ) -> Array:
        b, t, n, h = query.shape
        s, k = key.shape[1:3]
        g = n // k
        wide = query.dtype if query.dtype == dtypes.float64 else dtypes.float32
        # Heads of one group are rows of one product: [B, K, T * G, H] with [B, K, S, H].
        rows = reshape(query, shape=(b, t, k, g, h))
        rows = reshape(transpose(rows, permutation=(0, 2, 3, 1, 4)), shape=(b, k, g * t, h))
        logits = dot_general(
            rows,
            key,
            dimension_numbers=(((3,), (3,)), ((0, 1), (0, 2))),
            preferred_element_type=wide,
        )
        logits = mul(reshape(logits, shape=(b, n, t, s)), scale)
        rest = list(extras)
        if has_bias:
            logits = add(logits, _spread(cast(rest.pop(0), wide), logits))
        seen = visible(t, s, is_causal, local_window_size)
        if seen is not None:
            seen = broadcast_in_dim(seen, shape=logits.shape, broadcast_dimensions=(2, 3))
        if has_mask:
            mask = _spread(rest.pop(0), logits)
            seen = mask if seen is None else and_(seen, mask)
        if seen is not None:
            # Far below any logit, and finite: a row that sees nothing gets equal weights, not NaN.
            out = -0.7 * float(dtypes.float_info(dtypes.float32).max)
            logits = select_n(seen, like(logits, out), logits)
        weights = cast(softmax(logits, axis=3), key.dtype)
        weights = reshape(weights, shape=(b, k, g * t, s))
        out = dot_general(weights, value, dimension_numbers=(((3,), (1,)), ((0, 1), (0, 2))))
        out = transpose(reshape(out, shape=(b, k, g, t, h)), permutation=(0, 3, 1, 2, 4))
        return reshape(out, shape=(b, t, n, h))

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        b = args[0].shape[0 if dims[0] is None else int(dims[0] == 0)]
        merged: list[Array] = []
        for x, d in zip(args, dims, strict=True):
            if d is None and x.shape[0] == 1 and len(merged) >= 3:
                merged.append(x)
                continue
            moved = move_batch(x, d, size)
            if moved.shape[1] != b:
                shape = (size, b, *moved.shape[2:])
                moved = broadcast_in_dim(moved, shape=shape, broadcast_dimensions=tuple(range(len(shape))))
            merged.append(reshape(moved, shape=(size * b, *moved.shape[2:])))
        y = self(*merged, **params)
        return reshape(y, shape=(size, b, *y.shape[1:])), 0


@final
class CachedAttention(CompositeOp):
    """What new tokens read from a cache that has their keys and values: `DotProductAttention` with lengths.

    Operands: query [B, T, N, H]; keys and values [B, S, K, H], floats or int8; lengths int32 [B], then for int8 the
    scales of keys and of values, float32 [B, S, K] each. N is a multiple of K. Query t of sequence b sees places 0 to
    ``lengths[b] + t``, with a ``window`` (0: none) only so many of them, the last ones; what lies behind has no weight.
    Lengths are brought into 0 to S - T. Logits are ``cap tanh(logits / cap)`` if there is a ``cap``. All is computed in
    float32, or float64 if an operand is; the result has the type of ``query``.
    """

    name = "cached_attention"

    def infer(
        self,
        query: ArrayType,
        keys: ArrayType,
        values: ArrayType,
        lengths: ArrayType,
        /,
        *scales: ArrayType,
        scale: float,
        window: int,
        cap: float | None,
    ) -> ArrayType:
        check_dtype(self, dtypes.FLOAT, query)
        check_dtype(self, frozenset((dtypes.int8,)) if scales else dtypes.FLOAT, keys, values)
        check_dtype(self, frozenset((dtypes.int32,)), lengths)
        check_dtype(self, frozenset((dtypes.float32,)), *scales)
        require(self, window >= 0, "a window is 0 or more", window)
        fits = query.ndim == keys.ndim == 4 and keys.shape == values.shape and keys.dtype == values.dtype
        if fits:
            (b, t, n, h), (kb, s, k, kh) = query.shape, keys.shape
            fits = (kb, kh) == (b, h) and t <= s and k > 0 and n % k == 0 and lengths.shape == (b,)
            fits = fits and len(scales) in (0, 2) and all(x.shape == (b, s, k) for x in scales)
        if not fits:
            raise ShapeError(
                f"{self}: operands do not fit",
                got=", ".join(map(str, (query, keys, values, lengths, *scales))),
                expected="[B,T,N,H], [B,S,K,H] twice, [B], two scales [B,S,K] or none; N a multiple of K, T at most S",
            )
        return query.strong()

    def expand(
        self,
        query: Array,
        keys: Array,
        values: Array,
        lengths: Array,
        /,
        *scales: Array,
        scale: float,
        window: int,
        cap: float | None,
    ) -> Array:
        b, t, n, h = query.shape
        s, k = keys.shape[1:3]
        g = n // k
        wide = dtypes.float64 if dtypes.float64 in (query.dtype, keys.dtype) else dtypes.float32
        rows = reshape(cast(query, wide), shape=(b, t, k, g, h))
        rows = reshape(transpose(rows, permutation=(0, 2, 3, 1, 4)), shape=(b, k, g * t, h))
        logits = dot_general(rows, cast(keys, wide), dimension_numbers=(((3,), (3,)), ((0, 1), (0, 2))))
        # Of each key one number, for all queries of its head.
        each = lambda x: broadcast_in_dim(cast(x, wide), shape=logits.shape, broadcast_dimensions=(0, 3, 1))
        logits = mul(logits, mul(each(scales[0]), scale)) if scales else mul(logits, scale)
        logits = logits if cap is None else mul(tanh(mul(logits, 1 / cap)), cap)
        first = clamp(like(lengths, 0), lengths, like(lengths, s - t))
        shape = (b, k, g, t, s)
        last = add(
            broadcast_in_dim(first, shape=shape, broadcast_dimensions=(0,)),
            iota(dtype=dtypes.int32, shape=shape, dimension=3),
        )
        place = iota(dtype=dtypes.int32, shape=shape, dimension=4)
        seen = le(place, last)
        if window:
            seen = and_(seen, ge(place, add(last, 1 - window)))
        logits = select_n(reshape(seen, shape=logits.shape), like(logits, -float("inf")), logits)
        weights = softmax(logits, axis=3)
        weights = mul(weights, each(scales[1])) if scales else weights
        out = dot_general(weights, cast(values, wide), dimension_numbers=(((3,), (1,)), ((0, 1), (0, 2))))
        out = transpose(reshape(out, shape=(b, k, g, t, h)), permutation=(0, 3, 1, 2, 4))
        return cast(reshape(out, shape=(b, t, n, h)), query.dtype)


def _spread(x: Array, logits: Array) -> Array:
    return broadcast_in_dim(x, shape=logits.shape, broadcast_dimensions=(0, 1, 2, 3))


def visible(t: int, s: int, is_causal: bool, window: Window) -> Array | None:
    """Which keys each query sees, [T, S]; None for all."""
    if not is_causal and window is None:
        return None
    row, column = (iota(dtype=dtypes.int32, shape=(t, s), dimension=i) for i in range(2))
    found: Array | None = None
    rules: list[Array] = []
    if is_causal:
        rules.append(ge(row, column))
    if window is not None:
        left, right = window
        rules += [le(row, add(column, left)), ge(row, add(column, -right))]
    for rule in rules:
        found = rule if found is None else and_(found, rule)
    return found


dot_product_attention = DotProductAttention()
cached_attention = CachedAttention()
