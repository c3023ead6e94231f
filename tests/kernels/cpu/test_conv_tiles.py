"""Convolutions of bytes by x86's matrix unit, and in vectors: their instructions, or functions that do the same."""

import numpy as np
import pytest

from nxjax.kernels.cpu.conv_problem import Extra
from nxjax.kernels.cpu.conv_tiles import TileConv, TileProblem, height_for, lines_for, shares_for, tiles_of
from nxjax.kernels.cpu.expression import Expression, ExpressionNode, identity
from nxjax.ops.arithmetic import add, max
from tests.kernels.cpu import others, tiles
from tests.kernels.cpu.running import run
from tests.kernels.cpu.test_tile_weights import packed

I32 = np.dtype("int32")


VECTORS = "AVX512-VNNI"
MODES = pytest.mark.parametrize("mode", ["tile_ss", "quads"])


@pytest.fixture(autouse=True)
def _unit(monkeypatch):
    tiles.install(monkeypatch)
    others.install(monkeypatch, VECTORS)


def computed(x, w, lines, line, width, *, step, runs, mode="tile_ss", zero=0, shape=None, share=1, tail=None, more=()):
    """``x`` [batch, groups, bytes]; the results [batch, lines, width, groups * outputs]."""
    groups, _, depth, outputs = w.shape
    matrix = mode != "quads"
    if not matrix and x.dtype == np.int8:
        x, zero = (x ^ np.int8(-128)).view(np.uint8), zero + 128
    deep = 16 if matrix else 1
    panels, starts = packed(w, zero, deep=deep)
    epilogue, extras, xs = tail or (identity(I32), (), ())
    row = groups * outputs * 4
    y = (lines * width * row, width * row, row, outputs * 4)
    places = (*more, *(y for _ in epilogue.outputs))
    problem = TileProblem(
        len(x),
        groups,
        outputs,
        lines,
        line,
        width,
        step,
        runs,
        depth,
        x.strides[0],
        x.strides[1],
        places,
        deep,
    )
    rows, across = shape or ((height_for(problem.positions), 0) if matrix else lines_for(problem))
    need = problem.reach(1 if across else rows)
    room = np.zeros((len(x), groups, need + x.shape[2]), x.dtype)
    room[..., : x.shape[2]] = x
    whole = (len(x) * groups - 1) * x.strides[1] + need
    flat = np.zeros(np.maximum(whole, x.nbytes), x.dtype)
    flat[: x.size] = x.reshape(-1)
    kernel = TileConv(problem, mode, rows, across, 2, share, I32, epilogue, extras)
    given = [flat, panels, starts, *xs]
    wanted = kernel.meaning(*given)
    for cuts in (None, range(1, kernel.items)):
        found = run(kernel, *given, name=tiles.NAME if matrix else VECTORS, cuts=cuts)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    return wanted


def drawn(rng, shape, kind="s"):
    return rng.integers(-128, 128, shape).astype(np.int8) if kind == "s" else rng.integers(0, 256, shape).astype("u1")


@pytest.mark.parametrize("mode", ["tile_ss", "tile_su", "tile_us", "tile_uu", "quads"])
def test_windows(mode):
    """Against sums of products; numbers without and with signs, the largest among them."""
    rng = np.random.default_rng(0)
    lines, line, features, outputs = 4, 9, 5, 40
    left, right = "ss" if mode == "quads" else mode[-2:]
    x, w = drawn(rng, (2, 1, 6 * line * features), left), drawn(rng, (1, 3, 3 * features, outputs), right)
    x[0, 0, :40] = np.iinfo(x.dtype).min
    runs = tuple(i * line * features for i in range(3))
    (y,) = computed(x, w, lines, line, line - 2, step=features, runs=runs, mode=mode)
    image = x.reshape(2, 6, line, features).astype(np.int64)
    wanted = np.zeros((2, lines, line - 2, outputs), np.int64)
    for i in range(3):
        for j in range(3):
            part = image[:, i : i + lines, j : j + line - 2]
            wanted += part @ w[0, i].reshape(3, features, outputs)[j].astype(np.int64)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("outputs", [1, 16, 17, 32, 33, 48, 70])
@pytest.mark.parametrize(("lines", "line", "width"), [(1, 1, 1), (1, 16, 16), (3, 8, 7), (5, 11, 9), (1, 70, 70)])
@MODES
def test_sizes(mode, outputs, lines, line, width):
    """Panels and tiles that are full, and those that are not; groups; several of each in an item."""
    rng = np.random.default_rng(outputs)
    for groups, depth, share in ((1, 64, 1), (2, 3, 2), (1, 130, 3)):
        x, w = drawn(rng, (2, groups, lines * line * depth + 5)), drawn(rng, (groups, 2, depth, outputs))
        computed(x, w, lines, line, width, step=depth, runs=(0, 5), share=share, zero=-7, mode=mode)


@pytest.mark.parametrize("rows", [1, 7, 16, 20, 32])
def test_heights(rows):
    rng = np.random.default_rng(rows)
    x, w = drawn(rng, (1, 1, 600)), drawn(rng, (1, 1, 8, 24))
    computed(x, w, 6, 10, 8, step=8, runs=(0,), shape=(rows, 0))


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (8, 8), (16, 8), (24, 8), (5, 5)])
def test_lines(shape):
    """Tiles of parts of lines, and of whole lines, that do not divide an image."""
    rng = np.random.default_rng(shape[0])
    x, w = drawn(rng, (2, 1, 600)), drawn(rng, (1, 1, 8, 16))
    computed(x, w, 7, 10, 8, step=8, runs=(0,), shape=shape, mode="quads")


def test_tiles_of_lines_have_few_rows_that_are_no_pixels():
    for lines, width, outputs in ((7, 7, 512), (14, 14, 256), (56, 56, 64), (1, 49, 96), (5, 3, 16), (33, 21, 24)):
        p = TileProblem(1, 1, outputs, lines, width + 2, width, 64, (0,), 64, 0, 0, ())
        rows, across = lines_for(p)
        assert rows * min(2, -(-outputs // 16)) <= 28 and rows % across == 0 and across <= width
        assert tiles_of(p, rows, across) * rows <= 1.2 * lines * width


@MODES
def test_long_sums_and_what_is_taken_back(mode):
    """Sums beyond 32 bits wrap, and what stands for nothing adds nothing to them."""
    w = np.full((1, 70, 1000, 16), 127, np.int8)
    x = np.full((1, 1, 1000), 127, np.int8)
    (y,) = computed(x, w, 1, 1, 1, step=1, runs=(0,) * 70, zero=127, mode=mode)
    assert not y.any()
    (y,) = computed(x, w, 1, 1, 1, step=1, runs=(0,) * 70, zero=-128, mode=mode)
    assert (y == np.int64(70 * 1000 * 127 * 255).astype(np.int32)).all()


@MODES
def test_epilogue(mode):
    """Two results; operands per channel, per element, and one for all."""
    rng = np.random.default_rng(1)
    nodes = (
        ExpressionNode(add, (), (0, 1), I32), ExpressionNode(add, (), (4, 2), I32), ExpressionNode(max, (), (5, 3), I32)
    )  # fmt: skip
    epilogue = Expression((I32,) * 4, nodes, (6, 5))
    for outputs in (32, 21):
        lines, width = 3, 7
        extras = (
            Extra(I32, 0, (0, 0, 0), 0, True), Extra(I32, 4, (0, 4, 4), 4, True), Extra(I32, 0, (0, 0, 0), 0, False)
        )  # fmt: skip
        values = [rng.integers(-900, 900, n).astype(np.int32) for n in (outputs, 2 * lines * width * outputs, 1)]
        row = outputs * 4
        more = ((0, 0, 0, row), (lines * width * row, width * row, row, row), (0, 0, 0, 0))
        x, w = drawn(rng, (2, 1, lines * 8 * 6)), drawn(rng, (1, 1, 6, outputs))
        y, z = computed(x, w, lines, 8, width, step=6, runs=(0,), tail=(epilogue, extras, values), more=more, mode=mode)
        image = x.reshape(2, lines, 8, 6)[:, :, :width].astype(np.int64)
        total = image @ w[0, 0].astype(np.int64) + values[0] + values[1].reshape(2, lines, width, outputs)
        np.testing.assert_array_equal(z, total)
        np.testing.assert_array_equal(y, np.maximum(total, values[2]))


def test_items_have_work_for_several_threads():
    wide = TileProblem(1, 1, 512, 7, 9, 7, 512, (0, 4608, 9216), 1536, 0, 0, ((0, 0, 0, 0),))
    tall = TileProblem(1, 1, 64, 56, 58, 56, 64, (0, 3712, 7424), 192, 0, 0, ((0, 0, 0, 0),))
    for p in (wide, tall):
        rows = height_for(p.positions)
        count, share = shares_for(p, rows, 8)
        kernel = TileConv(p, "tile_ss", rows, 0, count, share, I32, identity(I32))
        assert 8 <= kernel.items <= 32
