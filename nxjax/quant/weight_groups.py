"""Weights that a group stores in few bits: which scales they have, and rows looked up in a table of them.

Knows no product.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.ops.arithmetic import abs, add, max, mul, sub
from nxjax.ops.base import like
from nxjax.ops.convert import cast
from nxjax.ops.fake_quantize import quantize_weight
from nxjax.ops.identity import stop_gradient
from nxjax.ops.indexing import gather
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import broadcast_blocks, clipped, quotient, symmetric_limit
from nxjax.ops.reduce import reduce_max
from nxjax.ops.rounding import TO_NEAREST_EVEN, round
from nxjax.ops.shape import reshape
from nxjax.quant.groups import FusedGroup, GridWalk, StoredWeight, Values
from nxjax.quant.scheme import Scheme
from nxjax.quant.view import WeightView
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation

Axes = tuple[int, ...]
# The least scale: all-zero weights have it, and no division by it overflows.
TINY: Final = 2.0**-100


@dataclass(eq=False)
class Storing(FusedGroup):
    """A group that stores weights.

    Attributes:
        weight: the weights.
    """

    weight: Atom

    @abstractmethod
    def summed(self) -> Axes:
        """The dimensions of the weights that one scale may span: those that a product sums over, those of a row."""

    @abstractmethod
    def _scale(self, w: Array) -> Array:
        """Scales of weights that come in float."""

    @property
    def changes_weights(self) -> bool:
        """Whether the group changes the weights before they are stored."""
        return False

    def stored(self, walk: Values, w: Array) -> tuple[Array, Array]:
        """The weights that are stored in place of ``w``, and their scales.

        The scales are those that ``w`` comes with, or those of its largest values times what calibration found.
        """
        given = None if self.changes_weights else walk.weight_scale(self.weight)
        if given is not None and self.suits(given, w.shape):
            return w, given.scale
        return self._rounded(walk, w)

    def _rounded(self, values: Values, w: Array) -> tuple[Array, Array]:
        found = values.rounding(self)
        scale = self._scale(w)
        if found is None or found.shares.shape != scale.shape:
            return w, scale
        assert self.scheme.weights is not None
        scale = mul(scale, found.shares)
        if found.steps is None or found.steps.shape != w.shape:
            return w, scale
        limit, full = symmetric_limit(self.scheme.weights), broadcast_blocks(scale, w.shape)
        nearest = clipped(round(quotient(w, full), rounding_method=TO_NEAREST_EVEN), -limit, limit)
        moved = mul(add(nearest, cast(found.steps, dtypes.float32)), full)
        # Derivatives are those of the weights.
        return add(w, stop_gradient(sub(moved, w))), scale

    def suits(self, given: StoredWeight, shape: tuple[int, ...]) -> bool:
        """Whether what is stored so can be stored so here: as wide a dtype, and scales where the product takes them."""
        wanted = self.scheme.weights
        if given.dtype != wanted and (given.dtype, wanted) != (dtypes.int4, dtypes.int8):
            return False
        if not self.scheme.integer:
            return True
        summed = self.summed()
        return all(k == 1 or (k == n and a not in summed) for a, (k, n) in enumerate(zip(given.scale.shape, shape)))

    def plain_scale(self, w: Any) -> Any:
        """The scales of the largest values of NumPy weights."""
        return self._scale(wrap(w)).numpy()

    def stored_beside(self, values: Values, w: Any, grids: tuple[Grid, Grid] | None) -> tuple[Any, Any]:
        """`stored` for NumPy weights that come in float, where what else the group reads is known.

        Args:
            grids: those of its operand and its result.
        """
        moved, scale = self._rounded(values, wrap(w))
        return moved.numpy(), scale.numpy()


@final
@dataclass(eq=False)
class TableLookup(Storing):
    """Rows of a table of weights, such as an embedding: the table is stored in few bits, a row is float."""

    indices: Atom

    def emit(self, walk: GridWalk) -> tuple[Array, Grid | None]:
        assert self.scheme.weights is not None
        table = quantize_weight(*self.stored(walk, walk.value(self.weight)), dtype=self.scheme.weights)
        return gather(table, walk.value(self.indices), **self.equations[0].params), None

    def summed(self) -> Axes:
        looked_up = self.equations[0].params["dimension_numbers"].start_index_map
        return tuple(a for a in range(len(self.weight.type.shape)) if a not in looked_up)

    def _scale(self, w: Array) -> Array:
        assert self.scheme.weights is not None
        return weight_scale(w, self.summed(), self.scheme.weights, self.scheme.group, self.summed())


def match_lookup(view: WeightView, e: Equation, scheme: Scheme) -> FusedGroup | None:
    """``e`` as a look-up in a table that is stored in few bits, if the scheme keeps activations off static grids."""
    if e.op is not gather or scheme.integer or scheme.weights is None:
        return None
    w, indices = e.inputs
    if not (view.is_weight(w) and view.is_float(w)) or view.is_weight(indices):
        return None
    return TableLookup((e,), (), e.outputs[0], scheme, w, indices)


def grouping(size: int, group: int) -> int:
    """How many groups ``size`` weights are: of ``group``, or where that does not divide, of half as many; or 1.

    Formats whose groups are powers of two hold both.

    >>> grouping(96, 32), grouping(80, 32), grouping(40, 32)
    (3, 5, 1)
    """
    lengths = (n for n in (group, group // 2) if n and size % n == 0)
    return size // next(lengths, size or 1) if size > group else 1


def weight_scale(w: Array, axes: Axes, dtype: DType, group: int | None, summed: Axes) -> Array:
    """``max |w| / limit`` over ``axes``, of w's rank; the first of ``summed`` in groups of ``group``, see `grouping`.

    No derivative passes: the scale follows the weights. A product with the reciprocal, so that compilers that rewrite
    divisions by constants give the same bits.
    """
    w = stop_gradient(w)
    size = abs(w)
    limit = symmetric_limit(dtype)
    first = summed[0] if summed else None
    n = grouping(w.shape[first], group) if group and first is not None and first in axes else 1
    if n > 1:
        assert first is not None
        split = (*w.shape[:first], n, w.shape[first] // n, *w.shape[first + 1 :])
        others = tuple(a + (a > first) for a in axes if a != first)
        top = reduce_max(reshape(size, shape=split), axes=(*others, first + 1))
        kept = tuple(n if a == first else 1 if a in axes else k for a, k in enumerate(w.shape))
    else:
        top = reduce_max(size, axes=axes)
        kept = tuple(1 if a in axes else k for a, k in enumerate(w.shape))
    scale = max(mul(top, like(top, 1.0 / limit)), like(top, TINY))
    return reshape(scale, shape=kept)
