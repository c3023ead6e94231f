"""Products by x86's matrix unit: its instructions here, or functions that do what they do."""

import ctypes
import re

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax import numpy as jnp
from nxjax.backends.cpu.engine import KernelCache
from nxjax.errors import LoweringError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import Code, Kernel, pointer
from nxjax.kernels.cpu.matrix_unit import LINE, SIDE, STEPS, accumulate, begin, end
from tests.kernels.cpu import tiles
from tests.kernels.cpu.products import multiply, planned
from tests.kernels.cpu.test_gemm import LAYOUTS, array, check

BF16 = np.dtype(jnp.bfloat16)


@pytest.fixture
def unit(monkeypatch):
    tiles.install(monkeypatch)


# Rows, columns and depth around 16 and 32, whole and ragged; how both operands lie.
SHAPES = (
    ((16, 16, 128), "rows", "rows"),
    ((17, 33, 65), "columns", "strided"),
    ((31, 47, 100), "columns", "columns"),
    ((32, 64, 64), "rows", "columns"),
    ((50, 100, 31), "strided", "rows"),
    ((100, 16, 33), "reversed", "reversed"),
)


@pytest.mark.usefixtures("unit")
@pytest.mark.parametrize(("shape", "left", "right"), SHAPES, ids=[str(s[0]) for s in SHAPES])
@pytest.mark.parametrize(("dtype", "out"), [("int8", "int32"), ("bfloat16", "bfloat16")])
def test_shapes(shape, left, right, dtype, out):
    m, n, k = shape
    rng = np.random.default_rng(m)
    x, y = array(rng, (m, k), dtype, left), array(rng, (k, n), dtype, right)
    assert planned(x, y, out, tiles.NAME).product.tile.is_matrix
    check(x, y, out, tiles.NAME, cut=True)


DTYPES = (
    ("int8", "uint8", "int32", "tile_su"),
    ("uint8", "int8", "int32", "tile_us"),
    ("uint8", "uint8", "int8", "tile_uu"),
    ("int4", "uint8", "float32", "tile_su"),
    ("int8", "int8", "float32", "tile_ss"),
    ("bfloat16", "bfloat16", "float32", "tile_bf16"),
)


@pytest.mark.usefixtures("unit")
@pytest.mark.parametrize(("left", "right", "out", "mode"), DTYPES)
def test_dtypes(left, right, out, mode):
    rng = np.random.default_rng(0)
    x, y = array(rng, (37, 70), left, "rows"), array(rng, (70, 50), right, "rows")
    assert planned(x, y, out, tiles.NAME).product.tile.mode == mode
    check(x, y, out, tiles.NAME)


def test_every_mode_is_tried():
    assert {mode for *_, mode in DTYPES} == set(STEPS)


@pytest.mark.usefixtures("unit")
@pytest.mark.parametrize(("dtype", "out"), [("int8", "int32"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_blocks(dtype, out, layout):
    """Several blocks of depth, of rows and of columns; panels that items make, and those of the whole operand."""
    rng = np.random.default_rng(1)
    depth = 4 * 1100 // np.dtype(dtype).itemsize
    x, y = array(rng, (70, depth), dtype, layout), array(rng, (depth, 161), dtype, LAYOUTS[layout == "rows"])
    for again in (False, True):
        made = planned(x, y, out, tiles.NAME, again=again).product
        assert made.is_cut
        assert made.tile.is_matrix
        check(x, y, out, tiles.NAME, cut=True, again=again)


@pytest.mark.usefixtures("unit")
def test_sums_stay_and_panels_are_made_once():
    """Items make panels only where no other item has the same columns; rows are read as they lie."""
    y = np.zeros((2048, 600), BF16)
    for rows, own in ((70, True), (500, True), (1100, False)):
        made = planned(np.zeros((rows, 2048), BF16), y, "float32", tiles.NAME)
        assert (made.pack is None) == (made.product.own is not None) == own
        assert made.product.blocks.rows >= rows or not own
        assert not made.product.is_cut
        assert not made.product.packed
        assert made.product.items >= 8


@pytest.mark.usefixtures("unit")
def test_batches():
    rng = np.random.default_rng(2)
    for dtype, out in (("int8", "int32"), ("bfloat16", "float32")):
        x, y = array(rng, (2, 3, 20, 40), dtype, "rows"), array(rng, (2, 3, 40, 24), dtype, "columns")
        check(x, y, out, tiles.NAME, cut=True)


@pytest.mark.usefixtures("unit")
def test_bytes_are_the_same_bits_as_without():
    """All products are the largest ones; two of them exceed 16 bits."""
    rng = np.random.default_rng(5)
    x, y = (rng.choice(np.array([-128, 127], np.int8), s) for s in ((20, 515), (515, 36)))
    x[:10], y[:, :18] = -128, -128
    (found,), (wanted,) = (multiply(x, y, "int32", name) for name in (tiles.NAME, "portable"))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.usefixtures("unit")
def test_small_products_are_not_for_it():
    rng = np.random.default_rng(3)
    for m, n, k in ((15, 100, 100), (100, 15, 100), (16, 16, 127), (64, 64, 0)):
        x, y = array(rng, (m, k), "int8", "rows"), array(rng, (k, n), "int8", "rows")
        assert not planned(x, y, "int32", tiles.NAME).product.tile.is_matrix
    x, y = array(rng, (64, 64), "float32", "rows"), array(rng, (64, 64), "float32", "rows")
    assert not planned(x, y, "float32", tiles.NAME).product.tile.is_matrix  # float32 stays float32


@pytest.mark.usefixtures("unit")
def test_numbers_below_the_normal_ones_are_zero_and_others_are_what_they_are():
    x, y = np.zeros((16, 128), BF16), np.zeros((128, 16), BF16)
    x[:6, 0] = 1e-39, 2.0**-100, np.inf, np.nan, 3.0, -2.0
    y[0] = 1.0
    (found,) = multiply(x, y, "float32", tiles.NAME)
    np.testing.assert_array_equal(found[:7, 0], [0.0, 2.0**-100, np.inf, np.nan, 3.0, -2.0, 0.0])
    assert (found.view(np.int32)[6:] == 0).all()


@pytest.mark.usefixtures("unit")
def test_sums_are_rounded_to_the_nearest_halves_to_even():
    """Also where that is infinite, and NaN stays NaN."""
    x, y = np.zeros((16, 128), BF16), np.zeros((128, 16), BF16)
    parts = ((1, 2**-8), (1, 3 * 2**-8), (1, 2**-9), (-1, -3 * 2**-8), (3.38953139e38, 1e36), (np.inf, 1), (np.nan, 1))
    for row, both in enumerate((*parts, (2.0**-126, 2.0**-133), (-(2.0**-127), 0))):
        x[row, :2] = both
    y[:2] = 1
    (sums,), (found,) = (multiply(x, y, out, tiles.NAME) for out in ("float32", "bfloat16"))
    np.testing.assert_array_equal(found.astype(np.float32), sums.astype(BF16).astype(np.float32))
    np.testing.assert_array_equal(found[:4, 0], np.array([1, 1 + 2**-6, 1, -1 - 2**-6], BF16))
    assert found[4, 0] == np.inf


class Step(Code):
    """One step of 16 units of depth: rows, columns and sums of a register each, then where the sums go."""

    def __init__(self, mode):
        self.mode = mode

    @property
    def key(self):
        return f"a step of {self.mode}"

    def emit(self, module, isa):
        f, words, *_ = self.function(module)
        line, (left, right, sums) = f.constant("i64", LINE), (pointer(f, words, n) for n in range(3))
        begin(f, SIDE)
        first = f.constant("i1", False)
        accumulate(f, self.mode, SIDE, f.constant("i64", SIDE), (left, line), (right, LINE), 1, (sums, line), first)
        end(f)
        f.ret()


def registers(mode, rng):
    """Contents of three registers: of all bits, of the extreme ones, and around all edges of bfloat16."""
    for _ in range(20):
        yield rng.integers(0, 256, (3, SIDE * LINE), np.uint8)
    if mode != "tile_bf16":
        yield rng.choice(np.array([0, 127, 128, 255], np.uint8), (3, SIDE * LINE))
        return
    for exponents in ((120, 134), (40, 90), (0, 3), (185, 256), (0, 256)):
        for _ in range(20):
            words = rng.integers(0, 2, (3, SIDE * LINE // 2)) << 15 | rng.integers(0, 128, (3, SIDE * LINE // 2))
            yield (words | rng.integers(*exponents, words.shape) << 7).astype(np.uint16).view(np.uint8)


@pytest.mark.skipif(tiles.emulates(), reason="no matrix unit here")
@pytest.mark.parametrize("mode", STEPS)
def test_functions_do_what_the_instructions_do(monkeypatch, mode):
    """All bits, also of numbers that are none."""
    real = KernelCache(isa.named(tiles.NAME))
    (instruction,) = real.addresses([Step(mode)])
    monkeypatch.setattr(tiles, "emulates", lambda: True)
    tiles.install(monkeypatch)
    (function,) = KernelCache(isa.named(tiles.NAME)).addresses([Step(mode)])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    for given in registers(mode, np.random.default_rng(0)):
        found = [given.copy(), given.copy()]
        for address, xs in zip((instruction, function), found, strict=True):
            words = np.array([x.ctypes.data for x in xs], np.uint64)
            kind(address)(words.ctypes.data, 0, 1, None)
        assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.usefixtures("unit")
@pytest.mark.parametrize("threads", [1, 3])
def test_programs(threads):
    """A layer and its gradients, by several threads: every thread has the unit for itself."""
    rng = np.random.default_rng(4)
    x, w, c = (rng.standard_normal(s, np.float32).astype(BF16) for s in ((160, 96), (96, 200), (200,)))

    def loss(w, c):
        return (jnp.maximum(x @ w + c, 0).astype(jnp.float32) ** 2).sum()

    with nx.config.using(cache_dir="", cpu_isa=tiles.NAME, compile_first=True, num_threads=threads):
        f = nx.jit(nx.grad(loss, (0, 1)))
        assert f.lower(w, c).as_text("tape").count("tile_bf16") >= 2
        found = f(w, c)
        q = np.arange(160 * 96, dtype=np.int64).reshape(160, 96).astype(np.int8)
        product = nx.jit(lambda q: lax.dot_general(q, q, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32))
        exact = product(q)
    with nx.config.using(cache_dir="", cpu_isa="portable", compile_first=True):
        wanted = nx.jit(nx.grad(loss, (0, 1)))(w, c)
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b, np.float32)
        np.testing.assert_allclose(np.asarray(a, np.float32), b, rtol=2**-6, atol=2**-6 * np.abs(b).max())
    np.testing.assert_array_equal(exact, q.astype(np.int32) @ q.astype(np.int32).T)


# A processor that has it, whichever this is.
FEATURES = "+amx-tile,+amx-int8,+amx-bf16,+avx512vnni,-prefer-256-bit"
SAPPHIRE = isa.Isa("sapphire", 512, 32, True, True, False, True, True, "sapphirerapids", FEATURES, tiles=True)


def product(monkeypatch, m, n, k, dtype, out) -> Kernel:
    monkeypatch.setattr(isa, "named", lambda name: SAPPHIRE)
    rng = np.random.default_rng(0)
    return planned(array(rng, (m, k), dtype, "rows"), array(rng, (k, n), dtype, "rows"), out, "any").product


@pytest.mark.skipif(not isa.named("portable").x86, reason="LLVM for another processor")
@pytest.mark.parametrize(
    ("dtype", "out", "step"), [("int8", "int32", "tdpbssd"), ("bfloat16", "bfloat16", "tdpbf16ps")]
)
@pytest.mark.parametrize("level", [0, 2])
def test_the_code_of_a_processor_that_has_it(monkeypatch, dtype, out, step, level):
    """Four sums in registers, two loads of each operand and nothing from the stack in the innermost loop."""
    kernel = product(monkeypatch, 128, 200, 1000, dtype, out)
    text = KernelCache(SAPPHIRE, level).assembly([kernel])
    assert len(re.findall(r"\bldtilecfg\b", text)) == 1
    assert len(re.findall(r"\btilerelease\b", text)) == len(re.findall(r"\bretq\b", text)) == 1
    blocks = re.split(r"^\.?\w+:.*$", text, flags=re.MULTILINE)
    inner = [b for b in blocks if b.count(f"\t{step}\t") == 4]
    assert len(inner) == 1
    assert inner[0].count("tileloadd") == 4
    assert not re.search("tilestored|tilezero|xmm|ymm|zmm", inner[0])
    assert level == 0 or "(%rsp)" not in inner[0]


def test_code_with_it_is_refused_where_the_system_refused_it(monkeypatch):
    kernel = product(monkeypatch, 32, 32, 64, "int8", "int32")
    monkeypatch.undo()
    with pytest.raises(LoweringError, match="amx-tile"):
        KernelCache(isa.named(isa.possible()[-1])).texts([kernel])
