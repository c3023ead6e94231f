"""Comparison of numbers, element by element; the result is bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from nxjax.ops.base import Elementwise, NDArray, Nondifferentiable, check_dtype, define_op, equal_dtypes, equal_shapes
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


class Compare(Nondifferentiable, Elementwise):
    """Two operands of one type to bool. NaN is unequal to everything."""

    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    arguments = "x y"
    gives = " (giving booleans)"
    ufunc: ClassVar[Callable[..., Any]] = np.equal

    def infer(self, x: ArrayType, y: ArrayType, /) -> ArrayType:
        equal_shapes(self, x, y)
        equal_dtypes(self, x, y)
        check_dtype(self, self.allowed, x)
        return ArrayType(x.shape, dtypes.bool_)

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        return np.asarray(type(self).ufunc(x, y), np.bool_)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        return b.compare(self.name.upper(), x, y, out)


eq = define_op(
    Compare,
    "eq",
    "x == y",
    allowed=dtypes.NUMERIC,
    ufunc=np.equal,
    example=("jnp.array([1.0, jnp.nan]), jnp.nan", "Array([False, False], dtype=bool)"),
)
ne = define_op(
    Compare,
    "ne",
    "x != y",
    allowed=dtypes.NUMERIC,
    ufunc=np.not_equal,
    example=("jnp.array([1.0, jnp.nan]), jnp.nan", "Array([ True,  True], dtype=bool)"),
)
lt = define_op(
    Compare,
    "lt",
    "x < y",
    ufunc=np.less,
    example=("jnp.array([1, 2, 3]), 2", "Array([ True, False, False], dtype=bool)"),
)
le = define_op(
    Compare,
    "le",
    "x <= y",
    ufunc=np.less_equal,
    example=("jnp.array([1, 2, 3]), 2", "Array([ True,  True, False], dtype=bool)"),
)
gt = define_op(
    Compare,
    "gt",
    "x > y",
    ufunc=np.greater,
    example=("jnp.array([jnp.nan, jnp.inf]), 0.0", "Array([False,  True], dtype=bool)"),
)
ge = define_op(
    Compare,
    "ge",
    "x >= y",
    ufunc=np.greater_equal,
    example=("jnp.array([1, 2, 3]), 2", "Array([False,  True,  True], dtype=bool)"),
)
