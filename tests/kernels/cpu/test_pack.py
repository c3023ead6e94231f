import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.gemm_tile import GemmTile
from nxjax.kernels.cpu.pack import Right, panels_of
from tests.kernels.cpu.running import ISAS, run


def packed(tile, x, block):
    *batch, depth, columns = x.shape
    layout = "rows" if x.strides[-1] == x.itemsize else "columns" if x.strides[-2] == x.itemsize else "strided"
    axes = tuple(zip(batch, x.strides[: len(batch)], strict=True))
    return Right(tile, x.dtype, layout, depth, columns, block, x.strides[-2], x.strides[-1], axes)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
@pytest.mark.parametrize(
    ("mode", "scalar", "dtype"),
    [
        ("fma", "float", "float32"),
        ("fma", "float", "float16"),
        ("fma", "double", "float64"),
        ("mul", "i64", "int32"),
        ("pairs", "i32", "int8"),
        ("pairs", "i32", "uint8"),
        ("quads", "i32", "int8"),
    ],
)
def test_panels(name, layout, mode, scalar, dtype):
    """Whole panels, any depth: the machine code leaves what the meaning says."""
    if mode == "quads" and not isa.named(name).vnni:
        return  # no such tile here
    rng = np.random.default_rng(0)
    lanes = isa.named(name).lanes(8 if scalar in ("double", "i64") else 4)
    tile = GemmTile(mode, scalar, 4, 2, lanes)
    for depth in (1, 7, 33, 64):
        x = rng.integers(-9 if dtype != "uint8" else 0, 99, (2, depth, 3 * tile.columns)).astype(dtype)
        if layout == "columns":
            x = np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
        elif layout == "strided":
            room = np.zeros((2, 2 * depth, 6 * tile.columns), dtype)[:, ::2, ::2]
            room[...] = x
            x = room
        if depth == 1 and layout == "columns":
            continue  # both dimensions are contiguous
        k = packed(tile, x, 20)
        (found,) = run(k, x, name=name, strided=True, cuts=[k.items // 2])
        np.testing.assert_array_equal(found, k.meaning(x)[0])


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_columns_that_no_matrix_has_are_not_left_as_they_were(name, layout, dtype):
    """What lies there may be below the normal range, and products of that take a hundred times as long."""
    scalar = "double" if dtype == "float64" else "float"
    tile = GemmTile("fma", scalar, 4, 2, isa.named(name).lanes(8 if scalar == "double" else 4))
    for columns in (1, tile.columns - 1, tile.columns + 3):
        x = np.arange(37 * columns, dtype=dtype).reshape(37, columns)
        if layout == "columns":
            x = np.ascontiguousarray(x.T).T
        elif layout == "strided":
            x = np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2]
        k = packed(tile, x, 20)
        (found,) = run(k, x, name=name, strided=True)
        assert np.isfinite(found).all()
        assert set(found.ravel()) <= {0, *x.ravel()}


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("mode", "scalar", "dtype"), [("tile_bf16", "float", "bfloat16"), ("tile_ss", "i32", "int8")])
def test_pieces_for_the_matrix_unit(name, mode, scalar, dtype):
    """Several pieces along the depth and of panels; the last block ends before its second piece begins."""
    tile = GemmTile(mode, scalar, 32, 2, 16)
    depth = 53 * tile.group - 1
    x = np.random.default_rng(0).integers(-99, 99, (2, depth, 17 * tile.columns)).astype(np.dtype(dtype))
    k = packed(tile, x, 48)
    assert k.items == 2 * 2 * 3 * 2
    (found,) = run(k, x, name=name, strided=True, cuts=[k.items // 3])
    assert found.tobytes() == k.meaning(x)[0].tobytes()


def test_constants_are_packed_alike():
    x = np.arange(6 * 20, dtype=np.float32).reshape(6, 20)
    k = packed(GemmTile("fma", "float", 4, 1, 16), x, 4)
    panels = panels_of(x, k).view(np.float32)
    assert panels.nbytes == k.nbytes * k.count
    # The first block of depth, its first panel: rows of 16 columns.
    np.testing.assert_array_equal(panels[:64].reshape(4, 16), x[:4, :16])
    np.testing.assert_array_equal(panels[64:128].reshape(4, 16)[:, :4], x[:4, 16:])
