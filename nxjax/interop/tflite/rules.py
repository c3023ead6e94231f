"""Imports the rules, which register themselves."""

from nxjax.interop.tflite import (
    control,
    detection,
    elementwise,
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
