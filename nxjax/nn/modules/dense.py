"""Layers of matrices and tables: Linear, Embedding."""

from __future__ import annotations

import math
from typing import Any, final

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ShapeError
from nxjax.nn.modules.base import Module, keys, positive, uniform
from nxjax.numpy.promotion import promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


@final
class Linear(Module):
    """``x @ weight.T + bias`` over the last dimension.

    An input whose last dimension is not ``in_features`` is flattened if that makes it fit: ``[n, c, h, w]`` with
    c*h*w features becomes ``[n, c*h*w]``, and a single ``[c, h, w]`` a vector. So a `Linear` may follow a convolution
    directly. If both fit, the last dimension is used.

    Args:
        in_features, out_features: sizes.
        bias: whether to add one.
        key: random key of the initial values; by default the next one of the process (see `nxjax.nn.seed`).
        dtype: of the parameters; float32 by default.

    Attributes:
        weight: ``[out_features, in_features]``, uniform in +-1/sqrt(in_features), as is the bias.
        bias: ``[out_features]`` or None.

    Raises:
        ShapeError: the input has another number of features.

    >>> Linear(64 * 8 * 8, 10)(jnp.ones((2, 64, 8, 8))).shape
    (2, 10)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        key: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        positive("Linear", in_features=in_features, out_features=out_features)
        first, second = keys(key, 2)
        self.in_features = int(in_features)
        self.out_features = int(out_features)
        self.weight: Any = uniform(first, (out_features, in_features), in_features, dtype)
        self.bias: Any = uniform(second, (out_features,), in_features, dtype) if bias else None

    def __call__(self, x: ArrayLike) -> Array:
        value = self._flattened(as_value(x, "Linear"))
        v, w = promote_inexact("Linear", value, self.weight)
        y = lax.dot_general(v, w, (((v.ndim - 1,), (1,)), ((), ())))
        return y if self.bias is None else y + self.bias

    def _flattened(self, x: Array) -> Array:
        if x.ndim and x.shape[-1] == self.in_features:
            return x
        if x.ndim > 1 and math.prod(x.shape[1:]) == self.in_features:
            return jnp.reshape(x, (x.shape[0], self.in_features))
        if x.ndim > 1 and x.size == self.in_features:
            return jnp.reshape(x, (self.in_features,))
        raise ShapeError(
            f"{self!r}: input has another number of features",
            got=f"{x.type}: {x.shape[-1] if x.ndim else 1} last, {math.prod(x.shape[1:])} after the first dimension",
            expected=f"{self.in_features}",
            fix="count the features that the layer before gives: channels * rows * columns",
        )

    def _settings(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


@final
class Embedding(Module):
    """Rows of a table, by index: ``weight[x]`` for integer ``x`` of any shape. An index out of range takes an end row.

    Args:
        num_embeddings, features: size of the table.
        key, dtype: as in `Linear`; values are normal with deviation 1.

    >>> Embedding(100, 8)(jnp.array([[1, 2, 3]])).shape
    (1, 3, 8)
    """

    def __init__(
        self, num_embeddings: int, features: int, *, key: ArrayLike | None = None, dtype: DTypeLike | None = None
    ) -> None:
        positive("Embedding", num_embeddings=num_embeddings, features=features)
        self.num_embeddings = int(num_embeddings)
        self.features = int(features)
        self.weight: Any = random.normal(keys(key, 1)[0], (num_embeddings, features), dtype or float)

    def __call__(self, x: ArrayLike) -> Array:
        index = as_value(x, "Embedding")
        if index.dtype not in dtypes.INTEGER:
            raise DtypeError(f"{self!r}: indices", got=index.type, expected="integers")
        return jnp.take(self.weight, index, axis=0, mode="clip")

    def _settings(self) -> str:
        return f"{self.num_embeddings}, {self.features}"
