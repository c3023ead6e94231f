"""Ops that move values along a named axis: gathers, scattered sums, exchanges, permutations. See `collectives`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, final

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import mul
from nxjax.ops.base import LinearOp, check_counted_axis, check_dtype, like, move_batch, require, zeros
from nxjax.ops.collectives import Collective, Groups, Names, per_group
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.slicing import concatenate, part
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Linear, Tangents
from nxjax.trace.types import ArrayType


class _Moving(LinearOp, Collective):
    """``dimensions`` names the parameters that are dimensions of the operand, or of the result."""

    dimensions: ClassVar[tuple[str, ...]]

    @abstractmethod
    def answer(self, n: int, x: Array, d: int | None, **params: Any) -> tuple[Any, Any]:
        """The results of ``n`` elements, whose values are batched at ``d``, and where these are batched."""

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, groups: Groups = None, **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        if groups is None:
            return self.answer(size, x, d, **params)
        own = lambda n, x: self.answer(n, x, 0, **params)
        return per_group(own, size, move_batch(x, d, size), groups), 0

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        moved = {k: v + 1 if k in self.dimensions else v for k, v in params.items()}
        return self(move_batch(args[0], dims[0], size), **moved), 0


@final
class AllGather(_Moving):
    """The values of all elements, along a new dimension ``all_gather_dimension``."""

    name = "all_gather"
    dimensions = ("all_gather_dimension",)

    def infer(
        self, x: ArrayType, /, *, axis_names: Names, axis_size: int, all_gather_dimension: int, groups: Groups = None
    ) -> ArrayType:
        check_counted_axis(self, all_gather_dimension, x.ndim + 1)
        at = all_gather_dimension
        return x.strong().with_shape((*x.shape[:at], axis_size, *x.shape[at:]))

    def answer(self, n: int, x: Array, d: int | None, *, all_gather_dimension: int, **_: Any) -> tuple[Any, Any]:
        return move_batch(x, d, n, all_gather_dimension), None

    def transpose(self, ct: Array, x: Linear, /, *, all_gather_dimension: int, **params: Any) -> Tangents:
        return (reduce_scatter(ct, scatter_dimension=all_gather_dimension, **params),)

    def communicate(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        /,
        *,
        axis_names: Names,
        all_gather_dimension: int,
        groups: Groups = None,
        **_: Any,
    ) -> Any:
        at = all_gather_dimension
        one = b.simple("reshape", (x,), x.type.with_shape((*x.type.shape[:at], 1, *x.type.shape[at:])))
        return b.all_gather(one, out, at, axis_names, groups)


@final
class ReduceScatter(_Moving):
    """The sum over the axis, of which each element takes its own entry along ``scatter_dimension``."""

    name = "reduce_scatter"
    dimensions = ("scatter_dimension",)

    def infer(
        self, x: ArrayType, /, *, axis_names: Names, axis_size: int, scatter_dimension: int, groups: Groups = None
    ) -> ArrayType:
        check_dtype(self, dtypes.NUMBER, x)
        at = check_counted_axis(self, scatter_dimension, x.ndim)
        if x.shape[at] != axis_size:
            raise ShapeError(
                "reduce_scatter: the scattered dimension is not the axis size", got=x, expected=f"size {axis_size}"
            )
        return x.strong().with_shape(x.shape[:at] + x.shape[at + 1 :])

    def answer(self, n: int, x: Array, d: int | None, *, scatter_dimension: int, **_: Any) -> tuple[Any, Any]:
        return mul(x, like(x, n)) if d is None else reduce_sum(x, axes=(d,)), scatter_dimension

    def transpose(self, ct: Array, x: Linear, /, *, scatter_dimension: int, **params: Any) -> Tangents:
        return (all_gather(ct, all_gather_dimension=scatter_dimension, **params),)

    def communicate(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        /,
        *,
        axis_names: Names,
        scatter_dimension: int,
        groups: Groups = None,
        **_: Any,
    ) -> Any:
        at = scatter_dimension
        one = x.type.with_shape((*x.type.shape[:at], 1, *x.type.shape[at + 1 :]))
        return b.simple("reshape", (b.reduce_scatter(x, one, at, axis_names, groups),), out)


@final
class AllToAll(_Moving):
    """Element i gets entry i along ``split_axis`` of every element, along a new dimension ``concat_axis``."""

    name = "all_to_all"
    dimensions = ("split_axis", "concat_axis")

    def infer(
        self,
        x: ArrayType,
        /,
        *,
        axis_names: Names,
        axis_size: int,
        split_axis: int,
        concat_axis: int,
        groups: Groups = None,
    ) -> ArrayType:
        at = check_counted_axis(self, split_axis, x.ndim)
        check_counted_axis(self, concat_axis, x.ndim)
        if x.shape[at] != axis_size:
            raise ShapeError("all_to_all: the split axis is not the axis size", got=x, expected=f"size {axis_size}")
        rest = x.shape[:at] + x.shape[at + 1 :]
        return x.strong().with_shape((*rest[:concat_axis], axis_size, *rest[concat_axis:]))

    def answer(
        self, n: int, x: Array, d: int | None, *, split_axis: int, concat_axis: int, **_: Any
    ) -> tuple[Any, Any]:
        # With the batch in front, the split axis becomes the batch and the old batch the concatenated axis.
        return move_batch(move_batch(move_batch(x, d, n), split_axis + 1, n), 1, n, concat_axis + 1), 0

    def transpose(self, ct: Array, x: Linear, /, *, split_axis: int, concat_axis: int, **params: Any) -> Tangents:
        return (self(ct, split_axis=concat_axis, concat_axis=split_axis, **params),)

    def communicate(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        /,
        *,
        axis_names: Names,
        axis_size: int,
        split_axis: int,
        concat_axis: int,
        groups: Groups = None,
    ) -> Any:
        y = b.all_to_all(x, split_axis, axis_size, axis_names, groups)
        if split_axis == concat_axis:
            return y
        order = [i for i in range(x.type.ndim) if i != split_axis]
        order.insert(concat_axis, split_axis)
        return b.op("stablehlo.transpose", (y,), out, f"permutation = {b.ints(order)}")


@final
class Ppermute(LinearOp, Collective):
    """Element ``target`` gets the value of element ``source`` for every pair of ``perm``; the others get zeros."""

    name = "ppermute"

    def infer(self, x: ArrayType, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]) -> ArrayType:
        targets = {target for _, target in perm}
        fits = len(targets) == len(perm) and all(n >= 0 for pair in perm for n in pair)
        require(self, fits, "perm", perm, "pairs (source, target) of indices, no target twice")
        return x.strong()

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, perm: tuple[tuple[int, int], ...], **_: Any
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        source = {target: s for s, target in perm}
        nothing = zeros(ArrayType((1, *x.shape[1:]), x.dtype))
        found = (source.get(target) for target in range(size))
        rows = (nothing if s is None else part(x, 0, s, s + 1) for s in found)
        return concatenate(*rows, dimension=0), 0

    def transpose(self, ct: Array, x: Linear, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]) -> Tangents:
        return (self(ct, axis_names=axis_names, perm=tuple((t, s) for s, t in perm)),)

    def communicate(
        self, b: Any, out: ArrayType, x: Any, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]
    ) -> Any:
        return b.collective_permute(x, perm, axis_names)


all_gather: Final = AllGather()
reduce_scatter: Final = ReduceScatter()
all_to_all: Final = AllToAll()
ppermute: Final = Ppermute()
