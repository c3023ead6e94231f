"""Ten thousand equations, threads and tasks that trace at once, caches that are damaged, full or not there."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import cache
from nxjax.config import config
from nxjax.errors import InvalidFileError, MemoryLimitError
from nxjax.trace.text import parse_program

ROOT = Path(__file__).parents[1]
X = np.linspace(-1, 1, 8, dtype=np.float32)


STEPS = (nx.tanh, nx.sin, lambda y: y * 0.5, nx.cos)


def long(x, n=10_000):
    y = x
    for i in range(n):
        y = STEPS[i % 4](y)
    return y.sum()


def test_ten_thousand_equations():
    with config.using(check=False):
        program = nx.make_jaxpr(long)(X)
        assert len(program.equations) >= 10_001
        assert str(parse_program(str(program.check()))) == str(program)
        slope = nx.grad(long)(X)
        assert slope.shape == X.shape
        np.testing.assert_allclose(nx.vmap(long)(jnp.stack([X, X]))[1], long(X), rtol=1e-6)
        text = nx.jit(long).lower(X).as_text(dialect="stablehlo")
        assert text.count("stablehlo.") >= 10_000


def test_wide_and_deep_trees():
    wide = {f"k{i}": np.float32(i) for i in range(3000)}
    assert len(nx.make_jaxpr(lambda t: {k: v + 1 for k, v in t.items()})(wide).outputs) == 3000
    deep = jnp.ones(2)
    for _ in range(500):
        deep = [deep]
    assert len(nx.tree.leaves(nx.grad(lambda t: nx.tree.leaves(t)[0].sum())(deep))) == 1
    assert str(nx.jit(lambda t: t)(deep)).startswith("[" * 500)


def test_shapes_of_any_size_take_no_memory():
    large = nx.ShapeDtypeStruct((10**6, 10**6), "float32")
    assert nx.eval_shape(nx.grad(lambda x: (x @ x.T).sum()), large).shape == (10**6, 10**6)
    assert nx.eval_shape(lambda: jnp.eye(10**6)).size == 10**12
    with pytest.raises(MemoryLimitError, match="40,000,000,000,000"):
        nx.jit(lambda: jnp.zeros(10**13), device="cpu")()
    assert (jnp.ones((1,) * 64) + 1).ndim == 64
    with pytest.raises(ValueError, match="64"):
        jnp.ones((1,) * 65)


def test_first_calls_in_many_threads():
    shared = nx.jit(lambda x: nx.sin(x) @ x)
    own = [nx.jit(nx.grad(lambda x, k=k: (nx.sin(x) * k).sum())) for k in range(4)]
    start = threading.Barrier(32)

    def call(i):
        start.wait()
        return shared(X), own[i % 4](X), nx.vmap(lambda x: x * i)(X)

    with ThreadPoolExecutor(32) as pool:
        for i, (y, slope, rows) in enumerate(pool.map(call, range(32))):
            np.testing.assert_allclose(y, np.sin(X) @ X, rtol=1e-5)
            np.testing.assert_allclose(slope, np.cos(X) * (i % 4), rtol=1e-5)
            assert rows.tolist() == (X * i).tolist()


def test_traces_of_threads_and_tasks_are_apart():
    meet = threading.Barrier(4, timeout=60)

    def traced(x, name):
        with nx.named_scope(name):
            meet.wait()  # all four are in the middle of a trace
            y = nx.sin(x)
            meet.wait()
        return y.sum()

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(nx.make_jaxpr(nx.grad(lambda x, n=n: traced(x, n))), X) for n in "abcd"]
        for name, job in zip("abcd", jobs, strict=True):
            scopes = {e.scope for e in job.result().equations if e.op.name in ("sin", "cos")}
            assert scopes and all(name in s and not set("abcd") - {name} & set(s) for s in scopes)

    async def task(name):
        with nx.named_scope(name):
            await asyncio.sleep(0)
            program = nx.make_jaxpr(nx.sin)(X)
            await asyncio.sleep(0)
        return program.equations[0].scope

    async def several():
        return await asyncio.gather(*map(task, "abcd"))

    assert asyncio.run(several()) == list("abcd")


def test_entries_of_the_cache_that_are_not_what_they_were(tmp_path):
    with config.using(cache_dir=str(tmp_path / "a folder with ümlauts")):
        cache.store("one", b"first")
        cache.store("two", b"second")
        (folder,) = tmp_path.iterdir()
        (folder / "one.nxc").replace(folder / "two.nxc")
        assert cache.load("two") is None and cache.load("one") is None
        cache.store("one", b"first")
        folder.joinpath("one.nxc").unlink()
        folder.rmdir()
        assert cache.load("one") is None  # deleted while in use
        cache.store("one", b"again")
        assert cache.load("one") == b"again"


USE = """
import os, sys
import numpy as np, nxjax as nx
from nxjax.backends import cache
if sys.argv[1] == "full":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
if sys.argv[1] == "empty":  # each entry with a payload that is none, under a hash that is right
    for path in os.scandir(os.environ["NXJAX_CACHE_DIR"]):
        cache.store(path.name.removesuffix(".nxc"), b"k\\n" + b"\\x7fELF" * 3)
nx.config.update("compile_first", True)
x = np.arange(12, dtype=np.float32).reshape(3, 4)
np.testing.assert_allclose(nx.jit(lambda x: nx.sin(x) @ x.T, device="cpu")(x), np.sin(x) @ x.T, rtol=1e-5)
print("fine")
"""


@pytest.mark.parametrize("kind", ["full", "shared, then empty", "no home"])
def test_processes_and_their_cache(kind, tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NXJAX_", "XDG_"))}
    environment |= {"PYTHONPATH": str(ROOT), "NXJAX_CACHE_DIR": str(tmp_path / "cache")}
    if kind == "no home":
        del environment["NXJAX_CACHE_DIR"]
        environment["HOME"] = "/nonexistent"

    def run(*whats):
        ends = [
            subprocess.Popen(
                [sys.executable, "-c", USE, what], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for what in whats
        ]
        for end in ends:
            assert end.communicate(timeout=300)[0].decode() == "fine\n" and end.returncode == 0

    if kind == "full":
        run("full")
        assert not any(p.suffix == ".part" for p in (tmp_path / "cache").iterdir())
    elif kind == "no home":
        run("use")
    else:
        run(*["use"] * 3)
        run("empty")


def test_damaged_arrays_on_disk(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(4))
    data = bytearray(path.read_bytes())
    data[data.index(b"NUMPY") + 20] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InvalidFileError, match="a in an archive"):
        jnp.load(path)["a"]
    huge = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(
        117
    )
    (tmp_path / "x.npy").write_bytes(huge + b"\n" + bytes(8))
    with pytest.raises(InvalidFileError, match="damaged"):
        jnp.load(tmp_path / "x.npy")
