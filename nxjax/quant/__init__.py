"""Quantization for users: presets and policies, observers, analysis, weight methods, quantized parameter files."""

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
    "nxjax.transforms.quantize.scheme": "Scheme Layered PRESETS",
    "nxjax.transforms.quantize.qarray": "QArray",
    "nxjax.ops.quant_grid": "Grid",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nxjax.quant' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
