"""`fit`: a target's times, learned; and how good they are. Kept as JSON, read without scikit-learn."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.lower.placement import Figure
from nxjax.predict.features import features
from nxjax.predict.models import MODELS, TimeModel
from nxjax.predict.programs import Program, programs
from nxjax.predict.samples import Sample, gather
from nxjax.predict.scores import Scores, score
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]
_FORMAT: Final = "nxjax.predict 1"
_LEAST: Final = 6
_FOLDS: Final = 5
_ALONE: Final = 30  # up to so many samples, each is held out alone
_EQUAL: Final = 1e-6  # errors that differ by no more are the same
_BEYOND: Final = 1.25  # of the largest value seen: where trees know nothing


@final
@dataclass(frozen=True)
class Prediction:
    """The predicted time of a program.

    Attributes:
        seconds: of one run.
        low, high: a 90 % interval, which contained nine in ten of the held-out programs.
        basis: the source of the timings that it was learned from.
        modelled: the time by nxjax's model of the target, or None.
        beyond: features that are larger than in all training programs, and new kinds of ops. Then the band means
            nothing.

    >>> print(Prediction(1.2e-3, 1e-3, 1.5e-3, "linear, learned from 50 programs on cpu (measured)"))
    1.2 ms (1 ms to 1.5 ms), linear, learned from 50 programs on cpu (measured)
    """

    seconds: float
    low: float
    high: float
    basis: str
    modelled: float | None = None
    beyond: tuple[str, ...] = ()

    @property
    def figure(self) -> Figure:
        """The time as a figure, as in costs of artifacts."""
        return Figure(self.seconds, "s", "model")

    def __str__(self) -> str:
        text = f"{_time(self.seconds)} ({_time(self.low)} to {_time(self.high)}), {self.basis}"
        return f"{text}; beyond what was learned from: {', '.join(self.beyond)}" if self.beyond else text


@final
@dataclass(frozen=True)
class Predictor:
    """``predictor(f)(*args)`` is a `Prediction`; made by `fit` and `load`.

    Attributes:
        target: of the times.
        basis: the source of its training times: measured, vendor-estimate, or the publication.
        machine: where they were measured; empty for other targets.
        scores: of each model on held-out programs, by name; the best one predicts.
        chosen: the best one.

    >>> predictor = nx.predict.fit("edgetpu", nx.predict.edge_tpu(), basis="published")
    >>> predictor.chosen, predictor.scores["linear"].rank > 0.9
    ('linear', True)
    """

    target: str
    basis: str
    machine: str
    scores: dict[str, Scores]
    chosen: str
    _names: tuple[str, ...] = field(repr=False)
    _most: NDArray = field(repr=False)
    _models: dict[str, TimeModel] = field(repr=False)

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Prediction]:
        """A callable of ``fun``'s arguments that gives its time. ``fun`` is quantized where the target needs it."""
        return lambda *args: self.of(*features(self.target, fun)(*args))

    def of(self, values: dict[str, float], modelled: float | None = None) -> Prediction:
        """The time of a program with these features.

        Raises:
            ParameterError: it needs the time by nxjax's model, and there is none here.
        """
        if self._names[-1:] == ("modelled",) and modelled is None:
            raise ParameterError(f"predict: {self.target}: the modelled time is missing", expected="seconds")
        row = _row(values, modelled, self._names)
        beyond = tuple(n for n, x, most in zip(self._names, row, self._most, strict=True) if x > _BEYOND * most)
        beyond += tuple(n for n, x in values.items() if x and n not in self._names)
        # Trees say the same for all that is larger than what they have seen; a line goes on.
        name = "linear" if beyond and self.chosen == "boosted" else self.chosen
        seconds = float(self._models[name](row[None])[0])
        band = self.scores[name].band
        count = self.scores[name].count
        basis = f"{name}, learned from {count} programs on {self.target} ({self.basis})"
        if self.machine and self.machine != _machine():
            basis += ", on another machine"
        return Prediction(seconds, seconds / band, seconds * band, basis, modelled, beyond)

    @property
    def report(self) -> str:
        """The scores of every model on held-out programs, as a table."""
        head = ("model", "error", "within 10 %", "rank correlation", "nine in ten within")
        rows = [
            (
                f"{n} *" if n == self.chosen else n, f"{s.error:.1%}", f"{s.within:.0%}", f"{s.rank:.3f}",
                f"a factor of {s.band:.2f}",
            )
            for n, s in self.scores.items()
        ]  # fmt: skip
        widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in (head, *rows)]
        count = self.scores[self.chosen].count
        return "\n".join([f"{self.target}: {count} programs, {self.basis}; each predicted while held out", *lines])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save it as JSON."""
        data = {
            "format": _FORMAT,
            "target": self.target,
            "basis": self.basis,
            "machine": self.machine,
            "chosen": self.chosen,
            "names": list(self._names),
            "most": self._most.tolist(),
            "scores": {n: asdict(s) for n, s in self.scores.items()},
            "models": {n: m.data() for n, m in self._models.items()},
        }
        place = Path(path)
        handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".part")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(data, file)
            os.replace(temporary, place)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@entry
def fit(
    target: str,
    given: Iterable[Program] | Sequence[Sample] | None = None,
    *,
    count: int = 120,
    seed: int = 0,
    basis: str = "",
    progress: bool | None = None,
) -> Predictor:
    """Learn to predict the times of programs on a target.

    Three models are fitted and tested on held-out programs, and the best one is kept: nxjax's model of the target times
    a factor; seconds per unit of each feature, none negative; and the latter, corrected by gradient-boosted trees (from
    40 programs on).

    Args:
        target: "cpu" for this machine, or a name from `nx.targets`.
        given: programs to learn from (see `programs`), timed by `gather`; or timed samples, for example from other
            hardware. By default ``count`` random networks.
        count, seed: of the random networks.
        basis: the source of the samples' times, in words; by default as in the samples.
        progress: show a bar; by default on a terminal or in a notebook.

    Raises:
        ParameterError: fewer than 6 samples, one without a positive time, or a target without times.
        MissingExtraError: scikit-learn is not installed.

    >>> samples = [nx.predict.Sample(f"n{n}", {"runs": 1.0, "macs": 1e6 * n}, None, 1e-4 + 2e-6 * n, "measured")
    ...            for n in range(1, 12)]
    >>> predictor = nx.predict.fit("cpu", samples)
    >>> round(predictor.of({"runs": 1.0, "macs": 5e6}).seconds * 1e6)
    110
    """
    chosen = list(programs(count, seed) if given is None else given)
    samples = [s for s in chosen if isinstance(s, Sample)]
    asked = [p for p in chosen if not isinstance(p, Sample)]
    samples += gather(target, asked, progress=progress) if asked else []
    if len(samples) < _LEAST:
        raise ParameterError(f"predict.fit: {target}", got=f"{len(samples)} samples", expected=f"at least {_LEAST}")
    if bad := [s.name for s in samples if not (s.seconds > 0 and math.isfinite(s.seconds))]:
        raise ParameterError("predict.fit: samples without a positive time", got=", ".join(bad))
    modelled = all(s.modelled for s in samples)
    names = sorted({n for s in samples for n in s.features}) + (["modelled"] if modelled else ["nothing"])
    x = np.stack([_row(s.features, s.modelled, names) for s in samples])
    t = np.array([s.seconds for s in samples])
    scores: dict[str, Scores] = {}
    models: dict[str, TimeModel] = {}
    for kind in MODELS:
        if len(samples) >= kind.least and (modelled or kind.name != "scaled"):
            scores[kind.name] = score(t, _held_out(kind, x, t))
            models[kind.name] = kind.fit(x, t)
    best = next(iter(scores))
    for name, found in scores.items():
        # The simpler one, unless another is better by more than chance is.
        best = name if found.error < 0.97 * scores[best].error - _EQUAL else best
    said = basis or ", ".join(sorted({s.basis for s in samples}))
    machine = _machine() if target == "cpu" else ""
    return Predictor(target, said, machine, scores, best, tuple(names), x.max(0), models)


def _row(values: dict[str, float], modelled: float | None, names: Sequence[str]) -> NDArray:
    return np.array([*(values.get(n, 0.0) for n in names[:-1]), (modelled or 0.0) * (names[-1] == "modelled")])


def _held_out(kind: type[TimeModel], x: NDArray, t: NDArray) -> NDArray:
    """What is predicted for each sample by a model that has not seen it."""
    count = len(t)
    folds = count if count <= _ALONE else _FOLDS
    part = np.random.default_rng(0).permutation(count) % folds
    y = np.empty(count)
    for i in range(folds):
        out = part == i
        y[out] = kind.fit(x[~out], t[~out])(x[out])
    return y


@entry
def load(path: str | os.PathLike[str]) -> Predictor:
    """A predictor from a file of `Predictor.save`.

    Raises:
        InvalidFileError: not a predictor.

    >>> import nxjax as nx, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "edgetpu.json")
    >>> nx.predict.fit("edgetpu", nx.predict.edge_tpu()).save(path)
    >>> load(path).target
    'edgetpu'
    """
    try:
        data = safe_io.described(path)
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']!r}")
        kinds = {k.name: k for k in MODELS}
        found = Predictor(
            str(data["target"]),
            str(data["basis"]),
            str(data["machine"]),
            {n: Scores(**s) for n, s in data["scores"].items()},
            str(data["chosen"]),
            tuple(map(str, data["names"])),
            np.asarray(data["most"], float),
            {n: kinds[n].of(m) for n, m in data["models"].items()},
        )
        if found.chosen not in found._models or found._most.shape != (len(found._names),):
            raise ValueError("parts that do not fit")
        found.of({}, 1.0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise InvalidFileError(
            "predict.load: not a predictor's file", got=f"{path}: {error}"[:300], expected="JSON of Predictor.save"
        ) from None
    return found


def _machine() -> str:
    from nxjax.backends.hybrid.trying import machine

    return machine()


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
