"""Rules of quantized ops, so that they stay one equation each and a device still knows them.

Zero lies on every grid, so products and sums are masked with it like those of floats. A softmax along a padded axis
goes by its expansion, since no grid reaches minus infinity; and a mean by its integer arithmetic, whose multiplier and
shift are those of the true count, looked up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nxjax.ops.arithmetic import sub
from nxjax.ops.base import like
from nxjax.ops.convert import cast
from nxjax.ops.quant_reduce import qmean
from nxjax.ops.quant_traced import Factor, from_stored, grid_integers, to_output_grid, wrap_int32
from nxjax.ops.reduce import reduce_sum
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType
from nxjax.transforms.bucketing.interpret import TABLE, bind_unmasked, expanded, lookup_by_length, rule
from nxjax.transforms.bucketing.rules import called, without
from nxjax.transforms.bucketing.sizes import Size, product
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray, over


@rule("qdot")
def _qdot(
    c: Context, s: MemberStep, x: PaddedArray, w: PaddedArray, *rest: PaddedArray
) -> PaddedArray | Sequence[PaddedArray]:
    if w.varying():
        return expanded(c, s, [x, w, *rest])
    (xc, yc), _ = s.params["dimension_numbers"]
    y = called(s, [c.mask(x, xc, 0), w.array, *(v.array for v in rest)])
    return PaddedArray(y, (*without(x.sizes, xc), *without(w.sizes, yc)))


@rule("qsoftmax")
def _qsoftmax(c: Context, s: MemberStep, x: PaddedArray) -> PaddedArray | Sequence[PaddedArray]:
    return expanded(c, s, [x]) if x.varies(s.params["axis"]) else bind_unmasked(s, [x], [x.sizes])


@rule("qsum")
def _qsum(c: Context, s: MemberStep, x: PaddedArray) -> PaddedArray | Sequence[PaddedArray]:
    axes: tuple[int, ...] = s.params["axes"]
    return PaddedArray(called(s, [c.mask(x, axes, 0)]), without(x.sizes, axes))


@rule("qavgpool")
def _qavgpool(c: Context, s: MemberStep, x: PaddedArray) -> PaddedArray | Sequence[PaddedArray]:
    still = [d for d in x.varying() if s.params["window_dimensions"][d] == s.params["window_strides"][d] == 1]
    if tuple(still) != x.varying():
        return expanded(c, s, [x])
    return bind_unmasked(s, [x], [[x.sizes[d] if d in still else n for d, n in enumerate(s.shapes()[0])]])


@rule("qmean")
def _qmean(c: Context, s: MemberStep, x: PaddedArray) -> PaddedArray | Sequence[PaddedArray]:
    p = s.params
    axes, x_grid, y_grid, rounding = p["axes"], p["x_grid"], p["y_grid"], p["rounding"]
    sizes = without(x.sizes, axes)
    if not x.varying(axes):
        return bind_unmasked(s, [x], [sizes])
    every = c.solver.everywhere(TABLE)
    if every is None:
        raise s.refuse(
            f"more than {TABLE} lengths, each of which has a multiplier of its own", "use more buckets, or a float mean"
        )
    count = Size.of(product(x.sizes[a] for a in axes))
    factors = [qmean.factor(int(count.at(n)), x_grid, y_grid, rounding) for n in every.lengths]
    centred = cast(grid_integers(x.array, x_grid), dtypes.int64)
    centred = sub(centred, like(centred, x_grid.zero_point))
    total = wrap_int32(reduce_sum(c.mask(PaddedArray(centred, x.sizes), axes, 0), axes=axes))

    def row(numbers: Sequence[int]) -> Array:
        columns = [np.asarray(n, np.int64) for n in numbers]
        number = lookup_by_length(Context(every, c.lengths), columns, ArrayType((), dtypes.int64))
        return over(number, total.shape)

    factor = Factor(row([m for m, _ in factors]), row([e for _, e in factors]), rounding)
    stored = to_output_grid(factor.applied(total, lambda v: v), y_grid, *y_grid.limits)
    return PaddedArray(from_stored(stored, y_grid), sizes)
