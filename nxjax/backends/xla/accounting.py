"""How much memory arrays take on a device: the runtime's own count, or ours where it has none (the CPU).

Ours looks at the buffers that exist, when it is asked and whenever results of a certain size have been made since it
last looked. Nothing is counted buffer by buffer, which would cost more than a small call itself; so the peak may be
missed by at most `_STEP` or a sixteenth of what is in use, whichever is more.
"""

from __future__ import annotations

from typing import Any, Final

from nxjax.backends.xla.client import Client, without_jax

_STEP: Final = 16 * 2**20  # bytes

# Per client and device: the largest number of bytes seen in use.
_peaks: Final[dict[tuple[str, int], int]] = {}
# Bytes that results may still take before somebody looks; executables subtract what they make.
left: Final = [_STEP]


def memory_stats(c: Client, device: int) -> dict[str, Any]:
    """JAX's keys (``bytes_in_use``, ``peak_bytes_in_use``, ``num_allocs``, ...) and ``accounting``."""
    counted: dict[str, Any] | None = c.by_id[device].memory_stats()
    if counted:
        return {**counted, "accounting": "runtime"}
    sizes = sample(c).get(device, {})
    return {
        "bytes_in_use": sum(sizes.values()),
        "peak_bytes_in_use": _peaks.get((c.platform, device), 0),
        "num_allocs": len(sizes),
        "largest_alloc_size": max(sizes.values(), default=0),
        "accounting": "live buffers",
    }


def sample(c: Client) -> dict[int, dict[int, int]]:
    """Device -> address -> bytes of the buffers that arrays hold now. Arrays that share memory are counted once."""
    c.jaxlib.collect_garbage()
    found: dict[int, dict[int, int]] = {}
    with without_jax(c):
        for raw in c.raw.live_arrays():
            for part in raw._arrays or ():
                if size := part.on_device_size_in_bytes():
                    device = part._sharding._internal_device_list[0].id
                    found.setdefault(device, {})[part.unsafe_buffer_pointer()] = size
    total = 0
    for device, sizes in found.items():
        used = sum(sizes.values())
        total += used
        _peaks[c.platform, device] = max(_peaks.get((c.platform, device), 0), used)
    left[0] = max(_STEP, total // 16)
    return found
