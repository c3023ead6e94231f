"""Copies that overlap with computing: two buffers that take turns, and inputs that are moved ahead of their use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

from nxjax.backends import placing
from nxjax.backends.memory.pool import MemoryPools
from nxjax.backends.memory.unified import UnifiedBuffer, unified_buffer
from nxjax.config import with_current_settings
from nxjax.errors import ParameterError, Shown
from nxjax.trace import tree
from nxjax.trace.annotations import DeviceLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.boundary import entry
from nxjax.trace.sharding import Sharding, SingleDeviceSharding


@final
class DoubleBuffer(Shown):
    """Two equal unified buffers: read ``front`` while ``back`` is filled, then `swap` them.

    Args:
        shape, dtype, access, pools, name: as for `nxjax.unified_buffer`.

    >>> pair = DoubleBuffer(2)
    >>> pair.back.write(nx.ones(2))
    >>> pair.swap().array().tolist()
    [1.0, 1.0]
    """

    @entry
    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = "float32",
        *,
        access: str = "streaming",
        pools: MemoryPools | None = None,
        name: str = "",
    ) -> None:
        make = lambda which: unified_buffer(shape, dtype, access=access, pools=pools, name=f"{name} {which}".strip())
        self.front: UnifiedBuffer = make("front")
        self.back: UnifiedBuffer = make("back")

    def swap(self) -> UnifiedBuffer:
        """Make the filled buffer the front one, and return it."""
        self.front, self.back = self.back, self.front
        return self.front

    def close(self) -> None:
        """Free the memory of both."""
        self.front.close()
        self.back.close()


@entry
def prefetch(
    items: Iterable[Any],
    device: DeviceLike = None,
    *,
    depth: int = 2,
    put: Callable[[Any], Any] | None = None,
    pools: MemoryPools | None = None,
) -> Iterator[Any]:
    """The items in order. A thread moves the next ones while the consumer works.

    Args:
        items: trees of arrays, read by one thread in order.
        device: the destination; None with ``put``, or to only read ahead.
        depth: how many items to move ahead; 2 is double buffering.
        put: moves one item, in place of `nx.device_put`.
        pools: their limits apply to arrays on the device.

    Raises:
        ParameterError: ``depth`` is below 1.

    An error of ``items`` or of a move is raised in place of its item. If the consumer stops early, the thread stops.

    >>> import numpy as np, nxjax as nx
    >>> batches = (np.full(3, i, np.float32) for i in range(3))
    >>> [float(nx.jit(nx.sum)(x)) for x in prefetch(batches, nx.devices("cpu")[0])]
    [0.0, 3.0, 6.0]
    """
    if depth < 1:
        raise ParameterError("prefetch: depth", got=depth, expected="at least 1")
    move = put or (lambda x: x if device is None else _moved(x, device, pools))
    return _ahead(iter(items), move, depth)


def _ahead(source: Iterator[Any], move: Callable[[Any], Any], depth: int) -> Iterator[Any]:
    end = object()
    lock = threading.Lock()

    def one() -> Any:
        with lock:
            item = next(source, end)
            return end if item is end else move(item)

    ask = with_current_settings(one)
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(1, "nxjax-prefetch") as thread:
        try:
            waiting.extend(thread.submit(ask) for _ in range(depth))
            while (item := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(ask))
                yield item
        finally:
            for future in waiting:
                future.cancel()


def _moved(x: Any, device: Any, pools: MemoryPools | None) -> Any:
    if pools is not None:
        return tree.map(lambda leaf: pools.put(leaf, device), x)
    place = device if isinstance(device, Sharding) else SingleDeviceSharding(placing.device_of(device, "prefetch"))
    return tree.map(lambda leaf: placing.put(as_value(leaf, "prefetch"), place), x)  # pyright: ignore[reportArgumentType]
