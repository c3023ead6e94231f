"""Quantization: a function on integer grids, and what finds, measures and keeps the grids. Knows no device.

As a transform: `scheme` is what a policy says of one equation, `plan` decides which equations compute on integers, in
the groups of `products`, `pointwise` and `weight_groups`, and `walk` interprets the plan on grids. `observe` is the
program with statistics of its values. `planned` is all of that for functions of pytrees.

For users: `function` has `quantize`; `calibration` and `observers` find ranges, `comparison` and `mixed` measure
layers, `weights` and `rounding` make better weights (`layers` is what they see), `qarray` and `files` store them.
"""

from __future__ import annotations

from nxjax.trace.lazy import homes as _homes
from nxjax.trace.lazy import lazy as _lazy

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
_HOMES = _homes(_FILES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
