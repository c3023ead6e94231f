"""Rules of operators that draw random numbers: by nxjax's generator, from the key that the caller gives.

The numbers are others than torch's for the same seed; their distribution is the same.
"""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax import random
from nxjax.interop.torch.promotion import category
from nxjax.interop.torch.walk import TorchWalker, rule
from nxjax.trace import dtypes


def _drawn(name: str, draw: Any) -> None:
    def new(size: Any, *, dtype: Any = None, generator: Any = None, walker: TorchWalker) -> Any:
        return draw(walker.key(name), tuple(size), dtype or dtypes.float32)

    def like(self: Any, *, dtype: Any = None, walker: TorchWalker) -> Any:
        return draw(walker.key(name), self.shape, dtype or self.dtype)

    rule(name, f"{name}.generator")(new)
    rule(f"{name}_like")(like)


_drawn("rand", random.uniform)
_drawn("randn", random.normal)


def _integers(walker: TorchWalker, shape: Any, low: int, high: int, dtype: Any) -> Any:
    drawn = random.randint(walker.key("randint"), tuple(shape), low, high, dtypes.int64)
    return drawn.astype(dtype or dtypes.int64)


@rule("randint")
def _randint(high: int, size: Any, *, dtype: Any = None, walker: TorchWalker) -> Any:
    return _integers(walker, size, 0, high, dtype)


@rule("randint.low")
def _randint_low(low: int, high: int, size: Any, *, dtype: Any = None, walker: TorchWalker) -> Any:
    return _integers(walker, size, low, high, dtype)


@rule("randint_like")
def _randint_like(self: Any, high: int, *, dtype: Any = None, walker: TorchWalker) -> Any:
    return _integers(walker, self.shape, 0, high, dtype or self.dtype)


@rule("randint_like.low_dtype")
def _randint_like_low(self: Any, low: int, high: int, *, dtype: Any = None, walker: TorchWalker) -> Any:
    return _integers(walker, self.shape, low, high, dtype or self.dtype)


@rule("randperm")
def _randperm(n: int, *, dtype: Any = None, walker: TorchWalker) -> Any:
    return random.permutation(walker.key("randperm"), n).astype(dtype or dtypes.int64)


@rule("bernoulli")
def _bernoulli(self: Any, *, generator: Any = None, walker: TorchWalker) -> Any:
    return random.bernoulli(walker.key("bernoulli"), self).astype(self.dtype)


@rule("bernoulli.p")
def _bernoulli_p(self: Any, p: float = 0.5, *, generator: Any = None, walker: TorchWalker) -> Any:
    return random.bernoulli(walker.key("bernoulli"), p, self.shape).astype(self.dtype)


@rule("normal_functional")
def _normal(self: Any, mean: float = 0, std: float = 1, *, generator: Any = None, walker: TorchWalker) -> Any:
    return mean + std * random.normal(walker.key("normal"), self.shape, self.dtype)


@rule("exponential")
def _exponential(self: Any, lambd: float = 1, *, generator: Any = None, walker: TorchWalker) -> Any:
    return random.exponential(walker.key("exponential"), self.shape, self.dtype) / lambd


@rule("uniform")
def _uniform(self: Any, from_: float = 0, to: float = 1, *, generator: Any = None, walker: TorchWalker) -> Any:
    return random.uniform(walker.key("uniform"), self.shape, self.dtype, from_, to)


@rule("multinomial")
def _multinomial(
    self: Any, num_samples: int, replacement: bool = False, *, generator: Any = None, walker: TorchWalker
) -> Any:
    logits = jnp.log(self)
    shape = (*self.shape[:-1], num_samples)
    drawn = random.categorical(
        walker.key("multinomial"), logits[..., None, :] if replacement else logits, -1, shape, replace=replacement
    )
    return drawn.astype(dtypes.int64)


@rule("native_dropout")
def _native_dropout(input: Any, p: float, train: bool | None, *, walker: TorchWalker) -> Any:
    if train is False or (p == 0 and train):
        return input, jnp.ones(input.shape, dtypes.bool_)
    mask = random.bernoulli(walker.key("dropout"), 1 - p, input.shape)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return jnp.where(mask, input * scale, 0).astype(input.dtype), mask


@rule("dropout")
def _dropout(input: Any, p: float, train: bool, *, walker: TorchWalker) -> Any:
    return _native_dropout(input, p, train, walker=walker)[0] if train and p else input


@rule("feature_dropout")
def _feature_dropout(input: Any, p: float, train: bool, *, walker: TorchWalker) -> Any:
    if not train or not p:
        return input
    mask = random.bernoulli(walker.key("dropout"), 1 - p, (*input.shape[:2], *(1,) * (input.ndim - 2)))
    return jnp.where(mask, input / (1 - p) if category(input.dtype) > 1 and p < 1 else input * 0, 0)
