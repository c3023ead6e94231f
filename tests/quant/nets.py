"""Random networks: convolutions in either layout and dense layers, with what stands around them in real ones."""

from collections.abc import Callable
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": nx.nn.relu,
    "relu6": nx.nn.relu6,
    "clip": lambda x: jnp.clip(x, -1.0, 2.0),
    "sigmoid": nx.nn.sigmoid,
    "tanh": jnp.tanh,
    "hard_swish": nx.nn.hard_swish,
    "leaky_relu": nx.nn.leaky_relu,
    "elu": nx.nn.elu,
    "silu": nx.nn.silu,
    "gelu": nx.nn.gelu,
    "abs": jnp.abs,
}
# TFLite has no 16-bit kernels of these.
NARROW = ("elu", "hard_swish")


class Net:
    """A random function of (parameters, picture or rows), its parameters and its data.

    ``dense`` leaves convolutions out, ``wide`` what cannot be deployed with 16-bit activations.
    """

    def __init__(self, seed: int, dense: bool = False, wide: bool = False) -> None:
        self.activations = [a for a in ACTIVATIONS if not (wide and a in NARROW)]
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.params: dict[str, np.ndarray] = {}
        self.layers: list[Callable[[dict[str, Any], Any], Any]] = []
        self.words: list[str] = []
        self.nchw = self.choice(True, False)
        self.batch = self.choice(1, 2, 3)
        if dense:
            self.features = self.choice(3, 5, 8)
            self.shape: tuple[int, ...] = (self.batch, self.features)
        else:
            self.features, side = self.choice(1, 3, 4), self.choice(7, 8, 10)
            self.shape = (
                (self.batch, self.features, side, side) if self.nchw else (self.batch, side, side, self.features)
            )
            for _ in range(self.choice(1, 2, 3)):
                self.choice(
                    self.conv, self.conv, self.depthwise, self.residual, self.pool, self.batch_norm, self.join
                )()
            self.end()
        for _ in range(self.choice(1, 2, 3) if dense else self.choice(0, 1)):
            self.dense()
        self.choice(lambda: None, self.softmax)()

    def __repr__(self) -> str:
        return f"Net({self.seed}: {self.shape} {' '.join(self.words)})"

    def __call__(self, params: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(params, x)
        return x

    def choice(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def data(self, n: int = 2, scale: float = 1.0) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
        r = np.random.default_rng(self.seed + 1)
        return [(self.params, (scale * r.standard_normal(self.shape)).astype(np.float32)) for _ in range(n)]

    def weight(self, *shape: int, scale: float | None = None) -> str:
        name = f"w{len(self.params):02}"
        fan = np.sqrt(np.prod(shape[1:]) or 1) if scale is None else 1 / scale
        self.params[name] = (self.rng.standard_normal(shape) / fan).astype(np.float32)
        return name

    def add(self, word: str, layer: Callable[[dict[str, Any], Any], Any]) -> None:
        self.words.append(word)
        self.layers.append(layer)

    def row(self, v: Any) -> Any:
        return v[:, None, None] if self.nchw else v

    @property
    def channel(self) -> int:
        return 1 if self.nchw else 3

    def _conv(self, outs: int, groups: int, strides: int = 1) -> Callable[[dict[str, Any], Any], Any]:
        k = self.choice(1, 2, 3)
        dilation = self.choice(1, 1, 2) if strides == 1 else 1
        w = self.weight(outs, self.features // groups, k, k)
        b = self.choice(None, self.weight(outs, scale=0.3))
        act = self.choice(*self.activations)
        self.words.append(f"{k}x{k}/{strides}d{dilation}g{groups}+{act}")
        numbers = ("NCHW", "OIHW", "NCHW") if self.nchw else ("NHWC", "OIHW", "NHWC")

        def run(p: dict[str, Any], x: Any) -> Any:
            y = lax.conv_general_dilated(
                x, p[w], (strides, strides), "SAME", rhs_dilation=(dilation, dilation), dimension_numbers=numbers,
                feature_group_count=groups,
            )  # fmt: skip
            return ACTIVATIONS[act](y if b is None else y + self.row(p[b]))

        return run

    def conv(self) -> None:
        outs = self.choice(2, 4, 6)
        groups = 2 if self.features % 2 == 0 and self.choice(True, False, False) else 1
        self.add("conv", self._conv(outs, groups, self.choice(1, 1, 2)))
        self.features = outs

    def depthwise(self) -> None:
        times = self.choice(1, 1, 2)
        self.add("depthwise", self._conv(self.features * times, self.features))
        self.features *= times

    def residual(self) -> None:
        inner = self._conv(self.features, 1)
        how = self.choice(lambda a, b: a + b, lambda a, b: b - a, lambda a, b: a * b, lambda a, b: nx.nn.relu(a + b))
        self.add("residual", lambda p, x: how(x, inner(p, x)))

    def join(self) -> None:
        inner = self._conv(self.features, 1)
        self.add("join", lambda p, x: jnp.concatenate([x, inner(p, x)], self.channel))
        self.features *= 2

    def batch_norm(self) -> None:
        inner = self._conv(self.features, 1)
        gain, shift, mean, spread = (self.weight(self.features, scale=0.5) for _ in range(4))

        def run(p: dict[str, Any], x: Any) -> Any:
            y = inner(p, x)
            scale = (p[gain] + 1.5) / jnp.sqrt(p[spread] ** 2 + 0.5)
            return nx.nn.relu((y - self.row(p[mean])) * self.row(scale) + self.row(p[shift]))

        self.add("norm", run)

    def pool(self) -> None:
        window = (1, 1, 2, 2) if self.nchw else (1, 2, 2, 1)
        padding = self.choice("SAME", "VALID")
        if self.choice(True, False):
            self.add("maxpool", lambda p, x: lax.reduce_window(x, -jnp.inf, lax.max, window, window, padding))
        else:
            self.add(
                "avgpool", lambda p, x: nx.nn.relu(lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / 4)
            )

    def end(self) -> None:
        axes = (2, 3) if self.nchw else (1, 2)
        if self.choice(True, False, True):
            self.add("mean", lambda p, x: x.mean(axes))
        else:
            self.add("max", lambda p, x: x.max(axes))

    def dense(self) -> None:
        outs = self.choice(3, 4, 10)
        w, b = self.weight(self.features, outs), self.choice(None, self.weight(outs, scale=0.3))
        act = self.choice(*self.activations)
        self.add(f"dense{outs}+{act}", lambda p, x: ACTIVATIONS[act](x @ p[w] if b is None else x @ p[w] + p[b]))
        self.features = outs

    def softmax(self) -> None:
        self.add("softmax", lambda p, x: nx.nn.softmax(x))
