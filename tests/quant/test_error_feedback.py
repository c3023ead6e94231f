"""Error feedback as the paper has it, and scales that lose least."""

import numpy as np
import pytest

from nxjax.quant import error_feedback
from nxjax.quant.error_feedback import fed_back, feedback, searched

R = np.random.default_rng(0)


def by_the_paper(w, scale, h, limit, damping):
    """Algorithm 1 with the Cholesky factor of the inverse, one column at a time."""
    k = len(h)
    order = np.argsort(np.diag(h), kind="stable")[::-1]
    w, scale, h = w[:, order].astype(np.float64), scale[:, order], h[np.ix_(order, order)].astype(np.float64)
    h[np.diag_indices(k)] += damping * np.mean(np.diag(h))
    factor = np.linalg.cholesky(np.linalg.inv(h)).T
    q = np.zeros_like(w)
    for j in range(k):
        q[:, j] = np.clip(np.rint(w[:, j] / scale[:, j]), -limit, limit)
        error = (w[:, j] - q[:, j] * scale[:, j]) / factor[j, j]
        w[:, j + 1 :] -= np.outer(error, factor[j, j + 1 :])
    found = np.empty_like(q)
    found[:, order] = q
    return found


def case(o=12, k=40, n=200):
    x = R.standard_normal((n, k)) @ (R.standard_normal((k, k)) * np.logspace(0, -1, k))
    w = R.standard_normal((o, k)).astype(np.float32)
    scale = np.broadcast_to(abs(w).max(1, keepdims=True) / 7, w.shape)
    return w, scale, x.T @ x


def loss(q, w, scale, h):
    return float(np.trace((q * scale - w) @ h @ (q * scale - w).T))


@pytest.mark.parametrize("columns", [1, 7, 16, 128])
def test_the_paper_s_numbers(columns: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(error_feedback, "COLUMNS", columns)
    w, scale, h = case()
    found, wanted = fed_back(w, scale, feedback(h), 7), by_the_paper(w, scale, h, 7, 0.01)
    # What lies between two numbers may go either way in float32, and what follows then differs.
    assert (found == wanted).mean() > 0.97
    assert abs(loss(found, w, scale, h) / loss(wanted, w, scale, h) - 1) < 0.05
    nearest = np.clip(np.rint(w / scale), -7, 7)
    assert loss(found, w, scale, h) < 0.6 * loss(nearest, w, scale, h)


@pytest.mark.parametrize("h", [np.zeros((6, 6)), np.diag([1.0, 0, 0, 2, 0, 0]), np.ones((6, 6))])
def test_operands_that_say_little(h):
    w = R.standard_normal((3, 6)).astype(np.float32)
    scale = np.full_like(w, 0.25)
    found = fed_back(w, scale, feedback(h), 7)
    assert np.isfinite(found).all() and abs(found).max() <= 7
    if not h.any() or h[0, 1] == 0:
        np.testing.assert_array_equal(found, np.clip(np.rint(w / scale), -7, 7))


def test_scales_are_never_worse_than_the_whole_range():
    w = R.standard_normal((8, 64)).astype(np.float32)
    places = np.repeat(np.arange(32).reshape(8, 4), 16, 1)
    scale = (abs(w).reshape(8, 4, 16).max(2) / 7).astype(np.float32)
    squares = R.uniform(0.1, 3, 64)
    shares = searched(w, scale, places, squares, 7)
    assert shares.shape == scale.shape and shares.min() >= 0.6 and shares.max() == 1

    def lost(scale):
        full = scale.reshape(-1)[places]
        error = ((np.clip(np.rint(w / full), -7, 7) * full - w) ** 2 * squares).reshape(8, 4, 16)
        return error.sum(2)

    assert (lost(scale * shares) <= lost(scale) * (1 + 1e-6)).all()
    assert lost(scale * shares).sum() < lost(scale).sum()
