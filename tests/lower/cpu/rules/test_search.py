import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.ops.composite_search import searchsorted
from tests.lower.cpu.rules.equal import same, tape


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_and_numbers_of_any_shape(side):
    rng = np.random.default_rng(0)
    for x, q in [((9,), ()), ((9,), (2, 3)), ((2, 9), (2,)), ((2, 9), (2, 3, 4)), ((0,), (3,)), ((0, 9), (0, 4))]:
        x, q = np.sort(rng.integers(-9, 9, x).astype(np.float32)), rng.integers(-9, 9, q).astype(np.float32)
        same(searchsorted, x, q, side=side)
        same(searchsorted, np.sort(x[..., ::-1])[..., ::2], q.T if q.ndim == x.ndim == 1 else q, side=side)


def test_a_batch_of_rows_and_complex_numbers():
    x, q = np.sort(np.random.default_rng(0).normal(size=(2, 3, 9)).astype(np.float32)), np.float32([0.5, -1])
    found = nx.jit(nx.vmap(nx.vmap(lambda x: jnp.searchsorted(x, q))))(x)
    assert found.tolist() == [[np.searchsorted(a, q).tolist() for a in b] for b in x]
    assert len(tape(searchsorted, x, np.zeros((2, 3), np.float32), side="left").steps) <= 2
    z = np.sort(x[0, 0] + 1j * x[0, 1])
    assert nx.jit(jnp.searchsorted)(z, z[::2]).tolist() == [0, 2, 4, 6, 8]
