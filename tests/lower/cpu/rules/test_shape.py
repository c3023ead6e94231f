"""Rules of index changes: of memory they are views, of values that are computed they are part of the kernel."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.ops.create import iota
from nxjax.ops.shape import broadcast_in_dim, reshape, rev, transpose
from nxjax.ops.slicing import slice as slice_
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, same

X = np.arange(120, dtype=np.float32).reshape(4, 5, 6)


@pytest.mark.parametrize("isa", ISAS)
def test_of_memory(isa):
    same(broadcast_in_dim, X, shape=(2, 4, 5, 6), broadcast_dimensions=(1, 2, 3), name=isa)
    same(broadcast_in_dim, X[:, :1], shape=(4, 7, 6), broadcast_dimensions=(0, 1, 2), name=isa)
    same(broadcast_in_dim, X[0], shape=(6, 5), broadcast_dimensions=(1, 0), name=isa)
    same(transpose, X, permutation=(2, 0, 1), name=isa)
    same(reshape, X, shape=(8, 15), name=isa)
    same(rev, X, dimensions=(0, 2), name=isa)
    same(slice_, X, start_indices=(1, 0, 2), limit_indices=(4, 5, 6), strides=(2, 1, 3), name=isa)
    same(iota, shape=(3, 40), dimension=1, dtype=dtypes.bfloat16, name=isa)
    # More than the compiler computes itself.
    same(iota, shape=(3, 30000), dimension=1, dtype=dtypes.int32, name=isa)
    same(iota, shape=(30000, 3), dimension=0, dtype=dtypes.float32, name=isa)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.transpose(2, 0, 1).reshape(24, 5),
        lambda x: x[1:, ::2, ::-1].reshape(-1),
        lambda x: jnp.broadcast_to(x[:, None], (4, 3, 5, 6)).reshape(12, 30),
        lambda x: x.reshape(2, 2, 30).transpose(1, 2, 0).reshape(10, 12)[::3],
        lambda x: x.reshape(20, 6).T.reshape(8, 15),
        lambda x: x.reshape(8, 15).reshape(4, 30).T,
        lambda x: jnp.flip(x.reshape(-1)[3:99:4].reshape(4, 6), 0).sum(0),
    ],
)
@pytest.mark.parametrize("computed", [False, True])
def test_chains(f, computed):
    def g(x):
        return f(x * 2 + x) + 1 if computed else f(x)

    with nx.config.using(executor="cpu"):
        np.testing.assert_array_equal(nx.jit(g)(X), g(jnp.asarray(X)))


def test_bits_of_any_dtype_move():
    keys = nx.random.split(nx.random.key(0), 6)
    with nx.config.using(executor="cpu"):
        got = nx.jit(lambda k: k.reshape(2, 3).T)(keys)
    np.testing.assert_array_equal(nx.random.key_data(got), nx.random.key_data(keys.reshape(2, 3).T))
