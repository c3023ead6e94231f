"""Meshes, specs and shardings as data: what lies where, equality, and errors that teach. JAX is the second opinion."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import ShardingError
from nxjax.trace import mesh as mesh_module
from nxjax.trace.mesh import AbstractMesh, AxisType, Mesh, current_mesh, get_abstract_mesh, get_mesh, set_mesh
from nxjax.trace.partition import UNCONSTRAINED, P
from nxjax.trace.sharding import NamedSharding, SingleDeviceSharding, as_sharding, named_from_tiles


@dataclass(frozen=True)
class Chip:
    """What a mesh needs of a device."""

    id: int
    platform: str = "cpu"
    process_index: int = 0


CHIPS = np.array([Chip(i) for i in range(8)], object)
MESH = Mesh(CHIPS.reshape(2, 4), ("x", "y"))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ((), "P()"),
        (("x",), "P('x',)"),
        ((("x",),), "P('x',)"),
        (((),), "P(None,)"),
        ((["x", "y"], None), "P(('x', 'y'), None)"),
        ((UNCONSTRAINED, "x"), "P(UNCONSTRAINED, 'x')"),
    ],
)
def test_a_spec_has_one_form_and_prints_as_jax_prints_it(entries, text):
    assert repr(P(*entries)) == text


def test_specs_compare_add_and_index_like_jax():
    assert P("x") == P(("x",)) and hash(P("x")) == hash(P(["x"]))
    assert P("x") != P("x", None) and P("x") != ("x",)
    assert P("x").__add__(P("y")) == P("x", "y") == P("x").__add__(("y",)) == P("y").__radd__(("x",))
    assert list(P("x", None)) == ["x", None] and P("x", None)[1] is None and len(P("x", None)) == 2
    assert P("x", "y").index("y") == 1 and P(None, None).count(None) == 2
    assert P(None, ("x", "y")).names == ("x", "y")


def test_a_spec_of_nested_tuples_is_refused():
    with pytest.raises(ShardingError, match="axis names only"):
        P((("x",), "y"))


def test_unreduced_axes_are_refused_with_the_way_out():
    with pytest.raises(ShardingError, match="psum"):
        P(unreduced={"x"})


def test_a_mesh_knows_its_axes_and_prints_them():
    assert MESH.shape == {"x": 2, "y": 4} and MESH.size == 8 and not MESH.empty
    assert repr(MESH) == "Mesh('x': 2, 'y': 4)"
    assert MESH.device_ids.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert MESH.abstract_mesh == AbstractMesh((2, 4), ("x", "y"))
    assert Mesh([list(row) for row in MESH.devices], ("x", "y")) == MESH and hash(MESH) == hash(
        Mesh(MESH.devices, ("x", "y"))
    )
    assert Mesh(MESH.devices, ("x", "z")) != MESH
    assert not MESH.devices.flags.writeable
    assert "axis_types=(Manual, Auto)" in repr(MESH.update(axis_types=(AxisType.Manual, AxisType.Auto)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Mesh(CHIPS, ("x", "y")), "one axis name per dimension"),
        (lambda: Mesh(CHIPS.reshape(2, 4), ("x", "x")), "used twice"),
        (lambda: Mesh(CHIPS, (None,)), "other than None"),
        (lambda: Mesh([CHIPS[0], CHIPS[0]], "x"), "device occurs twice"),
        (lambda: Mesh([[CHIPS[0]], [CHIPS[1], CHIPS[2]]], ("x", "y")), "rows of devices"),
        (lambda: AbstractMesh((2, 0), ("x", "y")), "positive"),
        (lambda: NamedSharding(MESH, P("z")), "axis 'z', which the mesh has not"),
        (lambda: NamedSharding(MESH, P("x", "x")), "stands twice"),
        (lambda: NamedSharding(MESH, ("x",)), "PartitionSpec"),
        (lambda: NamedSharding(MESH, P("x")).shard_shape((3,)), "pad to 4"),
        (lambda: NamedSharding(MESH, P(("x", "y"))).shard_shape((12,)), "cannot be cut into 8 equal blocks"),
        (lambda: NamedSharding(MESH, P(None, "x")).shard_shape((4,)), "leave out the last 1"),
        (lambda: NamedSharding(MESH, P("x")).shard_shape(()), r"a scalar takes P\(\)"),
        (lambda: NamedSharding(MESH.abstract_mesh, P("x")).devices_indices_map((4,)), "no devices"),
        (lambda: as_sharding(P("x"), "jit"), "needs a current mesh"),
        (lambda: as_sharding("x", "jit"), "not a sharding"),
        (lambda: set_mesh(3), "needs a mesh"),
    ],
)
def test_mistakes_are_told_with_what_was_got_and_how_to_mend_it(make, says):
    with pytest.raises(ShardingError, match=says) as caught:
        make()
    assert isinstance(caught.value, ValueError) and "got:" in str(caught.value)


def test_blocks_follow_the_axes_slowest_first():
    s = NamedSharding(MESH, P(("y", "x")))
    found = {d.id: (i[0].start, i[0].stop) for d, i in s.devices_indices_map((16,)).items()}
    assert found == {0: (0, 2), 4: (2, 4), 1: (4, 6), 5: (6, 8), 2: (8, 10), 6: (10, 12), 3: (12, 14), 7: (14, 16)}


def test_replication_and_equivalence():
    assert NamedSharding(MESH, P()).is_fully_replicated
    assert not NamedSharding(MESH, P("x")).is_fully_replicated
    assert NamedSharding(Mesh(CHIPS[:1], "x"), P("x")).is_fully_replicated
    assert NamedSharding(MESH, P("x")).is_equivalent_to(NamedSharding(MESH, P("x", None)), 2)
    assert not NamedSharding(MESH, P("x")).is_equivalent_to(NamedSharding(MESH, P(None, "x")), 2)
    flat = Mesh(CHIPS, "i")
    assert NamedSharding(MESH, P(("x", "y"))).is_equivalent_to(NamedSharding(flat, P("i")), 1)
    one = SingleDeviceSharding(CHIPS[0])
    assert one.is_equivalent_to(NamedSharding(Mesh(CHIPS[:1], "x"), P("x")), 3)
    assert one == SingleDeviceSharding(CHIPS[0]) != SingleDeviceSharding(CHIPS[1])
    assert NamedSharding(MESH, P("x")).replicated_axes == {"y"}


def test_addressable_devices_are_those_of_this_process(monkeypatch):
    mesh = Mesh(np.array([Chip(i, process_index=i // 2) for i in range(4)], object), "x")
    s = NamedSharding(mesh, P("x"))
    monkeypatch.setattr(mesh_module, "_process_index", lambda: 1)
    assert not s.is_fully_addressable and {d.id for d in s.addressable_devices} == {2, 3}
    assert [i[0].start for i in s.addressable_devices_indices_map((8,)).values()] == [4, 6]
    assert mesh.is_multi_process and [d.id for d in mesh.local_devices] == [2, 3]


def test_the_current_mesh_is_a_block_or_for_good():
    assert current_mesh() is None and get_mesh().empty and get_abstract_mesh().empty
    with MESH, set_mesh(MESH.abstract_mesh):
        assert current_mesh() == MESH.abstract_mesh == get_abstract_mesh()
        assert get_mesh().empty
    with MESH:
        assert get_mesh() is MESH and as_sharding(P("y"), "here") == NamedSharding(MESH, P("y"))
        with MESH:  # one object may be entered twice
            pass
        assert get_mesh() is MESH
    assert current_mesh() is None
    setter = set_mesh(MESH)
    assert get_mesh() is MESH
    setter.__exit__()
    assert current_mesh() is None


def specs(names, rank):
    """Every way to give ``rank`` dimensions disjoint ordered axes."""
    for order in itertools.permutations(names):
        for used in range(len(order) + 1):
            for cuts in itertools.combinations_with_replacement(range(used + 1), rank - 1):
                edges = (0, *cuts, used)
                yield P(*(order[a:b] for a, b in itertools.pairwise(edges)))


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (2, 2, 2), (8,), (1, 8)])
def test_a_compilers_tiles_give_the_spec_back(shape):
    names = "xyz"[: len(shape)]
    mesh = Mesh(CHIPS.reshape(shape), tuple(names))
    for spec in {*specs(names, 2)}:
        s = NamedSharding(mesh, spec)
        at = s.blocks(2)
        tiles = s.tiles(2)
        order = np.array([np.flatnonzero((at == block).all(1)) for block in np.ndindex(*tiles)]).reshape(*tiles, -1)
        found = named_from_tiles(mesh, order, 2)
        assert found.mesh is mesh and found.is_equivalent_to(s, 2)


def test_tiles_that_split_an_axis_get_a_mesh_of_their_own():
    flat = Mesh(CHIPS, "i")
    found = named_from_tiles(flat, np.arange(8).reshape(2, 4), 1)
    assert found.shard_shape((6,)) == (3,) and found.device_set == set(CHIPS)
    assert [i[0].start for i in found.devices_indices_map((6,)).values()] == [0] * 4 + [3] * 4


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shards_cover_the_array_as_often_as_axes_are_left_over(data):
    sizes = data.draw(st.sampled_from([(8,), (2, 4), (2, 2, 2), (4, 1, 2)]))
    names = tuple("abc"[: len(sizes)])
    mesh = Mesh(CHIPS.reshape(sizes), names)
    spec = data.draw(st.sampled_from(sorted({*specs(names, 3)}, key=repr)))
    s = NamedSharding(mesh, spec)
    shape = tuple(t * data.draw(st.integers(1, 2)) for t in s.tiles(3))
    count = np.zeros(shape, int)
    for device, index in s.devices_indices_map(shape).items():
        assert count[index].shape == s.shard_shape(shape) and device in s.device_set
        count[index] += 1
    assert (count == mesh.size // np.prod(s.tiles(3))).all()
