"""Rows times a matrix of numbers of 4 or 8 bits that share scales in blocks along the depth, as it is packed.

The packed matrix ``data`` is [groups, blocks, units, 8, 4]: eight columns make a group, and of each column four numbers
lie side by side. int8 has number ``4 u + j`` of a block in unit u, place j. uint8 has two numbers of 4 bits in a byte:
number ``4 u + j`` in the low half, and in the high half the one half a block further. Scales, and what 0 stands for,
are [groups, blocks or 1, 8]. Blocks and groups are filled up with anything whose scale is 0, rows with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import abs, add, div, mul, sub
from nxjax.ops.base import CompositeOp, Differentiable, Tangent, check_dtype, like, require
from nxjax.ops.bitwise import and_, shift_right_logical
from nxjax.ops.compare import gt, ne
from nxjax.ops.convert import cast
from nxjax.ops.dot import dot_general
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.rounding import TO_NEAREST_EVEN, round
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, pad, slice
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType

LANES: Final = 8  # columns of a group
UNIT: Final = 4  # numbers of a column that lie side by side
# Blocks of smaller numbers are zeros.
TINY: Final = 1e-30
ACTIVATIONS: Final = ("float32", "int8")
_MATMUL: Final = (((1,), (0,)), ((), ()))


def block_of(data: ArrayType | Array) -> int:
    """How many numbers a block of a packed matrix has."""
    return data.shape[2] * UNIT * (2 if data.dtype == dtypes.uint8 else 1)


def numbers(data: Array, zero: int) -> Array:
    """The whole numbers of a packed matrix, less ``zero``: int32 [blocks, block, groups * 8]."""
    if data.dtype == dtypes.uint8:
        halves = [and_(data, like(data, 15)), shift_right_logical(data, like(data, 4))]
        data = concatenate(*halves, dimension=2)
    groups, blocks, units, *_ = data.shape
    y = transpose(cast(data, dtypes.int32), permutation=(1, 2, 4, 0, 3))
    y = reshape(y, shape=(blocks, units * UNIT, groups * LANES))
    return sub(y, like(y, zero)) if zero else y


def lines(scale: Array, blocks: int) -> Array:
    """Scales as float32 [blocks, groups * 8]."""
    groups, count, lanes = scale.shape
    y = reshape(transpose(cast(scale, dtypes.float32), permutation=(1, 0, 2)), shape=(count, groups * lanes))
    return y if count == blocks else broadcast_in_dim(y, shape=(blocks, groups * lanes), broadcast_dimensions=(0, 1))


def weights(data: Array, scale: Array, least: Array | None, depth: int, columns: int, zero: int) -> Array:
    """The matrix that is meant, float32 [depth, columns]."""
    q = numbers(data, zero)
    spread = lambda s: broadcast_in_dim(lines(s, q.shape[0]), shape=q.shape, broadcast_dimensions=(0, 2))
    y = mul(cast(q, dtypes.float32), spread(scale))
    y = y if least is None else add(y, spread(least))
    y = reshape(y, shape=(q.shape[0] * q.shape[1], q.shape[2]))
    return slice(y, start_indices=(0, 0), limit_indices=(depth, columns), strides=None)


@final
class BlockDot(Differentiable, CompositeOp):
    """``x`` [rows, depth] float32 times a packed matrix with ``columns`` columns.

    Operands: x, data, scale, then ``least`` if there is one: ``w = (number - zero) * scale + least``. ``activations``
    is "float32", for products of floats, or "int8": each block of a row becomes whole numbers from -127 to 127 and a
    scale (its largest magnitude over 127; halves to even), products of these are summed exactly, and sums of blocks
    are scaled and added in float32. The derivative is that of the products of floats.
    """

    name = "block_dot"

    def infer(
        self,
        x: ArrayType,
        data: ArrayType,
        scale: ArrayType,
        /,
        *least: ArrayType,
        columns: int,
        zero: int,
        activations: str,
    ) -> ArrayType:
        check_dtype(self, frozenset((dtypes.float32,)), x)
        check_dtype(self, frozenset((dtypes.int8, dtypes.uint8)), data)
        check_dtype(self, frozenset((dtypes.float16, dtypes.float32)), scale, *least)
        require(self, activations in ACTIVATIONS, "activations are float32 or int8", activations)
        require(self, len(least) <= 1, "one operand at most for what 0 stands for", len(least))
        fits = x.ndim == 2 and data.ndim == 5 and data.shape[3:] == (LANES, UNIT) and block_of(data) in (16, 32)
        if fits:
            groups, blocks = data.shape[:2]
            fits = -(-x.shape[1] // block_of(data)) == blocks and -(-columns // LANES) == groups
            places = ((groups, blocks, LANES), (groups, 1, LANES))
            fits = fits and scale.shape in places and all(t == scale for t in least)
        if not fits:
            raise ShapeError(
                f"{self}: operands do not fit",
                got=", ".join(map(str, (x, data, scale, *least))),
                expected=f"[rows,depth], [groups,blocks,units,{LANES},{UNIT}], [groups,blocks or 1,{LANES}]; "
                "blocks of 16 or 32",
            )
        return ArrayType((x.shape[0], columns), dtypes.float32)

    def expand(
        self, x: Array, data: Array, scale: Array, /, *least: Array, columns: int, zero: int, activations: str
    ) -> Array:
        rows, depth = x.shape
        if activations == "float32":
            w = weights(data, scale, least[0] if least else None, depth, columns, zero)
            return dot_general(x, w, dimension_numbers=_MATMUL)
        q = numbers(data, zero)
        blocks, block, wide = q.shape
        padded = pad(x, like(ArrayType((), x.dtype), 0), padding_config=((0, 0, 0), (0, blocks * block - depth, 0)))
        parts = reshape(padded, shape=(rows, blocks, block))
        most = reduce_max(abs(parts), axes=(2,))
        factor = select_n(gt(most, like(most, TINY)), like(most, 0), div(like(most, 127), most))
        y = mul(parts, broadcast_in_dim(factor, shape=parts.shape, broadcast_dimensions=(0, 1)))
        y = round(y, rounding_method=TO_NEAREST_EVEN)
        whole = cast(select_n(ne(y, y), y, like(y, 0)), dtypes.int32)
        its = div(most, like(most, 127))
        sums = dot_general(whole, q, dimension_numbers=(((2,), (1,)), ((1,), (0,))))
        shape = (blocks, rows, wide)
        sums = mul(cast(sums, dtypes.float32), broadcast_in_dim(its, shape=shape, broadcast_dimensions=(1, 0)))
        sums = mul(sums, broadcast_in_dim(lines(scale, blocks), shape=shape, broadcast_dimensions=(0, 2)))
        total = reduce_sum(sums, axes=(0,))
        if least:
            count = mul(its, cast(reduce_sum(whole, axes=(2,)), dtypes.float32))
            total = add(total, dot_general(count, lines(least[0], blocks), dimension_numbers=_MATMUL))
        return slice(total, start_indices=(0, 0), limit_indices=(rows, columns), strides=None)

    def tangents(
        self,
        y: Array,
        x: Array,
        data: Array,
        scale: Array,
        *least: Array,
        columns: int,
        zero: int,
        activations: str,
    ) -> Sequence[Tangent | None]:
        matrix = lambda s, m: weights(data, s, m, x.shape[1], columns, zero)
        return (
            # No matrix of floats, which would be kept from a forward pass to the backward one.
            lambda t: self(t, data, scale, *least, columns=columns, zero=zero, activations="float32"),
            None,
            lambda t: dot_general(x, matrix(t, None), dimension_numbers=_MATMUL),
            *[lambda t: dot_general(x, matrix(like(t, 0), t), dimension_numbers=_MATMUL)] * len(least),
        )

    def transpose(
        self,
        ct: Array,
        x: UndefinedPrimal,
        data: Array,
        scale: Array,
        /,
        *least: Array,
        columns: int,
        zero: int,
        activations: str,
    ) -> Tangents:
        matrix = weights(data, scale, least[0] if least else None, x.shape[1], columns, zero)
        return dot_general(ct, matrix, dimension_numbers=(((1,), (1,)), ((), ()))), *(None,) * (2 + len(least))


block_dot = BlockDot()
