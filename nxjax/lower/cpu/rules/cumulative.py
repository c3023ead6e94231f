"""cumsum, cumprod, cummax, cummin and cumlogsumexp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nxjax.kernels.cpu import ops
from nxjax.kernels.cpu.cumulative import Cumulative
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.ops.base import Combining
from nxjax.ops.cumulative import CUMULATIVE
from nxjax.trace import dtypes
from nxjax.trace.program import Equation


@rule(*(op.name for op in CUMULATIVE))
def cumulative(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    assert isinstance(e.op, Combining)
    op = e.op.combiner.name if e.op.combiner else "logaddexp"
    axis: int = e.params["axis"]
    type = e.outputs[0].type
    shape, dtype = type.shape, type.dtype
    inner = math.prod(shape[axis + 1 :])
    if dtype in dtypes.COMPLEX:
        if op != "add":
            raise NoKernel("products of complex numbers")
        inner, dtype = 2 * inner, dtypes.real_part(dtype)
    parts = ("exp", "log1p") if op == "logaddexp" else (op,)
    whys = [ops.supported(part, {}, (dtype,) * (1 if len(parts) > 1 else 2), dtype) for part in parts]
    if any(whys):
        raise NoKernel(max(whys))
    v, out = b.dense(x), b.new(type)
    if out.size:
        outer = math.prod(shape[:axis])
        b.call(Cumulative(op, dtype, outer, shape[axis], inner, e.params.get("reverse", False)), [v], [out])
    return (out,)
