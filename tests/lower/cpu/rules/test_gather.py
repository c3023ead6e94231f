import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax.config import config
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import gather
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, numbers, results, same, tape

DTYPES = [
    np.bool_,
    ml_dtypes.int4,
    ml_dtypes.float8_e5m2,
    np.int16,
    ml_dtypes.bfloat16,
    np.float32,
    dtypes.key,
    np.complex128,
]
MODES = [GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS]
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
ELEMENTS = GatherDimensionNumbers((), (0,), (0,))


@st.composite
def cases(draw):
    """Any dimension numbers: operand dimensions are indexed, shared with the indices, both or neither."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17]), max_size=4)))
    d = range(len(shape))
    roles = [draw(st.sampled_from(["taken", "run", "run", "shared", "plain"])) for _ in d]
    shared = [i for i in d if roles[i] == "shared"]
    sizes = tuple(
        1 if roles[i] in ("taken", "shared") else draw(st.integers(0 if roles[i] == "plain" else 1, n))
        for i, n in enumerate(shape)
    )
    collapsed = tuple(i for i in d if roles[i] == "taken")
    mapped = tuple(draw(st.permutations([i for i in d if roles[i] in ("taken", "run")])))
    extra = draw(st.lists(st.sampled_from([0, 1, 3, 9]), max_size=2))
    batch = list(extra)
    places = []
    for i in shared:
        k = draw(st.integers(0, len(batch)))
        batch.insert(k, shape[i])
        places = [p + (p >= k) for p in places] + [k]
    window = [i for i in d if i not in (*collapsed, *shared)]
    rank = len(batch) + len(window)
    offsets = tuple(sorted(draw(st.permutations(range(rank)))[: len(window)]))
    numbers_ = GatherDimensionNumbers(offsets, collapsed, mapped, tuple(shared), tuple(places))
    index = draw(st.sampled_from([np.int8, np.int32, np.uint32, np.int64, np.uint64]))
    flat = draw(st.lists(st.sampled_from([0, 0, 1, 2, 4, 16, -1, 90]), min_size=1, max_size=8))
    indices = np.resize(np.asarray(flat), (*batch, len(mapped))).astype(index)
    return shape, indices, numbers_, sizes


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(case=cases(), mode=st.sampled_from(MODES), dtype=st.sampled_from(DTYPES))
def test_any_dimension_numbers(name, case, mode, dtype):
    shape, indices, n, sizes = case
    x = numbers(shape, dtype)
    same(gather, x, indices, name=name, dimension_numbers=n, slice_sizes=sizes, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 3000])
def test_elements_of_a_row(mode, count):
    x = numbers((1000,), np.float32)
    i = np.random.default_rng(0).integers(-20, 1020, (count, 1)).astype(np.int32)
    same(gather, x, i, dimension_numbers=ELEMENTS, slice_sizes=(1,), mode=mode)


def test_rows_of_a_table_with_a_given_filling():
    x = numbers((50, 300), np.float32)
    i = np.array([[3], [49], [50], [-1]], np.int32)
    mode = GatherScatterMode.FILL_OR_DROP
    same(gather, x, i, dimension_numbers=ROWS, slice_sizes=(1, 300), mode=mode, fill_value=-2.5)


def test_a_window_at_a_known_place_is_no_copy():
    x = numbers((50, 300), np.float32)
    params = {"dimension_numbers": ROWS, "slice_sizes": (1, 300), "mode": GatherScatterMode.FILL_OR_DROP}

    def row(k):
        index = jnp.asarray([[k]], np.int32)
        one = lambda v: gather(v, index, **params)
        one.name = "gather"
        return one

    for k in (7, 50, -1):
        (y,) = results(row(k), x)
        np.testing.assert_array_equal(y, gather.eval(x, np.array([[k]], np.int32), **params))
    assert "gather" in str(tape(row(50), x))
    assert "gather" not in str(tape(row(7), x))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_negative_indices_count_from_the_end_in_the_kernel(dtype):
    x = numbers((1000,), np.float32)
    i = np.array([[3, -1, -1000], [999, -999, 0]]).astype(dtype)
    i = i if dtype != np.int8 else np.array([[3, -1, -128]], dtype)
    read = lambda x, i: x[i]
    write = lambda x, i: x.at[i].add(1.0)
    read.name, write.name = "gather", "scatter_add"
    (y,) = results(read, x, i)
    np.testing.assert_array_equal(y, x[i])
    (y,) = results(write, x, i)
    wanted = x.copy()
    np.add.at(wanted, i, np.float32(1))
    np.testing.assert_array_equal(y, wanted)
    if dtype == np.int32:
        assert "select_n" not in str(tape(read, x, i))
        assert "select_n" not in str(tape(write, x, i))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_short_indices_are_read_as_they_are(dtype):
    """In any shape and order; some are outside."""
    x = numbers((200,), np.float32)
    i = np.random.default_rng(0).integers(0, 256, (40, 50)).astype(dtype)
    read = lambda x, i: x.at[i.T.reshape(20, 100)].get(mode="fill", fill_value=7)
    clipped = lambda x, i: jnp.take(x, i[::-1], mode="clip")
    write = lambda x, i: x.at[i].add(1.0, mode="drop")
    read.name, clipped.name, write.name = "gather", "gather", "scatter_add"
    wide = i.T.reshape(20, 100).astype(int)
    (y,) = results(read, x, i)
    np.testing.assert_array_equal(y, np.where(wide < 200, x[np.minimum(wide, 199)], np.float32(7)))
    (y,) = results(clipped, x, i)
    np.testing.assert_array_equal(y, x[np.minimum(i[::-1], 199)])
    (y,) = results(write, x, i)
    wanted = x.copy()
    np.add.at(wanted, i[i < 200], np.float32(1))
    np.testing.assert_array_equal(y, wanted)
    plain = lambda x, i: x[i]
    plain.name = "gather"
    assert "convert_element_type" not in str(tape(plain, x, i))


NEARLY = {
    "another array is compared": lambda i, j, n: jnp.where(j < 0, i + n, i),
    "another array is raised": lambda i, j, n: jnp.where(i < 0, j + n, i),
    "another array is kept": lambda i, j, n: jnp.where(i < 0, i + n, j),
    "another comparison": lambda i, j, n: jnp.where(i <= 0, i + n, i),
    "another bound": lambda i, j, n: jnp.where(i < 3, i + n, i),
    "the other way round": lambda i, j, n: jnp.where(i < 0, i, i + n),
    "lowered": lambda i, j, n: jnp.where(i < 0, i + -n, i),
    "raised by nothing": lambda i, j, n: jnp.where(i < 0, i + 0, i),
    "raised by less": lambda i, j, n: jnp.where(i < 0, i + 2, i),
    "raised by an array": lambda i, j, n: jnp.where(i < 0, i + j, i),
    "multiplied": lambda i, j, n: jnp.where(i < 0, i * n, i),
    "compared with an array": lambda i, j, n: jnp.where(i < j, i + n, i),
    "in another order": lambda i, j, n: jnp.where(i < 0, i + n, i)[::-1],
    "no choice": lambda i, j, n: i * 2,
    "what it is": lambda i, j, n: jnp.where(i < 0, i + n, i),
}


@pytest.mark.parametrize("what", NEARLY)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("mode", MODES[:2], ids=["clip", "fill"])
def test_what_nearly_counts_from_the_end(what, dtype, mode):
    """Numbers that look like NumPy's negative indices, alone or one of two that name an element."""
    x, n = numbers((11, 7), np.float32), 11
    rng = np.random.default_rng(0)
    i, j = (rng.integers(-14, 14, (40, 1)).astype(dtype) for _ in range(2))
    i[:4] = np.array([0, -n, -n - 1, np.iinfo(np.dtype(dtype.__name__.lstrip("u"))).min])[:, None].astype(dtype)

    def rows(x, i, j):
        return gather(x, NEARLY[what](i, j, n), dimension_numbers=ROWS, slice_sizes=(1, 7), mode=mode)

    def elements(x, i, j):
        at = NEARLY[what](jnp.concatenate([i, j], 1), jnp.concatenate([j, i], 1), n)
        numbers = GatherDimensionNumbers((), (0, 1), (0, 1))
        return gather(x, at, dimension_numbers=numbers, slice_sizes=(1, 1), mode=mode)

    for f in (rows, elements):
        f.name = "gather"
        (y,) = results(f, x, i, j)
        with config.using(enable_x64=True):
            wanted = f(*map(jnp.asarray, (x, i, j)))
        np.testing.assert_array_equal(y, wanted, err_msg=f.__name__)
