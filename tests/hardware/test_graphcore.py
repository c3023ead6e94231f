"""The IPU manager: its life, several IPUs, training in stages, batch sizes, errors."""

from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import target_registry
from nxjax.errors import ExecutionError, ParameterError, TileMemoryError, TreeError
from nxjax.hardware.graphcore import GraphCoreManager, get_graphcore_manager
from nxjax.kernels.ipu import chip

RNG = np.random.default_rng(0)
WS = [(RNG.standard_normal((16, 16)) * 0.3).astype(np.float32) for _ in range(4)]
X, T = RNG.standard_normal((2, 8, 16)).astype(np.float32)


@pytest.fixture
def small(monkeypatch):
    """Systems of IPUs with few tiles and little memory."""

    def make(memory: int, tiles: int = 8):
        one = replace(chip.BOW, tiles=tiles, memory=memory)
        system = chip.IpuSystem("bow", "small IPUs", one, 1)
        monkeypatch.setitem(chip.SYSTEMS, "bow", system)
        monkeypatch.setattr(type(target_registry.get("ipu-bow")), "system", system)

    return make


def net(x):
    for w in WS:
        x = nx.tanh(x @ w)
    return x


def loss(ws, x, t):
    for w in ws:
        x = nx.tanh(x @ w)
    return ((x - t) ** 2).mean()


def test_life():
    manager = GraphCoreManager()
    assert not manager.is_initialized
    assert manager.compile_model(net, X).cycles > 0 and manager.is_initialized
    manager.finalize()
    with pytest.raises(ExecutionError, match="finalized"):
        manager.get_ipu_info()
    assert manager.initialize() and manager.get_ipu_count() == 1
    assert "GraphCoreManager(1 x" in repr(manager)
    assert get_graphcore_manager().is_initialized


@pytest.mark.parametrize("execution", ["single", "replicated", "pipelined"])
def test_every_execution_gives_the_models_values(execution: str):
    with GraphCoreManager(num_ipus=2) as ipu:
        made = ipu.compile_model(net, X, execution)
        np.testing.assert_allclose(np.asarray(ipu.execute_model(made, X)), net(X), rtol=1e-4, atol=1e-5)
        assert made.execution == execution and made.cycles > 0 and max(made.memory) <= made.memory_available
        assert execution in str(made) and "<svg" in made._repr_html_()


def test_models_too_large_for_one_ipu_go_in_stages(small):
    # Four matrices of 8 kB per tile.
    small(32_000)
    ws = [(RNG.standard_normal((128, 128)) * 0.1).astype(np.float32) for _ in range(4)]
    x = RNG.standard_normal((8, 128)).astype(np.float32)

    def wide(x):
        for w in ws:
            x = nx.tanh(x @ w)
        return x

    with GraphCoreManager() as ipu, pytest.raises(TileMemoryError) as error:
        ipu.compile_model(wide, x)
    assert "largest tensors" in str(error.value)
    with GraphCoreManager(num_ipus=4) as ipu:
        made = ipu.compile_model(wide, x)
        assert made.execution == "pipelined" and made.ipus > 1
        np.testing.assert_allclose(np.asarray(made(x)), wide(x), rtol=1e-4, atol=1e-5)


def test_trees_and_several_inputs():
    f = lambda a, b: {"sum": a["x"] + b, "product": a["x"] * b}
    with GraphCoreManager(num_ipus=2) as ipu:
        made = ipu.compile_model(f, ({"x": X}, T))
        out = ipu.execute_model(made, ({"x": X}, T))
        np.testing.assert_allclose(np.asarray(out["product"]), X * T)
        with pytest.raises(ParameterError, match="input 0"):
            ipu.execute_model(made, ({"x": X[:4]}, T))
        with pytest.raises(TreeError, match="structure"):
            ipu.execute_model(made, (X, T))


def test_a_model_without_samples_is_not_cut():
    with GraphCoreManager(num_ipus=3) as ipu:
        made = ipu.compile_model(lambda w: w.sum(), X)
        np.testing.assert_allclose(float(made(X)), X.sum(), rtol=1e-5)
        with pytest.raises(ParameterError, match="batch"):
            ipu.compile_model(lambda w: w.sum(), X, "replicated")


@pytest.mark.parametrize(
    "f",
    [lambda x: x - x.mean(0), lambda x: x[::-1], lambda x: nx.sort(x, axis=0), lambda x: x / x.shape[0],
     lambda x: x + nx.arange(x.shape[0])[:, None], lambda x: x[:, :8] @ x],
    ids=["mean", "rev", "sort", "size", "numbered", "product"],
)  # fmt: skip
@pytest.mark.parametrize("ipus", [2, 3])
def test_samples_that_need_each_other_stay_together(f, ipus: int):
    with GraphCoreManager(num_ipus=ipus) as ipu:
        made = ipu.compile_model(f, X)
        np.testing.assert_allclose(np.asarray(made(X)), f(X), rtol=1e-4, atol=1e-5)
        assert made.execution == "single" and "one of" in str(made)
        np.testing.assert_allclose(np.asarray(ipu.compile_model(f, X, "pipelined")(X)), f(X), rtol=1e-4, atol=1e-5)
        with pytest.raises(ParameterError, match="cannot be split"):
            ipu.compile_model(f, X, "replicated")


def test_a_product_of_two_inputs_is_not_cut():
    with GraphCoreManager(num_ipus=2) as ipu:
        made = ipu.compile_model(lambda a, b: a @ b, (X[:, :8], T))
        np.testing.assert_allclose(np.asarray(made(X[:, :8], T)), X[:, :8] @ T, rtol=1e-4, atol=1e-5)


def test_as_many_ipus_as_divide_the_batch():
    with GraphCoreManager(num_ipus=4) as ipu:
        made = ipu.compile_model(net, X[:6])
        assert made.execution == "replicated" and made.ipus == 3
        np.testing.assert_allclose(np.asarray(made(X[:6])), net(X[:6]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"schedule": "gpipe"}, {"recompute": True}, {"stages": 2, "replicas": 2}])
def test_training_in_stages(options):
    with GraphCoreManager(num_ipus=4) as ipu:
        options = {"stages": 4, **options}
        training = ipu.pipeline(loss, WS, X, T, micro_batches=4, **options)
        value, grads = training.value_and_grad(WS, X, T)
        want, wanted = nx.value_and_grad(loss)(WS, X, T)
        np.testing.assert_allclose(float(value), float(want), rtol=1e-5)
        for g, w in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(g), w, rtol=1e-4, atol=1e-6)
        assert "bubble" in str(training) and training.label == "own-model"
        with pytest.raises(ParameterError, match="micro-batches"):
            ipu.pipeline(loss, WS, X, T, micro_batches=3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"micro_batches": 0}, "micro_batches"), ({"micro_batches": 2.0}, "micro_batches"),
     ({"micro_batches": 2, "recompute": "yes"}, "recompute"), ({"micro_batches": 2, "schedule": "zb"}, "schedule")],
)  # fmt: skip
def test_wrong_pipelines(wrong, words: str):
    with GraphCoreManager(num_ipus=2) as ipu, pytest.raises(ParameterError, match=words):
        ipu.pipeline(loss, WS, X, T, **wrong)


def test_a_loss_that_is_a_sum_is_not_averaged():
    total = lambda ws, x, t: ((x @ ws[0] - t) ** 2).sum()
    with GraphCoreManager(num_ipus=2) as ipu:
        with pytest.raises(ParameterError, match="mean over the samples"):
            ipu.pipeline(total, WS, X, T, micro_batches=2)
        value, _ = ipu.pipeline(total, WS, X, T, micro_batches=1).value_and_grad(WS, X, T)
        np.testing.assert_allclose(float(value), float(total(WS, X, T)), rtol=1e-4)


def test_batch_search(small):
    small(40_000)
    with GraphCoreManager() as ipu:
        found = ipu.find_batch_size(net, lambda n: np.zeros((n, 16), np.float32), (1, 8, 64, 4096, 8192))
        assert found.best in (8, 64) and found.tried[4096] is None and 8192 not in found.tried
        assert found.compiled.bound.args[0].shape[0] == found.best and "does not fit" in str(found)


def test_compile_only():
    with GraphCoreManager(compile_only=True) as ipu:
        made = ipu.compile_model(net, X)
        assert made.cycles > 0
        with pytest.raises(ExecutionError, match="only compiled"):
            ipu.execute_model(made, X)


@pytest.mark.parametrize(
    "wrong",
    [{"num_ipus": 0}, {"num_ipus": 1.5}, {"precision": "int8"}, {"memory_proportion": 0}, {"memory_proportion": "0.6"},
     {"system": "tpu"}, {"num_ipus": 5, "system": "m2000"}],
)  # fmt: skip
def test_wrong_settings(wrong):
    with pytest.raises(ParameterError):
        GraphCoreManager(**wrong)


def test_what_is_not_a_compiled_model():
    with GraphCoreManager() as ipu, pytest.raises(ParameterError, match="compile_model"):
        ipu.execute_model(net, X)
