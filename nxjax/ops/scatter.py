"""scatter: updates written into, or combined with, windows of an operand at positions that are data.

Semantics: StableHLO specification, section scatter, plus the mode for indices out of bounds (see `indexing`). Updates
of one position are applied in an unspecified order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, div, mul, neg, sub
from nxjax.ops.arithmetic import max as max_
from nxjax.ops.arithmetic import min as min_
from nxjax.ops.base import (
    Binary,
    Combining,
    DataMovement,
    NDArray,
    all_weak,
    check_dtype,
    constant,
    define_op,
    equal_dtypes,
    like,
    move_batch,
    require,
    zeros,
)
from nxjax.ops.compare import eq, ne
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.indexing import along, check_batching, check_dims, check_indices, gather, upper_bounds, window_starts
from nxjax.ops.reduce import balanced, scaled, widened
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.ops.sort import sort
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType, highest, lowest
from nxjax.trace.types import ArrayType

# The names and the order of dimension numbers in StableHLO.
_WRITTEN: Final = {
    "update_window_dims": "update_window_dims",
    "inserted_window_dims": "inserted_window_dims",
    "input_batching_dims": "operand_batching_dims",
    "scatter_indices_batching_dims": "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims": "scatter_dims_to_operand_dims",
}


class Scatter(Combining):
    """x with ``updates`` combined into the windows at ``indices``. Operands in the order (x, indices, updates)."""

    updates = True
    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER
    aliases = {"update_jaxpr": "", "update_consts": ""}

    def infer(
        self,
        x: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        /,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: GatherScatterMode,
    ) -> ArrayType:
        n = dimension_numbers
        equal_dtypes(self, x, updates)
        check_dtype(self, self.allowed, x)
        check_indices(self, indices, len(n.scatter_dims_to_operand_dims))
        check_batching(self, x, indices, n.operand_batching_dims, n.scatter_indices_batching_dims)
        check_dims(self, "update_window_dims", n.update_window_dims, updates.ndim)
        check_dims(self, "inserted_window_dims", n.inserted_window_dims, x.ndim)
        for name, dims in (
            ("inserted_window_dims", n.inserted_window_dims),
            ("scatter_dims_to_operand_dims", n.scatter_dims_to_operand_dims),
        ):
            check_dims(self, f"{name} with operand_batching_dims", (*dims, *n.operand_batching_dims), x.ndim, False)
        window = n.window(x.ndim)
        require(self, len(window) == len(n.update_window_dims), "one window dimension per operand dimension", n, x)
        batch = tuple(k for d, k in enumerate(updates.shape) if d not in n.update_window_dims)
        if batch != indices.shape[:-1]:
            raise ShapeError(f"{self}: updates and indices differ in shape", got=f"{updates} for {indices}")
        if any(k > x.shape[d] for d, k in zip(window, (updates.shape[d] for d in n.update_window_dims), strict=True)):
            raise ShapeError(f"{self}: an update is larger than the operand", got=f"{updates} into {x}")
        return ArrayType(x.shape, x.dtype, all_weak(x, updates))

    def combine_at(self, y: NDArray, position: NDArray, updates: NDArray) -> None:
        """Combine updates into ``y`` in place, all of one dimension; ``position`` may name an element repeatedly."""
        assert isinstance(self.combiner, Binary)
        function: Any = type(self.combiner).ufunc
        if y.dtype.isbuiltin == 1:
            function.at(y, position, updates)
        else:  # ml_dtypes' types have no `ufunc.at`
            wide = y.astype(np.float32)
            function.at(wide, position, updates.astype(np.float32))
            y[...] = wide.astype(y.dtype)

    def eval(
        self,
        x: NDArray,
        indices: NDArray,
        updates: NDArray,
        /,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: GatherScatterMode,
        **_: Any,
    ) -> NDArray:
        n = dimension_numbers
        y = np.array(x, order="C")
        if not updates.size or not y.size:
            return y
        window = n.window(x.ndim)
        sizes = n.sizes(ArrayType(x.shape, x.dtype), ArrayType(updates.shape, updates.dtype))
        starts, inside = window_starts(x.shape, indices, sizes, n.as_gather(), mode is GatherScatterMode.CLIP)
        outer = [d for d in range(updates.ndim) if d not in n.update_window_dims]
        moved = updates.transpose((*outer, *n.update_window_dims))
        # Positions in row-major order: NumPy's `ufunc.at` is ten times faster with one index than with several.
        stride = [math.prod(x.shape[d + 1 :]) for d in range(x.ndim)]
        begin = sum((start * stride[d] for d, start in starts.items()), np.zeros(inside.shape, np.int64))
        run = np.zeros((), np.int64)
        for axis, d in enumerate(window):
            run = run + along(np.arange(sizes[d]) * stride[d], axis, len(window))
        position = begin.reshape((*begin.shape, *(1 for _ in window))) + run
        if not inside.all():
            position, moved = position[inside], moved[inside]
        self.combine_at(y.reshape(-1), position.reshape(-1), moved.reshape(-1))
        return y

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, dimension_numbers: ScatterDimensionNumbers, **params: Any
    ) -> tuple[Any, Any]:
        x, updates = move_batch(args[0], dims[0], size), move_batch(args[2], dims[2], size)
        indices = args[1] if dims[1] is None else move_batch(args[1], dims[1], size)
        numbers = dimension_numbers.batched(dims[1] is not None)
        return self(x, indices, updates, dimension_numbers=numbers, **params), 0

    def joined(self, b: Any, out: ArrayType, old: Any, new: Any) -> Any:
        """What an element becomes, in StableHLO."""
        return new if self.combiner is None else b.apply(self.combiner, out, (old, new), {})

    def stablehlo(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        indices: Any,
        updates: Any,
        /,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: GatherScatterMode,
    ) -> Any:
        n = dimension_numbers
        if 0 in updates.type.shape or 0 in out.shape:
            return x
        free = [d for d in range(out.ndim) if d not in n.operand_batching_dims]
        if not n.scatter_dims_to_operand_dims and free:
            # XLA loses all but one update of a window at no index, so it is given index 0 of some dimension.
            n = replace(n, scatter_dims_to_operand_dims=(free[0],))
            shape = (*indices.type.shape[:-1], 1)
            indices = b.constant(0, ArrayType(shape, indices.type.dtype))
        if mode is GatherScatterMode.CLIP and n.scatter_dims_to_operand_dims:
            sizes = n.sizes(x.type, updates.type)
            bounds = [x.type.shape[d] - sizes[d] for d in n.scatter_dims_to_operand_dims]
            indices = b.inline(lambda i: clipped(i, bounds), (indices,))
        numbers = ", ".join(f"{name} = {list(getattr(n, field))}" for name, field in _WRITTEN.items())
        attrs = (
            f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}, index_vector_dim = {indices.type.ndim - 1}>, "
            f"indices_are_sorted = {str(indices_are_sorted).lower()}, unique_indices = {str(unique_indices).lower()}"
        )
        element = ArrayType((), out.dtype)

        def body(inner: Any, old: Any, new: Any) -> Any:
            return self.joined(inner, element, old, new)

        return b.op("stablehlo.scatter", (x, indices, updates), out, attrs, [((element, element), body)])


def clipped(indices: Array, bounds: Sequence[int]) -> Array:
    """Index vectors moved into [0, bound]."""
    return min_(max_(indices, 0), upper_bounds(indices, bounds))


def read(x: Array, indices: Array, updates: Array | UndefinedPrimal, params: dict[str, Any]) -> Array:
    """The windows of ``x`` that a scatter with ``params`` writes; zero for those it drops."""
    p = scatter.with_defaults(params)
    n: ScatterDimensionNumbers = p["dimension_numbers"]
    if 0 in x.shape:  # all are dropped, and gather takes no window that is larger than its operand
        return zeros(ArrayType(updates.shape, x.dtype))
    return gather(
        x,
        indices,
        dimension_numbers=n.as_gather(),
        slice_sizes=n.sizes(x, updates),
        mode=p["mode"],
        fill_value=0,
        indices_are_sorted=p["indices_are_sorted"],
        unique_indices=p["unique_indices"],
    )


@final
class ScatterAdd(Scatter):
    """Adds."""

    name = "scatter_add"
    combiner = add

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        x, indices, _ = primals
        tx, _, tu = tangents
        y = self(*primals, **params)
        if tu is None:
            return y, tx
        return y, self(zeros(x.type) if tx is None else tx, indices, tu, **params)

    def transpose(self, ct: Array, x: Any, indices: Array, updates: Any, /, **params: Any) -> Tangents:
        ct_u = read(ct, indices, updates, params) if isinstance(updates, UndefinedPrimal) else None
        return (ct if isinstance(x, UndefinedPrimal) else None, None, ct_u)


@final
class ScatterSub(Scatter):
    """Subtracts."""

    name = "scatter_sub"
    combiner = sub

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        tx, _, tu = tangents
        _, t = scatter_add.jvp(primals, (tx, None, None if tu is None else neg(tu)), **params)
        return self(*primals, **params), t


@final
class ScatterMul(Scatter):
    """Multiplies."""

    name = "scatter_mul"
    combiner = mul
    start = staticmethod(lambda dtype: 1)

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        x, indices, updates = primals
        tx, _, tu = tangents
        y = self(*primals, **params)
        t = None if tx is None else self(tx, indices, updates, **params)
        if tu is not None:
            others = read(x, indices, updates, params)
            if not self.with_defaults(params)["unique_indices"]:
                others = self._others(x, indices, updates, params)
            base = zeros(x.type) if t is None else t
            t = scatter_add(base, indices, mul(tu, others), **params)
        return y, t

    def _others(self, x: Array, indices: Array, updates: Array, params: dict[str, Any]) -> Array:
        """For every update, the product of the element it meets and all other updates of that element.

        Updates are sorted by the element they meet, and each is given the product of those before it in its run times
        that of those after it, of `balanced` numbers. No division: factors may be zero, and derivatives of any order
        hold there.
        """
        if not updates.size or not x.size:
            return zeros(updates.type)
        narrow, x, updates = updates.dtype, widened(x), widened(updates)
        n = updates.size
        flat = lambda v: reshape(v, shape=(n,))
        word = dtypes.int32 if max(n, x.size) < 2**31 - 1 else dtypes.int64
        counted = add(iota(dtype=word, shape=(x.size,), dimension=0), 1)  # 0 is met by updates that are dropped
        met = flat(read(reshape(counted, shape=x.shape), indices, updates, params))
        own, factor = flat(updates), flat(read(x, indices, updates, params))
        place = iota(dtype=word, shape=(n,), dimension=0)
        met, own, factor, place = sort(met, own, factor, place, dimension=0, num_keys=1)
        shift = lambda v, k: (slice_axis(v, 0, 0, n - k), slice_axis(v, 0, k, n))

        def same_run(k: int, values: Array) -> Array:
            """``values`` where elements that are ``k`` apart are met by one another's updates, and 1 elsewhere."""
            return select_n(eq(*shift(met, k)), like(values, 1), values)

        own, powers = balanced(own)
        factor, power = (reshape(v, shape=(n,)) for v in balanced(reshape(factor, shape=(n, 1))))
        one = like(slice_axis(own, 0, 0, 1), 1)
        # The first of a run meets the operand's element itself.
        first = concatenate(constant(True, dtypes.bool_, (1,)), ne(*shift(met, 1)), dimension=0)
        before = select_n(first, concatenate(one, slice_axis(own, 0, 0, n - 1), dimension=0), factor)
        after = concatenate(same_run(1, slice_axis(own, 0, 1, n)), one, dimension=0)
        k = 1
        while k < n:
            low, high = shift(before, k)
            before = concatenate(slice_axis(before, 0, 0, k), mul(same_run(k, low), high), dimension=0)
            low, high = shift(after, k)
            after = concatenate(mul(low, same_run(k, high)), slice_axis(after, 0, n - k, n), dimension=0)
            k *= 2
        found = sort(place, mul(before, after), powers, power, dimension=0, num_keys=1)
        others, powers, power = (reshape(v, shape=updates.shape) for v in found[1:])
        totals = scatter_add(zeros(ArrayType(x.shape, dtypes.int32)), indices, powers, **params)
        total = read(totals, indices, powers, params)
        return convert_element_type(scaled(others, add(sub(total, powers), power)), dtype=narrow)

    def transpose(self, ct: Array, x: Any, indices: Array, updates: Any, /, **params: Any) -> Tangents:
        return (self(ct, indices, updates, **params), None, None)


class _ScatterExtremum(Scatter):
    allowed = dtypes.NUMERIC  # complex numbers by real part, then imaginary part
    ufunc: ClassVar[Any] = np.maximum

    def combine_at(self, y: NDArray, position: NDArray, updates: NDArray) -> None:
        type(self).ufunc.at(y, position, updates)

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        x, indices, updates = primals
        tx, _, tu = tangents
        y = self(*primals, **params)
        if (tx is None and tu is None) or x.dtype not in dtypes.INEXACT:
            return y, None
        # Everything that attains the extremum shares it equally.
        kept = convert_element_type(eq(x, y), dtype=x.dtype)
        won = convert_element_type(eq(updates, read(y, indices, updates, params)), dtype=x.dtype)
        ways = scatter_add(kept, indices, won, **params)
        share = div(like(ways, 1), ways)
        base = zeros(x.type) if tx is None else mul(tx, mul(kept, share))
        if tu is None:
            return y, base
        return y, scatter_add(base, indices, mul(tu, mul(won, read(share, indices, updates, params))), **params)


@final
class ScatterSet(Scatter, DataMovement):
    """Overwrites. Of several updates of one element, one wins. Every dtype, keys included."""

    name = "scatter"
    moved = slice(0, 3, 2)
    allowed = dtypes.NUMERIC | {dtypes.key}

    def combine_at(self, y: NDArray, position: NDArray, updates: NDArray) -> None:
        y[position] = updates

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        x, indices, updates = primals
        tx, _, tu = tangents
        y = self(*primals, **params)
        if tx is None and tu is None:
            return y, None
        tx = zeros(x.type) if tx is None else tx
        tu = zeros(updates.type) if tu is None else tu
        if self.with_defaults(params)["unique_indices"]:
            return y, self(tx, indices, tu, **params)
        # Number the updates and scatter the numbers by the same rule: the number found at an element is that of the
        # update that won it, and zero is the operand's own.

        count = updates.size
        word = dtypes.int32 if count < 2**31 - 1 else dtypes.int64
        numbers = add(iota(dtype=word, shape=(count,), dimension=0), 1)
        numbers = reshape(numbers, shape=updates.shape)
        winners = self(constant(0, word, x.shape), indices, numbers, **params)
        untouched = convert_element_type(eq(winners, 0), dtype=x.dtype)
        won = convert_element_type(eq(numbers, read(winners, indices, updates, params)), dtype=x.dtype)
        return y, scatter_add(mul(tx, untouched), indices, mul(tu, won), **params)

    def transpose(self, ct: Array, x: Any, indices: Array, updates: Any, /, **params: Any) -> Tangents:
        # Only reached with unique indices (see `jvp`).
        ct_x = self(ct, indices, zeros(updates.type), **params) if isinstance(x, UndefinedPrimal) else None
        ct_u = read(ct, indices, updates, params) if isinstance(updates, UndefinedPrimal) else None
        return (ct_x, None, ct_u)


scatter = ScatterSet()
scatter_add = ScatterAdd()
scatter_sub = ScatterSub()
scatter_mul = ScatterMul()
scatter_max = define_op(
    _ScatterExtremum, "scatter_max", "Keeps the larger.", combiner=max_, ufunc=np.maximum, start=lowest
)
scatter_min = define_op(
    _ScatterExtremum, "scatter_min", "Keeps the smaller.", combiner=min_, ufunc=np.minimum, start=highest
)
SCATTERS: Final[tuple[Scatter, ...]] = (scatter, scatter_add, scatter_sub, scatter_mul, scatter_max, scatter_min)
