"""The NPU backend: its simulator against NumPy, a chip through its target, what is refused, and what the labels say."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import nxjax as nx
from nxjax import nn
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import digests
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, NpuTarget, Runner
from nxjax.deploy import simulate
from nxjax.errors import ExecutionError, ParameterError
from nxjax.hardware.npu import NPUBackend, OptimizedModel
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.memory import MemoryLimitError
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import YES, Verdict
from nxjax.vendors import chips

rng = np.random.default_rng(0)
close = np.testing.assert_allclose


def array(*shape):
    return rng.normal(size=shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _off():
    """Simulators are process-wide: none outlives its test."""
    nx.simulate(None)
    yield
    nx.simulate(None)


def backend(**kwargs):
    with nx.simulate("npu"):
        npu = NPUBackend(**kwargs)
    assert npu.initialize()
    return npu


@pytest.mark.skipif(not chips.why_none(), reason="this machine has an NPU")
def test_without_a_chip_the_error_says_how_to_simulate():
    with pytest.raises(RuntimeError, match=r'nx.simulate\("npu"\)') as caught:
        NPUBackend()
    assert isinstance(caught.value, ExecutionError)
    assert chips.why_none() in str(caught.value)


def test_a_backend_keeps_its_simulator_and_must_be_initialized():
    with nx.simulate("npu"):
        npu = NPUBackend()
    assert "not initialized" in repr(npu)
    with pytest.raises(RuntimeError, match=r"npu\.initialize"):
        npu.relu(array(2))
    assert npu.initialize()
    assert npu.initialize()
    assert npu.label == "own-model"
    assert npu.get_device_count() == 1
    info = npu.get_device_info(0)
    assert info["label"] == "own-model"
    assert "simulator" in info["name"]
    with pytest.raises(ParameterError, match="index"):
        npu.get_device_info(1)
    with pytest.raises(ParameterError, match="device"), nx.simulate("npu"):
        NPUBackend(device=1)
    with pytest.raises(ParameterError, match="precision"), nx.simulate("npu"):
        NPUBackend(precision="int3")


# --- operations ---

X, Y, IMAGE = array(4, 6), array(4, 6), array(2, 3, 8, 8)
W, B = array(5, 3, 3, 3), array(5)


def conv(x, w, b, stride, padding):
    layer = nn.Conv2d(3, 5, 3, stride=stride, padding=padding).replace(weight=nx.array(w), bias=nx.array(b))
    return np.asarray(layer(x))


OPERATIONS = [
    ("matmul", lambda n: n.matmul(X, Y.T), lambda: X @ Y.T),
    ("add", lambda n: n.add(X, Y), lambda: X + Y),
    ("add", lambda n: n.add(X, Y[:1]), lambda: X + Y[:1]),
    ("sub", lambda n: n.sub(X, Y), lambda: X - Y),
    ("mul", lambda n: n.mul(X, Y), lambda: X * Y),
    ("maximum", lambda n: n.maximum(X, Y), lambda: np.maximum(X, Y)),
    ("minimum", lambda n: n.minimum(X, Y), lambda: np.minimum(X, Y)),
    ("relu", lambda n: n.relu(X), lambda: np.maximum(X, 0)),
    ("relu6", lambda n: n.relu6(X * 4), lambda: np.clip(X * 4, 0, 6)),
    ("sigmoid", lambda n: n.sigmoid(X), lambda: 1 / (1 + np.exp(-X))),
    ("tanh", lambda n: n.tanh(X), lambda: np.tanh(X)),
    ("gelu", lambda n: n.gelu(X), lambda: np.asarray(nn.gelu(X, approximate=False))),
    ("silu", lambda n: n.silu(X), lambda: X / (1 + np.exp(-X))),
    ("softmax", lambda n: n.softmax(X), lambda: np.asarray(nn.softmax(X))),
    ("conv2d", lambda n: n.conv2d(IMAGE, W, B, stride=2, padding=1), lambda: conv(IMAGE, W, B, 2, 1)),
    ("conv2d", lambda n: n.conv2d(IMAGE, W, padding="same"), lambda: conv(IMAGE, W, B * 0, 1, "same")),
    ("linear", lambda n: n.linear(X, Y, B[:4]), lambda: X @ Y.T + B[:4]),
    ("max_pool2d", lambda n: n.max_pool2d(IMAGE, 2), lambda: np.asarray(nn.MaxPool2d(2)(IMAGE))),
    ("avg_pool2d", lambda n: n.avg_pool2d(IMAGE, 2), lambda: np.asarray(nn.AvgPool2d(2)(IMAGE))),
    ("mean", lambda n: n.mean(X, axis=1), lambda: X.mean(1)),
    ("sum", lambda n: n.sum(X, axis=0), lambda: X.sum(0)),
    ("reshape", lambda n: n.reshape(X, (6, 4)), lambda: X.reshape(6, 4)),
    ("transpose", lambda n: n.transpose(X), lambda: X.T),
    ("concatenate", lambda n: n.concatenate([X, Y], axis=1), lambda: np.concatenate([X, Y], 1)),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), OPERATIONS)
def test_operations_in_float_run_on_the_host_and_say_so(name, ours, theirs):
    npu = backend()
    close(np.asarray(ours(npu)), theirs(), rtol=1e-4, atol=1e-5)
    assert npu.last_run.op == name
    assert npu.last_run.label == "host"
    assert "float32" in npu.last_run.reason


@pytest.mark.parametrize(("name", "ours", "theirs"), OPERATIONS)
def test_operations_on_integers_run_exactly_in_the_simulator(name, ours, theirs):
    npu = backend(precision="int8")
    got, want = np.asarray(ours(npu)), theirs()
    step = (max(want.max(), 0) - min(want.min(), 0)) / 255
    reach = 2 * step + 0.05 * np.abs(want).max() * (name in ("matmul", "linear", "conv2d", "mul", "gelu", "silu"))
    assert np.abs(got - want).max() <= max(reach, 0.03)
    assert npu.last_run.label == "own-model", npu.last_run


def test_integers_are_computed_as_they_are():
    npu = backend()
    a, b = nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]])
    c = npu.add(a, b)
    assert c.tolist() == [[6, 8], [10, 12]]
    assert c.dtype == np.int32
    assert npu.last_run.label == "own-model"
    npu.add(a * 100000, b)
    assert npu.last_run.label == "host"
    assert "16 bits" in str(npu.last_run)
    npu.mean(a)
    assert npu.last_run.label == "host"


INTEGERS = [
    ("matmul", lambda n, x: n.matmul(x, x.T), "no NPU instruction"),
    ("shift", lambda n, x: n._run("shift", nx.numpy.left_shift, x, x), "bits"),
    ("overflowing sum", lambda n, x: n.sum(nx.numpy.full((100_000,), 30_000, "int32")), "beyond its integers"),
    ("overflowing add", lambda n, x: n.add(nx.numpy.int8([100]), nx.numpy.int8([100])), "beyond its integers"),
    ("overflowing mul", lambda n, x: n.mul(nx.numpy.int8([100]), nx.numpy.int8([2])), "beyond its integers"),
    ("overflowing sub", lambda n, x: n.sub(nx.numpy.uint8([1]), nx.numpy.uint8([2])), "beyond its integers"),
]


@pytest.mark.parametrize(("name", "run", "reason"), INTEGERS, ids=[row[0] for row in INTEGERS])
def test_what_no_npu_does_with_integers_runs_on_the_host_and_says_so(name, run, reason):
    x = nx.numpy.arange(6, dtype="int32").reshape(2, 3)
    for target in (None, "ethos-u55", "ethos-u85"):
        with nx.simulate("npu", target=target):
            npu = NPUBackend()
        npu.initialize()
        run(npu, x)
        assert npu.last_run.label == "host" and npu.last_run.reason, (target, npu.last_run)
        assert target is not None or reason in npu.last_run.reason, npu.last_run


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 4, 4, 8)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_a_simulated_chip_is_asked_for_every_operation_on_integers(dtype, shape):
    """What is labelled as the simulator's is what the target places on the chip, by Vela where it is installed."""
    x = nx.numpy.asarray(rng.integers(0, 10, shape).astype(dtype))
    functions = {"add": nx.numpy.add, "maximum": nx.numpy.maximum, "mul": nx.numpy.multiply, "sub": nx.numpy.subtract}
    with nx.simulate("npu", target="ethos-u55"):
        npu = NPUBackend()
    npu.initialize()
    for name, f in functions.items():
        y = getattr(npu, name)(x, x)
        placed = nx.explain(f, target="ethos-u55", io="float", constants=())(x, x)
        takes = placed.share == 1 and bool(placed.rows)
        assert npu.last_run.label == "host" or takes, (name, npu.last_run, placed)
        np.testing.assert_array_equal(y, f(x, x))


def test_chips_without_specified_bits_are_not_simulated():
    for target in ("amd-xdna", "edgetpu", "qualcomm-htp", "intel-npu", "groq", "apple-ane"):
        with nx.simulate("npu", target=target):
            npu = NPUBackend(precision="int8")
        npu.initialize()
        npu.relu(X)
        assert npu.last_run.label == "host" and "not specified bit for bit" in npu.last_run.reason


@pytest.mark.parametrize("target", ["tflite", "openvino-cpu"])
def test_this_machines_processor_is_no_simulated_chip(target):
    with nx.simulate("npu", target=target):
        npu = NPUBackend(precision="int8")
    npu.initialize()
    npu.relu(X)
    assert npu.last_run.label == "host" and "computed on the host" in npu.last_run.reason
    assert npu.label == npu.get_device_info()["label"] == "host"
    assert npu.optimize_model(network(), input_shape=(1, 1, 8, 8)).label == "host"


@pytest.mark.parametrize("target", [None, "ethos-u55"])
def test_what_leaves_nothing_to_compute_was_not_simulated(target):
    """A rule that all nodes keep is kept by none, too."""
    one = nx.numpy.float32(1.5)
    with nx.simulate("npu", target=target):
        npu, whole = NPUBackend(precision="int8"), NPUBackend()
    assert npu.initialize() and whole.initialize()
    assert abs(float(npu.relu(one)) - 1.5) < 0.02
    assert npu.last_run.label == "host" and "nothing of it is left" in npu.last_run.reason
    # From one grid to another is work, which a target may refuse.
    assert float(npu.relu(-one)) == 0
    assert npu.last_run.label == ("own-model" if target is None else "host")
    for y in (whole.reshape(nx.Tensor([1, 2]), (2,)), whole.concatenate([nx.Tensor([1, 2])])):
        assert y.tolist() == [1, 2] and whole.last_run.label == "host"


def test_what_the_simulator_gives_is_what_the_graph_means(monkeypatch):
    """Not the function on the host: the graph, node by node."""
    ran = []
    whole = simulate.interpret_all
    monkeypatch.setattr(simulate, "interpret_all", lambda g, xs: ran.append(g) or whole(g, xs))
    npu = backend(precision="int8")
    npu.add(X, Y)
    assert npu.last_run.label == "own-model" and [n.op for n in ran[0]] == ["quantize", "quantize", "add", "dequantize"]


def test_a_memory_limit_bounds_operations():
    npu = backend(precision="int8")
    npu.set_memory_limit(100)
    with pytest.raises(MemoryLimitError, match="at most 100 bytes"):
        npu.add(array(20, 20), array(20, 20))
    with pytest.raises(MemoryLimitError):
        npu.add(nx.ones((20, 20), dtype="int32"), nx.ones((20, 20), dtype="int32"))
    npu.set_memory_limit(100_000)
    assert npu.add(array(20, 20), array(20, 20)).shape == (20, 20)
    assert npu.get_device_info()["memory_limit"] == 100_000
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ParameterError, match="set_memory_limit"):
            npu.set_memory_limit(wrong)
    npu.set_memory_limit(None)


# --- models ---


def network(channels=8, size=8):
    nn.seed(0)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Linear(channels * size * size // 4, 4),
    )


def test_an_optimized_model_is_the_model_on_integers():
    npu, model = backend(), network()
    data = [array(4, 1, 8, 8) for _ in range(2)]
    fast = npu.optimize_model(model, calibration_data=data)
    assert isinstance(fast, OptimizedModel)
    assert fast.label == "own-model"
    want, got = np.asarray(model(data[0])), np.asarray(fast(data[0]))
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
    assert fast.snr > 25
    assert not fast.notes
    # Folded and fused: two convolutions, a matrix, what lies between; nothing else.
    ops = [n.op for n in fast.graph]
    assert ops.count("conv_2d") == 2
    assert not {"relu", "batch_norm", "quantize", "dequantize", "mul"} & set(ops)
    # Calling it is interpreting its graph, bit for bit.
    stored = [t.grid.quantize(data[0]) for t in fast.graph.inputs]
    (exact,) = interpret(fast.graph, stored)
    np.testing.assert_array_equal(got, fast.graph.outputs[0].grid.dequantize(exact))
    assert fast(data[0][:1]).shape == (1, 4)
    assert "100.0%" in repr(fast)
    with pytest.raises(ParameterError, match="name a target"):
        fast.save("model.bin")


def test_without_data_a_note_says_what_stood_in():
    fast = backend().optimize_model(model=network(16, 32), quantize=True, precision="int8")
    assert fast.graph.inputs[0].shape[0] == 1
    assert any("random numbers" in n for n in fast.notes)
    assert "calibration_data" in repr(fast)


def test_what_a_model_is_optimized_for():
    npu, model, data = backend(), network(), [array(8, 1, 8, 8)]
    plain = npu.optimize_model(model, calibration_data=data)
    exact = npu.optimize_model(model, optimize_for="accuracy", calibration_data=data)
    assert exact.snr >= plain.snr
    assert any("the best of" in n for n in exact.notes)
    wide = npu.optimize_model(model, precision="int16", calibration_data=data)
    assert wide.snr > plain.snr
    assert wide.memory.peak > plain.memory.peak
    small = npu.optimize_model(model, optimize_for="memory", calibration_data=data)
    assert small.memory.peak <= plain.memory.peak
    loose = npu.optimize_model(model, quantize=False, calibration_data=data)
    assert loose.label == "host"
    close(np.asarray(loose(data[0])), np.asarray(model(data[0])), rtol=1e-3, atol=1e-4)
    for kwargs, says in (
        ({"optimize_for": "luck"}, "optimize_for"),
        ({"precision": "int2"}, "precision"),
        ({"precision": "float32"}, "quantize=False"),
        ({"calibration_data": []}, "at least one"),
        ({"model": 3}, "needs a model"),
    ):
        with pytest.raises(ParameterError, match=says):
            npu.optimize_model(**{"model": model, "calibration_data": data, **kwargs})


def wide_block(x):
    """Two branches of which one is added late: an order of nodes that keeps both alive costs more."""
    late = nn.relu(x * 2)
    y = x
    for _ in range(3):
        y = nn.relu(y + 1)
    return nx.sum(y, 1) + nx.sum(late, 1)


def test_memory_optimization_really_uses_less():
    npu, data = backend(), [array(4, 256)]
    before = npu.optimize_model(wide_block, calibration_data=data)
    npu.enable_memory_optimization(True)
    after = npu.optimize_model(wide_block, calibration_data=data)
    assert after.memory.peak < before.memory.peak
    np.testing.assert_array_equal(np.asarray(after(data[0])), np.asarray(before(data[0])))
    npu.set_memory_limit(after.memory.peak)
    assert npu.optimize_model(wide_block, calibration_data=data).memory.peak == after.memory.peak
    npu.enable_memory_optimization(False)
    with pytest.raises(MemoryLimitError):
        npu.optimize_model(wide_block, calibration_data=data)


def test_a_limit_names_the_largest_tensors():
    npu = backend()
    npu.set_memory_limit(500)
    with pytest.raises(MemoryLimitError, match=r"int8\[4, 8, 8, 8\]") as caught:
        npu.optimize_model(network(), calibration_data=[array(4, 1, 8, 8)])
    assert isinstance(caught.value, MemoryError)


def test_a_limit_is_checked_before_a_long_calibration():
    npu, seen = backend(), []
    npu.set_memory_limit(500)

    def batches():
        for i in range(100):
            seen.append(i)
            yield array(4, 1, 8, 8)

    with pytest.raises(MemoryLimitError):
        npu.optimize_model(network(), calibration_data=batches())
    assert len(seen) < 20
    npu.set_memory_limit(None)
    seen.clear()
    npu.optimize_model(network(), calibration_data=batches())
    assert len(seen) == 100
    seen.clear()
    npu.optimize_model(network(), calibration_data=batches(), optimize_for="accuracy")
    assert len(seen) == 100


def test_batch_sizes():
    npu, model = backend(), network(16, 32)
    assert npu.advise_batch_size() == 1
    assert "no chip in particular" in npu.advise_batch_size().reason
    npu.set_memory_limit(1 << 20)
    assert npu.advise_batch_size(model) == 1


def test_batch_sizes_are_asked_of_the_target_and_not_of_its_name():
    npu = backend()
    large = [name for name in registry.names() if registry.get(name).site == "data center"]
    small = [name for name in registry.names() if registry.get(name).site == "edge"]
    for names, batch, words in ((large, 16, "data-center"), (small, 1, "edge")):
        for name in names:
            npu._simulation.target = name
            assert npu.advise_batch_size() == batch, name
            assert words in npu.advise_batch_size().reason
            # A model's cost is asked only of chips that the cost model has.
            assert ("its cost" in npu.advise_batch_size().reason) == (npu._chip() is not None), name
    assert {"graphcore-popart", "groq", "habana-gaudi-stablehlo", "tpu-v4", "ipu-gc200", "poplar"} <= set(large)
    # All others are file formats, or no chip of one kind.
    rest = set(registry.names()) - {*large, *small}
    assert rest == {"tflite", "openvino-cpu", "openvino-gpu", "onnx", "stablehlo"}


def test_batch_sizes_follow_the_chips_cost():
    model, sample = network(), (1, 1, 8, 8)
    found = {}
    for target in ("ethos-u55", "edgetpu"):
        npu = backend()
        npu._simulation.target = target
        found[target] = npu.advise_batch_size(model, input_shape=sample)
        # Nobody says what a launch costs on an Ethos-U.
        assert ("a sample" if target == "edgetpu" else "a rule of thumb") in found[target].reason
        found[target, "large"] = npu.advise_batch_size(network(64, 64), input_shape=(1, 1, 64, 64))
        peak = npu.optimize_model(model, input_shape=sample).memory.peak
        npu.set_memory_limit(peak * 3)
        if target == "edgetpu":
            assert npu.advise_batch_size(model, input_shape=sample) == 3
            assert "4 do not fit" in npu.advise_batch_size(model, input_shape=sample).reason
        else:
            assert npu.advise_batch_size(model, input_shape=sample) == 1
        npu._simulation.target = None
    # What a launch costs is what a batch saves: less, where one sample takes long.
    assert found["edgetpu"] > found["edgetpu", "large"]


@pytest.mark.parametrize("count", [1, 5, 10, 40])
def test_as_many_samples_as_fit(count):
    npu, model = backend(), network()
    npu._simulation.target = "groq"
    peak = npu.optimize_model(model, input_shape=(1, 1, 8, 8)).memory.peak
    npu.set_memory_limit(peak * count)
    advised = npu.advise_batch_size(model, input_shape=(1, 1, 8, 8))
    assert advised == min(count, 16)
    assert f"{advised} at once" in advised.reason
    npu.set_memory_limit(peak // 2)
    with pytest.raises(MemoryLimitError):
        npu.advise_batch_size(model, input_shape=(1, 1, 8, 8))


@pytest.mark.skipif(not installed("ethosu"), reason="needs Vela")
def test_a_simulated_target_is_compiled_by_its_vendor(tmp_path):
    with nx.simulate("npu", target="ethos-u55"):
        npu = NPUBackend(precision="int8")
    npu.initialize()
    fast = npu.optimize_model(network(), calibration_data=[array(1, 1, 8, 8)], strict=True)
    assert fast.label == "own-model"
    assert fast.artifact.label == "vendor-compiled"
    assert fast.report.share == 1
    saved = fast.save(tmp_path / "model")
    assert fast.artifact.bytes in {f.read_bytes() for f in saved.iterdir()}
    npu.relu(X)
    assert npu.last_run.label == "own-model"


# --- chips ---


class Fake(NpuTarget):
    """A vendor's target as NPU adapters are: takes all but tanh, runs graphs, says it is hardware."""

    name = "fake"
    title = "Fake NPU"
    format = "tflite"
    exact = True
    built: ClassVar[list] = []

    def available(self):
        return "hardware", ""

    def supports(self, node):
        return Verdict(False, "no tanh here", "a relu") if node.op == "tanh" else YES

    def build(self, graph, options):
        self.built.append(graph)
        run = lambda xs: interpret(graph, xs)
        build = Build({"model.bin": b"x"}, place(graph, self.supports))
        build.runner = Runner(run, "fake chip", "chip", digests(build.files))
        return build


@pytest.fixture
def fake_chip(monkeypatch):
    kind = chips.Kind("Fake", "NPU", module="json", target="fake")
    found = [chips.Chip(kind, "/dev/fake0", "fake_driver")]
    monkeypatch.setattr(chips, "find", lambda root="/": found)
    monkeypatch.setattr(registry, "get", lambda name: Fake())
    Fake.built.clear()


@pytest.mark.usefixtures("fake_chip")
def test_a_chip_runs_what_its_target_builds(tmp_path):
    npu = NPUBackend(precision="int8")
    assert npu.initialize()
    assert npu.label == "hardware"
    assert npu.get_device_info()["place"] == "/dev/fake0"
    got = npu.add(X, Y)
    assert Fake.built
    close(np.asarray(got), X + Y, atol=0.05)
    assert npu.last_run.label == "hardware"
    data = [array(2, 1, 8, 8)]
    fast = npu.optimize_model(network(), calibration_data=data)
    assert fast.label == "hardware"
    assert fast.artifact.label == "hardware"
    assert np.abs(np.asarray(fast(data[0])) - np.asarray(network()(data[0]))).max() < 0.1
    assert fast.save(tmp_path / "m.bin").read_bytes() == b"x"
    with pytest.raises(ParameterError, match="another shape"):
        fast(data[0][:1])


@pytest.mark.usefixtures("fake_chip")
def test_a_chip_that_does_not_start(monkeypatch):
    def fails(self, graph, options):
        raise ExecutionError("the driver is too old")

    monkeypatch.setattr(Fake, "build", fails)
    npu = NPUBackend()
    assert not npu.initialize()
    assert "the driver is too old" in npu.error
    with pytest.raises(RuntimeError, match="driver is too old"):
        npu.relu(X)


@pytest.mark.usefixtures("fake_chip")
def test_a_runtime_that_turns_to_the_host_in_silence_is_no_chip(monkeypatch):
    build = Fake.build

    def silent(self, graph, options):
        made = build(self, graph, options)
        made.runner = replace(made.runner, by="host")
        return made

    monkeypatch.setattr(Fake, "build", silent)
    npu = NPUBackend()
    assert not npu.initialize()
    assert "did not run a first operation on its chip" in npu.error


@pytest.mark.usefixtures("fake_chip")
def test_a_simulated_target_has_its_rules():
    with nx.simulate("npu", target="fake"):
        npu = NPUBackend(precision="int8")
    npu.initialize()
    assert npu.get_device_info()["name"] == "simulator of Fake NPU"
    npu.relu(X)
    assert npu.last_run.label == "own-model"
    npu.tanh(X)
    assert npu.last_run.label == "host"
    assert "no tanh here" in npu.last_run.reason
    fast = npu.optimize_model(lambda x: nn.relu(x) + nx.tanh(x), calibration_data=[X])
    assert fast.label == "own-model"
    assert [r.op for r in fast.report.host_rows] == ["tanh"]
    with pytest.raises(nx.errors.PlacementError, match="no tanh here"):
        npu.optimize_model(lambda x: nx.tanh(x), calibration_data=[X], strict=True)


# --- what is refused before it runs, and what is said of the rest ---


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_limit_refuses_operations_before_they_run(precision):
    ran = []

    def watched(v):
        return nx.pure_callback(lambda a: ran.append(1) or a, v, v)

    with nx.simulate("npu"):
        npu = NPUBackend(precision=precision)
        npu.initialize()
        npu.set_memory_limit(10)
        with pytest.raises(MemoryError, match="at most 10 bytes"):
            npu._run("watched", watched, np.ones((8, 8), np.int32))
        with pytest.raises(MemoryError, match="at most 10 bytes"):
            npu.add(array(8, 8), 1.0)
        assert not ran
        npu.set_memory_limit(None)
        npu._run("watched", watched, np.ones((8, 8), np.int32))
        assert ran


def test_the_limit_of_the_moment_bounds_every_call_of_a_model():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Linear(8 * 8 * 8, 4))
    with nx.simulate("npu"):
        npu = NPUBackend()
        npu.initialize()
        for options in ({}, {"quantize": False}, {"optimize_for": "memory"}):
            npu.set_memory_limit(None)
            made = npu.optimize_model(model, calibration_data=[IMAGE], **options)
            assert made(np.concatenate([IMAGE] * 9)).shape == (18, 4)
            npu.set_memory_limit(made.memory.peak)
            assert made(IMAGE).shape == nx.jit(made)(IMAGE).shape == (2, 4)
            with pytest.raises(MemoryError, match="conv_2d"):
                made(np.concatenate([IMAGE] * 9))
            npu.set_memory_limit(made.memory.peak - 1)
            with pytest.raises(MemoryError, match="at once"):
                made(IMAGE)


def test_floats_are_placed_on_the_host_and_unknown_precisions_refused():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    with nx.simulate("npu"):
        npu = NPUBackend()
        npu.initialize()
        loose = npu.optimize_model(model, quantize=False)
        assert loose.label == "host"
        assert loose.report.share == 0
        assert {r.reason for r in loose.report.rows} == {"float32 is not what an NPU computes in"}
        with pytest.raises(ParameterError, match="precision"):
            npu.optimize_model(model, quantize=False, precision="float16")
        dynamic = npu.optimize_model(model, precision="dynamic-int8", calibration_data=[X])
        assert dynamic.label == "host"
        assert dynamic.snr > 30
        # Ranges are those of the call, whatever was seen before.
        far = 1000 * X
        close(
            np.asarray(dynamic(far)), np.asarray(model(far)), rtol=0.1, atol=0.02 * np.abs(np.asarray(model(far))).max()
        )
        assert npu.optimize_model(model, calibration_data=[X]).report.share == 1


def test_parts_that_stay_float_are_not_counted_as_the_npus():
    with nx.simulate("npu"):
        npu = NPUBackend()
        npu.initialize()
        made = npu.optimize_model(lambda x: nx.nn.log_softmax(nn.relu(x)), calibration_data=[X])
        places = {r.op: r.device for r in made.report.rows}
        assert places["log_softmax"] == "host"
        assert "npu" in places.values()


def test_indices_are_numbers_and_operations_are_not_traced():
    with nx.simulate("npu"):
        npu = NPUBackend(precision="int8")
        npu.initialize()
        for wrong in ("0", 0.0, True, -1):
            with pytest.raises(ParameterError, match="index"):
                npu.get_device_info(wrong)
        with pytest.raises(ExecutionError, match="run at once"):
            nx.jit(lambda v: npu.matmul(v, v.T))(X)
        with pytest.raises(ExecutionError, match="run at once"):
            nx.jit(lambda v: npu.add(v, v))(np.ones(3, np.int32))
