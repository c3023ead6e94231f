"""How often loops go round: what is told before they run is what a run counts."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.lower.trip_count import trip_count

W = np.eye(16, dtype=np.float32)


def loop(test, step, first, dtype=np.int32):
    """A loop over a counter that counts its own turns."""
    start = (np.asarray(first, dtype)[()], 0, W)
    return lambda: lax.while_loop(lambda s: test(s[0]), lambda s: (step(s[0]), s[1] + 1, s[2] @ W), start)


def told(f, *args):
    return [trip_count(e) for e in nx.make_jaxpr(f)(*args).equations if e.op.name in ("while", "scan")]


KNOWN = {
    "less": loop(lambda i: i < 10, lambda i: i + 1, 0),
    "steps": loop(lambda i: i < 10, lambda i: i + 3, 0),
    "at most": loop(lambda i: i <= 10, lambda i: 5 + i, 0),
    "down": loop(lambda i: i > -2, lambda i: i - 4, 9),
    "at least": loop(lambda i: i >= 0, lambda i: i - 1, 3),
    "the other side": loop(lambda i: np.int32(7) > i, lambda i: i + 2, 0),
    "unequal": loop(lambda i: i != 6, lambda i: i + 2, 0),
    "never": loop(lambda i: i < 3, lambda i: i + 1, 3),
    "shifted": loop(lambda i: i + 1 < 10, lambda i: (i + 2) - 1, 0),
    "bytes": loop(lambda i: i < np.uint8(200), lambda i: i + np.uint8(7), 0, np.uint8),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_told_is_what_runs(name):
    (found,) = told(KNOWN[name])
    assert found == int(KNOWN[name]()[1])


def test_a_bound_that_the_loop_carries_or_is_given():
    carried = lambda: lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], s[2] @ W), (0, 12, W))[2]
    assert told(carried) == [12]
    assert told(lambda x: lax.fori_loop(2, 9, lambda i, x: x @ W, x), W) == [7]
    assert told(lambda x: lax.scan(lambda c, r: (c @ W, r), x, x)[0], W) == [16]


@pytest.mark.parametrize(
    "f",
    [
        lambda n: lax.fori_loop(0, n, lambda i, x: x @ W, W),
        lambda n: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + n, s[1] @ W), (0, W)),
        lambda n: lax.while_loop(lambda s: s[1].sum() < 10, lambda s: (s[0] + 1, s[1] * 2), (0, W)),
        lambda n: lax.while_loop(lambda s: (s[0] < 10) & (n > 0), lambda s: (s[0] + 1, s[1] @ W), (0, W)),
        lambda n: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] * 2, s[1] @ W), (1, W)),
        lambda n: lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1] - 1), (0, 10)),
        lambda n: lax.while_loop(lambda s: s < 1.0, lambda s: s + 0.1, 0.0),
        # It begins again at the other end of its dtype.
        lambda n: lax.while_loop(lambda i: i <= np.uint8(255), lambda i: i + np.uint8(1), np.uint8(0)),
        lambda n: lax.while_loop(lambda i: i != 5, lambda i: i + 2, 0),
        lambda n: lax.while_loop(lambda i: i >= 0, lambda i: i + 1, 0),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_guessed(f):
    assert told(f, jnp.int32(3)) == [None]


def test_every_cost_model_counts_a_loop_as_often_as_it_goes_round():
    """The CPU's, XLA's and the IPU's; a loop of unknown length counts once, and they say so."""
    body = lambda x: jnp.tanh(x @ W)
    once, inner = body, lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=5)[0]
    known = {
        8: lambda x: lax.fori_loop(0, 8, lambda i, c: body(c), x),
        10: lambda x: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, body(s[1])), (0, x))[1],
        35: lambda x: lax.fori_loop(0, 7, lambda i, c: inner(c), x),
        12: lambda x: lax.map(body, jnp.stack([x] * 12)).sum(0),
    }
    executors = ["cpu", *(["xla"] if nx.backends.registry.get("xla").available()[0] else [])]
    ipu = lambda f: nx.compile(f, target="ipu-bow", compile_only=True)(W).cost["flops"].value
    compiled = lambda f, device: nx.jit(f, device=device).lower(W).compile().cost_analysis()["flops"]
    for n, f in known.items():
        cost = nx.cost(f)(W)
        assert cost.flops == pytest.approx(n * nx.cost(once)(W).flops, rel=0.1) and not cost.notes
        assert ipu(f) == pytest.approx(n * ipu(once), rel=0.1)
        for device in executors:
            assert compiled(f, device) == pytest.approx(n * compiled(once, device), rel=0.1), device
    unknown = lambda x: lax.while_loop(lambda c: c.sum() < 10, body, x)
    assert "unknown length is counted once" in nx.cost(unknown)(W).notes[0]
    assert nx.cost(unknown)(W).flops < 2 * nx.cost(once)(W).flops


def test_what_decides_where_programs_are_cut_counts_turns_too():
    """Estimates of equations: a loop takes what its equations take in all turns, of a choice the dearest branch."""
    from nxjax.backends.hybrid.units import seconds_of
    from nxjax.backends.ipu.pipeline import cycles
    from nxjax.kernels.ipu.chip import system
    from nxjax.lower.pipeline.stages import cost

    chip = system("bow").chip
    for one in (seconds_of, cost, lambda e: cycles(e, chip)):
        whole = lambda f, one=one: sum(map(one, nx.make_jaxpr(f)(W).equations))
        for body in (jnp.tanh, lambda x: x @ W):
            loop = lambda n, body=body: lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=n)[0]
            assert whole(loop(50)) == pytest.approx(50 * whole(body), rel=0.05)
            assert whole(loop(50)) == pytest.approx(10 * whole(loop(5)))
        choice = lambda x: lax.cond(x.sum() > 0, lambda x: x @ W @ W, lambda x: x, x)
        assert whole(choice) >= whole(lambda x: x @ W @ W)
