"""Matrix products: any batch, contracting and free dimensions as a product of two matrices per batch element."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import VariableView
from nxjax.lower.ipu.rules.products import product
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation


def dot_general(b: Builder, e: Equation, x: VariableView, y: VariableView) -> VariableView:
    (x_contract, y_contract), (x_batch, y_batch) = e.params["dimension_numbers"]
    x_free = [d for d in range(len(x.shape)) if d not in (*x_contract, *x_batch)]
    y_free = [d for d in range(len(y.shape)) if d not in (*y_contract, *y_batch)]
    sizes = lambda v, dims: tuple(v.shape[d] for d in dims)
    batch, rows, columns = sizes(x, x_batch), sizes(x, x_free), sizes(y, y_free)
    k = math.prod(sizes(x, x_contract))
    g, m, n = math.prod(batch), math.prod(rows), math.prod(columns)
    left = b.reshaped(_transposed(x, (*x_batch, *x_free, *x_contract)), (g, m, k))
    right = b.reshaped(_transposed(y, (*y_batch, *y_free, *y_contract)), (g, n, k))
    z = product(b, left, right, np.dtype(e.outputs[0].type.dtype))
    return b.reshaped(z, (*batch, *rows, *columns))


def _transposed(x: VariableView, order: tuple[int, ...]) -> VariableView:
    return VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))


RULES: Final = {"dot_general": Rule(dot_general)}
