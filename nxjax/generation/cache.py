"""Keys and values of the tokens that were read: arrays of fixed shapes that go through a jitted step as its carry.

A step takes a cache and gives the next one; donated, its arrays are written in place. Knows no weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.generation.config import DecoderConfig
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap


class Cache(NamedTuple):
    """What a decoder remembers of its sequences; a pytree.

    Attributes:
        keys, values: one array [batch, room, kv_heads, head_size] per layer; keys are rotated by their positions.
        length: int32 [batch], tokens of each sequence that were read. Rows of ``keys`` from there on hold nothing.

    >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 4, "hidden": 8}
    >>> cache = init_cache(DecoderConfig(**sizes), room=6)
    >>> cache.room, cache.length.tolist()
    (6, [0])
    """

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    length: Array

    @property
    def room(self) -> int:
        """The most tokens a sequence may have."""
        return self.keys[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(x.size * x.dtype.itemsize for x in (*self.keys, *self.values))


def init_cache(config: DecoderConfig, batch: int = 1, room: int | None = None, dtype: Any = "float32") -> Cache:
    """An empty cache.

    Args:
        config: of the decoder.
        batch: sequences.
        room: the most tokens a sequence may have; ``config.context`` by default, and at most that.
        dtype: float dtype in which keys and values are kept.

    Raises:
        ParameterError: more room than the decoder has positions for.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> cache = init_cache(config, batch=3)
    >>> len(cache.keys), cache.keys[0].shape, cache.nbytes
    (2, (3, 16, 1, 4), 3072)
    """
    room = config.context if room is None else room
    if not 1 <= room <= config.context:
        raise ParameterError("init_cache: room", got=room, expected=f"1 to {config.context}, the decoder's context")
    make = lambda: jnp.zeros((batch, room, config.kv_heads, config.head_size), dtype)
    keys, values = (tuple(make() for _ in range(config.layers)) for _ in range(2))
    return Cache(keys, values, jnp.zeros(batch, "int32"))


def write(rows: Array, new: Array, start: Array) -> Array:
    """``rows`` [batch, room, ...] with ``new`` [batch, t, ...] from row ``start[i]`` on in sequence i."""
    if rows.shape[0] == 1:
        # One place for all: a copy into a donated array, where several places are a scatter.
        zero = jnp.zeros((), start.dtype)
        return lax.dynamic_update_slice(rows, new.astype(rows.dtype), (zero, start[0], *[zero] * (rows.ndim - 2)))
    one = lambda r, n, s: lax.dynamic_update_slice_in_dim(r, n.astype(r.dtype), s, 0)
    return vmap(one)(rows, new, start)


def chosen(cache: Cache, rows: Array) -> Cache:
    """The sequences ``rows`` (int [n]) of a cache, as a cache of n sequences; beams that go on from others."""
    pick = lambda x: jnp.take(x, rows, axis=0)
    return Cache(tuple(map(pick, cache.keys)), tuple(map(pick, cache.values)), pick(cache.length))
