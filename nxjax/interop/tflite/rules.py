"""Imports the rules, which register themselves."""

from nxjax.interop.tflite import (
    control,
    elementwise,
    products,
    reductions,
    shapes,
    variables,
    windows,
)

__all__ = [
    "control",
    "elementwise",
    "products",
    "reductions",
    "shapes",
    "variables",
    "windows",
]
