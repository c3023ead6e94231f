"""`nx.scipy.signal`: convolution, detrending and spectra of signals, under SciPy's names, as `jax.scipy.signal`."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "filtering": "convolve convolve2d correlate correlate2d detrend fftconvolve",
    "spectra": "csd istft stft welch",
}
_HOMES = _homes(_FILES)

__all__ = sorted(_HOMES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
