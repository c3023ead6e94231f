"""Convolutions: any layout, strides, padding, dilations and groups, in up to three spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nxjax.lower.ipu.builder import Builder, UnsupportedEquation
from nxjax.lower.ipu.program import VariableView
from nxjax.lower.ipu.rules.products import convolved, padded
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation

SPATIAL: Final = 3


def conv_general_dilated(b: Builder, e: Equation, x: VariableView, w: VariableView) -> VariableView:
    p = e.params
    lhs, rhs, out = p["dimension_numbers"]
    n = len(lhs) - 2
    if n > SPATIAL:
        raise UnsupportedEquation(
            f"a convolution over {n} spatial dimensions", "at most three are planned; fold the others in"
        )
    holes = [d - 1 for d in p["lhs_dilation"]]
    config = [(0, 0, 0)] * len(x.shape)
    for d, (low, high), hole in zip(lhs[2:], p["padding"], holes, strict=True):
        config[d] = (low, high, hole)
    x = padded(b, x, tuple(config))
    groups, batches = int(p["feature_group_count"]), int(p["batch_group_count"])
    more = (1,) * (SPATIAL - n)
    # [groups, batch, spatial, in]; groups are the outer part of the features, or of the batch.
    batch, features = x.shape[lhs[0]], x.shape[lhs[1]]
    each_batch, each_in = batch // batches, features // groups
    outer = x.strides[lhs[1]] * each_in if groups > 1 else x.strides[lhs[0]] * each_batch
    g = groups * batches
    inputs = VariableView(
        x.variable,
        x.offset,
        (g, each_batch, *more, *(x.shape[d] for d in lhs[2:]), each_in),
        (outer, x.strides[lhs[0]], *(0,) * len(more), *(x.strides[d] for d in lhs[2:]), x.strides[lhs[1]]),
    )
    outs = w.shape[rhs[0]]
    kernels = VariableView(
        w.variable,
        w.offset,
        (g, outs // g, *more, *(w.shape[d] for d in rhs[2:]), w.shape[rhs[1]]),
        (
            w.strides[rhs[0]] * (outs // g),
            w.strides[rhs[0]],
            *(0,) * len(more),
            *(w.strides[d] for d in rhs[2:]),
            w.strides[rhs[1]],
        ),
    )
    y = convolved(
        b, inputs, kernels, _three(p["window_strides"]), _three(p["rhs_dilation"]), np.dtype(e.outputs[0].type.dtype)
    )
    # [groups, batch, spatial, out] -> batch, groups and out together, spatial, in the order of the result.
    spatial = range(5 - n, 5)
    order = (1, 0, 5, *spatial)
    moved = VariableView(y.variable, y.offset, tuple(y.shape[d] for d in order), tuple(y.strides[d] for d in order))
    joined = b.reshaped(moved, (moved.shape[0], outs, *moved.shape[3:]))
    places = {d: i for i, d in enumerate(out)}
    final = [places[d] for d in range(len(out))]
    return VariableView(
        joined.variable, joined.offset, tuple(joined.shape[d] for d in final), tuple(joined.strides[d] for d in final)
    )


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    d, h, w = (*(1,) * (SPATIAL - len(sizes)), *sizes)
    return d, h, w


RULES: Final = {"conv_general_dilated": Rule(conv_general_dilated)}
