"""Float vectors as int8 in blocks, each with a scale of its own; trees as one vector. Knows no axis and no device.

A block of ``size`` numbers is sent as ``size`` bytes and a float32 scale, which is the largest magnitude by 127.
Rounding to the nearest errs by half a scale at most; rounding at random, up with the probability of what is left over,
by less than a scale, and not at all on average (Alistarh et al., QSGD, 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError
from nxjax.trace import tree
from nxjax.trace.array import as_value

BLOCK: Final = 256
LEVELS: Final = 127
_SCALE: Final = 4  # bytes of a float32


def checked(what: str, value: Any, low: int) -> int:
    """A parameter that is a whole number.

    Raises:
        ParameterError: it is none, or below ``low``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ParameterError(what, got=repr(value), expected=f"a whole number, at least {low}")
    return value


class Packing(NamedTuple):
    """How a tree of float arrays lies in one vector, leaf after leaf.

    Attributes:
        treedef, shapes, dtypes: of the tree.
        dtype: of the vector: float32, or float64 where a leaf has it.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Numbers of the tree."""
        return sum(map(math.prod, self.shapes))

    def pack(self, values: Any) -> Any:
        """The vector."""
        parts = [jnp.ravel(x).astype(self.dtype) for x in tree.leaves(values)]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, self.dtype)

    def unpack(self, vector: Any) -> Any:
        """The tree; what stands behind its last number is left out."""
        found: list[Any] = []
        at = 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = math.prod(shape)
            found.append(vector[at : at + size].reshape(shape).astype(dtype))
            at += size
        return tree.unflatten(self.treedef, found)


def packing(what: str, values: Any) -> Packing:
    """How ``values`` are packed.

    Raises:
        DtypeError: a leaf is not of a real float dtype.
    """
    leaves, treedef = tree.flatten(values)
    arrays = [x if hasattr(x, "shape") and hasattr(x, "dtype") else as_value(x, what) for x in leaves]
    for x, name in zip(arrays, tree.path_names(values, "grads"), strict=True):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise DtypeError(f"{what}: {name}", got=str(x.dtype), expected="real floating-point numbers")
    wide = any(str(x.dtype) == "float64" for x in arrays)
    return Packing(
        treedef,
        tuple(tuple(x.shape) for x in arrays),
        tuple(x.dtype for x in arrays),
        jnp.float64 if wide else jnp.float32,
    )


def padded(size: int, parts: int, block: int) -> int:
    """``size``, filled up so that ``parts`` devices have as many whole blocks each."""
    return -(-size // (parts * block)) * parts * block


def filled(vector: Any, size: int) -> Any:
    """``vector`` with zeros behind it."""
    return vector if vector.shape[0] == size else jnp.pad(vector, (0, size - vector.shape[0]))


def quantize(x: Any, key: Any = None) -> Any:
    """Blocks [..., block] as bytes [..., block + 4]: int8 and the bytes of the float32 scale, for one message.

    Args:
        x: floats. A block with a number that is not finite comes back with none that is.
        key: round at random with it; to the nearest without.
    """
    most = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    scale = (most / LEVELS).astype(jnp.float32)
    # A scale that is no normal number is zero on many devices: such a block is sent as zeros.
    tiny = scale < jnp.finfo(jnp.float32).tiny
    steps = x / jnp.where(tiny, 1, scale).astype(x.dtype)
    if key is None:
        whole = jnp.round(steps)
    else:
        whole = jnp.floor(steps + random.uniform(key, x.shape, dtype=x.dtype))
    q = jnp.where(tiny, 0, jnp.clip(whole, -LEVELS, LEVELS)).astype(jnp.int8)
    sent = lax.bitcast_convert_type(jnp.where(tiny, 0, scale), jnp.int8)
    return jnp.concatenate([q, sent.reshape(*x.shape[:-1], _SCALE)], axis=-1)


def dequantize(payload: Any, dtype: Any) -> Any:
    """What bytes [..., block + 4] stand for: floats [..., block]."""
    q, sent = payload[..., :-_SCALE], payload[..., -_SCALE:]
    return q.astype(dtype) * lax.bitcast_convert_type(sent, jnp.float32).astype(dtype)[..., None]


def in_order(parts: Any, add: Callable[[Any, Any], Any], start: Any) -> Any:
    """``add`` of the rows of ``parts``, from the first to the last: the same bits wherever it is computed."""
    return lax.scan(lambda total, row: (add(total, row), None), start, parts)[0]
