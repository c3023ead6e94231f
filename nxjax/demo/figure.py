"""The picture: how the loss fell, and the test images the network gets wrong."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nxjax.demo.data import DataSplit


def save(path: Path, losses: Sequence[float], logits: np.ndarray[Any, Any], data: DataSplit, shown: int = 12) -> None:
    """Write the figure to ``path``, atomically."""
    import matplotlib  # type: ignore[import-not-found]

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # type: ignore[import-not-found]

    predicted = logits.argmax(-1)
    wrong = np.flatnonzero(predicted != data.labels)
    figure: Any = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(5, 4))
    axes = left.subplots()
    axes.semilogy(losses, linewidth=0.6, alpha=0.5, label="each step")
    window = min(20, len(losses))
    smooth = np.convolve(losses, np.ones(window) / window, "valid")
    axes.semilogy(np.arange(window - 1, len(losses)), smooth, label=f"mean of {window}")
    axes.set(xlabel="step", ylabel="cross-entropy", title="training loss")
    axes.legend()
    right.suptitle(f"{len(wrong)} of {len(data.labels)} test images misclassified")
    grid = right.subplots(3, 4)
    for ax in grid.flat:
        ax.axis("off")
    for ax, i in zip(grid.flat, wrong[:shown], strict=False):
        ax.imshow(data.images[i, :, :, 0], cmap="gray_r")
        ax.set_title(f"{data.labels[i]} read as {predicted[i]}", fontsize=8)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".png")
    os.close(handle)
    try:
        figure.savefig(temporary, dpi=120)
        os.replace(temporary, path)
    finally:
        plt.close(figure)
        Path(temporary).unlink(missing_ok=True)
