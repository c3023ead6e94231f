"""Windows over images: pooling, and pictures of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATION, BORDER, FLAG, TWO
from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops.base import NpuOp, need, op, shape_of
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import reduce, resize
from nxjax.trace.types import Shape


def windows(node: Node, shape: Shape, window: Sequence[int]) -> Shape:
    """Spatial sizes of a convolution or pooling."""
    strides, dilations = node.attrs["strides"], node.attrs.get("dilations", (1, 1))
    sizes: list[int] = []
    for n, k, s, d, (low, high) in zip(shape[1:-1], window, strides, dilations, node.attrs["padding"], strict=True):
        need(min(k, s, d) > 0, f"{node.op}: window {k}, stride {s}, dilation {d}")
        span = n + low + high - ((k - 1) * d + 1)
        need(span >= 0, f"{node.op}: a window of {k} does not fit {n}")
        sizes.append(span // s + 1)
    return tuple(sizes)


class NpuPool(NpuOp):
    """One number per window of [n,h,w,c] and channel; padding is not counted."""

    attributes = {
        "window": TWO, "strides": TWO((1, 1)), "padding": BORDER(((0, 0), (0, 0))), "activation": ACTIVATION,
    }  # fmt: skip

    def shape(self, node: Node) -> Shape:
        x = shape_of(node)
        need(len(x) == 4, f"{node.op}: rank {len(x)}")
        return (x[0], *windows(node, x, node.attrs["window"]), x[3])


def _seen(run: NodeRun, x: NDArray, border: Any) -> NDArray:
    """The windows of [n, h, w, c] as [n, h, w, c, kh, kw]; padding holds ``border``."""
    strides = run.attrs["strides"]
    padded = np.pad(x, ((0, 0), *run.attrs["padding"], (0, 0)), constant_values=border)
    found = np.lib.stride_tricks.sliding_window_view(padded, run.attrs["window"], (1, 2))
    return found[:, :: strides[0], :: strides[1]]


@final
@op("max_pool_2d")
class NpuMaxPool2d(NpuPool):
    """The greatest, on the operand's grid."""

    picks = True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        run.same_grids(0)
        least = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
        y = _seen(run, x, least).max((-2, -1))
        return run.activated(y) if run.out.grid is None else np.clip(y, *run.limits)


@final
@op("average_pool_2d")
class NpuAveragePool2d(NpuPool):
    """The mean, on the operand's grid."""

    real = True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        run.same_grids(0)
        counts = _seen(run, np.ones((1, *x.shape[1:3], 1), np.int64), 0).sum((-2, -1))
        if run.out.grid is None:
            return run.activated(_seen(run, x, 0).sum((-2, -1)) / counts.astype(x.dtype))
        return reduce.average(_seen(run, x.astype(np.int64), 0).sum((-2, -1)), counts, *run.limits)


class NpuResize(NpuOp):
    """A picture [n,h,w,c] of another size, on the operand's grid."""

    attributes = {"size": TWO, "align_corners": FLAG(False), "half_pixel_centers": FLAG(False)}

    def shape(self, node: Node) -> Shape:
        x, size = shape_of(node), node.attrs["size"]
        need(len(x) == 4 and min(size) > 0, f"{node.op} of {x} to {size}")
        both = node.attrs["align_corners"] and node.attrs["half_pixel_centers"]
        need(not both, f"{node.op}: corners are aligned or centers are at halves, not both")
        return (x[0], *size, x[3])


def _corners(run: NodeRun) -> tuple[bool, bool]:
    return run.attrs["align_corners"], run.attrs["half_pixel_centers"]


@final
@op("resize_nearest")
class NpuResizeNearest(NpuResize):
    """The nearest element."""

    picks = True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        run.same_grids(0)
        return resize.resize_nearest(x, run.attrs["size"], *_corners(run))


@final
@op("resize_bilinear")
class NpuResizeBilinear(NpuResize):
    """The mean of the four around it, by distance."""

    real = True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        run.same_grids(0)
        size = run.attrs["size"]
        if run.out.grid is not None:
            return resize.resize_bilinear(x, size, *_corners(run), run.rounding)
        (y0, y1, dy), (x0, x1, dx) = (
            resize.real_positions(n, to, *_corners(run)) for n, to in zip(x.shape[1:3], size, strict=True)
        )
        dy, dx = dy.reshape(-1, 1, 1), dx.reshape(-1, 1)
        one = np.float32(1)
        return (
            x[:, y0][:, :, x0] * (one - dy) * (one - dx)
            + x[:, y1][:, :, x0] * dy * (one - dx)
            + x[:, y0][:, :, x1] * (one - dy) * dx
            + x[:, y1][:, :, x1] * dy * dx
        )
