"""Rules of random numbers. They come from a key: the same in every call, others for every operator of a graph."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax import random
from nxjax.interop.onnx.graph import dtype_of
from nxjax.interop.onnx.shapes import ints, sized
from nxjax.interop.onnx.walk import OnnxScope, drawing_key, rule


@rule("RandomNormal")
def _normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, scope: OnnxScope
) -> Any:
    return mean + scale * random.normal(drawing_key(scope, seed), sized(ints(shape)), dtype_of(dtype))


@rule("RandomUniform")
def _uniform(
    *, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None, scope: OnnxScope
) -> Any:
    return random.uniform(drawing_key(scope, seed), sized(ints(shape)), dtype_of(dtype), low, high)


@rule("RandomNormalLike")
def _normal_like(
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    scope: OnnxScope,
) -> Any:
    dtype_ = x.dtype if dtype is None else dtype_of(dtype)
    return mean + scale * random.normal(drawing_key(scope, seed), x.shape, dtype_)


@rule("RandomUniformLike")
def _uniform_like(
    x: Any,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    scope: OnnxScope,
) -> Any:
    return random.uniform(drawing_key(scope, seed), x.shape, x.dtype if dtype is None else dtype_of(dtype), low, high)


@rule("Bernoulli")
def _bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None, scope: OnnxScope) -> Any:
    drawn = random.uniform(drawing_key(scope, seed), x.shape, x.dtype) < x
    return drawn.astype(x.dtype if dtype is None else dtype_of(dtype))


@rule("Multinomial")
def _multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, scope: OnnxScope) -> Any:
    shape = (x.shape[0], sample_size)
    drawn = random.categorical(drawing_key(scope, seed), jnp.expand_dims(x, 1), axis=-1, shape=shape)
    return drawn.astype(dtype_of(dtype))
