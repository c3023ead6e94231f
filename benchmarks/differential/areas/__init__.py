"""The areas of the public API. A module here has ``cases(inputs)``: the calls of its area, drawn from ``inputs``."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import Inputs

AREAS = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def cases(area: str, seed: int) -> list[Case]:
    """The cases of an area: the same for the same seed."""
    with np.errstate(all="ignore"):  # odd values are drawn on purpose
        return list(importlib.import_module(f"{__name__}.{area}").cases(Inputs(seed)))
