"""Random small networks, to learn a target's times from: convolutions, depthwise ones, dense layers, sums, pools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.errors import ParameterError

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


def programs(count: int, seed: int = 0) -> Iterator[Program]:
    """``count`` networks: a name, a function of one float32 array, and its arguments.

    Images of 8 to 96 pixels with convolutions of 1 to 7 layers of 8 to 160 channels, some with residual sums, depthwise
    stages and pools; and, one in five, dense layers of 16 to 1,024 units. Weights are random and part of the function.

    Raises:
        ParameterError: ``count`` is not a whole number from 0.

    >>> [name for name, f, args in programs(2)], next(programs(1))[1](next(programs(1))[2][0]).ndim
    (['net 0', 'net 1'], 2)
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ParameterError("predict.programs: count", got=repr(count), expected="a whole number, at least 0")
    for i in range(count):
        random = np.random.default_rng((seed, i))
        yield f"net {i}", *(_dense(random) if random.random() < 0.2 else _convolutions(random))


def _weights(random: np.random.Generator, *shape: int) -> Any:
    return (random.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def _dense(random: np.random.Generator) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    widths = [int(16 * 2 ** random.uniform(0, 6)) for _ in range(random.integers(2, 6))]
    rows = int(random.choice([1, 1, 1, 4, 16]))
    weights = [_weights(random, a, b) for a, b in itertools.pairwise(widths)]

    def net(x: Any) -> Any:
        for w in weights:
            x = nn.relu(x @ w)
        return x

    return net, (random.standard_normal((rows, widths[0])).astype(np.float32),)


def _convolutions(random: np.random.Generator) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    size, channels = int(random.choice([8, 16, 24, 32, 48, 64, 96])), int(random.choice([1, 3, 8, 16]))
    stages: list[tuple[str, Any, int]] = []
    inputs = channels
    for _ in range(random.integers(1, 8)):
        kind = random.choice(["conv", "conv", "conv", "point", "depthwise", "residual", "pool"])
        stride = int(random.choice([1, 1, 2]))
        if kind in ("conv", "point"):
            side = 1 if kind == "point" else int(random.choice([3, 3, 5]))
            outputs = int(8 * 2 ** random.uniform(0, 4.3))
            stages.append(("conv", _weights(random, side, side, inputs, outputs), stride))
            inputs = outputs
        elif kind == "residual":
            stages.append(("residual", _weights(random, 3, 3, inputs, inputs), 1))
        elif kind == "depthwise":
            stages.append(("depthwise", _weights(random, 3, 3, 1, inputs), stride))
        else:
            stages.append(("pool", None, 2))
    last = _weights(random, inputs, 10)

    def net(x: Any) -> Any:
        for kind, w, stride in stages:
            if kind == "pool":
                if min(x.shape[1:3]) > 1:
                    window = (1, stride, stride, 1)
                    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
                continue
            groups = x.shape[-1] if kind == "depthwise" else 1
            y = lax.conv_general_dilated(
                x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
            )
            x = nn.relu(x + y if kind == "residual" else y)
        return x.mean((1, 2)) @ last

    return net, (random.standard_normal((1, size, size, channels)).astype(np.float32),)
