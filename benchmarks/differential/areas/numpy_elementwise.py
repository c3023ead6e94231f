"""``numpy``: functions of each element, with one operand or several that broadcast."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import NUMBERS, Inputs

UNARY = ("sin", "cos", "tanh", "exp", "log", "sqrt", "abs", "sign", "floor", "isnan", "square", "negative")
BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "arctan2", "floor_divide", "logaddexp")


def cases(inputs: Inputs) -> Iterator[Case]:
    for name in UNARY:
        for dtype in NUMBERS:
            yield Case(f"numpy.{name}", (inputs.array(dtypes=dtype, odd=0.2),))
        yield Case(f"numpy.{name}", (Weak(0.5),))
    for name in BINARY:
        for dtype in NUMBERS:
            first, second = inputs.broadcastable(2)
            yield Case(f"numpy.{name}", (inputs.array(first, dtype, odd=0.1), inputs.array(second, odd=0.1)))
            yield Case(f"numpy.{name}", (inputs.array(dtypes=dtype), Weak(inputs.choice((2, 0.5, -1, 1j)))))
