"""The programs of the guides to hybrid execution and to NPU programming, as a user would write them, without a chip."""

import textwrap

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ExecutionError, MissingExtraError, ParameterError
from nxjax.hardware import hybrid, power
from nxjax.hardware.thermal import ThermalAwareOptimizer

MANAGER = """
    from nxjax.hardware.hybrid import NPUResourceManager

    manager = NPUResourceManager()
    print(sorted(manager.backends), sorted(manager.missing))
    y = manager.execute_operation("matmul", (a, b))
    z = manager.execute_operation(lambda x: nx.nn.relu(x - 1), a)
"""

SCHEDULER = """
    from nxjax.hardware.hybrid import IntelligentHybridScheduler

    scheduler = IntelligentHybridScheduler()
    thermal_state = scheduler.thermal_monitor.get_state()
    plan = scheduler.schedule_operation("matmul", [a.shape, b.shape], priority="high")
    print(plan)
    y = scheduler.execute("matmul", a, b)
"""

MEMORY = """
    from nxjax.hardware.hybrid import UnifiedMemoryManager

    manager = UnifiedMemoryManager(npu="1GB", vulkan="2GB", system="4GB")
    first = manager.allocate_unified_buffer(1 << 12, access_pattern="npu_primary")
    second = manager.allocate_unified_buffer(a.shape, access_pattern="streaming", dtype="float32")
    third = manager.allocate_unified_buffer(1 << 12)
    second.write(a)
    y = nx.matmul(second.array(), b)
"""

BRIDGE = """
    from nxjax.hardware.hybrid import VulkanNPUBridge

    bridge = VulkanNPUBridge()
    print(bridge.initialize_vulkan(), bridge.why_no_vulkan)
    y = bridge.hybrid_matrix_multiply(a, b)
"""

# The three devices of the guide's heterogeneous example, at the user's own words.
STAGES = """
    from nxjax.hybrid import device_scope

    def pipeline(input_data):
        with device_scope("/CPU:0"):
            preprocessed_data = input_data / input_data.max()
        with device_scope("/NPU:0"):
            conv_features = nx.nn.relu(preprocessed_data @ b)
        with device_scope("/GPU:0"):
            transformer_features = nx.nn.softmax(conv_features)
        with device_scope("/CPU:0"):
            return transformer_features.sum(-1)

    device = nx.Hybrid("npu", "gpu", "cpu")
    y = nx.jit(pipeline, device=device)(a)
    plan = nx.hybrid.plan(pipeline, device=device)(a)
"""

CUSTOM = """
    beta = 1.5

    @nx.custom_vjp
    def custom_swish(x):
        return x * nx.nn.sigmoid(beta * x)

    def forward(x):
        return custom_swish(x), x

    def backward(x, dy):
        s = nx.nn.sigmoid(beta * x)
        return (dy * (s + beta * x * s * (1 - s)),)

    custom_swish.defvjp(forward, backward)
    y = nx.jit(custom_swish)(a)
    slope = nx.grad(lambda x: custom_swish(x).sum())(a)
"""

TARGET = """
    TARGET_LATENCY_MS = 0.006

    def nas_objective(figures):
        latency, accuracy = figures["chip_time"] * 1e3, figures["accuracy"]
        if latency > TARGET_LATENCY_MS:
            accuracy = accuracy / (latency / TARGET_LATENCY_MS) ** 2
        return accuracy

    found = nx.nas.search(space, evaluate, budget=12, costs=costs, fitness=nas_objective, strategy="random")
    print(found)
"""

DATA_PARALLEL = """
    mesh = nx.make_mesh((4,), ("replica",), devices=nx.devices("cpu")[:4])

    @nx.jit
    def gradients(w, x):
        loss = lambda w, x: ((x @ w) ** 2).mean()
        step = nx.grad(lambda w, x: nx.lax.pmean(loss(w, x), "replica"))
        spec = nx.P("replica")
        return nx.shard_map(step, mesh=mesh, in_specs=(nx.P(), spec), out_specs=nx.P())(w, x)

    y = gradients(b, np.repeat(a, 4, axis=0))
"""


@pytest.fixture
def given():
    a, b = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32), np.array([[1.0, 0.5], [2.0, 4.0]], np.float32)
    return {"nx": nx, "jnp": jnp, "np": np, "a": a, "b": b}


def run(source, given):
    names = dict(given)
    exec(compile(textwrap.dedent(source), "guide", "exec"), names)
    return names


def test_the_resource_manager(given, capsys):
    got = run(MANAGER, given)
    np.testing.assert_allclose(got["y"], given["a"] @ given["b"])
    np.testing.assert_allclose(got["z"], np.maximum(given["a"] - 1, 0))
    manager = got["manager"]
    # What is missing says why, and every unit is one or the other.
    assert {*manager.backends, *manager.missing} == {"npu", "gpu", "cpu"} and all(manager.missing.values())
    assert "npu" in capsys.readouterr().out
    with pytest.raises(ParameterError, match="no such operation"):
        manager.execute_operation("transmogrify", given["a"])


def test_the_scheduler(given, capsys):
    got = run(SCHEDULER, given)
    np.testing.assert_allclose(got["y"], given["a"] @ given["b"])
    assert got["scheduler"].current_workload is got["plan"] and "cpu" in capsys.readouterr().out
    assert all(r.why or r.available for r in got["thermal_state"].values())
    with pytest.raises(ParameterError, match="no such priority"):
        got["scheduler"].schedule_operation("matmul", [(2, 2), (2, 2)], priority="urgent")
    limited = hybrid.IntelligentHybridScheduler(units=("cpu",), watts={"cpu": 10.0})
    assert limited.schedule_operation("sin", (64,), priority="low").schedule.objective == "energy"


def test_the_memory_manager(given):
    got = run(MEMORY, given)
    np.testing.assert_allclose(got["y"], given["a"] @ given["b"])
    assert got["first"].nbytes == got["third"].nbytes == 4096 and got["first"].address % 4096 == 0
    assert got["manager"].memory_pools["npu"].statistics.buffers == 1


def test_the_bridge(given):
    got = run(BRIDGE, given)
    np.testing.assert_allclose(got["y"], given["a"] @ given["b"])
    bridge = got["bridge"]
    assert bridge.initialize_vulkan() != bool(bridge.why_no_vulkan)


def test_stages_on_their_devices(given):
    got = run(STAGES, given)
    a, b = given["a"], given["b"]
    hidden = np.maximum(a / a.max() @ b, 0)
    weights = np.exp(hidden) / np.exp(hidden).sum(-1, keepdims=True)
    np.testing.assert_allclose(got["y"], weights.sum(-1), rtol=1e-6)
    assert {p.unit for p in got["plan"].places} <= {u.name for u in got["device"].units}


def test_an_operator_of_ones_own(given):
    got = run(CUSTOM, given)
    x = given["a"]
    s = 1 / (1 + np.exp(-1.5 * x))
    np.testing.assert_allclose(got["y"], x * s, rtol=1e-6)
    np.testing.assert_allclose(got["slope"], s + 1.5 * x * s * (1 - s), rtol=1e-5)


def test_a_search_with_a_penalty_on_time(given, capsys):
    pytest.importorskip("ethosu")
    from nxjax.example_libraries import stax
    from nxjax.nas import Costs, blocks

    def deployed(model):
        init, apply = model
        x = np.zeros((1, 8, 8, 1), np.float32)
        return apply, init(nx.random.key(0), x.shape)[1], (x,)

    def space(choose):
        layers = [blocks.conv(choose("width", (4, 8, 16, 32, 64)), choose("size", (1, 3, 5)))]
        return stax.serial(*layers, blocks.pooled(), stax.Dense(4))

    costs = Costs("ethos-u55-128", deployed, figures=("chip_time",))
    got = run(TARGET, {**given, "space": space, "evaluate": lambda model, seed: 0.9, "costs": costs})
    rows = got["found"].trained
    assert all((t.fitness < 0.9) == (t.figures["chip_time"] * 1e3 > 0.006) for t in rows)
    assert {t.fitness < 0.9 for t in rows} == {True, False} and got["found"].best.fitness == 0.9


def test_data_parallel_gradients(given):
    pytest.importorskip("jaxlib")
    got = run(DATA_PARALLEL, given)
    a, b = np.repeat(given["a"], 4, axis=0), given["b"]
    np.testing.assert_allclose(got["y"], 2 * a.T @ (a @ b) / (a.shape[0] * b.shape[1]), rtol=1e-5)


def test_power_and_heat_by_the_guides_names():
    optimizer = power.AdvancedNPUOptimizer()
    for ask in (
        optimizer.enable_turbo_mode,
        lambda: optimizer.set_performance_profile("performance"),
        lambda: optimizer.optimize_for_workload("continuous_audio"),
    ):
        with pytest.raises(ExecutionError, match=r"(?s)xrt-smi|driver|NPU"):
            ask()
    watch = ThermalAwareOptimizer()
    assert {"npu_max": 85.0, "cpu_max": 90.0, "warning": 80.0}.items() <= watch.thermal_thresholds.items()
    assert isinstance(watch.monitor_and_adjust(), list)


def test_sessions_refuse_what_ryzen_ai_never_had():
    pytest.importorskip("onnxruntime")
    wished = [("RyzenAIExecutionProvider", {"device_id": 0, "hybrid_mode": True}), "CPUExecutionProvider"]
    with pytest.raises((ParameterError, ExecutionError), match="VitisAIExecutionProvider"):
        hybrid.RyzenAIHybridEngine(wished).create_hybrid_session(b"")
    with pytest.raises(ParameterError, match="npu_config"):
        hybrid.RyzenAIHybridEngine([("VitisAIExecutionProvider", {"npu_config": "x"})]).create_hybrid_session(b"")
    with pytest.raises(ExecutionError, match="not in this ONNX Runtime"):
        hybrid.RyzenAIHybridEngine().create_hybrid_session(b"")


def test_text_from_a_folder(tmp_path):
    pytest.importorskip("onnxruntime_genai")
    pytest.importorskip("tokenizers")
    from nxjax.generation import DecoderConfig, Generator, Tokenizer, export_genai, init

    tokenizer = Tokenizer.train(["to be or not to be that is the question"] * 4, 280)
    config = DecoderConfig(vocabulary=len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, head_size=16, hidden=16)
    params = init(nx.random.key(0), config)
    export_genai(params, config, tokenizer, tmp_path / "model")
    text = hybrid.OGANPUIntegration("cpu")
    with pytest.raises(ParameterError, match="no session"):
        text.generate_with_npu("to be")
    text.create_oga_session(tmp_path / "model")
    said = text.generate_with_npu("to be", max_tokens=5)
    own = Generator(params, config, tokenizer).generate("to be", max_tokens=5)
    assert own.texts == [said]
    with pytest.raises((ExecutionError, MissingExtraError)):
        hybrid.OGANPUIntegration("RyzenAI").create_oga_session(tmp_path / "model")
