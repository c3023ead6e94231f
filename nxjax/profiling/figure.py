"""The roofline plot: operations per byte against operations per second, under the machine's two ceilings."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from nxjax.errors import MissingExtraError
from nxjax.profiling.rows import Profile


def roofline(profile: Profile, ax: Any = None) -> Any:
    """One dot per kernel that computes, its area by the time it takes; gives the axes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(
            "roofline: the plot needs a package that is not installed",
            got="no module 'matplotlib'",
            expected="the extra 'demo'",
            fix="pip install 'nxjax[demo]'",
        )
    if ax is None:
        figure = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained")
        ax = figure.subplots()
    peaks = profile.peaks
    rows = [r for r in profile.rows if r.flops and r.nbytes and r.seconds]
    knee = peaks.flops / peaks.bandwidth
    low = min([r.intensity for r in rows] + [knee / 64]) / 2
    high = max([r.intensity for r in rows] + [knee * 16]) * 2
    ax.plot([low, knee, high], [low * peaks.bandwidth, peaks.flops, peaks.flops], color="black", linewidth=1)
    longest = max((r.seconds for r in rows), default=1.0)
    for r in sorted(rows, key=lambda r: -r.seconds):
        ax.scatter(r.intensity, r.flops / r.seconds, s=20 + 380 * r.seconds / longest, alpha=0.5, label=r.name)
    for r in sorted(rows, key=lambda r: -r.seconds)[:8]:
        ax.annotate(r.name, (r.intensity, r.flops / r.seconds), fontsize=8, textcoords="offset points", xytext=(6, 4))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("operations per byte")
    ax.set_ylabel("operations per second")
    ax.set_title(profile.summary(), fontsize=9)
    return ax
