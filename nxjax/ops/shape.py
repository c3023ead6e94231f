"""Ops that change the shape and keep the elements: broadcast, reshape, transpose. Every dtype, keys included."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import DataMovement, LinearOp, NDArray, check_counted_axes, check_shape, move_batch, require
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType, Shape


@final
class BroadcastInDim(DataMovement, LinearOp):
    """``x`` repeated into ``shape``; operand dimension i becomes result dimension ``broadcast_dimensions[i]``."""

    name = "broadcast_in_dim"

    def infer(self, x: ArrayType, /, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> ArrayType:
        require(
            self, len(broadcast_dimensions) == x.ndim, "one dimension per operand dimension", broadcast_dimensions, x
        )
        check_counted_axes(self, broadcast_dimensions, len(shape))
        check_shape(self, shape)
        for n, d in zip(x.shape, broadcast_dimensions, strict=True):
            if n not in (1, shape[d]):
                raise ShapeError(
                    f"{self}: operand does not fit the shape",
                    got=f"{x} into {shape}",
                    expected=f"size 1 or {shape[d]} at dimension {d}",
                )
        return x.with_shape(shape)

    def eval(self, x: NDArray, /, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> NDArray:
        order = np.argsort(broadcast_dimensions, kind="stable") if x.ndim > 1 else None
        if order is not None and list(order) != list(range(x.ndim)):
            x, broadcast_dimensions = x.transpose(order), tuple(broadcast_dimensions[i] for i in order)
        full = [1] * len(shape)
        for n, d in zip(x.shape, broadcast_dimensions, strict=True):
            full[d] = n
        return np.broadcast_to(x.reshape(full), shape)

    def transpose(
        self, ct: Array, x: UndefinedPrimal, /, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
    ) -> Tangents:
        new = tuple(d for d in range(len(shape)) if d not in broadcast_dimensions)
        stretched = tuple(d for n, d in zip(x.shape, broadcast_dimensions, strict=True) if n == 1 != shape[d])
        axes = tuple(sorted((*new, *stretched)))
        reduced = ops.reduce_sum(ct, axes=axes) if axes else ct
        left = [d for d in broadcast_dimensions if d not in stretched]
        if left != sorted(left):
            reduced = transpose(reduced, permutation=tuple(sorted(left).index(d) for d in left))
        return (reshape(reduced, shape=x.shape) if reduced.shape != x.shape else reduced,)

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        return self(x, shape=(size, *shape), broadcast_dimensions=(0, *(d + 1 for d in broadcast_dimensions))), 0

    def stablehlo(
        self, b: Any, out: ArrayType, x: Any, /, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
    ) -> Any:
        if x.type.shape == shape and broadcast_dimensions == tuple(range(len(shape))):
            return x
        return b.op("stablehlo.broadcast_in_dim", (x,), out, f"broadcast_dimensions = {b.ints(broadcast_dimensions)}")


@final
class Reshape(DataMovement, LinearOp):
    """The same elements in row-major order in another shape."""

    name = "reshape"
    aliases = {"new_sizes": "shape"}

    def infer(self, x: ArrayType, /, *, shape: Shape) -> ArrayType:
        check_shape(self, shape)
        if math.prod(shape) != x.size:
            raise ShapeError(
                f"{self}: sizes differ", got=f"{x} ({x.size} elements) to {shape} ({math.prod(shape)} elements)"
            )
        return x.with_shape(shape)

    def eval(self, x: NDArray, /, *, shape: Shape) -> NDArray:
        return x.reshape(shape)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, shape: Shape) -> Tangents:
        return (reshape(ct, shape=x.shape),)

    def batch(self, size: int, args: Arrays, dims: Dims, *, shape: Shape) -> tuple[Any, Any]:
        return self(move_batch(args[0], dims[0], size), shape=(size, *shape)), 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, shape: Shape) -> Any:
        return x if x.type.shape == shape else b.simple("reshape", (x,), out)


@final
class Transpose(DataMovement, LinearOp):
    """Result dimension i is operand dimension ``permutation[i]``."""

    name = "transpose"

    def infer(self, x: ArrayType, /, *, permutation: tuple[int, ...]) -> ArrayType:
        require(
            self, sorted(permutation) == list(range(x.ndim)), "not a permutation of the axes", permutation, f"of {x}"
        )
        return x.with_shape(tuple(x.shape[i] for i in permutation))

    def eval(self, x: NDArray, /, *, permutation: tuple[int, ...]) -> NDArray:
        return x.transpose(permutation)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, permutation: tuple[int, ...]) -> Tangents:
        inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
        return (transpose(ct, permutation=tuple(inverse)),)

    def batch(self, size: int, args: Arrays, dims: Dims, *, permutation: tuple[int, ...]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], permutation=(d, *(i + (i >= d) for i in permutation))), 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, permutation: tuple[int, ...]) -> Any:
        return b.op("stablehlo.transpose", (x,), out, f"permutation = {b.ints(permutation)}")


@final
class Rev(DataMovement, LinearOp):
    """The elements in reverse order along ``dimensions``."""

    name = "rev"

    def infer(self, x: ArrayType, /, *, dimensions: tuple[int, ...]) -> ArrayType:
        check_counted_axes(self, dimensions, x.ndim)
        return x

    def eval(self, x: NDArray, /, *, dimensions: tuple[int, ...]) -> NDArray:
        return np.flip(x, dimensions)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, dimensions: tuple[int, ...]) -> Tangents:
        return (rev(ct, dimensions=dimensions),)

    def batch(self, size: int, args: Arrays, dims: Dims, *, dimensions: tuple[int, ...]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], dimensions=tuple(i + (i >= d) for i in dimensions)), d

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, dimensions: tuple[int, ...]) -> Any:
        return b.op("stablehlo.reverse", (x,), out, f"dimensions = {b.ints(dimensions)}")


broadcast_in_dim = BroadcastInDim()
reshape = Reshape()
transpose = Transpose()
rev = Rev()
