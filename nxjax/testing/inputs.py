"""Arguments of random programs: their values, and the memory they come in. Knows nothing of programs."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import nxjax.numpy as jnp
from nxjax.testing.comparison import NDArray
from nxjax.trace import dtypes

_SPECIAL: Final = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38, 1.0)
_POINTS: Final = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 6.0, 1e-3, -1e-3, 20.0, -20.0, 45.0, -45.0, 100.0, -100.0)


@dataclass(frozen=True)
class Argument:
    """An argument of a random program.

    Attributes:
        data: "plain"; "points": where functions change, such as 0 and 1, each once at most; "ties": few different
            values; "positive"; "offset": far from zero; "constant"; "special": NaN, infinities, zeros of both signs,
            denormals; "huge"; "tiny"; "small": integers fit to be indices; "extreme": integers at the ends of their
            range; "python": a Python number.
        seed: of the values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: str = "plain"
    seed: int = 0


def scalar(a: Argument) -> bool:
    """Whether it is a Python number."""
    return a.data == "python" and a.shape == ()


def values(a: Argument) -> Any:
    """The argument, as NumPy has it, or a Python number.

    >>> values(Argument("x", (2,), "int8", "constant")).dtype.name
    'int8'
    """
    rng = np.random.default_rng(a.seed)
    dtype = dtypes.as_dtype(a.dtype)
    name, shape, data = a.dtype, a.shape, a.data
    with np.errstate(all="ignore"):
        if name == "bool":
            made = rng.integers(0, 2, shape).astype(bool)
        elif "int" in name:
            made = _integers(rng, name, shape, data).astype(dtype)
        else:
            made = rng.normal(size=shape)
            if name.startswith("complex"):
                made = made + 1j * rng.normal(size=shape)
            if data == "points" and made.size:
                at = rng.permutation(made.size)[: len(_POINTS)]
                made.reshape(-1)[at] = rng.permutation(_POINTS)[: len(at)]
            elif data == "ties":
                made = np.round(made)
            elif data == "positive":
                made = np.abs(made)
            elif data == "offset":
                made = made + float(rng.choice([30.0, 300.0, 1e4]))
            elif data == "constant":
                made = np.full(shape, float(rng.choice([0.0, 1.0, -0.5, 0.1])))
            elif data == "special":
                made = np.where(rng.random(shape) < 0.3, rng.choice(_SPECIAL, shape), made)
            elif data == "huge":
                made = made * 10.0 ** rng.integers(0, 4 if name == "float16" else 30, shape)
            elif data == "tiny":
                made = made * 10.0 ** -rng.integers(0, 8 if name == "float16" else 45, shape).astype(float)
            made = np.asarray(made).astype(dtype)
    return np.asarray(made).item() if scalar(a) else np.asarray(made)


def _integers(rng: np.random.Generator, name: str, shape: tuple[int, ...], data: str) -> NDArray:
    bits = int(name.lstrip("uint"))
    low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if data == "extreme":
        ends = np.array([low, low + 1, high, high - 1, 0, 1], np.uint64 if name[0] == "u" else np.int64)
        return rng.choice(ends, shape)
    if data == "small":
        return rng.integers(max(low, -2), min(high, 7) + 1, shape)
    return rng.integers(max(low, -100), min(high, 100), shape, endpoint=True)


def _offset(x: NDArray) -> NDArray:
    """At an address that is no multiple of the item's size."""
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:]
    placed = memory.view(x.dtype).reshape(x.shape) if x.size else x
    placed[...] = x
    return placed


def _reversed(x: NDArray) -> NDArray:
    """Backwards in memory along every axis."""
    back = (slice(None, None, -1),) * x.ndim
    return x[back].copy(order="C")[back] if x.ndim else x.copy()


def _strided(x: NDArray) -> NDArray:
    """Every second element of a larger array."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype) if x.ndim else np.zeros(2, x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2] if x.ndim else wide[:1].reshape(())


def _broadcast(x: NDArray) -> NDArray:
    """One row for all of them, where the rows are equal."""
    same = x.ndim and x.shape[0] > 1 and x.tobytes() == np.ascontiguousarray(np.broadcast_to(x[:1], x.shape)).tobytes()
    return np.broadcast_to(x[:1], x.shape) if same else x


def _read_only(x: NDArray) -> NDArray:
    x = x.copy()
    x.flags.writeable = False
    return x


def _memmap(x: NDArray) -> NDArray:
    if not x.size:
        return x
    file, path = tempfile.mkstemp()
    with os.fdopen(file, "wb") as out:
        out.write(x.tobytes())
    mapped = np.memmap(path, x.dtype, "r", shape=x.shape)
    os.unlink(path)  # the mapping stays
    return mapped


# The memory that an argument comes in; all have the same elements.
LAYOUTS: Final[dict[str, Any]] = {
    "array": lambda x: jnp.asarray(x.copy(), dtype=x.dtype),
    "numpy": lambda x: x.copy(),
    "transposed": lambda x: x.T.copy().T,
    "reversed": _reversed,
    "strided": _strided,
    "offset": _offset,
    "broadcast": _broadcast,
    "read-only": _read_only,
    "memmap": _memmap,
}
