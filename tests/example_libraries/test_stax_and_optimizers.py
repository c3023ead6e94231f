"""JAX's example libraries: the same weights, results, states and steps; old programs train."""

from functools import partial

import jax
import numpy as np
import pytest
from jax.example_libraries import optimizers as peer_optimizers
from jax.example_libraries import stax as peer_stax

import nxjax as nx
from nxjax.errors import ParameterError, TreeError
from nxjax.example_libraries import optimizers, stax

R = np.random.default_rng(0)
X = R.normal(size=(2, 4, 4, 3)).astype(np.float32)


def network(m):
    block = m.parallel(m.serial(m.Conv(3, (3, 3), padding="SAME"), m.BatchNorm(), m.Relu), m.Identity)
    half = m.shape_dependent(lambda shape: m.Conv(2 * shape[-1], (2, 2), strides=(2, 2)))
    pools = m.parallel(m.AvgPool((2, 2), padding="SAME"), m.MaxPool((2, 2), padding="SAME"), m.SumPool((1, 1)))
    parts = m.serial(m.FanOut(3), pools, m.FanInConcat())
    up = m.ConvTranspose(4, (2, 2), (2, 2))
    end = (m.Flatten, m.Dense(4), m.Dropout(0.9), m.Gelu, m.LogSoftmax)
    return m.serial(m.FanOut(2), block, m.FanInSum, half, parts, up, *end)


def test_networks_are_those_of_jax():
    (init, apply), (peer_init, peer_apply) = network(stax), network(peer_stax)
    shape, params = init(nx.random.key(3), (-1, 4, 4, 3))
    assert shape == (-1, 4)
    peer_params = jax.jit(lambda key: peer_init(key, X.shape)[1])(jax.random.key(3))
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(peer_params), strict=True):
        close(np.asarray(ours), np.asarray(theirs))
    close(apply(params, X, rng=nx.random.key(1)), jax.jit(peer_apply)(peer_params, X, rng=jax.random.key(1)))
    with pytest.raises(ParameterError, match="Dropout: needs a key"):
        apply(params, X)
    init, apply = stax.serial(stax.MaxPool((2, 2), spec="NCHW"), stax.Dropout(0.5, mode="test"))
    assert init(nx.random.key(0), (1, 3, 8, 8))[0] == (1, 3, 7, 7)
    assert apply(((), ()), np.ones((1, 3, 8, 8)), rng=nx.random.key(0)).shape == (1, 3, 7, 7)


STEPS = {
    "sgd": (0.1,), "momentum": (0.1, 0.9), "nesterov": (0.1, 0.9), "adagrad": (0.1,), "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1,), "adam": (0.1,), "adamax": (0.1,), "sm3": (0.1,),
}  # fmt: skip


def test_optimizers_step_as_those_of_jax():
    params = {"w": R.normal(size=(3, 2)).astype(np.float32)}
    gradients = [{"w": R.normal(size=(3, 2)).astype(np.float32)} for _ in range(3)]
    gradients[1]["w"][0] = 0
    decays = ("exponential_decay", (0.1, 2, 0.5)), ("inverse_time_decay", (0.1, 2, 0.5, True)), (
        "piecewise_constant", ([1], [0.1, 0.01])), ("polynomial_decay", (0.1, 2, 0.01, 2.0))  # fmt: skip

    sizes = [lambda m: 0.1, *(lambda m, n=n, a=a: getattr(m, n)(*a) for n, a in decays)]

    def run(m):
        found = {"norm": m.l2_norm(params)}
        for n, (name, options) in enumerate(STEPS.items()):
            init, update, get = getattr(m, name)(sizes[n % len(sizes)](m), *options[1:])
            state = init(params)
            for i, g in enumerate(gradients):
                state = update(i, m.clip_grads(g, 1.5), state)
            found[name] = get(m.pack_optimizer_state(m.unpack_optimizer_state(state)))["w"]
        return found

    ours, theirs = run(optimizers), jax.jit(lambda: run(peer_optimizers))()
    for name, y in ours.items():
        np.testing.assert_allclose(y, theirs[name], rtol=1e-5, err_msg=name)


def test_an_old_program_trains():
    init, predict = stax.serial(stax.Dense(16), stax.Tanh, stax.Dense(1))
    _, params = init(nx.random.PRNGKey(0), (-1, 2))
    x = R.normal(size=(64, 2)).astype(np.float32)
    y = (x[:, :1] * x[:, 1:]).astype(np.float32)
    opt_init, opt_update, get_params = optimizers.adam(0.03)

    def loss(p):
        return ((predict(p, x) - y) ** 2).mean()

    @nx.jit
    def step(i, state):
        return opt_update(i, nx.grad(loss)(get_params(state)), state)

    state = opt_init(params)
    for i in range(60):
        state = step(i, state)
    assert loss(get_params(state)) < 0.3 * loss(params)
    with pytest.raises(TreeError, match="not of the parameters"):
        opt_update(0, [1.0], state)
    with pytest.raises(TreeError, match="no JoinPoint"):
        optimizers.pack_optimizer_state({"w": 1.0})
    with pytest.raises(ParameterError, match="one value more"):
        optimizers.piecewise_constant([1, 2], [1.0])
    with pytest.raises(ParameterError, match="a number or a function"):
        optimizers.make_schedule([1.0, 2.0])
