"""Imports the rules, which register themselves."""

from nxjax.interop.torch import (
    control,
    elementwise,
    images,
    indexing,
    norms,
    pools,
    products,
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
    "norms",
    "pools",
    "products",
    "random",
    "recurrent",
    "reductions",
    "shapes",
]
