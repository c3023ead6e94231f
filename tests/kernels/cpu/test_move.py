import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import run_kernel
from nxjax.kernels.cpu import isa, move
from nxjax.kernels.cpu.move import Move, MoveAxis, essential
from nxjax.lower.cpu.builder import dense_strides
from tests.kernels.cpu.running import ISAS, run

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32, 8: np.float64, 16: np.complex128}


def check(x, name, cuts=None):
    kernel = Move(x.shape, x.strides, dense_strides(x.shape, x.dtype), x.dtype.itemsize)
    (y,) = run(kernel, x, name=name, strided=True, cuts=cuts)
    assert y.tobytes() == x.tobytes(), kernel.key
    return kernel


def numbers(shape, size):
    count = int(np.prod(shape, dtype=np.int64))
    words = np.random.default_rng(count).integers(0, 256, count * size, np.uint8)
    return words.view(DTYPES[size]).reshape(shape)


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_view(name, data):
    size = data.draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 16, 17, 33]), max_size=4)))
    x = numbers(shape, size).transpose(data.draw(st.permutations(range(len(shape)))))
    steps = data.draw(
        st.lists(st.sampled_from([1, 1, 2, 3, 4, 6, 7, 8, 9, -1, -2]), min_size=len(shape), max_size=len(shape))
    )
    x = x[(*(slice(None, None, k) for k in steps), ...)]
    if data.draw(st.booleans()):
        x = np.broadcast_to(x, (3, *x.shape))
    items = Move(x.shape, x.strides, dense_strides(x.shape, x.dtype), size).items
    check(x, name, sorted(data.draw(st.lists(st.integers(0, items), max_size=2))))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("size", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(64, 64), (65, 130), (300, 7), (4, 1000), (20000, 3), (3, 20000)])
def test_transpose(name, size, shape):
    check(numbers(shape, size).T, name, [1])


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("size", sorted(DTYPES))
@pytest.mark.parametrize("length", [8, 31, 64, 67, 3000])
def test_groups(name, size, length):
    """Channels of an image that come last: in another order, some, one several times, of half the points, backwards."""
    for few in (2, 3, 4):
        planes, points = numbers((3, few, length), size), numbers((3, length, few), size)
        wider = numbers((3, length, few + 1), size)
        halves = numbers((3, 2 * length, few), size)[:, ::2]
        repeated = np.broadcast_to(planes[:, 0, :, None], (3, length, few))
        for x in (
            planes.swapaxes(1, 2),
            points[..., ::-1],
            wider[..., 1:],
            wider[..., :0:-1],
            repeated,
            halves,
            points[:, ::-1],
            halves[:, ::-1],
        ):
            check(x, name, [1])
    for few in (5, 8, 16):
        x = numbers((3, length), size)
        check(np.broadcast_to(x[..., None], (3, length, few)), name, [1])
        check(np.broadcast_to(x[:, ::-1, None], (3, length, few)), name, [1])


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_groups_are_read_by_vectors(size):
    names = {
        Move(x.shape, x.strides, dense_strides(x.shape, x.dtype), size)._body.__qualname__
        for x in (
            numbers((500, 3), size)[:, ::-1],
            numbers((3, 500), size).T,
            numbers((500, 3), size)[::2],
            numbers((500, 3), size)[::-1],
            np.broadcast_to(numbers((500, 1), size), (500, 8)),
        )
    }
    assert names == {"Move._grouped.<locals>.<lambda>"}


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("size", sorted(DTYPES))
def test_every_step_reads_nothing_behind_its_last_element(name, size):
    for length in (4, 5, 7, 8, 17, 67):
        for step in range(2, 10):
            check(numbers((length * step,), size)[::step], name)


@pytest.mark.parametrize("name", ISAS)
def test_long_runs_and_fills(name):
    x = numbers((70001,), 4)
    check(x, name, [1, 3])
    check(np.broadcast_to(x[:1], (70001,)), name, [2])
    check(x[::-1], name, [5])


@pytest.mark.parametrize("name", ISAS)
def test_past_the_caches(name):
    x = numbers((2048, 2176), 4)
    check(x.T, name, [10])
    check(x, name, [10])
    check(x[1:, 1:].T, name)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("size", sorted(DTYPES))
def test_any_size_past_the_caches(name, size, monkeypatch):
    """Runs and squares, of sizes about a line and about 16 of them, whose rows begin at lines or not."""
    monkeypatch.setattr(move, "STREAM", 1)
    streamed = 0
    for rows, columns in ((3, 16 * 64), (5, 16 * 64 - 1), (3, 16 * 64 + 1), (64, 64), (67, 128), (16, 65), (260, 260)):
        x = numbers((rows, columns), size)
        streamed += check(x, name, [1])._streams
        check(x[1:, 1:], name)
        check(x.T, name, [1])
        check(x[:, 1:].T, name)
    assert streamed


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("size", sorted(DTYPES))
def test_such_results_may_begin_anywhere(name, size, monkeypatch):
    monkeypatch.setattr(move, "STREAM", 1)
    for x in (numbers((64, 192), size), numbers((64, 192), size).T):
        kernel = Move(x.shape, x.strides, dense_strides(x.shape, x.dtype), size)
        (address,) = engine(isa.named(name)).addresses([kernel])
        for offset in {0, size, 8, 16, 32, 48, 64 - size}:
            room = np.zeros(x.nbytes + 192, np.uint8)
            place = -room.ctypes.data % 64 + offset
            run_kernel(address, kernel, [x.ctypes.data, room.ctypes.data + place])
            assert room[place : place + x.nbytes].tobytes() == x.tobytes(), (kernel.key, offset)
            assert not room[:place].any() and not room[place + x.nbytes :].any()


@pytest.mark.parametrize("past", [-1, 0, 1])
def test_how_large_results_are_that_go_past_the_caches(past):
    n = move.STREAM + past
    assert Move((n,), (1,), (1,), 1)._streams == (past >= 0)


@pytest.mark.parametrize("name", ISAS)
def test_part_of_the_target(name):
    """Only the places that the target's strides name are written; the meaning is what is read there."""
    x, y = numbers((5, 37), 4), np.zeros((9, 120), np.float32)
    part = y[2:7, 3:114:3]
    kernel = Move(x.shape, x.strides, part.strides, 4)
    (address,) = engine(isa.named(name)).addresses([kernel])
    run_kernel(address, kernel, [x.ctypes.data, part.ctypes.data])
    assert part.tobytes() == x.tobytes()
    part[...] = 0
    assert not y.any()


def test_loops_that_matter():
    assert essential((4, 1, 8), (32, 7, 4), (32, 99, 4), 4) == ((MoveAxis(32, 4, 4),), 4)
    # [N, H, W, C] to [N, C, H, W]: rows and columns are one.
    axes, _ = essential((2, 3, 5, 7), (420, 4, 84, 12), (420, 140, 28, 4), 4)
    assert axes == (MoveAxis(2, 420, 420), MoveAxis(3, 4, 140), MoveAxis(35, 12, 4))


def test_views_that_do_the_same_share_code():
    assert Move((6, 4), (16, 4), (16, 4), 4) == Move((2, 12), (48, 4), (48, 4), 4)
    assert Move((6, 4), (16, 4), (16, 4), 4) != Move((6, 4), (4, 24), (16, 4), 4)
