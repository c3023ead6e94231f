"""Imports the rules, which register themselves."""

from nxjax.interop.tflite import (
    control,
    elementwise,
    products,
    quantized,
    quantized_products,
    recurrent,
    reductions,
    shapes,
    variables,
    windows,
)

__all__ = [
    "control",
    "elementwise",
    "products",
    "quantized",
    "quantized_products",
    "recurrent",
    "reductions",
    "shapes",
    "variables",
    "windows",
]
