"""What a search found: every architecture with its figures, the best one, the front between two figures, its plot."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from nxjax.display import page
from nxjax.display.columns import columns
from nxjax.errors import MissingExtraError, ParameterError
from nxjax.files.safe_io import write
from nxjax.nas.space import Candidate, Genes, Space

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Trial:
    """One tried architecture.

    Attributes:
        number: its index, from 0.
        genes, choices: the architecture, as numbers and as text.
        figures: costs, and the results of training if it was trained.
        fitness: what the search maximizes; None if it was over a limit or failed.
        why: the exceeded limit, or the error; else empty.
        seconds: time of training and evaluation; 0 if it came from a journal.

    >>> Trial(0, {"width": 1}, {"width": "16"}, {"cycles": 2e6}, None, "cycles 2e+06 is over 1e+06").trained
    False
    """

    number: int
    genes: Genes
    choices: dict[str, str]
    figures: dict[str, float]
    fitness: float | None
    why: str = ""
    seconds: float = 0.0

    @property
    def trained(self) -> bool:
        return self.fitness is not None


@final
@dataclass(frozen=True)
class Result(Generic[T]):
    """All trials of a search, in order.

    Attributes:
        space: what was searched.
        trials: every architecture, including those over a limit.
        main: the name of the figure from training.
        strategy, seed, limits: how it was searched.
        exhausted: whether it ended because the space has no more.

    >>> space = Space(lambda choose: choose("width", (8, 16)))
    >>> trials = [Trial(i, {"width": i}, {}, {"accuracy": 0.9 + i / 100}, 0.9 + i / 100) for i in range(2)]
    >>> found = Result(space, tuple(trials), "accuracy", "exhaustive", 0)
    >>> found.model(), found.best.number, found.curve()
    (16, 1, [0.9, 0.91])
    """

    space: Space[T]
    trials: tuple[Trial, ...]
    main: str
    strategy: str
    seed: int
    limits: dict[str, float] = field(default_factory=dict[str, float])
    exhausted: bool = False

    @property
    def trained(self) -> tuple[Trial, ...]:
        """Those that were trained."""
        return tuple(t for t in self.trials if t.trained)

    @property
    def best(self) -> Trial:
        """The trial with the largest fitness, the earliest of equal ones.

        Raises:
            ParameterError: none was trained.
        """
        if not self.trained:
            raise ParameterError(
                "nas: no architecture was trained",
                got=f"{len(self.trials)} looked at; the last: {self.trials[-1].why}" if self.trials else "none",
                fix="loosen the limits, or search a space with smaller architectures",
            )
        return max(self.trained, key=lambda t: (t.fitness, -t.number))

    def model(self, trial: Trial | None = None) -> T:
        """The model of a trial; by default the best."""
        return self.candidate(trial).model

    def candidate(self, trial: Trial | None = None) -> Candidate[T]:
        return self.space.build((trial or self.best).genes)

    def curve(self) -> list[float]:
        """The best fitness after each trained architecture."""
        y: list[float] = []
        for t in self.trained:
            assert t.fitness is not None
            y.append(max(t.fitness, y[-1]) if y else t.fitness)
        return y

    def front(self, cost: str, gain: str | None = None) -> list[Trial]:
        """Trained architectures that no other one beats in ``cost`` (less is better) and ``gain`` (more is better).

        From the cheapest to the best; the earliest of equal ones.
        """
        gain = gain or self.main
        rows = sorted(self.trained, key=lambda t: (self._figure(t, cost), -self._figure(t, gain), t.number))
        y: list[Trial] = []
        for t in rows:
            if not y or t.figures[gain] > y[-1].figures[gain]:
                y.append(t)
        return y

    def _figure(self, t: Trial, name: str) -> float:
        if name not in t.figures:
            raise ParameterError("nas: no such figure", got=repr(name), expected=", ".join(t.figures))
        return t.figures[name]

    def plot(self, cost: str, gain: str | None = None, marks: Mapping[str, tuple[float, float]] | None = None) -> Any:
        """Every trained architecture as a dot, the front as a line; returns matplotlib's axes.

        Args:
            cost, gain: names of figures, for the axes.
            marks: more points by name, as (cost, gain), such as a baseline.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        if importlib.util.find_spec("matplotlib") is None:
            raise MissingExtraError(
                "nas: the plot needs a package that is not installed",
                got="no module 'matplotlib'",
                expected="the extra 'nas'",
                fix="pip install 'nxjax[nas]'",
            )
        gain = gain or self.main
        ax: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained").subplots()
        rows, best = self.trained, self.front(cost, gain)
        x, y = ([t.figures[name] for t in rows] for name in (cost, gain))
        dots = ax.scatter(x, y, c=[t.number for t in rows], s=18, cmap="viridis")
        ax.figure.colorbar(dots, label="trial")
        ax.step([t.figures[cost] for t in best], [t.figures[gain] for t in best], where="post", label="front")
        for name, (at, value) in (marks or {}).items():
            ax.plot([at], [value], "*", markersize=13, label=name)
        if (limit := self.limits.get(cost)) is not None:
            ax.axvline(limit, linestyle=":", color="grey", label="limit")
        ax.set_xlabel(cost)
        ax.set_ylabel(gain)
        ax.set_title(f"{self.space.__name__}: {len(rows)} architectures by {self.strategy}", fontsize=10)
        ax.legend(fontsize=8)
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "space": self.space.__name__,
            "strategy": self.strategy,
            "seed": self.seed,
            "limits": self.limits,
            "main": self.main,
            "exhausted": self.exhausted,
            "trials": [vars(t) for t in self.trials],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_dict` as JSON, completely or not at all; return the path."""
        write(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())
        return Path(path)

    def __str__(self) -> str:
        over = sum(not t.trained for t in self.trials)
        lines = [
            f"{self.space.__name__}: {len(self.trained)} architectures trained by {self.strategy}, "
            f"{over} refused or failed{'; the space has no more' if self.exhausted else ''}"
        ]
        if self.trained:
            lines += _table(sorted(self.trained, key=lambda t: (-(t.fitness or 0.0), t.number))[:8])
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page.page(page.text(str(self)))


def _table(rows: Sequence[Trial]) -> list[str]:
    names = list(rows[0].figures)
    head = ["trial", "fitness", *names, "choices"]
    cells = [
        [
            str(t.number),
            f"{t.fitness:.5g}",
            *(f"{t.figures.get(n, math.nan):.5g}" for n in names),
            " ".join(f"{k}={v}" for k, v in t.choices.items()),
        ]
        for t in rows
    ]
    return columns([head, *cells], right=range(len(head) - 1))
