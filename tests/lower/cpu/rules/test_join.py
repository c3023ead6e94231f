import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.kernels.cpu.move import Move
from nxjax.kernels.cpu.nest import Nest
from nxjax.lower.cpu.lower import lower
from nxjax.ops.slicing import concatenate, pad, split
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, numbers, same, tape

DTYPES = [np.bool_, ml_dtypes.int4, np.int16, ml_dtypes.bfloat16, np.float32, dtypes.key, np.complex128]


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_concatenate(name, data):
    shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 17]), min_size=1, max_size=3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from(DTYPES))
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 40]), min_size=1, max_size=4))
    xs = [numbers((*shape[:axis], n, *shape[axis + 1 :]), dtype, i) for i, n in enumerate(sizes)]
    same(concatenate, *xs, name=name, dimension=axis)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float16])
@pytest.mark.parametrize("few", [2, 3, 4])
def test_channels_of_small_elements_go_by_planes(name, dtype, few):
    xs = [numbers((3, 700, 1), dtype, i) for i in range(few)]
    same(concatenate, *xs, name=name, dimension=2)
    kernels = [c.kernel for c in tape(concatenate, *xs, dimension=2).calls()]
    assert len(kernels) == few + 1
    assert isinstance(kernels[-1], Move)
    assert kernels[-1].nbytes == sum(x.nbytes for x in xs)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_split(data):
    sizes = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    same(split, numbers((3, sum(sizes), 2), np.float32), sizes=sizes, axis=1)
    same(split, numbers((sum(sizes),), np.int8), sizes=sizes, axis=0)


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_pad(name, data):
    shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 17]), max_size=3))
    dtype = data.draw(st.sampled_from(DTYPES))
    config = []
    for n in shape:
        interior = data.draw(st.integers(0, 2))
        low, high = data.draw(st.integers(-4, 5)), data.draw(st.integers(-4, 5))
        spread = n + max(n - 1, 0) * interior
        config.append((low, max(high, -spread - low), interior))
    same(pad, numbers(shape, dtype), numbers((), dtype, 1), name=name, padding_config=tuple(config))


def test_large_borders_are_written_once():
    x = numbers((30, 40, 50), np.float32)
    (y,) = same(pad, x, np.float32(3), padding_config=((1, 2, 0), (0, 4, 0), (3, 0, 0)))
    steps = tape(pad, x, np.float32(3), padding_config=((1, 2, 0), (0, 4, 0), (3, 0, 0))).steps
    assert sum(s.kernel.nbytes for s in steps if hasattr(s, "kernel")) == y.nbytes


def test_shifts_of_a_shift_are_read_where_the_array_lies():
    """And what is dear to make, is shifted and is a result, is made once, and read from there."""
    x = np.random.default_rng(0).normal(size=(128, 64)).astype(np.float32)

    def sizes(function):
        return [s.kernel.size for s in lower(nx.make_jaxpr(function)(x)).calls() if isinstance(s.kernel, Nest)]

    around = lambda x: sum(jnp.roll(jnp.roll(x, a, 0), b, 1) for a in (-1, 0, 1) for b in (-1, 0, 1)) * 2.0
    assert sum(sizes(around)) == x.size

    def waves(x):
        y = x + 0.5 * (jnp.roll(x, -1, 0) - x) * x
        return y, y + jnp.roll(y, 1, 0)

    assert sum(sizes(waves)) == 2 * x.size
    for y, z in zip(nx.jit(waves)(x), _waves(x), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)


def _waves(x):
    y = x + np.float32(0.5) * (np.roll(x, -1, 0) - x) * x
    return y, y + np.roll(y, 1, 0)


@pytest.mark.parametrize("count", [4, 40])
def test_pieces_that_read_the_same_columns_are_a_kernel(count):
    """A column of a matrix is gathered; parts of a quaternion's product would gather each of them four times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, count)).astype(np.float32)

    def f(x):
        turned = x[::-1]
        return jnp.stack([x[:, i] * turned[:, -i] + x[:, i - 1] * 2 for i in range(count)], 1)

    kernels = [c.kernel for c in lower(nx.jit(f).trace(x).program).calls()]
    assert len(kernels) == -(-count // 16)
    with np.errstate(all="ignore"):
        wanted = np.stack([x[:, i] * x[::-1, -i] + x[:, i - 1] * 2 for i in range(count)], 1)
    np.testing.assert_array_equal(nx.jit(f)(x), wanted)
