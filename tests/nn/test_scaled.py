"""Block-scaled products against JAX."""

import numpy as np
import pytest

import nxjax as nx


def test_scaled_matmul():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 8), (2, 4, 8)))
    s, t = (np.exp2(rng.integers(-2, 3, z)).astype(np.float32) for z in ((2, 3, 2), (2, 4, 2)))
    want = np.einsum("bmk,bnk->bmn", x * np.repeat(s, 4, -1), y * np.repeat(t, 4, -1))
    np.testing.assert_allclose(nx.nn.scaled_matmul(x, y, s, t), want, rtol=1e-5, atol=1e-5)
    assert nx.nn.scaled_matmul(x, y, s, t, "bfloat16").dtype == "bfloat16"
    for bad in ((x[0], y, s, t), (x, y[:, :, :4], s, t), (x, y, s[:, :2], t)):
        with pytest.raises(ValueError):
            nx.nn.scaled_matmul(*bad)


def test_scaled_dot_general():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in ((2, 32, 64), (32, 64, 2)))
    numbers = (((2,), (1,)), ((0,), (2,)))

    configs = [nx.nn.get_scaled_dot_general_config("mxfp8")] * 3

    def run(configs):
        f = lambda x, y: nx.nn.scaled_dot_general(x, y, numbers, configs=configs)
        return f(x, y), *nx.grad(lambda x, y: (f(x, y) ** 2).sum(), (0, 1))(x, y)

    # float8 has 4 significant bits: a relative error of 1/16 per element at most, less in sums.
    for got, want in zip(run(configs), run(None), strict=True):
        assert got.shape == want.shape
        assert np.linalg.norm(got - want) < 0.06 * np.linalg.norm(want)
    exact = np.exp2(rng.integers(-3, 4, (3, 32))).astype(np.float32)
    product = nx.nn.scaled_dot_general(exact, exact, (((1,), (1,)), ((), ())), configs=configs)
    np.testing.assert_array_equal(product, exact @ exact.T)
    for bad in (lambda: nx.nn.get_scaled_dot_general_config("nvfp4"), lambda: run(configs[:1] * 3)[0][0, 0, 0, 0, 0]):
        with pytest.raises((ValueError, IndexError)):
            bad()


@pytest.mark.parametrize("contract", [((1, 2), (0, 1)), ((2, 1), (1, 0)), ((1, 2), (1, 0)), ((3, 1, 2), (2, 0, 1))])
def test_gradients_of_products_over_several_dimensions(contract):
    rng = np.random.default_rng(1)
    sizes = dict(zip(contract[0], (4, 8, 16), strict=False))
    left = [32, *(sizes.get(d, 32) for d in (1, 2, 3))]
    right = [left[contract[0][contract[1].index(d)]] for d in range(len(contract[1]))] + [32]
    x, y = (rng.normal(size=s).astype(np.float32) for s in (left, right))
    numbers = (contract, ((), ()))
    configs = [nx.nn.get_scaled_dot_general_config("mxfp8")] * 3
    loss = lambda x, y, c: (nx.nn.scaled_dot_general(x, y, numbers, configs=c) ** 2).sum()
    for got, want in zip(*(nx.grad(loss, (0, 1))(x, y, c) for c in (configs, None)), strict=True):
        assert np.linalg.norm(got - want) < 0.1 * np.linalg.norm(want)
