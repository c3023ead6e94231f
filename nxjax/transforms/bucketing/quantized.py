"""The rule of the one quantized op whose integer arithmetic depends on how many elements there are: the mean.

Its multiplier and shift are those of the true count, looked up in a table. Other quantized ops go by their expansion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nxjax.ops.arithmetic import sub
from nxjax.ops.base import like
from nxjax.ops.quant_reduce import qmean
from nxjax.ops.quant_traced import Factor, cast, from_stored, recovered, settled, wrapped
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType
from nxjax.transforms.bucketing.interpret import TABLE, bound, looked_up, rule
from nxjax.transforms.bucketing.sizes import Size, product
from nxjax.transforms.bucketing.values import Context, Step, Val


@rule("qmean")
def _qmean(c: Context, s: Step, x: Val) -> Val | Sequence[Val]:
    p = s.params
    axes, x_grid, y_grid, rounding = p["axes"], p["x_grid"], p["y_grid"], p["rounding"]
    sizes = tuple(n for a, n in enumerate(x.sizes) if a not in axes)
    if not x.varying(axes):
        return bound(s, [x], [sizes])
    every = c.solver.everywhere(TABLE)
    if every is None:
        raise s.refuse(
            f"more than {TABLE} lengths, each of which has a multiplier of its own", "use more buckets, or a float mean"
        )
    count = Size.of(product(x.sizes[a] for a in axes))
    factors = [qmean.factor(int(count.at(n)), x_grid, y_grid, rounding) for n in every.lengths]
    centred = cast(recovered(x.array, x_grid), dtypes.int64)
    centred = sub(centred, like(centred, x_grid.zero_point))
    total = wrapped(reduce_sum(c.mask(Val(centred, x.sizes), axes, 0), axes=axes))

    def row(numbers: Sequence[int]) -> Array:
        columns = [np.asarray(n, np.int64) for n in numbers]
        number = looked_up(Context(every, c.lengths), columns, ArrayType((), dtypes.int64))
        return broadcast_in_dim(number, shape=total.shape, broadcast_dimensions=())

    factor = Factor(row([m for m, _ in factors]), row([e for _, e in factors]), rounding)
    stored = settled(factor.applied(total, lambda v: v), y_grid, *y_grid.limits)
    return Val(from_stored(stored, y_grid), sizes)
