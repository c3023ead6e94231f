"""Shardings in the words of XLA's partitioner, and back. Knows no buffer and no program.

All of jaxlib's arrays and programs here have their devices in one order, that of their numbers (`in_order`): shardings
that name the same devices in other orders then share buffers and executables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from nxjax.trace.mesh import Mesh
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.sharding import NamedSharding, Sharding, SingleDeviceSharding, named_from_tiles


def in_order(devices: Iterable[Any]) -> tuple[Any, ...]:
    """Devices as jaxlib is given them."""
    return tuple(sorted(devices, key=lambda d: d.id))


def hlo_sharding(xla_client: Any, sharding: Sharding, ndim: int) -> Any:
    """XLA's description of how an array of rank ``ndim`` is cut: positions of devices in order, block by block."""
    kind = xla_client.HloSharding
    if sharding.is_fully_replicated or not ndim:
        return kind.replicate()
    tiles, blocks = sharding.tiles(ndim), sharding.blocks(ndim)
    replicas = len(blocks) // int(np.prod(tiles))
    flat = np.ravel_multi_index(tuple(blocks.T), tiles)
    order = np.argsort(flat, kind="stable")
    op = xla_client.OpSharding()
    op.type = xla_client.OpSharding.Type.OTHER
    op.tile_assignment_dimensions = [*tiles, replicas] if replicas > 1 else list(tiles)
    place = {d: i for i, d in enumerate(in_order(sharding.device_list))}
    op.tile_assignment_devices = [place[sharding.device_list[i]] for i in order]
    op.replicate_on_last_tile_dim = replicas > 1
    return kind.from_proto(op)


def sharding_of(xla_client: Any, answer: Any, mesh: Mesh, ndim: int) -> Sharding:
    """The sharding that a compiled program's answer (an ``OpSharding``) means over the devices of ``mesh``."""
    if mesh.size == 1:
        return SingleDeviceSharding(mesh.device_list[0])
    hlo = xla_client.HloSharding.from_proto(answer)
    if not ndim or not hlo.is_tiled():  # copies, or a scalar of which nothing is said
        return NamedSharding(mesh, PartitionSpec())
    dimensions = list(hlo.tile_assignment_dimensions())
    place = {d: i for i, d in enumerate(mesh.device_list)}
    known = np.array([place[d] for d in in_order(mesh.device_list)])
    order = known[np.asarray(hlo.tile_assignment_devices())].reshape([*dimensions[:ndim], -1])
    return named_from_tiles(mesh, order, ndim)
