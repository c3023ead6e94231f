"""Modules made of others, and those that only pass things on: Sequential, Residual, Lambda, Identity, Dropout, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, final

from nxjax import numpy as jnp
from nxjax import random
from nxjax.errors import ParameterError, ShapeError
from nxjax.nn.modules.base import Module
from nxjax.numpy.documented import shown
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.scope import named_scope


def as_module(layer: Any, where: str) -> Module:
    """A module as it is, a plain function of an array as a `Lambda`."""
    if isinstance(layer, Module):
        return layer
    if isinstance(layer, type) and issubclass(layer, Module):
        raise ParameterError(f"{where}: a class where a layer should be", got=layer.__name__, fix=f"{layer.__name__}()")
    if not callable(layer):
        raise ParameterError(f"{where}: not a layer", got=type(layer).__name__, expected="a Module or a function")
    return Lambda(layer)


def _indented(name: str, rows: list[str]) -> str:
    body = "".join(f"\n  {row.replace(chr(10), chr(10) + '  ')}" for row in rows)
    return f"{name}({body}\n)" if rows else f"{name}()"


def _called(layer: Module, x: Any, key: Any) -> Any:
    return layer(x, key=key) if layer.keyed and key is not None else layer(x)  # type: ignore[call-arg]


@final
class Sequential(Module):
    """Layers one after another.

    Args:
        layers: modules, or plain functions of an array such as ``nx.nn.relu``.

    Call it with ``key=`` to give each random layer (`Dropout`) its own key. Without a key they are the identity. Each
    layer runs in a named scope, such as ``conv2d_0``, for reports and quantization policies. Indexing returns a layer,
    or a `Sequential` for a slice.

    >>> from nxjax.nn import Linear, ReLU
    >>> model = Sequential(Linear(3, 4), ReLU(), Linear(4, 2))
    >>> model
    Sequential(
      0: Linear(3, 4)
      1: ReLU()
      2: Linear(4, 2)
    )
    >>> nx.jit(lambda m, x: m(x))(model, nx.ones((5, 3))).shape
    (5, 2)
    """

    keyed = True

    def __init__(self, *layers: Callable[..., Any]) -> None:
        if len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            layers = tuple(layers[0])
        self.layers = tuple(as_module(layer, "Sequential") for layer in layers)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Any:
        keys: list[Any] = [None] * len(self.layers) if key is None else list(random.split(key, len(self.layers)))
        for i, (layer, k) in enumerate(zip(self.layers, keys, strict=True)):
            with named_scope(f"{type(layer).__name__.lower()}_{i}"):
                x = _called(layer, x, k)
        return as_value(x, "Sequential") if not self.layers else x

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __getitem__(self, index: int | slice) -> Module:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __repr__(self) -> str:
        return _indented("Sequential", [f"{i}: {layer!r}" for i, layer in enumerate(self.layers)])


@final
@shown("Residual(nx.nn.relu)(nx.array([-1.0, 2.0])).tolist()", "[-1.0, 4.0]")
class Residual(Module):
    """``x + inner(x)``, or ``shortcut(x) + inner(x)`` (He et al., "Deep residual learning", 2016).

    Raises:
        ShapeError: the two sides differ in shape.
    """

    keyed = True

    def __init__(self, inner: Callable[..., Any], shortcut: Callable[..., Any] | None = None) -> None:
        self.inner = as_module(inner, "Residual")
        self.shortcut = Identity() if shortcut is None else as_module(shortcut, "Residual")

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Array:
        first, second = (None, None) if key is None else random.split(key, 2)
        y, z = _called(self.inner, x, first), _called(self.shortcut, x, second)
        if y.shape != z.shape:
            raise ShapeError(
                f"{type(self).__name__}: its two sides differ in shape",
                got=f"{z.type} from {self.shortcut!r}, {y.type} from {self.inner!r}",
                expected="equal shapes",
                fix="give a shortcut, such as Conv2d(..., kernel_size=1, stride=...)",
            )
        return z + y

    def __repr__(self) -> str:
        rows = [f"inner: {self.inner!r}"]
        if not isinstance(self.shortcut, Identity):
            rows.append(f"shortcut: {self.shortcut!r}")
        return _indented("Residual", rows)


@final
@shown("Lambda(nx.nn.relu)", "Lambda(relu)", "Lambda(lambda x: 2 * x)(nx.array([1.0, 2.0])).tolist()", "[2.0, 4.0]")
class Lambda(Module):
    """A layer from a function of one array; the function is part of the structure."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, x: ArrayLike) -> Any:
        return self.function(x)

    def _settings(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


@final
class Identity(Module):
    """The input, unchanged.

    >>> Identity()(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __call__(self, x: ArrayLike) -> Array:
        return as_value(x, "Identity")


@final
class Flatten(Module):
    """Dimensions ``start`` to ``end``, both included, as one.

    >>> Flatten()(jnp.ones((2, 3, 4, 5))).shape
    (2, 60)
    """

    def __init__(self, start: int = 1, end: int = -1) -> None:
        self.start = start
        self.end = end

    def __call__(self, x: ArrayLike) -> Array:
        value = as_value(x, "Flatten")
        start, end = (d + value.ndim if d < 0 else d for d in (self.start, self.end))
        if not 0 <= start <= end < value.ndim:
            raise ShapeError(f"{self!r}: input does not have these dimensions", got=value.type)
        flat = math.prod(value.shape[start : end + 1])
        return jnp.reshape(value, (*value.shape[:start], flat, *value.shape[end + 1 :]))

    def _settings(self) -> str:
        return "" if (self.start, self.end) == (1, -1) else f"{self.start}, {self.end}"


@final
class Dropout(Module):
    """With a key: zero with probability ``rate``, the rest scaled by 1/(1 - rate). Without: the identity.

    Srivastava et al., "Dropout" (2014).

    >>> x = nx.ones(1000)
    >>> bool(nx.array_equal(Dropout(0.5)(x), x))
    True
    >>> sorted({float(v) for v in Dropout(0.5)(x, key=nx.random.key(0))})
    [0.0, 2.0]
    """

    keyed = True

    def __init__(self, rate: float = 0.5) -> None:
        if not 0 <= rate < 1:
            raise ParameterError("Dropout: rate", got=rate, expected="0 <= rate < 1")
        self.rate = float(rate)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Array:
        value = as_value(x, "Dropout")
        if key is None or self.rate == 0:
            return value
        kept = random.bernoulli(key, 1 - self.rate, value.shape)
        return jnp.where(kept, value / (1 - self.rate), 0)

    def _settings(self) -> str:
        return str(self.rate)
