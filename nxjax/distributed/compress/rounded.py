"""`int8`: gradients in blocks of int8 in both halves of the all-reduce, with error feedback on both sides."""

from __future__ import annotations

from typing import Any, final

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.distributed.blocks import BLOCK, checked, filled, packing, padded
from nxjax.distributed.compress.base import Compressor, Memory, check_memory
from nxjax.distributed.quantized import exchanged


@final
class Int8(Compressor):
    """See `int8`."""

    def __init__(self, axis_name: Any, block: int, stochastic: bool, error_feedback: bool, seed: int) -> None:
        super().__init__(axis_name)
        self.block = checked("compress.int8: block", block, 1)
        self.stochastic = stochastic
        self.error_feedback = error_feedback
        self.seed = seed

    def start(self, grads: Any, devices: int) -> tuple[Any, Any]:
        p = packing("compress.int8", grads)
        size = padded(p.size, devices, self.block)
        own: Any = ()
        if self.error_feedback:
            own = {"unsent": jnp.zeros(size, p.dtype), "unanswered": jnp.zeros(size // devices, p.dtype)}
        return own, {"key": random.PRNGKey(self.seed)} if self.stochastic else ()

    def mean(self, grads: Any, own: Any, shared: Any) -> tuple[Any, Any, Any]:
        p = packing("compress.int8", grads)
        key = None
        if self.stochastic:
            following, key = random.split(shared["key"])
            shared = {"key": following}
        if not self.error_feedback:
            found, *_ = exchanged(p, grads, self.axis_name, self.block, key, "compress.int8", mean=True)
            return found, own, shared
        n = lax.axis_size(self.axis_name)
        size = padded(p.size, n, self.block)
        check_memory("compress.int8", own["unsent"], (size,))
        check_memory("compress.int8", own["unanswered"], (size // n,))
        found, unsent, unanswered = exchanged(
            p, grads, self.axis_name, self.block, key, "compress.int8", own["unsent"], own["unanswered"], mean=True
        )
        return found, {"unsent": unsent, "unanswered": unanswered}, shared

    def moved(self, memory: Memory, grads: Any, devices: int) -> Memory:
        if not self.error_feedback:
            return memory
        p = packing("compress.int8", grads)
        before, size = memory.own["unsent"].shape[0], padded(p.size, devices, self.block)
        # Parts of sums are of places in the vector: together they are one, cut anew, for means over other numbers.
        answers = jnp.asarray(memory.own["unanswered"]).reshape(-1)[: p.size] * (devices / before)
        unsent = jnp.asarray(memory.own["unsent"]).mean(0)[: p.size]
        own = {
            "unsent": jnp.broadcast_to(filled(unsent, size), (devices, size)),
            "unanswered": filled(answers, size).reshape(devices, -1),
        }
        return Memory(own, memory.shared)


def int8(
    axis_name: Any, *, block: int = BLOCK, stochastic: bool = False, error_feedback: bool | None = None, seed: int = 0
) -> Compressor:
    """Gradients as int8 with a scale per block, a quarter of float32's bytes: `quantized_pmean` with error feedback.

    The rounding errors of each device's gradients and of the sums are both kept (as in 1-bit Adam: Tang
    et al., 2021): over any number of steps, the returned means and the memory add up to the gradients' mean.

    Args:
        axis_name: name or names of mesh axes.
        block: numbers that share a scale.
        stochastic: random rounding, so that every mean is right on average (QSGD: Alistarh et al., 2017).
        error_feedback: keep what was not sent. By default unless ``stochastic``.
        seed: of the random numbers; their key is part of the memory.

    Raises:
        ParameterError: ``block`` is not a whole number from 1.

    >>> compressor = nx.distributed.compress.int8("i")
    >>> grads = jnp.array([[127.0, 0.2], [1.0, 0.2]])
    >>> mean = nx.vmap(lambda g: compressor(g, compressor.init(g))[0], axis_name="i")(grads)
    >>> mean[0].round(2).tolist()              # 0.2 is less than half a step of the first device's 127
    [64.0, 0.0]
    """
    return Int8(axis_name, block, stochastic, not stochastic if error_feedback is None else error_feedback, seed)
