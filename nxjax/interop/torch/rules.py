"""Imports the rules, which register themselves."""

from nxjax.interop.torch import (
    control,
    elementwise,
    images,
    indexing,
    linalg,
    norms,
    pools,
    products,
    quantized,
    random,
    recurrent,
    reductions,
    shapes,
)

__all__ = [
    "control",
    "elementwise",
    "images",
    "indexing",
    "linalg",
    "norms",
    "pools",
    "products",
    "quantized",
    "random",
    "recurrent",
    "reductions",
    "shapes",
]
