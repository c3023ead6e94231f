"""Arrays over several devices: their parts, how they are made of parts, and what they say of themselves."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import nxjax as nx
from nxjax import P
from nxjax.errors import ConcretizationTypeError, ParameterError, ShardingError
from nxjax.sharding import Mesh, NamedSharding, SingleDeviceSharding

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return nx.make_mesh((4, 2), ("x", "y"))


def test_an_array_says_where_it_is(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    a = nx.device_put(X, s)
    assert a.sharding == s
    assert a.device == s
    assert a.devices() == set(nx.devices("cpu"))
    assert (a.committed, a.is_fully_addressable, a.is_fully_replicated) == (True, True, False)
    assert a.on_device_size_in_bytes() == 2 * X.nbytes
    assert nx.asarray(X).unsafe_buffer_pointer() % X.itemsize == 0 and nx.asarray(X).unsafe_buffer_pointer() != 0
    assert a.block_until_ready() is a
    assert a.is_ready()
    assert a.copy_to_host_async() is None
    shards = a.addressable_shards
    assert [(h.device.id, h.replica_id, h.index[0].start) for h in shards[:3]] == [(0, 0, 0), (1, 1, 0), (2, 0, 2)]
    assert all(h.data.devices() == {h.device} for h in shards)
    np.testing.assert_array_equal(shards[3].data, X[2:4])
    assert len(a.global_shards) == 8
    assert a.addressable_data(1).shape == (2, 4)
    plain = nx.ones(3)
    assert (plain.committed, plain.device, len(plain.addressable_shards)) == (False, nx.devices("cpu")[0], 1)
    assert plain.sharding == SingleDeviceSharding(nx.devices("cpu")[0])
    with pytest.raises(ConcretizationTypeError):
        nx.jit(lambda x: x.addressable_shards)(a)


def test_device_put_moves_trees(mesh: Mesh) -> None:
    cpu = nx.devices("cpu")
    tree = nx.device_put({"a": X, "b": 1.0}, {"a": NamedSharding(mesh, P("x")), "b": cpu[2]})
    assert tree["a"].sharding.spec == P("x")
    assert tree["b"].devices() == {cpu[2]}
    moved = nx.device_put(tree["a"], NamedSharding(mesh, P("y", "x")))
    np.testing.assert_array_equal(moved, X)
    assert nx.device_put(tree["a"], tree["a"].sharding) is tree["a"]
    copy = nx.device_put(tree["a"], tree["a"].sharding, may_alias=False)
    pointers = [[s.data.buffer.raw.unsafe_buffer_pointer() for s in y.addressable_shards] for y in (copy, tree["a"])]
    assert not set(pointers[0]) & set(pointers[1])
    other = nx.device_put(moved, cpu[1], donate=True)
    assert moved.is_deleted()
    np.testing.assert_array_equal(other, X)
    halves = nx.sharding.Mesh(cpu[4:6], ("z",))
    np.testing.assert_array_equal(nx.device_put(tree["a"], NamedSharding(halves, P("z"))), X)
    assert nx.jit(lambda x: nx.device_put(x, NamedSharding(mesh, P("x"))) + 1)(X).sharding.tiles(2) == (4, 1)
    assert isinstance(nx.device_get(tree)["a"], np.ndarray)
    with pytest.raises(ParameterError, match="not a device"):
        nx.device_put(X, 3)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint4", "bool", "complex64", "float16", "int64"]
)
def test_every_dtype_goes_round(mesh: Mesh, dtype: str) -> None:
    x = (X % 5).astype(nx.numpy.dtype(dtype))
    a = nx.device_put(nx.numpy.asarray(x, dtype), NamedSharding(mesh, P("x", "y")))
    assert a.dtype == x.dtype
    np.testing.assert_array_equal(a.numpy(), x)
    np.testing.assert_array_equal(nx.jit(lambda a: a)(a).numpy(), x)
    np.testing.assert_array_equal(a[2:4].numpy(), x[2:4])


def test_random_keys_lie_on_devices(mesh: Mesh) -> None:
    keys = nx.random.split(nx.random.key(0), 8)
    there = nx.device_put(keys, NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(nx.random.key_data(there), nx.random.key_data(keys))
    draws = nx.jit(nx.vmap(nx.random.normal))(there)
    assert draws.sharding.tiles(1) == (4,)
    # On the devices and in host memory two executors compute, whose erf_inv differ in the last bit.
    np.testing.assert_allclose(draws, nx.vmap(nx.random.normal)(keys), rtol=5e-7)


def test_eager_operations_stay_on_the_devices(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x", "y"))
    a = nx.device_put(X, s)
    assert (a + 1).sharding == (2 * a).sharding == nx.sin(a).sharding == (a > 3).sharding == s
    assert nx.sum(a).devices() == s.device_set
    np.testing.assert_array_equal(a.at[0].set(5.0), np.concatenate([np.full((1, 4), 5, np.float32), X[1:]]))
    np.testing.assert_array_equal(nx.sort(a, axis=0)[::-1], X[::-1])
    assert [float(v) for v in a[1]] == X[1].tolist()
    assert a.tolist() == X.tolist()
    assert bool((a == X).all())
    assert float(a[3, 1]) == 13.0
    assert nx.where(a > 3, a, 0.0).sharding.num_devices == 8
    values, indices = nx.lax.top_k(a, 2)
    np.testing.assert_array_equal(indices[:, 0], [3] * 8)
    assert values.sharding.num_devices == 8


def test_what_is_like_an_array_lies_beside_it(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    a = nx.device_put(X, s)
    assert nx.numpy.zeros_like(a).sharding == nx.numpy.full_like(a, 2).sharding == s
    assert not nx.numpy.zeros_like(a, shape=(3,)).committed
    assert nx.numpy.zeros((8, 4), device=s).sharding == s
    assert nx.numpy.ones_like(a, device=nx.devices("cpu")[1]).devices() == {nx.devices("cpu")[1]}


def test_ops_that_differ_in_the_kind_of_a_number_only(mesh: Mesh) -> None:
    a = nx.device_put(X, NamedSharding(mesh, P("x")))
    for value in (0.0, -0.0, 1, 1.0, True):
        np.testing.assert_array_equal(np.signbit(nx.numpy.full_like(a, value)), np.signbit(np.full_like(X, value)))
        np.testing.assert_array_equal(nx.numpy.pad(a, 1, constant_values=value), np.pad(X, 1, constant_values=value))


def test_from_a_callback(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    asked = []

    def part(index):
        asked.append(index)
        return X[index]

    a = nx.make_array_from_callback((8, 4), s, part)
    assert len(asked) == 4  # once for each part, not for each device
    assert asked[1] == (slice(2, 4, 1), slice(0, 4, 1))
    np.testing.assert_array_equal(a, X)
    assert nx.make_array_from_callback((8, 4), s, part, dtype="float16").dtype == np.float16
    with pytest.raises(ShardingError, match=r"(?s)another shape.*\(1, 4\)"):
        nx.make_array_from_callback((8, 4), s, lambda i: X[:1])
    with pytest.raises(ShardingError, match="size 6"):
        nx.make_array_from_callback((6, 4), s, part)


def test_from_arrays_on_devices(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x", "y"))
    parts = [h.data for h in nx.device_put(X, s).addressable_shards]
    a = nx.make_array_from_single_device_arrays((8, 4), s, parts[::-1])
    np.testing.assert_array_equal(a, X)
    assert (
        a.addressable_shards[5].data.buffer.raw.unsafe_buffer_pointer() == parts[5].buffer.raw.unsafe_buffer_pointer()
    )
    with pytest.raises(ShardingError, match="one part on each of"):
        nx.make_array_from_single_device_arrays((8, 4), s, parts[:-1])
    with pytest.raises(ShardingError, match="another shape"):
        nx.make_array_from_single_device_arrays((16, 4), s, parts)
    with pytest.raises(ShardingError, match="several devices"):
        nx.make_array_from_single_device_arrays((8, 4), s, [a, *parts[1:]])


def test_from_the_data_of_each_process(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x", "y"))
    np.testing.assert_array_equal(nx.make_array_from_process_local_data(s, X), X)
    np.testing.assert_array_equal(nx.make_array_from_process_local_data(s, X, (8, 4)), X)


def test_memory_is_counted() -> None:
    device = nx.devices("cpu")[6]
    before = device.memory_stats()
    x = nx.device_put(np.ones(2**20, np.float32), device)
    y = (nx.jit(lambda x: x + 1)(x)).block_until_ready()
    during = device.memory_stats()
    assert during["bytes_in_use"] - before["bytes_in_use"] == 2 * x.nbytes
    assert during["peak_bytes_in_use"] >= during["bytes_in_use"] >= during["largest_alloc_size"] >= x.nbytes
    assert during["num_allocs"] == before["num_allocs"] + 2
    assert during["accounting"] == "live buffers"
    del x, y
    after = device.memory_stats()
    assert after["bytes_in_use"] == before["bytes_in_use"]
    assert after["peak_bytes_in_use"] == during["peak_bytes_in_use"]


def test_a_peak_between_two_looks_is_seen() -> None:
    device = nx.devices("cpu")[7]
    f = nx.jit(lambda x: x + 1, device=device)
    x = f(np.ones(2**22, np.float32))
    kept = [f(x) for _ in range(8)]
    total = sum(y.nbytes for y in kept)
    del kept
    assert device.memory_stats()["peak_bytes_in_use"] >= total - 2**24


def test_devices_have_facts() -> None:
    first = nx.devices("cpu")[1]
    assert (first.platform, first.id, first.process_index, first.device_kind) == ("cpu", 1, 0, "cpu")
    assert first.coords is None
    assert first.local_hardware_id == 1
    assert first == nx.devices("cpu")[1]
    assert len({*nx.devices("cpu"), *nx.local_devices(backend="cpu")}) == 8
    assert nx.device_count() == 8


def test_the_number_of_devices_is_set_once() -> None:
    nx.jit(lambda x: x + 1)(1.0)
    with nx.config.using(num_cpu_devices=3), pytest.raises(ParameterError, match=r"(?s)changed after.*there are 8"):
        nx.devices()
    with pytest.raises(ParameterError, match="num_cpu_devices"):
        nx.config.update("num_cpu_devices", -2)


def test_flags_of_jax_programs_set_the_number() -> None:
    code = (
        "import os, sys; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'\n"
        "import nxjax as nx, numpy as np\n"
        "mesh = nx.make_mesh((3,), ('x',))\n"
        "x = nx.device_put(np.arange(6.0), nx.NamedSharding(mesh, nx.P('x')))\n"
        "y = nx.jit(lambda x: x * 2)(x)\n"
        "parts = [s.data.tolist() for s in y.addressable_shards]\n"
        "print(len(nx.devices('cpu')), y.tolist(), parts[2], (x + 1).tolist()[0], 'jax' in sys.modules)\n"
        "import jax\n"  # a jax that comes later finds everything as it should be
        "m = jax.make_mesh((3,), ('x',))\n"
        "q = jax.device_put(jax.numpy.arange(6.0), jax.NamedSharding(m, jax.P('x')))\n"
        "print(jax.jit(lambda x: x * 2)(q.addressable_shards[1].data))\n"
        "z = nx.jit(lambda x: x * 3)(x); print([s.data.tolist() for s in z.addressable_shards][1])"
    )
    out = subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True, timeout=120)
    assert out.splitlines() == [
        "3 [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] [8.0, 10.0] 1.0 False",
        "[4. 6.]",
        "[6.0, 9.0]",
    ]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128"])
def test_parts_of_64_bits_keep_all_of_them(count: int, dtype: str) -> None:
    whole = (np.arange(8) + 1 / 3 if dtype != "int64" else np.arange(8) + 2**40).astype(dtype)
    rows = NamedSharding(nx.make_mesh((count,), ("x",), devices=nx.devices("cpu")[:count]), P("x"))
    made = nx.make_array_from_callback((8,), rows, lambda index: whole[index], dtype=dtype)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, whole)
    whole[:] = 0  # whoever gave the parts may go on with them
    assert abs(complex(made[7])) > 7
