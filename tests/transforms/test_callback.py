"""Callbacks: eagerly, compiled, batched, differentiated; effects that run, once, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import ExecutionError, GradientError, ParameterError, ShapeError, TreeError
from nxjax.transforms.callback import VMAP_METHODS, io_callback

X = np.arange(3, dtype=np.float32)
S = nx.ShapeDtypeStruct((), np.float32)


def test_pure_callback_with_trees(executor: str) -> None:
    def host(a: Any, *, b: Any) -> Any:
        assert isinstance(a["x"], nx.Array)
        return np.asarray(a["x"]) * 2, {"n": np.int32(b)}

    def f(x: Any) -> Any:
        return nx.pure_callback(
            host, (nx.ShapeDtypeStruct((3,), np.float32), {"n": np.zeros((), np.int32)}), {"x": x}, b=7
        )

    with config.using(executor=executor):
        for g in (f, nx.jit(f)):
            y, extra = g(X)
            assert y.tolist() == [0, 2, 4]
            assert int(extra["n"]) == 7


@pytest.mark.parametrize("method", VMAP_METHODS)
def test_vmap_methods(method: str, executor: str) -> None:
    shapes: list[Any] = []

    def host(a: Any, b: Any) -> Any:
        shapes.append((a.shape, b.shape))
        return np.asarray(a) * np.asarray(b)

    def f(a: Any, b: Any) -> Any:
        return nx.pure_callback(host, S, a, b, vmap_method=method)

    with config.using(executor=executor):
        assert nx.jit(nx.vmap(f, (0, None)))(X, 2.0).tolist() == [0, 2, 4]
    expected = {
        "expand_dims": [((3,), (1,))],
        "broadcast_all": [((3,), (3,))],
        "legacy_vectorized": [((3,), ())],
    }.get(method, [((), ())] * 3)
    assert shapes == expected


def test_what_pure_callback_cannot_do_is_said() -> None:
    def f(x: Any, **options: Any) -> Any:
        return nx.pure_callback(np.sin, S, x, **options)

    with pytest.raises(GradientError, match="custom_jvp"):
        nx.grad(f)(1.0)
    with pytest.raises(ParameterError, match="vmap_method"):
        nx.vmap(f)(X)
    with pytest.raises(ParameterError, match="vmap_method"):
        f(1.0, vmap_method="all")
    with pytest.raises(ParameterError, match="described by shape and dtype"):
        nx.pure_callback(np.sin, 3, 1.0)


def test_a_rule_gives_a_callback_a_derivative() -> None:
    @nx.custom_jvp
    def f(x: Any) -> Any:
        return nx.pure_callback(lambda v: np.sin(np.asarray(v)), S, x, vmap_method="sequential")

    f.defjvp(lambda p, t: (f(*p), nx.cos(p[0]) * t[0]))
    np.testing.assert_allclose(nx.jit(nx.vmap(nx.grad(f)))(X), np.cos(X), rtol=1e-6)


def test_results_are_checked_and_errors_arrive() -> None:
    cases = [
        (lambda v: np.zeros(4, np.float32), ShapeError, "another shape"),
        (lambda v: np.zeros((), np.complex64), ShapeError, "another dtype"),
        (lambda v: (v, v), TreeError, "another structure"),
        (lambda v: 1 / 0, ZeroDivisionError, "division by zero"),
    ]
    for host, error, text in cases:

        def f(x: Any, host: Any = host) -> Any:
            return nx.pure_callback(host, S, x)

        with config.using(executor="reference"), pytest.raises(error, match=text):
            nx.jit(f)(1.0)
        with config.using(executor="xla"), pytest.raises(ExecutionError, match=text):
            nx.jit(f)(1.0)


def test_an_unused_pure_callback_is_dropped_and_an_unused_io_callback_runs(executor: str) -> None:
    seen: list[str] = []

    def pure(v: Any) -> Any:
        seen.append("pure")
        return np.float32(v)

    def f(x: Any) -> Any:
        nx.pure_callback(pure, S, x)
        io_callback(lambda v: seen.append("io"), None, x)
        return x

    with config.using(executor=executor):
        nx.jit(f)(1.0).block_until_ready()
    assert seen == ["io"]


def test_effects_run_in_program_order_through_every_kind_of_call(executor: str) -> None:
    seen: list[int] = []

    def note(i: int, x: Any) -> Any:
        io_callback(lambda v: seen.append(i), None, x, ordered=True)
        return nx.sin(x)

    def f(x: Any) -> Any:
        x = note(0, x)
        x = nx.scan(lambda c, _: (note(2, note(1, c)), None), x, None, length=2)[0]
        x = nx.cond(x > 10, lambda v: note(9, v), lambda v: note(3, v), x)
        x = nx.jit(lambda v: note(5, note(4, v)))(x)
        x = nx.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, note(6, c[1])), (0, x))[1]
        x = nx.checkpoint(lambda v: note(7, v))(x)
        return note(8, x)

    expected = [0, 1, 2, 1, 2, 3, 4, 5, 6, 6, 7, 8]
    with config.using(executor=executor):
        for _ in range(3):
            nx.jit(f)(1.0).block_until_ready()
    assert seen == expected * 3


def test_io_callback_under_transforms() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        io_callback(lambda v: seen.append(float(v)), None, x)
        return x

    nx.jit(nx.vmap(f))(X).block_until_ready()
    assert seen == [0, 1, 2]
    with pytest.raises(GradientError):
        nx.grad(f)(1.0)
    with pytest.raises(ParameterError, match="no order under vmap"):
        nx.vmap(lambda x: io_callback(lambda v: None, None, x, ordered=True))(X)


def test_debug_print(capsys: pytest.CaptureFixture[str], executor: str) -> None:
    def f(x: Any) -> Any:
        nx.debug.print("x = {}, {y:.2f}", x, y=2 * x)
        return nx.sin(x)

    with config.using(executor=executor):
        f(1.0)
        nx.jit(f)(2.0).block_until_ready()
        nx.grad(f)(3.0)
        nx.jit(nx.grad(f))(4.0).block_until_ready()
        nx.vmap(f)(X)
        nx.jit(nx.vmap(f))(X[:2]).block_until_ready()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"x = {float(v)}, {2 * v:.2f}" for v in (1, 2, 3, 4, 0, 1, 2, 0, 1)]


def test_the_same_print_compiles_once() -> None:
    from nxjax.backends.xla import backend

    def f(x: Any) -> Any:
        nx.debug.print("{}", x)
        return x

    with config.using(executor="xla"):
        nx.vmap(f)(X)
        before = backend.compilations
        for _ in range(3):
            nx.vmap(f)(X)
        assert backend.compilations == before


def test_debug_print_checks_its_format() -> None:
    for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"y": 2})):
        with pytest.raises(ParameterError, match="format and arguments do not fit"):
            nx.debug.print("x = {}", *args, **kwargs)
    with pytest.raises(ParameterError, match="format is a string"):
        nx.debug.print(3)
    with pytest.raises(ParameterError, match="needs a function"):
        nx.debug.callback(3)


@pytest.mark.parametrize("policy", [None, nx.checkpoint_policies.everything_saveable])
def test_a_callback_under_checkpoint_runs_once(policy):
    # JAX calls it again where the function is computed again.
    seen: list[float] = []

    def f(x):
        y = nx.sin(x)
        nx.debug.callback(lambda v: seen.append(float(v)), y)
        return nx.sin(y)

    g = nx.checkpoint(f, policy=policy)
    runs = (
        nx.grad(g),
        nx.jit(nx.grad(g)),
        g,
        nx.jit(g),
        lambda x: nx.vjp(g, x)[1](1.0),
        lambda x: nx.linearize(g, x)[1](1.0),
    )
    for run in runs:
        seen.clear()
        run(2.0)
        nx.effects_barrier()
        assert len(seen) == 1


@pytest.mark.parametrize("kind", ["pure", "io", "debug"])
def test_what_a_callback_keeps_stays(kind):
    """Its arguments lie in the program's memory, which later steps and calls write over."""
    kept = []

    def keep(a, b):
        kept.append((a, b))
        return b, a  # which are the results of pure and io callbacks

    @nx.jit
    def f(x):
        a, b = nx.numpy.sin(x), nx.numpy.cos(x)
        if kind == "debug":
            nx.debug.callback(keep, a, b)
            return nx.numpy.tanh(b) * 2 + a, b - a * 3
        c, d = (nx.pure_callback if kind == "pure" else io_callback)(keep, (a, b), a, b)
        return nx.numpy.tanh(c) * 2 + d, c - d * 3

    for i in range(4):
        x = np.arange(1000, dtype=np.float32) + i
        y = np.asarray(f(x)[1])
        np.testing.assert_allclose(y, np.cos(x) - 3 * np.sin(x), atol=1e-4)
    for i, (a, b) in enumerate(kept):
        x = np.arange(1000, dtype=np.float32) + i
        np.testing.assert_allclose(a, np.sin(x), atol=1e-4)
        np.testing.assert_allclose(b, np.cos(x), atol=1e-4)
    assert len(kept) == 4


def test_constants_do_not_call_a_callback_early(executor: str) -> None:
    """Compilation computes nothing that is a user's Python: the branch may never be taken."""
    calls: list[Any] = []

    def host(x: Any) -> Any:
        calls.append(x)
        return np.float32(x + 1)

    f = nx.jit(lambda p: nx.cond(p, lambda: nx.pure_callback(host, S, nx.asarray(1.0)), lambda: nx.asarray(0.0)))
    assert float(f(False)) == 0 and not calls
    assert float(f(True)) == 2 and len(calls) == 1
