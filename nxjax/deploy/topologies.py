"""Slices of TPUs that are not here, to make a `Mesh` of and to compile for; `jax.experimental.topologies`' names."""

from __future__ import annotations

from nxjax.backends.tpu.topologies import CompileOnlyDevice, TopologyDescription, get_topology_desc

__all__ = ["CompileOnlyDevice", "TopologyDescription", "get_topology_desc"]
