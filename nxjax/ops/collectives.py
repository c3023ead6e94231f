"""Ops over a named axis: sums, gathers and exchanges among the elements that `vmap(..., axis_name=...)` maps over.

``axis_names`` says which axes an op is still to be answered for; the trace that binds a name answers with `batch_axis`.
An op that reaches an executor with a name left has no meaning, which its error says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import mul
from nxjax.ops.base import LinearOp, NDArray, Nondifferentiable, check_axis, like, move_batch, of_dtype, zeros
from nxjax.ops.create import iota
from nxjax.ops.reduce import reduce_max, reduce_min, reduce_sum
from nxjax.ops.slicing import concatenate
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes
from nxjax.trace.axes import UnboundAxisError
from nxjax.trace.core import Array, Linear, Op
from nxjax.trace.types import ArrayType

Names = tuple[Any, ...]


class Collective(Op):
    """Answered per axis by `batch_axis`; other batch dimensions go along."""

    def batch_axis(
        self, axis_name: Any, size: int, args: Sequence[Array], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """The op on whole values of the axis: ``args`` are batched over it at ``dims``."""
        raise NotImplementedError

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        raise self.unbound(params)

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        raise self.unbound(params)

    def unbound(self, params: dict[str, Any]) -> UnboundAxisError:
        names = ", ".join(map(repr, params["axis_names"]))
        return UnboundAxisError(
            f"{self.name}: no axis {names} is in scope",
            fix=f"call the function under nx.vmap(..., axis_name={names})",
        )


class Reduction(Collective):
    """All elements of the axis combined into one; the shape stays."""

    allowed: ClassVar[frozenset[dtypes.DType]] = dtypes.NUMBER

    def infer(self, x: ArrayType, /, *, axis_names: Names) -> ArrayType:
        of_dtype(self, self.allowed, x)
        return x.strong()

    def combined(self, x: Array, dim: int) -> Array:
        """The batch dimension reduced away."""
        raise NotImplementedError

    def shared(self, x: Array, size: int) -> Array:
        """The result for a value that is the same in all elements."""
        return x

    def batch_axis(
        self, axis_name: Any, size: int, args: Sequence[Array], dims: Sequence[int | None], *, axis_names: Names
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        y = self.shared(x, size) if d is None else self.combined(x, d)
        left = tuple(n for n in axis_names if n != axis_name)
        return (self(y, axis_names=left) if left else y), None

    def batch(
        self, size: int, args: Sequence[Array], dims: Sequence[int | None], *, axis_names: Names
    ) -> tuple[Any, Any]:
        return self(args[0], axis_names=axis_names), dims[0]


@final
class Psum(LinearOp, Reduction):
    """Sum over the axes."""

    name = "psum"

    def combined(self, x: Array, dim: int) -> Array:
        return reduce_sum(x, axes=(dim,))

    def shared(self, x: Array, size: int) -> Array:
        return mul(x, like(x, size))

    def transpose(self, ct: Array, x: Linear, /, *, axis_names: Names) -> Sequence[Array | None]:
        return (self(ct, axis_names=axis_names),)


class Extremum(Reduction):
    """Maximum or minimum; its derivative is that of the extremum of all gathered values."""

    allowed = dtypes.NUMERIC - dtypes.COMPLEX

    def jvp(
        self, primals: Sequence[Array], tangents: Sequence[Array | None], *, axis_names: Names
    ) -> tuple[Array, Array | None]:
        from nxjax.ops.arithmetic import div
        from nxjax.ops.compare import eq
        from nxjax.ops.convert import convert_element_type

        (x,), (t,) = primals, tangents
        y = self(x, axis_names=axis_names)
        if t is None:
            return y, None
        # Elements that attain the extremum share the tangent evenly.
        winner = convert_element_type(eq(x, y), dtype=x.dtype)
        share = div(winner, psum(winner, axis_names=axis_names))
        return y, psum(mul(t, share), axis_names=axis_names)


@final
class Pmax(Extremum):
    """Maximum over the axes."""

    name = "pmax"

    def combined(self, x: Array, dim: int) -> Array:
        return reduce_max(x, axes=(dim,))


@final
class Pmin(Extremum):
    """Minimum over the axes."""

    name = "pmin"

    def combined(self, x: Array, dim: int) -> Array:
        return reduce_min(x, axes=(dim,))


@final
class AllGather(LinearOp, Collective):
    """The values of all elements, along a new dimension ``all_gather_dimension``."""

    name = "all_gather"

    def infer(self, x: ArrayType, /, *, axis_names: Names, axis_size: int, all_gather_dimension: int) -> ArrayType:
        check_axis(self, all_gather_dimension, x.ndim + 1)
        at = all_gather_dimension
        return x.strong().with_shape((*x.shape[:at], axis_size, *x.shape[at:]))

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        all_gather_dimension: int,
    ) -> tuple[Any, Any]:
        return move_batch(args[0], dims[0], size, all_gather_dimension), None

    def batch(
        self,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        all_gather_dimension: int,
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        y = self(x, axis_names=axis_names, axis_size=axis_size, all_gather_dimension=all_gather_dimension + 1)
        return y, 0

    def transpose(
        self, ct: Array, x: Linear, /, *, axis_names: Names, axis_size: int, all_gather_dimension: int
    ) -> Sequence[Array | None]:
        return (reduce_scatter(ct, axis_names=axis_names, axis_size=axis_size, scatter_dimension=all_gather_dimension),)


@final
class ReduceScatter(LinearOp, Collective):
    """The sum over the axis, of which each element takes its own entry along ``scatter_dimension``."""

    name = "reduce_scatter"

    def infer(self, x: ArrayType, /, *, axis_names: Names, axis_size: int, scatter_dimension: int) -> ArrayType:
        of_dtype(self, dtypes.NUMBER, x)
        at = check_axis(self, scatter_dimension, x.ndim)
        if x.shape[at] != axis_size:
            raise ShapeError(
                "reduce_scatter: the scattered dimension is not the axis size", got=x, expected=f"size {axis_size}"
            )
        return x.strong().with_shape(x.shape[:at] + x.shape[at + 1 :])

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        scatter_dimension: int,
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        total = mul(x, like(x, size)) if d is None else reduce_sum(x, axes=(d,))
        return total, scatter_dimension

    def batch(
        self,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        scatter_dimension: int,
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        return self(x, axis_names=axis_names, axis_size=axis_size, scatter_dimension=scatter_dimension + 1), 0

    def transpose(
        self, ct: Array, x: Linear, /, *, axis_names: Names, axis_size: int, scatter_dimension: int
    ) -> Sequence[Array | None]:
        return (all_gather(ct, axis_names=axis_names, axis_size=axis_size, all_gather_dimension=scatter_dimension),)


@final
class AllToAll(LinearOp, Collective):
    """Element i gets entry i along ``split_axis`` of every element, along a new dimension ``concat_axis``."""

    name = "all_to_all"

    def infer(
        self, x: ArrayType, /, *, axis_names: Names, axis_size: int, split_axis: int, concat_axis: int
    ) -> ArrayType:
        at = check_axis(self, split_axis, x.ndim)
        check_axis(self, concat_axis, x.ndim)
        if x.shape[at] != axis_size:
            raise ShapeError("all_to_all: the split axis is not the axis size", got=x, expected=f"size {axis_size}")
        rest = x.shape[:at] + x.shape[at + 1 :]
        return x.strong().with_shape((*rest[:concat_axis], axis_size, *rest[concat_axis:]))

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        split_axis: int,
        concat_axis: int,
    ) -> tuple[Any, Any]:
        # With the batch in front, the split axis becomes the batch and the old batch the concatenated axis.
        x = move_batch(args[0], dims[0], size)
        exchanged = move_batch(x, split_axis + 1, size)
        return move_batch(exchanged, 1, size, concat_axis + 1), 0

    def batch(
        self,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        axis_size: int,
        split_axis: int,
        concat_axis: int,
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        params = {"axis_names": axis_names, "axis_size": axis_size}
        return self(x, split_axis=split_axis + 1, concat_axis=concat_axis + 1, **params), 0

    def transpose(
        self, ct: Array, x: Linear, /, *, axis_names: Names, axis_size: int, split_axis: int, concat_axis: int
    ) -> Sequence[Array | None]:
        params = {"axis_names": axis_names, "axis_size": axis_size}
        return (self(ct, split_axis=concat_axis, concat_axis=split_axis, **params),)


@final
class Ppermute(LinearOp, Collective):
    """Element ``target`` gets the value of element ``source`` for every pair of ``perm``; the others get zeros."""

    name = "ppermute"

    def infer(self, x: ArrayType, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]) -> ArrayType:
        return x.strong()

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        perm: tuple[tuple[int, int], ...],
    ) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        source = {target: s for s, target in perm}
        nothing = zeros(ArrayType((1, *x.shape[1:]), x.dtype))
        rows: list[Array] = []
        for target in range(size):
            s = source.get(target)
            rows.append(
                nothing
                if s is None
                else slice_op(
                    x,
                    start_indices=(s, *(0,) * (x.ndim - 1)),
                    limit_indices=(s + 1, *x.shape[1:]),
                    strides=None,
                )
            )
        return concatenate(*rows, dimension=0), 0

    def batch(
        self,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        axis_names: Names,
        perm: tuple[tuple[int, int], ...],
    ) -> tuple[Any, Any]:
        return self(args[0], axis_names=axis_names, perm=perm), dims[0]

    def transpose(
        self, ct: Array, x: Linear, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]
    ) -> Sequence[Array | None]:
        return (self(ct, axis_names=axis_names, perm=tuple((t, s) for s, t in perm)),)


@final
class AxisIndex(Nondifferentiable, Collective):
    """The element's own position along the axis."""

    name = "axis_index"

    def infer(self, *, axis_names: Names) -> ArrayType:
        return ArrayType((), dtypes.int32)

    def batch_axis(
        self, axis_name: Any, size: int, args: Sequence[Array], dims: Sequence[int | None], *, axis_names: Names
    ) -> tuple[Any, Any]:
        return iota(dtype=np.dtype(np.int32), shape=(size,), dimension=0), 0


psum = Psum()
pmax = Pmax()
pmin = Pmin()
all_gather = AllGather()
reduce_scatter = ReduceScatter()
all_to_all = AllToAll()
ppermute = Ppermute()
axis_index = AxisIndex()
