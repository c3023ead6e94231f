"""`jit`: caching, static and donated arguments, closures over traced values, stages, and memory."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, StaticArgumentError, UnexpectedTracerError

X = np.arange(3, dtype=np.float32)


def test_one_trace_per_type() -> None:
    f = nx.jit(lambda x: x * 2)
    for x in (X, X + 1, nx.asarray(X), 1.0, 2.0, 3, np.float32(1), np.float32(2)):
        f(x)
    assert f.trace_count == 4
    f.clear_cache()
    f(X)
    assert f.trace_count == 5


def test_ever_new_signatures_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr("nxjax.transforms.jit._MOST", 8)
    f = nx.jit(lambda x, k: x + k, static_argnums=1)
    kept = []
    for k in range(30):
        assert float(f(X, k)[2]) == 2 + k
        kept.append(f._cache_size())
    assert max(kept) == 8 and f.trace_count == 30
    assert float(f(X, 29)[2]) == 31 and f.trace_count == 30  # the newest is there
    assert float(f(X, 0)[2]) == 2 and f.trace_count == 31


def test_jit_changes_no_type() -> None:
    def f(x: Any) -> Any:
        return x * 2, x + 1.5, (x, None)

    for x in (1, 1.0, True, 1j, np.int8(1), np.float16(1), X, np.float64(2.0)):
        a, b = nx.tree.leaves(f(nx.asarray(x) if isinstance(x, np.generic) else x)), nx.tree.leaves(nx.jit(f)(x))
        for eager, compiled in zip(a, b, strict=True):
            eager = nx.asarray(eager) if not isinstance(eager, nx.Array) else eager
            assert (eager.dtype, eager.shape) == (compiled.dtype, compiled.shape)


def test_another_executor_takes_the_next_call() -> None:
    f = nx.jit(lambda x: nx.sin(x) * 2)
    first = f(1.0)
    with nx.config.using(executor="reference"):
        second = f(1.0)
    assert first.buffer is not None  # left on XLA's device
    assert second.buffer is None
    assert float(first) == pytest.approx(float(second))


def test_static_arguments() -> None:
    seen: list[Any] = []

    @functools.partial(nx.jit, static_argnames=("n", "mode"))
    def f(x: Any, n: int = 2, *, mode: str = "a") -> Any:
        seen.append((n, mode))
        return x * n

    assert [float(f(1.0)), float(f(1.0, 3)), float(f(1.0, n=3)), float(f(1.0, mode="b"))] == [2, 3, 3, 2]
    assert seen == [(2, "a"), (3, "a"), (3, "a"), (2, "b")]
    g = nx.jit(lambda x, n: type(n).__name__, static_argnums=-1)
    with pytest.raises(DtypeError):
        g(1.0, 1)
    assert [float(nx.jit(lambda x, n: x + (n is True), static_argnums=1)(0.0, n)) for n in (1, True, 1.0)] == [0, 1, 0]
    # One of both stands for both; what is given as none is none.
    assert float(nx.jit(lambda x, n: x, static_argnums=(), static_argnames="n")([1.0], n="a")[0]) == 1
    with pytest.raises(DtypeError):
        nx.jit(lambda x, n: x, static_argnums=(), static_argnames="n")(1.0, "a")
    with pytest.raises(StaticArgumentError, match="not hashable"):
        nx.jit(lambda x, n: x, static_argnums=1)(1.0, [1])
    with pytest.raises(StaticArgumentError, match="names no parameter"):
        nx.jit(lambda x: x, static_argnames="n")
    with pytest.raises(StaticArgumentError, match="names no parameter"):
        nx.jit(lambda x: x, static_argnums=3)


def test_methods() -> None:
    class Scaler:
        def __init__(self, k: float) -> None:
            self.k = k

        @functools.partial(nx.jit, static_argnums=0)
        def __call__(self, x: Any) -> Any:
            return x * self.k

    assert [float(Scaler(k)(2.0)) for k in (1.0, 3.0)] == [2.0, 6.0]


def test_donated_arguments_are_gone() -> None:
    f = nx.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = nx.asarray(X), nx.asarray(X)
    assert f(x, y).tolist() == [0, 2, 4]
    assert x.is_deleted()
    assert not y.is_deleted()
    with pytest.raises(RuntimeError, match="donated"):
        x.numpy()
    assert nx.jit(lambda x: f(x, x) + x)(X).tolist() == [0, 3, 6]  # inside a trace nothing is donated


def _given(n: int, dtype: Any) -> list[Callable[[], Any]]:
    """Arrays of n elements that lie in memory in every way: views, dense, of jit, with stride 0."""
    jnp = nx.numpy
    up = nx.jit(lambda x: x + jnp.ones((), x.dtype))
    base = jnp.arange(2 * n).astype(dtype)
    return [
        lambda: jnp.full((n,), 3, dtype),
        lambda: jnp.broadcast_to(jnp.asarray(3, dtype), (n,)),
        lambda: base[::2],
        lambda: base[n:],
        lambda: jnp.flip(base[:n]),
        lambda: base.reshape(n, 2).T[1],
        lambda: up(base)[:n],
        lambda: up(base[:n]),
        lambda: nx.asarray(np.arange(n).astype(base.dtype)),
    ]


@pytest.mark.parametrize("executor", ["cpu", "reference", "xla"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32", "bool"])
def test_donated_arguments_of_every_layout(executor: str, dtype: str) -> None:
    with nx.config.using(executor=executor):
        f = nx.jit(lambda x, t: (x + x[::-1], t["a"] * t["a"]), donate_argnums=(0, 1))
        for n in (5, 3000):
            for make in _given(n, dtype):
                x, t = np.asarray(make()), np.asarray(make())
                for _ in range(5):
                    y, z = f(make(), {"a": make()})
                    np.testing.assert_array_equal(y, nx.numpy.add(x, x[::-1]))
                    np.testing.assert_array_equal(z, nx.numpy.multiply(t, t))


def _closed_over(constant: Any) -> Any:
    return nx.jit(lambda x: x + constant[::-1], donate_argnums=0)


@pytest.mark.parametrize("executor", ["cpu", "reference", "xla"])
def test_what_shares_memory_with_a_donated_argument_stays(executor: str) -> None:
    jnp = nx.numpy
    with nx.config.using(executor=executor):
        make = nx.jit(lambda x: x * 2)
        for n in (6, 6000):
            x = jnp.arange(float(n))
            wanted = 2 * np.arange(n, dtype=np.float32)
            one = nx.jit(lambda x: x + 1, donate_argnums=0)
            two = nx.jit(lambda x, y: (x * 2, y[::-1] + 1), donate_argnums=0)
            both = nx.jit(lambda x, y: (x * 2, y[::-1] + 1), donate_argnums=(0, 1))
            same = nx.jit(lambda x: (x, x * 3))
            constant = make(x)
            closed = _closed_over(constant)
            for _ in range(5):
                a = make(x)
                others = [
                    np.asarray(a), a[1:], a.reshape(2, -1), jnp.copy(a), nx.device_put(a, nx.devices()[0]), same(a)[0],
                    np.from_dlpack(a), memoryview(np.asarray(a)), next(iter(a.reshape(1, -1))),
                ]  # fmt: skip
                kept = [np.array(y, copy=True) for y in others]
                np.testing.assert_array_equal(one(a), wanted + 1)
                for y, before in zip(others, kept, strict=True):
                    np.testing.assert_array_equal(y, before)
                for f in (two, both):
                    a = make(x)
                    for y, z in zip(f(a, a), (wanted * 2, wanted[::-1] + 1), strict=True):
                        np.testing.assert_array_equal(y, z)
                    assert a.is_deleted()
            np.testing.assert_array_equal(closed(constant), wanted + wanted[::-1])
            for _ in range(5):
                np.testing.assert_array_equal(closed(make(x)), wanted + wanted[::-1])


@pytest.mark.parametrize(
    "transform", [nx.jit, nx.vmap, lambda f: nx.grad(lambda x: f(x).sum())], ids=["jit", "vmap", "grad"]
)
def test_a_compiled_function_takes_no_tracers(transform: Any) -> None:
    compiled = nx.jit(lambda x: x * 2).lower(nx.ones(3)).compile()
    with pytest.raises(TypeError, match="compiled call: takes arrays") as error:
        transform(compiled)(nx.ones((2, 3) if transform is nx.vmap else 3))
    assert "compile()" in str(error.value)


def test_a_compiled_function_takes_what_it_was_donated() -> None:
    f = nx.jit(lambda x: x + 1, donate_argnums=0)
    x = nx.jit(lambda x: x * 2)(nx.numpy.ones(1000))
    compiled = f.lower(x).compile()
    assert float(compiled(x)[0]) == 3 and x.is_deleted()


def test_stages() -> None:
    f = nx.jit(lambda p, *, k: {"y": p["x"] * k})
    assert str(inspect.signature(f, follow_wrapped=False)) == str(inspect.signature(f)) == "(p, *, k)"
    shape = nx.ShapeDtypeStruct((3,), np.float32)
    traced = f.trace({"x": shape}, k=2.0)
    assert traced.out_info["y"].shape == (3,)
    lowered = traced.lower()
    assert "mul" in lowered.as_text() and lowered.compiler_ir() == lowered.as_text()
    assert "stablehlo" in lowered.compiler_ir("stablehlo") and lowered.compiler_ir("no such") is None
    compiled = lowered.compile()
    assert compiled({"x": X}, k=2.0)["y"].tolist() == [0, 2, 4]
    with pytest.raises(ParameterError, match="other argument types"):
        compiled({"x": X[:2]}, k=2.0)
    assert f.eval_shape({"x": shape}, k=1.0)["y"].shape == (3,)


def test_made_ready_for_arguments() -> None:
    """The next such call traces nothing, and arguments are as they were."""
    table = nx.numpy.arange(2.0)
    f = nx.jit(lambda n, tree: (tree["x"] * n + table, tree["x"].sum()), static_argnums=0, donate_argnums=1)
    x = nx.array([1.0, 2.0])
    for _ in range(2):
        f.ready(3, {"x": x})
    assert f.trace_count == 1 and not x.is_deleted()
    y, total = f(3, {"x": x})
    assert f.trace_count == 1 and x.is_deleted()
    assert y.tolist() == [3.0, 7.0] and total == 3
    f.ready(4, {"x": y})
    assert f.trace_count == 2


def test_closing_over_values_of_enclosing_transforms() -> None:
    def outer(x: Any) -> Any:
        f = nx.jit(lambda y: y * x)
        return f(2.0) + f(3.0)

    assert float(nx.grad(outer)(2.0)) == 5.0
    assert float(nx.jit(nx.grad(outer))(2.0)) == 5.0
    assert nx.vmap(outer)(X).tolist() == [0, 5, 10]
    assert nx.vmap(nx.grad(outer))(X).tolist() == [5, 5, 5]
    assert float(nx.jvp(lambda x: nx.jvp(outer, (x,), (x,))[1], (2.0,), (1.0,))[1]) == 5.0


def test_a_static_number_stays_one_under_vmap() -> None:
    def row(x: Any, n: int) -> Any:
        return x * nx.arange(n - 1)

    for f in (nx.vmap(row, in_axes=(0, None)), nx.jit(nx.vmap(row, in_axes=(0, None)), static_argnums=1)):
        assert f(X, 3).tolist() == [[0, 0], [0, 1], [0, 2]]


def test_a_function_is_traced_anew_for_another_enclosing_trace() -> None:
    cell: list[Any] = []
    f = nx.jit(lambda y: y * cell[0])

    def outer(x: Any) -> Any:
        cell[:] = [x]
        return f(2.0)

    assert [float(nx.grad(outer)(v)) for v in (1.0, 5.0)] == [2.0, 2.0]
    assert [float(nx.jit(outer)(v)) for v in (1.0, np.int32(5))] == [2.0, 10.0]


def test_a_value_that_left_its_trace_is_named() -> None:
    left: list[Any] = []

    def f(x: Any) -> Any:
        left.append(nx.sin(x))
        return x

    for transform in (nx.jit, nx.grad, nx.vmap):
        transform(f)(X if transform is nx.vmap else 1.0)
        with pytest.raises(UnexpectedTracerError, match="has left the function"):
            nx.cos(left[-1])
        with pytest.raises(UnexpectedTracerError, match="has left the function"):
            nx.jit(lambda y: y + left[-1])(1.0)


def test_gradients_of_python_numbers_stay_weak() -> None:
    gradient = nx.grad(lambda x: x**3)(2.0)
    assert gradient.weak_type
    assert (gradient * nx.ones(2, "bfloat16")).dtype == nx.bfloat16


def test_ten_thousand_calls_leave_nothing_behind(executor: str) -> None:
    f = nx.jit(lambda p: {"a": p["a"] * 2 + p["b"]})
    p = {"a": nx.asarray(X), "b": nx.asarray(X)}
    with nx.config.using(executor=executor):
        for _ in range(500):
            f(p)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(10_000):
            f(p)
        gc.collect()
        assert sys.getallocatedblocks() - before < 1000
    assert f.trace_count == 1


def test_a_thousand_traces_die_with_their_functions() -> None:
    def once() -> weakref.ref[Any]:
        f = nx.jit(lambda x: nx.grad(lambda y: (nx.sin(y) * x).sum())(x))
        program = f.trace(X).program
        return weakref.ref(program)

    def deaths() -> int:
        refs = [once() for _ in range(1000)]
        gc.collect()
        return sum(r() is None for r in refs)

    once()
    gc.collect()
    before = len(gc.get_objects())
    assert deaths() == 1000
    assert len(gc.get_objects()) - before < 1000


def test_a_donated_argument_that_no_result_can_take_is_told() -> None:
    given = nx.jit(lambda x, y: x + y.sum(), donate_argnums=(0, 1))
    with pytest.warns(UserWarning, match=r"Some donated buffers were not usable: f32\[10\]\."):
        given(nx.ones(()), nx.ones(10))
    given(nx.ones(()), nx.ones(10))  # it is said once
    with pytest.warns(UserWarning, match="not usable"):
        given.lower(nx.ones(()), nx.ones(10))
    nx.jit(lambda x, y: (x + y.sum(), y[::-1]), donate_argnums=(0, 1))(nx.ones(()), nx.ones(10))  # each has its result
