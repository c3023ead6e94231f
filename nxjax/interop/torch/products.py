"""Rules of matrix products, convolutions and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.onnx.products import window_places
from nxjax.interop.torch.promotion import category, in_dtype
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes


@rule("mm", "bmm")
def _mm(self: Any, mat2: Any) -> Any:
    return jnp.matmul(self, mat2)


@rule("matmul", "__matmul__")
def _matmul(self: Any, other: Any) -> Any:
    return jnp.matmul(self, other)


@rule("mv")
def _mv(self: Any, vec: Any) -> Any:
    return jnp.matmul(self, vec)


@rule("dot")
def _dot(self: Any, tensor: Any) -> Any:
    return jnp.dot(self, tensor)


@rule("vdot")
def _vdot(self: Any, other: Any) -> Any:
    return jnp.dot(jnp.conj(self), other)


@rule("linear")
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    y = jnp.matmul(input, weight.T)
    return y if bias is None else y + bias


def _times(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * in_dtype(factor if category(x.dtype) > 1 else int(factor), x.dtype)


def _plus(start: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """``beta start + alpha product``; what is multiplied by zero is not read."""
    y = _times(product, alpha)
    return jnp.broadcast_to(y, jnp.broadcast_shapes(start.shape, y.shape)) if beta == 0 else _times(start, beta) + y


@rule("addmm")
def _addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _plus(self, jnp.matmul(mat1, mat2), beta, alpha)


@rule("addmv")
def _addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _plus(self, jnp.matmul(mat, vec), beta, alpha)


@rule("baddbmm")
def _baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _plus(self, jnp.matmul(batch1, batch2), beta, alpha)


@rule("addbmm")
def _addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _plus(self, jnp.matmul(batch1, batch2).sum(0).astype(self.dtype), beta, alpha)


@rule("addr")
def _addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _plus(self, vec1[:, None] * vec2[None, :], beta, alpha)


@rule("outer")
def _outer(self: Any, vec2: Any) -> Any:
    return self[:, None] * vec2[None, :]


@rule("einsum")
def _einsum(equation: str, tensors: Any, *, path: Any = None) -> Any:
    return jnp.einsum(equation.replace(" ", ""), *tensors)


@rule("bilinear")
def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    y = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


@rule("linalg_cross")
def _cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    x, y = jnp.broadcast_arrays(self, other)
    return jnp.cross(x, y, axis=dim)


@rule("_fft_r2c")
def _fft_r2c(self: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    scale = _fft_scale(self.shape, dim, normalization)
    if not onesided:
        return jnp.fft.fftn(self, axes=tuple(dim)) * scale
    return jnp.fft.rfftn(self, axes=tuple(dim)) * scale


@rule("_fft_c2c")
def _fft_c2c(self: Any, dim: Any, normalization: int, forward: bool) -> Any:
    scale = _fft_scale(self.shape, dim, normalization)
    if forward:
        return jnp.fft.fftn(self, axes=tuple(dim)) * scale
    return jnp.fft.ifftn(self, axes=tuple(dim), norm="forward") * scale


@rule("_fft_c2r")
def _fft_c2r(self: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    shape = [self.shape[d] for d in dim]
    shape[-1] = last_dim_size
    scale = _fft_scale(dict(zip(dim, shape, strict=True)), dim, normalization)
    return jnp.fft.irfftn(self, s=tuple(shape), axes=tuple(dim), norm="forward") * scale


def _fft_scale(sizes: Any, dim: Sequence[int], normalization: int) -> Any:
    """0 leaves the sum as it is, 1 divides by the root of the number of elements, 2 by the number."""
    n = math.prod(sizes[d] for d in dim)
    return np.float32(1.0 if normalization == 0 else 1 / math.sqrt(n) if normalization == 1 else 1 / n)


# --- convolutions ---


def _spread(v: Any, rank: int) -> tuple[int, ...]:
    given = [v] if isinstance(v, int) else list(v)
    return tuple(given * rank if len(given) == 1 else given)


@rule("convolution", "_convolution")
def _convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *_: Any,
) -> Any:  # fmt: skip
    batched = input.ndim == weight.ndim
    x = input if batched else input[None]
    rank = weight.ndim - 2
    stride, padding, dilation, more = (_spread(v, rank) for v in (stride, padding, dilation, output_padding))
    if transposed:
        y = _transposed(x, weight, stride, padding, dilation, more, groups)
    else:
        around = [(p, p) for p in padding]
        y = lax.conv_general_dilated(x, weight, stride, around, rhs_dilation=dilation, feature_group_count=groups)
    if bias is not None:
        y = y + bias.reshape((1, -1) + (1,) * rank)
    return y if batched else y[0]


def _transposed(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, more: Any, groups: int) -> Any:
    rank = x.ndim - 2
    channels, each = w.shape[:2]
    turned = w.reshape((groups, channels // groups, each, *w.shape[2:])).swapaxes(1, 2)
    turned = jnp.flip(turned.reshape((groups * each, channels // groups, *w.shape[2:])), tuple(range(2, 2 + rank)))
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilation, strict=True)]
    edges = [(r - p, r - p + m) for r, p, m in zip(reach, padding, more, strict=True)]
    return lax.conv_general_dilated(
        x, turned, (1,) * rank, edges, lhs_dilation=stride, rhs_dilation=dilation, feature_group_count=groups
    )


def _conv(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    rank = weight.ndim - 2
    if isinstance(padding, str):
        if padding == "valid":
            padding = 0
        else:
            batched = input.ndim == weight.ndim
            # An odd rest of the padding stands at the end.
            totals = [(k - 1) * d for k, d in zip(weight.shape[2:], _spread(dilation, rank), strict=True)]
            edges = [(0, 0)] * (2 if batched else 1) + [(t // 2, t - t // 2) for t in totals]
            input, padding = jnp.pad(input, edges), 0
    return _convolution(input, weight, bias, stride, padding, dilation, False, 0, groups)


def _conv_transposed(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    return _convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


for _i in (1, 2, 3):
    rule(f"conv{_i}d", f"conv{_i}d.padding")(_conv)
rule("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")(_conv_transposed)


def _windows(
    sizes: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], Any]:
    """The padded sizes, and the places of the elements of each window in them."""
    padded = [n + 2 * p for n, p in zip(sizes, padding, strict=True)]
    return padded, window_places(padded, kernel, stride, dilation)


@rule("im2col")
def _im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    x = self if self.ndim == 4 else self[None]
    kernel, dilation, padding, stride = (_spread(v, 2) for v in (kernel_size, dilation, padding, stride))
    padded, places = _windows(x.shape[2:], kernel, dilation, padding, stride)
    flat = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)]).reshape((*x.shape[:2], math.prod(padded)))
    columns = flat[:, :, jnp.asarray(places.reshape(-1, places.shape[-1]).T)]
    y = columns.reshape((x.shape[0], x.shape[1] * places.shape[-1], columns.shape[-1]))
    return y if self.ndim == 4 else y[0]


@rule("col2im")
def _col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    x = self if self.ndim == 3 else self[None]
    kernel, dilation, padding, stride = (_spread(v, 2) for v in (kernel_size, dilation, padding, stride))
    padded, places = _windows(output_size, kernel, dilation, padding, stride)
    columns = x.reshape((x.shape[0], x.shape[1] // places.shape[-1], places.shape[-1], x.shape[-1]))
    y = jnp.zeros((*columns.shape[:2], math.prod(padded)), x.dtype)
    y = y.at[:, :, jnp.asarray(places.reshape(-1, places.shape[-1]).T)].add(columns)
    inner = tuple(slice(p, p + n) for p, n in zip(padding, output_size, strict=True))
    y = y.reshape((*columns.shape[:2], *padded))[(slice(None), slice(None), *inner)]
    return y if self.ndim == 3 else y[0]


# --- attention ---


def attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, grouped: bool) -> tuple[Any, Any]:
    """softmax(q k^T * scale + mask) v over the last two axes, and the logarithm of each row's sum."""
    dtype = q.dtype
    if dtype in dtypes.NARROW:
        q, k, v = (x.astype(dtypes.float32) for x in (q, k, v))
    if grouped and q.shape[-3] != k.shape[-3]:
        group = q.shape[-3] // k.shape[-3]
        k, v = jnp.repeat(k, group, axis=-3), jnp.repeat(v, group, axis=-3)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    logits = jnp.matmul(q, k.swapaxes(-1, -2)) * factor
    if causal:
        mask = jnp.tril(jnp.ones(logits.shape[-2:], dtypes.bool_))
    if mask is None:
        weights = nn.softmax(logits, axis=-1)
    elif mask.dtype == dtypes.bool_:
        logits = jnp.where(mask, logits, -jnp.inf)
        # A row without any key gives zeros.
        some = jnp.any(mask, -1, keepdims=True)
        weights = jnp.where(some, nn.softmax(jnp.where(some, logits, 0), axis=-1), 0)
    else:
        logits = logits + mask.astype(logits.dtype)
        weights = nn.softmax(logits, axis=-1)
    return jnp.matmul(weights, v).astype(dtype), nn.logsumexp(lax.stop_gradient(logits), axis=-1)


@rule("scaled_dot_product_attention")
def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        raise Refused("from_torch: attention with dropout", got=f"dropout_p={dropout_p}", fix="export it after .eval()")
    return attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)[0]


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _flash_for_cpu(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    _attention(query, key, value, None, dropout_p) if dropout_p else None
    return attention(query, key, value, attn_mask, is_causal, scale, False)


@rule("_scaled_dot_product_attention_math")
def _attention_math(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Any = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    y = _attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return y, y


@rule("conv_tbc")
def _conv_tbc(self: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    numbers = ("WNC", "WIO", "WNC")
    return lax.conv_general_dilated(self, weight, (1,), [(pad, pad)], dimension_numbers=numbers) + bias


@rule("_int_mm")
def _int_mm(self: Any, mat2: Any) -> Any:
    return jnp.matmul(self.astype(dtypes.int32), mat2.astype(dtypes.int32))


@rule("_grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if offs is None or self.ndim != 2 or bias is not None:
        raise Refused("from_torch: a grouped product of other forms", got=f"{self.ndim} and {mat2.ndim} dimensions")
    sizes = jnp.diff(offs, prepend=0).astype(dtypes.int32)
    return lax.ragged_dot(self, mat2, sizes).astype(out_dtype or self.dtype)
