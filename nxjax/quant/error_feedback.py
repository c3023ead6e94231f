"""Rounding weights so that each error is made up for by the weights that follow, and scales that lose least: in NumPy.

For weights W [o, k] and operands X [n, k] a product's squared error is tr((W - Q) H (W - Q)^T) with H = X^T X.
Knows no product.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

NDArray = np.ndarray[Any, Any]
# Shares of the scale that holds the largest weight: with a smaller one, that weight is cut and the others are finer.
SHARES: Final = np.linspace(1.0, 0.6, 9, dtype=np.float32)
# Columns that are finished before their errors go into all that follow.
COLUMNS: Final = 128
# Share of the mean of H's diagonal that is added to it.
DAMPING: Final = 0.01
# How many rows of average operands are as good as what is known of operands without data.
PRIOR: Final = 16


class Feedback(NamedTuple):
    """The order in which columns are rounded, and how large a share of each one's error every later one takes."""

    order: NDArray
    shares: NDArray


def searched(w: NDArray, scale: NDArray, places: NDArray, squares: NDArray, limit: float) -> NDArray:
    """For each entry of ``scale`` the one of `SHARES` of it that loses least, with rounding to the nearest.

    As AWQ cuts weights (Lin et al. 2023, arXiv:2306.00978, section 4), each error weighted by its operand's square.

    Args:
        w: weights.
        scale: one entry per block.
        places: of each weight, the number of its entry in the flattened ``scale``.
        squares: sums of the squares of their operands, over which ``w`` broadcasts.
        limit: the largest stored value.
    """
    flat, blocks = np.asarray(scale, np.float32).reshape(-1), places.reshape(-1)
    best, least = np.ones_like(flat), np.full(flat.shape, np.inf)
    for share in SHARES:
        full = (flat * share)[places]
        lost = (np.clip(np.rint(w / full), -limit, limit) * full - w) ** 2 * squares
        error = np.bincount(blocks, lost.reshape(-1), flat.size)
        better = error < least
        best[better], least[better] = share, error[better]
    return best.reshape(scale.shape)


def damped(squares: NDArray, samples: int | None, damping: float = DAMPING) -> NDArray:
    """``squares`` of operands and a share of their mean: ``damping``, of few ``samples`` as much as `PRIOR` more have.

    An operand that was 0 in all of a few rows is not always 0.
    """
    share = damping if not samples else max(damping, PRIOR / samples)
    return squares + share * np.maximum(squares.mean(-1, keepdims=True), 1e-30)


def feedback(h: NDArray, samples: int | None = None, damping: float = DAMPING, share: float = 1.0) -> Feedback:
    """What `fed_back` needs of ``h``.

    Args:
        h: [k, k].
        samples: how many rows of operands ``h`` is the sum of. Of few rows, correlations are chance in part: all
            shrink by the share of their squares that is (Schaefer and Strimmer 2005, for normal rows of mean 0).
        damping: share of the mean of the diagonal that is added to it; see `damped`.
        share: of the correlations that is taken.
    """
    h = h.astype(np.float64)
    diagonal = np.diag(h).copy()
    order = np.argsort(diagonal, kind="stable")
    if not share:
        return Feedback(order[::-1], np.eye(len(h), dtype=np.float32))
    if samples:
        size = np.sqrt(np.maximum(diagonal, 1e-300))
        square, pairs = float(np.sum((h / size / size[:, None]) ** 2)) - len(h), len(h) ** 2 - len(h)
        share *= 1 - min((pairs + square) / samples / max(square, 1e-300), 1.0)
    h = share * h[np.ix_(order, order)]
    h[np.diag_indices(len(h))] = damped(diagonal, samples, damping)[order]
    # Last column first: of the reversed matrix the usual factor.
    factor = np.linalg.cholesky(h)[::-1, ::-1]
    return Feedback(order[::-1], (factor / np.diag(factor)).astype(np.float32))


def fed_back(w: NDArray, scale: NDArray, back: Feedback, limit: float) -> NDArray:
    """Whole numbers for ``w / scale``, column by column; the columns that follow compensate for each error.

    Frantar et al. 2022, "GPTQ: accurate post-training quantization for generative pre-trained transformers"
    (arXiv:2210.17323), those columns first whose operands are largest. With H = U U^T, U upper triangular, and errors
    E = W - Q, what is to be small is |E U|^2: column j of it is nothing where e_j = -sum_(i<j) e_i U_ij / U_jj, which
    is what the paper's updates with the inverse of H leave, without an inverse.

    Args:
        w, scale: [o, k].
        back: from `feedback`.
        limit: the largest stored value.
    """
    order, shares = back
    # A column of weights is a row in memory.
    own, steps = (np.ascontiguousarray(x[:, order].T, np.float32) for x in (w, scale))
    q, errors = np.zeros_like(own), np.zeros_like(own)
    for start in range(0, len(own), COLUMNS):
        end = min(start + COLUMNS, len(own))
        wished = own[start:end] + shares[:start, start:end].T @ errors[:start]
        for j in range(start, end):
            wanted = wished[j - start] + shares[start:j, j] @ errors[start:j]
            q[j] = np.clip(np.rint(wanted / steps[j]), -limit, limit)
            errors[j] = own[j] - q[j] * steps[j]
    found = np.empty(w.shape, np.float32)
    found[:, order] = q.T
    return found
