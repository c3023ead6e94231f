"""Real models, quantized, on Ethos-U by the real Vela and on the Edge TPU by its rules: all of them, not most."""

import numpy as np
import pytest

import nxjax as nx
from benchmarks.models import MODELS
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.lower.npu.memory import check_limit, plan, reorder
from nxjax.vendors.arm.ethosu import TARGETS
from nxjax.vendors.google.edgetpu import EdgeTpu

pytest.importorskip("ethosu")


def graph(name):
    model = MODELS[name]
    params, x = model.init(0), model.example(0)

    def f(x):
        return model.apply(params, x)

    quantized = nx.quantize(f, "int8", calibrate=[(x,)])
    return lower(nx.make_jaxpr(quantized)(x), name, io="integer")


@pytest.mark.parametrize("name", ["ds_cnn", "mobilenet_v2", "resnet50"])
def test_whole_models_run_on_the_npu(name):
    g = graph(name)
    u55 = next(cls for cls in TARGETS if cls.name == "ethos-u55")()
    build = u55.build(g, {})
    assert build.label == "vendor-compiled"
    assert [(p.device, p.decided_by) for p in build.placements] == [("npu", "vendor")] * len(g.nodes)
    assert [p.device for p in u55.placed(g)] == ["npu"] * len(g.nodes)
    rows = EdgeTpu().placed(g)
    assert [p.reason for p in rows if p.device != "npu"] == []
    # Every row names the user's own line.
    assert all(p.source is not None and "benchmarks" in p.source.file for p in build.placements)
    # The vendor's own planner and ours agree about the arena: it keeps a few extra bytes for itself.
    ours = plan(g)
    assert ours.peak == ours.bound and check_limit(ours, ours.peak)
    assert 0.95 * ours.peak <= build.cost["sram peak"].value <= 1.5 * ours.peak
    assert plan(reorder(g)).peak <= ours.peak
    if name == "ds_cnn":
        x = np.random.default_rng(0).integers(-128, 128, g.inputs[0].shape).astype(np.int8)
        np.testing.assert_array_equal(build.run([x])[0], interpret(g, [x])[0])
