"""Quantization: a function on integer grids, and what finds, measures and keeps the grids. Knows no device.

As a transform: `scheme` is what a policy says of one equation, `plan` decides which equations compute on integers, in
the groups of `products`, `pointwise` and `weight_groups`, and `walk` interprets the plan on grids. `observe` is the
program with statistics of its values. `planned` is all of that for functions of pytrees.

For users: `function` has `quantize`; `calibration` and `observers` find ranges, `comparison` and `mixed` measure
layers, `weights` and `rounding` make better weights (`layers` is what they see), `qarray` and `files` store them.
"""

from __future__ import annotations

import importlib
from typing import Any

_FILES = {
    "nxjax.quant.function": "quantize Quantized",
    "nxjax.quant.calibration": "calibrate",
    "nxjax.quant.observers": "Observer MinMax MovingAverage Percentile Entropy MSE",
    "nxjax.quant.comparison": "compare Comparison",
    "nxjax.quant.files": "save load loads",
    "nxjax.quant.weights": "equalize correct_bias smooth",
    "nxjax.quant.rounding": "gptq adaround",
    "nxjax.quant.mixed": "sensitivity mixed_precision",
    "nxjax.quant.scheme": "Scheme Layered PRESETS",
    "nxjax.quant.qarray": "QArray",
    "nxjax.ops.quant_grid": "Grid",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nxjax.quant' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
