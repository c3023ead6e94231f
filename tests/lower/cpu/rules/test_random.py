"""Random keys and bits through the CPU compiler: equal to the ops' own, and drawn where they are used."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.ops import random
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, results, tape

KEYS = np.random.default_rng(0).integers(0, 2**64, (2, 3), dtype=np.uint64).view(dtypes.key)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 7), (3, 1, 33)], ids=str)
def test_bits(shape, name):
    for keys in (KEYS[0, 0], KEYS, KEYS[:, 1]):
        for width in (8, 16, 32, 64):
            (got,) = results(random.random_bits, keys, bit_width=width, shape=shape, name=name)
            want = random.random_bits.eval(keys, bit_width=width, shape=shape)
            assert got.shape == want.shape and got.tobytes() == want.tobytes()
        (got,) = results(random.random_split, keys, shape=shape, name=name)
        assert got.tobytes() == random.random_split.eval(keys, shape=shape).tobytes()


def test_keys():
    data = np.arange(6, dtype=np.uint32).reshape(2, 3)
    (got,) = results(random.random_fold_in, KEYS, data)
    assert got.tobytes() == random.random_fold_in.eval(KEYS, data).tobytes()
    (words,) = results(random.random_unwrap, KEYS)
    assert words.tobytes() == KEYS["threefry"].tobytes()
    (keys,) = results(random.random_wrap, words)
    assert keys.dtype == dtypes.key and keys.tobytes() == KEYS.tobytes()
    (keys,) = results(random.random_clone, KEYS)
    assert keys.tobytes() == KEYS.tobytes()
    (keys,) = results(random.random_seed, np.array([-1, 7], np.int32))
    assert keys.tobytes() == random.random_seed.eval(np.array([-1, 7], np.int32)).tobytes()


def test_normal_numbers_are_one_kernel():
    program = tape(lambda key: nx.random.normal(key, (100, 7)), KEYS[0, 0])
    assert len(program.steps) == 1, str(program)
