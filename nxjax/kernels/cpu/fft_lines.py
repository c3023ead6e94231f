"""Which lines a Fourier transform is of, and the constants that it takes. Knows no code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.fft_butterfly import factors, is_smooth, radices, roots

DType = np.dtype[Any]
NDArray = np.ndarray[Any, Any]
SCALARS: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


class FftSteps(NamedTuple):
    """From a group of lines to the next, from a line to the next, and from an element to the next, in scalars."""

    group: int
    line: int
    element: int


@final
@dataclass(frozen=True)
class Lines:
    """Which lines are transformed, and how.

    Attributes:
        dtype: of real and imaginary parts.
        kind: "complex" to complex; "real" to the first ``length // 2 + 1`` frequencies; or "back" from those to real.
        inverse: complex, backwards; "back" always is. Divided by ``divisor``.
        length: of a line; of real ones, in real numbers.
        groups, lines: how many groups there are, and lines in each.
        source, target: where they stand.
        twist: 0, or the length of the line whose columns these are.
        lanes: of a vector.
        eights: butterflies of 8 have the registers that they need.
    """

    dtype: DType
    kind: str
    inverse: bool
    length: int
    groups: int
    lines: int
    source: FftSteps
    target: FftSteps
    lanes: int
    eights: bool
    twist: int = 0
    divisor: int = 1

    @property
    def elements(self) -> int:
        """Of the complex line that is transformed."""
        return self.length // 2 if self.halved else self.length

    @property
    def halved(self) -> bool:
        return self.kind != "complex" and self.length % 2 == 0

    @property
    def frequencies(self) -> int:
        return self.length // 2 + 1

    @property
    def padded(self) -> int:
        """The length of the convolution that a length with a large prime is; 0 where there is none."""
        n = self.elements
        if is_smooth(n):
            return 0
        return next(m for m in range(2 * n - 1, 4 * n) if max(factors(m)) <= 5)

    @property
    def worked(self) -> int:
        """The length that passes of butterflies transform."""
        return self.padded or self.elements

    @property
    def blocks(self) -> int:
        return -(-self.lines // self.lanes)

    @property
    def size(self) -> int:
        """Bytes of a scalar."""
        return self.dtype.itemsize

    @property
    def width(self) -> int:
        """Bytes of a vector."""
        return self.lanes * self.size

    @property
    def room(self) -> int:
        """Complex vectors of a piece of scratch memory, of which there are two."""
        return self.worked + 1


def apart(n: int) -> NDArray:
    """Half of i w^k, by which frequencies k and n - k of ``2 n`` reals are told apart; k up to ``n // 2``."""
    return 0.5j * roots(2 * n, np.arange(n // 2 + 1))


@lru_cache(64)
def table(x: Lines) -> tuple[NDArray, dict[str, int]]:
    """The constants of a kernel, and where each kind of them begins."""
    parts: list[NDArray] = []
    places: dict[str, int] = {}

    def add(name: str, values: NDArray) -> None:
        places[name] = sum(p.size for p in parts)
        flat = np.ascontiguousarray(values, np.complex128).view(np.float64).ravel()
        parts.append(flat.astype(x.dtype))

    def passes(name: str, n: int) -> None:
        left = n
        for number, r in enumerate(radices(n, x.eights)):
            m = left // r
            if m > 1:
                add(f"{name}{number}", roots(left, np.outer(np.arange(m), np.arange(1, r))))
            left = m

    n = x.elements
    if m := x.padded:
        j = np.arange(n, dtype=object)
        chirp = roots(2 * n, np.array(j * j % (2 * n), np.int64))  # exp(-pi i j^2 / n)
        wrapped = np.zeros(m, np.complex128)
        wrapped[:n] = chirp.conj()
        wrapped[m - n + 1 :] = chirp[:0:-1].conj()
        add("chirp", chirp)
        add("convolved", np.fft.fft(wrapped) / m)
        passes("pass", m)
    else:
        passes("pass", n)
    if x.halved:
        add("apart", apart(n))
    if x.twist:
        k = np.arange(n)
        within = roots(x.twist, np.outer(k, np.arange(x.lanes)))
        places["within"] = sum(p.size for p in parts)
        parts.append(np.stack([within.real, within.imag], 1).astype(x.dtype).ravel())
        add("begin", roots(x.twist, np.outer(np.arange(x.blocks) * x.lanes, k)))
    return np.concatenate([*parts, np.zeros(1, x.dtype)]), places
