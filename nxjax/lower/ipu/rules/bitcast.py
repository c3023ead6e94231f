"""Bits read as a dtype of another width: elements cut into words, or joined from them, lowest first. One of the same
width is an expression's work."""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.kernels.ipu.spec import CTYPES
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import VariableView
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.base import like
from nxjax.ops.bitwise import or_, shift_left, shift_right_logical
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace.core import Array
from nxjax.trace.program import Equation


def supports(e: Equation) -> bool:
    return all(t.dtype.name in CTYPES for t in (e.inputs[0].type, e.outputs[0].type))


def bitcast(b: Builder, e: Equation, x: VariableView) -> VariableView:
    out = e.outputs[0].type
    old, new = x.dtype.itemsize, out.dtype.itemsize
    wide, narrow = np.dtype(f"uint{8 * max(old, new)}"), np.dtype(f"uint{8 * min(old, new)}")
    count = max(old, new) // min(old, new)

    def cut(v: Array) -> Array:
        word = bitcast_convert_type(v, dtype=wide)
        parts: list[Array] = []
        for i in range(count):
            part = shift_right_logical(word, like(word, 8 * narrow.itemsize * i))
            parts.append(reshape(convert_element_type(part, dtype=narrow), shape=(*v.shape, 1)))
        return bitcast_convert_type(concatenate(*parts, dimension=v.ndim), dtype=out.dtype)

    def joined(v: Array) -> Array:
        total: Array | None = None
        for i in range(count):
            starts, limits = (*(0,) * (v.ndim - 1), i), (*v.shape[:-1], i + 1)
            part = reshape(slice_op(v, start_indices=starts, limit_indices=limits), shape=v.shape[:-1])
            word = convert_element_type(bitcast_convert_type(part, dtype=narrow), dtype=wide)
            word = shift_left(word, like(word, 8 * narrow.itemsize * i))
            total = word if total is None else or_(total, word)
        assert total is not None
        return bitcast_convert_type(total, dtype=out.dtype)

    return b.inline(cut if old > new else joined, [x])


RULES: Final = {"bitcast_convert_type": Rule(bitcast, supports)}
