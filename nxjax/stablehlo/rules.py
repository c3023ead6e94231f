"""All rules: importing this file fills `walk.RULES`."""

from nxjax.stablehlo import (
    calls,
    control,
    elementwise,
    indexing,
    linalg,
    manual,
    norms,
    products,
    random,
    reductions,
    refused,
    shapes,
    sorting,
    windows,
)

__all__ = [
    "calls",
    "control",
    "elementwise",
    "indexing",
    "linalg",
    "manual",
    "norms",
    "products",
    "random",
    "reductions",
    "refused",
    "shapes",
    "sorting",
    "windows",
]
