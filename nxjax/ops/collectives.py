"""Ops over a named axis: what the elements of a `vmap`, or the devices of a `shard_map`, compute together.

``axis_names`` are the axes that an op must still combine. The trace of a `vmap` combines its axis by `batch_axis`. The
axis of a mesh is combined by communication between devices, which `stablehlo` emits. An op that reaches an executor
with any other name raises an error.

Inside a checked `shard_map`, types say along which mesh axes a value varies. There, a sum over an axis gives one value
for all devices of the axis (`psum_invariant`). `pvary` turns a value that all devices share into one that may vary.
The two are each other's transpose, as in JAX. In an unchecked `shard_map`, and under `vmap`, `psum` is its own
transpose.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, div, mul
from nxjax.ops.base import (
    LinearOp,
    NDArray,
    Nondifferentiable,
    check_counted_axis,
    check_dtype,
    define_op,
    like,
    move_batch,
    require,
    zeros,
)
from nxjax.ops.compare import eq
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.reduce import reduce_max, reduce_min, reduce_sum
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.trace import dtypes
from nxjax.trace.axes import UnboundAxisError
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType

Names = tuple[Any, ...]
# Places along the axis that communicate with each other only; None: all.
Groups = tuple[tuple[int, ...], ...] | None


class CollectiveOp(Op):
    """Answered per axis by `batch_axis`; other batch dimensions go along."""

    aliases = {"axes": "axis_names", "axis_name": "axis_names", "axis_index_groups": "groups"}

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        """The op on whole values of the axis: ``args`` are batched over it at ``dims``."""
        raise NotImplementedError

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        return self(args[0], **params), dims[0]

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        raise self.unbound(params)

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        if not b.communicates(params["axis_names"]):
            raise self.unbound(params)
        return self.communicate(b, out, *xs, **params)

    def communicate(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        """As `stablehlo`, among the devices of a mesh."""
        raise NotImplementedError

    def unbound(self, params: dict[str, Any]) -> UnboundAxisError:
        names = ", ".join(map(repr, params["axis_names"]))
        return UnboundAxisError(
            f"{self.name}: no axis {names} is in scope",
            fix=f"call the function under nx.vmap(..., axis_name={names}) or nx.shard_map",
        )


def rows(x: Array, places: Iterable[int]) -> Array:
    """Rows of ``x`` along dimension 0, in this order."""
    return concatenate(*(slice_axis(x, 0, i, i + 1) for i in places), dimension=0)


def per_group(
    answer: Callable[[int, Array], tuple[Array, int | None]], size: int, x: Array, groups: tuple[tuple[int, ...], ...]
) -> Array:
    """``answer(group size, rows of a group)`` for each group, put back in the places of the axis (in dimension 0)."""
    parts: list[Array] = []
    for group in groups:
        y, d = answer(len(group), rows(x, group))
        parts.append(move_batch(y, d, len(group)))
    order = [place for group in groups for place in group]
    joined = concatenate(*parts, dimension=0)
    return rows(joined, [order.index(place) for place in range(size)])


# --- reductions ---


class AllReduce(CollectiveOp):
    """All elements of the axis combined into one; the shape stays."""

    allowed: ClassVar[frozenset[dtypes.DType]] = dtypes.NUMBER
    hlo: ClassVar[str] = "add"

    def infer(self, x: ArrayType, /, *, axis_names: Names, groups: Groups = None) -> ArrayType:
        check_dtype(self, self.allowed, x)
        return x.strong()

    def combined(self, x: Array, dim: int) -> Array:
        """The batch dimension reduced away."""
        raise NotImplementedError

    def shared(self, x: Array, size: int) -> Array:
        """The result for a value that is the same in all elements."""
        return x

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, axis_names: Names, groups: Groups = None
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        if groups is not None:
            x = move_batch(x, d, size)
            return per_group(lambda n, part: (self.combined(part, 0), None), size, x, groups), 0
        y = self.shared(x, size) if d is None else self.combined(x, d)
        left = tuple(n for n in axis_names if n != axis_name)
        return (self(y, axis_names=left) if left else y), None

    def communicate(self, b: Any, out: ArrayType, x: Any, /, *, axis_names: Names, groups: Groups = None) -> Any:
        return b.all_reduce(self.hlo, x, axis_names, groups)


class AllReduceSum(LinearOp, AllReduce):
    """Sum over the axes. Abstract: what its transpose is depends on what the types say."""

    def combined(self, x: Array, dim: int) -> Array:
        return reduce_sum(x, axes=(dim,))

    def shared(self, x: Array, size: int) -> Array:
        return mul(x, like(x, size))


@final
class Psum(AllReduceSum):
    """Sum over the axes; every device, or element of the axis, gets the sum."""

    name = "psum"

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, axis_names: Names, groups: Groups = None) -> Tangents:
        return (self(ct, axis_names=axis_names, groups=groups),)


@final
class PsumInvariant(AllReduceSum):
    """Sum over mesh axes, one value for all devices along them."""

    name = "psum_invariant"
    infers_vma = True

    def infer(self, x: ArrayType, /, *, axis_names: Names, groups: Groups = None) -> ArrayType:
        return super().infer(x, axis_names=axis_names).with_vma(x.vma - frozenset(axis_names))

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, axis_names: Names, groups: Groups = None) -> Tangents:
        return (pvary(ct, axis_names=axis_names),)


class Extremum(AllReduce):
    """Maximum or minimum; its derivative is that of the extremum of all gathered values."""

    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    infers_vma = True
    reduce: ClassVar[Op] = reduce_max

    def combined(self, x: Array, dim: int) -> Array:
        return self.reduce(x, axes=(dim,))

    def infer(self, x: ArrayType, /, *, axis_names: Names, groups: Groups = None) -> ArrayType:
        y = super().infer(x, axis_names=axis_names)
        return y if groups is not None else y.with_vma(x.vma - frozenset(axis_names))

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, axis_names: Names, groups: Groups = None
    ) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        params = {"axis_names": axis_names, "groups": groups}
        y = self(x, **params)
        if t is None:
            return y, None
        total = psum_invariant if x.type.vma and groups is None else psum
        # Elements that attain the extremum share the tangent evenly.
        winner = convert_element_type(eq(x, y), dtype=x.dtype)
        share = div(winner, total(winner, **params))
        return y, total(mul(t, share), **params)


# --- ops that move values ---


class _Moving(LinearOp, CollectiveOp):
    """``dimensions`` names the parameters that are dimensions of the operand, or of the result."""

    dimensions: ClassVar[tuple[str, ...]]

    @abstractmethod
    def answer(self, n: int, x: Array, d: int | None, **params: Any) -> tuple[Any, Any]:
        """The results of ``n`` elements, whose values are batched at ``d``, and where these are batched."""

    @abstractmethod
    def exchange(self, b: Any, out: ArrayType, x: Any, among: tuple[Names, Groups], **params: Any) -> Any:
        """As `communicate`; ``among``: axes and groups."""

    def communicate(
        self, b: Any, out: ArrayType, x: Any, /, *, axis_names: Names, groups: Groups = None, **params: Any
    ) -> Any:
        return self.exchange(b, out, x, (axis_names, groups), **params)

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

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, all_gather_dimension: int, **params: Any) -> Tangents:
        return (reduce_scatter(ct, scatter_dimension=all_gather_dimension, **params),)

    def exchange(
        self, b: Any, out: ArrayType, x: Any, among: tuple[Names, Groups], *, all_gather_dimension: int, **_: Any
    ) -> Any:
        at = all_gather_dimension
        one = b.simple("reshape", (x,), x.type.with_shape((*x.type.shape[:at], 1, *x.type.shape[at:])))
        return b.all_gather(one, out, at, *among)


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
        return x.strong().without_dim(at)

    def answer(self, n: int, x: Array, d: int | None, *, scatter_dimension: int, **_: Any) -> tuple[Any, Any]:
        return mul(x, like(x, n)) if d is None else reduce_sum(x, axes=(d,)), scatter_dimension

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, scatter_dimension: int, **params: Any) -> Tangents:
        return (all_gather(ct, all_gather_dimension=scatter_dimension, **params),)

    def exchange(
        self, b: Any, out: ArrayType, x: Any, among: tuple[Names, Groups], *, scatter_dimension: int, **_: Any
    ) -> Any:
        at = scatter_dimension
        one = x.type.with_shape((*x.type.shape[:at], 1, *x.type.shape[at + 1 :]))
        return b.simple("reshape", (b.reduce_scatter(x, one, at, *among),), out)


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

    def transpose(
        self, ct: Array, x: UndefinedPrimal, /, *, split_axis: int, concat_axis: int, **params: Any
    ) -> Tangents:
        return (self(ct, split_axis=concat_axis, concat_axis=split_axis, **params),)

    def exchange(
        self, b: Any, out: ArrayType, x: Any, among: Any, *, axis_size: int, split_axis: int, concat_axis: int
    ) -> Any:
        y = b.all_to_all(x, split_axis, axis_size, *among)
        if split_axis == concat_axis:
            return y
        order = [i for i in range(x.type.ndim) if i != split_axis]
        order.insert(concat_axis, split_axis)
        return b.op("stablehlo.transpose", (y,), out, f"permutation = {b.ints(order)}")


@final
class Ppermute(LinearOp, CollectiveOp):
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
        rows = (nothing if s is None else slice_axis(x, 0, s, s + 1) for s in found)
        return concatenate(*rows, dimension=0), 0

    def transpose(
        self, ct: Array, x: UndefinedPrimal, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]
    ) -> Tangents:
        return (self(ct, axis_names=axis_names, perm=tuple((t, s) for s, t in perm)),)

    def communicate(
        self, b: Any, out: ArrayType, x: Any, /, *, axis_names: Names, perm: tuple[tuple[int, int], ...]
    ) -> Any:
        return b.collective_permute(x, perm, axis_names)


# --- places and types ---


@final
class Pvary(LinearOp, CollectiveOp):
    """The value itself, taken from here on as one that may vary along mesh axes."""

    name = "pvary"
    infers_vma = True

    def infer(self, x: ArrayType, /, *, axis_names: Names) -> ArrayType:
        return x.with_vma(x.vma | frozenset(axis_names))

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, axis_names: Names) -> Tangents:
        return (psum_invariant(ct, axis_names=axis_names),)

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, axis_names: Names) -> tuple[Any, Any]:
        left = tuple(n for n in axis_names if n != axis_name)
        return (self(args[0], axis_names=left) if left else args[0]), dims[0]

    def communicate(self, b: Any, out: ArrayType, x: Any, /, *, axis_names: Names) -> Any:
        return x


@final
class AxisIndex(Nondifferentiable, CollectiveOp):
    """The element's own position along the axis."""

    name = "axis_index"
    infers_vma = True

    def infer(self, *, axis_names: Names, varies: bool = False) -> ArrayType:
        index = ArrayType((), dtypes.int32)
        return index.with_vma(frozenset(axis_names)) if varies else index

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, axis_names: Names, varies: bool = False
    ) -> tuple[Any, Any]:
        return iota(dtype=np.dtype(np.int32), shape=(size,), dimension=0), 0

    def communicate(self, b: Any, out: ArrayType, /, *, axis_names: Names, varies: bool = False) -> Any:
        return b.axis_index(axis_names[0])


psum: Final = Psum()
psum_invariant: Final = PsumInvariant()
pmax: Final = define_op(Extremum, "pmax", "Maximum over the axes.", hlo="maximum", reduce=reduce_max)
pmin: Final = define_op(Extremum, "pmin", "Minimum over the axes.", hlo="minimum", reduce=reduce_min)
all_gather: Final = AllGather()
reduce_scatter: Final = ReduceScatter()
all_to_all: Final = AllToAll()
ppermute: Final = Ppermute()
pvary: Final = Pvary()
axis_index: Final = AxisIndex()


def as_varying(x: Array, vma: Iterable[Any]) -> Array:
    """``x`` as a value that varies along ``vma`` too."""
    missing = frozenset(vma) - x.type.vma
    return pvary(x, axis_names=tuple(sorted(missing, key=str))) if missing else x


def psum_to_vma(x: Array, vma: frozenset[Any]) -> Array:
    """A cotangent for a value that varies along ``vma``: devices that share the value add up their parts."""
    parts = x.type.vma - vma
    if parts:
        x = psum_invariant(x, axis_names=tuple(sorted(parts, key=str)))
    return as_varying(x, vma)


def row_major(indices: Arrays, sizes: Sequence[int]) -> Array:
    """One position from the positions along several axes, the first the slowest."""
    index, *rest = indices
    for i, size in zip(rest, sizes[1:], strict=True):
        index = add(mul(index, like(index, size)), i)
    return index
