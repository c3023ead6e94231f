"""What kernels take by their cost, and which are for several threads. Knows no machine but an ordinary core's speed."""

from __future__ import annotations

from typing import Final

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import Kernel

# What one thread does in a nanosecond, about, and what a step of a tape takes beside its kernel.
_FLOPS_PER_NS: Final = 16.0
BYTES_PER_NS: Final = 16.0
STEP_NS: Final = 10
# A kernel of two grains is worth the helpers' time: to have them costs less than a microsecond while they are awake. A
# grain takes a few microseconds with vectors of 256 bits, and half of that with 512. What helpers write is in their
# caches, from where the next kernel fetches it line by line, so a kernel that does not read far more than it writes
# needs as many grains as a vector has times 128 bits.
_GRAINS: Final = 2
_GRAIN_BITS: Final = 128
_READS: Final = 16
_FEW: Final = 8
# At most so many chunks of a kernel: with more, taking them costs and memory is read in pieces.
CHUNKS: Final = 512


def time_of(kernel: Kernel) -> float:
    """Nanoseconds of one thread for a kernel, by its cost."""
    cost = kernel.cost()
    return max(cost.flops / _FLOPS_PER_NS, (cost.read + cost.written) / BYTES_PER_NS)


def grains_of(kernel: Kernel) -> float:
    """How many grains a kernel has."""
    return kernel.items / max(kernel.grain, 1)


def least_grains() -> int:
    """How many grains are worth the helpers' time where what they write is for one thread."""
    return max(isa.current().bits // _GRAIN_BITS, _GRAINS)


def can_share(kernel: Kernel) -> bool:
    """Whether a kernel is long enough for helpers, if what they write is for them.

    Of fewer items than two for each of two threads, nothing is left for the one that is done first.
    """
    return grains_of(kernel) >= _GRAINS and kernel.items >= 2 * _GRAINS and kernel.items > chunk_of(kernel)


def is_parallel(kernel: Kernel) -> bool:
    """Whether helpers take part in a kernel, whatever is before and after it."""
    cost = kernel.cost()
    least = _GRAINS if cost.read >= _READS * cost.written else least_grains()
    return grains_of(kernel) >= least and kernel.items > chunk_of(kernel)


def chunk_of(kernel: Kernel) -> int:
    """How many items a thread takes at once: by the number of items and the grain only.

    About a grain, in pieces of one size. Few pieces are an even number: of three, one thread would have two.
    """
    count = min(max(kernel.items // max(kernel.grain, 1), 1), CHUNKS)
    count += count % 2 if 1 < count < _FEW else 0
    return max(1, -(-kernel.items // count))
