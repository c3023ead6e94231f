"""Machine code is packed into few mappings, and goes when its last user goes, whatever runs meanwhile."""

import contextlib
import ctypes
import gc
import platform
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu import engine as engines
from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.native import loading
from nxjax.backends.cpu.native.loading import PAGE, Room, Unlinkable, _Slab, room
from nxjax.config import config
from nxjax.errors import LoweringError, MemoryLimitError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.probe import PeakFma, StreamCopy

MAPS = Path("/proc/self/maps")
X = np.arange(8, dtype=np.float32)
packed = pytest.mark.skipif(room() is None, reason="code is packed where object files are ELF")
intel = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="relocations of x86-64")
linux = pytest.mark.skipif(not MAPS.exists(), reason="this system does not say its mappings")


@pytest.fixture(autouse=True)
def uncached():
    with config.using(cache_dir="", executor="cpu"):
        f = nx.jit(lambda x: x + 1)
        for _ in range(4):  # what a process loads once is loaded
            f(X)
        yield


def mappings():
    return len(MAPS.read_text().splitlines())


def used():
    """Pages that hold code with a user."""
    gc.collect()
    nx.clear_caches()
    gc.collect()
    room().settle()
    return sum(s.pages - sum(n for _, n in s.free) for s in room()._slabs)


def program(i):
    number = i + 0.25
    return nx.jit(lambda x: x * number).lower(X).compile()


@packed
@linux
def test_mappings_and_memory_stay_bounded():
    """Of programs that are dropped, and of those that are kept."""
    for i in range(3):
        program(i)(X)
    before, pages = mappings(), used()
    for i in range(3, 60):
        np.testing.assert_array_equal(program(i)(X), X * np.float32(i + 0.25))
    assert used() == pages
    kept = [program(i) for i in range(60, 120)]
    assert used() >= pages + 60
    for i, f in enumerate(kept, 60):
        np.testing.assert_array_equal(f(X), X * np.float32(i + 0.25))
    assert mappings() < before + 60  # some of threads' and of NumPy's; it was two for each program
    del kept, f
    assert used() == pages


@packed
def test_retraced_functions_give_their_code_back():
    for first in (True, False):
        with config.using(compile_first=first):
            pages = used()
            for i in range(6):
                f = nx.jit(lambda x, i=i: nx.numpy.sin(x * (i + 0.125)) + i)
                for _ in range(4):
                    f(X)
            assert used() > pages
            f.clear_cache()
            del f
            assert used() == pages


@packed
def test_code_that_runs_stays():
    """The last user of a program goes while threads are in it."""
    large = np.ones(3_000_000, np.float32)
    for i in range(4):
        number = i + 0.0625
        f = nx.jit(lambda x, n=number: nx.numpy.tanh(x * n) + n)
        wanted = float(np.tanh(number) + number)
        f(large), f(large), f(large)
        begun, results = threading.Barrier(3), []

        def work(f=f, begun=begun, results=results):
            begun.wait()
            y = f(large)
            del f
            results.append((float(y.min()), float(y.max())))

        threads = [threading.Thread(target=work) for _ in range(2)]
        del work
        for t in threads:
            t.start()
        begun.wait()
        f.clear_cache()
        del f
        nx.clear_caches()
        gc.collect()
        for k in range(5):
            program(k)(X)
        for t in threads:
            t.join()
        assert len(results) == 2
        np.testing.assert_allclose(results, wanted, rtol=1e-5)


@packed
def test_code_is_freed_by_its_last_address():
    e = KernelCache(isa.current())
    before = used()
    first = e.addresses([StreamCopy(11), PeakFma(1, np.dtype(np.float32))])
    again = e.addresses([StreamCopy(11)])
    assert first[0] == again[0] and e.compilations == 1 and used() == before + 1
    del first
    e.clear()
    assert used() == before + 1 and e.has([StreamCopy(11)])
    again = e.addresses([StreamCopy(11)])
    del again
    assert used() == before + 1  # it was asked for lately
    e.clear()
    assert used() == before and not e.has([StreamCopy(11)])


def test_llvms_own_loader_does_the_same(monkeypatch):
    monkeypatch.setattr(engines, "room", lambda: None)
    e = KernelCache(isa.current())
    (address,) = e.addresses([StreamCopy(12)])
    assert address and e.has([StreamCopy(12)])
    del address
    e.clear()
    gc.collect()
    assert not e.has([StreamCopy(12)])


def test_without_the_compilers_library_llvms_loader_takes_over(monkeypatch):
    """Where caches of instructions have to be told, and nothing is there to tell them."""

    def missing():
        raise OSError("libgcc_s.so.1: cannot open shared object file")

    monkeypatch.setattr(loading, "_rooms", [])
    monkeypatch.setattr(loading, "_synchronize", missing)
    monkeypatch.setattr(loading.platform, "machine", lambda: "aarch64")
    assert room() is None
    monkeypatch.setattr(loading, "_synchronize", lambda: lambda *_: None)
    assert room() is not None


@packed
def test_memory_that_the_system_refuses_is_an_error(monkeypatch):
    own = Room()
    (data,) = _objects(monkeypatch)

    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as m:
        m.setattr(loading.mmap, "mmap", refused)
        with pytest.raises(MemoryLimitError, match="no memory for machine code"):
            own.place(data, lambda name: None)
    monkeypatch.setattr(own, "_protect", lambda *_: -1)
    with pytest.raises(MemoryLimitError, match="no memory for machine code"):
        own.place(data, lambda name: None)
    assert own._slabs[0].free == [(0, own._slabs[0].pages)]


def _objects(monkeypatch):
    found = []
    e = KernelCache(isa.current())
    loaded = KernelCache._loaded
    with monkeypatch.context() as m:
        m.setattr(KernelCache, "_loaded", lambda self, data, symbols: found.append(data) or loaded(self, data, symbols))
        e.addresses([StreamCopy(13)])
    return found


@packed
def test_damaged_objects_are_refused(monkeypatch):
    (data,) = _objects(monkeypatch)
    own, rng = Room(), np.random.default_rng(0)
    for cut in range(0, len(data) - 1, 37):
        with pytest.raises(Unlinkable):
            own.place(data[:cut], lambda name: None)
    for _ in range(300):  # what is laid out is not run
        changed = bytearray(data)
        for at in rng.integers(0, len(data), 4):
            changed[at] = rng.integers(0, 256)
        with contextlib.suppress(Unlinkable):
            own.place(bytes(changed), lambda name: None)


def _near(text):
    """An object whose code names places by their distance, in four bytes."""
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(text, llvm.create_context()))


@packed
@intel
def test_distances_are_right_or_refused():
    constant = "@c = private constant [2 x double] [double 1.5, double -2.5]\n"
    read = "%p = getelementptr double, ptr @c, i64 %i\n  %x = load double, ptr %p\n  ret double %x"
    code = Room().place(_near(f"{constant}define double @k(i64 %i) {{\n  {read}\n}}"), lambda name: None)
    read = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(code.addresses["k"])
    assert [read(0), read(1)] == [1.5, -2.5]
    call = _near("declare void @far()\ndefine void @k() {\n  call void @far()\n  ret void\n}")
    # Wherever the code is placed, one of the two is more than 2 GiB away.
    for far in (1 << 60, 8):
        with pytest.raises(Unlinkable, match="too far away"):
            Room().place(call, lambda name, far=far: far)


@packed
@intel
def test_data_without_code_has_a_page_of_its_own():
    own = Room()
    kept = own.place(_near("@x = global i64 7"), lambda name: None)
    assert ctypes.c_int64.from_address(kept.addresses["x"]).value == 7
    (slab,) = own._slabs
    assert sum(n for _, n in slab.free) == slab.pages - 1
    del kept
    gc.collect()
    own.place(_near("@x = global i64 8"), lambda name: None)
    gc.collect()
    own.settle()
    assert slab.free == [(0, slab.pages)]


@packed
def test_a_function_that_the_process_does_not_have_is_an_error():
    """LLVM's loader takes it for one at address 0."""
    text = "declare void @no_such_function()\ndefine void @k() {\n  call void @no_such_function()\n  ret void\n}"
    with pytest.raises(LoweringError, match="no_such_function"):
        KernelCache(isa.current()).module(text, ["k"])


def test_runs_of_pages_are_joined_again():
    rng = np.random.default_rng(1)
    slab, taken = _Slab(64), []
    for _ in range(500):
        if taken and rng.random() < 0.5:
            slab.put(*taken.pop(rng.integers(len(taken))))
        else:
            count = int(rng.integers(1, 9))
            first = slab.take(count)
            if first is not None:
                taken.append((first, count))
        whole = sorted([*taken, *slab.free])
        assert [a + n for a, n in whole] == [*(a for a, _ in whole[1:]), 64] and slab.free == sorted(slab.free)
    for run in taken:
        slab.put(*run)
    assert slab.free == [(0, 64)] and slab.address % PAGE == 0


@pytest.mark.unguarded
@packed
@linux
def test_forks_and_the_limit_of_mappings():
    """A fork has code of its own; where the system gives no more mappings, that is an error."""
    code = """
import ctypes, gc, mmap, os, sys
import numpy as np, nxjax as nx
nx.config.update("cache_dir", "")
x = np.arange(8, dtype=np.float32)
def program(i):
    return nx.jit(lambda x: x * (i + 0.5)).lower(x).compile()
def right(f, i):
    return bool((np.asarray(f(x)) == x * np.float32(i + 0.5)).all())
first = [program(i) for i in range(3)]
child = os.fork()
del first[1]
nx.clear_caches(); gc.collect()
more = [program(i + (10 if child else 20)) for i in range(3)]
ok = right(first[0], 0) and right(first[1], 2) and all(right(f, i + (10 if child else 20)) for i, f in enumerate(more))
if not child:
    os._exit(0 if ok else 1)
assert ok and os.waitpid(child, 0)[1] == 0
protect = ctypes.CDLL(None).mprotect
protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
limit = int(open("/proc/sys/vm/max_map_count").read())
if limit <= 100_000:
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page * limit, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start, n = ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0
    while not protect(start + 2 * page * n, page, 1):
        n += 1
    try:
        many = [program(100 + i) for i in range(600)]
        assert False, "no limit"
    except MemoryError as error:
        assert "machine code" in str(error), error
    assert right(first[0], 0)
print("well")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "well\n", done.stdout + done.stderr
