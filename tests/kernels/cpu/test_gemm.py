import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.cpu.engine import KernelCache
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.epilogue import Epilogue, Operand
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.ops.arithmetic import add, max
from nxjax.trace import dtypes
from tests.kernels.cpu import others
from tests.kernels.cpu.products import multiply, planned
from tests.kernels.cpu.running import ISAS

LAYOUTS = ("rows", "columns", "strided", "reversed")
# Operands and result: float accumulation, exact integers, wrapping integers.
DTYPES = (
    ("float32", "float32"),
    ("float64", "float64"),
    ("bfloat16", "bfloat16"),
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("float8_e4m3fn", "float32"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int8", "int8"),
    ("int8", "float32"),
    ("int16", "int32"),
    ("int32", "int32"),
    ("uint32", "uint32"),
    ("int64", "int64"),
    ("int32", "float32"),
    ("int4", "int32"),
)


def array(rng, shape, dtype, layout):
    dtype = np.dtype(dtype)
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        x = rng.integers(int(info.min), int(info.max), shape, np.int64 if dtype != np.uint64 else np.uint64)
    else:
        x = rng.standard_normal(shape)
    x = x.astype(dtype)
    if layout == "columns":
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(x, -1, -2)), -1, -2)
    if layout == "strided":
        room = np.zeros((*shape[:-2], 2 * shape[-2] + 1, 3 * shape[-1] + 1), dtype)[..., ::2, ::3]
        room = room[..., : shape[-2], : shape[-1]]
        room[...] = x
        return room
    if layout == "reversed":
        return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
    return np.ascontiguousarray(x)


def check(x, y, out, name, **options):
    (found,) = multiply(x, y, out, name, **options)
    out = np.dtype(out)
    if x.dtype in dtypes.INTEGER and out in dtypes.INTEGER:
        np.testing.assert_array_equal(found, np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(out))
        return
    wanted = np.matmul(x.astype(np.float64), y.astype(np.float64))
    scale = np.matmul(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64)) + 1e-30
    step = max_error(x.dtype, out)
    assert (np.abs(found.astype(np.float64) - wanted) <= step * scale).all()


def max_error(dtype, out):
    work = np.float64 if out == np.float64 or dtype in dtypes.INTEGER else np.float32
    rounding = {"bfloat16": 2**-8, "float16": 2**-10}.get(out.name, 0)
    return 16 * float(np.finfo(work).eps) + rounding + (2**-23 if out == np.float32 else 0)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("dtype", "out"), DTYPES)
def test_dtypes(name, dtype, out):
    rng = np.random.default_rng(0)
    for (m, n, k), layouts in zip(
        ((33, 50, 70), (1, 1, 1), (5, 130, 9), (70, 7, 500)), itertools.product(LAYOUTS[:2], LAYOUTS[:2]), strict=True
    ):
        x, y = array(rng, (m, k), dtype, layouts[0]), array(rng, (k, n), dtype, layouts[1])
        check(x, y, out, name)


@pytest.mark.parametrize("name", ISAS)
@given(
    sizes=st.tuples(st.integers(1, 80), st.integers(1, 140), st.integers(0, 90)),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    batch=st.sampled_from([(), (3,), (2, 3)]),
    dtype=st.sampled_from(["float32", "int8"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_shapes(name, sizes, layouts, batch, dtype, seed):
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    x, y = array(rng, (*batch, m, k), dtype, layouts[0]), array(rng, (*batch, k, n), dtype, layouts[1])
    check(x, y, "int32" if dtype == "int8" else dtype, name, cut=True)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("sizes", [(300, 600, 900), (64, 64, 1500), (129, 1030, 385), (700, 20, 800)])
def test_blocks(name, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(1)
    for dtype, out in (("float32", "float32"), ("float32", "bfloat16"), ("int8", "int32")):
        x, y = array(rng, (m, k), dtype, "rows"), array(rng, (k, n), dtype, "rows")
        made = planned(x, y, out, name).product
        assert made.items > 1 or made.turns > 1 or dtype == "int8"
        check(x, y, out, name, cut=True)


@pytest.mark.parametrize("name", ISAS)
def test_nothing_to_sum_is_zero(name):
    x, y = np.zeros((20, 0), np.float32), np.zeros((0, 33), np.float32)
    (found,) = multiply(x, y, "float32", name)
    np.testing.assert_array_equal(found, np.zeros((20, 33)))


@pytest.mark.parametrize("name", ISAS)
def test_bytes_do_not_saturate(name):
    """Every pair of extreme bytes, whose products overflow 16 bits when two are added."""
    extremes = {"int8": (-128, -127, 127), "uint8": (255, 254, 0)}
    rng = np.random.default_rng(2)
    for left, right in itertools.product(extremes, extremes):
        for k in (2, 3, 4, 7, 64):
            x = rng.choice(extremes[left], (25, k)).astype(left)
            y = rng.choice(extremes[right], (k, 400 // 4)).astype(right)
            (found,) = multiply(x, y, "int32", name)
            np.testing.assert_array_equal(found, x.astype(np.int32) @ y.astype(np.int32))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("k", [30, 900])
def test_epilogue(name, k):
    """Bias of columns, bias of rows, a residual, two results."""
    rng = np.random.default_rng(3)
    f32 = np.dtype("float32")
    m, n = 37, 90
    x, y = array(rng, (m, k), f32, "rows"), array(rng, (k, n), f32, "rows")
    column, row, rest = (array(rng, s, f32, "rows") for s in ((1, n), (m, 1), (m, n)))
    nodes = (
        ExpressionNode(add, (), (0, 1), f32),
        ExpressionNode(add, (), (4, 2), f32),
        ExpressionNode(max, (), (5, 3), f32),
    )
    expression = Expression((f32,) * 4, nodes, (6, 4))
    end = Epilogue(f32, expression, (Operand(f32, True), Operand(f32, False), Operand(f32, True)))
    spread = [np.broadcast_to(v, (m, n)) for v in (column, row, rest)]
    found = multiply(x, y, f32, name, end=end, operands=spread, cut=True)
    first = np.matmul(x.astype(np.float64), y) + column
    np.testing.assert_allclose(found[1], first, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[0], np.maximum(first + row, rest), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ISAS)
def test_any_cut_gives_the_same_bits(name):
    rng = np.random.default_rng(4)
    x, y = array(rng, (300, 700), "float32", "rows"), array(rng, (700, 300), "float32", "columns")
    whole, parts = multiply(x, y, "float32", name)[0], multiply(x, y, "float32", name, cut=True)[0]
    assert whole.tobytes() == parts.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    ("dtype", "out", "shape", "layout"),
    [
        ("float32", "float32", (150, 700, 413), "rows"),
        ("float32", "float32", (70, 300, 413), "columns"),
        ("float32", "float32", (70, 300, 413), "strided"),
        ("float64", "float64", (70, 390, 401), "rows"),
        ("bfloat16", "bfloat16", (70, 391, 413), "rows"),
        ("int8", "int32", (70, 1601, 413), "columns"),
        ("int8", "int32", (70, 1602, 416), "rows"),
        ("int8", "float32", (70, 1601, 400), "strided"),
    ],
)
def test_panels_that_items_make_give_the_same_bits(name, dtype, out, shape, layout):
    rng = np.random.default_rng(6)
    m, k, n = shape
    x, y = array(rng, (m, k), dtype, "rows"), array(rng, (k, n), dtype, layout)
    assert planned(x, y, out, name).product.own is not None
    (apart,) = multiply(x, y, out, name, again=True)
    for cut in (False, True):
        (found,) = multiply(x, y, out, name, cut=cut)
        assert found.tobytes() == apart.tobytes()


@pytest.mark.parametrize("name", ISAS)
def test_units_of_bytes_whose_depths_lie_apart_have_room(name):
    """A tile of eight rows, over a whole block of depth."""
    rng = np.random.default_rng(8)
    for n in (4, 8, 16):
        x, y = array(rng, (8, 1536), "int8", "columns"), array(rng, (1536, n), "int8", "rows")
        check(x, y, "int32", name)


def test_code_is_shared():
    """Sizes are no part of the machine code, but for how rows and columns end."""
    rng = np.random.default_rng(5)
    keys = set()
    for m, n, k in ((32, 192, 64), (32, 384, 100), (16, 576, 300)):  # whole tiles of every instruction set
        x, y = array(rng, (m, k), "float32", "rows"), array(rng, (k, n), "float32", "rows")
        keys.add(planned(x, y, "float32", ISAS[0]).product.key)
    assert len(keys) == 1


def test_constant_operands_are_packed():
    x, y = np.ones((64, 512), np.float32), np.ones((512, 512), np.float32)
    assert planned(x, y, "float32", ISAS[0], constant=True).pack is not None


@pytest.fixture
def other(monkeypatch):
    """Another instruction set, whichever processor this is."""
    return lambda name: others.install(monkeypatch, name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shape", "left"), [*zip([(33, 70, 50), (1, 1, 1), (7, 501, 18), (9, 1601, 413)], LAYOUTS, strict=True)]
)
@pytest.mark.parametrize(("name", "mode"), [("dots", "dots"), ("AVX-VNNI", "quads")])
def test_products_of_signed_bytes_by_one_instruction(other, name, mode, shape, left, layout):
    m, k, n = shape
    rng = np.random.default_rng(7)
    x, y = array(rng, (m, k), "int8", left), array(rng, (k, n), "int8", layout)
    other(name)
    assert planned(x, y, "int32", name).product.tile.mode == mode
    check(x, y, "int32", name, cut=True)
    check(x, y, "int32", name, constant=True)


def test_products_of_unsigned_bytes_by_one_instruction(other):
    rng = np.random.default_rng(8)
    x, y = array(rng, (33, 70), "uint8", "rows"), array(rng, (70, 50), "int8", "rows")
    check(x, y, "int32", other("AVX-VNNI"))


@pytest.mark.parametrize(("left", "mode"), [("rows", "bf16"), ("columns", "fma")])
@pytest.mark.parametrize("shape", [(33, 71, 50), (1, 1, 1), (9, 801, 130)])
def test_products_of_bfloat16_by_one_instruction(other, shape, left, mode):
    m, k, n = shape
    rng = np.random.default_rng(9)
    other("AVX512-BF16")
    for layout, out in zip(LAYOUTS[:3], ("bfloat16", "float32", "float32"), strict=True):
        x, y = array(rng, (m, k), "bfloat16", left), array(rng, (k, n), "bfloat16", layout)
        assert k == 1 or planned(x, y, out, "AVX512-BF16").product.tile.mode == mode
        check(x, y, out, "AVX512-BF16", cut=True)


@pytest.mark.skipif(not isa.named("portable").x86, reason="LLVM for another processor")
@pytest.mark.parametrize(
    ("cpu", "dtype", "step", "changes"),
    [
        ("alderlake", "int8", "vpdpbusd", {"bits": 256, "vnni": True, "features": "+avxvnni"}),
        ("alderlake", "uint8", "vpdpwssd", {"bits": 256, "vnni": True, "features": "+avxvnni"}),
        (
            "cooperlake",
            "bfloat16",
            "vdpbf16ps",
            {"bits": 512, "registers": 32, "bf16": True, "features": "+avx512bf16"},
        ),
    ],
)
def test_compiles_for_other_processors(monkeypatch, cpu, dtype, step, changes):
    found = replace(isa.named("portable"), name=cpu, cpu=cpu, **changes)
    rng = np.random.default_rng(0)
    x, y = array(rng, (32, 64), dtype, "rows"), array(rng, (64, 64), dtype, "rows")
    monkeypatch.setattr(isa, "named", lambda name: found)
    text = KernelCache(found).assembly([planned(x, y, "float32" if dtype == "bfloat16" else "int32", cpu).product])
    assert step in text
