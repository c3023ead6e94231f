"""`jit` on arrays over several devices: where results lie, what has to agree, donation, and the stages."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
from nxjax import P
from nxjax.errors import ExecutionError, ParameterError, ShardingError
from nxjax.sharding import Mesh, NamedSharding, SingleDeviceSharding

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return nx.make_mesh((4, 2), ("x", "y"))


def test_results_stay_where_their_arguments_are(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x", "y"))
    a = nx.device_put(X, s)
    assert nx.jit(lambda a: nx.sin(a) * 2)(a).sharding == s
    b, total = nx.jit(lambda a, w: (a @ w, a.sum()))(a, np.ones((4, 6), np.float32))
    assert b.sharding.tiles(2)[0] == 4
    np.testing.assert_allclose(b, X @ np.ones((4, 6)))
    assert total.is_fully_replicated
    assert float(total) == X.sum()


def test_one_device_is_kept_too() -> None:
    third = nx.devices("cpu")[3]
    x = nx.device_put(X, third)
    assert x.committed
    assert nx.jit(lambda x: x * 2)(x).devices() == {third}
    assert (x + 1).devices() == {third}
    assert nx.jit(lambda x: x + 1, device=third)(X).devices() == {third}
    assert not nx.jit(lambda x: x + 1)(X).committed


def test_in_and_out_shardings(mesh: Mesh) -> None:
    f = nx.jit(
        lambda p, x: {"y": x @ p["w"] + p["b"]},
        in_shardings=(None, NamedSharding(mesh, P("x"))),
        out_shardings=NamedSharding(mesh, P(None, "y")),
    )
    w, b = np.ones((4, 6), np.float32), np.ones(6, np.float32)
    y = f({"w": w, "b": b}, X)["y"]
    assert y.sharding == NamedSharding(mesh, P(None, "y"))
    np.testing.assert_allclose(y, X @ w + b)
    # The same under transforms and inside other jitted functions.
    g = nx.grad(lambda w: f({"w": w, "b": b}, X)["y"].sum())(w)
    np.testing.assert_allclose(g, X.T @ np.ones((8, 6)))
    np.testing.assert_allclose(nx.jit(lambda x: f({"w": w, "b": b}, x)["y"] * 2)(X), 2 * (X @ w + b))


def test_bare_specs_are_on_the_current_mesh(mesh: Mesh) -> None:
    with nx.set_mesh(mesh):
        y = nx.jit(lambda x: x + 1, in_shardings=P("x"), out_shardings=P("y"))(X)
        assert nx.device_put(X, P("x")).sharding.spec == P("x")
    assert y.sharding == NamedSharding(mesh, P("y"))
    with pytest.raises(ShardingError, match="current mesh"):
        nx.jit(lambda x: x, in_shardings=P("x"))(X)


def test_static_arguments_have_no_sharding(mesh: Mesh) -> None:
    f = nx.jit(lambda x, n: x * n, static_argnums=1, in_shardings=(NamedSharding(mesh, P("x")),))
    np.testing.assert_allclose(f(X, 3), X * 3)
    with pytest.raises(ParameterError, match="by name"):
        nx.jit(lambda x: x, in_shardings=NamedSharding(mesh, P("x")))(x=X)
    with pytest.raises(ParameterError, match="2 entries for 1 arguments"):
        nx.jit(lambda x: x, in_shardings=(None, None))(X)


def test_what_cannot_be_cut_is_named(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    with pytest.raises(ShardingError, match=r"(?s)in_shardings of argument weights.*size 7.*pad to 8"):
        nx.jit(lambda weights: weights, in_shardings=s)(X[:7])
    with pytest.raises(ShardingError, match=r"out_shardings.*size 7"):
        nx.jit(lambda x: x[:7], out_shardings=s)(X)
    with pytest.raises(ShardingError, match="more entries than the array has dimensions"):
        nx.jit(lambda x: x, in_shardings=s)(1.0)
    with pytest.raises(ShardingError, match="more entries"):
        nx.device_put(1.0, s)


def test_arguments_must_be_in_one_place(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    a, b = nx.device_put(X, s), nx.device_put(X, nx.devices("cpu")[2])
    with pytest.raises(
        ShardingError, match=r"(?s)different devices.*argument right on cpu:2.*argument left on 8 devices"
    ):
        nx.jit(lambda left, right: left + right)(a, b)
    with pytest.raises(ShardingError, match="different devices"):
        a + b
    with pytest.raises(ShardingError, match=r"(?s)argument x was put elsewhere than in_shardings"):
        nx.jit(lambda x: x, in_shardings=NamedSharding(mesh, P("y")))(a)
    assert (a + X).sharding == s  # what was put nowhere comes along


def test_donated_memory_is_used_again(mesh: Mesh) -> None:
    f = nx.jit(lambda x: x * 2, donate_argnums=0)
    for place in (NamedSharding(mesh, P("x", "y")), nx.devices("cpu")[3]):
        x = f(nx.device_put(X, place))  # lives in the runtime's own memory, not in NumPy's
        before = [s.data.buffer.raw.unsafe_buffer_pointer() for s in x.addressable_shards]
        y = f(x)
        assert x.is_deleted()
        assert before == [s.data.buffer.raw.unsafe_buffer_pointer() for s in y.addressable_shards]
        np.testing.assert_array_equal(y, X * 4)
        assert "input_output_alias" in f.lower(y).compile().as_text()
        with pytest.raises(RuntimeError, match="donated"):
            x.numpy()


def test_an_array_may_be_donated_and_passed_twice(mesh: Mesh) -> None:
    f = nx.jit(lambda x, y: x + y, donate_argnums=0)
    both = nx.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1))
    for place in (NamedSharding(mesh, P("x", "y")), nx.devices("cpu")[3]):
        x = nx.device_put(X, place)
        other = nx.device_put(x, place)
        again = nx.numpy.copy(x)
        np.testing.assert_array_equal(f(x, x), X * 2)
        assert x.is_deleted()
        np.testing.assert_array_equal(f(nx.device_put(again, again.sharding, may_alias=False), again), X * 2)
        first, second = both(again, again)
        np.testing.assert_array_equal(first, X + 1)
        np.testing.assert_array_equal(second, X * 2)
        if other is not x:
            np.testing.assert_array_equal(other, X)


def test_stages(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    f = nx.jit(lambda p, x: x @ p["w"])
    types = {"w": nx.ShapeDtypeStruct((4, 6), np.float32)}, nx.ShapeDtypeStruct((8, 4), np.float32, sharding=s)
    lowered = f.lower(*types)
    assert "sdy.sharding" in lowered.as_text()
    compiled = lowered.compile()
    (p, x), kwargs = compiled.input_shardings
    assert x == s
    assert set(p) == {"w"}
    assert not kwargs
    assert compiled.output_shardings.tiles(2)[0] == 4
    np.testing.assert_allclose(compiled({"w": np.ones((4, 6), np.float32)}, X), X @ np.ones((4, 6)))
    assert compiled.cost_analysis()["flops"] > 0
    assert compiled.memory_analysis().output_size_in_bytes == 8 * 6 * 4 // 4
    assert "num_partitions=8" in compiled.as_text()
    with pytest.raises(ShardingError, match="elsewhere than it was compiled for"):
        compiled({"w": np.ones((4, 6), np.float32)}, nx.device_put(X, NamedSharding(mesh, P("y"))))
    plain = nx.jit(lambda x: x).lower(X).compile()
    assert plain.output_shardings == SingleDeviceSharding(nx.devices("cpu")[0])


def test_callbacks_are_called_once_with_whole_arrays(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    out = nx.ShapeDtypeStruct((8, 4), np.float32)
    f = nx.jit(lambda x: nx.pure_callback(lambda v: np.asarray(v) * 2, out, x))
    np.testing.assert_array_equal(f(nx.device_put(X, nx.devices("cpu")[5])), X * 2)
    a = nx.device_put(X, NamedSharding(mesh, P("x", "y")))
    np.testing.assert_array_equal(f(a), X * 2)

    @nx.jit
    def g(a: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            nx.debug.print("step {} {}", i, c.sum())
            return c * 2, i

        return nx.scan(step, a, nx.numpy.arange(3))[0]

    np.testing.assert_array_equal(g(a), X * 8)
    nx.block_until_ready(g(a))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert sorted(lines) == sorted([f"step {i} {X.sum() * 2**i}" for i in range(3)] * 2)

    def fails(v: Any) -> Any:
        raise ValueError("the host says no")

    with pytest.raises(ExecutionError, match="the host says no"):
        nx.block_until_ready(nx.jit(lambda x: nx.pure_callback(fails, out, x))(a))


def test_lapack_runs_on_several_devices(mesh: Mesh) -> None:
    a = X @ X.T + 10 * np.eye(8, dtype=np.float32)
    there = nx.device_put(a, NamedSharding(mesh, P("x", "y")))
    factor = nx.jit(nx.linalg.cholesky)(there)
    np.testing.assert_allclose(factor.numpy(), np.linalg.cholesky(a), rtol=1e-3, atol=1e-3)
    batch = nx.device_put(np.stack([a] * 4), NamedSharding(mesh, P("x")))
    np.testing.assert_allclose(nx.jit(nx.linalg.inv)(batch) @ batch, np.stack([np.eye(8)] * 4), atol=1e-3)


def test_loops_and_random_numbers(mesh: Mesh) -> None:
    s = NamedSharding(mesh, P("x"))
    a = nx.device_put(X, s)
    y, trace = nx.jit(lambda a: nx.scan(lambda c, _: (c * 1.5, c.sum()), a, None, length=3))(a)
    np.testing.assert_allclose(y, X * 1.5**3, rtol=1e-6)
    np.testing.assert_allclose(trace, X.sum() * 1.5 ** np.arange(3), rtol=1e-6)
    key = nx.random.key(3)
    there = nx.jit(lambda k: nx.random.normal(k, (8, 4)), out_shardings=s)(key)
    # On the devices and in host memory two executors compute, whose erf_inv differ in the last bit.
    np.testing.assert_allclose(there, nx.random.normal(key, (8, 4)), rtol=5e-7)


def test_programs_in_flight_keep_no_other_from_starting(mesh: Mesh) -> None:
    # Collectives in two directions, called faster than they are done, from two threads.
    x = nx.device_put(np.ones((64, 16), np.float32), NamedSharding(mesh, P("x")))
    w = nx.device_put(np.ones((16, 32), np.float32), NamedSharding(mesh, P(None, "y")))
    step = nx.jit(lambda w: (w - 1e-4 * (x.T @ (x @ w)), (x @ w).sum()))
    results: list[float] = []

    def work() -> None:
        v, total = step(w)
        for _ in range(200):
            v, total = step(v)
        results.append(float(total))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 2
    assert results[0] == results[1]


def test_python_called_eagerly_takes_arrays_of_several_devices(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    a = nx.device_put(X[:, 0], NamedSharding(mesh, P("x")))
    nx.debug.print("sum {}", a.sum())
    assert "sum 112.0" in capsys.readouterr().out
    got = nx.pure_callback(lambda v: v * 2, nx.ShapeDtypeStruct((8,), np.float32), a)
    np.testing.assert_array_equal(got, X[:, 0] * 2)


def test_equal_programs_are_compiled_once_for_each_place(mesh: Mesh) -> None:
    from nxjax.backends.xla import backend

    f = nx.jit(lambda x: nx.cos(x) + 0.123)
    a, b = nx.device_put(X, NamedSharding(mesh, P("x"))), nx.device_put(X, NamedSharding(mesh, P("y")))
    # By one executor, also where an argument lies nowhere.
    with nx.config.using(cache_dir="", executor="xla"):
        start = backend.compilations
        for x in (a, b, a, X, b):
            f(x)
        assert backend.compilations == start + 3
    assert f.trace_count == 1


@given(
    order=st.permutations(range(8)),
    shape=st.sampled_from([(8,), (4, 2), (2, 2, 2), (2, 4)]),
    spec=st.sampled_from([("a",), (None, "a"), ("a", "b"), (("a", "b"),), (("b", "a"), None), ("b", "a"), ()]),
)
def test_any_mesh_gives_the_numbers_of_one_device(order: list[int], shape: tuple[int, ...], spec: Any) -> None:
    devices = nx.devices("cpu")
    grid = np.empty(8, object)
    grid[:] = [devices[i] for i in order]
    names = ("a", "b", "c")[: len(shape)]
    if len(shape) < 2:
        spec = tuple(None if e == "b" else "a" if isinstance(e, tuple) else e for e in spec)
    m = Mesh(grid.reshape(shape), names)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    s = NamedSharding(m, P(*spec))
    a = nx.device_put(x, s)
    np.testing.assert_array_equal(a, x)
    for shard in a.addressable_shards:
        np.testing.assert_array_equal(shard.data, x[shard.index])
    np.testing.assert_array_equal(nx.jit(lambda a: a * 2 + a.T, out_shardings=s)(a), x * 2 + x.T)
    assert a.on_device_size_in_bytes() == math.prod(s.shard_shape((8, 8))) * 8 * 4
