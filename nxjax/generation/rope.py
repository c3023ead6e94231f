"""Rotary positions: the rates at which pairs of numbers turn, the angles of positions, and the turning.

Rates are made in float64 on the host; those that depend on the length of a sequence are chosen, or made, in the
program. Knows no weights.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.config import config as settings
from nxjax.generation.config import DecoderConfig, RopeScaling
from nxjax.numpy import host_functions
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]
# What the rates of a sequence are: those of the file, those beyond the original context, those of layers with a window.
NEAR: Final = "near"
FAR: Final = "far"
LOCAL: Final = "local"


def rotations(config: DecoderConfig, which: str = NEAR) -> tuple[NDArray, NDArray]:
    """Cosines and sines [context, pairs] of the angles of every position, float32; made in float64."""
    return _rotations(config, which, settings.reproducible)


@lru_cache(maxsize=8)
def _rotations(config: DecoderConfig, which: str, _: bool) -> tuple[NDArray, NDArray]:
    angles = np.arange(config.context)[:, None] * _rates(config, which)
    scaling = None if which == LOCAL else config.rope_scaling
    factor = 1.0 if scaling is None else scaling.attention_factor
    tables = (host_functions.cos(angles), host_functions.sin(angles))
    cos, sin = ((t if factor == 1 else t * factor).astype(np.float32) for t in tables)
    return cos, sin


def _rates(config: DecoderConfig, which: str) -> NDArray:
    """Radians per position of each pair."""
    pairs = (config.rotary or config.head_size) // 2
    base = config.local_rope_base if which == LOCAL and config.local_rope_base else config.rope_base
    rates = host_functions.power(np.full(pairs, float(base)), -np.arange(pairs) / pairs)
    scaling = config.rope_scaling
    if scaling is None or (which == LOCAL and config.local_rope_base):
        return rates
    if scaling.kind == "linear":
        return rates / scaling.factor
    if scaling.kind == "longrope":
        return rates / np.array(scaling.long if which == FAR else scaling.short, np.float64)
    if scaling.kind == "llama3":
        return _llama3(rates, scaling)
    return _yarn(rates, scaling, base) if scaling.kind == "yarn" else rates


def _llama3(rates: NDArray, scaling: RopeScaling) -> NDArray:
    """Llama 3.1's: between the two frequencies, the share of the rate that is kept grows with the turns."""
    turns = scaling.original_context * rates / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return rates * (kept + (1 - kept) / scaling.factor)


def _yarn(rates: NDArray, scaling: RopeScaling, base: float) -> NDArray:
    """Peng et al., "YaRN" (2023), section 3.2."""
    size = 2 * len(rates)

    def pair(turns: float) -> float:
        return size * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    divided = np.clip((np.arange(len(rates)) - low) / ((high - low) or 1e-3), 0, 1)
    return rates * (1 - divided + divided / scaling.factor)


def are_fixed(config: DecoderConfig, length: int) -> bool:
    """Whether the rates of sequences of up to so many tokens do not depend on their length."""
    scaling = config.rope_scaling
    return scaling is None or scaling.kind not in ("dynamic", "longrope") or scaling.original_context >= length


def angles(config: DecoderConfig, positions: Any, length: Any, *, local: bool = False) -> tuple[Array, Array]:
    """Cosines and sines [batch, t, 1, pairs] of positions.

    Args:
        positions: int [batch, t], or the number of them, from 0 on.
        length: tokens of the sequences, [batch, 1] or for each position [batch, t], or a number.
        local: of layers with a window.
    """
    scaling = config.rope_scaling
    if local and config.local_rope_base:
        return _looked_up(config, positions, LOCAL)
    if scaling is None or are_fixed(config, length if isinstance(length, int) else config.context):
        return _looked_up(config, positions, NEAR)
    if scaling.kind == "dynamic":
        return _dynamic(config, scaling, positions, length)
    if isinstance(length, int):
        return _looked_up(config, positions, FAR)
    beyond = (length > scaling.original_context)[:, :, None, None]
    near, far = (_looked_up(config, positions, which) for which in (NEAR, FAR))
    return jnp.where(beyond, far[0], near[0]), jnp.where(beyond, far[1], near[1])


def _looked_up(config: DecoderConfig, positions: Any, which: str) -> tuple[Array, Array]:
    tables = rotations(config, which)
    if isinstance(positions, int):
        cos, sin = (jnp.asarray(a[:positions])[None, :, None, :] for a in tables)
    else:
        cos, sin = (jnp.asarray(a)[positions][:, :, None, :] for a in tables)
    return cos, sin


def _dynamic(config: DecoderConfig, scaling: RopeScaling, positions: Any, length: Any) -> tuple[Array, Array]:
    """The base grows with the length, so that the slowest pair turns as far as in training."""
    pairs = (config.rotary or config.head_size) // 2
    grown = jnp.maximum(jnp.asarray(length).astype("float32") / scaling.original_context, 1.0)
    base = config.rope_base * (scaling.factor * grown - (scaling.factor - 1)) ** (pairs / (pairs - 1))
    rates = jnp.exp(jnp.log(base)[..., None] * jnp.asarray(-np.arange(pairs, dtype=np.float32) / pairs))
    at = jnp.arange(positions)[None] if isinstance(positions, int) else positions
    turned = at[..., None].astype("float32") * rates
    return jnp.cos(turned)[:, :, None, :], jnp.sin(turned)[:, :, None, :]


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """``x`` [batch, t, heads, head_size] with pair (i, i + half) turned, and what is beyond the pairs as it was;
    cosines and sines [batch, t, 1, half]."""
    pairs = cos.shape[-1]
    if 2 * pairs < x.shape[-1]:
        return jnp.concatenate([rotated(x[..., : 2 * pairs], cos, sin), x[..., 2 * pairs :]], axis=-1)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
