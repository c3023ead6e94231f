"""searchsorted: one kernel for all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.search import Search
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.trace import dtypes
from nxjax.trace.program import Equation


@rule("searchsorted")
def searchsorted(b: Builder, e: Equation, x: Any, q: Any) -> Sequence[Any]:
    (*outer, size), count = e.inputs[0].type.shape, e.inputs[1].type.size
    dtype, rows, out = e.inputs[0].type.dtype, math.prod(outer), b.new(e.outputs[0].type)
    if not convert.known(dtype) or out.dtype != dtypes.int32:
        raise NoKernel(f"elements of {dtype.name}, or too many")
    kernel = Search(dtype, rows, size, count // max(rows, 1), e.params["side"])
    if count:
        b.call(kernel, [b.dense(x), b.dense(q)], [out])
    return [out]
