"""qdot and qmatmul: products of integers, summed exactly, brought to the grid of the result before they are stored.

Values are centred int16 between quantized ops (see `quant`), so products are of pairs: two products of 16 bits are
summed in 32 without saturation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nxjax.kernels.cpu import ops_quant as steps
from nxjax.kernels.cpu import ops_quant_dot as endings
from nxjax.kernels.cpu.expression import Expression
from nxjax.lower.cpu.builder import Builder, rule
from nxjax.lower.cpu.lazy import Lazy, LazyLeaf, LazyProduct, Map
from nxjax.lower.cpu.rules.dot import PackedOperand, contraction
from nxjax.lower.cpu.rules.stored import integers, need_bytes, step, values
from nxjax.lower.cpu.view import NoKernel, View
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dot import DotDimensionNumbers, free
from nxjax.ops.fake_quantize import symmetric_limit, weight_integers
from nxjax.ops.fixed.product import factor
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape


@rule("qdot")
def qdot(b: Builder, e: Equation, x: Any, w: Any, w_scale: Any, bias: Any) -> Sequence[Any]:
    p = e.params
    x_grid, y_grid, w_dtype = p["x_grid"], p["y_grid"], p["w_dtype"]
    need_bytes(x_grid, y_grid)
    if w_dtype not in (dtypes.int8, dtypes.int4):
        raise NoKernel("weights of more than eight bits")
    numbers: DotDimensionNumbers = p["dimension_numbers"]
    shape = e.outputs[0].type.shape
    acc = _sums(b, e, integers(b, x, x_grid), _weights(b, e, w, w_scale), numbers)
    (_, wc), (_, wb) = numbers
    channels = (*wb, *free(len(e.inputs[1].type.shape), wc, wb))
    sizes = tuple(e.inputs[1].type.shape[i] for i in channels)
    # Channels lie in the result's batch dimensions and in its last ones.
    places = (*range(len(wb)), *range(len(shape) - len(sizes) + len(wb), len(shape)))
    scale = b.view(w_scale)
    strides = tuple(scale.strides[i] if scale.shape[i] > 1 else 0 for i in channels)
    row = LazyLeaf(View(scale.ref, sizes, strides, scale.dtype))
    grids = b.const(np.array([x_grid.scale, y_grid.scale], np.float32))
    x_scale, y_scale = (_repeated(grids, 4 * i, sizes) for i in range(2))
    limits = b.const(np.array([y_grid.zero_point, p["lo"], p["hi"]], np.int32))
    ends = [_repeated(limits, 4 * i, shape) for i in range(3)]
    made: list[Lazy] = [step(b, steps.bias, [b.lazy(bias), row, x_scale], sizes, dtypes.int32)]
    scales, kind = [row, x_scale, y_scale], {"rounding": p["rounding"]}
    if p["rounding"] == "double":
        made.append(step(b, endings.factor, scales, sizes, dtypes.float64))
        rows = [_along(b, v, places, shape) for v in made]
        y = step(b, endings.dense, [acc, *rows, *ends], shape, dtypes.int16)
    else:
        made += [step(b, s, scales, sizes, dtypes.int32, **kind) for s in (steps.mantissa, steps.exponent)]
        rows = [_along(b, v, places, shape) for v in made]
        y = step(b, steps.rescaled, [acc, *rows, *ends], shape, dtypes.int16, **kind)
    return [values(b, y, y_grid)]


@rule("qmatmul")
def qmatmul(b: Builder, e: Equation, x: Any, y: Any) -> Sequence[Any]:
    p = e.params
    x_grid, y_grid, out = p["x_grid"], p["y_grid"], p["out_grid"]
    need_bytes(x_grid, y_grid, out)
    right = b.view(integers(b, y, y_grid))
    acc = _sums(b, e, integers(b, x, x_grid), right, p["dimension_numbers"])
    by = float(factor(x_grid.scale, y_grid.scale, out, "matmul"))
    given = {"factor": by, "out": out, "lo": p["lo"], "hi": p["hi"], "rounding": p["rounding"]}
    return [values(b, step(b, endings.matmul, [acc], e.outputs[0].type.shape, dtypes.int16, **given), out)]


def _sums(b: Builder, e: Equation, x: Lazy, right: View | PackedOperand, numbers: DotDimensionNumbers) -> LazyProduct:
    """The sums of products as int32."""
    left = b.view(x)

    def emit(expression: Expression, operands: Sequence[View], outs: Sequence[View]) -> None:
        contraction(b, left, right, numbers, dtypes.int32, expression, operands, outs, narrow=True)

    y = LazyProduct(e.outputs[0].type.shape, dtypes.int32, emit)
    y.equation = e
    return y


def _weights(b: Builder, e: Equation, w: Any, w_scale: Any) -> View | PackedOperand:
    """Weights as int16: at once where they are known."""
    w_dtype: DType = e.params["w_dtype"]
    if all(isinstance(v, np.ndarray | np.generic) for v in (w, w_scale)):
        return PackedOperand(weight_integers(w, w_scale, w_dtype).astype(np.int16))
    scale, shape = b.view(w_scale), e.inputs[1].type.shape
    strides = tuple(s if n > 1 else 0 for n, s in zip(scale.shape, scale.strides, strict=True))
    spread = LazyLeaf(View(scale.ref, shape, strides, scale.dtype))
    last = int(symmetric_limit(w_dtype))
    whole = step(b, steps.single, [b.lazy(w), spread], shape, dtypes.int32, last=last)
    short = Map(convert_element_type, (("dtype", dtypes.int16),), (whole,), shape, dtypes.int16)
    short.equation = e
    return b.view(short)


def _repeated(v: View, offset: int, shape: Shape) -> LazyLeaf:
    """The element ``offset`` bytes into ``v``, in every place of ``shape``."""
    return LazyLeaf(View(replace(v.ref, offset=v.ref.offset + offset), shape, (0,) * len(shape), v.dtype))


def _along(b: Builder, x: Lazy, places: Sequence[int], shape: Shape) -> LazyLeaf:
    """One number per channel, made now, in the dimensions ``places`` of ``shape``."""
    v = b.view(x)
    strides = [0] * len(shape)
    for d, s in zip(places, v.strides, strict=True):
        strides[d] = s
    return LazyLeaf(View(v.ref, shape, tuple(strides), v.dtype))
