"""Functions of one operand, element by element, and the conversions from one grid or dtype to another."""

from __future__ import annotations

import math
from typing import Final, final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATIONS, FLAG, NUMBERS, REAL, TEXT
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops.base import need, op, shape_of
from nxjax.lower.npu.ops.elementwise import NpuElementwise
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import elementwise, functions
from nxjax.trace.types import Shape

# Of whole numbers too.
_WHOLE: Final = ("abs", "neg", "square", "floor", "ceil", "round", "sign")


class NpuUnary(NpuElementwise):
    def shape(self, node: Node) -> Shape:
        return shape_of(node)


@op(*_WHOLE, "logistic", "tanh", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf")
class NpuFunction(NpuUnary):
    """A function; on a grid a table, or the arithmetic that TFLite has for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.real = name not in _WHOLE

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        if run.integers:
            return functions.unary(self.name, x, run.of(0), run.grid, run.rounding, **run.attrs)
        real = functions.real_function(self.name, **run.attrs)
        return real(x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float32))


@final
@op("gelu")
class NpuGelu(NpuFunction):
    """x times the normal distribution's cumulative function, or its approximation by tanh."""

    attributes = {"approximate": FLAG(False)}


@final
@op("leaky_relu")
class NpuLeakyRelu(NpuFunction):
    """x, and x times ``alpha`` where it is negative."""

    attributes = {"alpha": REAL}

    def shape(self, node: Node) -> Shape:
        alpha = node.attrs["alpha"]
        need(math.isfinite(alpha), f"leaky_relu: alpha {alpha}")
        return shape_of(node)


@final
@op("relu", "relu6", "relu_n1_to_1")
class NpuRelu(NpuUnary):
    """x between two bounds."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # The other bounds need not lie on the grid.
        self.picks = name == "relu"

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        if run.integers:
            return elementwise.relu(x, run.of(0), run.grid, *run.clamp(self.name), run.rounding)
        return np.clip(x, *ACTIVATIONS[self.name])


@final
@op("logical_not")
class NpuLogicalNot(NpuUnary):
    """The other truth value."""

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.logical_not(x)


@final
@op("table")
class NpuTable(NpuUnary):
    """One stored value per stored int8 operand, from -128 up; ``function`` is what reports call it."""

    attributes = {"function": TEXT("table"), "values": NUMBERS}
    real = True

    def lands(self, node: Node, result: Tensor) -> bool:
        return True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.asarray(run.attrs["values"])[x.astype(np.int32) + 128]


class NpuConversion(NpuUnary):
    def check_types(self, node: Node) -> None:
        """Any two types."""


@final
@op("quantize")
class NpuQuantize(NpuConversion):
    """A float on the grid of the result, or integers of another grid."""

    def idle(self, node: Node) -> bool:
        return True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        if run.grids[0] is None:
            return run.grid.quantize(x)
        return elementwise.requantize(x, run.of(0), run.grid, *run.grid.limits, run.rounding)


@final
@op("dequantize")
class NpuDequantize(NpuConversion):
    """The real values of what is on a grid."""

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return run.of(0).dequantize(x)


@final
@op("cast")
class NpuCast(NpuConversion):
    """Another dtype; of a value on a grid its stored integers."""

    def idle(self, node: Node) -> bool:
        return True

    def eval(self, run: NodeRun, x: NDArray) -> NDArray:
        return x.astype(run.out.dtype)
