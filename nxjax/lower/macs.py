"""Multiply-accumulates of a program's equations, those of the programs they hold included."""

from __future__ import annotations

import math

from nxjax.lower.turns import within
from nxjax.trace.program import Equation


def macs(e: Equation) -> int:
    """Multiply-accumulates of one run of ``e``; 0 for ops that multiply nothing with weights or each other.

    Those of a loop count for each of its turns, where their number is known, else once; of a ``cond`` the largest
    branch counts.

    >>> import nxjax as nx, numpy as np
    >>> [macs(e) for e in nx.make_jaxpr(lambda x: (x @ x).sum())(np.ones((4, 4))).equations]
    [64, 0]
    """
    p = e.params
    if e.op.name in ("dot_general", "qdot", "qmatmul"):
        x, (contracting, _) = e.inputs[0].type, p["dimension_numbers"][0]
        return e.outputs[0].type.size * math.prod(x.shape[d] for d in contracting)
    if e.op.name in ("conv_general_dilated", "qconv"):
        w, out_channels = e.inputs[1].type, p["dimension_numbers"].rhs_spec[0]
        # Holes of a dilated input multiply nothing.
        dense = e.outputs[0].type.size * (w.size // max(w.shape[out_channels], 1))
        return dense // math.prod(p["lhs_dilation"] or (1,))
    found = within(e, macs)
    return sum(macs(i) for held in e.programs() for i in held.equations) if found is None else int(found)
