"""Grids as arguments: what each choice of them, and each layer's integers, do to the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.quant import calibration, effects, results
from nxjax.quant.effects import GridChoice, GridEffects, switched_steps
from nxjax.quant.scheme import Layered, as_policy, preset

X = nx.random.normal(nx.random.key(0), (32, 8))
W = nx.random.normal(nx.random.key(1), (8, 8)) / 3
INT8 = as_policy("int8")


def net(x: Any) -> Any:
    y = jnp.tanh(x @ W)
    return y.reshape(16, 16) * 2.0 - jnp.exp(-y.reshape(16, 16))


def looped(x: Any) -> Any:
    y, _ = lax.scan(lambda c, _: (jnp.tanh(c @ W), None), x, None, length=3)
    return y + x


def called(x: Any) -> Any:
    return nx.checkpoint(net)(x) + 1.0


def joined(x: Any) -> Any:
    """Operands of one grid, windows, means, and a softmax."""
    y = jnp.concatenate([x @ W, 3.0 * x], 1)
    return nx.nn.softmax(y / 2.0, axis=-1).mean(0) * jnp.maximum(y, 0.5).sum(0)


def ranges_of(f: Any, *batches: Any) -> Any:
    return calibration.run(f, INT8, batches, "minmax", None, False).ranges


def switches(f: Any, *batches: Any) -> tuple[GridEffects, GridChoice, int]:
    ranges = ranges_of(f, *batches)
    found = GridEffects(f, INT8, None, ranges, batches, switched=True)
    return found, found.choice(ranges), len(switched_steps(found.plan))


def share(f: Any, q: Any, x: Any) -> float:
    y, z = np.asarray(f(x), np.float64), np.asarray(q(x), np.float64)
    return float(((z - y) ** 2).sum() / (y**2).sum())


@pytest.mark.parametrize("f", [net, looped, called, joined])
def test_all_integers_are_the_quantized_function_and_all_floats_the_function(f: Any):
    found, choice, n = switches(f, (X,))
    q = nx.quantize(f, "int8", calibrate=[(X,)], observer="minmax", bias_correction=False)
    (noise,) = found.noise(choice, {}, [False] * n)
    # Integers round the results of some ops once more.
    assert np.isclose(noise, share(f, q, X), rtol=0.5)
    assert found.noise(choice, {}, [True] * n)[0] < 1e-9


@pytest.mark.parametrize("f", [net, called, joined])
def test_one_program_measures_all_choices(f: Any, monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    monkeypatch.setattr(effects, "jit", lambda fun: made.append(fun) or nx.jit(fun))
    ranges = ranges_of(f, (X,))
    narrow = {site: (low / 3, high / 3) for site, (low, high) in ranges.items()}
    found = GridEffects(f, INT8, None, ranges, [(X,)], switched=True)
    layer = found.plan.layer(found.plan.groups()[0]) if f is not called else "checkpoint_0"
    mixed = Layered(preset("int8"), {layer: "int16x8"})
    for spans, policy in ((ranges, None), (narrow, None), (ranges, mixed)):
        db = found.quality(found.choice(spans, policy), {}).worst
        assert abs(db - results.measured(f, policy or INT8, None, spans, {}, [(X,)]).worst) < 2.0
    assert len(made) == 1


def test_calibration_compiles_no_program_for_each_choice(monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    for module in (effects, calibration):
        name = module.__name__.rsplit(".")[-1]
        monkeypatch.setattr(module, "jit", lambda fun, name=name: made.append(name) or nx.jit(fun))
    x = (nx.random.normal(nx.random.key(2), (4096, 8)) / 2) ** 7
    assert nx.quantize(lambda x: jnp.tanh(x @ W).sum(0), "int8", calibrate=[x]).ranges
    # Ranges and histograms; all choices. Integers are measured as they are first, and as they were chosen.
    assert made.count("calibration") == 2 and made.count("effects") == 1


def test_layers_alone_make_less_noise_than_all_together():
    found, choice, n = switches(net, (X,))
    (every,) = found.noise(choice, {}, [False] * n)
    alone = [found.noise(choice, {}, [j != i for j in range(n)])[0] for i in range(n)]
    # Errors of layers hardly depend on each other: their powers add up.
    assert 0 < max(alone) < every * 2 and every < 2 * sum(alone)


def test_an_argument_that_only_moves_is_a_layer():
    """Whoever puts a value on a grid first rounds it, though it computes nothing."""
    f = lambda x: x.reshape(16, 16).T
    found, choice, n = switches(f, (X,))
    assert n == 1 and found.noise(choice, {}, [False])[0] > 1e-6 and found.noise(choice, {}, [True])[0] < 1e-20


def test_noise_is_over_all_batches():
    """A batch of large numbers outweighs one of small ones."""
    f = lambda x: jnp.tanh(x @ W)
    found, choice, n = switches(f, (X,), (X * 1e-3,))
    first, both = found.noise(choice, {}, [False] * n, 1)[0], found.noise(choice, {}, [False] * n)[0]
    small = GridEffects(f, INT8, None, ranges_of(f, (X,), (X * 1e-3,)), [(X * 1e-3,)])
    assert first < both * 1.001 and both < 0.1 * small.noise(choice, {}, [False] * n)[0]
