"""Units by name, and what NPU targets make of regions: bits, borders, refusals."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry
from nxjax.backends.hybrid import trying
from nxjax.backends.hybrid.planner import Planner, PlanOptions, PlanSetting
from nxjax.backends.hybrid.trying import is_exact
from nxjax.backends.hybrid.unit import RegionRefused
from nxjax.backends.hybrid.units import NpuStep, NpuUnit, resolve, verdicts
from nxjax.errors import ParameterError
from nxjax.hybrid import History, Hybrid, plan
from nxjax.lower.npu.bind import bind
from nxjax.lower.placement import Verdict
from nxjax.trace.array import wrap
from nxjax.transforms.inline import inlined


def net(p, x):
    with nx.named_scope("conv"):
        dims = ("NHWC", "HWIO", "NHWC")
        y = nx.nn.relu(nx.lax.conv_general_dilated(x, p["k"], (1, 1), "SAME", dimension_numbers=dims) + p["a"])
    with nx.named_scope("dense"):
        return y.reshape(y.shape[0], -1) @ p["w"] + p["b"]


@pytest.fixture(scope="module")
def quantized():
    rng = np.random.default_rng(0)
    of = lambda *shape: nx.asarray(rng.normal(size=shape).astype(np.float32))
    p = {"k": of(3, 3, 2, 4), "a": of(4), "w": of(64, 5), "b": of(5)}
    x = of(3, 4, 4, 2)
    q = nx.quantize(net, "int8", calibrate=[(p, x)], progress=False)

    def f(p, x):
        y = q(p, x)
        return jnp.argmax(y, -1), y, jnp.tanh(y)

    return f, p, x


def test_an_integer_network_has_the_same_bits_wherever_its_regions_run(quantized):
    pytest.importorskip("ai_edge_litert")
    f, p, x = quantized
    want = nx.jit(f, device="reference")(p, x)
    for pins in ({}, {"conv": "tflite"}, {"dense": "tflite"}, {"conv": "tflite", "dense": "tflite", "tanh": "cpu"}):
        device = Hybrid("npu", "tflite", "cpu", pin=pins, measure=False, history=History(kept=False))
        g = nx.jit(f, device=device)
        got = g(p, x)
        for a, b in zip(got[:2], want[:2], strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert np.allclose(got[2], want[2], rtol=1e-5)
        found = plan(g)(p, x)
        for place in found.places:
            scopes = {e.scope for e in place.region.program.equations}
            assert all(pins.get(s, place.unit) == place.unit for s in scopes)
            assert not place.exact or set(place.takers) == {"tflite", "cpu"}
        device.close()
    # Weights that are stored as integers, and their scales, are weights too.
    q = nx.quantize(net, "int8", calibrate=[(p, x)], progress=False)
    device = Hybrid("tflite", "cpu", pin={"conv": "tflite"}, measure=False, history=History(kept=False))
    stored = q.quantize_params(p, x)
    y = nx.jit(q, device=device)(stored, x)
    assert np.asarray(y).tobytes() == np.asarray(q(p, x)).tobytes() and "tflite" in device.plan(q)(stored, x).assignment
    device.close()
    # Its unit fails: the host redoes the region, bit for bit.
    device = Hybrid("tflite", "cpu", pin={"conv": "tflite"}, measure=False, history=History(kept=False))
    g = nx.jit(f, device=device)
    assert "tflite" in device.plan(g)(p, x).assignment
    device.take_out("tflite")
    assert np.asarray(g(p, x)[1]).tobytes() == np.asarray(want[1]).tobytes()
    device.close()


def test_a_simulator_is_taken_by_name_only_and_never_stands_in(quantized):
    pytest.importorskip("onnxruntime_qnn")
    f, p, x = quantized
    _, missing = resolve(("npu", "cpu"))
    assert missing[0][0] == "npu" and "simulators=True" in missing[0][1]
    (allowed, _), _ = resolve(("npu", "cpu"), simulators=True)
    assert (allowed.name, allowed.label, allowed.exact) == ("npu", "vendor-simulator", False)
    device = Hybrid("qualcomm-htp", "cpu", pin={"dense": "qualcomm-htp"}, measure=False, history=History(kept=False))
    g = nx.jit(f, device=device)
    got, want = g(p, x), nx.jit(f)(p, x)
    step = np.abs(np.asarray(want[1])).max() / 100
    assert np.abs(np.asarray(got[1]) - np.asarray(want[1])).max() < 2 * step
    place = next(q for q in plan(g)(p, x).places if q.unit == "qualcomm-htp")
    assert place.takers == ("qualcomm-htp", "cpu") and place.on["qualcomm-htp"].prepared.label == "vendor-simulator"
    assert "vendor-simulator" in str(plan(g)(p, x))
    device.close()


def test_names_that_mean_nothing_here_say_why():
    units, missing = resolve(("intel-npu", "ethos-u55", "tpu-v4", "gpu", "tpu", "xla", "reference", "cpu"))
    assert [u.name for u in units][-3:] == ["xla", "reference", "cpu"]
    why = dict(missing)
    assert "whole machine" in why["tpu-v4"] and why.get("ethos-u55", "vendor-compiled").startswith(
        ("vendor-compiled", "emitted")
    )
    with pytest.raises(ParameterError, match="no such unit") as error:
        resolve(("qualcom-htp",))
    assert "qualcomm-htp" in str(error.value)
    units, _ = resolve(("cpu", "reference"), sessions={"cpu": 3})
    assert [u.lanes for u in units] == [3, 1] and all(u.probe() for u in units)


def test_a_target_says_of_each_equation_whether_it_takes_it(quantized):
    f, p, x = quantized
    program = inlined(nx.make_jaxpr(f)(p, x))
    leaves = nx.tree.leaves(p)
    setting = PlanSetting(resolve(("cpu",))[0], (), PlanOptions(), History(kept=False))
    known = Planner(bind(program, dict(enumerate(leaves))), setting).program
    said = {
        name: {
            e.op.name: v.ok
            for e, v in zip(known.equations, verdicts(target_registry.npu(name, ""), known), strict=True)
        }
        for name in ("tflite", "ethos-u55", "edgetpu")
    }
    for name in ("tflite", "ethos-u55"):
        # What moves values of a grid moves integers.
        assert said[name]["qconv"] and said[name]["qdot"] and said[name]["reshape"]
    assert not said["edgetpu"]["qconv"]  # a batch of three
    # Integers only: floats stay behind.
    assert said["tflite"]["tanh"] and not said["ethos-u55"]["tanh"]
    # Weights that are arguments are none.
    found = {
        e.op.name: v
        for e, v in zip(program.equations, verdicts(target_registry.npu("tflite", ""), program), strict=True)
    }
    assert not found["qconv"].ok and "not constant" in found["qconv"].reason
    effect = inlined(nx.make_jaxpr(lambda x: nx.debug.print("{}", x))(1.0))
    assert not verdicts(target_registry.npu("tflite", ""), effect)[0].ok
    exact = [e.op.name for e in known.equations if not is_exact(e)]
    assert set(exact) <= {"tanh"}


def test_what_the_tools_leave_to_the_host_is_refused_with_the_equation(quantized, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    _f, _p, x = quantized
    target = target_registry.npu("tflite", "")
    program = inlined(nx.make_jaxpr(lambda x: jnp.tanh(jnp.sin(x) * 2))(x))
    step = NpuStep(target, program)
    (y,) = step([x])
    assert np.allclose(y, jnp.tanh(jnp.sin(x) * 2), rtol=1e-5) and step.label == "host"
    # A chip of which the tools put nothing on silicon: every equation of these lines is blamed.
    monkeypatch.setattr(type(target), "host", False)
    with pytest.raises(RegionRefused, match="would not run on tflite") as error:
        NpuStep(target, program)
    assert error.value.numbers == tuple(range(len(program.equations)))


def test_a_unit_that_is_called_exact_and_is_not_is_found_out(quantized, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    f, p, x = quantized
    unit = NpuUnit("tflite", target_registry.npu("tflite", ""))
    right = NpuStep.__call__
    device = Hybrid(unit, "cpu", pin={"conv": "tflite"}, measure=False, history=History(kept=False))
    monkeypatch.setattr(NpuStep, "__call__", lambda self, args: [y * 1.25 for y in right(self, args)])
    with pytest.raises(nx.errors.PlacementError, match=r"differ from the integer reference|none of its units"):
        device.plan(f)(p, x)
    assert isinstance(Verdict(True), Verdict)


@pytest.mark.parametrize("lies", [False, True])
def test_a_large_region_is_compared_too_and_the_plan_says_with_what(lies, monkeypatch):
    """Of more multiply-accumulates than NumPy computes in a moment: with what the host's executor gives."""
    pytest.importorskip("ai_edge_litert")
    rng = np.random.default_rng(0)
    p, x = {"w": rng.normal(size=(512, 256)).astype(np.float32)}, rng.normal(size=(256, 512)).astype(np.float32)

    def f(p, x):
        with nx.named_scope("wide"):
            y = nx.nn.relu(x @ p["w"])
        # No sum: LiteRT's goes through float32, and is a step off where that decides the rounding.
        return y[:, :3].max(0)

    q = nx.quantize(f, "int8", calibrate=[(p, x)])
    assert trying.BY_NUMPY < 256 * 512 * 256
    unit = NpuUnit("tflite", target_registry.npu("tflite", ""))
    right, pinned = NpuStep.__call__, {"wide": "tflite"}
    device = Hybrid(unit, "cpu", pin=pinned, measure=False, history=History(kept=False))
    if lies:
        # One element of 65,536 off by one step of its grid.
        wrong = lambda y: wrap(
            np.where(np.arange(y.size).reshape(y.shape) == 77, np.nextafter(y, 9), y).astype(y.dtype)
        )
        monkeypatch.setattr(NpuStep, "__call__", lambda self, args: [wrong(y.numpy()) for y in right(self, args)])
        with pytest.raises(nx.errors.PlacementError, match="differ from the host's executor"):
            device.plan(q)(p, x)
        return
    plan = device.plan(q)(p, x)
    assert "tflite" in plan.assignment
    assert "on tflite: compared with the host's executor on random numbers, bit for bit" in str(plan)
    small = Hybrid("tflite", "cpu", pin=pinned, measure=False, history=History(kept=False)).plan(q)(p, x[:4])
    assert "on tflite: compared with the integer reference on random numbers, bit for bit" in str(small)
    floats = Hybrid("tflite", "cpu", pin=pinned, measure=False, history=History(kept=False)).plan(f)(p, x[:4])
    assert "on tflite: not compared with a reference: its operations are not all integers" in str(floats)
