"""What matrix factorizations share: their family of ops, and matrix notation for writing their derivatives.

Matrices are the last two dimensions, everything before is a batch. ``mm``, ``h``, ``tril`` and the others are functions
of values made of ops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, mul, sub
from nxjax.ops.base import LastAxes, NDArray, check_dtype, like, move_batch, zeros
from nxjax.ops.compare import eq, ge, le
from nxjax.ops.complex import conj as conjugate
from nxjax.ops.complex import real as real_part
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dot import dot_general
from nxjax.ops.precision import Precision
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import dynamic_slice, dynamic_update_slice, pad, slice_axis, zero
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

# What LAPACK factorizes.
FACTORIZABLE: Final = frozenset((dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128))


class MatrixOp(LastAxes):
    """Works on each matrix of a batch: operands batched by `vmap` just have one more leading dimension."""

    allowed: ClassVar[frozenset[DType]] = FACTORIZABLE

    def matrix(self, *types: ArrayType, square: bool = False) -> tuple[Shape, int, int]:
        """Batch, rows and columns of the first operand, checked."""
        x = types[0]
        check_dtype(self, self.allowed, *types)
        if x.ndim < 2:
            raise ShapeError(f"{self}: not a matrix", got=x, expected="at least 2 dimensions")
        *batch, m, n = x.shape
        if square and m != n:
            raise ShapeError(f"{self}: the matrix is not square", got=x, expected="[..., n, n]")
        return tuple(batch), m, n

    def core_ndim(self, **params: Any) -> int:
        return 2

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        y = self(*(move_batch(x, d, size) for x, d in zip(args, dims, strict=True)), **params)
        return y, (0,) * len(y) if self.multi else 0


class EachMatrix(MatrixOp):
    """Its meaning is that of one matrix, for each of the batch."""

    @abstractmethod
    def one(self, a: NDArray, **params: Any) -> Sequence[NDArray]:
        """The results for one matrix; `LinAlgError`, where they are NaN."""

    def eval(self, x: NDArray, /, **params: Any) -> Any:
        out = self.infer(ArrayType(x.shape, x.dtype), **params)
        types = out if self.multi else (out,)
        ys = [np.empty(t.shape, t.dtype) for t in types]
        for i in np.ndindex(*x.shape[:-2]):
            try:
                with np.errstate(all="ignore"):
                    found = self.one(x[i], **params)
            except np.linalg.LinAlgError:
                found = [np.asarray(np.nan).astype(t.dtype) for t in types]
            for y, value in zip(ys, found, strict=True):
                y[i] = value
        return tuple(ys) if self.multi else ys[0]


def finite(x: NDArray) -> NDArray:
    """``x``, which has an answer only if all its numbers are finite: with others LAPACK's iterations may never end."""
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError("not finite")
    return x


# --- notation ---


def t(x: Array) -> Array:
    """Transposed matrices."""
    n = x.ndim
    return transpose(x, permutation=(*range(n - 2), n - 1, n - 2))


def conj(x: Array) -> Array:
    """Complex conjugate, of the same dtype."""
    return conjugate(x) if x.dtype in dtypes.COMPLEX else x


def h(x: Array) -> Array:
    """Adjoint matrices."""
    return conj(t(x))


def real(x: Array) -> Array:
    """Real part, of a real dtype."""
    return real_part(x) if x.dtype in dtypes.COMPLEX else x


def mm(x: Array, y: Array) -> Array:
    """Matrix products of two batches."""
    batch = tuple(range(x.ndim - 2))
    best = (Precision.HIGHEST, Precision.HIGHEST)
    return dot_general(x, y, dimension_numbers=(((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision=best)


def index(shape: Shape, dimension: int) -> Array:
    """int32 position along ``dimension`` (which may count from the back)."""
    return iota(dtype=dtypes.int32, shape=shape, dimension=dimension % len(shape))


def where(mask: Array, x: Array, y: Array) -> Array:
    """``x`` where the mask holds, else ``y``."""
    return select_n(mask, y, x)


def _triangle(x: Array, k: int, upper: bool) -> Array:
    difference = sub(index(x.shape, -1), index(x.shape, -2))
    mask = ge(difference, k) if upper else le(difference, k)
    return where(mask, x, zeros(x.type.strong()))


def tril(x: Array, k: int = 0) -> Array:
    """Zero above diagonal ``k``."""
    return _triangle(x, k, False)


def triu(x: Array, k: int = 0) -> Array:
    """Zero below diagonal ``k``."""
    return _triangle(x, k, True)


def eye(x: Array, n: int | None = None) -> Array:
    """Identities ``[..., n, n]`` for the batch and dtype of ``x``; n is its number of columns if not given."""
    size = x.shape[-1] if n is None else n
    return eye_of(x.type.with_shape((*x.shape[:-2], size, size)))


def eye_of(type: ArrayType) -> Array:
    """Ones on the diagonals of matrices, which need not be square, and zeros elsewhere."""
    return convert_element_type(eq(index(type.shape, -1), index(type.shape, -2)), dtype=type.dtype)


def resized(x: Array, m: int, n: int) -> Array:
    """x cut or padded with zeros to m by n."""
    rows, columns = x.shape[-2:]
    if (rows, columns) == (m, n):
        return x
    config = (*((0, 0, 0),) * (x.ndim - 2), (0, m - rows, 0), (0, n - columns, 0))
    return pad(x, zero(x), padding_config=config)


def sub_columns(x: Array, start: int) -> Array:
    """The columns of matrices from ``start`` on."""
    return slice_axis(x, x.ndim - 1, start, x.shape[-1])


def diagonal(x: Array) -> Array:
    """The diagonals of square matrices, as vectors."""
    return reduce_sum(mul(x, eye(x)), axes=(x.ndim - 1,))


def along_rows(v: Array, shape: Shape) -> Array:
    """Vectors ``[..., n]`` as every row of ``shape`` (scaling columns)."""
    n = len(shape)
    return broadcast_in_dim(v, shape=shape, broadcast_dimensions=(*range(n - 2), n - 1))


def along_columns(v: Array, shape: Shape) -> Array:
    """Vectors ``[..., m]`` as every column of ``shape`` (scaling rows); numbers ``[...]`` everywhere."""
    return broadcast_in_dim(v, shape=shape, broadcast_dimensions=tuple(range(v.ndim)))


def symmetrized(x: Array) -> Array:
    """(x + x^H) / 2"""
    total = add(x, h(x))
    return mul(total, like(total, 0.5))


# --- loops in StableHLO ---


def loop(b: Any, count: int, body: Callable[..., Arrays], *carry: Any) -> tuple[Any, ...]:
    """``for i in range(count): carry = body(i, *carry)`` as a StableHLO while; ``body`` is a function of values."""
    index_type = ArrayType((), dtypes.int32)
    types = (index_type, *(c.type for c in carry))

    def unfinished(inner: Any, i: Any, *_: Any) -> Any:
        limit = inner.constant(count, index_type)
        return inner.compare("LT", i, limit, ArrayType((), dtypes.bool_))

    def step(inner: Any, i: Any, *values: Any) -> Any:
        following = inner.simple("add", (i, inner.constant(1, index_type)), index_type)
        return [following, *inner.inline(lambda *xs: list(body(*xs)), (i, *values))]

    start = b.constant(0, index_type)
    out = b.op("stablehlo.while", (start, *carry), types, "", [(types, unfinished), (types, step)])
    return out[1:]


def position_mask(i: Array, shape: Shape, dimension: int) -> Array:
    """Mask of the places whose position along ``dimension`` is the scalar ``i``."""
    places = index(shape, dimension)
    return eq(places, broadcast_in_dim(i, shape=shape, broadcast_dimensions=()))


def column(x: Array, i: Array) -> Array:
    """Column ``i`` (a scalar) of matrices, as vectors."""
    return _sliced(x, i, -1)


def row(x: Array, i: Array) -> Array:
    """Row ``i`` (a scalar) of matrices, as vectors."""
    return _sliced(x, i, -2)


def _sliced(x: Array, i: Array, dimension: int) -> Array:
    d = x.ndim + dimension
    zero = like(i, 0)
    sizes = (*x.shape[:d], 1, *x.shape[d + 1 :])
    found = dynamic_slice(x, *(i if a == d else zero for a in range(x.ndim)), slice_sizes=sizes)
    return reshape(found, shape=(*x.shape[:d], *x.shape[d + 1 :]))


def with_column(x: Array, i: Array, v: Array) -> Array:
    """``x`` with column ``i`` (a scalar) replaced by the vectors ``v``."""
    zero = like(i, 0)
    starts = (*(zero,) * (x.ndim - 1), i)
    return dynamic_update_slice(x, reshape(v, shape=(*v.shape, 1)), *starts)


def with_row(x: Array, i: Array, v: Array) -> Array:
    """``x`` with row ``i`` (a scalar) replaced by the vectors ``v``."""
    return t(with_column(t(x), i, v))
