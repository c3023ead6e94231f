"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.lax import stop_gradient
from nxjax.numpy.creation import asarray
from nxjax.numpy.promotion import check_choice
from nxjax.numpy.softmaxes import logsumexp
from nxjax.ops.composite_attention import dot_product_attention as op
from nxjax.ops.composite_attention import visible
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array


@entry
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Array | tuple[Array, ...]:
    """softmax(query key^T * scale + bias) value, head by head; logits and softmax in float32.

    Args:
        query: [B, T, N, H]; the batch may be left out.
        key, value: [B, S, K, H]; N is a multiple of K, and heads share keys in groups.
        bias: added to the logits; broadcasts to [B, N, T, S].
        mask: boolean, False is left out; broadcasts to [B, N, T, S].
        scale: of the logits; 1 / sqrt(H) by default.
        is_causal: queries only see keys up to their position.
        query_seq_lengths, key_value_seq_lengths: int32 [B], lengths of the sequences without padding.
        local_window_size: how many keys each query sees to the left and right; an int for both.
        implementation: None or ``"xla"``.
        return_residual: return ``(result, logsumexp of the logits)``.

    Returns:
        An array of the shape and dtype of ``query``; with ``return_residual`` also [B, T, N].

    Raises:
        ParameterError: another implementation, or a mask that is not boolean.
        ShapeError: shapes that do not fit.

    Vaswani et al., "Attention is all you need" (2017).

    >>> query, key = jnp.ones((1, 2, 1, 4)), jnp.ones((1, 3, 1, 4))
    >>> value = jnp.arange(3.0).reshape(1, 3, 1, 1) * jnp.ones(4)
    >>> dot_product_attention(query, key, value)[0, :, 0, 0].tolist()
    [1.0, 1.0]
    >>> dot_product_attention(query, key, value, is_causal=True)[0, :, 0, 0].tolist()
    [0.0, 0.5]
    """
    check_choice("dot_product_attention: implementation", implementation, None, "xla")
    given = asarray(query)
    q, k, v = (_with_batch(x) for x in (given, asarray(key), asarray(value)))
    extras = [None if x is None else _with_batch(asarray(x)) for x in (bias, mask)]
    bias_, mask_ = extras
    if q.ndim != 4 or k.ndim != 4:
        raise ShapeError("dot_product_attention: query and key have 3 or 4 dimensions", got=f"{q.type}, {k.type}")
    (b, t, n, h), (s, kv) = q.shape, k.shape[1:3]
    if mask_ is not None and mask_.dtype != dtypes.bool_:
        raise ParameterError("dot_product_attention: the mask is boolean", got=mask_.type)
    seen = _padding(b, t, s, query_seq_lengths, key_value_seq_lengths)
    if seen is not None:
        mask_ = seen if mask_ is None else jnp.logical_and(mask_, seen)
    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    factor = 1.0 / math.sqrt(h) if scale is None else float(scale)
    params: dict[str, Any] = {
        "scale": factor,
        "is_causal": bool(is_causal),
        "local_window_size": None if window is None else (int(window[0]), int(window[1])),
        "has_bias": bias_ is not None,
        "has_mask": mask_ is not None,
    }
    out = op(q, k, v, *(x for x in (bias_, mask_) if x is not None), **params)
    if query_seq_lengths is not None:
        inside = jnp.arange(t)[None, :] < asarray(query_seq_lengths)[:, None]
        out = out * inside[:, :, None, None].astype(out.dtype)
    out = out.reshape(given.shape)
    if not return_residual:
        return out
    residual = _residual(q, k, bias_, mask_, params, n // kv)
    return out, residual.astype(k.dtype).reshape(given.shape[:-1])


def _with_batch(x: Array) -> Array:
    return x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x


def _padding(b: int, t: int, s: int, query_lengths: Any, key_lengths: Any) -> Array | None:
    """Mask [B, 1, T, S] of what lies inside the sequences."""
    seen: Array | None = None
    for lengths, size, place in ((query_lengths, t, (1, t, 1)), (key_lengths, s, (1, 1, s))):
        if lengths is None:
            continue
        counts = asarray(lengths)
        if counts.shape != (b,):
            raise ShapeError("dot_product_attention: one sequence length per batch element", got=counts.type)
        inside = jnp.arange(size).reshape((1, *place)) < counts.reshape((b, 1, 1, 1))
        seen = inside if seen is None else jnp.logical_and(seen, inside)
    return None if seen is None else jnp.broadcast_to(seen, (b, 1, t, s))


def _residual(q: Array, k: Array, bias: Any, mask: Any, params: dict[str, Any], group: int) -> Array:
    """logsumexp of the logits over the keys, [B, T, N]; without derivative."""
    wide = dtypes.float64 if q.dtype == dtypes.float64 else dtypes.float32
    keys = jnp.repeat(k, group, axis=2) if group > 1 else k
    logits = jnp.einsum("btnh,bsnh->bnts", q.astype(wide), keys.astype(wide)) * params["scale"]
    logits = logits if bias is None else logits + bias
    seen = visible(q.shape[1], k.shape[1], params["is_causal"], params["local_window_size"])
    for rule in (seen, mask):
        if rule is not None:
            logits = jnp.where(rule, logits, -0.7 * float(dtypes.float_info(dtypes.float32).max))
    return stop_gradient(jnp.transpose(logsumexp(logits.astype(dtypes.float32), axis=-1), (0, 2, 1)))
