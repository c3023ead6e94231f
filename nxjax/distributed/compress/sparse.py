"""`top_k`: each device sends its largest numbers and their places; the others wait."""

from __future__ import annotations

import math
from typing import Any, final

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.distributed.blocks import in_order, packing
from nxjax.distributed.compress.base import Compressor, check_memory
from nxjax.errors import ParameterError


@final
class TopKCompressor(Compressor):
    """See `top_k`."""

    def __init__(self, axis_name: Any, ratio: float, error_feedback: bool) -> None:
        super().__init__(axis_name)
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
            raise ParameterError("compress.top_k: ratio", got=repr(ratio), expected="a number above 0, at most 1")
        self.ratio = ratio
        self.error_feedback = error_feedback

    def start(self, grads: Any, devices: int) -> tuple[Any, Any]:
        p = packing("compress.top_k", grads)
        return ({"unsent": jnp.zeros(p.size, p.dtype)} if self.error_feedback else ()), ()

    def mean(self, grads: Any, own: Any, shared: Any) -> tuple[Any, Any, Any]:
        p = packing("compress.top_k", grads)
        if not p.size:
            return grads, own, shared
        vector = p.pack(grads)
        if self.error_feedback:
            check_memory("compress.top_k", own["unsent"], (p.size,))
            vector = vector + own["unsent"]
        count = math.ceil(self.ratio * p.size)
        # NaN counts as the largest, so that it is seen by all.
        _, places = lax.top_k(jnp.where(jnp.isnan(vector), jnp.inf, jnp.abs(vector)), count)
        values = vector[places]
        n = lax.axis_size(self.axis_name)
        if p.dtype == jnp.float32:
            # One message: the numbers' bits beside the places.
            sent = jnp.concatenate([lax.bitcast_convert_type(values, jnp.int32), places.astype(jnp.int32)])
            came = lax.all_gather(sent, self.axis_name).reshape(n, 2, count)
            rows = lax.bitcast_convert_type(came[:, 0], jnp.float32), came[:, 1]
        else:
            rows = tuple(lax.all_gather(x, self.axis_name).reshape(n, count) for x in (values, places))
        # Places of one device differ from each other, those of two may not: added device by device, in one order.
        add = lambda total, row: total.at[row[1]].add(row[0], unique_indices=True)
        total = in_order(rows, add, lax.pvary(jnp.zeros(p.size, p.dtype), self.axis_name))
        if self.error_feedback:
            own = {"unsent": vector.at[places].set(0, unique_indices=True)}
        return p.unpack(total / n), own, shared


def top_k(axis_name: Any, ratio: float = 0.01, *, error_feedback: bool = True) -> Compressor:
    """The ``ratio`` of numbers with the largest magnitudes, and their places: 8 bytes each (of float32).

    They are chosen among all leaves together. What is not sent is kept, grows, and is sent when it is large (Lin
    et al., Deep Gradient Compression, 2018). Each device receives ``(n - 1) 8 ratio`` bytes per number, so with more
    than about ``1 / ratio`` devices it sends more than `lax.pmean`.

    Args:
        axis_name: name or names of mesh axes.
        ratio: above 0, at most 1.
        error_feedback: keep what is not sent.

    Raises:
        ParameterError: ``ratio`` is out of range.

    >>> compressor = nx.distributed.compress.top_k("i", 0.5)
    >>> grads = jnp.array([[4.0, 1.0], [-1.0, 2.0]])
    >>> mean, memory = nx.vmap(lambda g: compressor(g, compressor.init(g)), axis_name="i")(grads)
    >>> mean[0].tolist(), memory.own["unsent"][:, 0].tolist()
    ([2.0, 1.0], [[0.0, 1.0], [-1.0, 0.0]])
    """
    return TopKCompressor(axis_name, ratio, error_feedback)
