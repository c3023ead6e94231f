"""A real network: PP-OCRv4 finds and reads rendered text, and its detector becomes a file for a small NPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.demo import text
from nxjax.demo.table import took
from nxjax.files.packaged import packaged

LINES = (
    ("The quick brown fox", 22, "DejaVuSans"),
    ("jumps over 13 lazy dogs", 26, "DejaVuSerif"),
    ("Total: $1,234.56", 24, "DejaVuSansMono"),
    ("no cloud needed", 28, "DejaVuSans-Bold"),
)
OTHER = (("pack my box with", 24, "DejaVuSerif"), ("five dozen jugs", 28, "DejaVuSans"), ("Room 4B", 22, "DejaVuSans"))
HEIGHT, WIDTH, TARGET = 192, 384, "ethos-u55"


@dataclass(frozen=True)
class PageRead:
    """What was read of a page. ``int8`` is read where the quantized detector found lines."""

    wanted: list[str]
    float32: list[str]
    int8: list[str]
    overlap: float
    chip: str
    seconds: float

    @property
    def wrong(self) -> int:
        """Characters that the float networks read wrong."""
        return text.edits("\n".join(self.float32), "\n".join(self.wanted))

    def __str__(self) -> str:
        rows = [f"  {words!r}" for words in self.float32]
        total = sum(map(len, self.wanted))
        same = "the same text" if self.int8 == self.float32 else f"other text: {self.int8}"
        return "\n".join(
            [
                *rows,
                f"{total - self.wrong} of {total} characters right; where the int8 detector finds lines: {same}",
                f"lines found by int8 overlap with those of float32 by {self.overlap:.0%}",
                f"the int8 detector as a file: {self.chip}",
                f"imported, read, quantized and compiled in {self.seconds:.1f} s",
            ]
        )


def network(part: str) -> Any:
    """One of PP-OCR's networks as a function of nxjax."""
    return nx.interop.from_onnx(packaged(text.PACKAGE, text.FILES[part]), closed=True)


def run() -> PageRead:
    """Find and read the lines of one page.

    Raises:
        MissingExtraError: the package with the networks, or the reader of ONNX files, is not installed.
    """
    start = time.perf_counter()
    detect, recognize = network("det"), network("rec")
    classes = text.alphabet(recognize.metadata)
    page, _ = text.page(LINES, HEIGHT, WIDTH)
    x = nx.array(text.scaled(page))

    def read(found: list[text.Box]) -> list[str]:
        cuts = [text.fitted(page[top:bottom, left:right]) for left, top, right, bottom in found]
        return [text.read(recognize(nx.array(cut)), classes) for cut in cuts]

    found = text.boxes(detect(x))
    other, _ = text.page(OTHER, HEIGHT, WIDTH)
    quantized = nx.quantize(detect, "int8", calibrate=[(nx.array(text.scaled(other)),)], progress=False)
    found_int8 = text.boxes(nx.jit(quantized)(x))
    overlaps = [max((text.overlap(a, b) for b in found_int8), default=0.0) for a in found]
    return PageRead(
        [words for words, _, _ in LINES],
        read(found),
        read(found_int8),
        float(np.mean(overlaps)) if overlaps else 0.0,
        _on_chip(quantized, x),
        time.perf_counter() - start,
    )


def told() -> str:
    """What was read, or what to install."""
    try:
        return str(run())
    except nx.errors.MissingExtraError as error:
        return f"not available here: {error.what}; {error.fix}"


def _on_chip(quantized: Any, x: Any) -> str:
    """What the chip's compiler says of the detector."""
    try:
        artifact = nx.compile(quantized, target=TARGET, verify=False)(x)
    except nx.errors.NxError as error:
        return f"{TARGET}: {error.what}"
    report = artifact.report
    placed = f"{report.on_npu} of {len(report.rows)} ops on the NPU"
    return ", ".join(filter(None, (f"{TARGET}: {artifact.label}", placed, took(artifact.cost))))
