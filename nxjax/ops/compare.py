"""Comparison of numbers, element by element; the result is bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np

from nxjax.ops.base import Elementwise, NDArray, Nondifferentiable, check_dtype, equal_dtypes, equal_shapes
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


class Compare(Nondifferentiable, Elementwise):
    """Two operands of one type to bool. NaN is unequal to everything."""

    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    arguments = "x y"
    gives = " (giving booleans)"
    direction: ClassVar[str]
    ufunc: ClassVar[Callable[..., Any]]

    def infer(self, x: ArrayType, y: ArrayType, /) -> ArrayType:
        equal_shapes(self, x, y)
        equal_dtypes(self, x, y)
        check_dtype(self, self.allowed, x)
        return ArrayType(x.shape, dtypes.bool_)

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        return np.asarray(type(self).ufunc(x, y), np.bool_)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        return b.compare(self.direction, x, y, out)


@final
class Eq(Compare):
    """x == y"""

    name = "eq"
    allowed = dtypes.NUMERIC
    direction = "EQ"
    ufunc = np.equal
    example = "jnp.array([1.0, jnp.nan]), jnp.nan", "Array([False, False], dtype=bool)"


@final
class Ne(Compare):
    """x != y"""

    name = "ne"
    allowed = dtypes.NUMERIC
    direction = "NE"
    ufunc = np.not_equal
    example = "jnp.array([1.0, jnp.nan]), jnp.nan", "Array([ True,  True], dtype=bool)"


@final
class Lt(Compare):
    """x < y"""

    name = "lt"
    direction = "LT"
    ufunc = np.less
    example = "jnp.array([1, 2, 3]), 2", "Array([ True, False, False], dtype=bool)"


@final
class Le(Compare):
    """x <= y"""

    name = "le"
    direction = "LE"
    ufunc = np.less_equal
    example = "jnp.array([1, 2, 3]), 2", "Array([ True,  True, False], dtype=bool)"


@final
class Gt(Compare):
    """x > y"""

    name = "gt"
    direction = "GT"
    ufunc = np.greater
    example = "jnp.array([jnp.nan, jnp.inf]), 0.0", "Array([False,  True], dtype=bool)"


@final
class Ge(Compare):
    """x >= y"""

    name = "ge"
    direction = "GE"
    ufunc = np.greater_equal
    example = "jnp.array([1, 2, 3]), 2", "Array([False,  True,  True], dtype=bool)"


eq = Eq()
ne = Ne()
lt = Lt()
le = Le()
gt = Gt()
ge = Ge()
