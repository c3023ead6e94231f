"""The contract of a rule: how the equations of one op become steps.

A rule is called ``rule(b, e, *xs)`` with the builder, the equation and a `View` per operand, and gives a `View` or a
tuple of them. It raises `builder.Unsupported` with the reason where it finds that it cannot serve the equation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from nxjax.trace.program import Equation


def _always(e: Equation) -> bool:
    return True


@final
@dataclass(frozen=True)
class Rule:
    """How one op is written.

    Attributes:
        write: ``write(b, e, *xs)``.
        supports: whether it serves an equation; the op's expansion is tried where it does not.
    """

    write: Callable[..., Any]
    supports: Callable[[Equation], bool] = _always

    def __call__(self, b: Any, e: Equation, *xs: Any) -> Any:
        return self.write(b, e, *xs)
