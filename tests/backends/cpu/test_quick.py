"""Quickly made code: for the first run only, and the same numbers to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.cpu import isa

X = np.concatenate([
    np.linspace(-4, 4, 83), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 1e5, 0.5, 1.0, 2.0]
]).astype(np.float32)  # fmt: skip


def bits(x: Any) -> bytes:
    """Which NaN it is depends on the order of an addition's operands, which a compiler may choose."""
    data = x.numpy()
    return np.where(data == data, data, np.asarray(np.nan, data.dtype)).astype(data.dtype).tobytes()


FUNCTIONS = (
    "sin", "cos", "tan", "exp", "exp2", "expm1", "log", "log1p", "tanh", "sinh", "cosh", "arcsin", "arccos", "arctan",
    "arcsinh", "arctanh", "cbrt", "sqrt",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
    with nx.config.using(executor="cpu", cache_dir=""):
        yield


def executable(f: Any) -> Any:
    (entry,) = f._entries.values()
    return entry.prepared.executable


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_same_bits(name: str, dtype: str) -> None:
    x = nx.asarray(X).astype(dtype)
    quick = 0
    with nx.config.using(cpu_isa=name):
        for function in FUNCTIONS:
            # Equal programs are compiled once: each set of instructions has its own.
            f = nx.jit(lambda v, g=getattr(nx.numpy, function): (g(v * 1.25) + len(name)).reshape(19, 5).sum(1))
            first = f(x)
            quick += executable(f)._quick
            second = f(x)
            assert not executable(f)._quick
            assert bits(first) == bits(second), function
    assert quick == len(FUNCTIONS)


def test_what_runs_for_long_is_made_well_at_once() -> None:
    many = nx.jit(lambda x: nx.sin(x).sum())
    many(nx.zeros(3_000_000) + 1)
    assert not executable(many)._quick
    looped = nx.jit(lambda x: nx.lax.fori_loop(0, 10_000, lambda i, y: nx.sin(y), x))
    looped(nx.ones(4))
    assert not executable(looped)._quick
    assert not nx.jit(lambda x: nx.cos(x) * 3).lower(nx.ones(7)).compile().executable._quick


def test_nested_calls_get_good_code_the_second_time() -> None:
    f = nx.jit(lambda x: nx.cos(x) * 4.5)
    for _ in range(2):
        f(nx.ones(9))
    assert not executable(f)._quick
