"""Pipelines on modelled IPUs: the numbers of one device, bubbles of the schedule, and stages that fit."""

from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.ipu.pipeline import Pipeline
from nxjax.errors import ExecutionError, ParameterError, TileMemoryError
from nxjax.kernels.ipu.chip import BOW, IpuSystem
from nxjax.lower.ipu.builder import IpuOptions


def system(ipus: int, tiles: int = 16, memory: int = BOW.memory) -> IpuSystem:
    return IpuSystem("small", "small IPUs", replace(BOW, tiles=tiles, memory=memory), ipus)


RNG = np.random.default_rng(0)
WS = [(RNG.standard_normal((24, 24)) * 0.3).astype(np.float32) for _ in range(6)]
X, T = RNG.standard_normal((2, 4, 8, 24)).astype(np.float32)  # four micro-batches of eight


def loss(ws, x, t):
    for w in ws:
        x = nx.tanh(x @ w)
    return ((x - t) ** 2).mean()


def made(count: int | None, ipus: int = 4, **options) -> Pipeline:
    program = nx.make_jaxpr(loss)(WS, X[0], T[0])
    kind = options.pop("system", None) or system(ipus)
    return Pipeline(
        program, kind, options.pop("options", None), micro_batches=4, batched=[False] * 6 + [True] * 2,
        trained=[True] * 6 + [False] * 2, stages=count, **options,
    )  # fmt: skip


def expected():
    whole = lambda ws: loss(ws, X.reshape(-1, 24), T.reshape(-1, 24))
    return nx.value_and_grad(whole)(WS)


@pytest.mark.parametrize(
    ("count", "schedule", "recompute"), [(1, "1f1b", False), (3, "gpipe", False), (4, "1f1b", True)]
)
def test_gradients_are_those_of_one_device(count: int, schedule: str, recompute: bool):
    pipeline = made(count, schedule=schedule, recompute=recompute)
    results, gradients = pipeline.run([*WS, X, T])
    value, want = expected()
    np.testing.assert_allclose(np.mean([float(r[0]) for r in results]), value, rtol=1e-5)
    for i, g in enumerate(want):
        np.testing.assert_allclose(gradients[i].numpy(), g, rtol=1e-4, atol=1e-6)


def test_replicas_share_the_micro_batches():
    pipeline = made(2, replicas=2)
    _, gradients = pipeline.run([*WS, X, T])
    for i, g in enumerate(expected()[1]):
        np.testing.assert_allclose(gradients[i].numpy(), g, rtol=1e-4, atol=1e-6)
    assert pipeline.reduction > 0 and made(2).reduction == 0


def test_bubbles_and_memory_in_flight():
    one, gpipe = made(4), made(4, schedule="gpipe")
    assert 0.2 < one.bubble < 0.7
    assert gpipe.memory[0].in_flight >= one.memory[0].in_flight
    assert made(1).bubble == 0
    assert made(4, recompute=True).memory[0].in_flight <= one.memory[0].in_flight
    assert "bubble" in str(one) and one.svg().startswith("<svg")


def test_the_fewest_stages_that_fit():
    assert len(made(None).placed) == 1
    needed = made(1, recompute=False).memory[0].peak
    small = made(None, system=system(4, memory=needed - 1), recompute=False)
    assert len(small.placed) > 1 and all(m.fits for m in small.memory)
    with pytest.raises(TileMemoryError):
        made(None, system=system(4, memory=4096))


def test_half_precision():
    pipeline = made(2, options=IpuOptions(precision="float16"))
    results, gradients = pipeline.run([*WS, X, T])
    value, want = expected()
    np.testing.assert_allclose(np.mean([float(r[0]) for r in results]), value, rtol=0.02)
    np.testing.assert_allclose(gradients[0].numpy().astype(np.float32), want[0], rtol=0.1, atol=2e-3)


def test_inference():
    def net(ws, x):
        for w in ws:
            x = nx.tanh(x @ w)
        return x

    program = nx.make_jaxpr(net)(WS, X[0])
    pipeline = Pipeline(program, system(3), micro_batches=4, batched=[False] * 6 + [True], stages=3)
    results, gradients = pipeline.run([*WS, X])
    assert gradients == {}
    for m in range(4):
        np.testing.assert_allclose(results[m][0].numpy(), net(WS, X[m]), rtol=1e-5, atol=1e-6)


def test_errors():
    with pytest.raises(ParameterError, match="more stages"):
        made(5)
    with pytest.raises(ParameterError, match="replica"):
        made(1, replicas=3)
    with pytest.raises(ExecutionError, match="shape"):
        made(1).run([*WS, X[0], T])
