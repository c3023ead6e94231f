"""Elementwise computation as data: a graph of ops on elements, emitted on vectors, meant in NumPy.

An `Expression` is what a loop nest computes at each point of its space, and what a matrix product or a convolution
applies to its results before they are stored (bias, activation, residual, requantization). It knows no shape and no
memory: its inputs are values in registers, as `convert` describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.config.digest import digest
from nxjax.config.forks import cached_property
from nxjax.kernels.cpu import ops
from nxjax.kernels.cpu.convert import constant
from nxjax.kernels.cpu.ir import Function, Value, lanes_of
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """``op[params]`` of earlier values, giving one value of ``dtype``; all are of one shape.

    ``args`` count the inputs of the expression first, then its nodes.
    """

    op: Op
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        params = ",".join(f"{k}={v}" for k, v in self.params)
        return f"{self.op.name}[{params}]{self.args}:{self.dtype.name}"


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """A number in every element; ``data`` are its bytes in ``dtype``."""

    data: bytes
    dtype: DType

    @property
    def array(self) -> NDArray:
        return np.frombuffer(self.data, self.dtype).reshape(())

    def __str__(self) -> str:
        return f"{self.data.hex()}:{self.dtype.name}"


@final
@dataclass(frozen=True, eq=False)
class Expression:
    """Ops on elements.

    Attributes:
        inputs: dtypes of the values that come in.
        nodes: what is computed, in an order in which everything is there before it is used.
        outputs: which values leave, counted as in `ExpressionNode.args`.
    """

    inputs: tuple[DType, ...]
    nodes: tuple[ExpressionNode | Constant, ...]
    outputs: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        """Equal for equal expressions; short where they are."""
        text = ";".join((",".join(d.name for d in self.inputs), *map(str, self.nodes), str(self.outputs)))
        return text if len(text) <= 40 else digest(text.encode()).hexdigest()[:24]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """The ops' names in order, for texts."""
        return "+".join(n.op.name for n in self.nodes if isinstance(n, ExpressionNode)) or "identity"

    @property
    def is_identity(self) -> bool:
        """One output, which is the first input."""
        return self.outputs == (0,)

    @property
    def out_dtypes(self) -> tuple[DType, ...]:
        return tuple(self.dtype_of(i) for i in self.outputs)

    def dtype_of(self, index: int) -> DType:
        n = len(self.inputs)
        return self.inputs[index] if index < n else self.nodes[index - n].dtype

    def emit(self, f: Function, isa: Isa, values: Sequence[Value]) -> list[Value]:
        """The outputs for ``values`` of the inputs, as registers hold them: all scalars, or all of as many lanes."""
        lanes = lanes_of(values[0].type) if values else 0
        known = list(values)
        for node in self.nodes:
            if isinstance(node, Constant):
                known.append(constant(f, node.dtype, node.array, lanes))
            else:
                xs, dtypes = [known[i] for i in node.args], [self.dtype_of(i) for i in node.args]
                known.append(ops.emit(f, isa, node.op.name, dict(node.params), dtypes, node.dtype, xs))
        return [known[i] for i in self.outputs]

    def meaning(self, *xs: NDArray) -> list[NDArray]:
        """The outputs for arrays that broadcast to one shape."""
        xs = tuple(np.broadcast_arrays(*xs)) if len(xs) > 1 else xs
        shape = xs[0].shape if xs else ()
        known: list[NDArray] = list(xs)
        for node in self.nodes:
            if isinstance(node, Constant):
                known.append(np.broadcast_to(node.array, shape))
            else:
                known.append(np.asarray(node.op.eval(*(known[i] for i in node.args), **dict(node.params))))
        return [known[i] for i in self.outputs]


def identity(dtype: DType) -> Expression:
    """Its one input."""
    return Expression((dtype,), (), (0,))
