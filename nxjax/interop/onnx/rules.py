"""Imports the rules, which register themselves."""

from nxjax.interop.onnx import (
    contrib,
    control,
    elementwise,
    images,
    indexing,
    losses,
    norms,
    pools,
    products,
    quantized,
    random,
    recurrent,
    reductions,
    shapes,
    signal,
    strings,
)

__all__ = [
    "contrib",
    "control",
    "elementwise",
    "images",
    "indexing",
    "losses",
    "norms",
    "pools",
    "products",
    "quantized",
    "random",
    "recurrent",
    "reductions",
    "shapes",
    "signal",
    "strings",
]
