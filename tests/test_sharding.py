"""The public face of sharding."""

import itertools
from types import SimpleNamespace

import pytest

import nxjax as nx
from nxjax.errors import ShardingError


class Chip(SimpleNamespace):
    """A device with coordinates."""

    def __hash__(self):
        return hash(self.id)


def chips(width, height):
    return [
        Chip(id=y * width + x, platform="tpu", process_index=0, coords=(x, y, 0))
        for y in range(height)
        for x in range(width)
    ]


def test_a_ring_walks_from_neighbour_to_neighbour():
    mesh = nx.make_mesh((8,), ("x",), devices=chips(4, 2))
    places = [d.coords for d in mesh.devices]
    assert all(sum(abs(a - b) for a, b in zip(p, q, strict=True)) == 1 for p, q in itertools.pairwise(places))


def test_a_grid_takes_devices_as_they_come():
    assert nx.make_mesh((2, 2), ("x", "y"), devices=chips(4, 2)).device_ids.tolist() == [[0, 1], [2, 3]]


def test_too_few_devices():
    with pytest.raises(ShardingError, match="NXJAX_NUM_CPU_DEVICES"):
        nx.make_mesh((4096,), ("x",))


def test_the_former_way_to_a_grid():
    from nxjax.experimental.mesh_utils import create_device_mesh

    grid = create_device_mesh((2, 4))
    assert grid.shape == (2, 4) and nx.sharding.Mesh(grid, ("x", "y")) == nx.make_mesh((2, 4), ("x", "y"))


def test_jax_names_are_there():
    for name in ("P", "NamedSharding", "make_mesh", "set_mesh"):
        assert getattr(nx, name) is getattr(nx.sharding, name)


def test_reshard_and_single_devices():
    rows = nx.sharding.NamedSharding(nx.make_mesh((1,), ("x",)), nx.sharding.PartitionSpec("x"))
    assert nx.reshard({"a": nx.arange(2)}, rows)["a"].sharding == rows
    assert nx.sharding.make_single_device_sharding(nx.devices()[0]).device == nx.devices()[0]
