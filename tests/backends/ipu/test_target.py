"""IPU systems as targets and the model as a device, as a user meets them."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry
from nxjax.backends.ipu import detect
from nxjax.backends.ipu import engine as engines
from nxjax.backends.ipu import target as targets
from nxjax.config import config
from nxjax.errors import ExecutionError, ParameterError, TileMemoryError, UnsupportedOpsError
from nxjax.kernels.ipu.chip import SYSTEMS
from nxjax.kernels.ipu.host import MeaningLibrary
from nxjax.lower.ipu.interpret import interpret
from nxjax.lower.ipu.lower import lower

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(autouse=True)
def meanings(monkeypatch: pytest.MonkeyPatch):
    """No compiler is needed: codelets have tests of their own."""
    for module in (engines, targets):
        monkeypatch.setattr(module, "runner", lambda *_, **__: MeaningLibrary())


def layer(w, x):
    with nx.named_scope("layer"):
        return jnp.tanh(x @ w)


def test_every_system_is_a_target():
    found = {t.name: t for t in nx.targets() if t.format == "ipu"}
    assert set(found) == {f"ipu-{s}" for s in SYSTEMS}
    assert all(t.label == "own-model" and "model" in t.title for t in found.values())


@pytest.mark.parametrize("name", ["ipu-gc2", "ipu-gc200", "ipu-bow", "ipu"])
def test_compile_and_run(name: str):
    a = nx.compile(layer, target=name)(W, X)
    assert a.label == "own-model" and "model" in a.runs_on
    np.testing.assert_allclose(np.asarray(a.run(W, X)), np.tanh(X @ W), rtol=1e-5, atol=1e-6)
    assert a.deviation is not None and a.deviation.max_error < 1e-5
    assert np.asarray(a.run(W, X)).tobytes() == np.asarray(a.run(W, X)).tobytes()
    assert np.asarray(a.reference(W, X)).shape == (6, 4)
    assert all(f.basis == "model" for f in a.cost.figures.values())
    chip = SYSTEMS[name.removeprefix("ipu-") if name != "ipu" else "bow"].chip
    assert a.cost["chip time"].value == pytest.approx(a.cost["cycles"].value / chip.clock)
    assert 0 < a.cost["peak tile memory"].value < a.cost["tile memory"].value == chip.memory


def test_reports_name_lines_and_scopes():
    a = nx.compile(layer, target="ipu-bow")(W, X)
    assert {r.device for r in a.report.rows} == {"ipu"} and {r.scope for r in a.report.rows} == {"layer"}
    assert {r.reason for r in a.report.rows} <= {"rule", "fused elementwise", "expansion"}
    text = str(a.report)
    assert "test_target.py" in text and "cycles (model)" in text and "tile memory" in text and "(own-model)" in text
    data = json.loads(json.dumps(a.report.to_dict()))
    assert data["analysis"]["system"]["tiles"] == 1472
    assert a.report.svg().startswith("<svg") and a.report._repr_html_()
    model = a.report.analysis
    assert sum(r.cycles for r in model.cycles.rows()) == model.cycles.device
    assert json.loads(model.trace())["otherData"]["basis"].startswith("model")


def test_files_are_text_and_a_project():
    a = nx.compile(layer, target="ipu-bow")(W, X)
    names = list(a.files)
    assert names[0] == "layer.ipu.txt" and "layer.poplar/main.cpp" in names
    assert a.bytes.decode().startswith("program layer")


def test_constants_stay_on_the_chip():
    streamed = nx.compile(layer, target="ipu-bow")(W, X).cost["host cycles"].value
    held = nx.compile(layer, target="ipu-bow", constants=(0,))(W, X)
    assert held.cost["host cycles"].value < streamed
    np.testing.assert_allclose(np.asarray(held.run(X)), np.tanh(X @ W), rtol=1e-5, atol=1e-6)


def test_donated_inputs_stay_on_the_chip():
    step = lambda w, x: (w - 0.1 * (x.T @ (x @ w)), jnp.sum(w))
    a = nx.compile(step, target="ipu-bow", donate=0)(W, X)
    b = nx.compile(step, target="ipu-bow")(W, X)
    assert a.cost["host cycles"].value < b.cost["host cycles"].value
    for x, y in zip(a.run(W, X), b.run(W, X), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_precisions():
    exact = np.tanh(X @ W)
    half = nx.compile(layer, target="ipu-bow", precision="float16", partials="half")(W, X)
    mixed = nx.compile(layer, target="ipu-bow", precision="mixed")(W, X)
    for a in (half, mixed):
        y = np.asarray(a.run(W, X))
        assert y.dtype == np.float32 and 0 < np.abs(y - exact).max() < 5e-3


def test_loops_are_counted_when_they_ran():
    f = lambda x, n: nx.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]
    a = nx.compile(f, target="ipu-bow", verify=False)(X, jnp.int32(5))
    before = a.cost["cycles"].value
    assert any("counted once" in n for n in a.notes) and not a.report.analysis.cycles.measured
    assert a.cost.time is None and a.cost.why.startswith("unknown: loop")
    np.testing.assert_array_equal(np.asarray(a.run(X, jnp.int32(5))), X * 32)
    ran = a.cost["cycles"].value
    assert ran > before and a.report.analysis.cycles.measured
    # A plain counter is known before it runs, and the run agrees.
    b = nx.compile(lambda x: f(x, 5), target="ipu-bow", verify=False)(X)
    known = b.cost["cycles"].value
    assert b.report.analysis.cycles.measured and not any("counted once" in n for n in b.notes)
    assert b.cost.time is not None and not b.cost.why.startswith("unknown")
    b.run(X)
    assert b.cost["cycles"].value == known


def test_compile_only_and_types_alone():
    a = nx.compile(layer, target="ipu-bow", compile_only=True)(W, nx.ShapeDtypeStruct((6, 8), jnp.float32))
    assert a.runs_on == "" and a.deviation is None and a.cost["cycles"].value > 0


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int4"},
        {"partials": 16},
        {"available_memory_proportion": 0},
        {"available_memory_proportion": True},
        {"stochastic_rounding": 1},
        {"num_ipus": 0},
        {"seed": -1},
        {"donate": 7},
        {"tiles": 4},
    ],
)
def test_options_are_checked(options: dict):
    with pytest.raises(ParameterError, match="ipu-bow"):
        nx.compile(layer, target="ipu-bow", **options)(W, X)


def test_too_large_programs_fail_before_they_run():
    def outer(x):
        return jnp.exp(x)[:, None] * x

    with pytest.raises(TileMemoryError) as caught:
        nx.compile(outer, target="ipu-gc2")(nx.ShapeDtypeStruct((12000,), jnp.float32))
    text = str(caught.value)
    assert "float32[12000, 12000]" in text and "test_target.py" in text and "num_ipus" in text
    with pytest.raises(TileMemoryError):
        nx.jit(outer, device="ipu")(jnp.ones(20000))


def test_what_tiles_cannot_run_is_listed():
    f = lambda x: jnp.sum(x.astype(jnp.complex64) * 1j)
    with pytest.raises(UnsupportedOpsError, match="complex"):
        nx.compile(f, target="ipu-bow")(X)
    report = nx.explain(f, target="ipu-bow")(X)
    assert any(r.device == "host" and "complex" in r.reason for r in report.rows)


def test_the_model_as_a_device():
    y = nx.jit(layer, device="ipu")(W, X)
    np.testing.assert_allclose(np.asarray(y), np.tanh(X @ W), rtol=1e-5, atol=1e-6)
    compiled = nx.jit(layer, device="ipu").lower(W, X).compile()
    assert compiled.cost_analysis()["cycles"] > 0 and compiled.memory_analysis().fits
    assert "execute" in compiled.as_text()


def test_the_model_is_no_hardware():
    assert not [d for d in nx.devices() if d.platform == "ipu"]
    assert [str(d) for d in nx.devices("ipu")] == ["ipu:0"]
    with config.using(ipu_model="m2000"):
        assert [str(d) for d in nx.devices() if d.platform == "ipu"] == [f"ipu:{i}" for i in range(4)]
    with config.using(ipu_model="mk9"), pytest.raises(ExecutionError, match="mk9"):
        nx.devices("ipu")


def test_training_on_the_model():
    def loss(w, x):
        return jnp.mean(layer(w, x) ** 2)

    step = nx.jit(lambda w, x: (w - 0.5 * nx.grad(loss)(w, x), loss(w, x)), device="ipu", donate_argnums=0)
    plain = nx.jit(lambda w, x: (w - 0.5 * nx.grad(loss)(w, x), loss(w, x)))
    w, v = jnp.asarray(W), jnp.asarray(W)
    for _ in range(5):
        w, here = step(w, X)
        v, there = plain(v, X)
        assert float(here) == pytest.approx(float(there), rel=1e-5)
    np.testing.assert_allclose(np.asarray(w), np.asarray(v), rtol=1e-4, atol=1e-6)


def test_random_keys_pass():
    f = lambda k, x: (nx.random.split(k)[0], x + nx.random.uniform(k, x.shape))
    k, y = nx.jit(f, device="ipu")(nx.random.key(3), X)
    wanted = f(nx.random.key(3), X)
    assert np.asarray(nx.random.key_data(k)).tolist() == np.asarray(nx.random.key_data(wanted[0])).tolist()
    np.testing.assert_allclose(np.asarray(y), np.asarray(wanted[1]), rtol=1e-6)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("POPLAR_SDK_ENABLED", raising=False)
    found = detect.hardware()
    assert not found.sdk and not found.usable and "gc-info" in found.reason and "POPLAR_SDK_ENABLED" in found.reason
    # A variable is no SDK: a compiler that has compiled something is.
    monkeypatch.setenv("POPLAR_SDK_ENABLED", "/sdk/poplar")
    assert not detect.hardware().sdk and not detect.hardware().usable


def test_results_do_not_depend_on_how_codelets_run():
    def net(x):
        y = nx.lax.scan(lambda c, r: (c * 0.5 + r, c), jnp.zeros(8), x)[1]
        return nx.nn.softmax(jnp.sin(y) @ W), jnp.sort(x, -1), nx.lax.cond(x[0, 0] > 0, jnp.negative, jnp.abs, x)

    program = lower(nx.make_jaxpr(net)(X), SYSTEMS["bow"])
    oracle = interpret(program, [X])
    for got, wanted in zip(engines.IpuEngine(program, MeaningLibrary()).run([X]), oracle, strict=True):
        assert got.tobytes() == wanted.tobytes()


def test_threads_share_a_device():
    f = nx.jit(layer, device="ipu")
    wanted = np.asarray(f(W, X))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: np.asarray(f(W, X * k)), [1, -1] * 8))
    for i, y in enumerate(found):
        np.testing.assert_array_equal(y, wanted if i % 2 == 0 else -wanted)


def test_what_does_not_fit_one_ipu_takes_several():
    f = lambda x: jnp.exp(x)[:, None] * x
    x = nx.ShapeDtypeStruct((12000,), jnp.float32)
    a = nx.compile(f, target="ipu-gc2", num_ipus=4, compile_only=True)(x)
    memory = a.report.analysis.memory
    assert memory.fits and len(memory.per_tile) == 4 * 1216 and memory.kinds["always"][3 * 1216 :].sum() > 0
    assert any("over the tiles of 4 IPUs" in n for n in a.notes)
    assert a.report.analysis.cycles.links > 0
    # One that fits stays on one.
    b = nx.compile(layer, target="ipu-c2")(W, X)
    assert b.report.analysis.memory.kinds["always"][1216:].sum() == 0 and not any(
        "over the tiles" in n for n in b.notes
    )
    with pytest.raises(TileMemoryError, match="num_ipus=4"):
        nx.compile(f, target="ipu-c2")(nx.ShapeDtypeStruct((13000,), jnp.float32))


def test_values_do_not_depend_on_how_many_ipus_there_are(monkeypatch: pytest.MonkeyPatch):
    system = SYSTEMS["c2"]
    tight = replace(system, chip=replace(system.chip, tiles=8, memory=12_000))
    monkeypatch.setattr(target_registry.get("ipu-c2").__class__, "system", tight)
    x = np.linspace(-1, 1, 96 * 96, dtype=np.float32).reshape(96, 96)
    f = lambda x: jnp.tanh(x) * x.T
    a = nx.compile(f, target="ipu-c2")(x)
    assert any("over the tiles of 2 IPUs" in n for n in a.notes)
    np.testing.assert_allclose(np.asarray(a.run(x)), np.tanh(x) * x.T, rtol=1e-5, atol=1e-6)
