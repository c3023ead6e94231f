"""cached_attention: one kernel, which reads what of the cache is filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.cpu.cached_attention import WIDEST, FilledAttention
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.view import View
from nxjax.trace import dtypes
from nxjax.trace.program import Equation

TOKENS: Final = 8  # at most: more are better made by products of matrices
_KEPT: Final = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int8)


@rule("cached_attention")
def cached_attention(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    query, keys = e.inputs[0].type, e.inputs[1].type
    (batch, tokens, n, size), (room, heads), p = query.shape, keys.shape[1:3], e.params
    if tokens > TOKENS or size % WIDEST or query.dtype not in _KEPT or keys.dtype not in _KEPT:
        raise NoKernel("many tokens, or heads that are no whole vectors")
    out = b.new(e.outputs[0].type)
    if not out.size:
        return [out]
    views = [_side_by_side(b, x) if i < 3 else b.view(x) for i, x in enumerate(xs)]
    strides = tuple(v.strides for v in views)
    kernel = FilledAttention(
        query.dtype,
        keys.dtype,
        batch,
        tokens,
        heads,
        n // heads,
        size,
        room,
        strides,
        p["scale"],
        p["window"],
        p["cap"],
    )
    b.call(kernel, views, [out])
    return [out]


def _side_by_side(b: Builder, x: Any) -> View:
    """As it lies, if the numbers of a head lie side by side."""
    v = b.view(x)
    return v if v.strides[-1] == v.dtype.itemsize else b.dense(v)
