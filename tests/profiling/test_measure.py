"""Profiles and estimates: what they say is what the program does."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
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
