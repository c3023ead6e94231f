"""x to the power of a known number: a function of one operand, of which a table can be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import mul, pow
from nxjax.ops.base import Differentiable, NDArray, Tangent, Unary, like
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType


@final
class Power(Differentiable, Unary):
    """x to the power ``y``; NaN for negative x unless ``y`` is whole."""

    name = "power"
    allowed = dtypes.FLOAT

    def eval(self, x: NDArray, /, *, y: float) -> NDArray:
        with np.errstate(all="ignore"):
            return pow.eval(x, np.asarray(y, x.dtype))

    def expand(self, x: Array, /, *, y: float) -> Array:
        return pow(x, like(x, y))

    def tangents(self, out: Array, x: Array, *, y: float) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, mul(power(x, y=y - 1), y)),)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, y: float) -> Any:
        return b.inline(self.expand, (x,), {"y": y})


power = Power()
