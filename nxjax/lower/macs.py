"""Multiply-accumulates of a program's equations, those of the programs they hold included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from nxjax.lower.trip_count import trip_counts_within
from nxjax.trace.program import Equation


def macs(e: Equation) -> int:
    """Multiply-accumulates of one run of ``e``; 0 for ops that multiply nothing with weights or each other.

    Those of a loop count for each of its turns, where their number is known, else once; of a ``cond`` the largest
    branch counts.

    >>> import numpy as np
    >>> [macs(e) for e in nx.make_jaxpr(lambda x: (x @ x).sum())(np.ones((4, 4))).equations]
    [64, 0]
    """
    own = _ROWS.get(e.op.name)
    if own is not None:
        return own(e)
    found = trip_counts_within(e, macs)
    return sum(macs(i) for held in e.programs() for i in held.equations) if found is None else int(found)


def _product(e: Equation) -> int:
    x, (contracting, _) = e.inputs[0].type, e.params["dimension_numbers"][0]
    return e.outputs[0].type.size * math.prod(x.shape[d] for d in contracting)


def _convolution(e: Equation) -> int:
    w, out_channels = e.inputs[1].type, e.params["dimension_numbers"].rhs_spec[0]
    # Holes of a dilated input multiply nothing.
    dense = e.outputs[0].type.size * (w.size // max(w.shape[out_channels], 1))
    return dense // math.prod(e.params["lhs_dilation"] or (1,))


_ROWS: Final[dict[str, Callable[[Equation], int]]] = {
    **dict.fromkeys(("dot_general", "qdot", "qmatmul"), _product),
    **dict.fromkeys(("conv_general_dilated", "qconv"), _convolution),
}
