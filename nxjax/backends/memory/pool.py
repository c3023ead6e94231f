"""How much memory buffers for each kind of device may take, who holds it, and what is said when there is no more.

The memory is the host's: that of the CPU compiler's pool, which devices of a shared memory (NPUs, integrated GPUs) use
where it lies. What arrays take on a device of its own memory is counted by its runtime, and asked there.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final, final

from nxjax.backends import placing
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.backends.memory.statistics import Counters, MemoryStatistics
from nxjax.config.weak_registry import WeakRegistry
from nxjax.display.sizes import parse_size, shown
from nxjax.errors import MemoryLimitError, ParameterError, Shown
from nxjax.trace.array import as_value
from nxjax.trace.sharding import SingleDeviceSharding

# Names that programs use for a kind of device.
ALIASES: Final = {"system": "cpu", "host": "cpu", "igpu": "gpu", "vulkan": "gpu", "cuda": "gpu", "rocm": "gpu"}
KINDS: Final = ("cpu", "gpu", "npu", "tpu", "ipu")
# From this size on a block has pages of its own, and so begins with one; see `nxjax.backends.cpu.native.pool`.
_OWN_PAGES: Final = 256 * 1024
PAGE: Final = 4096


def kind_of(name: str) -> str:
    """The kind of device that a name means.

    Raises:
        ParameterError: it means none.

    >>> kind_of("igpu"), kind_of("system")
    ('gpu', 'cpu')
    """
    kind = ALIASES.get(name, name)
    if kind not in KINDS:
        raise ParameterError("memory: no such kind of device", got=name, expected=", ".join((*KINDS, *ALIASES)))
    return kind


@final
class Reservation(Shown):
    """Bytes of a pool, held until `release` or the end of the object."""

    __slots__ = ("__weakref__", "_pool", "_release", "name", "nbytes")

    def __init__(self, pool: MemoryPool, nbytes: int, name: str) -> None:
        self.nbytes = nbytes
        self.name = name
        self._pool = pool
        self._release = weakref.finalize(self, pool._give_back, nbytes)

    def release(self) -> None:
        """Give the bytes back; a second time does nothing."""
        self._release()
        self._pool._held.discard(self)


@final
class MemoryPool:
    """Memory for buffers of one kind of device.

    Args:
        kind: ``cpu``, ``gpu``, ``npu``, ``tpu`` or ``ipu``.
        limit: bytes, or a text such as ``"1GB"``; None: no limit.
    """

    def __init__(self, kind: str, limit: int | str | None = None) -> None:
        self.kind = kind_of(kind)
        self.limit = None if limit is None else parse_size(limit, f"memory: limit of {kind}")
        self.counters = Counters()
        self._held: WeakRegistry[Reservation] = WeakRegistry()

    def reserve(self, nbytes: int, name: str = "") -> Reservation:
        """Count ``nbytes`` as held, under a name for reports.

        Raises:
            MemoryLimitError: the limit would be exceeded; the message lists what holds the memory.
        """
        c = self.counters
        with c.lock:
            if self.limit is not None and c.in_use + nbytes > self.limit:
                raise self._full(nbytes, name)
            c.in_use += nbytes
            c.peak = max(c.peak, c.in_use)
        found = Reservation(self, nbytes, name)
        self._held.add(found)
        return found

    def _give_back(self, nbytes: int) -> None:
        with self.counters.lock:
            self.counters.in_use -= nbytes

    def _full(self, nbytes: int, name: str) -> MemoryLimitError:
        assert self.limit is not None
        held = sorted(self._held, key=lambda r: -r.nbytes)
        rows = [f"{shown(r.nbytes)} {r.name or 'a buffer without a name'}" for r in held[:5]]
        rest = len(held) - len(rows)
        what = f"{name or 'a buffer'} of {shown(nbytes)}"
        largest = f"close {held[0].name or 'the largest buffer'}, or raise" if held else "raise"
        return MemoryLimitError(
            f"memory: no room in the {self.kind} pool for {what}",
            got=f"{shown(self.counters.in_use)} of {shown(self.limit)} are held: "
            + ("; ".join(rows) or "nothing")
            + (f"; and {rest} more" if rest > 0 else ""),
            expected=f"at most {shown(max(self.limit - self.counters.in_use, 0))}",
            fix=f"{largest} the limit: MemoryPools({self.kind}=...)",
        )

    def block(self, nbytes: int, name: str = "", page: bool = False) -> tuple[PoolBlock, Reservation]:
        """Memory of the host's pool, 64-byte aligned, or from the start of a page.

        Raises:
            MemoryLimitError: the limit would be exceeded, or the system gives no more.
        """
        size = max(nbytes, _OWN_PAGES) if page else nbytes
        reservation = self.reserve(size, name)
        native = runtime()  # the lock under which it is made is not taken inside of this one
        with self.counters.lock:
            before = native.statistics()["hits"]
            block = PoolBlock(size)
            hit = native.statistics()["hits"] > before
            self.counters.hits += hit
            self.counters.misses += not hit
        return block, reservation

    @property
    def statistics(self) -> MemoryStatistics:
        """The figures now."""
        c = self.counters
        with c.lock:
            return MemoryStatistics(
                self.kind, self.limit, c.in_use, c.peak, len(self._held), c.hits, c.misses, c.copied, c.shared
            )

    def __repr__(self) -> str:
        return f"MemoryPool({self.statistics})"


@final
class MemoryPools:
    """A pool per kind of device, each with its limit.

    Args:
        limits: a kind of device and its limit: ``npu="1GB"``, ``gpu=2**31``; others have no limit. ``system`` means
            ``cpu``; ``igpu`` and ``vulkan`` mean ``gpu``.

    Raises:
        ParameterError: an unknown kind of device, or not a size.

    >>> pools = MemoryPools(npu="1GB", vulkan="2GB", system="4GB")
    >>> pools["npu"].limit == 2**30, pools["gpu"].limit == 2 * 2**30
    (True, True)
    >>> buffer = pools.unified_buffer((4, 4), "float32", access="npu_primary", name="features")
    >>> print(pools["npu"].statistics.buffers, buffer.access)
    1 npu_primary
    """

    def __init__(self, **limits: int | str | None) -> None:
        self._pools: dict[str, MemoryPool] = {}
        for name, limit in limits.items():
            kind = kind_of(name)
            if kind in self._pools:
                raise ParameterError("MemoryPools: a kind of device is named twice", got=name, expected=kind)
            self._pools[kind] = MemoryPool(kind, limit)

    def __getitem__(self, kind: str) -> MemoryPool:
        """The pool of a kind of device, made without a limit where none was named."""
        kind = kind_of(kind)
        return self._pools.setdefault(kind, MemoryPool(kind))

    def unified_buffer(self, shape: Any, dtype: Any = "float32", *, access: str = "flexible", name: str = "") -> Any:
        """A buffer that counts here; see `nxjax.unified_buffer`."""
        from nxjax.backends.memory.unified import unified_buffer

        return unified_buffer(shape, dtype, access=access, pools=self, name=name)

    def put(self, x: Any, device: Any) -> Any:
        """``x`` as an array on ``device``, if the memory that its runtime reports stays below the limit.

        Args:
            device: one of `nx.devices()`.

        Raises:
            MemoryLimitError: it would exceed the limit.
        """
        place = placing.device_of(device, "MemoryPools.put")
        value: Any = as_value(x, "MemoryPools.put")
        pool, nbytes = self[place.platform], value.type.size * value.type.dtype.itemsize
        used = int((place.memory_stats() or {}).get("bytes_in_use", 0))
        if pool.limit is not None and used + nbytes > pool.limit:
            raise MemoryLimitError(
                f"memory: no room on {place} for {value.type}",
                got=f"{shown(used)} are in use by its runtime's count, {shown(nbytes)} are requested",
                expected=f"at most {shown(pool.limit)}, the limit of the {pool.kind} pool",
                fix=f"delete arrays that are on it (x.delete()), or raise the limit: MemoryPools({pool.kind}=...)",
            )
        found = placing.put(value, SingleDeviceSharding(place))
        moved = found.buffer is not None and found.buffer is not value.buffer
        pool.counters.add(copied=nbytes if moved else 0, shared=0 if moved else nbytes)
        return found

    @property
    def statistics(self) -> Mapping[str, MemoryStatistics]:
        """The figures of each pool."""
        return {kind: pool.statistics for kind, pool in self._pools.items()}

    def __str__(self) -> str:
        return "\n".join(map(str, self.statistics.values())) or "no pools are in use"

    def __repr__(self) -> str:
        return f"MemoryPools({', '.join(f'{p.kind}={p.limit!r}' for p in self._pools.values())})"


# Pools of buffers that name none.
default_pools: Final = MemoryPools()
