"""Rules of ONNX Runtime's own operators, domain ``com.microsoft``: fused transformers and quantized layers.

Formulas: ONNX Runtime's definitions, docs/ContribOperators.md of github.com/microsoft/onnxruntime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, concrete
from nxjax.interop.onnx import grids
from nxjax.interop.onnx.norms import normalized, rms_normalized
from nxjax.interop.onnx.pools import average_pool, max_pool
from nxjax.interop.onnx.products import convolved, gemm, shifted
from nxjax.interop.onnx.quantized import TWO, dynamically, on_grid, real, rescaled
from nxjax.interop.onnx.recurrent import activation, lstm
from nxjax.interop.onnx.reductions import from_axis
from nxjax.interop.onnx.shapes import needed, number
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes


def microsoft(*names: str, grids: Sequence[str] = ()) -> Any:
    """Decorator: `rule` in the domain of ONNX Runtime."""
    return rule(*(f"com.microsoft::{name}" for name in names), grids=grids)


# --- activations and products ---


@microsoft("FastGelu", "BiasGelu")
def _fast_gelu(x: Any, bias: Any = None, *, node: Any) -> Any:
    return nn.gelu(x if bias is None else x + bias, approximate=node.kind.endswith("FastGelu"))


@microsoft("QuickGelu")
def _quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    return x * nn.sigmoid(alpha * x)


@microsoft("FusedMatMul", "TransposeMatMul")
def _fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0
) -> Any:
    # A batch that is not in front stands behind the first axis.
    a, b = jnp.moveaxis(a, 0, -2) if transBatchA else a, jnp.moveaxis(b, 0, -2) if transBatchB else b
    a, b = a.swapaxes(-1, -2) if transA else a, b.swapaxes(-1, -2) if transB else b
    return (jnp.matmul(a, b) * alpha).astype(a.dtype)


@microsoft("FusedConv")
def _fused_conv(
    x: Any, w: Any, b: Any = None, added: Any = None, *, activation: str = "", activation_params: Any = (),
    auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    y = convolved(x, w, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    y = y if b is None else y + b.reshape((1, -1) + (1,) * (x.ndim - 2))
    y = y if added is None else y + added
    return _activated(y, activation, *activation_params)


@microsoft("FusedGemm")
def _fused_gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
    activation: str = "", activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None,
) -> Any:  # fmt: skip
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(y, activation, activation_alpha, activation_beta)


def _activated(y: Any, name: str, alpha: float | None = None, beta: float | None = None) -> Any:
    if name == "Clip":
        return jnp.clip(y, alpha, beta)
    return activation(name, alpha, beta)(y) if name else y


@microsoft("Inverse")
def _inverse(x: Any) -> Any:
    return jnp.linalg.inv(x)


@rule("com.microsoft::ExpandDims", known=("axis",))
def _expand_dims(x: Any, axis: Any) -> Any:
    return jnp.expand_dims(x, int(number(axis)))


@microsoft("CDist")
def _distances(a: Any, b: Any, *, metric: str = "sqeuclidean") -> Any:
    total = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
    return jnp.sqrt(total) if metric == "euclidean" else total


@microsoft("Unique")
def _unique(x: Any) -> Any:
    y, first, inverse, counts = np.unique(needed("Unique", x)[0], True, True, True)
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    whole = (rank[inverse.reshape(-1)].astype(np.int64), counts[order].astype(np.int64))
    return jnp.asarray(y[order]), *map(jnp.asarray, whole)


@microsoft("NhwcMaxPool")
def _last_max_pool(x: Any, **attributes: Any) -> Any:
    return jnp.moveaxis(max_pool(jnp.moveaxis(x, -1, 1), outputs=1, **attributes), 1, -1)


def _unpacked(b: Any, bits: int) -> Any:
    """Whole numbers of 2, 4 or 8 bits, the lowest bits of a byte first: uint8 [..., n] to int32 [..., n * 8 / bits]."""
    shifts = jnp.arange(0, 8, bits, dtype=jnp.int32)
    parts = (b.astype(jnp.int32)[..., None] >> shifts) & (2**bits - 1)
    return parts.reshape((*b.shape[:-1], -1))


@microsoft("MatMulNBits")
def _matmul_nbits(
    a: Any, b: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None,
    *, K: int, N: int, bits: int = 4, block_size: int, accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Any:  # fmt: skip
    if groups is not None or bits not in (2, 4, 8):
        raise Refused("from_onnx: MatMulNBits with reordered columns or other bits", got=f"{bits} bits")
    blocks = -(-K // block_size)
    w = _unpacked(b.reshape((N, blocks, -1)), bits).astype(scales.dtype)
    if zeros is None:
        zero: Any = 2 ** (bits - 1)
    elif zeros.dtype in dtypes.FLOAT:
        zero = zeros.reshape((N, blocks, 1))
    else:
        zero = _unpacked(zeros.reshape((N, -1)), bits)[:, :blocks, None].astype(scales.dtype)
    w = ((w - zero) * scales.reshape((N, blocks, 1))).reshape((N, -1))[:, :K]
    y = jnp.matmul(a, w.T.astype(a.dtype))
    return y if bias is None else y + bias


@microsoft("GatherBlockQuantized")
def _gather_quantized(
    data: Any, index: Any, scales: Any, zeros: Any = None,
    *, bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = -1,
) -> Any:  # fmt: skip
    packed = data.dtype == jnp.uint8 and bits < 8
    axis = quantize_axis % data.ndim
    if packed and axis != data.ndim - 1:
        raise Refused("from_onnx: GatherBlockQuantized with packed values along another axis than the last", got=axis)
    w = _unpacked(data, bits) if packed else data.astype(jnp.int32)
    spread = lambda v: jnp.repeat(v, block_size, axis=axis)[tuple(slice(0, n) for n in w.shape)]
    if zeros is None:
        zero: Any = 2 ** (bits - 1) if data.dtype == jnp.uint8 else 0
    else:
        zero = spread(_unpacked(zeros, bits) if packed else zeros.astype(jnp.int32))
    return jnp.take((w - zero).astype(scales.dtype) * spread(scales), index, axis=gather_axis)


# --- norms ---


@microsoft("SkipLayerNormalization")
def _skip_layer_norm(
    x: Any, skip: Any, scale: Any, shift: Any = None, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    y, mean, inverse = normalized(total, (-1,), epsilon)
    y = y * scale
    return y if shift is None else y + shift, mean, inverse, total


@microsoft("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(x: Any, skip: Any, scale: Any, bias: Any = None, *, epsilon: float = 1e-12) -> Any:
    total = x + skip if bias is None else x + skip + bias
    stash = jnp.float32 if x.dtype in dtypes.NARROW else x.dtype
    inverse = 1 / jnp.sqrt((total.astype(stash) ** 2).mean(-1, keepdims=True) + epsilon)
    return rms_normalized(total, scale, -1, epsilon, stash), jnp.zeros_like(inverse), inverse, total


@microsoft("EmbedLayerNormalization")
def _embed(
    ids: Any, segments: Any, words: Any, places: Any, segment: Any, scale: Any, shift: Any, mask: Any = None,
    position: Any = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> Any:  # fmt: skip
    at = jnp.arange(ids.shape[1]) if position is None else position
    total = jnp.take(words, ids, axis=0) + jnp.take(places, at, axis=0)
    if segment is not None and segments is not None:
        total = total + jnp.take(segment, segments, axis=0)
    y = normalized(total, (-1,), epsilon)[0] * scale + shift
    count = jnp.zeros(ids.shape[0], jnp.int32) if mask is None else mask.sum(1).astype(jnp.int32)
    return y, count, total


# --- attention ---


def _heads(x: Any, heads: int) -> Any:
    """[batch, steps, heads * size] to [batch, heads, steps, size]."""
    return x.reshape((*x.shape[:2], heads, -1)).swapaxes(1, 2)


def _attended(
    q: Any, k: Any, v: Any, added: Any, scale: float | None, causal: bool, softcap: float = 0.0, sink: Any = None
) -> Any:
    """Softmax of ``q @ k`` and its product with ``v``, heads side by side: [batch, steps, heads * size].

    ``sink``, one number for each head, is the score of a key whose value is 0.
    """
    size = q.shape[-1]
    scores = jnp.matmul(q, k.swapaxes(-1, -2)) * (scale or 1 / np.sqrt(np.float32(size)).item())
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    if causal:
        past = k.shape[2] - q.shape[2]
        seen = jnp.arange(k.shape[2])[None, :] <= jnp.arange(q.shape[2])[:, None] + past
        scores = jnp.where(seen, scores, -jnp.inf)
    if added is not None:
        scores = scores + added
    scores = scores.astype(jnp.float32)
    if sink is not None:
        last = jnp.broadcast_to(sink.astype(jnp.float32)[:, None, None], (*scores.shape[:-1], 1))
        weights = nn.softmax(jnp.concatenate([scores, last], -1), -1)[..., :-1]
    else:
        weights = nn.softmax(scores, -1)
    y = jnp.matmul(weights.astype(v.dtype), v)
    return y.swapaxes(1, 2).reshape((q.shape[0], q.shape[2], -1)).astype(q.dtype)


def _masked(mask: Any, batch: int, keys: int, filter_value: float) -> Any:
    """What a mask of zeros and ones adds to scores [batch, heads, steps, keys]."""
    if mask is None:
        return None
    if mask.ndim == 1:
        # Where each sequence ends, and then perhaps where it starts.
        at = jnp.arange(keys)[None, :]
        seen = at < mask[:batch, None]
        mask = (seen & (at >= mask[batch:, None]) if mask.shape[0] == 2 * batch else seen).astype(jnp.int32)
    shape = {2: (mask.shape[0], 1, 1, -1), 3: (mask.shape[0], 1, *mask.shape[1:])}.get(mask.ndim, mask.shape)
    return (1 - mask.reshape(shape).astype(jnp.float32)) * filter_value


@microsoft("Attention")
def _attention(
    x: Any, w: Any, b: Any = None, mask: Any = None, past: Any = None, bias: Any = None, *, num_heads: int,
    qkv_hidden_sizes: Any = None, scale: float | None = None, unidirectional: int = 0,
    mask_filter_value: float = -10000.0, do_rotary: int = 0, past_present_share_buffer: int = 0, outputs: int,
) -> Any:  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise Refused("from_onnx: Attention with rotary positions or a shared buffer", got="do_rotary")
    joined = jnp.matmul(x, w)
    joined = joined if b is None else joined + b
    sizes = qkv_hidden_sizes or (joined.shape[-1] // 3,) * 3
    parts = jnp.split(joined, list(np.cumsum(sizes)[:2]), axis=-1)
    added = lambda keys: _both(_masked(mask, x.shape[0], keys, mask_filter_value), bias)
    return _self_attended(parts, num_heads, past, added, scale, bool(unidirectional), outputs)


def _both(a: Any, b: Any) -> Any:
    """The sum of what may be left out."""
    return b if a is None else a if b is None else a + b


def _self_attended(
    parts: Any, heads: int, past: Any, added: Any, scale: float | None, causal: bool, outputs: int
) -> Any:
    """Attention of one array with itself, and its keys and values behind those of the past."""
    q, k, v = (_heads(p, heads) for p in parts)
    if past is not None:
        k, v = jnp.concatenate([past[0], k], 2), jnp.concatenate([past[1], v], 2)
    y = _attended(q, k, v, added(k.shape[2]), scale, causal)
    return (y, jnp.stack([k, v])) if outputs > 1 else y


@microsoft("QAttention")
def _quantized_attention(
    x: Any, w: Any, b: Any, x_scale: Any, w_scale: Any, mask: Any = None, x_zero: Any = None, w_zero: Any = None,
    past: Any = None, *, num_heads: int, scale: float | None = None, unidirectional: int = 0,
    mask_filter_value: float = -10000.0, do_rotary: int = 0, past_present_share_buffer: int = 0, outputs: int,
) -> Any:  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise Refused("from_onnx: QAttention with rotary positions or a shared buffer", got="do_rotary")
    joined = _matmul_to_float(x, w, x_scale, w_scale, x_zero, w_zero, b)
    added = lambda keys: _masked(mask, x.shape[0], keys, mask_filter_value)
    return _self_attended(jnp.split(joined, 3, axis=-1), num_heads, past, added, scale, bool(unidirectional), outputs)


@microsoft("MultiHeadAttention")
def _multi_head(
    q: Any, k: Any = None, v: Any = None, b: Any = None, mask: Any = None, bias: Any = None, past_k: Any = None,
    past_v: Any = None, *, num_heads: int, scale: float | None = None, unidirectional: int = 0,
    mask_filter_value: float = -10000.0, outputs: int,
) -> Any:  # fmt: skip
    if k is None or q.ndim != 3:
        raise Refused("from_onnx: MultiHeadAttention of packed inputs", got=q.type)
    if b is not None:
        bq, bk, bv = jnp.split(b, [q.shape[-1], 2 * q.shape[-1]])
        q, k, v = q + bq, k + bk if k.ndim == 3 else k, v + bv if v.ndim == 3 else v
    q = _heads(q, num_heads)
    k, v = (p if p.ndim == 4 else _heads(p, num_heads) for p in (k, v))
    if past_k is not None:
        k, v = jnp.concatenate([past_k, k], 2), jnp.concatenate([past_v, v], 2)
    added = _both(_masked(mask, q.shape[0], k.shape[2], mask_filter_value), bias)
    return (_attended(q, k, v, added, scale, bool(unidirectional)), k, v)[:outputs]


def _rotated(x: Any, at: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotary positions of [batch, heads, steps, size]; ``at`` [batch, steps] are places in the tables."""
    c, s = jnp.take(cos, at, axis=0)[:, None], jnp.take(sin, at, axis=0)[:, None]
    half = cos.shape[-1]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    one, two = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    first, second = one * c - two * s, two * c + one * s
    if interleaved:
        made = jnp.stack([first, second], -1).reshape(turned.shape)
    else:
        made = jnp.concatenate([first, second], -1)
    return jnp.concatenate([made, rest], -1) if rest.shape[-1] else made


@microsoft("RotaryEmbedding")
def _rotary(
    x: Any, at: Any, cos: Any, sin: Any, *, interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
    scale: float = 1.0, is_packed_batching: int = 0,
) -> Any:  # fmt: skip
    heads = num_heads or (x.shape[-1] // (2 * cos.shape[-1]) if x.ndim == 3 else 0)
    split = x if x.ndim == 4 else _heads(x, heads)
    steps = jnp.arange(split.shape[2])[None]
    places = at.reshape(-1, 1) + steps if at.size == 1 else at
    places = jnp.broadcast_to(places, (x.shape[0], split.shape[2]))
    y = _rotated(split, places, cos, sin, bool(interleaved))
    return y if x.ndim == 4 else y.swapaxes(1, 2).reshape(x.shape)


@microsoft("GroupQueryAttention")
def _group_query(
    q: Any, k: Any, v: Any, past_k: Any, past_v: Any, lengths: Any, total: Any, cos: Any = None, sin: Any = None,
    positions: Any = None, bias: Any = None, sink: Any = None,
    *, num_heads: int, kv_num_heads: int, scale: float | None = None, do_rotary: int = 0, rotary_interleaved: int = 0,
    local_window_size: int = -1, softcap: float = 0.0, smooth_softmax: int = 0,
) -> Any:  # fmt: skip
    if k is None:
        size = q.shape[-1] // (num_heads + 2 * kv_num_heads)
        q, k, v = jnp.split(q, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    q, k, v = _heads(q, num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    batch, steps = q.shape[0], q.shape[2]
    past = 0 if past_k is None else past_k.shape[2]
    # A sequence's new keys stand behind its own past; what lies beyond its length is not seen.
    last = lengths.reshape(-1).astype(jnp.int64)
    begun = jnp.maximum(last + 1 - steps, 0) if past else jnp.zeros(batch, jnp.int64)
    at = begun[:, None] + jnp.arange(steps)[None]
    if do_rotary:
        places = jnp.minimum(at if positions is None else positions, cos.shape[0] - 1)
        q, k = (_rotated(x, places, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    if past:
        # A past longer than what is used of it is a buffer, and stays as long.
        room = max(past, int(number(*needed("GroupQueryAttention", total))))
        rows, heads = jnp.arange(batch)[:, None, None], jnp.arange(kv_num_heads)[None, :, None]
        spot = (rows, heads, at[:, None, :])
        grown = lambda old, new: jnp.pad(old, ((0, 0), (0, 0), (0, room - past), (0, 0))).at[spot].set(new)
        k, v = grown(past_k, k), grown(past_v, v)
    seen = jnp.arange(k.shape[2])[None, None, :] <= at[:, :, None]
    if local_window_size > 0:
        seen = seen & (jnp.arange(k.shape[2])[None, None, :] > at[:, :, None] - local_window_size)
    added = jnp.where(seen, 0.0, -jnp.inf)[:, None]
    added = added if bias is None else added + bias[..., : k.shape[2]]
    each = num_heads // kv_num_heads
    if sink is None and smooth_softmax > 0:
        sink = jnp.zeros(num_heads, q.dtype)
    y = _attended(q, jnp.repeat(k, each, 1), jnp.repeat(v, each, 1), added, scale, False, softcap, sink)
    return y, k, v


# --- quantized layers ---


_ONE = ("scale", "zero", "y_scale", "y_zero")


def _of_reals(name: str, function: Any) -> None:
    def run(a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any) -> Any:
        y = function(real(a, a_scale, a_zero), real(b, b_scale, b_zero))
        return on_grid(y, y_scale, y_zero, a.dtype)

    microsoft(name, grids=TWO)(run)


_of_reals("QLinearAdd", jnp.add)
_of_reals("QLinearMul", jnp.multiply)


@microsoft("QLinearSigmoid", grids=_ONE)
def _qlinear_sigmoid(x: Any, scale: Any, zero: Any, y_scale: Any, y_zero: Any) -> Any:
    return on_grid(nn.sigmoid(real(x, scale, zero)), y_scale, y_zero, x.dtype)


@microsoft("QLinearLeakyRelu", grids=_ONE)
def _qlinear_leaky(x: Any, scale: Any, zero: Any, y_scale: Any, y_zero: Any, *, alpha: float = 0.01) -> Any:
    wide = real(x, scale, zero)
    return on_grid(nn.leaky_relu(wide, alpha), y_scale, y_zero, x.dtype)


@microsoft("QLinearSoftmax", grids=_ONE)
def _qlinear_softmax(x: Any, scale: Any, zero: Any, y_scale: Any, y_zero: Any, **attributes: Any) -> Any:
    # The version of Softmax whose axes are meant is an attribute.
    y = from_axis(real(x, scale, zero), attributes.get("axis"), attributes["opset"], nn.softmax)
    return on_grid(y, y_scale, y_zero, x.dtype)


@microsoft("QLinearConcat", grids=("y_scale", "y_zero"))
def _qlinear_concat(y_scale: Any, y_zero: Any, *xs: Any, axis: int) -> Any:
    parts = [real(*xs[i : i + 3]) for i in range(0, len(xs), 3)]
    return on_grid(jnp.concatenate(parts, axis), y_scale, y_zero, y_zero.dtype)


@microsoft("QLinearGlobalAveragePool", grids=_ONE)
def _qlinear_global_average(x: Any, scale: Any, zero: Any, y_scale: Any, y_zero: Any, *, channels_last: int = 0) -> Any:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return on_grid(real(x, scale, zero).mean(axes, keepdims=True), y_scale, y_zero, x.dtype)


@microsoft("QLinearAveragePool", grids=_ONE)
def _qlinear_average(
    x: Any, scale: Any, zero: Any, y_scale: Any, y_zero: Any = None, *, channels_last: int = 0, **attributes: Any
) -> Any:
    wide = real(x, scale, zero)
    wide = jnp.moveaxis(wide, -1, 1) if channels_last else wide
    y = average_pool(wide, **attributes)
    return on_grid(jnp.moveaxis(y, 1, -1) if channels_last else y, y_scale, y_zero, x.dtype)


@microsoft("MatMulIntegerToFloat")
def _matmul_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    y = jnp.matmul(shifted(a, a_zero), shifted(b, b_zero)).astype(a_scale.dtype) * (a_scale * b_scale)
    return y if bias is None else y + bias


@microsoft("DynamicQuantizeMatMul")
def _dynamic_matmul(a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    stored, scale, zero = dynamically(a)
    return _matmul_to_float(stored, b, scale, b_scale, zero, b_zero, bias)


@microsoft("DynamicQuantizeLSTM")
def _dynamic_lstm(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None,
    w_scale: Any = None, w_zero: Any = None, r_scale: Any = None, r_zero: Any = None, **attributes: Any,
) -> Any:  # fmt: skip
    # ONNX Runtime also rounds `x` and the state to 8 bits in each step. Here they stay floats.
    spread = lambda v: v if v is None else v.reshape((-1, 1, 1) if v.ndim < 2 else (v.shape[0], 1, -1))
    floats = lambda v, scale, zero: (shifted(v, spread(zero)) * spread(scale)).swapaxes(1, 2)
    return lstm(x, floats(w, w_scale, w_zero), floats(r, r_scale, r_zero), b, lengths, h, c, p, **attributes)


@microsoft("QLinearWhere", grids=("x_scale", "x_zero", "y_scale", "y_zero", "z_scale", "z_zero"))
def _qlinear_where(
    condition: Any, x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, z_scale: Any, z_zero: Any
) -> Any:
    z = jnp.where(condition, real(x, x_scale, x_zero), real(y, y_scale, y_zero))
    return on_grid(z, z_scale, z_zero, x.dtype)


@microsoft("QGemm", grids=TWO)
def _qgemm(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None, y_scale: Any = None,
    y_zero: Any = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    if y_scale is not None and concrete(b_scale) and concrete(y_scale):
        x, w = real(a, a_scale, a_zero), real(b, b_scale, b_zero, 0 if transB else -1)
        y = jnp.matmul(x.T if transA else x, w.T if transB else w)
        y = y if alpha == 1 else alpha * y
        y = y if c is None else y + c.astype(jnp.float32) * (alpha * a_scale * b_scale)
        return on_grid(y, y_scale, y_zero, y_zero.dtype)
    a, b = grids.stored(a), grids.stored(b)
    wide_a, wide_b = shifted(a, a_zero), shifted(b, b_zero if b_zero.ndim == 0 or not transB else b_zero[:, None])
    total = jnp.matmul(wide_a.T if transA else wide_a, wide_b.T if transB else wide_b)
    total = total if c is None else total + c
    factor = alpha * a_scale * b_scale
    return total.astype(jnp.float32) * factor if y_scale is None else rescaled(total, factor / y_scale, y_zero)
