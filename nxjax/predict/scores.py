"""How good predictions are: errors, and whether programs come in the right order. Plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Scores:
    """Scores of predictions for held-out programs.

    Attributes:
        error: mean of absolute errors by the true time (MAPE), 0.1 for 10 %.
        within: share of programs whose error is 10 % at most.
        rank: Spearman's correlation of ranks; 1 if all are in the right order, NaN for fewer than two.
        band: the factor that covers nine in ten: 1.2 for 20 % more or a sixth less.
        count: programs.

    >>> print(Scores(0.083, 2 / 3, 1.0, 1.33, 3))
    error 8.3%, within 10 %: 67%, rank correlation 1.000, nine in ten within a factor of 1.33
    """

    error: float
    within: float
    rank: float
    band: float
    count: int

    def __str__(self) -> str:
        return (
            f"error {self.error:.1%}, within 10 %: {self.within:.0%}, rank correlation {self.rank:.3f}, "
            f"nine in ten within a factor of {self.band:.2f}"
        )


def score(seconds: Sequence[float] | NDArray, predicted: Sequence[float] | NDArray) -> Scores:
    """Scores of positive predictions.

    >>> round(score([1.0, 2.0, 4.0], [1.0, 2.0, 3.0]).error, 3)
    0.083
    """
    t, p = np.asarray(seconds, float), np.asarray(predicted, float)
    error = np.abs(p - t) / t
    ratio = np.sort(np.exp(np.abs(np.log(p / t))))
    # The finite-sample quantile of conformal prediction (Vovk et al., 2005).
    at = min(int(np.ceil(0.9 * (len(t) + 1))), len(t)) - 1
    return Scores(float(error.mean()), float((error <= 0.1).mean()), spearman(t, p), float(ratio[at]), len(t))


def spearman(a: NDArray, b: NDArray) -> float:
    """Correlation of ranks, of equal ones their mean.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 2.0]))
    -0.8660254037844387
    """
    if len(a) < 2:
        return float("nan")
    x, y = (_ranks(v) - (len(v) - 1) / 2 for v in (a, b))
    norm = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / norm if norm else float("nan")


def _ranks(values: NDArray) -> NDArray:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[where]
