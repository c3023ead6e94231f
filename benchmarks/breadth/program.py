"""A program in the words of JAX's users, and the arrays that it is called with. Knows no library."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

TINY = 12  # the largest extent in tests: 2, 3, 4, 6 and 12 divide it


def _spd(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    n = shape[-1]
    a = random.normal(size=shape) / np.sqrt(n)
    return a @ np.swapaxes(a, -1, -2) + np.eye(n)


def _stochastic(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    a = random.uniform(0.1, 1.0, shape)
    return a / a.sum(-1, keepdims=True)


# What the elements of a real argument are.
KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "small": lambda random, shape: random.normal(size=shape) / 10,
    "positive": lambda random, shape: random.uniform(0.5, 2.0, shape),
    "unit": lambda random, shape: random.uniform(0.01, 0.99, shape),
    "sorted": lambda random, shape: np.sort(random.uniform(0.0, 1.0, shape)),
    "binary": lambda random, shape: random.integers(0, 2, shape),
    "counts": lambda random, shape: random.poisson(3.0, shape),
    "spd": _spd,
    "stochastic": _stochastic,
}


@dataclass(frozen=True)
class Inputs:
    """The extents of a program's letters, and the dtype of its real arguments."""

    extents: dict[str, int]
    dtype: str = "float32"

    @classmethod
    def parsed(cls, text: str) -> Inputs:
        """``"n=100 d=3 float64"``."""
        words = text.split()
        extents = {name: int(n) for name, _, n in (word.partition("=") for word in words if "=" in word)}
        return cls(extents, next((word for word in words if "=" not in word), "float32"))

    def tiny(self, dtype: str = "float32") -> Inputs:
        return Inputs({name: min(n, TINY) for name, n in self.extents.items()}, dtype)

    @property
    def wide(self) -> bool:
        return self.dtype in ("float64", "complex128")

    def __str__(self) -> str:
        return " ".join([*(f"{name}={n}" for name, n in self.extents.items()), self.dtype])

    def array(self, text: str, random: np.random.Generator) -> np.ndarray:
        """``"n d: positive"``: an extent for each letter or number; a kind, ``below k`` for indices, or ``bytes``."""
        dims, _, kind = text.partition(":")
        shape = tuple(self._extent(word) for word in dims.split())
        name, *more = kind.split() or ["normal"]
        if name == "below":
            return np.asarray(random.integers(0, self._extent(more[0]), shape), np.int32)
        if name == "bytes":
            return random.integers(0, 256, shape, np.uint8)
        values = KINDS[name](random, shape)
        if "complex" in more:
            values = values + 1j * KINDS[name](random, shape)
            return np.asarray(values, np.complex128 if self.wide else np.complex64)
        return np.asarray(values, self.dtype)

    def _extent(self, word: str) -> int:
        return int(word) if word.isdigit() else self.extents[word]


@dataclass(frozen=True)
class Program:
    """``function(lib, *arrays)``, where ``lib`` is ``nxjax``, ``jax``, or what has some of their names.

    Attributes:
        arguments: what each array is, see `Inputs.array`.
        rows: the inputs to run it with, see `Inputs.parsed`; the first is the one of a quick run.
        tolerance: how many times the usual error of the dtype is still the same result.
    """

    area: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    rows: tuple[Inputs, ...]
    tolerance: float = 1.0
    doc: str = field(default="", compare=False)

    def arrays(self, inputs: Inputs) -> list[np.ndarray]:
        """The same arrays for the same program and inputs."""
        random = np.random.default_rng(zlib.crc32(f"{self.area}.{self.name}".encode()))
        return [inputs.array(text, random) for text in self.arguments]

    def title(self, inputs: Inputs) -> str:
        return f"{self.area}.{self.name} [{inputs}]"

    def of(self, lib: Any) -> Callable[..., Any]:
        return lambda *arrays: self.function(lib, *arrays)

    def tiny(self) -> Program:
        """The same with one row of small extents."""
        return replace(self, rows=(self.rows[0].tiny(),))


def program(*arguments: str, rows: tuple[str, ...], tolerance: float = 1.0) -> Callable[[Callable[..., Any]], Program]:
    """Make a function of a library and arrays a `Program` of the area that its module is named for."""

    def made(function: Callable[..., Any]) -> Program:
        area = function.__module__.rpartition(".")[2]
        inputs = tuple(Inputs.parsed(row) for row in rows)
        return Program(area, function.__name__, function, arguments, inputs, tolerance, function.__doc__ or "")

    return made
