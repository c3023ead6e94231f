"""The kernels of Fourier transforms against their meanings: every kind, order in memory and kind of length."""

from __future__ import annotations

import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.fft import FftLines
from nxjax.kernels.cpu.fft_butterfly import factors, is_smooth, radices, roots
from nxjax.kernels.cpu.fft_lines import FftSteps, Lines, table
from nxjax.kernels.cpu.fft_real import RealLines
from tests.kernels.cpu.running import run

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
# Butterflies alone and in passes, less and more than a square of registers, a large prime, odd and even.
LENGTHS = (1, 6, 17, 32, 77, 104)


def ran(kernel: FftLines | RealLines, constants: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel writes, and its meaning."""
    x = np.random.default_rng(size).standard_normal(size).astype(constants.dtype)
    (wanted,) = kernel.meaning(x, constants)
    (found,) = run(kernel, x, constants, cuts=[kernel.items // 2])
    return found, wanted


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(found - wanted).max() <= 8 * np.finfo(wanted.dtype).eps * np.abs(wanted).max()


def lines(dtype: np.dtype, kind: str, n: int, count: int, stands: str, inverse: bool = False) -> Lines:
    target = isa.current()
    half = n // 2 + 1
    rows, columns = FftSteps(2 * n * count, 2 * n, 2), FftSteps(2 * n * count, 2, 2 * count)
    reals, frequencies = FftSteps(n * count, n, 1), FftSteps(2 * half * count, 2 * half, 2)
    source, goal = {
        "rows": (rows, rows),
        "columns": (columns, columns),
        "twisted": (rows, columns),
        "real": (reals, frequencies),
        "back": (frequencies, reals),
    }[stands]
    twist = n * count if stands == "twisted" else 0
    lanes, divisor = target.lanes(dtype.itemsize), n if inverse else 1
    return Lines(dtype, kind, inverse, n, 2, count, source, goal, lanes, target.registers > 16, twist, divisor)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("stands", ["rows", "columns", "twisted", "real", "back"])
def test_lines(n: int, stands: str):
    dtype = DOUBLE if n > 32 else SINGLE
    kind = stands if stands in ("real", "back") else "complex"
    # A block that is not whole, with others or alone; or whole ones.
    lanes = isa.current().lanes(dtype.itemsize)
    count = {0: 2 * lanes, 1: lanes + 1, 2: 3}[n % 3]
    x = lines(dtype, kind, n, count, stands, inverse=n % 2 == 0 and stands != "real")
    kernel = FftLines(x)
    found, wanted = ran(kernel, table(x)[0], kernel.touched.ins[0][0].end // dtype.itemsize)
    close(found, wanted)


@pytest.mark.parametrize("m", [1, 45])
@pytest.mark.parametrize("back", [False, True])
def test_long_real_lines(m: int, back: bool):
    kernel = RealLines(SINGLE, back, 3, m, isa.current().lanes(4))
    found, wanted = ran(kernel, kernel.table(), 3 * 2 * (m + back))
    close(found, wanted)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 12, 1000, 1 << 20])
def test_roots_are_right_to_the_last_bit(n: int):
    mpmath = pytest.importorskip("mpmath")
    exponents = np.unique(np.r_[np.arange(min(n, 30)), n // 8, n // 4, n // 3, n - 1, 2 * n + 1])
    with mpmath.workdps(40):
        exact = [mpmath.expjpi(mpmath.mpf(-2 * int(e)) / n) for e in exponents]
        errors = [abs(mpmath.mpc(complex(w)) - z) for w, z in zip(roots(n, exponents), exact, strict=True)]
    assert max(errors) < 1.5e-16


def test_passes_make_the_length():
    for n in range(1, 100):
        assert np.prod(factors(n)) == n
        for eights in (False, True):
            assert np.prod(radices(n, eights)) == n
            assert not is_smooth(n) or max(radices(n, eights), default=1) <= 13
