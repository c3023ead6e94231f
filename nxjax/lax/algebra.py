"""`jax.lax`'s products and Fourier transforms, each thin over one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes

from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.documented import example, shown
from nxjax.ops import dot as dot_ops
from nxjax.ops import fft as fft_ops
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import require
from nxjax.ops.dot import DotNumbersLike
from nxjax.ops.fft import FftType
from nxjax.ops.precision import PrecisionLike, canonical_precision
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


def _axes(values: Any) -> tuple[int, ...]:
    return (values,) if isinstance(values, int) else tuple(int(v) for v in values)


def _rank(dtype: dtypes.DType) -> tuple[bool, int, int, int, bool]:
    """Of two dtypes in one product the higher is the result's: complex, then by range, precision, width and sign."""
    part = dtypes.real_part(dtype) if dtype in dtypes.COMPLEX else dtype
    info = ml_dtypes.finfo(part) if part in dtypes.FLOAT else None
    size = (info.maxexp, info.nmant) if info else (-1, -1)
    width = 1 if part == dtypes.bool_ else dtypes.bit_width(part)
    return (dtype in dtypes.COMPLEX, *size, width, part not in dtypes.UNSIGNED)


def _holds(wanted: dtypes.DType, dtype: dtypes.DType) -> bool:
    """Whether products of ``dtype`` can be accumulated in ``wanted``."""
    if dtype == wanted or dtype in dtypes.INTEGER:
        return True
    return dtype in dtypes.INEXACT and wanted in (dtypes.COMPLEX if dtype in dtypes.COMPLEX else dtypes.INEXACT)


@example("jnp.ones((2, 3)), jnp.ones((4, 3)), (((1,), (1,)), ((), ()))", "(2, 4)", then=".shape")
def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotNumbersLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike = None,
) -> Array:
    """Sum of products over contracting dimensions, for each index of the batch dimensions.

    Args:
        lhs, rhs: arrays; of two dtypes, the wider one counts.
        dimension_numbers: ``((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))``.
        precision: None, a `Precision`, its name, or a pair of them; or a `DotAlgorithmPreset`.
        preferred_element_type: dtype of accumulator and result.

    Returns:
        Batch dimensions, then free dimensions of ``lhs``, then those of ``rhs``.

    Raises:
        ShapeError: paired dimensions differ in size.
    """
    x, y = as_value(lhs, "dot_general"), as_value(rhs, "dot_general")
    if x.dtype != y.dtype:
        dtype = max(x.dtype, y.dtype, key=_rank)
        if preferred_element_type is not None and dtypes.as_dtype(preferred_element_type) in dtypes.INTEGER:
            # Integers beside floats, summed as integers: the floats are cut to them first, a choice that JAX made.
            dtype = dtypes.as_dtype(preferred_element_type)
        x, y = (v if v.dtype == dtype else ops.convert_element_type(v, dtype=dtype) for v in (x, y))
    try:
        (xc, yc), (xb, yb) = dimension_numbers
        numbers = ((_axes(xc), _axes(yc)), (_axes(xb), _axes(yb)))
    except (TypeError, ValueError):
        raise ParameterError(
            "dot_general: not dimension numbers",
            got=repr(dimension_numbers),
            expected="((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)), each a sequence of ints",
        ) from None
    wanted = None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type)
    if wanted is not None and wanted != x.dtype and x.dtype == dtypes.bool_:
        # Truth values are counted, not joined by "or".
        x, y = (ops.convert_element_type(v, dtype=wanted) for v in (x, y))
    if wanted is not None and not _holds(wanted, x.dtype):
        z = dot_ops.dot_general(x, y, dimension_numbers=numbers, precision=canonical_precision(precision))
        return ops.convert_element_type(z, dtype=wanted)
    return dot_ops.dot_general(
        x, y, dimension_numbers=numbers, precision=canonical_precision(precision), preferred_element_type=wanted
    )


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotNumbersLike | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Product of vectors and matrices, or `dot_general` if ``dimension_numbers`` are given.

    Raises:
        ShapeError: the operands have more than two dimensions, or do not fit.

    >>> x = jnp.array([[1, 2], [3, 4]], jnp.int8)
    >>> lax.dot(x, x)
    Array([[ 7, 10],
           [15, 22]], dtype=int8)
    >>> lax.dot(x, x[0], preferred_element_type=jnp.int32)
    Array([ 5, 11], dtype=int32)
    """
    x, y = as_value(lhs, "dot"), as_value(rhs, "dot")
    if dimension_numbers is None:
        if x.ndim not in (1, 2) or y.ndim not in (1, 2) or x.shape[-1] != y.shape[0]:
            raise ShapeError(
                "dot: not a product of matrices or vectors",
                got=f"{x.type} and {y.type}",
                expected="1 or 2 dimensions each, the last of lhs as large as the first of rhs",
                fix="give dimension_numbers, or use nx.numpy.matmul",
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Matrix products over equal leading dimensions: ``[..., m, k]`` and ``[..., k, n]`` to ``[..., m, n]``.

    Raises:
        ShapeError: the operands differ in rank, are not matrices, or do not fit.

    >>> x = jnp.array([[[1, 2]], [[3, 4]]])
    >>> lax.batch_matmul(x, jnp.ones((2, 2, 1), int)).ravel()
    Array([3, 7], dtype=int32)
    """
    x, y = as_value(lhs, "batch_matmul"), as_value(rhs, "batch_matmul")
    if x.ndim != y.ndim or x.ndim < 2:
        raise ShapeError(
            "batch_matmul: operands differ in rank, or are no matrices",
            got=f"{x.type} and {y.type}",
            expected="the same number of dimensions, at least 2",
        )
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)


@shown(
    "x = jnp.array([[1], [2], [3]])",
    "",
    "lax.ragged_dot(x, jnp.array([[[1]], [[10]]]), jnp.array([1, 2]))",
    "Array([[ 1],\n       [20],\n       [30]], dtype=int32)",
    raises="ShapeError: the operands do not fit.",
)
def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Rows of ``lhs``, in consecutive groups, times the matrix of their group; zero for rows of no group.

    Args:
        lhs: ``[m, k]``.
        rhs: ``[groups, k, n]``.
        group_sizes: how many rows each group has, integers ``[groups]``.
        group_offset: not available.
    """
    x, y, sizes = as_value(lhs, "ragged_dot"), as_value(rhs, "ragged_dot"), as_value(group_sizes, "ragged_dot")
    require("ragged_dot", group_offset is None, "group_offset is not available", group_offset)
    if x.ndim != 2 or y.ndim != 3 or sizes.shape != y.shape[:1] or x.shape[1] != y.shape[1]:
        raise ShapeError(
            "ragged_dot: operands do not fit",
            got=f"{x.type}, {y.type} and {sizes.type}",
            expected="[m, k], [groups, k, n] and [groups]",
        )
    m, (groups, k, _) = x.shape[0], y.shape
    ends = ops.cumsum(sizes, axis=0)
    starts = ops.sub(ends, sizes)
    starts, ends = (ops.broadcast_in_dim(v, shape=(m, groups), broadcast_dimensions=(1,)) for v in (starts, ends))
    row = ops.iota(dtype=sizes.dtype, shape=(m, groups), dimension=0)
    member = ops.convert_element_type(ops.and_(ops.ge(row, starts), ops.lt(row, ends)), dtype=x.dtype)
    shape = (m, groups, k)
    spread = ops.mul(
        ops.broadcast_in_dim(member, shape=shape, broadcast_dimensions=(0, 1)),
        ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=(0, 2)),
    )
    return dot_general(spread, y, (((1, 2), (0, 1)), ((), ())), precision, preferred_element_type)


@example('jnp.array([1.0, 0.0, -1.0, 0.0]), "rfft", (4,)', "Array([0.+0.j, 2.+0.j, 0.+0.j], dtype=complex64)")
def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Fourier transform of the last ``len(fft_lengths)`` dimensions (at most 3).

    Args:
        x: array; brought to a real (RFFT) or complex dtype.
        fft_type: an `FftType` or its name.
        fft_lengths: sizes of the (real) transformed dimensions.

    Raises:
        ShapeError: the lengths do not fit.
        ParameterError: no such transform, or more than 3 lengths.
    """
    value = as_value(x, "fft")
    if isinstance(fft_type, str):
        if fft_type.upper() not in FftType.__members__:
            raise ParameterError("fft: no such transform", got=repr(fft_type), expected=", ".join(FftType.__members__))
        fft_type = FftType[fft_type.upper()]
    if not isinstance(fft_type, FftType):
        raise ParameterError("fft: fft_type", got=repr(fft_type), expected="a FftType or its name")
    real = fft_type is FftType.RFFT
    dtype = value.dtype
    if not (real and dtype in dtypes.COMPLEX):
        wide = dtypes.to_inexact(dtype)
        dtype = (wide if dtypes.bit_width(wide) >= 32 else dtypes.float32) if real else dtypes.complex_of(wide)
    if dtype != value.dtype:
        value = ops.convert_element_type(value, dtype=dtype)
    try:
        lengths = _axes(fft_lengths)
    except TypeError:
        raise ParameterError("fft: fft_lengths", got=repr(fft_lengths), expected="a sequence of ints") from None
    return fft_ops.fft(value, fft_type=fft_type, fft_lengths=lengths) if lengths else value
