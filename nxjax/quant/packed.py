"""PackedQArray: a matrix of a `QArray` laid out for products with rows; numbers of 4 bits lie two to a byte.

See `ops.block_dot` for the layout. Knows no decoder.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.block_dot import ACTIVATIONS, LANES, UNIT, block_dot, lines, numbers, weights
from nxjax.ops.convert import cast
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, slice
from nxjax.quant.qarray import QArray
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array
from nxjax.trace.tree_nodes import register_pytree_node

NDArray = np.ndarray[Any, Any]


class PackedLayout(NamedTuple):
    """What is known of a packed matrix without its numbers.

    Attributes:
        depth, columns: of the matrix that rows are multiplied with.
        stored: dtype of the numbers, "int4" or "int8".
        zero: what is to be taken from a packed number.
        groups: scales of a column.
        flipped: the array is the transposed matrix, [columns, depth], as tables of embeddings are.
        activations: in what rows are multiplied: "float32", or "int8" with a scale for each block.
    """

    depth: int
    columns: int
    stored: str
    zero: int
    groups: int
    flipped: bool
    activations: str


@final
class PackedQArray(QArray):
    """A `QArray` that is read by `product` as it lies; everything else sees it unpacked.

    Args:
        data: uint8 (two numbers of 4 bits each) or int8, as `ops.block_dot` lays them out.
        scales, leasts: float16 where that is exact, else float32; ``leasts`` may be None.
        layout: the rest.

    >>> import numpy as np
    >>> w = QArray(np.ones((64, 3), np.int8), np.full((2, 3), 0.5, np.float32))
    >>> packed(w).product(nx.numpy.ones((1, 64)))
    Array([[32., 32., 32.]], dtype=float32)
    """

    __slots__ = ("data", "layout", "leasts", "scales")

    def __init__(self, data: Any, scales: Any, leasts: Any, layout: PackedLayout) -> None:
        self.data, self.scales, self.leasts, self.layout = data, scales, leasts, layout

    @property
    def shape(self) -> tuple[int, ...]:
        depth, columns, *_, flipped, _ = self.layout
        return (columns, depth) if flipped else (depth, columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtypes.int4 if self.layout.stored == "int4" else dtypes.int8

    @property
    def nbytes(self) -> int:
        """Bytes of numbers and scales, as they lie."""
        parts = [x for x in (self.data, self.scales, self.leasts) if x is not None]
        return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in parts)

    def _turned(self, x: Array) -> Array:
        return transpose(x, permutation=(1, 0)) if self.layout.flipped else x

    @property
    def values(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The numbers, unpacked."""
        q = numbers(as_value(self.data, "QArray"), self.layout.zero)
        q = reshape(q, shape=(q.shape[0] * q.shape[1], q.shape[2]))
        cut = slice(q, start_indices=(0, 0), limit_indices=self.layout[:2], strides=None)
        return self._turned(cast(cut, self.dtype))

    def _rows(self, x: Any) -> Array:
        """One line of scales for each group."""
        x = as_value(x, "QArray")
        y, groups = lines(x, x.shape[1]), self.layout.groups
        steps = (y.shape[0] // groups, 1)
        cut = slice(y, start_indices=(0, 0), limit_indices=(y.shape[0], self.layout.columns), strides=steps)
        return self._turned(cut)

    @property
    def scale(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._rows(self.scales)

    @property
    def least(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.leasts is None else self._rows(self.leasts)

    def _operands(self) -> list[Array]:
        return [as_value(x, "QArray") for x in (self.data, self.scales, self.leasts) if x is not None]

    def dequantize(self) -> Array:
        depth, columns, _, zero, *_ = self.layout
        data, scale, *least = self._operands()
        return self._turned(weights(data, scale, least[0] if least else None, depth, columns, zero))

    # Of the class itself: that of `QArray` is its own function.
    __nx_array__ = dequantize

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray:
        return np.asarray(np.asarray(self.dequantize()), dtype or np.float32)

    def transposed(self) -> PackedQArray:
        return self.with_layout(flipped=not self.layout.flipped)

    def with_layout(self, **changes: Any) -> PackedQArray:
        """The same numbers, described otherwise."""
        return PackedQArray(self.data, self.scales, self.leasts, self.layout._replace(**changes))

    def taken(self, places: Array) -> Array:
        """Rows [..., depth] of a table of embeddings, float32, by their numbers [...]."""
        depth, *_, zero, _, flipped, _ = self.layout
        if not flipped:
            raise ParameterError("PackedQArray: rows are taken of a table", got="a matrix", fix="transposed()")
        data, *scales = self._operands()
        at, lane = places // LANES, places % LANES
        q = data[at, :, :, lane]
        if data.dtype == dtypes.uint8:
            q = concatenate(q & 15, q >> 4, dimension=q.ndim - 2)
        blocks, shape = data.shape[1], places.shape
        q = reshape(cast(q, dtypes.float32), shape=(*shape, blocks, math.prod(q.shape[-2:]))) - zero
        every = tuple(range(len(shape) + 1))
        scale, *least = (
            broadcast_in_dim(cast(x[at, :, lane], dtypes.float32), shape=q.shape, broadcast_dimensions=every)
            for x in scales
        )
        y = q * scale
        for x in least:
            y = y + x
        return reshape(y, shape=(*shape, blocks * q.shape[-1]))[..., :depth]

    def product(self, x: Array) -> Array:
        """``x @ w`` for ``x`` [..., depth], in its dtype."""
        depth, columns, _, zero, _, flipped, activations = self.layout
        if flipped:
            raise ParameterError("PackedQArray: products are with the other matrix", got="flipped", fix="transposed()")
        rows = reshape(cast(x, dtypes.float32), shape=(math.prod(x.shape[:-1]), depth))
        y = block_dot(rows, *self._operands(), columns=columns, zero=zero, activations=activations)
        return reshape(cast(y, x.dtype), shape=(*x.shape[:-1], columns))


register_pytree_node(
    PackedQArray,
    lambda q: ((q.data, q.scales) if q.leasts is None else (q.data, q.scales, q.leasts), q.layout),
    lambda layout, c: PackedQArray(c[0], c[1], c[2] if len(c) > 2 else None, layout),
)


def packed(w: QArray, *, flipped: bool = False, activations: str = "float32") -> QArray:
    """``w`` laid out for products, if it is a matrix with a scale for each column, or for groups of 16 or of multiples
    of 32 inputs of it; else itself.

    Args:
        w: [inputs, outputs] of known numbers, or [outputs, inputs] if ``flipped``.
        activations: in what rows are multiplied, "float32" or "int8".

    Raises:
        ParameterError: other activations.
    """
    if activations not in ACTIVATIONS:
        raise ParameterError("activations of products", got=activations, expected=" or ".join(ACTIVATIONS))
    if isinstance(w, PackedQArray):
        return w.with_layout(activations=activations)
    if w.ndim != 2 or w.dtype not in (dtypes.int4, dtypes.int8):
        return w
    turn = lambda x: np.asarray(x).T if flipped else np.asarray(x)
    depth, columns = w.shape[::-1] if flipped else w.shape
    groups, many = w.scale.shape[::-1] if flipped else w.scale.shape
    per = depth // max(groups, 1)
    if many != columns or not per or (groups > 1 and per != 16 and per % 32):
        return w
    values, scales = turn(w.values), [turn(x) for x in (w.scale, w.least) if x is not None]
    block = 16 if groups > 1 and per == 16 else 32
    few = w.dtype == dtypes.int4 or (len(scales) > 1 and int(values.min()) >= 0 and int(values.max()) < 16)
    zero = 8 if w.dtype == dtypes.int4 else 0
    blocks, wide = -(-depth // block), -(-columns // LANES) * LANES
    filled = np.zeros((blocks * block, wide), np.uint8 if few else np.int8)
    # In place: a table of embeddings is large.
    here = filled.view(np.int8)[:depth, :columns]
    here[...] = values
    here += np.int8(zero)
    q = filled.reshape(blocks, block, wide)
    q = q[:, : block // 2] | q[:, block // 2 :] << 4 if few else q
    data = q.reshape(blocks, -1, UNIT, wide // LANES, LANES).transpose(3, 0, 1, 4, 2)
    with np.errstate(over="ignore"):
        half = all((x.astype(np.float16) == x).all() for x in scales)
    own = np.float16 if half else np.float32
    laid: list[NDArray] = []
    for x in scales:
        each = np.zeros((groups if groups == 1 else blocks, wide), own)
        each[:, :columns] = x if groups == 1 else np.repeat(x, per // block, 0)
        laid.append(each.reshape(len(each), -1, LANES).transpose(1, 0, 2))
    layout = PackedLayout(depth, columns, w.dtype.name, zero, groups, flipped, activations)
    parts = [wrap(np.ascontiguousarray(x)) for x in (data, *laid)]
    return PackedQArray(parts[0], parts[1], parts[2] if len(parts) > 2 else None, layout)
