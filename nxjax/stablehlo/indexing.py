"""Rules of gather and scatter. Update computations that nxjax has no scatter for run one update after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.ops import scatter as scatters
from nxjax.ops.arithmetic import add
from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.indexing import gather
from nxjax.ops.shape import reshape, transpose
from nxjax.ops.slicing import concatenate, dynamic_slice
from nxjax.stablehlo import regions
from nxjax.stablehlo.reductions import named
from nxjax.stablehlo.shapes import numbers
from nxjax.stablehlo.walk import Operation, Scope, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.stage import stage
from nxjax.transforms.control.scan import scan_program
from nxjax.transforms.vmap import vmap

_SCATTERS: Final[dict[str, Any]] = {
    "add": scatters.scatter_add,
    "subtract": scatters.scatter_sub,
    "multiply": scatters.scatter_mul,
    "maximum": scatters.scatter_max,
    "minimum": scatters.scatter_min,
}


def vectors_last(indices: Array, dim: int) -> Array:
    """Indices with the index vector in the last dimension; a vector of one component may have none."""
    if dim == indices.ndim:
        return reshape(indices, shape=(*indices.shape, 1))
    if dim == indices.ndim - 1:
        return indices
    order = (*(i for i in range(indices.ndim) if i != dim), dim)
    return transpose(indices, permutation=order)


@rule("stablehlo.gather", "stablehlo.dynamic_gather")
def _gather(scope: Scope, op: Operation, x: Array, indices: Array, *sizes: Array) -> Array:
    n = op.attributes["dimension_numbers"]
    slice_sizes = numbers(scope, op, 2) if sizes else tuple(op.attributes["slice_sizes"])
    return gather(
        x,
        vectors_last(indices, n["index_vector_dim"]),
        dimension_numbers=GatherDimensionNumbers(
            tuple(n["offset_dims"]),
            tuple(n["collapsed_slice_dims"]),
            tuple(n["start_index_map"]),
            tuple(n["operand_batching_dims"]),
            tuple(n["start_indices_batching_dims"]),
        ),
        slice_sizes=slice_sizes,
        mode=GatherScatterMode.CLIP,
        indices_are_sorted=bool(op.attributes.get("indices_are_sorted", False)),
    )


@rule("stablehlo.torch_index_select")
def _index_select(_: Scope, op: Operation, x: Array, indices: Array) -> Array:
    axis, shared = op.attributes["dim"], op.attributes["batch_dims"]
    batch = tuple(range(shared))
    numbers = GatherDimensionNumbers(
        offset_dims=(*range(shared, axis), *range(axis + indices.ndim - shared, x.ndim + indices.ndim - shared - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    sizes = tuple(1 if i == axis or i < shared else m for i, m in enumerate(x.shape))
    index = reshape(indices, shape=(*indices.shape, 1))
    return gather(x, index, dimension_numbers=numbers, slice_sizes=sizes, mode=GatherScatterMode.CLIP)


def _numbers(op: Operation) -> ScatterDimensionNumbers:
    n = op.attributes["scatter_dimension_numbers"]
    return ScatterDimensionNumbers(
        tuple(n["update_window_dims"]),
        tuple(n["inserted_window_dims"]),
        tuple(n["scattered_dims_to_operand_dims"]),
        tuple(n["input_batching_dims"]),
        tuple(n["scatter_indices_batching_dims"]),
    )


def _kinds(op: Operation, n: int) -> list[str] | None:
    """What each operand's update is, if the operands do not meet: an operation or ``set``."""
    body = op.regions[0]
    inputs, updates = body.arguments[:n], body.arguments[n:]
    made = {o.results[0]: o for o in body.operations if len(o.results) == 1}
    found: list[str] = []
    for v, x, u in zip(body.results, inputs, updates, strict=True):
        if v is u:
            found.append("set")
            continue
        o = made.get(v)
        name = o.name.removeprefix("stablehlo.") if o is not None else ""
        if o is None or name not in (*regions.MONOIDS, "subtract"):
            return None
        if o.operands != [x, u] and (o.operands != [u, x] or name == "subtract"):
            return None
        found.append(name)
    return found


@rule("stablehlo.scatter")
def _scatter(scope: Scope, op: Operation, *operands: Array) -> Any:
    n = len(operands) // 2
    xs, indices, updates = operands[:n], operands[n], operands[n + 1 :]
    indices = vectors_last(indices, op.attributes["scatter_dimension_numbers"]["index_vector_dim"])
    params = {
        "dimension_numbers": _numbers(op),
        "indices_are_sorted": bool(op.attributes.get("indices_are_sorted", False)),
        "unique_indices": bool(op.attributes.get("unique_indices", False)),
        "mode": GatherScatterMode.FILL_OR_DROP,
    }
    kinds = _kinds(op, n)
    if kinds is not None:
        found = [_known(kind, x, indices, u, params) for kind, x, u in zip(kinds, xs, updates, strict=True)]
        if all(y is not None for y in found):
            return tuple(found)
    return _one_by_one(scope, op, xs, indices, updates, params)


def _known(kind: str, x: Array, indices: Array, updates: Array, params: dict[str, Any]) -> Array | None:
    """A scatter that nxjax has, or None."""
    if kind == "set":
        return scatters.scatter(x, indices, updates, **params)
    kind = named(kind, x.dtype)
    if x.dtype == dtypes.bool_ and kind in ("and", "or"):
        # Truth values are 0 and 1: or is their maximum, and their minimum.
        small, more = (convert_element_type(v, dtype=dtypes.int32) for v in (x, updates))
        y = _SCATTERS["maximum" if kind == "or" else "minimum"](small, indices, more, **params)
        return convert_element_type(y, dtype=dtypes.bool_)
    if kind not in _SCATTERS or (x.dtype in dtypes.COMPLEX and kind in ("maximum", "minimum")):
        return None
    return _SCATTERS[kind](x, indices, updates, **params)


def _one_by_one(
    scope: Scope,
    op: Operation,
    xs: Sequence[Array],
    indices: Array,
    updates: Sequence[Array],
    params: dict[str, Any],
) -> tuple[Array, ...]:
    """Each window is read, combined by the region and written back, in the order of the indices."""
    full: ScatterDimensionNumbers = params["dimension_numbers"]
    width = indices.shape[-1]
    batch = indices.shape[:-1]
    count = math.prod(batch)
    if not count or 0 in updates[0].shape:
        return tuple(xs)
    vectors = reshape(indices, shape=(count, width))
    # Batching dimensions become components of the index vector.
    places = full.scatter_dims_to_operand_dims
    if full.operand_batching_dims:
        along = [
            reshape(iota(dtype=indices.dtype, shape=batch, dimension=d), shape=(count, 1))
            for d in full.scatter_indices_batching_dims
        ]
        vectors = concatenate(vectors, *along, dimension=1)
        places = (*places, *full.operand_batching_dims)
    inserted = tuple(sorted((*full.inserted_window_dims, *full.operand_batching_dims)))
    outer = tuple(d for d in range(updates[0].ndim) if d not in full.update_window_dims)
    rows = [
        reshape(
            transpose(u, permutation=(*outer, *full.update_window_dims)),
            shape=(count, *(u.shape[d] for d in full.update_window_dims)),
        )
        for u in updates
    ]
    window = rows[0].shape[1:]
    one = ScatterDimensionNumbers(tuple(range(len(window))), inserted, places)
    read = GatherDimensionNumbers(tuple(range(len(window))), inserted, places)
    sizes: list[int] = []
    rest = iter(window)
    for d in range(xs[0].ndim):
        sizes.append(1 if d in inserted else next(rest))
    n = len(xs)

    def turn(*carried: Array) -> Sequence[Array]:
        tables, (i, *state) = carried[: n + 1], carried[n + 1 :]
        at, *news = (
            reshape(
                dynamic_slice(t, i, *(constant(0, dtypes.int32),) * (t.ndim - 1), slice_sizes=(1, *t.shape[1:])),
                shape=t.shape[1:],
            )
            for t in tables
        )
        olds = [
            gather(x, at, dimension_numbers=read, slice_sizes=tuple(sizes), mode=GatherScatterMode.CLIP) for x in state
        ]
        function: Any = lambda *scalars: tuple(scope.function(op.regions[0])(*scalars))
        for _ in window:
            function = vmap(function)
        combined = function(*olds, *news)
        written = [
            scatters.scatter(x, at, y, dimension_numbers=one, mode=GatherScatterMode.FILL_OR_DROP)
            for x, y in zip(state, combined, strict=True)
        ]
        return [add(i, constant(1, dtypes.int32)), *written]

    start = constant(0, dtypes.int32)
    consts, carry = [vectors, *rows], [start, *xs]
    body = stage(turn, [v.type for v in (*consts, *carry)], "scatter")
    return scan_program(body, consts, carry, (), length=count)[1:]
