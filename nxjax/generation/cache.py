"""Keys and values of the tokens that were read: arrays of fixed shapes that go through a jitted step as its carry.

A step takes a cache and gives the next one; donated, its arrays are written in place. Knows no weights.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from nxjax import lax, tree
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.generation.config import DecoderConfig
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap

# What keys and values may be kept in; int8 with a scale for each token and head.
DTYPES: Final = ("float32", "float16", "bfloat16", "float64", "int8")


class Cache(NamedTuple):
    """The keys and values of a decoder's sequences; a pytree.

    Attributes:
        keys, values: one array [batch, room, kv_heads, head_size] per layer; keys are rotated by their positions.
        length: int32 [batch], number of tokens read per sequence. Rows of ``keys`` after it are unused.
        key_scales, value_scales: for int8 keys and values, one float32 array of scales [batch, room, kv_heads] per
            layer; else empty.

    >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 4, "hidden": 8}
    >>> cache = init_cache(DecoderConfig(**sizes), room=6)
    >>> cache.room, cache.length.tolist()
    (6, [0])
    """

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    length: Array
    key_scales: tuple[Array, ...] = ()
    value_scales: tuple[Array, ...] = ()

    @property
    def room(self) -> int:
        """The largest number of tokens of a sequence."""
        return self.keys[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values, including scales."""
        held = (*self.keys, *self.values, *self.key_scales, *self.value_scales)
        return sum(x.size * x.dtype.itemsize for x in held)

    def places(self, layer: int, window: int) -> tuple[Array, Array, tuple[Array, ...]]:
        """Keys and values of a layer as they are kept, of the first ``window`` tokens, and their scales, if any."""
        keys, values, *scales = (
            rows[layer][:, :window] for rows in (self.keys, self.values, self.key_scales, self.value_scales) if rows
        )
        return keys, values, tuple(scales)

    def read(self, layer: int, window: int, dtype: Any) -> tuple[Array, Array, tuple[Array, ...]]:
        """As `places`, in ``dtype``: whole numbers are yet to be multiplied with their scales [batch, window,
        kv_heads]."""
        keys, values, scales = self.places(layer, window)
        return keys.astype(dtype), values.astype(dtype), scales

    def written(self, layer: int, keys: Array, values: Array) -> Cache:
        """The cache with ``keys`` and ``values`` [batch, t, kv_heads, head_size] added after the tokens of a layer."""
        parts = [list(part) for part in (self.keys, self.values, self.key_scales, self.value_scales)]
        for i, new in enumerate((keys, values)):
            if parts[2 + i]:
                new, scale = quantized(new)
                parts[2 + i][layer] = write(parts[2 + i][layer], scale, self.length)
            parts[i][layer] = write(parts[i][layer], new, self.length)
        key, value, key_scales, value_scales = map(tuple, parts)
        return Cache(key, value, self.length, key_scales, value_scales)


@entry
def init_cache(config: DecoderConfig, batch: int = 1, room: int | None = None, dtype: Any = "float32") -> Cache:
    """An empty cache.

    Args:
        config: of the decoder.
        batch: sequences.
        room: the most tokens a sequence may have; ``config.context`` by default, and at most that.
        dtype: of cached keys and values: a float dtype, or int8, which takes a quarter of float32's bytes and a scale
            for each token and head.

    Raises:
        ParameterError: more room than the decoder has positions for, or another dtype.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> cache = init_cache(config, batch=3)
    >>> len(cache.keys), cache.keys[0].shape, cache.nbytes
    (2, (3, 16, 1, 4), 3072)
    """
    room = config.context if room is None else room
    if type(room) is not int or not 1 <= room <= config.context:
        raise ParameterError("init_cache: room", got=room, expected=f"1 to {config.context}, the decoder's context")
    kept = _dtype(dtype)
    shape = (batch, room, config.kv_heads, config.head_size)
    many = lambda shape, dtype: tuple(jnp.zeros(shape, dtype) for _ in range(config.layers))
    scales = lambda: many(shape[:-1], "float32") if kept == "int8" else ()
    return Cache(many(shape, kept), many(shape, kept), jnp.zeros(batch, "int32"), scales(), scales())


def _dtype(given: Any) -> str:
    """The name of a dtype that keys and values may be kept in."""
    try:
        found = "" if given is None else str(jnp.dtype(given))
    except TypeError:
        found = ""
    if found not in DTYPES:
        raise ParameterError("init_cache: dtype of keys and values", got=given, expected=", ".join(DTYPES))
    return found


def quantized(x: Array) -> tuple[Array, Array]:
    """``x`` as int8, and the scales of its last axis: the largest magnitude of a row is 127."""
    # A row of zeros has a scale too, by which nothing is divided that is not 0.
    scale = jnp.maximum(abs(x).max(-1).astype("float32"), 1e-30) / 127
    return jnp.clip(jnp.round(x / scale[..., None]), -127, 127).astype("int8"), scale


def write(rows: Array, new: Array, start: Array) -> Array:
    """``rows`` [batch, room, ...] with ``new`` [batch, t, ...] from row ``start[i]`` on in sequence i."""
    if rows.shape[0] == 1:
        # One place for all: a copy into a donated array, where several places are a scatter.
        zero = jnp.zeros((), start.dtype)
        return lax.dynamic_update_slice(rows, new.astype(rows.dtype), (zero, start[0], *[zero] * (rows.ndim - 2)))
    one = lambda r, n, s: lax.dynamic_update_slice_in_dim(r, n.astype(r.dtype), s, 0)
    return vmap(one)(rows, new, start)


def placed(cache: Cache, part: Cache, rows: Array) -> Cache:
    """``cache`` with the sequences of ``part``, whose room is no larger, in its rows ``rows`` (int [n])."""
    near = lambda x, y: x.at[rows, : y.shape[1]].set(y) if x.ndim > 1 else x.at[rows].set(y)
    return tree.map(near, cache, part)


def chosen(cache: Cache, rows: Array) -> Cache:
    """The sequences ``rows`` (int [n]) of a cache, as a cache of n sequences; beams that go on from others."""
    pick = lambda x: jnp.take(x, rows, axis=0)
    return tree.map(pick, cache)
