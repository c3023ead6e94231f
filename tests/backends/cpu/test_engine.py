"""Machine code is made once, per process and per machine."""

import ast
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nxjax
import nxjax as nx
from nxjax.backends.cpu import earlier
from nxjax.backends.cpu import engine as engines
from nxjax.backends.cpu.engine import KernelCache, engine
from nxjax.config import config
from nxjax.errors import LoweringError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.probe import PeakFma, StreamCopy
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CallStep, walk
from tests.kernels.cpu.written import Written

FIRST, SECOND, THIRD = StreamCopy(1), StreamCopy(1, False), PeakFma(1, np.dtype(np.float32))


@pytest.fixture
def folder(tmp_path):
    with config.using(cache_dir=str(tmp_path)):
        yield tmp_path


def made():
    return KernelCache(isa.current())


def test_equal_kernels_share_code(folder):
    e = made()
    assert len(set(e.addresses([FIRST, StreamCopy(7), FIRST]))) == 1
    assert e.compilations == 1


def test_what_is_stored_is_not_compiled_again(folder):
    made().addresses([FIRST, SECOND])
    e = made()
    e.addresses([FIRST, SECOND])
    assert e.compilations == 0


def test_kernels_are_found_wherever_they_were_stored(folder):
    first = made()
    first.addresses([FIRST])
    first.addresses([SECOND, FIRST, THIRD])  # in two files
    assert first.compilations == 2
    e = made()
    e.addresses([SECOND, FIRST, THIRD])
    assert e.compilations == 0


def test_the_order_of_a_folders_files_makes_no_other_code(monkeypatch):
    found, listed = engines._emitters.__wrapped__(), os.scandir

    @contextmanager
    def otherwise(folder):
        with listed(folder) as entries:
            yield reversed(list(entries))

    monkeypatch.setattr(os, "scandir", otherwise)
    assert engines._emitters.__wrapped__() == found


def test_damaged_files_are_made_anew(folder):
    made().addresses([FIRST])
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    e = made()
    assert e.addresses([FIRST])[0]
    assert e.compilations == 1


def test_instruction_sets_do_not_share_code(folder):
    if isa.current().name == "portable":
        pytest.skip("this machine has one instruction set")
    made().addresses([FIRST])
    e = KernelCache(isa.named("portable"))
    e.addresses([FIRST])
    assert e.compilations == 1


def test_text_that_is_no_code_is_refused():
    with pytest.raises(LoweringError, match="LLVM refused"):
        engine(isa.current()).module("define void @f() { nonsense }", ["f"])


@pytest.mark.unguarded  # guarded code is written anew
def test_a_second_process_compiles_nothing(tmp_path):
    code = (
        "import numpy as np, nxjax as nx\n"
        "f = nx.jit(lambda x: nx.numpy.tanh(x).sum() + (x @ x).max())\n"
        "f(np.ones((8, 8), np.float32))\n"
        "from nxjax.backends.cpu.engine import engine\n"
        "from nxjax.kernels.cpu import isa\n"
        "print(engine(isa.current()).compilations)\n"
    )
    env = {**os.environ, "NXJAX_CACHE_DIR": str(tmp_path), "NXJAX_EXECUTOR": "cpu"}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True) for _ in range(2)]
    assert all(r.returncode == 0 for r in runs), runs[0].stderr + runs[1].stderr
    assert int(runs[1].stdout) == 0


def test_what_llvm_would_end_the_process_for_is_an_error():
    e = made()
    wrong = "define float @f(i32 %a0) {\n  ret i32 %a0\n}"
    gather = "<4 x i32> @llvm.masked.gather.v4i32.v4p0(<4 x ptr>"
    undeclared = (
        f"define <4 x i32> @f(<4 x ptr> %p) {{\n  %v = call {gather} %p)\n  ret <4 x i32> %v\n}}\ndeclare {gather})"
    )
    for text in ("no such text", wrong, undeclared):
        with pytest.raises(LoweringError, match="LLVM refused"):
            e.module(text, ["f"])


def test_instructions_that_the_processor_has_not_are_refused():
    def body(f, isa, words, scratch, index):
        wide = f.load("<16 x i32>", pointer(f, words, 0), 4)
        f.store(f.intrinsic("x86.avx512.vpdpbusd.512", wide.type, wide, wide, wide), pointer(f, words, 1), 4)

    with pytest.raises(LoweringError, match="avx512vnni"):
        KernelCache(isa.named("portable")).addresses([Written(body, lambda x: [x])])


def imported(path, root):
    """The modules of nxjax that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [f"{node.module}.{a.name}" for a in node.names] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            for module in (name, name.rpartition(".")[0]):
                place = root.parent / module.replace(".", "/")
                found |= {p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()}
    return found


def test_the_key_of_code_names_all_sources_that_may_write_it():
    root = Path(nxjax.__file__).parent
    known = {p for name in engines.WRITERS for p in (root / name).rglob("*.py")}
    # The settings that code depends on are in kernels' keys, and these classes and texts are in no code.
    harmless = {root / "errors.py", root / "__init__.py"}
    harmless |= {p for folder in ("config", "display") for p in (root / folder).glob("*.py")}
    seen = reached(list((root / "kernels/cpu").glob("*.py")), root, harmless)
    assert root / "ops/special.py" in seen and not seen - known


def reached(todo, root, harmless):
    """The modules of nxjax that files need, themselves too."""
    seen = set()
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += imported(path, root) - harmless
    return seen


def test_records_are_good_for_all_sources_that_lower_and_write():
    root = Path(nxjax.__file__).parent
    known = {Path(e.path) for e in earlier.sources(earlier._ROOMS, earlier._FILES)}
    # What stands above is told of programs, and changes none.
    others = {p for p in root.rglob("*.py") if p.relative_to(root).parts[0] not in ("kernels", "lower", "ops", "trace")}
    seen = reached([*(root / "lower/cpu").rglob("*.py"), *(root / "backends/cpu").rglob("*.py")], root, others)
    assert root / "lower/reproducible.py" in seen and not seen - known


@pytest.mark.parametrize("changed", ["kernels/cpu/exp.py", "ops/special.py", "ops/fixed/point.py", "trace/dtypes.py"])
def test_another_source_is_another_key(changed, tmp_path, monkeypatch):
    for name in (
        "kernels/cpu/__init__.py",
        "kernels/cpu/exp.py",
        "ops/special.py",
        "ops/fixed/point.py",
        "trace/dtypes.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("X = 1.5\n")
    monkeypatch.setattr(earlier, "ROOT", str(tmp_path))
    key = engines._emitters.__wrapped__
    before = key()
    (tmp_path / changed).write_text("X = 2.5\n")
    assert key() != before
    (tmp_path / changed).write_text("X = 1.5\n")
    assert key() == before


def families():
    """Functions and arguments whose kernels differ in one thing from one another."""
    rng = np.random.default_rng(0)
    made = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    ends = (
        lambda y, row, column, one: y,
        lambda y, row, column, one: y + row,
        lambda y, row, column, one: y + column,
        lambda y, row, column, one: y + one,
        lambda y, row, column, one: y * row + column,
        lambda y, row, column, one: y * column + row,
        lambda y, row, column, one: nx.nn.relu(y + column),
        lambda y, row, column, one: (y + row).astype(nx.bfloat16),
    )
    for m, k, n in ((1, 48, 32), (3, 48, 32), (40, 48, 64), (40, 48, 1), (130, 70, 90)):
        for dtype in (np.float32, nx.bfloat16, np.int8):
            xs = [nx.asarray(v).astype(dtype) for v in (made(m, k), made(k, n), made(n), made(m, 1), made(1))]
            for end in ends if dtype is not np.int8 else ends[:6]:
                yield lambda x, w, *more, end=end: end(x @ w, *more), xs
                yield lambda x, w, *more, end=end: end(x.T.reshape(x.shape) @ w.T.reshape(w.shape), *more), xs
    x, w = made(2, 9, 9, 8), made(3, 3, 8, 16)
    for stride in (1, 2):
        for dilation in (1, 2):
            for padding in ("SAME", "VALID"):
                for size in (1, 3):
                    for groups in (1, 4, 8):
                        numbers = ("NHWC", "HWIO", "NHWC")
                        yield (
                            lambda x, w, b, s=stride, d=dilation, p=padding, g=groups, n=numbers: (
                                nx.lax.conv_general_dilated(
                                    x, w, (s, s), p, rhs_dilation=(d, d), dimension_numbers=n, feature_group_count=g
                                )
                                + b
                            ),
                            [x, w[:size, :size, : 8 // groups], made(16)],
                        )
            for how, start in ((nx.lax.max, -np.inf), (nx.lax.min, np.inf), (nx.lax.add, 0.0)):
                window = lambda x, h=how, i=start, s=stride, d=dilation: nx.lax.reduce_window(
                    x, i, h, (1, 3, 3, 1), (1, s, s, 1), "SAME", window_dilation=(1, d, d, 1)
                )
                yield window, [x]
    for stride in (1, 2):
        for size in (1, 3):
            for channels in (3, 16):  # not side by side
                images, filters = made(2, channels, 12, 12), made(16, channels, size, size)
                for x in (images, images[..., :10]):
                    yield lambda x, w, s=stride: nx.lax.conv(x, w, (s, s), "VALID"), [x, filters]
                    turned = lambda x, w, s=stride: nx.lax.conv(x.transpose(0, 3, 1, 2), w, (s, s), "VALID")
                    yield turned, [x.transpose(0, 2, 3, 1).copy(), filters]
    y, at = made(40, 33), rng.integers(-50, 50, (40, 1)).astype(np.int32)
    for axis in (0, 1):
        for reverse in (False, True):
            for running in (nx.lax.cumsum, nx.lax.cummax, nx.lax.cummin, nx.lax.cumprod, nx.lax.cumlogsumexp):
                yield lambda x, f=running, a=axis, r=reverse: f(x, a, reverse=r), [y]
            yield lambda x, a=axis, r=reverse: nx.sort(x, a, descending=r), [y]
            yield lambda x, a=axis, r=reverse: nx.argsort(x, a, descending=r), [y]
        yield lambda x, a=axis: nx.lax.top_k(x, 5, axis=a), [y]
    for mode in ("clip", "fill", "wrap"):
        for fill in (0.0, -0.0, 1.0) if mode == "fill" else (None,):
            yield lambda x, i, m=mode, v=fill: nx.take(x, i[:, 0], axis=0, mode=m, fill_value=v), [y, at]
            yield lambda x, i, m=mode, v=fill: nx.take(x, i[:, 0], axis=1, mode=m, fill_value=v), [y, at]
        for way in ("set", "add", "multiply", "min", "max"):
            if mode != "wrap":
                yield lambda x, i, u, m=mode, w=way: getattr(x.at[i[:, 0]], w)(u, mode=m.replace("fill", "drop")), [
                    y, at, y,
                ]  # fmt: skip


def test_kernels_of_one_key_have_one_code():
    """A key that leaves out what code depends on would give one program the code of another."""
    kernels = {}
    for function, args in families():
        hoisted, _ = nxjax.make_jaxpr(function)(*args).hoist_consts()
        for step in walk(lower(hoisted).steps):
            if isinstance(step, CallStep):
                kernels.setdefault(step.kernel.key, {})[id(step.kernel)] = step.kernel
    texts = engine(isa.current()).texts
    for key, found in kernels.items():
        if len(found) > 1:
            assert len({texts([k]) for k in found.values()}) == 1, key
    assert len(kernels) > 100
