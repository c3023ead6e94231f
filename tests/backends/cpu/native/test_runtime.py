"""The runtime's face: settings, a container's share, what systems differ in, and forks at the level of `jit`."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from nxjax.backends.cpu.engine import KernelCache, engine
from nxjax.backends.cpu.native import runtime as runtimes
from nxjax.backends.cpu.native import sync
from nxjax.backends.cpu.native.abi import Addresses
from nxjax.backends.cpu.native.emitted import text
from nxjax.backends.cpu.native.runtime import processors, runtime
from nxjax.config import config, watch
from nxjax.kernels.cpu import isa
from tests.backends.cpu.native.kernels import Busy


def test_there_is_one_whatever_the_instruction_set():
    first = runtime()
    with config.using(cpu_isa="portable"):
        assert runtime() is first
    assert runtimes.loaded() is first
    assert isinstance(first.addresses, Addresses) and all(first.addresses)


@pytest.mark.parametrize(
    ("files", "share"),
    [
        (["150000 100000"], 2),
        (["100000 100000"], 1),
        (["20000 100000"], 1),
        (["max 100000"], None),
        (["-1", "100000"], None),
        (["300000", "100000"], 3),
        ([""], None),
    ],
)
def test_a_containers_share_of_time(tmp_path, monkeypatch, files, share):
    names = []
    for i, content in enumerate(files):
        (tmp_path / str(i)).write_text(content)
        names.append(str(tmp_path / str(i)))
    monkeypatch.setattr(runtimes, "_SHARES", (tuple(names), (str(tmp_path / "missing"),)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert processors() == (share or 64)


def test_settings_reach_whoever_watches():
    seen = []
    watch("ipu_model", seen.append)
    before = config.ipu_model
    config.update("ipu_model", "bow")
    config.ipu_model = before
    assert seen == ["bow", before]

    def refuses(value):
        raise ValueError(value)

    watch("ipu_model", refuses)
    try:
        with pytest.raises(ValueError, match="m2000"):
            config.update("ipu_model", "m2000")
        assert config.ipu_model == before
    finally:
        from nxjax import config as module  # the watchers are the module's

        watchers = sys.modules["nxjax.config"]._watchers
        assert module is not None
        del watchers["ipu_model"]


def test_what_systems_differ_in():
    codes = {s.name: text(s) for s in (sync.LINUX, sync.DARWIN, sync.POSIX, sync.WINDOWS)}
    assert "madvise" in codes["linux"] and "madvise" not in codes["darwin"]
    assert "mmap" in codes["darwin"] and "mmap" not in codes["posix"]
    assert "_aligned_malloc" in codes["win32"] and "posix_memalign" not in codes["win32"]
    assert "clock_gettime" in codes["linux"] and "clock_gettime" not in codes["win32"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_of_a_fork_compute_and_compile():
    code = """
import os, sys, threading
import numpy as np
import nxjax as nx
nx.config.update("num_threads", 2)
x = nx.asarray(np.arange(300_000, dtype=np.float32))
f = nx.jit(lambda x: x * 2 + 1)
wanted = np.arange(300_000, dtype=np.float32) * 2 + 1
assert np.array_equal(f(x), wanted)
stop = False
def load():
    while not stop: f(x)
worker = threading.Thread(target=load)
worker.start()
for round in range(4):
    pid = os.fork()
    if not pid:
        good = all(np.array_equal(f(x), wanted) for _ in range(3))
        good &= np.array_equal(nx.jit(lambda x: x - round)(x), np.arange(300_000, dtype=np.float32) - round)
        os._exit(0 if good else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert np.array_equal(f(x), wanted)
stop = True
worker.join()
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(type(x).sum, [x, x])[0] == x.sum()
print("well")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NXJAX_EXECUTOR": "cpu"},
    )
    assert done.stdout == "well\n", (done.returncode, done.stderr[-2000:])


def test_a_system_without_threads_pages_and_clock():
    """The runtime of such a system, here: kernels run on the caller, memory is the C library's."""
    system = sync.System("posix", threads=False, map_flags=0, huge_advice=0, page=4096, clock=-1)
    symbols = ("nx_acquire", "nx_release", "nx_parallel_for", "nx_threads_set", "nx_threads_reset", "nx_pool_limit")
    apart = KernelCache(isa.current())  # with symbols of its own; its code lives as long
    found = dict(zip(symbols, apart.module(text(system), symbols), strict=True))
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    acquire = ctypes.CFUNCTYPE(ptr, i64)(found["nx_acquire"])
    release = ctypes.CFUNCTYPE(i64, ptr)(found["nx_release"])
    ctypes.CFUNCTYPE(None)(found["nx_threads_reset"])()
    ctypes.CFUNCTYPE(None, i64)(found["nx_pool_limit"])(2**30)
    ctypes.CFUNCTYPE(None, i64, i64)(found["nx_threads_set"])(8, 100)
    for nbytes in (1, 1000, 10_000_000):
        p = acquire(nbytes)
        ctypes.memset(p, 5, nbytes)
        assert p % 64 == 0 and release(p) == 0 and release(p) == -2
    kernel = Busy(100, 20)
    (code,) = engine(isa.current()).addresses([kernel])
    y, scratch = np.zeros(100, np.int64), np.zeros(kernel.scratch // 8, np.int64)
    words = np.array([y.ctypes.data, 20], np.uint64)
    parallel_for = ctypes.CFUNCTYPE(i64, ptr, ptr, i64, i64, i64, ptr, ptr)(found["nx_parallel_for"])
    assert parallel_for(code, words.ctypes.data, 100, 3, kernel.scratch, scratch.ctypes.data, None) == 0
    np.testing.assert_array_equal(y, kernel.meaning()[0])
