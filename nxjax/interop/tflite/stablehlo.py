"""Rules of StableHLO's operations as operators of TFLite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.graph import TFLiteNode
from nxjax.interop.tflite.shapes import ints
from nxjax.interop.tflite.walk import TFLiteScope, rule
from nxjax.stablehlo.random import drawn_bits
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

_SAME: Final[dict[str, Callable[..., Any]]] = {
    "LOGISTIC": nn.sigmoid, "ABS": jnp.abs, "COSINE": jnp.cos, "EXPONENTIAL": jnp.exp, "FLOOR": jnp.floor,
    "LOG": jnp.log, "NEGATE": jnp.negative, "RSQRT": lax.rsqrt, "TANH": jnp.tanh, "CBRT": jnp.cbrt, "ADD": jnp.add,
    "SUBTRACT": jnp.subtract, "MULTIPLY": jnp.multiply, "DIVIDE": lax.div, "MAXIMUM": jnp.maximum,
    "MINIMUM": jnp.minimum, "POWER": jnp.power, "REMAINDER": lax.rem, "AND": jnp.bitwise_and, "OR": jnp.bitwise_or,
    "SHIFT_LEFT": lax.shift_left, "SELECT": jnp.where, "CLAMP": lax.clamp,
}  # fmt: skip


def _of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: function(*xs)


for _name, _function in _SAME.items():
    rule(f"STABLEHLO_{_name}")(_of(_function))


def body_of(scope: TFLiteScope, index: int) -> Callable[..., Any]:
    """A graph of scalars as a function."""

    def run(*xs: Any) -> Any:
        ys = scope.walker.call(index, xs)
        return ys[0] if len(ys) == 1 else tuple(ys)

    return run


@rule("STABLEHLO_COMPOSITE", on_grids="held")
def _composite(*xs: Any, decomposition_subgraph_index: int, scope: TFLiteScope) -> Any:
    return tuple(scope.walker.call(decomposition_subgraph_index, xs))


@rule("STABLEHLO_CASE", on_grids="held")
def _case(index: Any, *xs: Any, branch_subgraph_indices: Any, scope: TFLiteScope) -> Any:
    branches = ints(branch_subgraph_indices)
    calls = [lambda *v, i=i: tuple(scope.walker.call(i, v)) for i in branches]
    at = index.reshape(())
    # What is out of range takes the last branch.
    at = jnp.where((at < 0) | (at >= len(branches)), len(branches) - 1, at)
    return tuple(lax.switch(at, calls, *xs))


@rule("STABLEHLO_COMPARE")
def _compare(x: Any, y: Any, *, comparison_direction: int) -> Any:
    functions = (jnp.equal, jnp.not_equal, jnp.greater_equal, jnp.greater, jnp.less_equal, jnp.less)
    return functions[comparison_direction](x, y)


@rule("STABLEHLO_CONVERT")
def _convert(x: Any, *, node: TFLiteNode) -> Any:
    return x.astype(node.out.dtype)


@rule("STABLEHLO_RESHAPE")
def _reshape(x: Any, *, node: TFLiteNode) -> Any:
    return x.reshape(node.out.shape)


@rule("STABLEHLO_TRANSPOSE")
def _transpose(x: Any, *, permutation: Any) -> Any:
    return x.transpose(ints(permutation))


@rule("STABLEHLO_CONCATENATE")
def _concatenate(*xs: Any, dimension: int) -> Any:
    return jnp.concatenate(xs, dimension)


@rule("STABLEHLO_BROADCAST_IN_DIM", known=("shape",))
def _broadcast(x: Any, shape: Any = None, *, broadcast_dimensions: Any, node: TFLiteNode) -> Any:
    wanted = node.out.shape if shape is None else ints(shape)
    return lax.broadcast_in_dim(x, wanted, ints(broadcast_dimensions) if broadcast_dimensions is not None else ())


@rule("STABLEHLO_SLICE")
def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    return lax.slice(x, ints(start_indices), ints(limit_indices), ints(strides))


@rule("STABLEHLO_DYNAMIC_SLICE")
def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Any:
    places = [s.reshape(()) for s in starts]
    return lax.dynamic_slice(x, places, ints(slice_sizes), allow_negative_indices=False)


@rule("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, [s.reshape(()) for s in starts], allow_negative_indices=False)


@rule("STABLEHLO_PAD")
def _pad(x: Any, filled: Any, *, edge_padding_low: Any, edge_padding_high: Any, interior_padding: Any) -> Any:
    rows = zip(ints(edge_padding_low), ints(edge_padding_high), ints(interior_padding), strict=True)
    return lax.pad(x, filled.reshape(()), list(rows))


@rule("STABLEHLO_IOTA")
def _iota(*, iota_dimension: int, node: TFLiteNode) -> Any:
    return lax.broadcasted_iota(node.out.dtype, node.out.shape, iota_dimension)


@rule("STABLEHLO_DOT_GENERAL")
def _dot(
    x: Any, y: Any, *, lhs_batching_dimensions: Any, rhs_batching_dimensions: Any, lhs_contracting_dimensions: Any,
    rhs_contracting_dimensions: Any,
) -> Any:  # fmt: skip
    of = lambda v: () if v is None else ints(v)
    contracting = of(lhs_contracting_dimensions), of(rhs_contracting_dimensions)
    return lax.dot_general(x, y, (contracting, (of(lhs_batching_dimensions), of(rhs_batching_dimensions))))


@rule("STABLEHLO_CONVOLUTION")
def _convolution(
    x: Any, w: Any, *, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any, window_reversal: Any,
    input_batch_dimension: int, input_feature_dimension: int, input_spatial_dimensions: Any,
    kernel_input_feature_dimension: int, kernel_output_feature_dimension: int, kernel_spatial_dimensions: Any,
    output_batch_dimension: int, output_feature_dimension: int, output_spatial_dimensions: Any,
    feature_group_count: int, batch_group_count: int,
) -> Any:  # fmt: skip
    spatial = ints(kernel_spatial_dimensions)
    if window_reversal is not None:
        w = jnp.flip(w, tuple(d for d, turned in zip(spatial, window_reversal, strict=True) if turned))
    numbers = lax.ConvDimensionNumbers(
        (input_batch_dimension, input_feature_dimension, *ints(input_spatial_dimensions)),
        (kernel_output_feature_dimension, kernel_input_feature_dimension, *spatial),
        (output_batch_dimension, output_feature_dimension, *ints(output_spatial_dimensions)),
    )
    edges = [(int(a), int(b)) for a, b in np.asarray(padding).reshape(-1, 2)]
    return lax.conv_general_dilated(
        x, w, ints(window_strides), edges, ints(lhs_dilation), ints(rhs_dilation), numbers, feature_group_count,
        batch_group_count,
    )  # fmt: skip


@rule("STABLEHLO_REDUCE")
def _reduce(*xs: Any, dimensions: Any, body_subgraph_index: int, scope: TFLiteScope) -> Any:
    n = len(xs) // 2
    one = n == 1
    start = tuple(v.reshape(()) for v in xs[n:])
    run = body_of(scope, body_subgraph_index)
    if one:
        return lax.reduce(xs[0], start[0], run, ints(dimensions))
    return tuple(lax.reduce(tuple(xs[:n]), start, lambda a, b: run(*a, *b), ints(dimensions)))


@rule("STABLEHLO_REDUCE_WINDOW")
def _reduce_window(
    x: Any, start: Any, *, window_dimensions: Any, window_strides: Any, base_dilations: Any, window_dilations: Any,
    padding: Any, body_subgraph_index: int, scope: TFLiteScope,
) -> Any:  # fmt: skip
    of = lambda v: (1,) * x.ndim if v is None or not len(v) else ints(v)
    edges = [(0, 0)] * x.ndim if padding is None or not len(padding) else np.asarray(padding).reshape(-1, 2).tolist()
    return lax.reduce_window(
        x, start.reshape(()), body_of(scope, body_subgraph_index), of(window_dimensions), of(window_strides),
        [tuple(e) for e in edges], of(base_dilations), of(window_dilations),
    )  # fmt: skip


@rule("STABLEHLO_SORT")
def _sort(*xs: Any, dimension: int, comparator_subgraph_index: int, scope: TFLiteScope) -> Any:
    kinds = [n.kind for n in scope.walker.graph(comparator_subgraph_index).nodes]
    if len(xs) != 1 or len(kinds) != 1 or kinds[0] not in ("STABLEHLO_COMPARE", "LESS", "GREATER"):
        raise Refused("from_tflite: STABLEHLO_SORT by a comparison of its own", got=", ".join(kinds))
    run = body_of(scope, comparator_subgraph_index)
    rising = bool(np.asarray(run(jnp.zeros((), xs[0].dtype), jnp.ones((), xs[0].dtype))))
    y = lax.sort(xs[0], dimension=dimension)
    return y if rising else jnp.flip(y, dimension)


def _indices(index: Any, dim: int) -> Any:
    """Index vectors along the last dimension."""
    return index[..., None] if dim == index.ndim else jnp.moveaxis(index, dim, -1)


@rule("STABLEHLO_GATHER")
def _gather(
    x: Any, index: Any, *, offset_dims: Any, collapsed_slice_dims: Any, start_index_map: Any, index_vector_dim: int,
    slice_sizes: Any,
) -> Any:  # fmt: skip
    of = lambda v: () if v is None else ints(v)
    numbers = lax.GatherDimensionNumbers(of(offset_dims), of(collapsed_slice_dims), of(start_index_map))
    return lax.gather(x, _indices(index, index_vector_dim), numbers, of(slice_sizes), mode="clip")


_SCATTERED: Final = {
    "ADD": lax.scatter_add, "MULTIPLY": lax.scatter_mul, "MUL": lax.scatter_mul, "MAXIMUM": lax.scatter_max,
    "MINIMUM": lax.scatter_min,
}  # fmt: skip


@rule("STABLEHLO_SCATTER")
def _scatter(
    x: Any, index: Any, updates: Any, *, update_window_dims: Any, inserted_window_dims: Any,
    scatter_dims_to_operand_dims: Any, index_vector_dim: int, update_computation_subgraph_index: int,
    scope: TFLiteScope, node: TFLiteNode,
) -> Any:  # fmt: skip
    of = lambda v: () if v is None else ints(v)
    graph = scope.walker.graph(update_computation_subgraph_index)
    numbers = lax.ScatterDimensionNumbers(
        of(update_window_dims), of(inserted_window_dims), of(scatter_dims_to_operand_dims)
    )
    kinds = [n.kind.removeprefix("STABLEHLO_") for n in graph.nodes]
    if not kinds and graph.outputs == graph.inputs[1:]:
        function: Any = lax.scatter
    elif len(kinds) == 1 and kinds[0] in _SCATTERED:
        function = _SCATTERED[kinds[0]]
    else:
        raise Refused("from_tflite: STABLEHLO_SCATTER with a function of its own", got=f"{node}: {kinds}")
    return function(x, _indices(index, index_vector_dim), updates, numbers)


@rule("STABLEHLO_RNG_BIT_GENERATOR")
def _bits(state: Any, *, algorithm: int, node: TFLiteNode) -> Any:
    out = node.results[1]
    if out is None or state.dtype != dtypes.uint64:
        raise Refused("from_tflite: random bits whose state is not made of 64-bit words", got=node)
    # 0: the generator of the runtime, which is Philox; 2: Threefry.
    if algorithm != 2 or dtypes.bit_width(out.dtype) != 32:
        return drawn_bits(state, ArrayType(out.shape, out.dtype), threefry=algorithm == 2)
    # LiteRT takes both words of a counter one after the other, XLA those of all counters.
    size = math.prod(out.shape)
    after, pairs = drawn_bits(state, ArrayType((-(-size // 2),), dtypes.uint64), threefry=True)
    return after, lax.bitcast_convert_type(pairs, out.dtype).reshape(-1)[:size].reshape(out.shape)


@rule("STABLEHLO_CUSTOM_CALL")
def _custom_call(*xs: Any, node: TFLiteNode) -> Any:
    raise Refused("from_tflite: a custom call", got=node)
