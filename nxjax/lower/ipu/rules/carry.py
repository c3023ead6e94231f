"""What a loop carries: variables that are written again, and the assignment of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import VariableView


def kept(b: Builder, x: VariableView) -> VariableView:
    """A new variable that holds ``x`` now and is written again later."""
    return b.materialize(x, x.variable.pieces if x.whole else b.variable(x.shape, x.dtype).pieces)


def assign(b: Builder, values: Sequence[VariableView], into: Sequence[VariableView]) -> None:
    """Assign all at once: a value that lies in something assigned is saved before."""
    assigned = {id(c.variable) for c in into}
    pairs: list[tuple[VariableView, VariableView]] = []
    for value, target in zip(values, into, strict=True):
        if value.variable is target.variable and value.whole:
            continue
        if id(value.variable) in assigned:
            value = b.materialize(value, target.variable.pieces)
        pairs.append((value, target))
    copied(b, pairs)


def copied(b: Builder, pairs: Sequence[tuple[VariableView, VariableView]]) -> None:
    b.copy([(VariableView(s.variable, s.offset, t.shape, s.strides), t) for s, t in pairs], "carry")
