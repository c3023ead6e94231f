"""Which process writes which part of an array, and putting parts together again on whatever is asked for.

An array that is cut over devices is written in its blocks, each once, by the process that has the first copy of it.
Which that is follows from the sharding alone, so every process knows all parts without being told. Arrays are taken by
their interface (``sharding``, ``addressable_shards``), JAX's or ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax.checkpoints import processes
from nxjax.errors import InvalidFileError
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]
Box = tuple[tuple[int, int], ...]


@final
@dataclass(frozen=True)
class Part:
    """A block of an array.

    Attributes:
        box: start and end in each dimension.
        owner: the process that writes it.
        data: its elements, where this process is the owner.
    """

    box: Box
    owner: int
    data: NDArray | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(end - start for start, end in self.box)


def elements(x: Any) -> NDArray:
    """The elements of an array, no copy where there need be none."""
    return x.numpy() if isinstance(x, Array) else np.asarray(x)


def box_of(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """Slices with their bounds written out."""
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def parts_of(x: Any, shape: tuple[int, ...]) -> list[Part]:
    """The parts of an array in an order that is the same in every process."""
    sharding = getattr(x, "sharding", None)
    here = processes.index()
    if sharding is None or len(sharding.device_set) == 1:
        mine = here == 0
        return [Part(tuple((0, n) for n in shape), 0, elements(x) if mine else None)]
    owners: dict[Box, int] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        owners.setdefault(box_of(index, shape), device.process_index)
    own: dict[Box, Any] = {}
    for shard in x.addressable_shards:
        own.setdefault(box_of(shard.index, shape), shard)
    return [Part(box, owner, elements(own[box].data) if owner == here else None) for box, owner in owners.items()]


def gathered(box: Box, dtype: DType, known: Sequence[tuple[Box, Callable[[], NDArray]]], where: str) -> NDArray:
    """The elements in ``box`` from the parts that it meets; a view where one part has them all.

    Raises:
        InvalidFileError: the parts leave a gap, or overlap.
    """
    shape = tuple(end - start for start, end in box)
    met: list[tuple[Box, Box, Callable[[], NDArray]]] = []
    for other, read in known:
        common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
        if all(a < b for a, b in common) or 0 in shape:
            met.append((common, other, read))
    if met and (0 in shape or met[0][0] == box):
        common, other, read = met[0]
        return read()[_within(common, other)]
    if sum(math.prod(b - a for a, b in common) for common, _, _ in met) != math.prod(shape):
        raise InvalidFileError(f"checkpoint: {where}: its parts do not make it up", got=f"{len(met)} parts for {shape}")
    whole = np.zeros(shape, dtype)
    for common, other, read in met:
        whole[_within(common, box)] = read()[_within(common, other)]
    whole.flags.writeable = False
    return whole


def _within(inner: Box, outer: Box) -> tuple[slice, ...]:
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(inner, outer, strict=True))
