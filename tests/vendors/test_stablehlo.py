"""StableHLO artifacts: the whole language, checked by StableHLO's own verifier, the same bits on the host."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.backends import target_registry as registry
from nxjax.errors import LoweringError, ParameterError
from nxjax.vendors.stablehlo import TARGETS

RNG = np.random.default_rng(0)
P = {"w": RNG.normal(size=(8, 8)).astype(np.float32)}
X = RNG.normal(size=(4, 8)).astype(np.float32)


def model(p, x):
    return nx.nn.softmax(nx.nn.relu(x @ p["w"]) @ p["w"], -1)


@pytest.mark.parametrize("form", ["text", "portable"])
@pytest.mark.parametrize("target", [t.name for t in TARGETS])
def test_quantized_functions_keep_their_bits(target, form):
    qf = nx.quantize(model, "int8", calibrate=[(P, X)])
    artifact = nx.compile(qf, target=target, form=form)(P, X)
    assert artifact.label == "emitted" and artifact.deviation.exact and "host" in artifact.runs_on
    assert next(iter(artifact.files)) == ("model.mlir" if form == "text" else "model.mlirbc")
    np.testing.assert_array_equal(artifact.run(-X), qf(P, -X))
    np.testing.assert_array_equal(artifact.reference(-X), qf(P, -X))
    assert artifact.report.share == artifact.report.mac_share == 0
    assert {(r.device, r.decided_by) for r in artifact.report.rows} == {("unknown", "nobody")}
    assert "%" not in artifact.report.summary() and artifact.report.rests_on == "nothing"
    assert sum(r.macs for r in artifact.report.rows) == 2 * 4 * 8 * 8


def test_weights_are_stored_as_int8():
    w = RNG.normal(size=(128, 64)).astype(np.float32)
    qf = nx.quantize(lambda p, x: x @ p["w"], "int8", calibrate=[({"w": w}, w.T)])
    artifact = nx.compile(qf, target="stablehlo", form="portable")({"w": w}, w.T)
    assert w.size < len(artifact.bytes) < 1.5 * w.size


def test_all_of_the_language_has_a_place():
    def f(x):
        y = jnp.sort(nx.scipy.special.erf(x), 0)
        return lax.while_loop(lambda c: c.sum() < 40, lambda c: c + 1, y), jnp.linalg.inv(x.T @ x + jnp.eye(8)), x > 0

    artifact = nx.compile(f, target="stablehlo")(X)
    assert {"sort", "while"} <= {r.op for r in artifact.report.rows}
    assert "test_stablehlo.py" in str(artifact.report.rows[0].source)
    for got, wanted in zip(artifact.run(X), f(X), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_what_calls_back_is_refused_with_its_line():
    def f(x):
        return lax.scan(lambda c, _: (nx.pure_callback(np.sin, c, c), None), x, None, length=99)[0] * 2

    with pytest.raises(LoweringError, match=r"test_stablehlo\.py"):
        nx.compile(f, target="stablehlo")(X)
    report = nx.explain(f, target="stablehlo")(X)
    assert [r.device for r in report.rows if r.op in ("scan", "mul")] == ["host", "unknown"]
    with pytest.raises(nx.errors.PlacementError, match="pure_callback"):
        nx.compile(f, target="stablehlo", strict=True)(X)


def test_without_jaxlib_the_text_is_written(monkeypatch):
    with_it = nx.compile(lambda x: x * 2, target="stablehlo")(X)
    monkeypatch.setattr("nxjax.backends.xla.client.available", lambda: (False, "no jaxlib"))
    artifact = nx.compile(lambda x: x * 2, target="stablehlo")(X)
    assert b"stablehlo.multiply" in artifact.bytes and b"stablehlo.multiply" in with_it.bytes
    assert artifact.deviation is None and "no jaxlib" in artifact.notes[0]
    monkeypatch.setattr("nxjax.backends.extras.installed", lambda _: False)
    with pytest.raises(nx.errors.MissingExtraError, match=r"nxjax\[xla\]"):
        nx.compile(lambda x: x * 2, target="stablehlo", form="portable")(X)


def test_options():
    for wrong in ({"form": "json"}, {"version": "1.0.0"}, {"form": "portable", "version": 1}, {"opset": 17}):
        with pytest.raises(ParameterError, match="stablehlo"):
            nx.compile(jnp.sin, target="stablehlo", **wrong)(X)
    assert "1.0.0" in str(nx.compile(jnp.sin, target="stablehlo", form="portable", version="1.0.0")(X).notes)


def test_it_is_no_npu():
    with pytest.raises(ParameterError, match="file format"):
        registry.npu("stablehlo", "simulate")
