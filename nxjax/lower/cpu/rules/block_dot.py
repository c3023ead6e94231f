"""block_dot: rows made ready, then the products, which read the packed matrix as it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.kernels.cpu import blocks
from nxjax.kernels.cpu.block_sums import BlockNumbers
from nxjax.lower.cpu.builder import Builder, rule
from nxjax.ops.block_dot import block_of
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType


@rule("block_dot")
def block_dot(b: Builder, e: Equation, x: Any, data: Any, scale: Any, *least: Any) -> Sequence[Any]:
    p, (rows, depth), packed = e.params, e.inputs[0].type.shape, e.inputs[1].type
    out = b.new(e.outputs[0].type)
    if not out.size:
        return [out]
    whole, scales = p["activations"] == "int8", e.inputs[2].type
    first = blocks.BlockRows(rows, depth, block_of(packed), whole)
    (n, dtype), *others = first.outs
    ready = [b.new(ArrayType((rows, first.blocks, n), dtype))]
    ready += [b.new(ArrayType((first.blocks, rows), dtype)) for _, dtype in others]
    b.call(first, [b.dense(x)], ready)
    bits = 4 if packed.dtype == dtypes.uint8 else 8
    what = BlockNumbers(first.block, bits, p["zero"], whole, scales.dtype, bool(least))
    kernel = blocks.BlockProduct(rows, p["columns"], first.blocks, what, scales.shape[1] != packed.shape[1])
    b.call(kernel, [*ready, *map(b.dense, (data, scale, *least))], [out])
    return [out]
