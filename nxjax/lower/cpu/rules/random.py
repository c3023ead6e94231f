"""Random keys: their words are memory looked at, what is drawn from them is a graph over the elements' numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nxjax.kernels.cpu.threefry import draw
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lazy import FIXED, Count, Lazy, Map, indexed, shaped
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.trace import dtypes
from nxjax.trace.program import Equation


@rule("random_clone")
def clone(b: Builder, e: Equation, keys: Any) -> Sequence[Any]:
    return (keys,)


@rule("random_unwrap")
def unwrap(b: Builder, e: Equation, keys: Any) -> Sequence[Any]:
    v = b.view(keys)
    return (replace(v, shape=(*v.shape, 2), strides=(*v.strides, 4), dtype=dtypes.uint32),)


@rule("random_wrap")
def wrap(b: Builder, e: Equation, words: Any) -> Sequence[Any]:
    v = b.view(words)
    if v.strides[-1] != 4:
        raise NoKernel("the words of a key do not lie side by side")
    return (replace(v, shape=v.shape[:-1], strides=v.strides[:-1], dtype=dtypes.key),)


@rule("random_bits", "random_split")
def drawn(b: Builder, e: Equation, keys: Any) -> Sequence[Any]:
    """Elements by key and number; the numbers run over all trailing dimensions together."""
    (y,) = e.outputs
    n = math.prod(e.params["shape"])
    if n >= 2**32:
        raise NoKernel("numbers of elements of more than 32 bits")
    x: Lazy = b.lazy(keys)
    space, dtype = (*x.shape, n), y.type.dtype
    places = tuple((0, ((d, 1),)) if size != 1 else FIXED for d, size in enumerate(x.shape))
    operands = indexed(x, space, places), Count(space, dtypes.uint32, len(x.shape))
    bits = Map(draw, (("dtype", dtype),), operands, space, dtype)
    return (lowered(b, shaped(bits, y.type.shape)),)
