"""Products with weights as plain matrix products: rows of operands times columns of weights, in groups that share none.

A convolution's operands are the patches under its window. Knows no quantization.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.shape import reshape, transpose
from nxjax.quant.products import Dot, QuantConv, Weighted
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Equation

NDArray = np.ndarray[Any, Any]


def matrices(group: Weighted, w: NDArray) -> NDArray:
    """Weights in the product's layout as [groups, outputs, summed]; see `from_matrices`.

    What is summed are the dimensions of a dot in its order; of a convolution features, then the window.
    """
    return w.transpose(_order(group)).reshape(_groups(group, w.shape), -1, _depth(group, w.shape))


def from_matrices(group: Weighted, m: NDArray, shape: Sequence[int]) -> NDArray:
    """The inverse of `matrices`, for weights of ``shape``."""
    order = _order(group)
    return m.reshape([shape[i] for i in order]).transpose(np.argsort(order))


def rows(group: Weighted, x: Array, most: int | None = None) -> Array:
    """What the product sums, as [groups, samples, summed].

    Args:
        x: the operand.
        most: of a convolution, take every second, third, ... place of the window, so that there are about so many.
    """
    if isinstance(group, Dot):
        shared, summed = group.shared()[0], group.input_axes()
        kept = [i for i in range(x.ndim) if i not in (*shared, *summed)]
        size = lambda axes: math.prod(x.shape[i] for i in axes)
        moved = transpose(x, permutation=(*shared, *kept, *summed))
        return reshape(moved, shape=(size(shared), size(kept), size(summed)))
    assert isinstance(group, QuantConv)
    return _patches(x, group.product, most)


def _order(group: Weighted) -> list[int]:
    if isinstance(group, Dot):
        return [*group.weight_channels, *group.summed_in_order()]
    return list(group.product.params["dimension_numbers"].rhs_spec)


def _groups(group: Weighted, shape: Sequence[int]) -> int:
    if isinstance(group, Dot):
        return math.prod(shape[i] for i in group.shared()[1])
    return group.product.params["feature_group_count"]


def _depth(group: Weighted, shape: Sequence[int]) -> int:
    return math.prod(shape[i] for i in group.summed())


def _patches(x: Array, product: Equation, most: int | None) -> Array:
    """By a convolution with one-hot kernels."""
    params = {k: v for k, v in product.params.items() if k not in ("precision", "preferred_element_type")}
    lhs, rhs, out = params["dimension_numbers"]
    kernel = product.inputs[1].type.shape
    window = [kernel[i] for i in rhs[2:]]
    features, groups = x.shape[lhs[1]], params["feature_group_count"]
    size, n = math.prod(window), len(lhs)
    places = product.outputs[0].type
    samples = math.prod(places.shape[i] for i in range(n) if i != out[1])
    if most is not None and samples > most:
        apart = max(round((samples / most) ** (1 / max(n - 2, 1))), 1)
        params["window_strides"] = tuple(s * apart for s in params["window_strides"])
    # One group per feature, one output per place in the window.
    hot = np.tile(np.eye(size, dtype=np.float32).reshape(size, 1, *window), (features, 1, *(1,) * len(window)))
    straight = tuple(range(n))
    params.update(
        feature_group_count=features,
        batch_group_count=1,
        dimension_numbers=ConvDimensionNumbers(lhs, straight, straight),
    )
    y = conv_general_dilated(x, wrap(hot), **params)
    y = reshape(y, shape=(y.shape[0], groups, features // groups * size, math.prod(y.shape[2:])))
    y = transpose(y, permutation=(1, 0, 3, 2))
    return reshape(y, shape=(groups, y.shape[1] * y.shape[2], y.shape[3]))
