"""Running codelets on the host: copies, launches, the library cache, compiler faults, threads, stochastic rounding."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax import config
from nxjax.errors import ExecutionError, KernelError
from nxjax.kernels.ipu import host, host_compiler
from nxjax.kernels.ipu.expression import CodeletNode, codelet
from nxjax.kernels.ipu.host import Library, MeaningLibrary, Strided, VertexBoxes, available, runner
from nxjax.kernels.ipu.spec import Attribute, Codelet, Field

F32, F16 = np.dtype("float32"), np.dtype("float16")
RNG = np.random.default_rng(3)


def cast(to=F16, source=F32):
    return codelet([source], ["full"], [CodeletNode("convert_element_type", (0,), to, {"dtype": to})], [1], [to], 1)


def halves(library, x, count=1):
    c, attributes = cast()
    y = np.zeros(x.size, np.float16)
    each = x.size // count
    offsets = np.arange(count) * each
    places = {
        "x0": VertexBoxes(x.reshape(-1), offsets, (each,), (1,)),
        "y0": VertexBoxes(y, offsets, (each,), (1,)),
    }
    return library.prepare(c, count, places, attributes), y


class Broken(Codelet):
    """A codelet whose source is given."""

    def __init__(self, name, source):
        self._name, self._source = name, source

    name = property(lambda self: self._name)
    source = property(lambda self: self._source)
    fields = property(lambda self: (Field("y", "out", "float32"),))
    attributes = property(lambda self: (Attribute("n", "unsigned"),))

    def meaning(self, arrays, attributes):
        return {"y": arrays["y"]}

    def cycles(self, sizes, attributes, chip):
        return 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(host_compiler, "_loaded", {})
    with config.using(cache_dir=str(tmp_path)):
        yield tmp_path


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_copies(data):
    """Any strided view to any other: slices, transposes, reversals, repeated elements."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=5)))
    dtype = data.draw(st.sampled_from([np.uint8, np.bool_, np.float16, np.int32, np.float32]))

    def laid(repeats):
        order = data.draw(st.permutations(range(len(shape))))
        strides, step = [0] * len(shape), data.draw(st.integers(1, 2))
        offset = 0
        for d in order:
            sign = data.draw(st.sampled_from([1, -1]))
            strides[d] = sign * step
            offset += 0 if sign > 0 else (shape[d] - 1) * step
            if repeats and data.draw(st.booleans()):
                offset -= 0 if sign > 0 else (shape[d] - 1) * step
                strides[d] = 0
            step *= shape[d] + data.draw(st.integers(0, 1))
        return offset, tuple(strides), step + 4

    so, ss, sn = laid(True)
    to, ts, tn = laid(False)
    source = RNG.integers(0, 2 if dtype is np.bool_ else 200, sn).astype(dtype)
    targets = [np.zeros(tn, dtype) for _ in range(2)]
    for library, target in zip((Library([]), MeaningLibrary()), targets, strict=True):
        library.copies([(Strided(source, so, shape, ss), Strided(target, to, shape, ts))])()
    np.testing.assert_array_equal(targets[0], targets[1])
    want = np.zeros(tn, dtype)
    for index in np.ndindex(*shape):
        want[to + sum(i * s for i, s in zip(index, ts, strict=True))] = source[
            so + sum(i * s for i, s in zip(index, ss, strict=True))
        ]
    np.testing.assert_array_equal(targets[0], want)


def test_large_transposes_and_many_pairs():
    x = RNG.normal(size=(70, 45)).astype(np.float32)
    y, z = np.zeros(70 * 45, np.float32), np.zeros(4, np.float32)
    pairs = [
        (Strided(x.reshape(-1), 0, (45, 70), (1, 45)), Strided(y, 0, (45, 70), (70, 1))),
        (Strided(x.reshape(-1), 3, (4,), (45,)), Strided(z, 0, (4,), (1,))),
        (Strided(x.reshape(-1), 0, (0, 3), (1, 1)), Strided(z, 0, (0, 3), (3, 1))),
    ]
    Library([]).copies(pairs)()
    np.testing.assert_array_equal(y.reshape(45, 70), x.T)
    np.testing.assert_array_equal(z, x[:4, 3])
    Library([]).copies([])()


def test_attributes_differ_per_vertex():
    from nxjax.kernels.ipu.take import Take

    table, index = np.arange(12, dtype=np.int32), np.array([1, 2], np.int32)
    y = np.zeros(3, np.int32)
    places = {
        "table": VertexBoxes(table, np.array([0, 4, 8]), (1, 4, 1), (4, 1, 1)),
        "index": VertexBoxes(index, np.array([0, 1, 0]), (1, 1), (1, 1)),
        "y": VertexBoxes(y, np.arange(3), (1, 1, 1), (1, 1, 1)),
    }
    attributes = {"groups": 1, "rows": 4, "first": np.array([0, 1, -2])}
    for library in (Library([Take("int32")]), MeaningLibrary()):
        library.prepare(Take("int32"), 3, places, attributes)()
        assert y.tolist() == [1, 5, 11]
        y[:] = 0


def test_libraries_are_kept_by_content(folder, monkeypatch):
    c, _ = cast()
    Library([c])
    kept = sorted(folder.rglob("*.so"))
    assert kept and not list(folder.rglob("*.part"))
    monkeypatch.setattr(host_compiler, "_loaded", {})
    monkeypatch.setattr(host_compiler, "_compile", lambda *a: pytest.fail("compiled again"))
    x = np.array([1.0, 2.5], np.float32)
    launch, y = halves(Library([c]), x)
    launch()
    assert y.tolist() == [1.0, 2.5]


def test_what_was_checked_is_what_is_loaded(folder, monkeypatch):
    """Not what lies at its place by then: where a group of users shares a folder on the way, another may swap it."""
    c, _ = cast()
    Library([c])
    monkeypatch.setattr(host_compiler, "_loaded", {})
    monkeypatch.setattr(host_compiler, "_compile", lambda *a: pytest.fail("compiled again"))
    load = host_compiler.user_cache.load

    def swapped(name):
        data = load(name)
        (folder / name).unlink()
        (folder / name).write_bytes(b"another's")
        return data

    monkeypatch.setattr(host_compiler.user_cache, "load", swapped)
    launch, y = halves(Library([c]), np.array([6.0], np.float32))
    launch()
    assert y.tolist() == [6.0]


def test_damaged_libraries_are_built_again(folder, monkeypatch):
    c, _ = cast()
    Library([c])
    monkeypatch.setattr(host_compiler, "_loaded", {})
    for path in folder.rglob("*.so"):
        # A new file: the old one is mapped into this process.
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1])
    launch, y = halves(Library([c]), np.array([3.0], np.float32))
    launch()
    assert y.tolist() == [3.0]


def test_libraries_that_are_not_kept(folder):
    with config.using(cache_bytes=1):
        launch, y = halves(Library([cast()[0]]), np.array([5.0], np.float32))
    launch()
    assert y.tolist() == [5.0] and not list(folder.rglob("*.so"))


def test_no_cache_folder(monkeypatch):
    monkeypatch.setattr(host_compiler, "_loaded", {})
    with config.using(cache_dir=""):
        launch, y = halves(Library([cast()[0]]), np.array([4.0], np.float32))
        launch()
        assert y.tolist() == [4.0]


def test_a_refused_source_names_the_compilers_message(folder):
    bad = Broken("nx::Bad", "namespace nx { class Bad { int compute( }; }")
    with pytest.raises(KernelError, match=r"refuses a codelet[\s\S]*error:"):
        Library([bad])


def test_without_a_compiler(folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    ok, reason = available()
    assert not ok and "no-such-compiler" in reason
    assert isinstance(runner([cast()[0]]), MeaningLibrary)
    with pytest.raises(ExecutionError, match="no C\\+\\+ compiler"):
        Library([cast()[0]])
    launch, y = halves(runner([]), np.array([1.5], np.float32))
    launch()
    assert y.tolist() == [1.5]


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(host, "WORTH_A_THREAD", 0.0)
    x = RNG.normal(size=60_000).astype(np.float32)
    found = []
    for stochastic in (False, True):
        for threads in (1, 3):
            launch, y = halves(Library([cast()[0]], stochastic=stochastic, threads=threads), x, 1000)
            runs = []
            for _ in range(3):
                launch()
                runs.append(y.copy())
            found.append(runs)
    for a, b in ((0, 1), (2, 3)):
        for x, y in zip(found[a], found[b], strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("flags", [(), ("-DNX_SOFT_HALF",)], ids=["_Float16", "integers"])
def test_halves(monkeypatch, flags):
    """Every half and the floats between halves, with the compiler's own type and without it."""
    monkeypatch.setattr(host_compiler, "FLAGS", (*host_compiler.FLAGS, *flags))
    with np.errstate(all="ignore"):
        every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
        up, down = np.nextafter(every, np.float32(np.inf)), np.nextafter(every, np.float32(-np.inf))
        middle = (every + np.sort(np.roll(every, 1))) / 2
        x = np.concatenate([every, up, down, middle, RNG.normal(size=1000).astype(np.float32) * 3e-7, [65519.9, 65520]])
        x = x.astype(np.float32)
        launch, y = halves(Library([cast()[0]]), x)
        launch()
        np.testing.assert_array_equal(y, x.astype(np.float16))
    c, attributes = cast(F32, F16)
    back = np.zeros(2**16, np.float32)
    place = lambda m: VertexBoxes(m, np.zeros(1, np.int64), (2**16,), (1,))
    Library([c]).prepare(c, 1, {"x0": place(every.astype(np.float16)), "y0": place(back)}, attributes)()
    np.testing.assert_array_equal(back, every)


# --- stochastic rounding ---


def test_stochastic_rounding_is_unbiased():
    library = Library([cast()[0]], stochastic=True)
    n = 100_000
    for value in (1.0002, -3.3, 1000.3, 6.1e-5, 3e-6, 2.1e-8, 65503.0):
        launch, y = halves(library, np.full(n, value, np.float32))
        launch()
        below, above = sorted(set(y.tolist()))
        assert below <= value <= above and np.nextafter(np.float16(below), np.float16(np.inf)) == above
        share = (value - below) / (above - below)
        sigma = np.sqrt(share * (1 - share) / n)
        assert abs(np.mean(y == above) - share) < 5 * sigma


def test_stochastic_rounding_keeps_what_halves_hold():
    with np.errstate(all="ignore"):
        every = np.arange(2**16, dtype=np.uint16).view(np.float16)
        x = every.astype(np.float32)
    launch, y = halves(Library([cast()[0]], stochastic=True), x)
    launch()
    np.testing.assert_array_equal(y, every)
    launch, y = halves(Library([cast()[0]], stochastic=True), np.array([1e6, -1e6, 65519.9], np.float32))
    launch()
    assert y[:2].tolist() == [np.inf, -np.inf] and y[2] in (65504, np.inf)


def test_stochastic_rounding_from_a_seed():
    x = RNG.normal(size=500).astype(np.float32)

    def drawn(seed):
        library = Library([cast()[0]], stochastic=True, seed=seed)
        launch, y = halves(library, x)
        runs = []
        for _ in range(2):
            launch()
            runs.append(y.copy())
        library.reset()
        launch()
        return [*runs, y.copy()]

    one, two = drawn(1), drawn(2)
    assert (one[0] != one[1]).any() and (one[0] != two[0]).any()
    np.testing.assert_array_equal(one[0], one[2])


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads the process's maps")
def test_launches_keep_their_memory_alive():
    import gc

    c, attributes = cast()
    library = Library([c])
    x = np.full(1000, 7.0, np.float32)
    launch, y = halves(library, x)
    del x, c, attributes
    gc.collect()
    np.full(100_000, 1.0, np.float32)
    launch()
    assert (y == 7).all()


def test_speed_of_small_vertices():
    """A launch of 1,472 vertices of a few elements: microseconds, not milliseconds."""
    import time

    c, attributes = codelet([F32] * 2, ["full"] * 2, [CodeletNode("add", (0, 1), F32, {})], [2], [F32], 1)
    n = 1472
    x, y = np.ones(n * 16, np.float32), np.zeros(n * 16, np.float32)
    place = lambda m: VertexBoxes(m, np.arange(n) * 16, (16,), (1,))
    launch = Library([c]).prepare(c, n, {"x0": place(x), "x1": place(x), "y0": place(y)}, attributes)
    launch()
    best = min(_timed(launch, time) for _ in range(20))
    assert best < 1e-3 and (y == 2).all()


def _timed(launch, time):
    start = time.perf_counter()
    launch()
    return time.perf_counter() - start
