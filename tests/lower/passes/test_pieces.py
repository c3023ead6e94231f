"""Elementwise ops on concatenations, piece by piece."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.pieces import LARGE, MOST, in_pieces
from nxjax.lower.passes.simplify import simplified

X = np.linspace(-2, 2, 7, dtype=np.float32)


def names(function, *args):
    program, _ = nx.make_jaxpr(function)(*args).hoist_consts()
    return [e.op.name for e in simplified(program).equations]


def lorenz(s):
    x, y, z = s[0], s[1], s[2]
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def test_what_is_stacked_scaled_and_taken_apart_is_never_stacked():
    def step(s):
        k = lorenz(s)
        return lorenz(s + 0.01 * k)

    assert names(step, jnp.ones(3)).count("concatenate") == 1
    assert names(step, jnp.ones((3, 5))).count("concatenate") == 1
    assert names(nx.vmap(step), jnp.ones((5, 3))).count("concatenate") == 1


def test_a_chain_of_elementwise_ops_is_concatenated_once():
    def chain(x):
        a, b = jnp.concatenate([x, x + 1]), jnp.concatenate([x * x, x])
        return jnp.exp(a) * b + 2

    found = names(chain, X)
    assert found.count("concatenate") == 1 and found[-1] == "concatenate"


def test_what_is_wanted_whole_elsewhere_stays_whole():
    def both(x):
        y = jnp.concatenate([x, x + 1])
        return y, jnp.exp(y)

    assert names(both, X).count("exp") == 1


def test_parts_of_large_results_are_read_where_they_lie():
    def waves(e, h):
        h = h + jnp.roll(e, -1, 0) - e
        return e + h - jnp.roll(h, 1, 0), h

    large, small = [names(waves, x, x).count("slice") for x in (jnp.ones((LARGE // 64, 64)), jnp.ones((3, 64)))]
    assert large == small + 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2 * jnp.concatenate([x, x]) + jnp.arange(14.0),
        lambda x: (jnp.concatenate([x, -x[:2]]) * 3)[4:8],  # across two pieces
        lambda x: (jnp.concatenate([x, -x[:2]]) * 3)[1:4],  # within one
        lambda x: (jnp.concatenate([x, -x[:2]]) * 3)[::2],
        lambda x: (jnp.concatenate([x[:, None], x[:, None]], 1) + 1)[2:3, 1:2],
        lambda x: jnp.concatenate([x, x[:0], x]) * 2,
        lambda x: jnp.concatenate([x] * (MOST + 1)) * 2,
        lambda x: jnp.where(jnp.concatenate([x, x]) > 0, jnp.concatenate([x, -x]), 1.0)[7:],
        lambda x: jnp.concatenate([x, x[:3]]) + jnp.concatenate([x[:3], x]),
        lambda x: (lambda y: (y[:7], y[7:], y.sum()))(jnp.tanh(jnp.concatenate([x, x + 1]))),
        lambda x: nx.lax.scan(lambda s, _: (s + 0.01 * lorenz(s), s), jnp.asarray(x[:3]), None, length=4),
        nx.grad(lambda x: jnp.sin(jnp.concatenate([x, 2 * x]) * 3)[5:9].sum()),
    ],
)
def test_results_keep_their_bits(function):
    program = nx.make_jaxpr(function)(X)
    other = in_pieces(program)
    other.check()
    assert other.out_types == program.out_types
    x = jnp.asarray(X)
    for got, expected in zip(other(x), program(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
