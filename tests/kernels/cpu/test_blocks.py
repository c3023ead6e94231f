"""Products with matrices of few bits: machine code against meaning, by all means that sum products of bytes."""

from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.cpu.engine import KernelCache
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.block_sums import BlockNumbers
from nxjax.kernels.cpu.blocks import LANES, BlockProduct, BlockRows
from nxjax.kernels.cpu.ir import LlvmModule
from tests.kernels.cpu import tiles
from tests.kernels.cpu.running import ISAS, run

BLOCKS = st.sampled_from([16, 32])


def problem(rng, rows, depth, columns, block, bits, zero, whole, scales, least, once):
    blocks, groups = -(-depth // block), -(-columns // LANES)
    first = BlockRows(rows, depth, block, whole)
    kernel = BlockProduct(rows, columns, blocks, BlockNumbers(block, bits, zero, whole, np.dtype(scales), least), once)
    units = kernel.what.units
    data = rng.integers(0, 256, (groups, blocks, units, LANES, 4)).astype(np.uint8)
    data = data if bits == 4 else data.view(np.int8)
    more = [rng.standard_normal((groups, 1 if once else blocks, LANES)).astype(scales) for _ in range(1 + least)]
    return first, kernel, [data, *more]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("whole", [False, True])
@given(
    rows=st.integers(1, 17), depth=st.integers(1, 100), columns=st.integers(1, 140), block=BLOCKS,
    kind=st.sampled_from([(4, 8), (4, 0), (8, 0)]), scales=st.sampled_from(["float16", "float32"]),
    least=st.booleans(), once=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_products(name, whole, rows, depth, columns, block, kind, scales, least, once, seed):
    rng = np.random.default_rng(seed)
    first, kernel, matrix = problem(rng, rows, depth, columns, block, *kind, whole, scales, least, once)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    ready = run(first, x, name=name, cuts=[rows // 2])
    for got, wanted in zip(ready, first.meaning(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    (y,) = run(kernel, *ready, *matrix, name=name, cuts=[kernel.items // 2])
    (wanted,) = kernel.meaning(*ready, *matrix)
    size = max(1, abs(wanted).max())
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5 * size)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("bits", [4, 8])
def test_the_largest_whole_numbers_do_not_overflow(name, bits):
    """All numbers as large as they may be, with either sign."""
    x = np.tile(np.float32([1, 1, -1, -1]), (2, 16))
    first = BlockRows(2, 64, 32, True)
    kernel = BlockProduct(2, LANES, 2, BlockNumbers(32, bits, 0, True, np.dtype("float32"), False), True)
    ready = run(first, x, name=name)
    assert abs(ready[0]).min() == 127
    scale = np.ones((1, 1, LANES), np.float32)
    for fill in (-1, -128, 127) if bits == 8 else (255,):
        data = np.full((1, 2, kernel.what.units, LANES, 4), fill, np.int64).astype(np.int8 if bits == 8 else np.uint8)
        for rows in (ready[0], abs(ready[0])):
            sums = rows.sum(-1, keepdims=True).astype(np.float32)
            (y,) = run(kernel, rows, ready[1], sums, ready[3], data, scale, name=name)
            np.testing.assert_array_equal(y, kernel.meaning(rows, ready[1], sums, ready[3], data, scale)[0])


@pytest.mark.parametrize("name", ISAS)
def test_a_row_gives_the_same_bits_beside_any_others(name):
    rng = np.random.default_rng(3)
    for whole in (False, True):
        first, kernel, matrix = problem(rng, 7, 96, 24, 32, 4, 8, whole, "float16", True, False)
        x = rng.standard_normal((7, 96)).astype(np.float32)
        (together,) = run(kernel, *run(first, x, name=name), *matrix, name=name)
        one, alone, _ = problem(rng, 1, 96, 24, 32, 4, 8, whole, "float16", True, False)
        for row, y in zip(x, together, strict=True):
            (apart,) = run(alone, *run(one, row[None], name=name), *matrix, name=name)
            assert apart.tobytes() == y[None].tobytes()


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize(("bits", "zero"), [(4, 8), (4, 0), (8, 0)])
@pytest.mark.parametrize("columns", [3, 8, 11, 64, 90])
def test_many_rows_by_the_matrix_unit(block, bits, zero, columns, monkeypatch):
    """They are exact, and have the bits of rows that are computed without it."""
    tiles.install(monkeypatch)
    rng = np.random.default_rng(columns)
    first, kernel, matrix = problem(rng, 45, 70, columns, block, bits, zero, True, "float16", True, columns == 11)
    x = rng.standard_normal((45, 70)).astype(np.float32)
    ready = run(first, x)
    (y,) = run(kernel, *ready, *matrix, name=tiles.NAME, cuts=[kernel.items // 2])
    np.testing.assert_allclose(y, kernel.meaning(*ready, *matrix)[0], rtol=2e-5, atol=2e-4)
    one, alone, _ = problem(rng, 1, 70, columns, block, bits, zero, True, "float16", True, columns == 11)
    for i in (0, 15, 16, 32, 39, 40, 44):
        (row,) = run(alone, *run(one, x[i : i + 1]), *matrix, name=tiles.NAME)
        assert row.tobytes() == y[i : i + 1].tobytes()


@pytest.mark.parametrize("name", ISAS)
def test_what_is_not_finite_makes_its_row_not_finite(name):
    for value in (np.nan, np.inf, -np.inf):
        x = np.ones((2, 40), np.float32)
        x[0, 35] = value
        x[1] = 0
        first, kernel, matrix = problem(np.random.default_rng(0), 2, 40, 8, 32, 4, 8, True, "float32", False, False)
        (y,) = run(kernel, *run(first, x, name=name), *matrix, name=name)
        assert not np.isfinite(y[0]).any() and not y[1].any()


def summed(name, lanes, unsigned):
    """What a processor's instruction for products of four bytes does, in words that every processor knows."""
    word, quads = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    wide = f"<{4 * lanes} x i32>"
    given = word if unsigned else quads
    lines = [f"define {word} @{name}({word} %sum0, {given} %p, {given} %q) {{"]
    for x, y, extended in (("p", "x", "zext" if unsigned else "sext"), ("q", "y", "sext")):
        lines.append(f"%{y}b = bitcast {given} %{x} to {quads}")
        lines.append(f"%{y} = {extended} {quads} %{y}b to {wide}")
    lines.append(f"%z = mul {wide} %x, %y")
    for i in range(4):
        places = ", ".join(f"i32 {4 * j + i}" for j in range(lanes))
        lines.append(f"%part{i} = shufflevector {wide} %z, {wide} poison, <{lanes} x i32> <{places}>")
        lines.append(f"%sum{i + 1} = add {word} %sum{i}, %part{i}")
    return "\n".join([*lines, f"ret {word} %sum4", "}"])


# Means of other processors: the intrinsic, its description, and which features an instruction set then has.
OTHERS = {
    "dots": ("llvm.aarch64.neon.sdot.v4i32.v16i8", summed("instead", 4, False), {"dots": True}),
    "vnni": ("llvm.x86.avx512.vpdpbusd.256", summed("instead", 8, True), {"vnni": True}),
}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("means", OTHERS)
def test_instructions_of_other_processors(means, bits, monkeypatch):
    """The code for them, with the instruction described instead: it gives what the code for this processor gives."""
    symbol, text, features = OTHERS[means]
    base = "avx2" if means == "vnni" else "portable"
    if base not in ISAS:
        pytest.skip("the code has other instructions of x86")
    named = isa.named
    found = replace(named(base), name=means, **features)
    assert found.vnni or found.dots

    def described(engine, kernels):
        module = LlvmModule()
        for kernel in kernels:
            kernel.emit(module, engine.isa)
        kept = [line for line in module.text.splitlines() if not (line.startswith("declare") and symbol in line)]
        assert symbol in module.text or not any(isinstance(k, BlockProduct) for k in kernels)
        return "\n".join([*kept, text]).replace(f"@{symbol}(", "@instead(")

    rng = np.random.default_rng(5)
    first, kernel, matrix = problem(rng, 3, 96, 11, 32, bits, 8 if bits == 4 else 0, True, "float32", True, False)
    ready = run(first, rng.standard_normal((3, 96)).astype(np.float32))
    (wanted,) = run(kernel, *ready, *matrix)
    monkeypatch.setattr(isa, "named", lambda name: found if name == means else named(name))
    monkeypatch.setattr(KernelCache, "texts", described)
    (y,) = run(kernel, *ready, *matrix, name=means)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("cpu", ["sapphirerapids", "alderlake"])
def test_compiles_for_processors_with_vnni(cpu):
    """AVX512-VNNI and AVX-VNNI, on any machine that is an x86."""
    if "avx2" not in ISAS:
        pytest.skip("LLVM for another processor")
    found = replace(isa.named("avx2"), name=cpu, vnni=True)
    for bits in (4, 8):
        _, kernel, _ = problem(np.random.default_rng(0), 5, 64, 8, 32, bits, 0, True, "float16", False, False)
        module = LlvmModule()
        kernel.emit(module, found)
        target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(cpu=cpu, opt=2)
        assert "vpdpbusd" in target.emit_assembly(llvm.parse_assembly(module.text))
