"""The activation functions of `nxjax.nn` as layers without parameters."""

from __future__ import annotations

from typing import final

from nxjax.nn import activations, softmaxes
from nxjax.nn.modules.base import Module
from nxjax.numpy.documented import shown
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


@final
@shown("ReLU()(nx.array([-1.0, 2.0])).tolist()", "[0.0, 2.0]")
class ReLU(Module):
    """max(x, 0)"""

    def __call__(self, x: ArrayLike) -> Array:
        return activations.relu(x)


@final
@shown("ReLU6()(nx.array([-1.0, 8.0])).tolist()", "[0.0, 6.0]")
class ReLU6(Module):
    """min(max(x, 0), 6)"""

    def __call__(self, x: ArrayLike) -> Array:
        return activations.relu6(x)


@final
class GELU(Module):
    """x times the normal distribution function of x; ``approximate`` by a hyperbolic tangent.

    >>> GELU(approximate=True)
    GELU(approximate=True)
    >>> print(GELU()(nx.array([-1.0, 0.0, 1.0])).round(4))
    [-0.1587  0.      0.8413]
    """

    def __init__(self, approximate: bool = False) -> None:
        self.approximate = bool(approximate)

    def __call__(self, x: ArrayLike) -> Array:
        return activations.gelu(x, self.approximate)

    def _settings(self) -> str:
        return "approximate=True" if self.approximate else ""


@final
@shown("print(SiLU()(nx.array([-1.0, 0.0, 1.0])).round(4))", "[-0.2689  0.      0.7311]")
class SiLU(Module):
    """x * sigmoid(x)"""

    def __call__(self, x: ArrayLike) -> Array:
        return activations.silu(x)


@final
@shown("Sigmoid()(nx.zeros(2)).tolist()", "[0.5, 0.5]")
class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def __call__(self, x: ArrayLike) -> Array:
        return activations.sigmoid(x)


@final
@shown("print(Tanh()(nx.array([-1.0, 0.0])).round(4))", "[-0.7616  0.    ]")
class Tanh(Module):
    """Hyperbolic tangent."""

    def __call__(self, x: ArrayLike) -> Array:
        return activations.tanh(x)


@final
@shown("Softmax(axis=0)(nx.zeros((2, 1))).tolist()", "[[0.5], [0.5]]")
class Softmax(Module):
    """exp(x) / sum(exp(x)) along ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = int(axis)

    def __call__(self, x: ArrayLike) -> Array:
        return softmaxes.softmax(x, axis=self.axis)

    def _settings(self) -> str:
        return "" if self.axis == -1 else f"axis={self.axis}"
