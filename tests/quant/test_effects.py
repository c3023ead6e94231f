"""Switched layers: what each layer's integers do to the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.quant import calibration, results
from nxjax.quant.effects import LayerSwitches, switched_steps
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import as_policy

X = nx.random.normal(nx.random.key(0), (32, 8))
W = nx.random.normal(nx.random.key(1), (8, 8)) / 3


def net(x: Any) -> Any:
    y = jnp.tanh(x @ W)
    return y.reshape(16, 16) * 2.0 - jnp.exp(-y.reshape(16, 16))


def looped(x: Any) -> Any:
    y, _ = lax.scan(lambda c, _: (jnp.tanh(c @ W), None), x, None, length=3)
    return y + x


def switches(f: Any, *batches: Any) -> tuple[LayerSwitches, int]:
    policy = as_policy("int8")
    ranges = calibration.run(f, policy, batches, "minmax", None, False).ranges
    plan = PlannedCall(f, batches[0], {}, None).plan(policy, "quantize")
    return LayerSwitches(f, policy, None, ranges, {}, batches), len(switched_steps(plan))


@pytest.mark.parametrize("f", [net, looped])
def test_all_integers_are_the_quantized_function_and_all_floats_the_function(f: Any):
    found, n = switches(f, (X,))
    q = nx.quantize(f, "int8", calibrate=[(X,)], observer="minmax", bias_correction=False)
    y, z = np.asarray(f(X), np.float64), np.asarray(q(X), np.float64)
    (noise,) = found.noise([False] * n)
    assert np.isclose(noise, ((z - y) ** 2).sum() / (y**2).sum(), rtol=1e-3)
    assert found.noise([True] * n)[0] < 1e-10


def test_layers_alone_make_less_noise_than_all_together():
    found, n = switches(net, (X,))
    (every,) = found.noise([False] * n)
    alone = [found.noise([j != i for j in range(n)])[0] for i in range(n)]
    # Errors of layers hardly depend on each other: their powers add up.
    assert 0 < max(alone) < every * 2 and every < 2 * sum(alone)


def test_an_argument_that_only_moves_is_a_layer():
    """Whoever puts a value on a grid first rounds it, though it computes nothing."""
    f = lambda x: x.reshape(16, 16).T
    found, n = switches(f, (X,))
    assert n == 1 and found.noise([False])[0] > 1e-6 and found.noise([True])[0] == 0.0


def test_noise_is_over_all_batches():
    """A batch of large numbers outweighs one of small ones."""
    f = lambda x: jnp.tanh(x @ W)
    found, n = switches(f, (X,), (X * 1e-3,))
    first, both = found.noise([False] * n, 1)[0], found.noise([False] * n)[0]
    small = LayerSwitches(f, as_policy("int8"), None, *_ranges(f, (X,), (X * 1e-3,)), [(X * 1e-3,)])
    assert first < both * 1.001 and both < 0.1 * small.noise([False] * n)[0]


def _ranges(f: Any, *batches: Any) -> tuple[Any, Any]:
    return calibration.run(f, as_policy("int8"), batches, "minmax", None, False).ranges, {}


def test_results_say_the_same():
    """Both measure the noise of results in one way."""
    found, n = switches(net, (X,), (X * 0.5,))
    ranges, none = _ranges(net, (X,), (X * 0.5,))
    (db,) = results.measured(net, as_policy("int8"), None, ranges, none, [(X,), (X * 0.5,)]).results
    assert np.isclose(results.sqnr(1.0, found.noise([False] * n)[0]), db, atol=0.01)
