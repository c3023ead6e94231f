import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.epilogue import plain
from nxjax.kernels.cpu.gemm import BatchAxis, mode_of
from nxjax.kernels.cpu.gemm_plan import Matrix, blocks_for, plan, sums_of, tile_for
from nxjax.kernels.cpu.gemm_tile import GemmTile
from nxjax.trace import dtypes
from tests.kernels.cpu.products import multiply, planned
from tests.kernels.cpu.running import ISAS

F32, I16, I8, I32 = (np.dtype(d) for d in ("float32", "int16", "int8", "int32"))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    ("mode", "scalar"), [("fma", "float"), ("fma", "double"), ("mul", "i32"), ("pairs", "i32"), ("dots", "i32")]
)
def test_tiles_fit_into_registers_and_rows(name, mode, scalar):
    i = isa.named(name)
    for rows in (1, 2, 3, 5, 7, 64, 1000):
        for columns in (1, 5, 17, 33, 1000):
            t = tile_for(i, mode, scalar, rows, columns)
            assert 1 <= t.rows <= rows
            assert t.rows * t.vectors + t.vectors + 1 <= i.registers
            assert (t.vectors - 1) * t.lanes < columns


def test_blocks_cover_everything_in_enough_items():
    i = isa.named(ISAS[0])
    for rows, columns, units in ((64, 64, 64), (1000, 777, 900), (8, 4096, 512), (4096, 8, 512)):
        t = tile_for(i, "fma", "float", rows, columns)
        b = blocks_for(t, rows, columns, units, 1)
        assert b.rows % t.rows == b.columns % t.columns == 0
        items = -(-rows // b.rows) * -(-columns // b.columns)
        assert items >= min(8, rows * columns * units >> 21)


def test_items_of_many_columns_make_each_panel_once():
    for rows, columns, depth in ((2040, 2048, 1024), (1024, 2048, 512), (700, 4096, 1024)):
        t = GemmTile("fma", "float", 6, 4, 16)
        b = blocks_for(t, rows, columns, depth, 1, own=True)
        assert b.rows >= rows
        assert -(-columns // b.columns) >= 8


def test_items_of_small_products_have_rows_enough_for_their_panels():
    for rows, columns, depth in ((65, 384, 96), (64, 128, 128), (130, 96, 384)):
        t = tile_for(isa.named(ISAS[0]), "fma", "float", rows, columns)
        b = blocks_for(t, rows, columns, depth, 1)
        assert b.rows > 16 - t.rows
        assert -(-rows // b.rows) * -(-columns // b.columns) >= 4
    assert blocks_for(t, 3, 96, 384, 1).rows == t.rows


def test_a_tile_is_narrower_where_that_wastes_fewer_columns():
    i = next((isa.named(n) for n in ISAS if isa.named(n).bits == 256), None)
    if i is None:
        pytest.skip("no instruction set of 256 bits here")
    assert [tile_for(i, "fma", "float", 64, n).columns for n in (96, 128, 288)] == [24, 16, 24]


def dense(rows, columns, depth, dtype=F32, **options):
    size = dtype.itemsize
    left, right = Matrix(dtype, depth * size, size), Matrix(dtype, size, columns * size)
    product = options.pop("product", dtype)
    end = plain(product)
    return plan(isa.named(ISAS[0]), rows, columns, depth, left, right, end, (columns * product.itemsize,), **options)


def test_large_right_operands_are_packed_small_ones_are_not():
    assert dense(64, 64, 64).pack is None
    assert dense(2000, 2000, 2000, again=True).pack is not None
    assert dense(64, 512, 512).pack is None
    assert dense(64, 512, 512, constant=True).pack is not None
    assert dense(64, 128, 128, constant=True).pack is not None


def test_a_large_right_operand_that_is_wanted_once_is_packed_by_items():
    made = dense(2000, 2000, 2000)
    assert made.pack is None
    assert made.product.own is not None
    assert made.product.items >= 16
    assert made.product.scratch < 1 << 20
    assert dense(2000, 2000, 2000, constant=True).product.own is None
    # Blocks of depth are the same, and so are results.
    assert made.product.blocks.depth == dense(2000, 2000, 2000, again=True).product.blocks.depth


def test_long_sums_of_few_results_are_cut_into_blocks_of_depth():
    """Those are items; without them, there would be hardly any."""
    for name in ISAS:
        for size, depth in ((8, 9000), (60, 9000), (60, 200), (2000, 2000)):
            left, right = Matrix(F32, 4, 4 * size), Matrix(F32, 4, 4 * size)
            made = plan(isa.named(name), size, size, depth, left, right, plain(F32), (4 * size,))
            few = made.product.items < 6
            assert made.pieces == (min(16, made.product.turns) if few else 1)
            assert not few or size < 2000
            assert few or size > 8


def test_one_packing_serves_a_batch_with_one_right_operand():
    axis = BatchAxis(10, 4 * 2000 * 2000, 0, (4 * 2000 * 2000,))
    made = dense(2000, 2000, 2000, batch=[axis])
    assert made.pack is not None
    assert made.pack.count == 1


def test_differences_of_bytes_are_multiplied_in_pairs():
    assert dense(64, 64, 64, I16, product=I32, narrow=True).product.tile.mode == "pairs"
    assert dense(64, 64, 64, I16, product=I32).product.tile.mode == "mul"


def test_sums():
    assert sums_of(F32, F32, F32, 10) == F32
    assert sums_of(I8, I8, I32, 10) == I32
    assert sums_of(I8, I8, np.dtype("int64"), 1 << 30) == np.dtype("int64")
    assert sums_of(I32, I32, F32, 10) == np.dtype("float64")


BYTES = [d for d in sorted(dtypes.INTEGER, key=str) if dtypes.bit_width(d) <= 8]


@pytest.mark.parametrize("left", BYTES, ids=str)
@pytest.mark.parametrize("right", BYTES, ids=str)
@pytest.mark.parametrize("of_bytes", ["pairs", "quads"])
def test_products_of_bytes_are_summed_where_they_are_exact(left, right, of_bytes):
    """In 32 bits as long as the largest sum is one of them, or wraps as the result does; else more."""
    largest = 1
    for d in (left, right):
        info = dtypes.integer_info(d)
        largest *= max(-int(info.min), int(info.max))
    edge = (2**31 - 1) // largest  # products, of which as many are exact
    for out in sorted(dtypes.INTEGER | {F32, np.dtype("float64")}, key=str):
        wraps = out in dtypes.INTEGER and dtypes.bit_width(out) <= 32
        for depth in (1, edge // 2, edge - 1, edge, edge + 1, 2 * edge):
            mode, scalar = mode_of(left, right, out, depth, of_bytes)
            assert wraps or depth <= edge or scalar != "i32", (out, depth)
            assert scalar == "i32" or depth > edge // 2, (out, depth)
            assert (mode == of_bytes) or (left, right) != (I8, I8) or scalar != "i32"
            assert mode in ("pairs", "mul", "fma") or left == right == I8
        # Of nothing, there are no quads to begin with.
        assert mode_of(left, right, out, 0, of_bytes)[0] == "pairs"


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("width", [256, 251])
def test_left_operands_whose_depths_lie_apart(name, width):
    rng = np.random.default_rng(width)
    y = rng.standard_normal((300, 300), np.float32)
    for rows in (3, 100, 250):
        x = rng.standard_normal((300, width), np.float32).T[:rows]
        made = planned(x, y, "float32", name)
        # Vectors of 512 bits do not read across two lines of the caches what is read for many rows.
        assert (made.product.own is None) == (rows < 32 or isa.named(name).bits != 512)
        # 1,024 bytes apart they fight for places in the caches.
        assert made.product.packed == (width == 256)
        (found,) = multiply(x, y, "float32", name)
        np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4)
