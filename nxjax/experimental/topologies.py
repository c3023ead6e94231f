"""`jax.experimental.topologies`' names: devices that a program is compiled for without being here."""

from nxjax.deploy.topologies import TopologyDescription, get_topology_desc

__all__ = ["TopologyDescription", "get_topology_desc"]
