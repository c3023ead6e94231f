"""The rules of all ops by name, and `flaw`, which holds an equation against its row.

`trace.program.check` asks it after what the op itself infers. No rule here shares code with an op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nxjax.lower.type_rules import elementwise, matrices, products, programs, quantized, shapes
from nxjax.lower.type_rules.base import Flaw, Rule
from nxjax.trace.program import Equation

RULES: Final[Mapping[str, Rule]] = {
    **elementwise.RULES,
    **shapes.RULES,
    **products.RULES,
    **matrices.RULES,
    **quantized.RULES,
    **programs.RULES,
}
# Ops of nxjax that have no row, and why.
WITHOUT: Final[Mapping[str, str]] = {
    "call_exported": "its types are those of a module that others wrote, and that XLA checks",
}


def flaw(e: Equation) -> str | None:
    """What is wrong with an equation, or None. An op without a row is taken as it is: users declare their own.

    >>> e = nx.make_jaxpr(lambda x: x.T)(nx.numpy.ones((2, 3))).equations[0]
    >>> print(flaw(e))
    None
    >>> flaw(e.replaced(e.inputs, e.outputs, {"permutation": (1, 1)}))
    'permutation names a dimension twice: (1, 1)'
    """
    rule = RULES.get(e.op.name)
    if rule is None:
        return None
    try:
        wanted = rule([a.type for a in e.inputs], e.params)
    except Flaw as error:
        return str(error)
    except (IndexError, KeyError, TypeError, ValueError) as error:  # parameters of another form
        return f"parameters that its rule cannot read: {error!r}"
    got = [(v.type.shape, v.type.dtype) for v in e.outputs]
    if got != list(wanted):
        return f"results are {', '.join(str(v.type) for v in e.outputs)}, and should be {', '.join(map(str, wanted))}"
    return None
