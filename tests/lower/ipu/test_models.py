"""Whole models and their gradients on tiles, training steps, and random programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.lower.ipu.interpret import IpuInterpreter
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Copy, Execute, Repeat
from nxjax.lower.ipu.verify import verify
from nxjax.testing import random_program
from tests.lower.ipu.cases import TINY, WHOLE, check, integers, lax, normal

LAYERS = [
    (normal(20, 16) * 0.3, normal(16)),
    (normal(16, 10) * 0.3, normal(10)),
]


def loss(params, x, labels):
    for w, b in params[:-1]:
        x = nx.nn.relu(x @ w + b)
    w, b = params[-1]
    return -nx.mean(nx.sum(nx.nn.log_softmax(x @ w + b) * nx.nn.one_hot(labels, 10), -1))


def train(params, x, labels):
    value, grads = nx.value_and_grad(loss)(params, x, labels)
    return nx.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads), value


@pytest.mark.parametrize("system", [TINY, WHOLE], ids=lambda s: s.name)
def test_a_training_step(system):
    check(train, LAYERS, normal(6, 20), integers(0, 10, (6,)), system=system, donate=range(4))


def test_parameters_stay_between_runs():
    x, labels = normal(6, 20), integers(0, 10, (6,))
    leaves = nx.tree_util.tree_leaves(LAYERS)
    tree = nx.tree_util.tree_structure(LAYERS)
    program = nx.make_jaxpr(
        lambda *v: nx.tree_util.tree_leaves(train(nx.tree_util.tree_unflatten(tree, v[:4]), *v[4:]))
    )(*leaves, x, labels)
    lowered = verify(lower(program, TINY, donate=range(4)))
    assert lowered.aliases == {0: 0, 1: 1, 2: 2, 3: 3}
    machine = IpuInterpreter(lowered)
    params = [np.asarray(p) for p in leaves]
    for _ in range(3):
        *params, value = machine.run([*params, x, labels])
    wanted = LAYERS
    for _ in range(3):
        wanted, last = train(wanted, x, labels)
    np.testing.assert_allclose(value, last.numpy(), rtol=1e-4)
    for p, w in zip(params, nx.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(p, w.numpy(), rtol=1e-3, atol=1e-5)


def test_a_convolutional_net():
    def f(kernel, x):
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = lax.reduce_window(nx.nn.relu(y), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return nx.sum(y**2)

    check(nx.value_and_grad(f, argnums=(0, 1)), normal(3, 3, 3, 4) * 0.3, normal(2, 6, 6, 3), rtol=1e-4)


def test_a_transformer_block():
    size = 16
    params = {k: normal(size, size) * 0.2 for k in "qkvo"} | {"g": normal(size), "w": normal(size, 32) * 0.2}

    def block(p, x):
        h = (x - nx.mean(x, -1, keepdims=True)) / nx.sqrt(nx.var(x, -1, keepdims=True) + 1e-5) * p["g"]
        q, k, v = ((h @ p[name]).reshape(*x.shape[:2], 2, size // 2) for name in "qkv")
        x = x + nx.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ p["o"]
        return nx.sum((x + nx.nn.gelu(x @ p["w"]) @ p["w"].T) ** 2)

    check(nx.value_and_grad(block), params, normal(2, 5, size), rtol=1e-4)


def test_a_recurrent_net():
    def f(w, xs):
        def cell(h, x):
            h = nx.tanh(h @ w + x)
            return h, h

        return nx.sum(lax.scan(cell, nx.zeros(5), xs)[1] ** 2)

    program = check(nx.value_and_grad(f), normal(5, 5) * 0.4, normal(9, 5), rtol=1e-4)
    assert [s.count for s in program.steps if isinstance(s, Repeat)] == [9, 9]


def test_an_embedding():
    f = lambda table, i: nx.sum(nx.tanh(table[i]) ** 2)
    check(nx.value_and_grad(f), normal(50, 6), integers(0, 50, (4, 3)), rtol=1e-4)


def test_an_optimizer_is_one_compute_set():
    def adam(p, m, v, g):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (nx.sqrt(v) + 1e-8), m, v

    x = normal(30, 7)
    program = check(adam, x, x + 1, abs(x), x * 2, donate=(0, 1, 2))
    assert sum(isinstance(s, Execute) for s in program.steps) == 1
    # What is left is local: new parameters lie where the old ones do.
    (copy,) = (s for s in program.steps if isinstance(s, Copy))
    for source, target in copy.pairs:
        np.testing.assert_array_equal(source.variable.tiles(), target.variable.tiles())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs(data):
    made = random_program(lambda n: data.draw(st.integers(0, n - 1)), 10)
    check(lambda *xs: made(*xs), *made.args, rtol=1e-3)
