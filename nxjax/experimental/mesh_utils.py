"""`create_device_mesh`: devices in a grid, for `Mesh`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.sharding import make_mesh

__all__ = ["create_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """The devices of `nx.make_mesh` as an array of this shape.

    Args:
        mesh_shape: sizes.
        devices: all of the default platform if left out.
        contiguous_submeshes, allow_split_physical_axes: about the wiring of TPU slices, which is not looked at here.

    Raises:
        ShardingError: fewer devices than the mesh needs.

    >>> from nxjax.sharding import Mesh
    >>> Mesh(create_device_mesh((1, 1)), ("data", "model"))
    Mesh('data': 1, 'model': 1)
    """
    names = tuple(f"axis{i}" for i in range(len(mesh_shape)))
    return make_mesh(mesh_shape, names, devices=devices).devices
