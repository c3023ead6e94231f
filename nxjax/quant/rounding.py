"""Better rounding than to the nearest: GPTQ and AdaRound. Both return parameter trees with `QArray` leaves.

Both minimize, layer by layer, the squared error of the layer's result on calibration data, which for weights W [o, k]
and inputs X [n, k] is tr((W - Q) H (W - Q)^T) with H = X^T X: the data are needed once, for H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nxjax.ops.fake_quantize import blocks
from nxjax.ops.quant_traced import symmetric_limit
from nxjax.quant.calibration import given
from nxjax.quant.error_feedback import fed_back, feedback
from nxjax.quant.layers import Layers, WeightLayer
from nxjax.quant.matrices import from_matrices, matrices, rows
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]
# Rounds [o, k] weights over their scales [o, k]: given w / scale, H and the limit, gives whole numbers.
Rounder = Callable[[NDArray, NDArray, NDArray, float], NDArray]


@entry
def gptq(
    fun: Callable[..., Any],
    data: Iterable[Any],
    policy: Any = "int4-weights",
    *,
    damping: float = 0.01,
    params: Sequence[int] | int | None = None,
) -> Any:
    """Weights rounded column by column. The following columns compensate for each error.

    Frantar et al. 2022, "GPTQ: accurate post-training quantization for generative pre-trained transformers"
    (arXiv:2210.17323), algorithm 1. `quantize` does this by itself for weights of 4 bits, with scales that it searches,
    wherever the weights come from; this is for parameter trees, other storage and other damping.

    Args:
        fun: float function.
        data: an iterable of argument tuples; the first one's parameters are quantized.
        policy: the storage of each product's weights.
        damping: share of the mean of H's diagonal that is added to it.
        params: as for `quantize`.

    Returns:
        The parameter tree with `QArray` leaves.

    Raises:
        ParameterError: no data.

    >>> p = {"w": jnp.array([[1.0, -0.31], [0.52, 2.0]])}
    >>> gptq(lambda p, x: x @ p["w"], [(p, jnp.array([[1.0, 2.0], [0.5, -1.0]]))])
    {'w': QArray(i4[2,2], 1x2 scales)}
    """
    feed = lambda w, s, h, limit: fed_back(w, s, feedback(h, damping=damping), limit)
    return _rounded("gptq", fun, data, policy, params, feed)


@entry
def adaround(
    fun: Callable[..., Any],
    data: Iterable[Any],
    policy: Any = "int8-weights",
    *,
    steps: int = 300,
    params: Sequence[int] | int | None = None,
) -> Any:
    """Weights rounded up or down, as gradient descent finds best for the layer's result.

    Nagel et al. 2020, "Up or down? Adaptive rounding for post-training quantization" (arXiv:2004.10568), equations
    21 to 25: rectified sigmoids h(V) between the two neighbours, pushed to 0 or 1 by ``1 - |2h - 1|^beta``.

    Args:
        steps: of Adam, per layer.
        fun, data, policy, params: as for `gptq`.

    Returns:
        The parameter tree with `QArray` leaves.

    Raises:
        ParameterError: no data.

    >>> p = {"w": jnp.array([[1.0, -0.31], [0.52, 2.0]])}
    >>> adaround(lambda p, x: x @ p["w"], [(p, jnp.array([[1.0, 2.0], [0.5, -1.0]]))], steps=20)
    {'w': QArray(i8[2,2], 1x2 scales)}
    """
    learn = lambda w, s, h, limit: _adaround(w, s, h, limit, steps)
    return _rounded("adaround", fun, data, policy, params, learn)


def _rounded(
    name: str,
    fun: Callable[..., Any],
    data: Iterable[Any],
    policy: Any,
    params: Sequence[int] | int | None,
    rounder: Rounder,
) -> Any:
    batches = list(given(fun, data, name))
    layers = Layers(fun, policy, params, batches[0])
    totals: dict[str, NDArray] = {}

    def take(layer: WeightLayer, x: NDArray) -> None:
        r = rows(layer.group, wrap(x)).numpy()
        totals[layer.name] = totals.get(layer.name, 0) + np.matmul(r.transpose(0, 2, 1), r, dtype=np.float64)

    layers.observe(batches, take, name)
    for layer in layers.layers:
        group = layer.group
        dtype = group.scheme.weights
        if dtype is None or dtype in dtypes.FLOAT or group.changes_weights:
            continue
        w = layers.weight(layer)
        scale = group.plain_scale(w)
        limit = symmetric_limit(dtype)
        m, s = matrices(group, w).astype(np.float64), matrices(group, blocks(scale, w.shape)).astype(np.float64)
        q = np.stack([rounder(*each, limit) for each in zip(m, s, totals[layer.name], strict=True)])
        stored = from_matrices(group, np.clip(q, -limit, limit), w.shape).astype(np.int8).astype(dtype)
        layers.set_stored(layer, stored, scale)
    return layers.result()


# h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1): reaches 0 and 1 at finite V (equation 23).
_ZETA, _GAMMA = 1.1, -0.1


# Weight of the term that pushes h to 0 or 1, with H scaled to a mean diagonal of 1.
_PUSH = 0.01


def _adaround(w: NDArray, scale: NDArray, h: NDArray, limit: float, steps: int) -> NDArray:
    low = np.floor(w / scale)
    rest = np.clip(w / scale - low, 1e-4, 1 - 1e-4)
    v = -np.log((_ZETA - _GAMMA) / (rest - _GAMMA) - 1)
    k = len(h)
    h = h / max(float(np.trace(h)) / k, 1e-30)
    weight = scale / np.sqrt(np.mean(scale**2))
    first, second = np.zeros_like(v), np.zeros_like(v)
    warm = steps // 5
    for t in range(1, steps + 1):
        sigmoid = 1 / (1 + np.exp(-v))
        stretched = sigmoid * (_ZETA - _GAMMA) + _GAMMA
        up = np.clip(stretched, 0, 1)
        error = (np.clip(low + up, -limit, limit) - w / scale) * weight
        gradient = 2 / k * (error @ h) * weight
        if t > warm:
            # beta falls from 20 to 2: first only doubtful weights are pushed, in the end all (section 3.2).
            beta = 2 + 18 * (1 - (t - warm) / (steps - warm))
            side = 2 * up - 1
            gradient -= 2 * _PUSH * beta * np.sign(side) * np.abs(side) ** (beta - 1)
        inside = (stretched > 0) & (stretched < 1)
        gradient = gradient * inside * (_ZETA - _GAMMA) * sigmoid * (1 - sigmoid)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        v -= 0.02 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    found = low + ((_ZETA - _GAMMA) / (1 + np.exp(-v)) + _GAMMA >= 0.5)
    nearest = np.rint(w / scale)
    loss = lambda q: np.sum(((np.clip(q, -limit, limit) * scale - w) @ h) * (np.clip(q, -limit, limit) * scale - w), 1)
    # Row by row, never worse than rounding to the nearest.
    return np.where((loss(found) < loss(nearest))[:, None], found, nearest)
