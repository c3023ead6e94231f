"""Calls with known and unknown arguments in a user's own rule are cut in two."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.trace.evaluate import evaluate
from nxjax.transforms.partial_eval import partial_eval

# The slope cos(x) by a jitted function of both, and what is in it: calls of what is known, of what is not, of both.
TWO = np.float32(2)
WAYS = {
    "flat": lambda x, t: jnp.cos(x) * t,
    "known inside": lambda x, t: nx.jit(jnp.cos)(x) * t,
    "unknown inside": lambda x, t: nx.jit(lambda t: t * 2)(t) * jnp.cos(x) / 2,
    "both inside": lambda x, t: nx.jit(lambda a, b: a * b)(jnp.cos(x), t),
    "both give both": lambda x, t: (y := nx.jit(lambda a, b: (jnp.cos(a), b * a, a))(x, t))[0] * t + 0 * y[1] * y[2],
    "nothing is known": lambda x, t: nx.jit(lambda a, b: b * 1.0)(x, t) * jnp.cos(x),
    "what comes through": lambda x, t: (
        nx.jit(lambda a, b: (b, a))(jnp.cos(x), t)[0] * nx.jit(lambda b, a: a)(t, jnp.cos(x))
    ),
    "with a constant": lambda x, t: nx.jit(lambda a, b: jnp.asarray([2.0, 3.0])[0] * b * a)(jnp.cos(x), t) / TWO,
    "two deep": lambda x, t: nx.jit(lambda a, b: nx.jit(lambda c, d: (c + 0, d * jnp.cos(c)))(a, b)[1])(x, t),
    "twice": lambda x, t: (g := nx.jit(lambda a, b: a * b))(jnp.cos(x), t) / 2 + g(t, jnp.cos(x)) / 2,
}


def called(program):
    inside = [p for e in program.equations for p in e.programs()]
    return {e.op.name for e in program.equations}.union(*map(called, inside))


def sine(way, ahead=False):
    both = nx.jit(lambda x, t: (jnp.sin(x), WAYS[way](x, t), x + 1) if ahead else (WAYS[way](x, t),))

    @nx.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        found = both(primals[0], tangents[0])
        return (found[0], found[1]) if ahead else (jnp.sin(primals[0]), found[0])

    return f


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_slopes_by_calls_of_both(way, ahead):
    f, x, t = sine(way, ahead), np.float32(0.3), np.float32(0.7)
    y, push = nx.linearize(f, x)
    np.testing.assert_allclose([y, push(t), push(2 * t)], [np.sin(x), np.cos(x) * t, 2 * np.cos(x) * t], rtol=1e-6)
    # What is known is computed once.
    assert not {"sin", "cos"} & called(nx.make_jaxpr(push)(t))
    for grad in (nx.grad(f), nx.jit(nx.grad(f)), nx.grad(nx.jit(f))):
        np.testing.assert_allclose(grad(x), np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(nx.grad(nx.grad(f))(x), -np.sin(x), rtol=1e-6)
    xs = np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(nx.vmap(nx.grad(f))(xs), np.cos(xs), rtol=1e-6)
    np.testing.assert_allclose(nx.grad(lambda v: f(v).sum())(xs), np.cos(xs), rtol=1e-6)


@pytest.mark.parametrize("unknown", [(True, False), (False, True), (True, True), (False, False)], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_halves_give_what_the_whole_gives(way, unknown):
    x, t = np.float32(0.3), np.float32(0.7)
    whole, consts = nx.make_jaxpr(lambda x, t: (WAYS[way](x, t), x * 2, t + 1))(x, t).hoist_consts()
    values = [*(c.numpy() for c in consts), x, t]
    mask = (*(True for _ in consts), *(not u for u in unknown))
    halves = partial_eval(whole, mask)
    inputs = [v for v, k in zip(values, mask, strict=True) if k]
    first = evaluate(halves.known.check(), inputs)
    late = [v for v, k in zip(values, mask, strict=True) if not k]
    second = iter(evaluate(halves.unknown.check(), [*halves.residuals(inputs, first), *late]))
    ready = iter(first)
    for is_known, wanted in zip(halves.known_out, evaluate(whole, values), strict=True):
        np.testing.assert_array_equal(next(ready) if is_known else next(second), wanted)
    assert halves.known_out[1:] == tuple(not u for u in unknown)


@nx.custom_jvp
def stepped(x):
    return jnp.floor(x)


@stepped.defjvp
def _slope_of_stepped(primals, tangents):
    nx.debug.print("tangent {}", tangents[0])
    return stepped(*primals), jnp.zeros_like(tangents[0])


# Functions whose results are all known, and what of them is not is an effect only.
EFFECTS = {
    "jit": nx.jit(lambda x: stepped(x)),
    "checkpoint": nx.checkpoint(lambda x: stepped(x)),
    "scan": lambda x: lax.scan(lambda c, _: (c + stepped(x), None), 0.0, None, length=1)[0],
    "cond": lambda x: lax.cond(x > 0, lambda x: stepped(x), lambda x: 0 * x, x),
    "cond of several": lambda x: nx.vmap(lambda p: lax.cond(p, lambda: stepped(x), lambda: 0 * x))(jnp.ones(1, bool)),
    "while_loop": lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] + stepped(x)), (0, 0.0))[1],
}


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_on_a_tangent_happens_even_if_every_result_is_known(name, capfd):
    _, push = nx.linearize(EFFECTS[name], 3.0)
    nx.effects_barrier()
    assert "tangent" not in capfd.readouterr().out
    push(2.0)
    nx.effects_barrier()
    assert capfd.readouterr().out.count("tangent 2.0") == 1
