"""Text as pictures and back: lines rendered with matplotlib's fonts, and what PP-OCR's networks need before and after.

Knows what PP-OCRv4 expects and gives (detection maps, CTC logits), and nothing of how the networks run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Box = tuple[int, int, int, int]  # left, top, right, bottom

PACKAGE = "rapidocr-onnxruntime"
FILES = {
    "det": "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    "rec": "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    "cls": "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
}
FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold", "DejaVuSerif-Italic")
HEIGHT, WIDTH = 48, 320


def font(name: str, size: int) -> Any:
    """A font that matplotlib brings."""
    from matplotlib import get_data_path  # type: ignore[import-not-found]
    from PIL import ImageFont  # type: ignore[import-not-found]

    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}.ttf", size)


def line(text: str, size: int = 32, name: str = FONTS[0], ink: int = 0, paper: int = 255, turn: float = 0.0) -> Any:
    """One line of text, as a picture cut close to it [height, width, 3]; turned by degrees."""
    from PIL import Image, ImageDraw  # type: ignore[import-not-found]

    chosen = font(name, size)
    left, top, right, bottom = chosen.getbbox(text)
    margin = size // 6
    picture = Image.new("L", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), paper)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, font=chosen, fill=ink)
    if turn:
        picture = picture.rotate(turn, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    return np.asarray(picture.convert("RGB"))


def page(lines: Sequence[tuple[str, int, str]], height: int, width: int) -> tuple[Any, list[Box]]:
    """Lines (text, size, font) below each other on a white page, and the box of each one's ink."""
    from PIL import Image, ImageDraw  # type: ignore[import-not-found]

    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    boxes: list[Box] = []
    space = (height - sum(size for _, size, _ in lines)) // (len(lines) + 1)
    top = space
    for i, (text, size, name) in enumerate(lines):
        place = (20 + 12 * (i % 3), top)
        draw.text(place, text, font=font(name, size), fill="black")
        left, above, right, below = draw.textbbox(place, text, font=font(name, size))
        boxes.append((int(left), int(above), int(right), int(below)))
        top += size + space
    return np.asarray(picture), boxes


def scaled(picture: Any) -> Any:
    """A picture as the networks take it: [1, 3, height, width] in [-1, 1]."""
    return (picture.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]


def fitted(picture: Any, width: int = WIDTH) -> Any:
    """A line, scaled to the height that the reading networks take and filled up to ``width``."""
    from PIL import Image  # type: ignore[import-not-found]

    wide = min(width, round(HEIGHT * picture.shape[1] / picture.shape[0]))
    resized = Image.fromarray(picture).resize((wide, HEIGHT), Image.Resampling.BILINEAR)
    x = np.zeros((1, 3, HEIGHT, width), np.float32)
    x[..., :wide] = scaled(np.asarray(resized))
    return x


def boxes(probability: Any, threshold: float = 0.3, least: float = 0.5, unclip: float = 1.6) -> list[Box]:
    """Upright boxes of the lines in a detection map [1, 1, height, width], from top to bottom.

    The network marks the shrunk core of each line; a box grows by area / perimeter, as Liao et al., "Real-time scene
    text detection with differentiable binarization" (2020) have it.
    """
    values = np.asarray(probability)[0, 0]
    labels = _regions(values > threshold)
    found: list[Box] = []
    for label in np.unique(labels[labels > 0]):
        rows, columns = np.nonzero(labels == label)
        top, left, bottom, right = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
        height, width = bottom - top, right - left
        if min(height, width) < 3 or values[top:bottom, left:right].mean() < least:
            continue
        grown = round(unclip * height * width / (2 * (height + width)))
        low, high = (
            np.maximum((left - grown, top - grown), 0),
            np.minimum((right + grown, bottom + grown), values.T.shape),
        )
        found.append((int(low[0]), int(low[1]), int(high[0]), int(high[1])))
    return sorted(found, key=lambda b: (b[1], b[0]))


def _regions(marked: Any) -> Any:
    """A number for each region of marked pixels that touch, by a side or a corner; 0 elsewhere."""
    numbers = np.where(marked, np.arange(1, marked.size + 1).reshape(marked.shape), 0)
    while True:
        spread = numbers
        for axis in (0, 1):
            padded = np.pad(spread, [(1, 1) if a == axis else (0, 0) for a in (0, 1)])
            moved = [np.take(padded, range(i, i + marked.shape[axis]), axis) for i in range(3)]
            spread = np.maximum.reduce(moved)
        spread = np.where(marked, spread, 0)
        if (spread == numbers).all():
            return numbers
        numbers = spread


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of two boxes."""
    area = lambda c: max(c[2] - c[0], 0) * max(c[3] - c[1], 0)
    common = area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))
    return common / max(area(a) + area(b) - common, 1)


def alphabet(metadata: Mapping[str, str]) -> list[str]:
    """The classes of the reading network, which its file names: class 0 is CTC's blank, the last a space."""
    return ["", *metadata["character"].splitlines(), " "]


def read(probability: Any, classes: list[str]) -> str:
    """The text of class probabilities [1, steps, classes]: the likeliest of each step, repeats counted once."""
    best = np.asarray(probability)[0].argmax(-1)
    return "".join(classes[c] for c, before in zip(best, [0, *best[:-1]], strict=True) if c != before)


def edits(a: str, b: str) -> int:
    """Characters to insert, delete and replace to make ``b`` of ``a`` (Levenshtein's distance)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]
