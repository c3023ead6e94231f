"""Rules of products: dot_general, convolution and the older forms of them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.dot import dot_general
from nxjax.ops.precision import Precision, PrecisionPair, algorithm
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import rev, transpose
from nxjax.stablehlo.shapes import numbers
from nxjax.stablehlo.walk import Operation, Scope, refused, result, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType


def precision(op: Operation) -> PrecisionPair:
    """``precision_config`` and ``algorithm`` as nxjax's products take them."""
    if found := algorithm(*_kinds(op), _algorithm(op).get("num_primitive_operations", 1)):
        return found
    words: Sequence[str] = op.attributes.get("precision_config") or ()
    if len(words) != 2 or all(w == "DEFAULT" for w in words):
        return None
    return Precision[words[0]], Precision[words[1]]


def _one_dtype(x: Array, y: Array, out: DType) -> tuple[Array, Array]:
    """Factors of different dtypes in the result's, which holds both."""
    if x.dtype == y.dtype:
        return x, y
    wide = out if out in dtypes.INEXACT or out in dtypes.INTEGER else x.dtype
    return convert_element_type(x, dtype=wide), convert_element_type(y, dtype=wide)


_PARTS = {"f32": dtypes.float32, "f64": dtypes.float64, "bf16": dtypes.bfloat16, "f16": dtypes.float16}


def _algorithm(op: Operation) -> dict[str, Any]:
    found = op.attributes.get("algorithm")
    return found if isinstance(found, dict) else {}


def _kinds(op: Operation) -> tuple[DType | None, ...]:
    """The dtypes that an ``algorithm`` asks for: of the operands and of their sums; None where it does not say."""
    names = ("lhs_precision_type", "rhs_precision_type", "accumulation_type")
    return tuple(_PARTS.get(str(_algorithm(op).get(name))) for name in names)


def _rounded(op: Operation, x: Array, y: Array) -> tuple[Array, Array]:
    """Factors rounded as an ``algorithm`` of one product asks for."""
    once = _algorithm(op).get("num_primitive_operations") == 1
    return tuple(
        convert_element_type(v, dtype=d) if once and d is not None and d != v.dtype and v.dtype in dtypes.FLOAT else v
        for v, d in zip((x, y), _kinds(op)[:2], strict=True)
    )


def dot(x: Array, y: Array, contract: Any, batch: Any, out: DType, how: PrecisionPair = None) -> Array:
    """The general product with a result of dtype ``out``."""
    x, y = _one_dtype(x, y, out)
    if x.dtype == dtypes.bool_:
        left, right = (convert_element_type(v, dtype=dtypes.int32) for v in (x, y))
        found = dot(left, right, contract, batch, dtypes.int32)
        return convert_element_type(found, dtype=out)
    numbers = ((tuple(contract[0]), tuple(contract[1])), (tuple(batch[0]), tuple(batch[1])))
    narrow = dtypes.bit_width(out) < dtypes.bit_width(x.dtype) and out in dtypes.INEXACT
    preferred = x.dtype if narrow else out
    y = dot_general(
        x,
        y,
        dimension_numbers=numbers,
        precision=how,
        preferred_element_type=None if preferred == x.dtype else preferred,
    )
    return y if y.dtype == out else convert_element_type(y, dtype=out)


@rule("stablehlo.dot_general")
def _dot_general(_: Scope, op: Operation, x: Array, y: Array) -> Array:
    n = op.attributes["dot_dimension_numbers"]
    x, y = _rounded(op, x, y)
    contract = n["lhs_contracting_dimensions"], n["rhs_contracting_dimensions"]
    batch = n["lhs_batching_dimensions"], n["rhs_batching_dimensions"]
    return dot(x, y, contract, batch, result(op).dtype, precision(op))


@rule("stablehlo.dot")
def _dot(_: Scope, op: Operation, x: Array, y: Array) -> Array:
    return dot(x, y, ((x.ndim - 1,), (0,)), ((), ()), result(op).dtype, precision(op))


@rule("stablehlo.einsum")
def _einsum(_: Scope, op: Operation, x: Array, y: Array) -> Array:
    inputs, out = op.attributes["einsum_config"].replace(" ", "").split("->")
    left, right = (_named(part, v.ndim) for part, v in zip(inputs.split(","), (x, y), strict=True))
    out = _named(out, result(op).ndim)
    (x, left), (y, right) = _summed(x, left, right + out), _summed(y, right, left + out)
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in out]
    over = [c for c in shared if c not in out]
    pairs = [tuple(side.index(c) for c in over) for side in (left, right)]
    batches = [tuple(side.index(c) for c in batch) for side in (left, right)]
    made = [*batch, *(c for c in left if c not in shared), *(c for c in right if c not in shared)]
    z = dot(x, y, pairs, batches, result(op).dtype)
    return transpose(z, permutation=tuple(made.index(c) for c in out))


@rule("stablehlo.unary_einsum")
def _unary_einsum(_: Scope, op: Operation, x: Array) -> Array:
    left, out = op.attributes["einsum_config"].replace(" ", "").split("->")
    left, out = _named(left, x.ndim), _named(out, result(op).ndim)
    x, left = _summed(x, left, out)
    return transpose(x, permutation=tuple(left.index(c) for c in out))


def _named(part: str, ndim: int) -> str:
    """One letter per dimension, those of ``...`` included."""
    missing = ndim - len(part.replace("...", ""))
    return part.replace("...", string.ascii_uppercase[26 - missing :] if missing else "")


def _summed(x: Array, names: str, others: str) -> tuple[Array, str]:
    """``x`` summed over the letters that nothing else has."""
    axes = tuple(i for i, c in enumerate(names) if c not in others)
    return (reduce_sum(x, axes=axes), "".join(c for c in names if c in others)) if axes else (x, names)


def _convolution(op: Operation, x: Array, kernel: Array, padding: Any) -> Array:
    a, out = op.attributes, result(op)
    n = a["dimension_numbers"]
    spatial = tuple(n["kernel_spatial_dimensions"])
    ones = (1,) * len(spatial)
    turned = a.get("window_reversal")
    if turned is not None and any(turned):
        kernel = rev(kernel, dimensions=tuple(d for d, r in zip(spatial, turned, strict=True) if r))
    numbers = ConvDimensionNumbers(
        (n["input_batch_dimension"], n["input_feature_dimension"], *n["input_spatial_dimensions"]),
        (n["kernel_output_feature_dimension"], n["kernel_input_feature_dimension"], *spatial),
        (n["output_batch_dimension"], n["output_feature_dimension"], *n["output_spatial_dimensions"]),
    )
    x, kernel = _one_dtype(x, kernel, out.dtype)
    pads = [(0, 0)] * len(spatial) if padding is None else [(int(l), int(h)) for l, h in padding]
    narrow = dtypes.bit_width(out.dtype) < dtypes.bit_width(x.dtype)
    preferred = None if narrow or out.dtype == x.dtype else out.dtype
    y = conv_general_dilated(
        x,
        kernel,
        window_strides=tuple(a.get("window_strides") or ones),
        padding=tuple(pads),
        lhs_dilation=tuple(a.get("lhs_dilation") or ones),
        rhs_dilation=tuple(a.get("rhs_dilation") or ones),
        feature_group_count=a["feature_group_count"],
        batch_group_count=a["batch_group_count"],
        dimension_numbers=numbers,
        precision=precision(op),
        preferred_element_type=preferred,
    )
    return y if y.dtype == out.dtype else convert_element_type(y, dtype=out.dtype)


@rule("stablehlo.convolution")
def _conv(_: Scope, op: Operation, x: Array, kernel: Array) -> Array:
    return _convolution(op, x, kernel, op.attributes.get("padding"))


@rule("stablehlo.dynamic_conv")
def _dynamic_conv(scope: Scope, op: Operation, x: Array, kernel: Array, padding: Array) -> Array:
    flat = numbers(scope, op, 2)
    return _convolution(op, x, kernel, [flat[i : i + 2] for i in range(0, len(flat), 2)])


@rule("chlo.ragged_dot")
def _ragged_dot(_: Scope, op: Operation, *xs: Array) -> Array:
    raise refused(op, "groups of sizes that are data have no form here", "export the product with dense groups")
