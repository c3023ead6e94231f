"""`debug_key_reuse`: a key used twice is found eagerly, in programs and in loops; what is fine passes."""

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import random
from nxjax.ad_checkpoint import checkpoint_name
from nxjax.errors import KeyReuseError


def two_draws():
    key = random.key(0)
    first = random.normal(key)
    return first + random.uniform(key)


def used_after_split():
    key = random.key(0)
    random.split(key)
    return random.normal(key)


def raw():
    key = random.PRNGKey(0)
    return random.normal(key) + random.normal(key)


def same_element():
    keys = random.split(random.key(0), 3)
    return random.normal(keys[0]) + random.normal(keys[1]) + random.normal(keys[0])


def closed_over():
    key = random.key(0)
    return nx.lax.scan(lambda c, _: (c + random.normal(key), None), 0.0, None, length=3)


def carried():
    return nx.lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] + random.normal(c[0])), (random.key(0), 0.0))


def mapped():
    return nx.vmap(lambda k: random.normal(k) + random.uniform(k))(random.split(random.key(0), 3))


def joined():
    key = random.key(0)
    return random.normal(jnp.concatenate([key[None], random.key(1)[None]])[0]) + random.normal(key)


def stacked():
    key = random.key(0)
    return random.normal(jnp.stack([key, random.key(1)])[0]) + random.normal(key)


def chosen():
    key = random.key(0)
    return random.normal(jnp.where(jnp.sum(jnp.arange(3)) > 0, key, random.key(1))) + random.normal(key)


def named():
    key = random.key(0)
    return random.normal(checkpoint_name(key, "k")) + random.normal(key)


def held_back():
    key = random.key(0)
    return random.normal(nx.lax.optimization_barrier(key)) + random.normal(key)


def indexed():
    keys = random.split(random.key(0), 3)
    at = lambda: nx.lax.dynamic_index_in_dim(keys, 1, keepdims=False)
    return random.normal(at()) + random.normal(at())


def fine():
    key = random.key(0)
    for _ in range(2):
        key, sub = random.split(key)
        random.normal(sub, (3,))
    random.normal(random.clone(sub)), random.normal(random.fold_in(key, 3)), random.normal(random.fold_in(key, 4))
    keys = random.split(key, 4)
    nx.vmap(random.normal)(keys[:2])
    for k in keys[2:]:
        random.normal(k)

    def body(carry, _):
        key, x = carry
        key, sub = random.split(key)
        return (key, nx.lax.cond(x > 0, lambda: x + random.normal(sub), lambda: x - random.uniform(sub))), None

    (_, x), _ = nx.lax.scan(body, (random.key(1), 0.0), None, length=3)
    random.poisson(random.key(2), 3.0)
    return x


def dropped(x, key):
    def body(c, k):
        return jnp.sin(c * random.bernoulli(k, 0.5, (3,))), None

    return nx.lax.scan(nx.checkpoint(body), x, random.split(key, 3))[0].sum()


def test_reuse_is_found():
    for f in (two_draws, used_after_split, raw, same_element, closed_over, carried, mapped):
        for g in (f, nx.jit(f)):
            with pytest.raises(KeyReuseError) as caught, nx.debug_key_reuse(True):
                g()
            assert caught.value.more[0][0] == "first use"
            assert caught.value.source.function.startswith(f.__name__)
    for f in (joined, stacked, chosen, named, held_back, indexed):
        with pytest.raises(KeyReuseError), nx.debug_key_reuse(True):
            nx.jit(f)()
    two_draws()


def test_lines_and_calls():
    with pytest.raises(TypeError) as caught, nx.debug_key_reuse(True):
        two_draws()
    text = str(caught.value)
    assert "return first + random.uniform(key)" in text and "first = random.normal(key)" in text
    f, key = nx.jit(lambda k: random.normal(k)), random.key(0)
    with nx.debug_key_reuse(True):
        f(key)
        with pytest.raises(KeyReuseError):
            f(key)


def test_what_is_fine_passes():
    with nx.debug_key_reuse(True):
        fine(), nx.jit(fine)()
        nx.jit(nx.grad(dropped))(jnp.ones(3), random.key(0))
