"""Sounds with known content: notes from harmonics, and speech by espeak-ng, whose library ships in a Python package.

And what networks for keywords get of a sound.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from nxjax.files.packaged import packaged

RATE = 16000
ESPEAK = "espeakng-loader"
# espeak-ng/speak_lib.h: samples are handed over, errors are returned; text is UTF-8.
_RETRIEVAL, _DONT_EXIT, _UTF8, _BY_CHARACTER = 1, 0x8000, 1, 1
_RATE_PARAMETER, _PITCH_PARAMETER = 1, 3


def notes(pitches: Sequence[int], seconds: float, rate: int, seed: int) -> Any:
    """MIDI pitches at once, as a plucked string has them: falling harmonics that die away."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    sound = 1e-3 * rng.standard_normal(len(t))
    for pitch in pitches:
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        for k in range(1, 9):
            if k * frequency < rate / 2:
                phase = rng.uniform(0, 2 * np.pi)
                sound += np.sin(2 * np.pi * k * frequency * t + phase) * np.exp(-(1 + 0.4 * k) * t) / k**1.3
    return (0.5 * sound / abs(sound).max()).astype(np.float32)


@cache
def _espeak() -> tuple[Any, int]:
    """The library, and its samples per second."""
    library = ctypes.CDLL(str(packaged(ESPEAK, "espeakng_loader/libespeak-ng.so")))
    data = packaged(ESPEAK, "espeakng_loader/espeak-ng-data/phontab").parent
    rate = library.espeak_Initialize(_RETRIEVAL, 0, str(data).encode(), _DONT_EXIT)
    if rate <= 0:
        raise OSError(f"espeak-ng did not start with the data in {data}")
    return library, rate


@cache
def speech(text: str, voice: str = "en-us", words_per_minute: int = 160, pitch: int = 50) -> Any:
    """A sentence spoken by espeak-ng: float32 at 16 kHz in [-1, 1].

    Some samples are other ones after other sentences: the library goes on from where it was. Breathy variants, such
    as ``+f2``, ``+f3`` and ``+f5``, are other ones in each process.
    """
    from scipy.signal import resample_poly  # type: ignore[import-untyped]

    library, rate = _espeak()
    pieces: list[Any] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def take(samples: Any, count: int, events: Any) -> int:
        if samples and count:
            pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(take)
    library.espeak_SetVoiceByName(voice.encode())
    library.espeak_SetParameter(_RATE_PARAMETER, words_per_minute, 0)
    library.espeak_SetParameter(_PITCH_PARAMETER, pitch, 0)
    said = text.encode()
    library.espeak_Synth(said, ctypes.c_size_t(len(said) + 1), 0, _BY_CHARACTER, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    sound = np.concatenate(pieces).astype(np.float64) / 32768
    return resample_poly(sound, RATE, rate).astype(np.float32)


def spoken(sentences: Sequence[str], seed: int, pause: float = 0.8) -> tuple[Any, Any]:
    """Sentences with pauses of faint noise between them, and where somebody speaks (a bool per sample)."""
    rng = np.random.default_rng(seed)
    gap = round(pause * RATE)
    parts: list[Any] = [np.zeros(gap, np.float32)]
    active: list[Any] = [np.zeros(gap, bool)]
    for i, text in enumerate(sentences):
        sound = np.trim_zeros(speech(text, ("en-us", "en-gb")[i % 2], 140 + 15 * (i % 3), 35 + 10 * (i % 4)))
        parts += [sound, np.zeros(gap, np.float32)]
        active += [np.ones(len(sound), bool), np.zeros(gap, bool)]
    clean = np.concatenate(parts)
    noise = 2e-3 * rng.standard_normal(len(clean))
    return (clean + noise).astype(np.float32), np.concatenate(active)


def features(sound: Any) -> Any:
    """What TFLite Micro's audio frontend makes of a sound: float32 [n, 40], a row for each 10 ms.

    It needs the package pymicro-features. The first row comes after 30 ms.
    """
    from pymicro_features import MicroFrontend  # type: ignore[import-not-found]

    data = (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()
    frontend, start, rows = MicroFrontend(), 0, []
    while start + 320 <= len(data):
        made = frontend.process_samples(data[start : start + 320])
        start += 2 * made.samples_read
        if made.features:
            rows.append(made.features)
    return np.array(rows, np.float32)
