"""scikit-learn's bundled digits: 1,797 real 8x8 images of handwritten digits, split once and for all."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nxjax.errors import MissingExtraError


class DataSplit(NamedTuple):
    """Images [n, 8, 8, 1] float32 in [0, 1] and labels [n] int32."""

    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]


def load(test_fraction: float = 0.2, seed: int = 0) -> tuple[DataSplit, DataSplit]:
    """Training and test images, shuffled with ``seed``."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingExtraError(
            "demo: scikit-learn is not installed", fix='pip install "nxjax[demo]", or run `make demo`'
        ) from error
    digits: Any = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    held_out = int(len(images) * test_fraction)
    test, train = order[:held_out], order[held_out:]
    return DataSplit(images[train], labels[train]), DataSplit(images[test], labels[test])
