"""Random keys on tiles: a key is two words, so an array of keys is a uint32 array with a last dimension of 2.

Ops that move keys move the words: their batching rule says how, with the words as the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.ops.base import move_batch
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

# Ops that give the same words back.
SAME: Final = frozenset(("random_wrap", "random_unwrap", "random_clone"))


def is_key(t: ArrayType) -> bool:
    return t.dtype == dtypes.key


def view_type(t: ArrayType) -> ArrayType:
    """The type that a value of type ``t`` has on tiles."""
    return ArrayType((*t.shape, 2), dtypes.uint32) if is_key(t) else t


def as_words(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of keys as words; anything else as it is."""
    if value.dtype != dtypes.key:
        return value
    return np.ascontiguousarray(value)["threefry"].reshape(*value.shape, 2)


def on_words(e: Equation) -> Program | None:
    """The program on words that does what ``e`` does on keys; None if ``e`` does not only move them."""
    if e.op.name in SAME:
        return stage(lambda x: [x], [view_type(e.inputs[0].type)], e.op.name)
    if e.op.has("expand") or e.op.nested or not e.op.has("batch"):
        return None

    def moved(*words: Array) -> Sequence[Array]:
        dims = [a.type.ndim if is_key(a.type) else None for a in e.inputs]
        ys, where = e.op.batch(2, words, dims, **e.params)
        many = ys if e.op.multi else (ys,)
        dims_out = where if e.op.multi else (where,)
        return [move_batch(y, d, 2, v.type.ndim) for y, d, v in zip(many, dims_out, e.outputs, strict=True)]

    return stage(moved, [view_type(a.type) for a in e.inputs], e.op.name)
