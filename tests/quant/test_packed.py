"""Weights as they are packed: the same numbers, and products that mean what they say, compiled, mapped and derived."""

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError, ShapeError
from nxjax.ops.block_dot import block_dot
from nxjax.quant.packed import PackedQArray, packed
from nxjax.quant.qarray import QArray

# dtype of the numbers, the least and largest of them, inputs, outputs, groups of inputs, whether 0 stands for another.
KINDS = {
    "Q4_0": ("int4", -8, 8, 64, 24, 2, False),
    "Q4_1": ("int8", 0, 16, 96, 9, 3, True),
    "Q5_1": ("int8", 0, 32, 64, 20, 2, True),
    "Q6_K": ("int8", -32, 32, 64, 20, 4, False),
    "Q8_0": ("int8", -128, 128, 64, 17, 2, False),
    "a scale per column": ("int8", -127, 128, 70, 20, 1, False),
    "4 bits, a scale per column": ("int4", -8, 8, 45, 8, 1, False),
    "large groups": ("int4", -8, 8, 256, 9, 2, False),
}


def drawn(kind):
    stored, low, high, depth, columns, groups, has_least = KINDS[kind]
    rng = np.random.default_rng(0)
    values = rng.integers(low, high, (depth, columns)).astype(getattr(ml_dtypes, stored, stored))
    rows = [rng.standard_normal((groups, columns)).astype(np.float32) for _ in range(1 + has_least)]
    x = rng.standard_normal((3, depth)).astype(np.float32)
    return QArray(*map(nx.numpy.asarray, (values, *rows))), nx.numpy.asarray(x)


def close(got, wanted, share):
    assert abs(np.asarray(got) - wanted).max() <= share * abs(np.asarray(wanted)).max()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers(kind):
    w, x = drawn(kind)
    p = packed(w)
    assert isinstance(p, PackedQArray)
    assert (p.shape, p.dtype, repr(p)) == (w.shape, w.dtype, repr(w))
    for name in ("values", "scale", "least"):
        np.testing.assert_array_equal(np.asarray(getattr(p, name)), np.asarray(getattr(w, name)))
    np.testing.assert_array_equal(np.asarray(p), np.asarray(w))
    close(nx.jit(lambda p, x: p.product(x))(p, x), np.asarray(x) @ np.asarray(w), 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_in_whole_numbers_are_those_that_the_meaning_says(kind):
    w, x = drawn(kind)
    p = packed(w, activations="int8")
    meant = np.asarray(p.product(x))
    with nx.config.using(guard="end"):
        close(nx.jit(lambda p, x: p.product(x))(p, x), meant, 1e-6)
    # A number of a row is off by half a step of its block at most.
    steps = np.abs(np.asarray(x)).max() / 127 / 2
    assert (abs(meant - np.asarray(x @ np.asarray(w))) <= 1.01 * steps * abs(np.asarray(w)).sum(0)).all()


def test_numbers_of_4_bits_take_half_a_byte():
    w = QArray(np.ones((64, 64), np.int8).astype(ml_dtypes.int4), np.full((2, 64), 0.5, np.float32))
    assert packed(w).nbytes == 64 * 64 // 2 + 2 * 64 * 2  # and float16 holds the scales


def test_rows_of_tables():
    w, _ = drawn("Q4_1")
    table = packed(w.transposed(), flipped=True)
    places = np.array([[0, 3], [8, 5]])
    taken = nx.jit(lambda t, i: t.taken(i))(table, places)
    np.testing.assert_allclose(taken, np.asarray(w).T[places], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(table.transposed()), np.asarray(w))
    with pytest.raises(ParameterError, match="transposed"):
        table.product(taken)
    with pytest.raises(ParameterError, match="transposed"):
        packed(w).taken(places)


@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_derivatives_are_those_of_floats(activations):
    w, x = drawn("Q4_1")
    p = packed(w, activations=activations)
    loss = lambda x, scales, leasts: PackedQArray(p.data, scales, leasts, p.layout).product(x).sum()
    got = nx.grad(loss, (0, 1, 2))(x, p.scales.astype("float32"), p.leasts.astype("float32"))
    np.testing.assert_allclose(got[0], np.broadcast_to(np.asarray(w).sum(1), x.shape), rtol=1e-4, atol=1e-4)
    q, inputs = np.asarray(w.values).astype(np.float32), np.asarray(x).sum(0)
    sums = (inputs[:, None] * q).reshape(3, 32, 9).sum(1)
    np.testing.assert_allclose(got[1].transpose(1, 0, 2).reshape(3, -1)[:, :9], sums, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(got[2][0, :, 0], inputs.reshape(3, 32).sum(1), rtol=1e-4, atol=1e-4)


def test_mapped_over_rows():
    w, x = drawn("Q8_0")
    p = packed(w)
    np.testing.assert_allclose(nx.vmap(p.product)(x), p.product(x), rtol=1e-5, atol=1e-3)


def test_what_does_not_fit_stays_or_is_refused():
    for shape, scales in (((70, 8), (7, 8)), ((64, 8), (2, 4)), ((2, 64, 8), (2, 1, 8))):
        w = QArray(np.ones(shape, np.int8), np.ones(scales, np.float32))
        assert packed(w) is w
    w, x = drawn("Q8_0")
    with pytest.raises(ParameterError, match="activations"):
        packed(w, activations="int4")
    p = packed(w)
    with pytest.raises(ShapeError, match="do not fit"):
        block_dot(x[:, :20], p.data, p.scales, columns=17, zero=0, activations="int8")
