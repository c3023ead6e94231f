"""Means of windows over a border that is not counted, where no padding word of TFLite says that border: in parts.

Windows that lie in the image whole are one pooling; those that the border cuts are poolings of what is left of them.
Every part divides by the number of its elements, as the whole does: the same bits. Knows no other operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from nxjax.lower.npu.formats.tflite_build import Emit, windowed
from nxjax.lower.npu.formats.tflite_schema import VALID
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.trace.types import Shape


@final
@dataclass(frozen=True)
class WindowRun:
    """Neighbouring windows of one size along one axis: how many, what they read, their size and stride."""

    count: int
    begin: int
    size: int
    window: int
    stride: int


def runs(n: int, window: int, stride: int, low: int, count: int) -> list[WindowRun] | None:
    """The windows along an axis of ``n`` elements; None if one of them is all border.

    >>> [(r.count, r.begin, r.window) for r in runs(8, 3, 2, 1, 4)]
    [(1, 0, 2), (3, 1, 3)]
    """
    found: list[WindowRun] = []
    for i in range(count):
        begin, end = max(i * stride - low, 0), min(i * stride - low + window, n)
        if begin >= end:
            return None
        last = found[-1] if found else None
        if last is not None and last.window == end - begin == window:
            found[-1] = WindowRun(last.count + 1, last.begin, last.size + stride, window, stride)
        else:
            found.append(WindowRun(1, begin, end - begin, end - begin, stride if end - begin == window else 1))
    return found


def border_means(emit: Emit, integers: Callable[[Sequence[int]], Tensor], node: Node, activation: int) -> bool:
    """Write ``node``, an average pooling, in parts; False if a window is all border."""
    x, out = node.operands[0], node.output
    attrs, pads = node.attrs, [low for low, _ in node.attrs["padding"]]
    shapes = zip(x.shape[1:3], attrs["window"], attrs["strides"], pads, out.shape[1:3], strict=True)
    rows, columns = (runs(*shape) for shape in shapes)
    if rows is None or columns is None:
        return False

    def between(what: str, shape: Shape, whole: bool) -> Tensor:
        return out if whole else Tensor(f"{out.name}/{what}", shape, out.dtype, out.grid)

    def joined(parts: Sequence[Tensor], axis: int, result: Tensor) -> None:
        if len(parts) > 1:
            emit("CONCATENATION", parts, [result], axis=axis, fused_activation_function=0)

    n, channels = x.shape[0], x.shape[3]
    bands: list[Tensor] = []
    for i, r in enumerate(rows):
        band = between(f"band_{i}", (n, r.count, out.shape[2], channels), len(rows) == 1)
        parts: list[Tensor] = []
        for k, c in enumerate(columns):
            part = x
            if (r.size, c.size) != x.shape[1:3]:
                part = Tensor(f"{out.name}/read_{i}_{k}", (n, r.size, c.size, channels), x.dtype, x.grid)
                emit("SLICE", [x, integers((0, r.begin, c.begin, 0)), integers(part.shape)], [part])
            mean = band
            if len(columns) > 1:
                mean = Tensor(f"{out.name}/part_{i}_{k}", (n, r.count, c.count, channels), out.dtype, out.grid)
            options = windowed(VALID, (r.stride, c.stride), activation, filter=(r.window, c.window))
            emit("AVERAGE_POOL_2D", [part], [mean], **options)
            parts.append(mean)
        joined(parts, 2, band)
        bands.append(band)
    joined(bands, 1, out)
    return True
