"""Bits of `rng_bit_generator` are XLA's."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax


def test_bits_are_xlas():
    for key in ([11, 22, 33, 44], [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF]):
        for dtype, shape, algorithm in (
            ("uint8", (5,), 0),
            ("uint16", (3, 7), 1),
            ("uint32", (), 1),
            ("uint32", (9,), 2),
            ("uint32", (3, 4), 1),
            ("uint32", (0,), 0),
        ):
            state = np.array(key, np.uint32)
            want = jax.lax.rng_bit_generator(state, shape, dtype, jax.lax.RandomAlgorithm(algorithm))
            got = lax.rng_bit_generator(state, shape, dtype, lax.RandomAlgorithm(algorithm))
            for a, b in zip(want, got, strict=True):
                assert b.dtype == a.dtype
                np.testing.assert_array_equal(a, b)


def test_wide_bits_and_states():
    state, bits = lax.rng_bit_generator(nx.array([1, 2], "uint64"), (3,), "uint64")
    narrow = lax.rng_bit_generator(nx.array([1, 0, 2, 0], "uint32"), (6,))
    assert state.tolist() == [1, 4] and narrow[0].tolist() == [1, 0, 4, 0]
    np.testing.assert_array_equal(np.asarray(bits).view(np.uint32), narrow[1])
    keys = nx.array(np.arange(8).reshape(2, 4), "uint32")
    both = nx.jit(nx.vmap(lambda k: lax.rng_bit_generator(k, (2,))[1]))(keys)
    np.testing.assert_array_equal(both[1], lax.rng_bit_generator(keys[1], (2,))[1])
    with pytest.raises(TypeError):
        lax.rng_bit_generator(keys[0], (2,), "int32")
    with pytest.raises(TypeError):
        lax.rng_bit_generator(keys, (2,))


def test_uniform_numbers():
    x = np.asarray(nx.jit(lambda: lax.rng_uniform(2.0, 3.0, (50,)))())
    assert ((x >= 2) & (x < 3)).all() and len(set(x.tolist())) > 40
    assert set(np.asarray(lax.rng_uniform(1, 3, (50,))).tolist()) == {1, 2}
