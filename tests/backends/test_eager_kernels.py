"""Eager ops on large arrays: what `jit` gives, by kernels where these are quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import eager_kernels
from nxjax.trace.array import LARGE

N = LARGE + 3
X = np.linspace(-3, 3, N, dtype=np.float32)


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
    eager_kernels._found.clear()
    with nx.config.using(executor="cpu"):
        yield
    eager_kernels._found.clear()


def compiled() -> list[str]:
    """Names of ops that have been compiled."""
    return sorted({key[0].name for key, found in eager_kernels._found.items() if found not in (None, 1)})


def bits(x: Any) -> tuple[Any, bytes]:
    return x.type, x.numpy().tobytes()


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("exp", nx.exp),
        ("erf", nx.scipy.special.erf),
        ("rsqrt", lambda x: nx.lax.rsqrt(abs(x) + 1)),
        ("reduce_sum", lambda x: x.sum()),
        ("reduce_max", lambda x: x.max()),
        ("logistic", nx.nn.sigmoid),
    ],
)
def test_eager_is_jit(name: str, f: Callable[[Any], Any]) -> None:
    x = nx.asarray(X)
    eager = f(x)
    assert name in compiled()
    assert bits(eager) == bits(f(x))
    np.testing.assert_allclose(np.asarray(eager), np.asarray(f(nx.asarray(X.astype(np.float64)))), rtol=1e-5)
    if name in ("exp", "erf", "reduce_sum", "reduce_max"):
        assert bits(eager) == bits(nx.jit(f)(x))


def test_ops_that_numpy_is_quick_with_are_numpys() -> None:
    x = nx.asarray(X)
    for _ in range(3):
        y = (x + x) * x - x
        nx.sin(x), x < y
    assert compiled() == []
    np.testing.assert_array_equal(y, (X + X) * X - X)


def test_narrow_floats_are_compiled_when_they_come_again() -> None:
    x = nx.asarray(X).astype("bfloat16")
    first = x * x + x
    assert "mul" not in compiled()
    assert bits(first) == bits(x * x + x) == bits(x * x + x)
    assert {"mul", "add"} <= set(compiled())
    assert bits(nx.sin(x)) == bits(nx.jit(nx.sin)(x))


def test_repeated_elements_are_not_copied() -> None:
    x = nx.asarray(X[: (N // 4) * 4].reshape(-1, 4)).astype("bfloat16")
    row, one = nx.ones(4, "bfloat16") * 3, nx.asarray(2.0, "bfloat16")
    wanted = [np.asarray(x * row).tobytes(), np.asarray(x + one).tobytes()]
    for _ in range(3):
        assert [np.asarray(x * row).tobytes(), np.asarray(x + one).tobytes()] == wanted
    assert {"mul", "add"} <= set(compiled())
    shapes = [t.shape for key in eager_kernels._found for t in key[1] if key[0].name == "mul"]
    assert shapes
    assert any(dims for key in eager_kernels._found for dims in key[3])


def test_strides() -> None:
    values = np.random.default_rng(0).random(2 * N, dtype=np.float32)
    x, matrix = nx.asarray(values[::2]), nx.asarray(values[: 600 * 700].reshape(600, 700).T)
    for v in (x, matrix):
        for _ in range(3):
            assert bits(nx.exp(v)) == bits(nx.jit(nx.exp)(v))
            np.testing.assert_allclose(v.sum(0), v.numpy().sum(0, dtype=np.float64), rtol=1e-6)


def test_small_arrays_other_executors_and_traces() -> None:
    small = nx.asarray(X[:1000])
    nx.exp(small), small.sum()
    with nx.config.using(executor="reference"):
        assert bits(nx.exp(nx.asarray(X))) == bits(nx.jit(nx.exp)(nx.asarray(X)))
    assert compiled() == []
    gradient = nx.grad(lambda v: nx.exp(v).sum())(nx.asarray(X))
    np.testing.assert_allclose(gradient, np.exp(X), rtol=1e-6)
    with pytest.raises(nx.errors.NxError):
        nx.exp(nx.asarray(X)) @ nx.ones(3)
