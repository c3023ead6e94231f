"""Imports the rules, which register themselves."""

from nxjax.interop.onnx import (
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
