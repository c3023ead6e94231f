"""`jit` over a mesh of devices that are not here: lowered, compiled, asked, never run."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ExecutionError, NxError, ParameterError
from nxjax.experimental.topologies import get_topology_desc
from nxjax.sharding import Mesh, NamedSharding
from nxjax.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("libtpu")
S = nx.ShapeDtypeStruct
SHAPES = S((512, 1024), "bfloat16"), S((1024, 256), "bfloat16")


@pytest.fixture(scope="module")
def mesh():
    found = get_topology_desc(topology_name="v5e:2x2", platform="tpu").devices
    return Mesh(np.array(found).reshape(2, 2), ("x", "y"))


def test_devices_of_a_slice_are_described(mesh):
    devices = mesh.device_list
    assert [d.id for d in devices] == [0, 1, 2, 3] and {d.device_kind for d in devices} == {"TPU v5 lite"}
    assert len({d.coords for d in devices}) == 4 and not devices[0].is_available()
    assert devices[0].platform == "tpu" and devices[0].process_index == 0 and devices[0].memory_stats() is None
    assert devices[0] == get_topology_desc("v5e:2x2").devices[0] != get_topology_desc("v5e:2x4").devices[0]
    for wrong in ({"platform": "gpu"}, {"topology_name": "v99"}, {"topology_name": "v4", "num_slices": 2}):
        with pytest.raises(ParameterError):
            get_topology_desc(**{"topology_name": "v4", **wrong})


def test_collectives_are_inserted_and_memory_is_per_device(mesh):
    f = nx.jit(
        lambda a, b: jnp.tanh(a @ b),
        in_shardings=(NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", None))),
        out_shardings=NamedSharding(mesh, P("x")),
    )
    lowered = f.lower(*SHAPES)
    assert "sdy.mesh" in lowered.as_text()
    compiled = lowered.compile()
    assert compiled.memory_analysis().argument_size_in_bytes == 2 * (256 * 512 + 512 * 256)
    assert compiled.memory_analysis().output_size_in_bytes == 2 * 256 * 256
    assert compiled.cost_analysis()["flops"] >= 2 * 256 * 512 * 256
    assert "all-reduce" in compiled.as_text() and "num_partitions=4" in compiled.as_text()
    with pytest.raises(ExecutionError, match="no such device here"):
        compiled(jnp.ones((512, 1024), "bfloat16"), jnp.ones((1024, 256), "bfloat16"))
    # The same function by way of a target, which takes the shardings that it has.
    artifact = nx.compile(f, target="tpu-v5e:2x2")(*SHAPES)
    assert artifact.memory.arguments == compiled.memory_analysis().argument_size_in_bytes
    assert "all-reduce" in artifact.analysis.collectives


def test_types_say_where_arguments_will_lie(mesh):
    x = S((64, 256), "float32", sharding=NamedSharding(mesh, P("x")))
    compiled = nx.jit(lambda a: a * 2).lower(x).compile()
    assert compiled.memory_analysis().arguments == 32 * 256 * 4


def test_shard_map_and_its_collectives(mesh):
    f = nx.shard_map(lambda x: nx.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    artifact = nx.compile(f, target="tpu-v5e:2x2")(S((16, 128), "float32"))
    assert artifact.analysis.partitions == 4 and set(artifact.analysis.collectives) == {"all-reduce"}


def test_arrays_cannot_be_put_there(mesh):
    with pytest.raises(NxError):
        nx.device_put(jnp.ones((4, 4)), NamedSharding(mesh, P("x")))
