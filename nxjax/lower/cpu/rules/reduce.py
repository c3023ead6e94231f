"""Reductions over axes, as nodes of graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.kernels.cpu import ops
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lazy import LazyReduce, Scalar, shaped
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.ops.reduce import REDUCTIONS, ReduceOp
from nxjax.trace import dtypes
from nxjax.trace.program import Equation


@rule(*(op.name for op in REDUCTIONS))
def reduction(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    assert isinstance(e.op, ReduceOp)
    type, op = e.inputs[0].type, e.op.combiner.name
    axes = tuple(sorted(a % type.ndim for a in e.params["axes"]))
    dtype = type.dtype
    narrow = dtype in dtypes.FLOAT and dtype.itemsize < 4 and op in ("add", "mul")
    wide = dtypes.float32 if narrow else dtype
    why = ops.supported(op, {}, [wide, wide], wide) or ops.supported(
        "convert_element_type", {"dtype": wide}, [dtype], wide
    )
    if why:
        raise NoKernel(why)
    start: Any = np.asarray(e.op.identity(wide)).astype(wide)
    count = math.prod(type.shape[a] for a in axes)
    if count == 1:
        return (shaped(b.lazy(x), e.outputs[0].type.shape),)
    if count == 0:
        nothing = np.asarray(e.op.identity(dtype)).astype(dtype)
        return (Scalar(nothing.tobytes(), e.outputs[0].type.shape, dtype),)
    return (lowered(b, LazyReduce(op, b.lazy(x), axes, start.tobytes())),)
