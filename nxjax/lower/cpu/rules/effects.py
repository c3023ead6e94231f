"""What is done for its order or its effect: barriers give their operands back, callbacks are Host steps.

Steps run in the order of equations, so effects need no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.lower.cpu.builder import Builder, rule
from nxjax.trace.program import Equation


@rule("optimization_barrier")
def optimization_barrier(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    """The operands, computed before anything that reads the results."""
    return [b.view(x) for x in xs]


@rule("io_callback", "debug_callback", "pure_callback", "check")
def callback(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    """A call of Python at this place in the order of steps."""
    return b.host(e, xs, "calls Python")
