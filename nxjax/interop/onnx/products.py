"""Rules of matrix products and convolutions, in floats and in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.onnx.images import sampled
from nxjax.interop.onnx.walk import rule


@rule("MatMul")
def _matmul(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y).astype(x.dtype)


@rule("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None,
    *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0,
) -> Any:  # fmt: skip
    y = jnp.matmul(a.T if transA else a, b.T if transB else b)
    y = y if alpha == 1 else (alpha * y).astype(a.dtype)
    return y if c is None or beta == 0 else y + (c if beta == 1 else (beta * c).astype(c.dtype))


@rule("Einsum")
def _einsum(*xs: Any, equation: str) -> Any:
    return jnp.einsum(equation.replace(" ", ""), *xs)


@rule("Det")
def _det(x: Any) -> Any:
    return jnp.linalg.det(x)


def shifted(x: Any, zero: Any) -> Any:
    """Stored whole numbers less their zero point, in 32 bits."""
    x = x.astype(jnp.int32)
    return x if zero is None else x - zero.astype(jnp.int32)


@rule("MatMulInteger")
def _matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    if a_zero is not None and a_zero.ndim == 1 and a_zero.size > 1:
        a_zero = a_zero[:, None]
    return jnp.matmul(shifted(a, a_zero), shifted(b, b_zero))


# --- convolutions ---


def padding(
    auto_pad: str,
    pads: Any,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """What stands before and after each spatial axis."""
    rank = len(sizes)
    if auto_pad in ("NOTSET", ""):
        given = tuple(pads) if pads is not None else (0,) * 2 * rank
        return [(given[i], given[rank + i]) for i in range(rank)]
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    around: list[tuple[int, int]] = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less = total // 2
        around.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
    return around


def convolved(
    x: Any, w: Any, *, auto_pad: str, dilations: Any, group: int, pads: Any, strides: Any, dtype: Any = None
) -> Any:
    """The convolution of ``x`` [n, c, ...] with ``w`` [m, c / group, ...]."""
    rank = x.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    around = padding(auto_pad, pads, x.shape[2:], w.shape[2:], strides, dilations)
    return lax.conv_general_dilated(
        x, w, tuple(strides), around, rhs_dilation=tuple(dilations), feature_group_count=group,
        preferred_element_type=dtype,
    )  # fmt: skip


def _channels(b: Any, rank: int) -> Any:
    return b.reshape((1, -1) + (1,) * (rank - 2))


@rule("Conv")
def _conv(
    x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    y = convolved(x, w, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return y if b is None else y + _channels(b, x.ndim)


@rule("ConvInteger")
def _conv_integer(
    x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    if w_zero is not None and w_zero.ndim:
        w_zero = w_zero.reshape((-1,) + (1,) * (w.ndim - 1))
    return convolved(
        shifted(x, x_zero),
        shifted(w, w_zero),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )


@rule("ConvTranspose")
def _conv_transpose(
    x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    rank = x.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    more = output_padding or (0,) * rank
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    around: list[tuple[int, int]] = []
    for i in range(rank):
        if output_shape or auto_pad.startswith("SAME"):
            size = output_shape[-rank:][i] if output_shape else x.shape[2 + i] * strides[i]
            total = strides[i] * (x.shape[2 + i] - 1) + more[i] + reach[i] + 1 - size
            less = max(total, 0) // 2 if total >= 0 else 0
            rest = max(total, 0) - less
            # A result larger than the sum of its parts is filled at its end.
            extra = min(total, 0)
            around.append((less, rest + extra) if auto_pad == "SAME_UPPER" else (rest, less + extra))
        else:
            around.append((pads[i], pads[rank + i]) if pads and auto_pad != "VALID" else (0, 0))
    channels, each = w.shape[:2]
    turned = w.reshape((group, channels // group, each, *w.shape[2:])).swapaxes(1, 2)
    turned = jnp.flip(turned.reshape((group * each, channels // group, *w.shape[2:])), tuple(range(2, 2 + rank)))
    edges = [(r - a, r - z + m) for r, (a, z), m in zip(reach, around, more, strict=True)]
    y = lax.conv_general_dilated(
        x,
        turned,
        (1,) * rank,
        edges,
        lhs_dilation=tuple(strides),
        rhs_dilation=tuple(dilations),
        feature_group_count=group,
    )
    return y if b is None else y + _channels(b, x.ndim)


def window_places(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Flat places of the elements of each window: int64 [*out, elements of a window]."""
    rank = len(sizes)
    flat: Any = np.zeros((), np.int64)
    for i, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        count = (n - (k - 1) * d - 1) // s + 1
        at = np.arange(count)[:, None] * s + np.arange(k) * d
        shape = [1] * 2 * rank
        shape[i], shape[rank + i] = at.shape
        flat = flat * n + at.reshape(shape)
    shape = flat.shape
    return flat.reshape((*shape[:rank], -1))


@rule("Col2Im", known=("image", "block"))
def _col2im(x: Any, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None) -> Any:
    sizes, kernel = [int(v) for v in image], [int(v) for v in block]
    rank = len(sizes)
    around = padding("NOTSET", pads, sizes, kernel, (), ())
    padded = [n + a + b for n, (a, b) in zip(sizes, around, strict=True)]
    places = window_places(padded, kernel, strides or (1,) * rank, dilations or (1,) * rank)
    elements = places.shape[-1]
    columns = x.reshape((x.shape[0], -1, elements, x.shape[2]))
    flat = places.reshape(-1, elements).T
    y = jnp.zeros((x.shape[0], columns.shape[1], int(np.prod(padded))), x.dtype)
    y = y.at[:, :, flat].add(columns).reshape((*y.shape[:2], *padded))
    return y[(slice(None), slice(None), *(slice(a, a + n) for n, (a, _) in zip(sizes, around, strict=True)))]


@rule("DeformConv")
def _deform_conv(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, *, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, offset_group: int = 1, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    kernel = w.shape[2:]
    rank = len(kernel)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * 2 * rank
    n, c = x.shape[:2]
    out = offset.shape[2:]
    points = int(np.prod(kernel))
    shifts = offset.reshape((n, offset_group, points, rank, *out))
    grid = np.meshgrid(*(np.arange(k) * d for k, d in zip(kernel, dilations, strict=True)), indexing="ij")
    taps = [g.reshape((points,) + (1,) * rank) for g in grid]
    starts = np.meshgrid(
        *(np.arange(o) * s - p for o, s, p in zip(out, strides, pads[:rank], strict=True)), indexing="ij"
    )
    places = [shifts[:, :, :, i] + jnp.asarray((taps[i] + starts[i]).astype(np.float32)) for i in range(rank)]
    each = x.reshape((n * offset_group, c // offset_group, *x.shape[2:]))
    coordinates = [p.reshape((n * offset_group, points, *out)).astype(x.dtype) for p in places]
    read = sampled(each, coordinates)  # [n * groups, c / groups, points, *out]
    if mask is not None:
        read = read * mask.reshape((n * offset_group, 1, points, *out))
    read = read.reshape((n, group, c // group, points, -1))
    weights = w.reshape((group, w.shape[0] // group, c // group, points))
    y = jnp.einsum("ngcps,gmcp->ngms", read, weights).reshape((n, w.shape[0], *out))
    return y if b is None else y + _channels(b, x.ndim)
