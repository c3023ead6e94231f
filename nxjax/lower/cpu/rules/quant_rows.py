"""Quantized functions of one operand by tables, and of rows: means, sums, softmax. See `quant`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.kernels.cpu import ops_quant_rows as steps
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lazy import FIXED, Lazy, LazyReduce, Map, indexed
from nxjax.lower.cpu.rules.stored import integers, need_bytes, step, values
from nxjax.ops.arithmetic import sub
from nxjax.ops.convert import convert_element_type
from nxjax.ops.fixed.softmax import TOO_LONG
from nxjax.ops.quant_elementwise import QUnary
from nxjax.ops.quant_reduce import QuantizedTotal
from nxjax.ops.quant_softmax import tables8
from nxjax.ops.quant_traced import all_grid_integers
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation


def _op(b: Builder, op: Op, args: tuple[Lazy, ...], dtype: DType, *params: tuple[str, Any]) -> Lazy:
    y = Map(op, params, args, args[0].shape, dtype)
    y.equation = b.equation
    return y


def _reduced(b: Builder, x: Lazy, axes: Sequence[int], op: str, start: int) -> Lazy:
    y = LazyReduce(op, x, tuple(axes), np.asarray(start, x.dtype).tobytes())
    y.equation = b.equation
    return y


def _looked_up(b: Builder, q: Lazy, table: np.ndarray[Any, Any], least: int, dtype: DType) -> Lazy:
    """The number of a table of int32 whose first one is that of ``least``."""
    room = np.zeros(steps.ENTRIES, np.int32)
    room[: table.size] = table
    given = {"table": room.tobytes(), "least": least, "narrow": dtype == dtypes.int16}
    return step(b, steps.looked_up, [q], q.shape, dtype, **given)


@rule("qunary")
def qunary(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    p = dict(e.params)
    x_grid, y_grid = p["x_grid"], p["y_grid"]
    need_bytes(x_grid, y_grid)
    assert isinstance(e.op, QUnary)
    table = e.op.exact(all_grid_integers(x_grid), **p).astype(np.int32) - y_grid.zero_point
    q = integers(b, x, x_grid)
    return [values(b, _looked_up(b, q, table, x_grid.limits[0] - x_grid.zero_point, dtypes.int16), y_grid)]


@rule("qmean", "qsum")
def total(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    p, type = e.params, e.inputs[0].type
    x_grid, y_grid, rounding = p["x_grid"], p["y_grid"], p["rounding"]
    need_bytes(x_grid, y_grid)
    axes = sorted({a % type.ndim for a in p["axes"]})
    count = math.prod(type.shape[a] for a in axes)
    if count < 2:
        raise NoKernel("sums of one element or none")
    assert isinstance(e.op, QuantizedTotal)
    multiplier, exponent = e.op.factor(count, x_grid, y_grid, rounding)
    wide = _op(b, convert_element_type, (integers(b, x, x_grid),), dtypes.int32, ("dtype", dtypes.int32))
    made = _reduced(b, wide, axes, "add", 0)
    given = {"multiplier": multiplier, "exponent": exponent, "out": y_grid, "rounding": rounding}
    return [values(b, step(b, steps.mean, [made], made.shape, dtypes.int16, **given), y_grid)]


@rule("qsoftmax")
def qsoftmax(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    """What does not count has an exponential of 0, which gives the least result."""
    p, shape = e.params, e.outputs[0].type.shape
    x_grid, axis = p["x_grid"], p["axis"] % len(shape)
    need_bytes(x_grid, p["y_grid"])
    if not 2 <= shape[axis] < TOO_LONG[dtypes.int8] or 0 in shape:
        raise NoKernel("a softmax of one element, or of so many that sums do not fit")
    places = tuple([FIXED if n == 1 else (0, ((d, 1),)) for d, n in enumerate(shape) if d != axis])
    q = integers(b, x, x_grid)
    most = _reduced(b, q, (axis,), "max", int(np.iinfo(np.int16).min))
    exps, _, counts = tables8(x_grid, p["rounding"])
    behind = _op(b, sub, (indexed(most, shape, places), q), dtypes.int16)
    found = _looked_up(b, behind, np.where(counts, exps, 0), 0, dtypes.int32)
    whole = _reduced(b, step(b, steps.share, [found], shape, dtypes.int32), (axis,), "add", 0)
    inverse = step(b, steps.inverse, [whole], whole.shape, dtypes.int32)
    args = [found, *(indexed(row, shape, places) for row in (inverse, whole))]
    return [values(b, step(b, steps.softmax, args, shape, dtypes.int16), p["y_grid"])]
