"""scatter and its combining relatives: a copy of the operand, which the memory plan may save, then one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.cpu import ops
from nxjax.kernels.cpu.grid import Side
from nxjax.kernels.cpu.scatter import Scatter
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lower import inline_expansion
from nxjax.lower.cpu.rules.gather import along_batch, plain, vectors_of
from nxjax.lower.cpu.rules.slicing import copied
from nxjax.ops.base import Combining
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.scatter import SCATTERS, scatter_add, scatter_mul, scatter_sub
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Equation

_WIDE: Final = (scatter_add, scatter_sub, scatter_mul)


@rule(*(op.name for op in SCATTERS))
def scatter(b: Builder, e: Equation, x: Any, indices: Any, updates: Any) -> Sequence[Any]:
    type = e.outputs[0].type
    assert isinstance(e.op, Combining)
    op = e.op.combiner.name if e.op.combiner else "set"
    if e.op in _WIDE and type.dtype in dtypes.FLOAT and type.dtype.isbuiltin != 1:
        return _in_float32(b, e, [x, indices, updates])
    if op != "set":
        if dtypes.bit_width(type.dtype) < 8 or type.dtype == dtypes.bool_:
            raise NoKernel(f"{dtypes.short_name(type.dtype)} sums")
        why = ops.supported(op, {}, (type.dtype, type.dtype), type.dtype)
        if why:
            raise NoKernel(why)
    n: ScatterDimensionNumbers = e.params["dimension_numbers"]
    (at, wrap), u = plain(b, indices), b.view(updates)
    window = n.window(len(type.shape))
    sizes = n.sizes(type, e.inputs[2].type)
    out = copied(b, x)
    vectors = vectors_of(n.as_gather(), out, at, sizes, e.params["mode"] is GatherScatterMode.CLIP, wrap)
    outer = [d for d in range(len(u.shape)) if d not in n.update_window_dims]
    points = [
        Side(size, (index, u.strides[d], array))
        for size, index, d, array in zip(
            at.shape[:-1], at.strides[:-1], outer, along_batch(n.as_gather(), out, at), strict=True
        )
    ]
    kernel = Scatter(
        op,
        type.dtype,
        [s for k, s in enumerate(points) if k in n.scatter_indices_batching_dims],
        [s for k, s in enumerate(points) if k not in n.scatter_indices_batching_dims],
        [
            Side(u.shape[d], (0, u.strides[d], out.strides[to]))
            for d, to in zip(n.update_window_dims, window, strict=True)
        ],
        vectors,
    )
    if u.size and out.size:
        b.call(kernel, [at, u], [out])
    return (out,)


def _in_float32(b: Builder, e: Equation, xs: Sequence[Any]) -> Sequence[Any]:
    """Sums and products of small floats are rounded once, after all updates."""
    return inline_expansion(b, e, xs, _WIDENED[e.op])


def _widened(op: Op) -> Any:
    def wide(x: Array, indices: Array, updates: Array, /, **params: Any) -> Array:
        x, updates, dtype = *(convert_element_type(v, dtype=dtypes.float32) for v in (x, updates)), x.dtype
        return convert_element_type(op(x, indices, updates, **params), dtype=dtype)

    return wide


_WIDENED: Final[dict[Op, Any]] = {op: _widened(op) for op in _WIDE}
