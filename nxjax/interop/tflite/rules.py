"""Imports the rules, which register themselves."""

from nxjax.interop.tflite import (
    control,
    detection,
    elementwise,
    log_softmax,
    products,
    quantized,
    quantized_products,
    recurrent,
    reductions,
    shapes,
    stablehlo,
    variables,
    windows,
)

__all__ = [
    "control",
    "detection",
    "elementwise",
    "log_softmax",
    "products",
    "quantized",
    "quantized_products",
    "recurrent",
    "reductions",
    "shapes",
    "stablehlo",
    "variables",
    "windows",
]
