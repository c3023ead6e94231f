"""Ops along axes: reductions, places of extremes, softmax, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.attributes import AXES, AXIS, FLAG, INTEGER, REAL
from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops.base import NpuOp, agree, need, need_axes, op, same_kind, shape_of
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.lower.npu.permutation import Perm, without
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import quantize_rows
from nxjax.ops.fixed import reduce, softmax
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# In integers, where TFLite has a kernel of its own, and plain.
_REDUCTIONS: Final[dict[str, tuple[Callable[..., NDArray] | None, Callable[..., NDArray]]]] = {
    "mean": (reduce.mean, np.mean),
    "sum": (reduce.sum, np.sum),
    "reduce_prod": (reduce.product, np.prod),
    "reduce_max": (None, np.max),
    "reduce_min": (None, np.min),
}


@final
@op(*_REDUCTIONS)
class NpuReduction(NpuOp):
    """One number for all elements along ``axes``; those without arithmetic stay on the operand's grid."""

    attributes = {"axes": AXES, "keepdims": FLAG(False)}
    movable = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.fixed, self.plain = _REDUCTIONS[name]
        self.picks = self.fixed is None

    def shape(self, node: Node) -> Shape:
        x, axes = shape_of(node), node.attrs["axes"]
        need_axes(node, len(x), *axes)
        kept = {i: n for i, n in enumerate(x) if i not in axes}
        return tuple(kept.get(i, 1) for i in range(len(x))) if node.attrs["keepdims"] else tuple(kept.values())

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        axes, keepdims = run.attrs["axes"], run.attrs["keepdims"]
        if run.out.grid is not None and self.fixed is not None:
            y = self.fixed(x, run.of(0), run.grid, axes, run.rounding)
            return np.expand_dims(y, axes) if keepdims else y
        run.same_grids(0)
        return np.asarray(self.plain(x, axis=axes, keepdims=keepdims))

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        gone = () if node.attrs["keepdims"] else [perm[a] for a in node.attrs["axes"]]
        found = super().under(node, perm)
        return found and (found[0], without(perm, gone))


@final
@op("argmax", "argmin")
class NpuArg(NpuOp):
    """Where the greatest or the least element along ``axis`` is; named as NumPy's."""

    attributes = {"axis": AXIS}
    movable = True

    def shape(self, node: Node) -> Shape:
        x, axis = shape_of(node), node.attrs["axis"]
        need_axes(node, len(x), axis)
        return x[:axis] + x[axis + 1 :]

    def check_types(self, node: Node) -> None:
        agree(node, node.output.dtype in (dtypes.int32, dtypes.int64))

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.asarray(getattr(np, self.name)(x, axis=run.attrs["axis"]))

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        found = super().under(node, perm)
        return found and (found[0], without(perm, [perm[node.attrs["axis"]]]))


@final
@op("top_k")
class NpuTopK(NpuOp):
    """The ``k`` greatest (or least) elements of each row along the last axis, in order, and where they are, in int32.

    Of equal elements the one that stands first comes first. Where NaN comes is not specified.
    """

    attributes = {"k": INTEGER, "largest": FLAG(True)}
    movable = True
    picks = True

    def shape(self, node: Node) -> Shape:
        x, k = shape_of(node), node.attrs["k"]
        need(len(x) > 0 and 0 < k <= x[-1], f"{node.op}: {k} of {x}")
        return (*x[:-1], k)

    def shapes(self, node: Node) -> list[Shape]:
        return [self.shape(node)] * 2

    def check_types(self, node: Node) -> None:
        values, places = node.outputs
        agree(node, values.dtype == node.operand().dtype and places.dtype == dtypes.int32)
        same_kind(node, [node.operand(), values])

    def eval(self, run: NodeRun, x: NDArray) -> list[NDArray]:
        if run.out.grid != run.grids[0]:
            raise run.refuse("operand and values are not on one grid")
        order = x[..., ::-1].argsort(-1, kind="stable")[..., ::-1]
        order = x.shape[-1] - 1 - order if run.attrs["largest"] else x.argsort(-1, kind="stable")
        places = order[..., : run.attrs["k"]]
        return [np.take_along_axis(x, places, -1), places.astype(np.int32)]

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        return super().under(node, perm) if perm[-1] == len(perm) - 1 else None


@final
@op("quantize_rows")
class NpuQuantizeRows(NpuOp):
    """Real values on int8 grids of their own, one for each row along ``axes``; see `hybrid`."""

    attributes = {"axes": AXES}
    movable = True
    passing = True

    def shape(self, node: Node) -> Shape:
        need_axes(node, len(shape_of(node)), *node.attrs["axes"])
        return shape_of(node)

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return quantize_rows.eval(x, axes=tuple(sorted(run.attrs["axes"])))


class NpuLastAxis(NpuOp):
    """A function of whole rows."""

    movable = True
    real = True

    def shape(self, node: Node) -> Shape:
        need(len(shape_of(node)) > 0, f"{node.op} of a scalar")
        return shape_of(node)

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        return super().under(node, perm) if perm[-1] == len(perm) - 1 else None


@final
@op("softmax")
class NpuSoftmax(NpuLastAxis):
    """Exponentials of ``beta`` x, divided by their sum along the last axis."""

    attributes = {"beta": REAL(1.0)}

    def shape(self, node: Node) -> Shape:
        beta = node.attrs["beta"]
        need(0 < beta < math.inf, f"{node.op}: beta {beta}")
        return super().shape(node)

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        beta = run.attrs["beta"]
        if run.integers:
            return softmax.softmax(x, run.of(0), run.grid, -1, beta, run.rounding)
        e = np.exp((x - x.max(-1, keepdims=True)) * x.dtype.type(beta))
        return e / e.sum(-1, keepdims=True)


@final
@op("log_softmax")
class NpuLogSoftmax(NpuLastAxis):
    """The logarithm of the softmax."""

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        if run.integers and run.out.dtype != dtypes.int16:
            return softmax.log_softmax(x, run.of(0), run.grid, -1, run.rounding)

        def real(x: NDArray) -> NDArray:
            small = x - x.max(-1, keepdims=True)
            return small - np.log(np.exp(small).sum(-1, keepdims=True))

        return run.by_floats(real, x)


@final
@op("cumsum")
class NpuCumsum(NpuOp):
    """Sums of the elements so far along ``axis``, without the last if ``exclusive``, from the end if ``reverse``."""

    attributes = {"axis": AXIS, "exclusive": FLAG(False), "reverse": FLAG(False)}
    movable = True

    def shape(self, node: Node) -> Shape:
        need_axes(node, len(shape_of(node)), node.attrs["axis"])
        return shape_of(node)

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        axis, exclusive, backwards = (run.attrs[k] for k in ("axis", "exclusive", "reverse"))

        def real(x: NDArray) -> NDArray:
            x = np.flip(x, axis) if backwards else x
            y = np.cumsum(x, axis, dtype=x.dtype)
            y = y - x if exclusive else y
            return np.flip(y, axis) if backwards else y

        return run.by_floats(real, x)
