"""The distance of an artifact's results from the exact integer reference: in steps of the result's grid (LSB), in
counts of different plain integers, and in real numbers. A measure that does not apply is None, never 0. And other
inputs than the example, where its results are all one value and so tell nothing of what computed them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ExecutionError
from nxjax.lower.npu.graph import Tensor
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
# More different differences than these are shown in ranges.
MOST_BARS: Final = 17
# What rounding alone can come to: steps of a grid; of floats, a share of the largest result.
_STEPS: Final = 2
_ROUNDED: Final = 2.0**-7
# What float16 leaves of an input, and how much more its other roundings may come to.
_HALF: Final = 2.0**-11
_MORE: Final = 4.0
# Noise to signal, in power, where results vary: of a constant it is 1 at the least.
_FAR: Final = 0.5
# Error to value, where all results are one value: of zeros it is 1.
_NEAR: Final = 0.25
# Other inputs that are drawn.
_DRAWS: Final = 4


@final
@dataclass(frozen=True)
class Deviation:
    """Differences between the measured results and the reference, over all results.

    Attributes:
        runs_on: what ran.
        histogram: difference in steps -> number of elements, for results on a grid; else empty.
        max_error: the largest absolute difference in real numbers; of labels and other integers, of their values.
        rms_error: root of the mean squared difference.
        scale: the largest magnitude of the reference.
        integers: difference -> number of elements, for results that are plain integers or booleans.
        floats: elements of results that are neither.
        file: which of the artifact's files ran; empty if unknown.
        sqnr: signal to noise in decibels, 10 log10(sum of y^2 / sum of (x - y)^2), of results that are real numbers: x
            is measured, y the reference. Infinite if all are equal; None if all results are plain integers.
        unrelated: whether a result says nothing of the reference: it is as far off as the best constant is, or of
            labels and other integers, as many are wrong; beyond what a grid or a float rounds.

    >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> artifact.deviation.max_error, artifact.deviation.max_lsb is None
    (0.0, True)
    """

    runs_on: str
    histogram: dict[int, int]
    max_error: float
    rms_error: float
    scale: float
    integers: dict[int, int] = field(default_factory=dict[int, int])
    floats: int = 0
    file: str = ""
    sqnr: float | None = None
    unrelated: bool = False

    @property
    def max_lsb(self) -> int | None:
        """The largest difference in steps; None if no result is on a grid."""
        return max(map(abs, self.histogram), default=None)

    @property
    def unequal(self) -> int:
        """The number of different elements in plain integer results."""
        return sum(n for k, n in self.integers.items() if k)

    @property
    def exact(self) -> bool:
        """Whether every result equals the reference: each step, each integer, each float."""
        return self.max_error == 0.0 and not self.unequal and not any(self.histogram)

    @property
    def short(self) -> str:
        """The largest difference of each kind of result, in a few words for a table."""
        parts: list[str] = []
        if self.max_lsb is not None:
            parts.append(f"{self.max_lsb} LSB")
        if self.integers:
            parts.append(f"{self.unequal} of {sum(self.integers.values())} integers")
        if self.floats:
            parts.append(f"{self.max_error / self.scale if self.scale else self.max_error:.0e} in float")
        if self.sqnr is not None and np.isfinite(self.sqnr):
            parts.append(f"{self.sqnr:.0f} dB")
        return ", ".join(parts) or "no elements"

    def __str__(self) -> str:
        lines: list[str] = []
        if self.histogram:
            total = sum(self.histogram.values())
            bars = self._bars()
            width = max(len(words) for words, _ in bars)
            lines.append(f"difference to the integer reference on {self.runs_on}:")
            for words, n in bars:
                lines.append(f"  {words:>{width}} LSB  {n / total:7.2%}  {'#' * max(1, round(40 * n / total))}")
        if self.integers:
            total, most = sum(self.integers.values()), max(map(abs, self.integers))
            by = f", by at most {most}" if most else ""
            lines.append(f"{self.unequal} of {total} integers differ{by} on {self.runs_on}")
        if self.floats or not lines:
            error = f"{self.max_error:.3g} (values up to {self.scale:.3g})"
            lines.append(f"float results differ by at most {error} on {self.runs_on}")
        if self.sqnr is not None and np.isfinite(self.sqnr):
            lines[0] = f"signal to noise {self.sqnr:.1f} dB; {lines[0]}"
        return "\n".join(lines)

    __repr__ = __str__

    def _bars(self) -> list[tuple[str, int]]:
        """Each difference, or where there are many, those of 4 steps and more by powers of two."""
        if len(self.histogram) <= MOST_BARS:
            return [(f"{k:+d}", n) for k, n in sorted(self.histogram.items())]
        found: dict[tuple[int, int], int] = {}
        for k, n in self.histogram.items():
            low = abs(k) if abs(k) < 4 else 1 << (abs(k).bit_length() - 1)
            high = abs(k) if abs(k) < 4 else 2 * low - 1
            ends = (-high, -low) if k < 0 else (low, high)
            found[ends] = found.get(ends, 0) + n
        return [(f"{a:+d}" if a == b else f"{a:+d} to {b:+d}", n) for (a, b), n in sorted(found.items())]


def cancelled(meaning: Callable[[Sequence[NDArray]], list[NDArray]], inputs: Sequence[NDArray]) -> list[float]:
    """How far apart roundings of float16 may bring each result, whose parts may cancel: by inputs that are rounded so.

    >>> meaning = lambda xs: [xs[0] - xs[0].mean()]
    >>> [x < 1e-2 for x in cancelled(meaning, [np.float32([1, 1, 1])])], cancelled(lambda xs: xs, [np.int8([3])])
    ([True], [0.0])
    """
    signs = np.random.default_rng(0)
    moved = [
        (x * (1 + _HALF * signs.choice([-1, 1], np.shape(x)))).astype(x.dtype)
        if dtypes.is_differentiable(x.dtype)
        else x
        for x in map(np.asarray, inputs)
    ]
    found: list[float] = []
    for a, b in zip(meaning(moved), meaning(inputs), strict=True):
        wide = np.complex128 if np.iscomplexobj(b) else np.float64
        with np.errstate(invalid="ignore"):
            apart = np.abs(np.asarray(a).astype(wide) - np.asarray(b).astype(wide))
        found.append(_MORE * float(apart[np.isfinite(apart)].max(initial=0.0)))
    return found


def constant(y: NDArray) -> bool:
    """Whether a result is one value, which what answers everything with it gives as well.

    >>> constant(np.zeros(3)), constant(np.float32([0, 1])), constant(np.full(2, np.nan)), constant(np.zeros(0))
    (True, False, True, False)
    """
    y = np.asarray(y)
    return y.size > 0 and bool(np.all(y == y.flat[0]) or np.all(y != y))


def drawn(inputs: Sequence[Tensor], example: Sequence[NDArray]) -> list[list[NDArray]]:
    """Other stored inputs than the example's, the same each time; none where nothing but the example can be drawn.

    On a grid, of all that it has; floats of the example's size, and above 0 where it is; booleans. Other integers may
    be indices, so that they are the example's own in another order.

    >>> from nxjax.trace.dtypes import int32
    >>> len(drawn([Tensor("x", (2,), np.dtype("float32"))], [np.zeros(2, np.float32)]))
    4
    >>> drawn([Tensor("i", (2,), int32)], [np.int32([7, 7])])
    []
    """
    random = np.random.default_rng(0)
    found = [[_other(random, t, np.asarray(x)) for t, x in zip(inputs, example, strict=True)] for _ in range(_DRAWS)]
    return [xs for xs in found if any(x.tobytes() != np.asarray(y).tobytes() for x, y in zip(xs, example, strict=True))]


def _other(random: np.random.Generator, tensor: Tensor, x: NDArray) -> NDArray:
    if tensor.grid is not None:
        low, high = tensor.grid.limits
        return random.integers(low, high, x.shape, endpoint=True).astype(x.dtype)
    if x.dtype in dtypes.BOOL:
        return random.integers(0, 2, x.shape).astype(x.dtype)
    if x.dtype in dtypes.INTEGER:
        return random.permutation(x.reshape(-1)).reshape(x.shape)
    values = random.standard_normal(x.shape)
    if np.iscomplexobj(x):
        return (values + 1j * random.standard_normal(x.shape)).astype(x.dtype)
    held = x.astype(np.float64)
    held = held[np.isfinite(held)]
    size = float(np.abs(held).max(initial=0.0)) or 1.0
    return (size * (np.abs(values) if held.min(initial=np.inf) > 0 else values)).astype(x.dtype)


def measured(
    runs_on: str,
    outputs: Sequence[Tensor],
    got: Sequence[NDArray],
    wanted: Sequence[NDArray],
    file: str = "",
    rounding: Sequence[float] = (),
) -> Deviation:
    """Compare results in storage dtype with the reference's; ``rounding`` is what each may differ by (`cancelled`).

    Raises:
        ExecutionError: another number of results, or results of other shapes.
    """
    shapes = [np.shape(a) for a in got], [np.shape(b) for b in wanted]
    if shapes[0] != shapes[1]:
        raise ExecutionError(
            f"{runs_on or 'the artifact'} gave results of other shapes", got=shapes[0], expected=shapes[1]
        )
    histogram: dict[int, int] = {}
    integers: dict[int, int] = {}
    squared, count, floats, largest, scale = 0.0, 0, 0, 0.0, 0.0
    signal, noise, real, unrelated = 0.0, 0.0, False, False
    allowed = rounding or [0.0] * len(outputs)
    for tensor, a, b, least in zip(outputs, got, wanted, allowed, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        whole = a.dtype in dtypes.BITS and b.dtype in dtypes.BITS
        if whole:
            counts = histogram if tensor.grid is not None else integers
            for k, n in _differences(a, b):
                counts[k] = counts.get(k, 0) + n
        else:
            floats += a.size
        if tensor.grid is not None and whole:
            a, b = tensor.grid.dequantize(a), tensor.grid.dequantize(b)
        kind = np.complex128 if np.iscomplexobj(a) or np.iscomplexobj(b) else np.float64
        x, y = a.astype(kind), b.astype(kind)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore", over="ignore"):
            # A NaN beside a number is as far off as can be.
            error = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
            squared += float(np.sum(error**2))
            if tensor.grid is not None or not whole:
                real = True
                signal += float(np.sum(np.abs(y[np.isfinite(y)]) ** 2))
                noise += float(np.sum(error**2))
        plain = whole and tensor.grid is None
        step = None if tensor.grid is None else float(np.max(tensor.grid.scale))
        unrelated |= _mislabelled(a, b) if plain else _unrelated(error, y, step, least)
        count += error.size
        largest = max(largest, float(error.max(initial=0.0)))
        scale = max(scale, float(np.abs(y[np.isfinite(y)]).max(initial=0.0)))
    rms = float(np.sqrt(squared / max(count, 1)))
    sqnr = _decibels(signal, noise) if real else None
    return Deviation(runs_on, histogram, largest, rms, scale, integers, floats, file, sqnr, unrelated)


# Rows of so many integers are places of the largest elements; of more, each is compared where it stands.
_PLACES: Final = 1024


def _mislabelled(got: NDArray, wanted: NDArray) -> bool:
    """Whether as many integers are wrong as of the best constant; where all are one value, whether half are.

    Places of the largest elements, all different in a row, are right in any order: equal ones stand in none.
    """
    wrong = got != wanted
    counts = np.unique(wanted, return_counts=True)[1]
    allowed = wrong.size - counts.max(initial=0) if len(counts) > 1 else wrong.size / 2
    count = np.count_nonzero(wrong)
    length = wanted.shape[-1] if wanted.ndim > 1 else 0
    distinct = lambda v: v.dtype != np.bool_ and bool(np.diff(np.sort(v, -1)).all())
    if 1 < length <= _PLACES and distinct(wanted) and distinct(got):
        rows = zip(got.reshape(-1, length), wanted.reshape(-1, length), strict=True)
        count = sum(int(np.count_nonzero(~np.isin(a, b))) for a, b in rows)
    return bool(count >= allowed) and wrong.size > 0


def _unrelated(error: NDArray, wanted: NDArray, step: float | None, least: float) -> bool:
    """Whether a result's errors are such as those of another function; ``step`` is that of its grid, if it has one.

    ``least``: what a float may be apart in any case.
    """
    # Some elements may be out of a narrow float's range; most of them are no result.
    if 2 * np.count_nonzero(np.isinf(error)) > error.size:
        return True
    near = np.isfinite(error) & np.isfinite(wanted)
    wrong, right = error[near], wanted[near]
    largest, peak = float(wrong.max(initial=0.0)), float(np.abs(right).max(initial=0.0))
    # Results on a coarse grid, or nearly equal ones, may round to one value.
    room = max(_ROUNDED * peak, least) if step is None else _STEPS * step
    if largest <= room:
        return False
    apart = np.abs(right - right.mean())
    if float(apart.max()) <= _ROUNDED * peak:
        return largest > room + _NEAR * peak
    return float(np.sum(wrong**2)) > _FAR * float(np.sum(apart**2))


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10.0 * math.log10(signal / noise) if 0 < signal < math.inf > noise else -math.inf


def _differences(a: NDArray, b: NDArray) -> list[tuple[int, int]]:
    """Each difference of two arrays of integers and how often it occurs."""
    if max(a.dtype.itemsize, b.dtype.itemsize) < 8:
        steps, counts = np.unique(a.astype(np.int64) - b.astype(np.int64), return_counts=True)
        return [(int(k), int(n)) for k, n in zip(steps, counts, strict=True)]
    # A difference of 64-bit numbers may be none: Python's integers hold it.
    other = a != b
    found: dict[int, int] = {0: int(a.size - np.count_nonzero(other))}
    for x, y in zip(a[other].tolist(), b[other].tolist(), strict=True):
        found[x - y] = found.get(x - y, 0) + 1
    return [(k, n) for k, n in found.items() if n]
