"""`jax.lax`'s products that are made of others (`ragged_dot_general`, `scaled_dot`), and how precise products are."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import ml_dtypes
import numpy

from nxjax import numpy as np
from nxjax.errors import AxisError, DtypeError, ParameterError, ShapeError, Shown
from nxjax.lax.algebra import dot_general
from nxjax.numpy.documented import example
from nxjax.ops.dot import DotNumbersLike
from nxjax.ops.precision import PrecisionLike
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


class AccuracyMode(enum.Enum):
    """The requested accuracy of an elementary function. There is only the most exact one here.

    >>> float(nx.lax.exp(0.0, accuracy=AccuracyMode.HIGHEST))
    1.0
    """

    HIGHEST = 1
    DEFAULT = 2


@final
class Tolerance(Shown):
    """The errors that an elementary function may have: ``atol`` and ``rtol``, or ``atol`` and ``ulps``.

    Raises:
        ValueError: negative tolerances, or none.

    >>> Tolerance(rtol=1e-3).rtol
    0.001
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        if min(atol, rtol, ulps) < 0 or atol == rtol == ulps == 0:
            raise ParameterError("Tolerance", got=(atol, rtol, ulps), expected="numbers from 0 on, one of them above 0")
        self.atol = atol
        self.rtol = rtol
        self.ulps = ulps


class DotAlgorithm(NamedTuple):
    """How a product is to be computed, as ``precision`` of `dot_general`.

    With bfloat16 operands and a float32 accumulator, it is a sum of 1, 3, 6 or 9 products of bfloat16, as
    `DotAlgorithmPreset` says. All others are met by products in the precision of their operands, accumulated in
    float32 at least.

    >>> a = DotAlgorithm("float32", "float32", "float32")
    >>> float(nx.lax.dot(nx.ones(2), nx.ones(2), precision=a))
    2.0
    """

    lhs_precision_type: DTypeLike
    rhs_precision_type: DTypeLike
    accumulation_type: DTypeLike
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class RaggedDotDimensionNumbers(Shown):
    """What the dimensions of a ragged product mean.

    Args:
        dot_dimension_numbers: as in `dot_general`.
        lhs_ragged_dimensions: the dimension of ``lhs`` that is split into groups.
        rhs_group_dimensions: the dimension of ``rhs`` that counts groups, if the ragged one is not contracted.

    >>> RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0]).lhs_ragged_dimensions
    (0,)
    """

    def __init__(
        self,
        dot_dimension_numbers: DotNumbersLike,
        lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int],
    ) -> None:
        (lc, rc), (lb, rb) = dot_dimension_numbers
        self.dot_dimension_numbers = ((tuple(lc), tuple(rc)), (tuple(lb), tuple(rb)))
        self.lhs_ragged_dimensions = tuple(lhs_ragged_dimensions)
        self.rhs_group_dimensions = tuple(rhs_group_dimensions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedDotDimensionNumbers) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: ArrayLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """`dot_general` group by group: one dimension of ``lhs`` is split into consecutive groups.

    Args:
        lhs: with one ragged dimension.
        rhs: with a dimension that counts groups, if the ragged dimension is a free one; each group of ``lhs`` is
            multiplied with its part.
        group_sizes: integers ``[groups]``, or ``[batch..., outer..., groups]`` with those dimensions of ``lhs`` that
            stand before the ragged one in its kind (free, contracted or batch).
        ragged_dot_dimension_numbers: a `RaggedDotDimensionNumbers`.
        precision, preferred_element_type: as in `dot_general`.
        group_offset: not available.

    Returns:
        As `dot_general`; with a leading dimension of groups if the ragged dimension is contracted.

    Raises:
        ShapeError, ParameterError: the dimensions do not fit.

    >>> numbers = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    >>> ragged_dot_general(nx.ones((3, 1)), nx.ones((3, 1)), nx.array([1, 2]), numbers).ravel().tolist()
    [1.0, 2.0]
    """
    where = "ragged_dot_general"
    x, y, sizes = (as_value(v, where) for v in (lhs, rhs, group_sizes))
    numbers = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    if group_offset is not None:
        raise ParameterError(f"{where}: group_offset is not available", got=group_offset)
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise ParameterError(f"{where}: one ragged dimension", got=numbers.lhs_ragged_dimensions)
    (ragged,) = numbers.lhs_ragged_dimensions
    if not 0 <= ragged < x.ndim:
        raise ParameterError(f"{where}: the ragged dimension is out of range", got=ragged, expected=f"below {x.ndim}")
    if not sizes.ndim or sizes.dtype not in dtypes.INTEGER:
        raise ShapeError(f"{where}: group_sizes", got=sizes.type, expected="integers with at least 1 dimension")
    free = [d for d in range(x.ndim) if d not in (*lc, *lb)]
    kind = list(lc) if ragged in lc else list(lb) if ragged in lb else free
    outer = [*(() if ragged in lb else lb), *kind[: kind.index(ragged)]]
    groups = sizes.shape[-1]
    expected = (*(x.shape[d] for d in outer), groups)
    if sizes.ndim > 1 and sizes.shape != expected:
        raise ShapeError(f"{where}: group_sizes", got=sizes.type, expected=f"shape {expected} or ({groups},)")
    wanted = 1 if ragged in free else 0
    if len(numbers.rhs_group_dimensions) != wanted:
        raise ParameterError(
            f"{where}: group dimensions of rhs", got=numbers.rhs_group_dimensions, expected=f"{wanted} of them"
        )
    if ragged in lb:
        # Every element of a batch has its own part of rhs already: groups change nothing.
        return dot_general(x, y, ((lc, rc), (lb, rb)), precision, preferred_element_type)
    member = _membership(x, sizes, ragged, outer)  # [groups, *x.shape]
    grouped = np.where(member, x[None], np.zeros((), x.dtype))
    shifted = [d + 1 for d in lc], [d + 1 for d in lb]
    if ragged in free:
        (g,) = numbers.rhs_group_dimensions
        if not 0 <= g < y.ndim or g in (*rc, *rb):
            raise AxisError(f"{where}: the group dimension of rhs", got=g, expected="a free one")
        if y.shape[g] != groups:
            raise ShapeError(f"{where}: groups", got=f"{y.shape[g]} in rhs and {groups} in group_sizes")
        pairs = (((0, *shifted[0]), (g, *rc)), (tuple(shifted[1]), rb))
        return dot_general(grouped, y, pairs, precision, preferred_element_type)
    repeated = np.broadcast_to(y[None], (groups, *y.shape))
    pairs = ((tuple(shifted[0]), tuple(d + 1 for d in rc)), ((0, *shifted[1]), (0, *(d + 1 for d in rb))))
    return dot_general(grouped, repeated, pairs, precision, preferred_element_type)


def _membership(x: Array, sizes: Array, ragged: int, outer: Sequence[int]) -> Array:
    """[groups, *x.shape], true where an element's place along ``ragged`` is in the group."""
    ends = np.cumsum(sizes, -1)
    full = (sizes.shape[-1], *x.shape)
    if sizes.ndim > 1:
        order = [outer.index(d) for d in sorted(outer)]
        shape = (sizes.shape[-1], *(x.shape[d] if d in outer else 1 for d in range(x.ndim)))
        spread = lambda v: np.moveaxis(v, -1, 0).transpose(0, *(1 + i for i in order)).reshape(shape)
    else:
        spread = lambda v: v.reshape(-1, *(1,) * x.ndim)
    place = np.arange(x.shape[ragged]).reshape((1, *(-1 if d == ragged else 1 for d in range(x.ndim))))
    return np.broadcast_to((place >= spread(ends - sizes)) & (place < spread(ends)), full)


@example("jnp.ones((1, 4)), jnp.ones((4, 1)), lhs_scale=jnp.array([[1.0, 2.0]])", "[[6.0]]", then=".tolist()")
def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotNumbersLike | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`dot_general` of ``lhs * lhs_scale`` and ``rhs * rhs_scale``; a scale is shared by a block of elements.

    Args:
        lhs, rhs: arrays, usually of a float8 dtype.
        lhs_scale, rhs_scale: as their operand in shape, but for contracted dimensions, which they divide; None is 1.
        dimension_numbers: as in `dot_general`; without them, matrices with equal leading dimensions.
        preferred_element_type: of the result, by default bfloat16. The factors are bfloat16.

    Raises:
        ShapeError: a scale does not fit.
    """
    x, y = as_value(lhs, "scaled_dot"), as_value(rhs, "scaled_dot")
    if dimension_numbers is None:
        if x.ndim < 2:
            raise ShapeError("scaled_dot: needs matrices", got=x.type, expected="at least 2 dimensions")
        batch = tuple(range(x.ndim - 2))
        dimension_numbers = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    out = dtypes.bfloat16 if preferred_element_type is None else dtypes.as_dtype(preferred_element_type)
    if out not in dtypes.FLOAT:
        raise DtypeError("scaled_dot: preferred_element_type", got=out, expected="a float dtype")
    (lc, rc), _ = dimension_numbers
    wide = [block_scaled(v, s, dims, dtypes.bfloat16) for v, s, dims in ((x, lhs_scale, lc), (y, rhs_scale, rc))]
    return dot_general(*wide, dimension_numbers, preferred_element_type=out)


def block_scaled(x: Array, scale: Any, contracted: Sequence[int], dtype: Any) -> Array:
    """``x`` times its scale, each shared by a block of elements, in ``dtype``."""
    wide = x.astype(dtype)
    if scale is None:
        return wide
    # Scales may be powers of two in a dtype that holds nothing else, and that arrays here do not have.
    if getattr(scale, "dtype", None) == ml_dtypes.float8_e8m0fnu:
        scale = numpy.asarray(scale).astype("float32")
    s = as_value(scale, "scaled_dot")
    fits = s.ndim == x.ndim and all(
        n % m == 0 if m and d in contracted else n == m for d, (n, m) in enumerate(zip(x.shape, s.shape, strict=True))
    )
    if not fits:
        raise ShapeError("scaled_dot: a scale does not fit", got=f"{s.type} for {x.type}", expected="one per block")
    for d in contracted:
        s = np.repeat(s, x.shape[d] // s.shape[d], d)
    return wide * s.astype(wide.dtype)
