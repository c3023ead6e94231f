"""Observers: from statistics of calibration to the range that a grid covers. On the host, in NumPy.

A range observer sees (least, greatest) of every batch; a histogram observer sees one histogram of |x| over all batches,
in `BINS` equal bins up to the largest magnitude. The method's source stands at each class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.errors import ParameterError, Shown

NDArray = np.ndarray[Any, Any]
Range = tuple[float, float]


class Observer(Shown, ABC):
    """Chooses the range of one value. Abstract; implementations are final.

    Attributes:
        histogram: whether `clipped` needs a histogram, which costs a second pass over the data.

    >>> class Fixed(Observer):
    ...     def joined(self, batches):
    ...         return -1.0, 1.0
    >>> f = lambda p, x: x @ p["w"]
    >>> batch = ({"w": jnp.ones((2, 2))}, jnp.array([[0.5, -0.25]]))
    >>> set(nx.quantize(f, calibrate=[batch], observer=Fixed()).ranges.values())
    {(-1.0, 1.0)}
    """

    histogram: ClassVar[bool] = False
    # Values of fewer elements in all data, and those of which the greatest is looked for, are kept whole.
    fewest: ClassVar[int] = 0

    @abstractmethod
    def joined(self, batches: Sequence[Range]) -> Range:
        """The range over all batches."""

    def clipped(self, span: Range, counts: NDArray) -> Range:
        """The range to cover, from the whole range and the histogram of magnitudes within it."""
        return span


@final
class MinMax(Observer):
    """Everything that was seen.

    >>> MinMax().joined([(-1.0, 2.0), (-0.5, 3.0)])
    (-1.0, 3.0)
    """

    def joined(self, batches: Sequence[Range]) -> Range:
        return _hull(batches)


def _hull(batches: Sequence[Range]) -> Range:
    lows, highs = zip(*batches, strict=True)
    return min(lows), max(highs)


@final
class MovingAverage(Observer):
    """The ends move towards each batch's by ``1 - momentum`` (Jacob et al. 2018, section 3.1).

    >>> MovingAverage(0.5).joined([(0.0, 1.0), (0.0, 3.0)])
    (0.0, 2.0)
    """

    def __init__(self, momentum: float = 0.9) -> None:
        if not 0 <= momentum < 1:
            raise ParameterError("MovingAverage: momentum", got=momentum, expected="0 <= momentum < 1")
        self.momentum = momentum

    def joined(self, batches: Sequence[Range]) -> Range:
        low, high = batches[0]
        for a, b in batches[1:]:
            low += (1 - self.momentum) * (a - low)
            high += (1 - self.momentum) * (b - high)
        return low, high


class _Histogram(Observer):
    """Cuts the range at a magnitude that the histogram suggests."""

    histogram = True

    def joined(self, batches: Sequence[Range]) -> Range:
        return _hull(batches)

    @abstractmethod
    def bound(self, counts: NDArray, span: Range = (-1.0, 1.0)) -> int:
        """How many bins from 0 up are covered, of values within ``span``."""

    def clipped(self, span: Range, counts: NDArray) -> Range:
        top = max(abs(span[0]), abs(span[1]))
        if not top or not counts.sum():
            # Nothing but zeros, or nothing at all: there is nothing to cut.
            return span
        bound = top * self.bound(counts, span) / len(counts)
        return max(span[0], -bound), min(span[1], bound)


@final
class Percentile(_Histogram):
    """The range that holds ``percent`` of the magnitudes.

    >>> counts = np.array([90, 5, 4, 1])
    >>> Percentile(99).clipped((-4.0, 4.0), counts)
    (-3.0, 3.0)
    """

    def __init__(self, percent: float = 99.99) -> None:
        if not 0 < percent <= 100:
            raise ParameterError("Percentile: percent", got=percent, expected="0 < percent <= 100")
        self.percent = percent

    def bound(self, counts: NDArray, span: Range = (-1.0, 1.0)) -> int:
        share = np.cumsum(counts.astype(np.float64)) / counts.sum()
        return int(np.searchsorted(share, self.percent / 100 - 1e-12)) + 1


@final
class ByData(_Histogram):
    """Each value by its own data: cut where few elements far from the others would make the steps of all wide.

    A range holds 99.99 % of the magnitudes. It is whole for a value of less than 10,000 elements, for one whose
    greatest or least elements are looked for (a maximum over positions, a result), and where the cut would add more
    squared error than finer steps save.

    >>> counts = np.zeros(256, int)
    >>> counts[:32], counts[-1] = 2000, 1
    >>> ByData().clipped((-2.0, 2.0), counts)
    (-0.25, 0.25)
    >>> counts[-1] = 100
    >>> ByData().clipped((-2.0, 2.0), counts)
    (-2.0, 2.0)
    """

    fewest = 10_000
    share: Final = 0.9999
    # How much more squared error a cut may make.
    more: Final = 4.0

    def bound(self, counts: NDArray, span: Range = (-1.0, 1.0)) -> int:
        counts = counts.astype(np.float64)
        cut = int(np.searchsorted(np.cumsum(counts) / counts.sum(), self.share - 1e-12)) + 1
        whole = len(counts)
        return cut if _squared(counts, cut, span) <= self.more * _squared(counts, whole, span) else whole


def _squared(counts: NDArray, n: int, span: Range, levels: int = 256) -> float:
    """Squared error in bins of a range of ``n`` of them: rounding inside, and clipping outside."""
    top = max(abs(span[0]), abs(span[1])) or 1.0
    below, above = (max(v, 0.0) / top * len(counts) for v in (-span[0], span[1]))
    step = (min(below, n) + min(above, n)) / (levels - 1)
    outside = np.arange(n, len(counts)) + 0.5 - n
    return float(counts[:n].sum() * step**2 / 12 + np.sum(counts[n:] * outside**2))


@final
class Entropy(_Histogram):
    """The bound whose 128 levels lose least information: least Kullback-Leibler divergence from the histogram.

    Migacz, "8-bit inference with TensorRT" (GTC 2017): what lies above the bound is counted into the last bin.

    >>> counts = (1e6 * np.exp(-np.arange(512) / 20)).astype(int)
    >>> low, high = Entropy().clipped((-2.0, 2.0), counts)
    >>> high < 2.0
    True
    """

    levels: Final = 128

    def bound(self, counts: NDArray, span: Range = (-1.0, 1.0)) -> int:
        counts = counts.astype(np.float64).copy()
        # Exact zeros, as after a relu, say nothing about the bound.
        counts[0] = counts[1] if len(counts) > 1 else counts[0]
        total = np.cumsum(counts)
        best, least = len(counts), np.inf
        for n in range(self.levels, len(counts) + 1, max(1, len(counts) // 256)):
            p = counts[:n].copy()
            p[-1] += total[-1] - total[n - 1]
            loss = _divergence(p, _leveled(counts[:n], self.levels))
            if loss < least:
                best, least = n, loss
        return best


def _leveled(counts: NDArray, levels: int) -> NDArray:
    """``counts`` in ``levels`` steps, each step's count spread over its bins that are not empty."""
    edges = np.linspace(0, len(counts), levels + 1).round().astype(int)
    sums = np.add.reduceat(counts, edges[:-1])
    full = np.maximum(np.add.reduceat((counts > 0).astype(float), edges[:-1]), 1)
    return np.repeat(sums / full, np.diff(edges)) * (counts > 0)


def _divergence(p: NDArray, q: NDArray) -> float:
    p, q = p / max(p.sum(), 1e-300), q / max(q.sum(), 1e-300)
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))


@final
class MSE(_Histogram):
    """The bound with the least mean squared error: rounding inside against clipping outside (256 levels).

    Values of one sign have all levels for themselves.

    Sung et al. 2015, "Resiliency of deep neural networks under quantization"; searched over the bins.

    >>> counts = np.zeros(256, int)
    >>> counts[:32], counts[-1] = 2000, 1
    >>> low, high = MSE(levels=4).clipped((-2.0, 2.0), counts)
    >>> high < 2.0
    True
    """

    def __init__(self, levels: int = 256) -> None:
        if levels < 2:
            raise ParameterError("MSE: levels", got=levels, expected="2 or more")
        self.levels = levels

    def bound(self, counts: NDArray, span: Range = (-1.0, 1.0)) -> int:
        counts = counts.astype(np.float64)
        places = range(max(1, len(counts) // 16), len(counts) + 1, max(1, len(counts) // 256))
        return min(places, key=lambda n: _squared(counts, n, span, self.levels))


OBSERVERS: Final[dict[str, type[Observer]]] = {
    "by-data": ByData,
    "minmax": MinMax,
    "moving-average": MovingAverage,
    "percentile": Percentile,
    "entropy": Entropy,
    "mse": MSE,
}


def as_observer(observer: Any) -> Observer:
    """An observer from its name or itself.

    >>> type(as_observer("mse")).__name__
    'MSE'
    """
    if isinstance(observer, Observer):
        return observer
    if isinstance(observer, str) and observer in OBSERVERS:
        return OBSERVERS[observer]()
    raise ParameterError("quantize: observer", got=repr(observer), expected=", ".join(OBSERVERS) + " or an Observer")
