"""Quantization: functions on integer grids; finding, measuring and storing the grids. Knows no device.

As a transform: `scheme` is a policy's answer for one equation. `planner` decides which equations compute on integers,
in the groups of `products`, `pointwise` and `weight_groups`: a `plan`, with the `sites` that need a range. `walk`
interprets the plan on grids. `observe` adds statistics of the values to a program. `planned` combines these for
functions of pytrees.

For users: `function` has `quantize`, `calibration` and `observers` find ranges, `automatic` lets layers leave 8 bits by
their `effects` on the `results`, `comparison` and `mixed` measure layers, `weights` and `rounding` improve weights
(using `layers`), `learned` trains ranges, `qarray` and `files` store them.
"""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "nxjax.quant.function": "quantize Quantized",
    "nxjax.quant.calibration": "calibrate",
    "nxjax.quant.observers": "Observer MinMax MovingAverage Percentile Entropy MSE",
    "nxjax.quant.comparison": "compare Comparison",
    "nxjax.quant.files": "save load loads",
    "nxjax.quant.smoothing": "smoothed",
    "nxjax.quant.weights": "equalize correct_bias smooth",
    "nxjax.quant.rounding": "gptq adaround",
    "nxjax.quant.learned": "lsq",
    "nxjax.quant.mixed": "sensitivity mixed_precision",
    "nxjax.quant.scheme": "Scheme Layered PRESETS",
    "nxjax.quant.qarray": "QArray",
    "nxjax.ops.quant_grid": "Grid",
}
_HOMES = _homes(_FILES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
