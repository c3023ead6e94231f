"""Matrix products: any batch, contracting and free dimensions as one convolution with a kernel of one element."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import View
from nxjax.lower.ipu.rules.products import convolved, estimate
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation

_ONES: Final = (1, 1, 1)


def dot_general(b: Builder, e: Equation, x: View, y: View) -> View:
    (x_contract, y_contract), (x_batch, y_batch) = e.params["dimension_numbers"]
    x_free = [d for d in range(len(x.shape)) if d not in (*x_contract, *x_batch)]
    y_free = [d for d in range(len(y.shape)) if d not in (*y_contract, *y_batch)]
    sizes = lambda v, dims: tuple(v.shape[d] for d in dims)
    batch, rows, columns = sizes(x, x_batch), sizes(x, x_free), sizes(y, y_free)
    k = math.prod(sizes(x, x_contract))
    g, m, n = math.prod(batch), math.prod(rows), math.prod(columns)
    left = b.reshaped(_transposed(x, (*x_batch, *x_free, *x_contract)), (g, m, k))
    right = b.reshaped(_transposed(y, (*y_batch, *y_free, *y_contract)), (g, n, k))
    out = np.dtype(e.outputs[0].type.dtype)
    # Rows stream through the unit, columns are its weights: the side with which that is faster.
    if _cycles(b, left, right, out) <= _cycles(b, right, left, out):
        z = _product(b, left, right, out)
    else:
        z = _transposed(_product(b, right, left, out), (0, 2, 1))
    return b.reshaped(z, (*batch, *rows, *columns))


def _transposed(x: View, order: tuple[int, ...]) -> View:
    return View(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))


def _operands(x: View, y: View) -> tuple[View, View]:
    g, m, k = x.shape
    rows = View(x.variable, x.offset, (g, 1, 1, 1, m, k), (x.strides[0], 0, 0, 0, *x.strides[1:]))
    weights = View(y.variable, y.offset, (g, y.shape[1], 1, 1, 1, k), (*y.strides[:2], 0, 0, 0, y.strides[2]))
    return rows, weights


def _cycles(b: Builder, x: View, y: View, out: np.dtype[Any]) -> int:
    if 0 in (*x.shape, *y.shape):
        return 0
    rows, weights = _operands(x, y)
    return estimate(b, rows.shape, weights.shape, x.dtype, out)


def _product(b: Builder, x: View, y: View, out: np.dtype[Any]) -> View:
    z = convolved(b, *_operands(x, y), _ONES, _ONES, out)
    return View(z.variable, z.offset, (x.shape[0], x.shape[1], y.shape[1]), (z.strides[0], *z.strides[4:]))


RULES: Final = {"dot_general": Rule(dot_general)}
