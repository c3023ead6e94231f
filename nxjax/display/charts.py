"""Numbers as small pictures: a heat map of a matrix, a histogram. SVG, with the map's cells as one embedded PNG."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.display.page import escape

NDArray = np.ndarray[Any, Any]
_SIDE: Final = 160.0
# Dark to light for what has one sign; blue over grey to red around zero for what has two.
_ONE: Final = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], float)
_TWO: Final = np.array([(33, 102, 172), (146, 197, 222), (236, 236, 236), (244, 165, 130), (178, 24, 43)], float)
_MISSING: Final = (255, 0, 200)  # not a number


def heat(values: NDArray, title: str = "") -> str:
    """A matrix as colours. Infinities take the colours of the ends; what is not a number is pink.

    >>> heat(np.eye(3))[:4]
    '<svg'
    """
    data = np.asarray(values, float)
    finite = data[np.isfinite(data)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    signs = low < 0 < high
    if signs:
        high = max(high, -low)
        low = -high
    span = high - low if 0 < high - low < np.inf else 1.0
    with np.errstate(all="ignore"):
        unit = np.clip((data - low) / span, 0, 1) if high > low else np.full(data.shape, 0.5)
    missing = np.isnan(data)
    ramp = _TWO if signs else _ONE
    place = np.where(missing, 0, unit) * (len(ramp) - 1)
    base = np.minimum(place.astype(int), len(ramp) - 2)
    part = (place - base)[..., None]
    pixels = (ramp[base] * (1 - part) + ramp[base + 1] * part).astype(np.uint8)
    pixels[missing] = _MISSING
    rows, columns = data.shape
    scale = _SIDE / max(rows, columns)
    # Long rows stay visible.
    w, h = max(columns * scale, 12.0), max(rows * scale, 12.0)
    tip = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}" '
        f'role="img">{tip}<image width="{w:.0f}" height="{h:.0f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{_png(pixels)}"/></svg>'
    )


def _png(pixels: NDArray) -> str:
    """RGB pixels as a PNG file, base64."""
    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return base64.b64encode(file).decode()


def histogram(counts: Sequence[int], low: str, high: str) -> str:
    """Bars of how many values lie where, from ``low`` to ``high``."""
    most, width, height = max([*counts, 1]), 200.0, 64.0
    step = width / max(1, len(counts))
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{height - height * n / most:.1f}" width="{max(step - 1, 1):.1f}" '
        f'height="{height * n / most:.1f}"><title>{n:,}</title></rect>'
        for i, n in enumerate(counts)
        if n
    )
    style = 'font-size="10" font-family="ui-monospace,monospace" fill="currentColor" fill-opacity=".75"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="82" viewBox="0 0 {width:.0f} 82" '
        f'role="img"><g fill="#3a7ca5">{bars}</g><path d="M0 64.5H{width:.0f}" stroke="currentColor" '
        f'stroke-opacity=".5"/><text x="0" y="77" {style}>{escape(low)}</text>'
        f'<text x="{width:.0f}" y="77" text-anchor="end" {style}>{escape(high)}</text></svg>'
    )
