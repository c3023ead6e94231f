"""Programs that an earlier process has compiled: the same bits without the compiler, and none where that cannot be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import cache
from nxjax.backends.cpu import earlier, engine, stored
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.stored import StoredExecutable

R = np.random.default_rng(0)
X = R.normal(size=(6, 7)).astype(np.float32)
TABLE = jnp.array(R.normal(size=(7, 5)).astype(np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache of this file's own: that of all tests is full at times, and drops what a record names."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _as_users_have_it(folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Nor is any code held that other tests have made.
    monkeypatch.setattr(engine, "_engines", {})
    with nx.config.using(executor="cpu", compile_first=False, cache_dir=folder):
        nx.clear_caches()
        yield
    nx.clear_caches()


def executable(f: Any) -> Any:
    (entry,) = f._entries.values()
    return entry.prepared.executable


def scanned(x: Any) -> Any:
    return nx.lax.scan(lambda c, row: (c * 0.5 + row @ TABLE, jnp.tanh(c).sum()), jnp.zeros(5), x)


def while_(x: Any) -> Any:
    return nx.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 2, jnp.sort(c[1] * 1.5, axis=0)), (0, x))


PROGRAMS = {
    "product": lambda x: x @ x.T,
    "sum and an argument": lambda x: (x.sum(0), x, x.sum(0)),
    "constants": lambda x: (x @ np.arange(14, dtype=np.float32).reshape(7, 2), jnp.arange(3)),
    "scan": scanned,
    "while": while_,
    "cond": lambda x: nx.lax.cond(x[0, 0] > 0, lambda x: x @ x.T, lambda x: (x - 1) @ x.T, x),
    "convolution": lambda x: nx.lax.conv(x[None, None], x[:3, :3][None, None], (1, 1), "SAME"),
    "bfloat16": lambda x: (x.astype("bfloat16") @ x.astype("bfloat16").T).astype("float32"),
    "integers": lambda x: jnp.cumsum((x * 10).astype("int32"), 1) // 3,
    "gradient": nx.grad(lambda x: jnp.tanh(x @ TABLE).sum()),
    "empty": lambda x: (x[:0] @ x.T, jnp.sort(x, 1)),
    "large": lambda x: jnp.tile(x, (100, 40)) @ jnp.tile(x, (50, 40)).T,
}


def twice(f: Any, *args: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Results of a function as compiled, and as found; and what ran it then."""
    first = nx.tree.leaves(nx.jit(f, **options)(*args))
    nx.clear_caches()
    again = nx.jit(lambda *xs: f(*xs), **options)
    return first, nx.tree.leaves(again(*args)), executable(again)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name: str):
    first, found, ran = twice(PROGRAMS[name], X)
    assert type(ran) is StoredExecutable
    for a, b in zip(first, found, strict=True):
        assert a.aval == b.aval
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_many_calls_and_other_values():
    first, _, ran = twice(lambda x: x @ x.T, X)
    f = nx.jit(lambda x: x @ x.T)
    for i in range(70):
        y = np.asarray(f(X + i))
        if i < 3:
            np.testing.assert_array_equal(y, np.asarray(ran([nx.array(X + i)])[0]))
    np.testing.assert_allclose(y, (X + 69) @ (X + 69).T, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(f(X)), np.asarray(first[0]))


def test_a_donated_argument_is_gone():
    step = lambda x: jnp.sort(x * 1.5, axis=0)
    _, _, ran = twice(lambda x: x + 0, X)
    for _ in range(2):
        x = nx.array(X)
        f = nx.jit(step, donate_argnums=0)
        np.testing.assert_array_equal(np.asarray(f(x)), np.sort(X * 1.5, axis=0))
        assert x.is_deleted()
        nx.clear_caches()
    assert ran is not None and type(executable(f)) is StoredExecutable


def test_what_hangs_on_the_process_has_no_record():
    seen: list[float] = []
    called = lambda x: (
        nx.pure_callback(lambda v: np.float32(len(seen)), nx.ShapeDtypeStruct((), "float32"), x) + x.sum()
    )
    for f in (called, nx.jit(lambda x: (nx.debug.callback(seen.append, x[0, 0]), x @ x.T)[1])):
        _, _, ran = twice(f, X)
        assert type(ran) is not StoredExecutable


def test_a_user_s_op_has_no_record():
    op = nx.extend.core.Primitive("scaled_by_user")
    op.def_abstract_eval(lambda x: x)
    op.def_impl(lambda x: np.asarray(x) * 2)
    _, found, ran = twice(lambda x: op.bind(x) @ x.T, X)
    assert type(ran) is not StoredExecutable
    np.testing.assert_allclose(np.asarray(found[0]), X @ X.T * 2, rtol=1e-5)


def test_choices_and_settings_are_apart(monkeypatch: pytest.MonkeyPatch):
    # Of no earlier run of these tests.
    monkeypatch.setattr(earlier, "_good_for", lambda found=os.urandom(8).hex(): found)
    f = lambda x: (x @ x.T).sum()
    assert type(twice(f, X)[2]) is StoredExecutable
    for settings in ({"reproducible": True}, {"cpu_isa": "portable"}):
        nx.clear_caches()
        with nx.config.using(**settings):
            g = nx.jit(lambda x: f(x))
            g(X)
            assert type(executable(g)) is CpuExecutable, settings


def test_what_is_asked_besides_compiles_it():
    _, _, ran = twice(lambda x: x @ x.T, X)
    assert (ran.is_native and "dot" in ran.text.lower()) or ran.text
    assert ran.cost_analysis()["flops"] > 0
    assert type(ran.compiled) is CpuExecutable
    with nx.config.using(guard="end"):
        np.testing.assert_allclose(np.asarray(ran([nx.array(X)])[0]), X @ X.T, rtol=1e-5)


def test_arrays_that_are_held_are_prepared_as_ever():
    w = jnp.array(R.normal(size=(7, 64)).astype(np.float32))
    results = []
    for _ in range(2):
        f = nx.jit(lambda x: jnp.tanh(x @ w) @ w.T)
        results += [np.asarray(f(X)) for _ in range(5)]
        nx.clear_caches()
    for y in results[1:]:
        np.testing.assert_allclose(y, results[0], rtol=1e-5)


@pytest.mark.parametrize("damage", [b"", b"\1", b"\0" * 64, bytes(range(256))])
def test_a_record_of_another_layout_is_none(damage: bytes):
    f = lambda x: x @ x.T
    twice(f, X)
    program = nx.make_jaxpr(f)(X)
    what = stored.key(program, (), {})
    assert what is not None and earlier.read(*what)
    earlier.write(damage, *what)
    nx.clear_caches()
    g = nx.jit(lambda x: f(x))
    np.testing.assert_allclose(np.asarray(g(X)), X @ X.T, rtol=1e-5)
    assert type(executable(g)) is CpuExecutable


def test_code_that_is_gone_is_made_anew(monkeypatch: pytest.MonkeyPatch):
    f = lambda x: x @ x.T
    twice(f, X)
    monkeypatch.setattr(earlier, "code", lambda file, symbols: None)
    nx.clear_caches()
    g = nx.jit(lambda x: f(x))
    np.testing.assert_allclose(np.asarray(g(X)), X @ X.T, rtol=1e-5)
    assert type(executable(g)) is CpuExecutable


def test_a_record_names_files_that_are_there():
    """Code that the process still holds may have no file any more: the next process that compiles it leaves both."""
    f = lambda x: x @ x.T
    cache.clear()
    first = nx.jit(f)
    first(X)
    held = executable(first)
    cache.clear()
    nx.clear_caches()
    again = nx.jit(lambda x: f(x))
    again(X)
    assert held is not executable(again)
    what = stored.key(nx.make_jaxpr(f)(X), (), {})
    assert what is not None and earlier.read(*what) is None
    engine._engines.clear()
    assert type(twice(f, X)[2]) is StoredExecutable


def test_other_sources_are_other_records(monkeypatch: pytest.MonkeyPatch):
    f = lambda x: x @ x.T
    twice(f, X)
    monkeypatch.setattr(earlier, "_good_for", lambda: cache.key_of("other"))
    nx.clear_caches()
    assert type(twice(lambda x: f(x), X)[2]) is StoredExecutable
    monkeypatch.setattr(earlier, "_good_for", lambda: None)
    nx.clear_caches()
    g = nx.jit(lambda x: f(x))
    g(X)
    assert type(executable(g)) is CpuExecutable


@pytest.mark.unguarded  # guarded code is written anew
def test_a_second_process_loads_no_compiler(tmp_path: Path):
    code = (
        "import sys, numpy as np, nxjax as nx\n"
        "y = nx.jit(lambda x: (x[:, None] @ x[None]).sum(0))(np.ones(4, 'f4'))\n"
        "assert y.tolist() == [4.0] * 4\n"
        "y = nx.jit(lambda x: nx.numpy.tanh(x) ** 2)(np.ones(4, 'f4'))\n"
        "assert abs(y - np.tanh(1) ** 2).max() < 1e-6\n"
        "print([m for m in sys.modules if m.startswith(('nxjax.kernels.cpu.', 'nxjax.lower.cpu', 'llvmlite'))])"
    )
    environment = {**os.environ, "NXJAX_CACHE_DIR": str(tmp_path), "NXJAX_COMPILE_FIRST": "0"}
    run = lambda: ast.literal_eval(subprocess.check_output([sys.executable, "-c", code], text=True, env=environment))
    assert "llvmlite" in run()
    # The last one where there is a matrix unit.
    known = ["nxjax.kernels.cpu.op_files", "nxjax.kernels.cpu.permission"]
    assert sorted(run()) in (known[:1], known)


@pytest.mark.unguarded
def test_nor_for_many_calls_of_what_holds_small_arrays(tmp_path: Path):
    code = (
        "import sys, numpy as np, nxjax as nx\n"
        "table = np.arange(8, dtype='f4').reshape(4, 2)\n"
        "f = nx.jit(lambda x: (x @ x.T) @ table)\n"
        "for _ in range(9): y = f(np.ones((4, 4), 'f4'))\n"
        "assert y[0].tolist() == [48.0, 64.0]\n"
        "print('llvmlite' in sys.modules)"
    )
    environment = {**os.environ, "NXJAX_CACHE_DIR": str(tmp_path), "NXJAX_COMPILE_FIRST": "0"}
    run = lambda: subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).split()
    assert [run(), run()] == [["True"], ["False"]]


@pytest.mark.unguarded
@pytest.mark.parametrize("give_back", ["nx.devices()[0].trim()", "nx.clear_caches()"])
def test_memory_of_a_process_without_the_compiler_goes_back(tmp_path: Path, give_back: str):
    code = (
        "import sys, numpy as np, nxjax as nx\n"
        "y = nx.jit(lambda x: (x[:, None] @ x[None]) @ x[:, None])(np.ones(999, 'f4'))\n"
        "del y\n"
        "kept = lambda: nx.devices()[0].memory_stats()['pool_bytes']\n"
        "print(kept() > 0)\n"
        f"{give_back}\n"
        "print(kept(), 'llvmlite' in sys.modules)"
    )
    environment = {**os.environ, "NXJAX_CACHE_DIR": str(tmp_path), "NXJAX_COMPILE_FIRST": "0"}
    run = lambda: subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).split()
    assert [run(), run()] == [["True", "0", "True"], ["True", "0", "False"]]
