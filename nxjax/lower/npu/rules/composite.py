"""Rules of the activations that are one equation and one node: hard_swish, leaky_relu, elu, prelu."""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.builder import Builder, Rule, Value
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace.types import ArrayType


def _hard_swish(b: Builder, out: ArrayType, x: Value) -> Value:
    return b.elementwise("hard_swish", [b.real(x)], out.dtype)


def _leaky_relu(b: Builder, out: ArrayType, x: Value, alpha: float) -> Value:
    return b.elementwise("leaky_relu", [b.real(x)], out.dtype, alpha=float(alpha))


def _elu(b: Builder, out: ArrayType, x: Value) -> Value:
    return b.elementwise("elu", [b.real(x)], out.dtype)


def _prelu(b: Builder, out: ArrayType, x: Value, alpha: Value) -> Value:
    return b.elementwise("prelu", [b.real(x), b.real(alpha)], out.dtype)


def _qprelu(
    b: Builder,
    out: ArrayType,
    x: Value,
    alpha: Value,
    *,
    x_grid: Grid,
    y_grid: Grid,
    out_grid: Grid,
    rounding: Rounding,
) -> Value:
    b.roundings.add(rounding)
    return b.elementwise("prelu", [b.on(x, x_grid), b.on(alpha, y_grid)], out_grid)


RULES: Final[dict[str, Rule]] = {
    "hard_swish": _hard_swish,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "prelu": _prelu,
    "qprelu": _qprelu,
}
