"""Profiles and estimates: what they say is what the program does."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import ParameterError


def network(x, w):
    with nx.named_scope("layer"):
        y = jnp.tanh(x @ w)
    return y.sum()


ARGS = (np.ones((32, 16), np.float32), np.ones((16, 8), np.float32))


def test_a_profile_has_times_lines_and_the_result():
    p = nx.profile(network, repeats=2)(*ARGS)
    assert p.measured
    np.testing.assert_allclose(p.result, np.tanh(ARGS[0] @ ARGS[1]).sum(), rtol=1e-6)
    assert all(r.calls == 1 for r in p.rows)
    assert 0 < sum(r.seconds for r in p.rows) <= p.seconds * 1.01
    assert len(p.spans) == len(p.rows)
    assert any("test_measure.py" in r.source for r in p.rows)
    assert any(r.scope == "layer" for r in p.rows)
    assert p.arguments == 32 * 16 * 4 + 16 * 8 * 4
    assert p.results == 4
    assert p.peak_bytes == p.arena + p.arguments + p.results


def test_rows_inside_a_loop_count_their_turns():
    p = nx.profile(lambda x: nx.lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) + i, x))(np.ones(100, np.float32))
    c = nx.cost(lambda x: nx.lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) + i, x))(np.ones(100, np.float32))
    assert [r.calls for r in p.rows] == [r.calls for r in c.rows] or any("while" in n for n in c.notes)


W, ROWS = np.ones((32, 32), np.float32), np.ones((8, 32), np.float32)
layer = lambda c: jnp.tanh(c @ W)
scanned = lambda n: lambda x: lax.scan(lambda c, _: (layer(c), None), x, None, length=n)[0]
turned = lambda n: lambda x: lax.fori_loop(0, n, lambda i, c: layer(c), x)
counted = lambda n: lambda x: lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, layer(s[1])), (n, x))[1]
ended = lambda x: lax.while_loop(lambda c: c.sum() > 1e-3, layer, x)
nested = lambda x: lax.fori_loop(0, 3, lambda i, c: scanned(5)(c), x)
batched = lambda f: lambda x: nx.vmap(f)(jnp.stack([x, x]))
slope = lambda f: nx.grad(lambda x: f(x).sum())
choice = lambda f, g: lambda x: lax.cond(x.sum() > 0, f, g, x)
# How often the layer's product is computed; None where data decide.
TURNS = {
    "scan": (scanned(10), 10), "fori_loop": (turned(10), 10), "while_loop": (counted(10), 10), "never": (turned(-2), 0),
    "data": (ended, None), "bound of data": (lambda x: turned(x[0, 0].astype(int))(x), None), "nested": (nested, 15),
    "nested, data": (lambda x: lax.fori_loop(0, 3, lambda i, c: ended(c), x), None),
    "nested, triangle": (lambda x: lax.fori_loop(0, 4, lambda i, c: turned(i)(c), x), None),
    "vmap": (batched(scanned(10)), 20), "vmap of while": (batched(counted(10)), 20),
    "vmap of data": (batched(ended), None), "vmap of nested": (batched(nested), 30),
    "first branch": (choice(scanned(7), layer), 7),
    "second branch": (choice(layer, scanned(7)), 7), "branch in a loop": (choice(lambda x: lax.fori_loop(
        0, 2, lambda i, c: choice(scanned(7), layer)(c), x), layer), 14),
    "branch of data": (choice(ended, scanned(7)), None), "other branch of data": (choice(scanned(7), ended), None),
}  # fmt: skip


@pytest.mark.parametrize("how", TURNS)
def test_an_estimate_counts_every_turn_or_says_that_it_cannot(how):
    f, turns = TURNS[how]
    found = nx.cost(f)(ROWS)
    products = sum(r.flops for r in found.rows if r.name.startswith("gem")) / (2 * 8 * 32 * 32)
    assert bool(found.open_loops) == (turns is None) and (turns is None or products == turns)
    # A slope has as many turns for each of its loops, there and back; data in a loop of unknown length have no slope.
    if turns and "while" not in how:
        back = nx.cost(slope(f))(ROWS)
        products = sum(r.flops for r in back.rows if r.name.startswith("gem")) / (2 * 8 * 32 * 32)
        assert not back.open_loops and products % turns == 0 and products >= 2 * turns


def test_an_estimate_needs_no_values():
    c = nx.cost(network)(nx.ShapeDtypeStruct((32, 16), "float32"), nx.ShapeDtypeStruct((16, 8), "float32"))
    assert not c.measured
    assert c.result is None
    assert not c.spans
    assert c.seconds == sum(r.seconds for r in c.rows)
    with pytest.raises(ParameterError, match="no timeline"):
        c.save_trace("trace.json")


def test_tables_name_every_kernel():
    p = nx.profile(network)(*ARGS)
    text, page = p.table(), p._repr_html_()
    for r in p.top(3):
        assert r.name in text
        assert r.name in page
    assert "GB/s" in text
    assert "<table>" in page
    assert json.loads(json.dumps(p.data()))["rows"][0]["name"] == p.rows[0].name


def test_the_trace_is_perfettos(tmp_path):
    p = nx.profile(network)(*ARGS)
    path = p.save_trace(tmp_path / "trace.json")
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(p.spans)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events)


def test_the_roofline_has_a_dot_for_every_kernel_that_computes():
    pytest.importorskip("matplotlib")
    p = nx.profile(network)(*ARGS)
    ax = p.roofline()
    assert len(ax.collections) == sum(bool(r.flops and r.nbytes and r.seconds) for r in p.rows)
    assert ax.get_xscale() == "log"


def test_jitted_functions_keep_their_static_arguments():
    f = nx.jit(lambda x, n: x * n, static_argnums=1)
    assert float(nx.profile(f)(np.float32(2), 3).result) == 6


def test_no_run_is_refused():
    with pytest.raises(ParameterError, match="repeats"):
        nx.profile(network, repeats=0)


def test_a_convolution_reads_no_more_than_its_operands():
    x, w = jnp.ones((1, 1, 1, 44100)), jnp.ones((36, 1, 1, 256))
    found = nx.profile(lambda x, w: nx.lax.conv_general_dilated(x, w, (1, 256), [(0, 0), (0, 0)]))(x, w)
    (row,) = [r for r in found.rows if r.name.startswith("conv")]
    assert row.nbytes / row.calls <= 4 * (44100 + 36 * 256 + 36 * 172)
