"""Rules of resizing: one or two dimensions of an image, in any layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.graph import TensorKind
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace.types import ArrayType


def _resized(
    b: GraphBuilder, node: str, x: LogicalTensor, axes: Sequence[int], sizes: Sequence[int], kind: TensorKind
) -> LogicalTensor:
    """``node`` on x brought to [n, h, w, c] and back."""
    if len(axes) > 2:
        raise Unsupported("resizing of three dimensions has no NPU instruction", "resize two at a time")
    others = [i for i in range(x.ndim) if i not in axes]
    if len(axes) == 2 and x.ndim == 4:
        # The batch stays first and the channels last, in whatever layout they are.
        order, back = [others[0], *axes, others[1]], x.shape
        image = b.transpose(x, order)
        lead, channels = x.shape[others[0]], x.shape[others[1]]
    else:
        order, back = [*others, *axes], x.shape
        lead, channels = math.prod(x.shape[i] for i in others), 1
        image = b.transpose(x, order)
    rows = x.shape[axes[0]] if len(axes) == 2 else 1
    image = b.reshape(image, (lead, rows, x.shape[axes[-1]], channels))
    size = tuple(sizes) if len(sizes) == 2 else (1, *sizes)
    y = b.emit(
        node, [image], (lead, *size, channels), kind, size=size, align_corners=False, half_pixel_centers=True
    )  # fmt: skip
    new = list(back)
    for a, n in zip(axes, sizes, strict=True):
        new[a] = n
    y = b.reshape(y, tuple(new[i] for i in order))
    return b.transpose(y, sorted(range(len(order)), key=order.__getitem__))


def _resize(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, *, axes: tuple[int, ...], sizes: tuple[int, ...], method: str
) -> LogicalTensor:
    if method == "nearest":
        return _resized(b, "resize_nearest", x, axes, sizes, x.kind)
    return _resized(b, "resize_bilinear", b.real(x), axes, sizes, out.dtype)


def _qresize(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    *,
    axes: tuple[int, int],
    sizes: tuple[int, int],
    grid: Grid,
    rounding: Rounding,
) -> LogicalTensor:
    b.roundings.add(rounding)
    return _resized(b, "resize_bilinear", b.on(x, grid), axes, sizes, grid)


RULES: Final[dict[str, Rule]] = {"resize": _resize, "qresize": _qresize}
