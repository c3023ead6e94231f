"""`nx.scipy.signal`: convolution, detrending and spectra of signals, under SciPy's names, as `jax.scipy.signal`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_FILES = {
    "filtering": "convolve convolve2d correlate correlate2d detrend fftconvolve",
    "spectra": "csd istft stft welch",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    file = _HOMES.get(name)
    if file is None:
        raise AttributeError(f"module 'nxjax.scipy.signal' has no attribute {name!r}")
    found = globals()[name] = getattr(_importlib.import_module(f"nxjax.scipy.signal.{file}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__]
