"""Ops of two or three operands that broadcast against each other as NumPy's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.lower.npu.attributes import ACTIVATION
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops.base import NpuOp, agree, op, shape_of
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import elementwise, functions
from nxjax.trace import dtypes
from nxjax.trace.types import Shape


def broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"graph: shapes {shapes} do not go together") from None


class NpuElementwise(NpuOp):
    """Element i of the result from element i of the operands."""

    elementwise = True
    movable = True


class NpuBroadcasting(NpuElementwise):
    together = True

    def shape(self, node: Node) -> Shape:
        return broadcast(*(shape_of(node, i) for i in range(len(node.inputs))))


_SUMS: Final[dict[str, Callable[..., NDArray]]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "squared_difference": elementwise.squared_difference,
}
_REAL: Final[dict[str, Callable[..., NDArray]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "squared_difference": lambda x, y: np.square(x - y),
}


@op("squared_difference", "pow")
class NpuArithmetic(NpuBroadcasting):
    """Arithmetic of two operands; on grids in integers where TFLite has such a kernel."""

    def eval(self, run: NodeRun, x: NDArray, y: NDArray) -> NDArray:
        wide = run.out.dtype == dtypes.int16 and self.name == "squared_difference"
        if run.integers and self.name in _SUMS and not wide:
            ends = run.clamp(run.attrs.get("activation"))
            return _SUMS[self.name](x, run.of(0), y, run.of(1), run.grid, *ends, run.rounding)
        if self.name == "div" and run.out.grid is None and np.issubdtype(x.dtype, np.integer):
            # Whole numbers are cut towards zero.
            return run.activated(np.trunc(x.astype(np.float64) / y).astype(x.dtype))
        return run.by_floats(lambda p, q: run.activated(_REAL[self.name](p, q)), x, y)


@final
@op("add", "sub", "mul", "div")
class NpuActivated(NpuArithmetic):
    """Arithmetic that an activation is fused into."""

    attributes = {"activation": ACTIVATION}


@final
@op("maximum", "minimum")
class NpuExtreme(NpuBroadcasting):
    """The greater or the lesser of two, on one grid."""

    picks = True

    def eval(self, run: NodeRun, x: NDArray, y: NDArray) -> NDArray:
        run.same_grids(0, 1)
        return getattr(np, self.name)(x, y)


@op("logical_and", "logical_or")
class NpuLogical(NpuBroadcasting):
    """Truth values of two truth values; named as NumPy's."""

    def eval(self, run: NodeRun, x: NDArray, y: NDArray) -> NDArray:
        return getattr(np, self.name)(x, y)


@final
@op("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
class NpuCompare(NpuLogical):
    """Truth values of two numbers; named as NumPy's."""

    def check_types(self, node: Node) -> None:
        x, y = node.operands
        agree(node, node.output.dtype == dtypes.bool_ and x.dtype == y.dtype)

    def eval(self, run: NodeRun, x: NDArray, y: NDArray) -> NDArray:
        if run.grids[0] is not None and run.grids[1] is not None:
            x, y = (elementwise.comparable(v, run.of(i), run.rounding) for i, v in enumerate((x, y)))
        return super().eval(run, x, y)


@final
@op("select")
class NpuSelect(NpuBroadcasting):
    """x where the condition is true, y elsewhere, on one grid."""

    roles = ("condition", "x", "y")
    picks = True

    def values(self, node: Node) -> Sequence[Tensor]:
        return node.operands[1:]

    def eval(self, run: NodeRun, condition: NDArray, x: NDArray, y: NDArray) -> NDArray:
        run.same_grids(1, 2)
        return np.where(condition, x, y)


@final
@op("prelu")
class NpuPrelu(NpuBroadcasting):
    """x, and x times a slope where it is negative."""

    roles = ("x", "alpha")
    real = True

    def eval(self, run: NodeRun, x: NDArray, alpha: NDArray) -> NDArray:
        if run.integers:
            return functions.prelu(x, run.of(0), alpha, run.of(1), run.grid, run.rounding)
        return np.where(x >= 0, x, x * alpha)
