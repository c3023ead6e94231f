"""How far an artifact's results lie from the exact integer reference: in steps of the result's grid (LSB)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.graph import Tensor

NDArray = np.ndarray[Any, Any]
# More different differences than these are shown in ranges.
MOST_BARS: Final = 17


@final
@dataclass(frozen=True)
class Deviation:
    """Differences between what runs and the reference, over all results.

    Attributes:
        runs_on: what ran.
        histogram: difference in steps -> number of elements, for results on a grid; empty for float results.
        max_error: the largest absolute difference in real numbers.
        rms_error: root of the mean squared difference.
        scale: the largest magnitude of the reference.

    >>> import nxjax as nx
    >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> artifact.deviation.max_error
    0.0
    """

    runs_on: str
    histogram: dict[int, int]
    max_error: float
    rms_error: float
    scale: float

    @property
    def max_lsb(self) -> int:
        """The largest difference in steps; 0 if every bit agrees."""
        return max((abs(k) for k in self.histogram), default=0)

    @property
    def exact(self) -> bool:
        """Whether results on a grid agree bit for bit (float results: whether they are equal)."""
        return self.max_error == 0.0

    def __str__(self) -> str:
        if not self.histogram:
            error = f"{self.max_error:.3g} (values up to {self.scale:.3g})"
            return f"float results differ by at most {error} on {self.runs_on}"
        total = sum(self.histogram.values())
        bars = self._bars()
        width = max(len(words) for words, _ in bars)
        rows = [f"  {words:>{width}} LSB  {n / total:7.2%}  {'#' * max(1, round(40 * n / total))}" for words, n in bars]
        return "\n".join([f"difference to the integer reference on {self.runs_on}:", *rows])

    __repr__ = __str__

    def _bars(self) -> list[tuple[str, int]]:
        """Each difference, or where there are many, those of 4 steps and more by powers of two."""
        if len(self.histogram) <= MOST_BARS:
            return [(f"{k:+d}", n) for k, n in sorted(self.histogram.items())]
        found: dict[tuple[int, int], int] = {}
        for k, n in self.histogram.items():
            low = abs(k) if abs(k) < 4 else 1 << (abs(k).bit_length() - 1)
            high = abs(k) if abs(k) < 4 else 2 * low - 1
            ends = (-high, -low) if k < 0 else (low, high)
            found[ends] = found.get(ends, 0) + n
        return [(f"{a:+d}" if a == b else f"{a:+d} to {b:+d}", n) for (a, b), n in sorted(found.items())]


def measured(runs_on: str, outputs: Sequence[Tensor], got: Sequence[NDArray], wanted: Sequence[NDArray]) -> Deviation:
    """Compare results in storage dtype with the reference's."""
    histogram: dict[int, int] = {}
    squared, count, largest, scale = 0.0, 0, 0.0, 0.0
    for tensor, a, b in zip(outputs, got, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if tensor.grid is not None and a.dtype == b.dtype:
            steps = a.astype(np.int64) - b.astype(np.int64)
            for k, n in zip(*np.unique(steps, return_counts=True), strict=True):
                histogram[int(k)] = histogram.get(int(k), 0) + int(n)
            a, b = tensor.grid.dequantize(a), tensor.grid.dequantize(b)
        x, y = a.astype(np.float64), b.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore", over="ignore"):
            # A NaN beside a number is as far off as can be.
            error = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
            squared += float(np.sum(error**2))
        count += error.size
        largest = max(largest, float(error.max(initial=0.0)))
        scale = max(scale, float(np.abs(y[np.isfinite(y)]).max(initial=0.0)))
    return Deviation(runs_on, histogram, largest, float(np.sqrt(squared / max(count, 1))), scale)
