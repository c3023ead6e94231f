"""Keys are JAX's, typed and raw."""

import pickle

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import KeyTypeError, ParameterError


def words(key):
    return np.asarray(nx.random.key_data(key)).tolist()


@pytest.mark.parametrize("seed", [0, 1, -1, 123456789, 2**33 + 5, np.int32(7), np.uint8(200)])
def test_seeds(seed):
    want = np.asarray(jax.random.key_data(jax.random.key(seed))).tolist()
    assert words(nx.random.key(seed)) == want
    assert np.asarray(nx.random.PRNGKey(seed)).tolist() == want
    assert words(nx.jit(nx.random.key)(np.int32(11))) == words(nx.random.key(11))


@pytest.mark.parametrize("num", [2, 5, (2, 3), ()])
def test_split_and_fold_in(num):
    key, theirs = nx.random.key(3), jax.random.key(3)
    assert words(nx.random.split(key, num)) == np.asarray(jax.random.key_data(jax.random.split(theirs, num))).tolist()
    for data in (0, 7, np.int32(-5)):
        assert (
            words(nx.random.fold_in(key, data))
            == np.asarray(jax.random.key_data(jax.random.fold_in(theirs, data))).tolist()
        )
    assert words(nx.jit(nx.random.split)(key)) == words(nx.random.split(key))
    assert words(nx.vmap(nx.random.fold_in, (None, 0))(key, np.arange(3))) == [
        words(nx.random.fold_in(key, i)) for i in range(3)
    ]


def test_close_keys_are_equal_keys():
    def close(jax_or_nx):
        keys = jax_or_nx.random.split(jax_or_nx.random.key(0))
        numpy = jax_or_nx.numpy
        return numpy.isclose(keys, keys[1]).tolist(), bool(numpy.allclose(keys, keys)), bool(numpy.allclose(*keys))

    assert close(nx) == close(jax) == ([False, True], True, False)


def test_keys_are_opaque_scalars():
    key = nx.random.key(0)
    assert (key.shape, str(key.type)) == ((), "key<fry>[]")
    assert nx.numpy.issubdtype(key.dtype, nx.dtypes.prng_key)
    for k in (key, nx.jit(nx.random.split)(key), pickle.loads(pickle.dumps(key))):
        assert k.dtype.type.__name__ == "prng_key"  # by which jaxtyping knows keys
    assert nx.random.key_impl(key) == "threefry2x32"
    assert nx.random.key_dtype() == key.dtype
    assert words(nx.random.wrap_key_data(nx.random.key_data(key))) == words(key)
    assert words(nx.random.clone(key)) == words(key)
    with pytest.raises(TypeError):
        key + 1


def test_raw_keys_give_raw_keys():
    raw = nx.random.PRNGKey(3)
    assert nx.random.split(raw).dtype == np.uint32
    assert nx.random.fold_in(raw, 1).shape == (2,)
    assert float(nx.random.normal(raw)) == float(nx.random.normal(nx.random.key(3)))
    assert float(nx.random.normal(np.asarray(raw))) == float(nx.random.normal(nx.random.key(3)))


@pytest.mark.parametrize("bad", [0, 1.5, "key", None, [0, 1], np.zeros(2, np.int32), np.zeros(3, np.uint32)])
def test_what_is_not_a_key(bad):
    with pytest.raises(KeyTypeError, match=r"random.uniform: needs a random key"):
        nx.random.uniform(bad)
    with pytest.raises(KeyTypeError, match=r"nx.random.key\(0\)"):
        nx.random.split(bad)


def test_batches_of_keys_point_to_vmap():
    with pytest.raises(KeyTypeError, match="vmap"):
        nx.random.normal(nx.random.split(nx.random.key(0), 3))


def test_bad_seeds():
    for bad in (1.5, np.zeros(2, np.int32), nx.random.key(0)):
        with pytest.raises(KeyTypeError, match="seed"):
            nx.random.key(bad)
    with pytest.raises(ParameterError, match="generator"):
        nx.random.key(0, impl="rbg")
    with pytest.raises(KeyTypeError, match="scalar"):
        nx.random.fold_in(nx.random.key(0), np.arange(2))
    with pytest.raises(ParameterError, match="negative"):
        nx.random.split(nx.random.key(0), -1)


def test_seeds_and_data_of_any_number():
    assert nx.random.PRNGKey(True).tolist() == [0, 1]
    key = nx.random.PRNGKey(3)
    assert nx.random.fold_in(key, 2.5).tolist() == nx.random.fold_in(key, 2).tolist()


def test_keys_are_equal_or_not():
    keys = nx.random.split(nx.random.key(0), 3)
    assert (keys == keys[1]).tolist() == nx.jit(lambda a, b: a == b)(keys, keys[1]).tolist() == [False, True, False]
    assert (keys != keys[1]).tolist() == [True, False, True]
    assert nx.numpy.array_equal(keys, keys)


@pytest.mark.parametrize("data", [-1, 2**32, -(2**40), 2**64])
def test_numbers_that_fold_in_cannot_read(data):
    with pytest.raises(OverflowError, match="uint32"):
        nx.random.fold_in(nx.random.key(0), data)


@pytest.mark.parametrize("seed", [2**63, 2**64, 2**64 + 7, -(2**63) - 1])
@pytest.mark.parametrize("make", [nx.random.key, nx.random.PRNGKey])
def test_seeds_beyond_64_bits_are_refused(make, seed):
    with pytest.raises(OverflowError, match="out of bounds"):
        make(seed)
