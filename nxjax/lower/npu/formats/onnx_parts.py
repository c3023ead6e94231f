"""What ONNX emitters have in common: operands as the file has them, padding, element types. Knows no operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax.lower.npu.formats.onnx_build import Layout, OnnxBuilder
from nxjax.lower.npu.graph import Node, Tensor

Emit = Callable[[OnnxBuilder, Node], None]


def given(n: Node, i: int) -> Tensor:
    t = n.inputs[i]
    assert t is not None
    return t


def operand(b: OnnxBuilder, t: Tensor, layout: Layout) -> str:
    """An operand that broadcasts: constants follow the layout, others are held in it or in their own order."""
    if t.constant or len(t.shape) == len(layout):
        return b.real(t, layout)
    return b.real(t)


def pads(padding: Any) -> list[int]:
    """((low, high), ...) as ONNX has it: all lows, then all highs."""
    return [int(low) for low, _ in padding] + [int(high) for _, high in padding]


def element(b: OnnxBuilder, dtype: Any) -> int:
    return int(b.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
