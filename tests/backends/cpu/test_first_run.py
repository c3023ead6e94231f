"""The first run of small programs op by op: the same numbers, and machine code from the second run on."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.first_run import FirstByMeaning, is_simple
from nxjax.kernels.cpu import isa

X = np.array([0.1, -2.5, 3e30, 0.0], np.float32)


@pytest.fixture(autouse=True)
def _lazily(tmp_path: Path) -> Iterator[None]:
    # A cache of each test's own: what an earlier run of the tests has left would answer.
    with nx.config.using(executor="cpu", compile_first=False, cache_dir=str(tmp_path)):
        yield


def executable(f: Any) -> Any:
    (entry,) = f._entries.values()
    return entry.prepared.executable


@pytest.mark.unguarded
def test_the_second_run_is_machine_code_and_gives_the_same_bits() -> None:
    def fun(x: Any, n: Any) -> Any:
        y = nx.where(x > 0, x * 3 + 1, -x / 7)
        return nx.sqrt(abs(y)), n * n - 2, y.reshape(2, 2).T, nx.maximum(x, 0.5)

    f = nx.jit(fun)
    n = np.array([2**31 - 1, -5], np.int32)
    first = f(X, n)
    assert type(executable(f)) is FirstByMeaning
    assert executable(f)._made is None
    for _ in range(3):
        for a, b in zip(first, f(X, n), strict=True):
            assert (a.type, a.numpy().tobytes()) == (b.type, b.numpy().tobytes())
    assert executable(f)._made is not None
    assert f.trace_count == 1


def test_ops_that_are_rounded_otherwise_are_compiled_at_once() -> None:
    for fun in (
        lambda x: x.sum(),
        lambda x: x.astype("bfloat16") * 2,
        lambda x: nx.zeros((600, 600)) + x[0],
        lambda x: nx.sin(nx.cos(nx.tan(nx.exp(x)))),  # as many functions as are made for one run, and one more
    ):
        f = nx.jit(fun)
        f(X)
        assert type(executable(f)) is not FirstByMeaning
    with nx.config.using(compile_first=True):
        f = nx.jit(lambda x: x + 1)
        f(X)
        assert type(executable(f)) is not FirstByMeaning


def test_who_compiles_ahead_or_asks_gets_machine_code() -> None:
    compiled = nx.jit(lambda x: x * 5 + 2).lower(X).compile()
    assert compiled.executable._made is not None
    np.testing.assert_array_equal(compiled(X), X * 5 + 2)
    assert "const" in compiled.as_text() or "input0" in compiled.as_text()
    assert compiled.memory_analysis() is not None
    assert compiled.cost_analysis()


@pytest.mark.unguarded
def test_results_are_nobody_elses_memory() -> None:
    f = nx.jit(lambda x: (x, x[:2], x.reshape(2, 2)))
    mine = X.copy()
    results = f(mine)
    mine[:] = 7
    assert [r.numpy().ravel()[0] for r in results] == [X[0]] * 3
    big = nx.asarray(np.zeros(10_000, np.float32))
    (small,) = nx.jit(lambda x: (x[:2],))(big)
    assert small.numpy().base is None


def test_donated_arguments_are_gone_after_the_first_run() -> None:
    f = nx.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(4):
        x = nx.asarray(X)
        np.testing.assert_array_equal(f(x), X + 1)
        assert x.is_deleted()


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 2.5, -7.25]
BINARY = ("add", "sub", "mul", "div", "max", "min", "eq", "lt", "ge", "bitwise_and", "bitwise_xor")
UNARY = ("neg", "abs", "sqrt", "square", "bitwise_not")


def bits(x: Any) -> bytes:
    """Of NaN only that it is one."""
    data = np.asarray(x)
    return (np.where(data == data, data, np.nan).astype(data.dtype) if data.dtype.kind == "f" else data).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_special_values(dtype: str) -> None:
    d = np.dtype(dtype)
    values = SPECIAL if d.kind == "f" else [0, 1, 2, 7, np.iinfo(d).max, np.iinfo(d).min, np.iinfo(d).max - 1]
    x, y = (nx.asarray(np.array(v, d)) for v in zip(*itertools.product(values, values), strict=True))
    for name, args in [*((n, (x, y)) for n in BINARY), *((n, (x,)) for n in UNARY)]:
        if name in (("sqrt",) if d.kind != "f" else ("bitwise_and", "bitwise_xor", "bitwise_not")):
            continue
        f = nx.jit(getattr(nx.lax, name))
        first = f(*args)
        assert type(executable(f)) is FirstByMeaning, name
        assert bits(first) == bits(f(*args)), name


FUNCTIONS = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "expm1", "log", "log1p", "logistic", "rsqrt", "cbrt", "erf", "erfc", "erf_inv", "lgamma", "digamma",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_the_kernels(name: str, dtype: str) -> None:
    spread = np.random.default_rng(0).standard_normal(60) * np.logspace(-3, 6, 60)
    x = nx.asarray(np.concatenate((SPECIAL, spread)).astype(dtype))
    f = nx.jit(lambda x: getattr(nx.lax, name)(x))
    first = f(x)
    assert type(executable(f)) is FirstByMeaning
    assert bits(first) == bits(f(x))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (17,), (3, 5)], ids=str)
def test_functions_of_any_shape(shape: tuple[int, ...]) -> None:
    def fun(x: Any) -> Any:
        return nx.nn.silu(x * 2), nx.lax.pow(abs(x), x), x**3

    x = nx.asarray(np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    f = nx.jit(fun)
    first = f(x)
    assert type(executable(f)) is FirstByMeaning
    for a, b in zip(first, f(x), strict=True):
        assert (a.type, a.numpy().tobytes()) == (b.type, b.numpy().tobytes())


def test_the_second_run_has_the_best_code_at_once() -> None:
    f = nx.jit(lambda x: x * 3 - 17)
    before = engine(isa.current(), 0).compilations
    f(X), f(X), f(X)
    assert engine(isa.current(), 0).compilations == before


def test_results_have_the_types_of_the_program() -> None:
    """Simplification keeps what numbers are, not whether they are weak."""
    f = nx.jit(nx.grad(lambda x: nx.sin(x) * nx.exp(x)))
    first = f(1.5)
    assert type(executable(f)) is FirstByMeaning
    assert first.type == f(1.5).type == f(1.5).type
    assert first.numpy().tobytes() == f(1.5).numpy().tobytes()


def test_a_function_is_made_once() -> None:
    x = nx.asarray(X)
    nx.jit(lambda x: nx.sin(x) + 11)(x)
    before = engine(isa.current(), 0).compilations
    for k in range(3):
        nx.jit(lambda x, k=k: nx.sin(x * k) * 2)(x[k:])
    assert engine(isa.current(), 0).compilations == before


def test_the_sign_of_a_first_runs_nan_is_that_of_later_ones() -> None:
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -2.0], np.float32)
    x, y = (v.ravel().copy() for v in np.meshgrid(odd, odd))
    for fun in (
        lambda x, y: nx.numpy.power(nx.lax.rsqrt(x), y),
        lambda x, y: (x + y) + (y * x),
        lambda x, y: nx.log(x) + nx.numpy.minimum(y, x),
        lambda x, y: -(nx.numpy.arctan2(x, -np.inf) + x) * y,
    ):
        f = nx.jit(fun)
        assert f(x, y).numpy().tobytes() == f(x, y).numpy().tobytes() == f(x, y).numpy().tobytes()


def test_what_no_argument_goes_into_has_the_bits_of_machine_code() -> None:
    """Which has it from NumPy: its exp and that of kernels differ in the last place."""
    for at in (0.9516400694847107, 0.3, 1.7, 0.01):
        x = nx.numpy.float32(at)
        f = nx.jit(lambda x=x: -nx.numpy.exp(-nx.numpy.tanh(x) * nx.numpy.tanh(x)))
        first, second = f(), f()
        assert first.numpy().tobytes() == second.numpy().tobytes()


@pytest.mark.parametrize(("dtype", "simple"), [("float32", True), ("float64", True), ("float16", False)])
def test_functions_that_are_shared_are_of_float32_and_float64(dtype: str, simple: bool) -> None:
    with nx.config.using(enable_x64=True):
        assert is_simple(nx.make_jaxpr(lambda x: nx.exp(x))(np.ones(3, dtype))) == simple


# What a first call loads that NumPy answers, besides what the import does. May only shrink.
LOADED = """
    backends backends/base backends/cpu backends/cpu/backend backends/cpu/compiled_later backends/cpu/first_run
    backends/dispatch backends/placing backends/quiet backends/registry config/named_tuple numpy/elementwise
    numpy/promotion ops/arithmetic ops/base ops/index ops/shape ops/vocabulary trace/annotations trace/axes trace/depth
    trace/evaluate trace/layouts trace/leaks trace/reproducible trace/shortcuts trace/stage trace/text trace/tree
    trace/tree_keys trace/tree_nodes trace/wrapping transforms transforms/jit transforms/jit_arguments
    transforms/jit_entry transforms/jit_options transforms/jit_stages transforms/jit_trace transforms/retrace
"""
# What nothing on this way needs, and takes long to import.
FOREIGN = """
    _hashlib dataclasses importlib.metadata importlib.util llvmlite logging ml_dtypes._finfo optree.ops pathlib
    typing_extensions
"""


def loaded(call):
    """What a process has that makes a call, and what of it the import brings."""
    code = (
        f"import sys, numpy as np; sys.modules.pop('dataclasses', None)\n"
        f"import nxjax as nx; before = [*sys.modules]; jnp = nx.numpy\n{call}\nprint([*sys.modules], before)"
    )
    both = subprocess.check_output([sys.executable, "-c", f"{code}"], text=True)
    return map(set, ast.literal_eval(both.replace("] [", "], [")))


@pytest.mark.unguarded  # guarded programs run compiled
def test_a_process_that_calls_a_small_function_once_loads_what_it_needs():
    found, before = loaded(
        "assert nx.jit(lambda x, y: x * 2 + y)(np.ones(4, 'f4'), np.ones(4, 'f4')).tolist() == [3.0] * 4"
    )
    assert not found & set(FOREIGN.split())
    files = {m.removeprefix("nxjax.").replace(".", "/") for m in found - before if m.startswith("nxjax.")}
    assert not files - set(LOADED.split())


@pytest.mark.unguarded  # guarded code is written anew
def test_nor_the_compiler_for_what_it_calls_once():
    found, _ = loaded(
        "assert nx.jit(lambda x: jnp.where(x > 1, x * 2 + 1, -x))(np.ones(4, 'f4') + 1).tolist() == [5.0] * 4"
    )
    assert not found & set(FOREIGN.split()) - {"dataclasses"}
    assert not [m for m in found if m.startswith(("nxjax.kernels.", "nxjax.lower.cpu", "nxjax.transforms.jvp"))]
