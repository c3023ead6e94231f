"""Arrays to call with: shapes with and without elements, all dtypes, values with the odd ones among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (0,), (2, 0, 3), (1,), (2, 1, 3), (3, 3), (2, 2, 2))
BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32")
UNSIGNED = ("uint8", "uint16", "uint32")
INTS = SIGNED + UNSIGNED
FLOATS = ("float32", "float16", "bfloat16")
COMPLEX = ("complex64",)
REAL = BOOL + INTS + FLOATS
NUMBERS = REAL + COMPLEX
ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e-30)


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


class Inputs:
    """Arrays drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def choice(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def shape(self) -> tuple[int, ...]:
        return self.choice(SHAPES)

    def array(
        self,
        shape: Sequence[int] | None = None,
        dtypes: str | Sequence[str] = NUMBERS,
        *,
        low: float | None = None,
        high: float | None = None,
        odd: float = 0.0,
    ) -> np.ndarray:
        """An array of ``shape`` and one of ``dtypes``, of values in [low, high) or around 0.

        A share ``odd`` of them are NaN, infinities, zeros of both signs, huge and tiny; of integers, the extremes.
        """
        shape = tuple(self.shape() if shape is None else shape)
        name = dtypes if isinstance(dtypes, str) else self.choice(dtypes)
        if name == "bool":
            return np.asarray(self.random.integers(0, 2, shape), dtype=bool)
        if "int" in name:
            info = ml_dtypes.iinfo(dtype(name))
            least, most = max(int(info.min), -9 if low is None else int(low)), 10 if high is None else int(high)
            values = np.asarray(self.random.integers(least, max(min(most, int(info.max) + 1), least + 1), shape))
            if odd:
                extreme = np.where(self.random.random(shape) < 0.5, int(info.min), int(info.max))
                values = np.where(self.random.random(shape) < odd, extreme, values)
            return values.astype(dtype(name))
        values = self._floats(shape, low, high, odd)
        with np.errstate(all="ignore"):
            if name.startswith("complex"):
                values = values + 1j * self._floats(shape, low, high, odd)
            return np.asarray(values).astype(dtype(name))

    def _floats(self, shape: tuple[int, ...], low: float | None, high: float | None, odd: float) -> Any:
        if low is None and high is None:
            values = self.random.normal(size=shape) * self.choice((1.0, 3.0))
        else:
            values = self.random.uniform(-3.0 if low is None else low, 3.0 if high is None else high, shape)
        if odd:
            values = np.where(self.random.random(shape) < odd, self.random.choice(ODD, shape), values)
        return values

    def broadcastable(self, count: int) -> list[tuple[int, ...]]:
        """Shapes of ``count`` arrays that broadcast together."""
        whole = self.shape()
        shapes = []
        for _ in range(count):
            shape = tuple(1 if n > 1 and self.chance(0.2) else n for n in whole)
            shapes.append(shape[int(self.random.integers(len(shape) + 1)) :] if self.chance(0.25) else shape)
        shapes[int(self.random.integers(count))] = whole
        return shapes

    def axis(self, ndim: int) -> int:
        """An axis of an array with ``ndim`` of them, negative ones too."""
        return int(self.random.integers(-ndim, ndim)) if ndim else 0
