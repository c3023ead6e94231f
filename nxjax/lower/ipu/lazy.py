"""Values on the way through lowering: views of what some step computes, and elementwise work that no step does yet."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.errors import Source
from nxjax.lower.ipu.program import Shape, VariableView


@final
class LazyOp:
    """An op on values, not computed yet.

    Attributes:
        refs: uses that have not been met yet, by equations or by other lazy values.
        view: its elements, once some step computes them.
        depth: ops on the longest way down to what exists.
        bounds: numbers that no element is below or above, once somebody asked; see `wide`.
    """

    __slots__ = ("bounds", "depth", "dtype", "name", "params", "refs", "scope", "shape", "source", "view", "xs")

    def __init__(
        self,
        name: str,
        xs: tuple[Value, ...],
        params: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
        source: Source | None,
        scope: str,
    ) -> None:
        self.name = name
        self.xs = xs
        self.params = params
        self.shape = shape
        self.dtype = dtype
        self.source = source
        self.scope = scope
        self.refs = 0
        self.view: VariableView | None = None
        self.bounds: tuple[float, float] | None = None
        self.depth = 1 + max((x.depth for x in xs if isinstance(x, LazyOp) and x.view is None), default=0)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Value = VariableView | LazyOp
