"""Imports the rules, which register themselves."""

from nxjax.interop.tflite import (
    control,
    detection,
    elementwise,
    fixed_point,
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
    "fixed_point",
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
