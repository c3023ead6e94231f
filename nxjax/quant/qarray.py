"""QArray: a weight stored as small integers with its scales. A pytree node for parameter trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.convert import cast
from nxjax.ops.fake_quantize import blocks, divides
from nxjax.ops.quant_traced import broadcast_blocks
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.tree_nodes import register_pytree_node


class QArray:
    """``values * scale``: stored integers (int8, int4) or float8 values, and one float32 scale per block; or
    ``values * scale + least``.

    Attributes:
        values: the stored weights.
        scale: of the same rank; each entry is for a block of equal size along every axis (size 1: one scale for the
            whole axis).
        least: float32 of the scale's shape, what a stored 0 stands for; None for 0. Files of others have it: GGUF's
            Q4_1 and Q4_K.

    >>> w = QArray(nx.array([[127, -64]], dtype="int8"), nx.array([[0.01]]))
    >>> w.shape, w.nbytes
    ((1, 2), 6)
    """

    __slots__ = ("least", "scale", "values")

    def __init__(self, values: ArrayLike, scale: ArrayLike, least: ArrayLike | None = None) -> None:
        self.values: Any = values
        self.scale: Any = scale
        self.least: Any = least

    def checked(self) -> QArray:
        """Return itself, or raise an error that says what does not fit."""
        v, s = as_value(self.values, "QArray"), as_value(self.scale, "QArray")
        stored = (dtypes.int4, dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
        if v.dtype not in stored or s.dtype != dtypes.float32:
            raise DtypeError("QArray: dtypes", got=f"values {v.type}, scale {s.type}", expected="i8 or i4, and f32")
        if not divides(s.shape, v.shape):
            raise ShapeError(
                "QArray: the scales do not divide the values into blocks", got=f"values {v.type}, scale {s.type}"
            )
        if self.least is not None:
            least = as_value(self.least, "QArray")
            if (least.shape, least.dtype) != (s.shape, s.dtype):
                raise ShapeError("QArray: least is not like the scales", got=f"{least.type}", expected=f"{s.type}")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The storage dtype."""
        return np.dtype(self.values.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of values (int4: two per byte), scales and what a stored 0 stands for."""
        size, scales = (int(np.prod(x.shape, dtype=np.int64)) for x in (self, self.scale))
        return (size * dtypes.bit_width(self.dtype) + 7) // 8 + 4 * scales * (1 if self.least is None else 2)

    def dequantize(self) -> Array:
        """The float32 array."""
        self.checked()
        values, scale = as_value(self.values, "QArray"), as_value(self.scale, "QArray")
        y = mul(cast(values, dtypes.float32), broadcast_blocks(scale, values.shape))
        return y if self.least is None else add(y, broadcast_blocks(as_value(self.least, "QArray"), values.shape))

    def transposed(self) -> QArray:
        """The transposed matrix; the same numbers."""
        return QArray(self.values.T, self.scale.T, None if self.least is None else self.least.T)

    # Where an array is wanted, as in the float function, it is what it stands for.
    __nx_array__ = dequantize

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        x = np.asarray(self.values).astype(np.float32)
        # Of rank 0, NumPy's product is no array.
        y = x * blocks(np.asarray(self.scale), x.shape)
        return np.asarray(y if self.least is None else y + blocks(np.asarray(self.least), x.shape), dtype or np.float32)

    def __repr__(self) -> str:
        if not all(hasattr(x, "shape") and hasattr(x, "dtype") for x in (self.values, self.scale)):
            # A tree of something else, as `tree.map` makes it.
            more = "" if self.least is None else f", least={self.least!r}"
            return f"QArray(values={self.values!r}, scale={self.scale!r}{more})"
        shape = ",".join(map(str, self.shape))
        scales = "x".join(map(str, self.scale.shape)) or "1"
        more = "" if self.least is None else " and least"
        return f"QArray({dtypes.short_name(self.dtype)}[{shape}], {scales} scales{more})"


register_pytree_node(
    QArray,
    lambda q: ((q.values, q.scale) if q.least is None else (q.values, q.scale, q.least), None),
    lambda _, c: QArray(*c),
)


def is_quantized(x: Any) -> bool:
    """For ``is_leaf``: QArrays are leaves."""
    return isinstance(x, QArray)


def float_leaf(x: Any) -> Any:
    """A leaf as functions see it: a QArray as the float array it stands for."""
    return x.dequantize() if isinstance(x, QArray) else x


def leaves_of(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], tree.TreeDef]:
    """Leaves of a call's arguments, QArrays whole."""
    return tree.flatten((tuple(args), kwargs), is_leaf=is_quantized)
