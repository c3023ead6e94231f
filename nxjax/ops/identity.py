"""Ops that give their operands back: copy, stop_gradient, optimization_barrier. Every dtype."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.ops.base import DataMovement, LinearOp, NDArray, Nondifferentiable, zeros
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType


class IdentityOp(DataMovement):
    """Gives its operand back."""

    def infer(self, x: ArrayType, /, **_: Any) -> ArrayType:
        return x

    def eval(self, x: NDArray, /, **_: Any) -> NDArray:
        return x

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        return self(args[0], **params), dims[0]

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, **_: Any) -> Any:
        return x


@final
class Copy(LinearOp, IdentityOp):
    """The same value in memory of its own."""

    name = "copy"

    def eval(self, x: NDArray, /, **_: Any) -> NDArray:
        return np.array(x)

    def transpose(self, ct: Array, x: UndefinedPrimal, /) -> Tangents:
        return (ct,)


@final
class StopGradient(Nondifferentiable, IdentityOp):
    """The value, taken as a constant by derivatives."""

    name = "stop_gradient"


@final
class OptimizationBarrier(DataMovement):
    """Returns its operands unchanged. Compilers do not move or merge computation across it."""

    name = "optimization_barrier"
    multi = True

    def infer(self, *types: ArrayType) -> tuple[ArrayType, ...]:
        return types

    def eval(self, *xs: NDArray) -> tuple[NDArray, ...]:
        return xs

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Any, Any]:
        ys = self(*primals)
        given = [t for t in tangents if t is not None]
        pushed = iter(self(*given) if given else ())
        return ys, tuple(None if t is None else next(pushed) for t in tangents)

    def transpose(self, cts: Tangents, /, *xs: Any) -> Tangents:
        filled = [zeros(x.type) if ct is None else ct for ct, x in zip(cts, xs, strict=True)]
        return self(*filled)

    def batch(self, size: int, args: Arrays, dims: Dims) -> tuple[Any, Any]:
        return self(*args), tuple(dims)

    def stablehlo(self, b: Any, out: Any, /, *xs: Any) -> Any:
        return b.op("stablehlo.optimization_barrier", xs, tuple(out)) if xs else ()


copy = Copy()
stop_gradient = StopGradient()
optimization_barrier = OptimizationBarrier()
