"""Shardings as Shardy text, and random programs with random shardings beside JAX."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ShardingError
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.sharding import Partitioning, partitioning
from nxjax.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from nxjax.sharding import PartitionSpec as P
from tests.lower import sharded_programs

ABSTRACT = AbstractMesh((2, 4), ("x", "y"))
SEEDS = range(6)


def program(f, *shapes):
    return nx.make_jaxpr(f)(*(nx.ShapeDtypeStruct(s, "float32") for s in shapes))


def named(*spec, mesh=ABSTRACT):
    return NamedSharding(mesh, P(*spec))


def test_arguments_and_results_say_where_they_lie():
    p = program(lambda a, b: (a @ b, a), (8, 16), (16, 4))
    text, _ = lower(p, in_shardings=[named(None, ("y", "x")), None], out_shardings=[named("x"), None], donate=[0])
    assert 'sdy.mesh @mesh = <["x"=2, "y"=4]>' in text
    assert (
        '%arg0: tensor<8x16xf32> {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {"y", "x"}]>}'
        in text
    )
    assert "%arg1: tensor<16x4xf32>)" in text
    assert '-> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, tensor<8x16xf32>)' in text


def test_a_module_for_one_device_names_no_mesh():
    p = program(lambda a: nx.lax.with_sharding_constraint(a, named("x")), (8,))
    assert "sdy" in lower(p, in_shardings=[None])[0]
    assert "sdy" not in lower(p, devices=(None,))[0]


def test_unconstrained_dimensions_are_open():
    p = program(lambda a: nx.lax.with_sharding_constraint(a, named(P.UNCONSTRAINED, "y")), (8, 8))
    assert '<@mesh, [{?}, {"y"}]>' in lower(p, in_shardings=[None])[0]


def test_meshes_in_another_order_name_their_devices():
    devices = np.array(nx.devices()[:4])
    a, b = Mesh(devices, ("i",)), Mesh(devices[[0, 2, 1, 3]].reshape(2, 2), ("x", "y"))
    p = program(lambda v, w: v + w, (8, 4), (8, 4))
    text, _ = lower(p, in_shardings=[named("i", mesh=a), named("x", mesh=b)])
    assert 'sdy.mesh @mesh = <["i"=4]>' in text
    assert 'sdy.mesh @mesh_1 = <["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>' in text
    x, y = np.arange(32.0, dtype="f4").reshape(8, 4), np.ones((8, 4), "f4")
    found = nx.jit(lambda v, w: v + w, in_shardings=(named("i", mesh=a), named("x", mesh=b)))(x, y)
    np.testing.assert_array_equal(found, x + y)


def test_collectives_follow_the_order_of_devices():
    devices = np.array(nx.devices()[:4])[[3, 1, 0, 2]]
    mesh = Mesh(devices, ("i",))

    def f(a):
        i = nx.lax.axis_index("i")
        return a * (i + 1), nx.lax.all_gather(a, "i", tiled=True), nx.lax.ppermute(a, "i", [(0, 1), (1, 3)])

    g = nx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=(P("i"), P("i"), P("i")))
    abstract = nx.shard_map(f, mesh=AbstractMesh((4,), ("i",)), in_specs=P("i"), out_specs=(P("i"), P("i"), P("i")))
    x = jnp.arange(8.0)
    for found, expected in zip(nx.jit(g)(x), abstract(x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_axis_names_are_any_value():
    mesh = AbstractMesh((2, 2, 2), ('a"b', 1, "1"))
    p = program(lambda a: a * 2, (8, 8, 8))
    text, _ = lower(p, in_shardings=[named('a"b', 1, "1", mesh=mesh)])
    assert r'<["a\"b"=2, "1_1"=2, "1_2"=2]>' in text and r'[{"a\"b"}, {"1_1"}, {"1_2"}]' in text


def test_one_axis_by_hand_leaves_the_others_open():
    f = nx.shard_map(lambda a: nx.lax.psum(a, "x"), mesh=ABSTRACT, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    text, _ = lower(program(f, (8, 4)), in_shardings=[None])
    assert 'in_shardings=[<@mesh, [{"x", ?}, {?}]>]' in text and 'manual_axes={"x"}' in text
    assert "dense<[[0, 4], [1, 5], [2, 6], [3, 7]]>" in text


def test_the_devices_of_a_program():
    devices = nx.devices()
    mesh, other = Mesh(devices[:4], ("i",)), Mesh(devices[4:8], ("i",))
    p = program(lambda v, w: v + w, (8,), (8,))
    assert partitioning(p).size == 1
    assert partitioning(p, [None, named("i", mesh=mesh)]).devices == tuple(devices[:4])
    assert isinstance(partitioning(p, [named(mesh=ABSTRACT)] * 2), Partitioning)
    with pytest.raises(ShardingError, match="different devices"):
        partitioning(p, [named("i", mesh=mesh), named("i", mesh=other)])
    with pytest.raises(ShardingError, match="different devices"):
        partitioning(p, [named("i", mesh=mesh), SingleDeviceSharding(devices[0])])


@pytest.fixture(scope="module")
def report():
    script = Path(sharded_programs.__file__)
    arguments = [sys.executable, str(script), *map(str, SEEDS)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_have_jaxs_values_and_communication(report, seed):
    assert report[str(seed)] == ""
