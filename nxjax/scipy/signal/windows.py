"""Windows by name, as arrays of NumPy. Knows no array of nxjax's and no transform.

Periodic ones, as spectra want them: a symmetric window of one point more, without its last point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax.errors import ParameterError
from nxjax.trace.reproducible import check_transcendental

Floats = np.ndarray[Any, Any]

# Weights of cos(2 pi k i / n) with alternating signs (F. Harris, "On the use of windows for harmonic analysis with the
# discrete Fourier transform", Proc. IEEE 66, 1978; A. Nuttall, IEEE Trans. ASSP 29, 1981).
_COSINES = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}


def _cosines(i: Floats, n: int, weights: Any) -> Floats:
    return sum((-1) ** k * a * np.cos(2 * np.pi * k * i / n) for k, a in enumerate(weights)) + 0 * i


def _tukey(i: Floats, n: int, alpha: float = 0.5) -> Floats:
    end = np.minimum(i, n - i)
    if alpha <= 0:
        return np.ones(n)
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * end / (min(alpha, 1.0) * n))
    return np.where(end <= np.floor(min(alpha, 1.0) * n / 2), taper, 1.0)


def _triangle(i: Floats, n: int) -> Floats:
    end = np.minimum(i, n - i)
    return (2 * end + 1) / (n + 1) if n % 2 else 2 * (end + 1) / (n + 2)


def _parzen(i: Floats, n: int) -> Floats:
    k = np.abs(i - n / 2)
    r = 2 * k / (n + 1)
    return np.where(k <= n / 4, 1 - 6 * r**2 + 6 * r**3, 2 * (1 - r) ** 3)


def _bohman(i: Floats, n: int) -> Floats:
    r = np.abs(2 * i / n - 1)
    return np.where(i == 0, 0.0, (1 - r) * np.cos(np.pi * r) + np.sin(np.pi * r) / np.pi)


def _bartlett_hann(i: Floats, n: int) -> Floats:
    r = np.abs(i / n - 0.5)
    return 0.62 - 0.48 * r + 0.38 * np.cos(2 * np.pi * r)


def _exponential(i: Floats, n: int, center: float | None = None, tau: float = 1.0) -> Floats:
    return np.exp(-np.abs(i - (n / 2 if center is None else center)) / tau)


_OTHERS: dict[str, tuple[int, int, Callable[..., Floats]]] = {  # with how many parameters, at least and at most
    "bartlett": (0, 0, lambda i, n: 1 - np.abs(2 * i / n - 1)),
    "barthann": (0, 0, _bartlett_hann),
    "bohman": (0, 0, _bohman),
    "cosine": (0, 0, lambda i, n: np.sin(np.pi * (i + 0.5) / (n + 1))),
    "exponential": (0, 2, _exponential),
    "gaussian": (1, 1, lambda i, n, std: np.exp(-0.5 * ((i - n / 2) / std) ** 2)),
    "general_cosine": (1, 1, _cosines),
    "general_gaussian": (2, 2, lambda i, n, p, sig: np.exp(-0.5 * np.abs((i - n / 2) / sig) ** (2 * p))),
    "general_hamming": (1, 1, lambda i, n, alpha: _cosines(i, n, (alpha, 1 - alpha))),
    "kaiser": (1, 1, lambda i, n, beta: np.i0(beta * np.sqrt(1 - (2 * i / n - 1) ** 2)) / np.i0(beta)),
    "lanczos": (0, 0, lambda i, n: np.sinc(2 * i / n - 1)),
    "parzen": (0, 0, _parzen),
    "triang": (0, 0, _triangle),
    "tukey": (0, 1, _tukey),
}


def named(name: str, window: str | tuple[Any, ...], n: int) -> Floats:
    """A window of length ``n`` by its name, or by its name and parameters; ``name`` is of the function that asks."""
    check_transcendental(f"scipy.signal.{name}")
    word, *rest = window if isinstance(window, tuple) else (window,)
    i = np.arange(n)
    if word in _COSINES and not rest:
        return _cosines(i, n, _COSINES[word]) if n > 1 else np.ones(1)
    least, most, function = _OTHERS.get(word, (0, -1, _triangle))
    if not least <= len(rest) <= most:
        known = sorted((*_COSINES, *_OTHERS))
        raise ParameterError(
            f"scipy.signal.{name}: window",
            got=repr(window),
            expected=f"{', '.join(known)}, those with parameters in a tuple: ('kaiser', beta)",
            fix="give others as arrays",
        )
    return function(i, n, *rest) if n > 1 else np.ones(1)
