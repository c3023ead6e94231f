"""Strategies: which architecture next. Each is told what came of the ones before; none trains or measures anything.

All are deterministic for a seed: asked and told in the same order, they propose the same.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final, final

import numpy as np

from nxjax.errors import MissingExtraError, ParameterError, Shown
from nxjax.nas.space import Candidate, Genes, Space

NAMES: Final = ("random", "evolution", "bayesian", "exhaustive")


class Strategy(Shown, ABC):
    """Proposes architectures of a space. Abstract; implementations are final.

    >>> isinstance(Random(Space(lambda choose: choose("x", (1, 2))), np.random.default_rng(0)), Strategy)
    True
    """

    # Asked several times before it is told anything, it must not repeat itself for ever.
    @abstractmethod
    def ask(self) -> Candidate[Any] | None:
        """The next architecture; None: no more."""

    @abstractmethod
    def tell(self, candidate: Candidate[Any], fitness: float | None) -> None:
        """The fitness of a proposed one: larger is better; None: it failed, or was over a limit."""


@final
class Random(Strategy):
    """Independent draws.

    >>> drawn = Random(Space(lambda choose: choose("width", (8, 16, 32))), np.random.default_rng(0))
    >>> drawn.ask().model in (8, 16, 32)
    True
    """

    def __init__(self, space: Space[Any], rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng

    def ask(self) -> Candidate[Any]:
        return self.space.sample(self.rng)

    def tell(self, candidate: Candidate[Any], fitness: float | None) -> None:
        return


@final
class Exhaustive(Strategy):
    """All architectures, one after another.

    >>> every = Exhaustive(Space(lambda choose: choose("width", (8, 16))), np.random.default_rng(0))
    >>> every.ask().model, every.ask().model, every.ask()
    (8, 16, None)
    """

    def __init__(self, space: Space[Any], rng: np.random.Generator) -> None:
        self.left = space.all()

    def ask(self) -> Candidate[Any] | None:
        return next(self.left, None)

    def tell(self, candidate: Candidate[Any], fitness: float | None) -> None:
        return


@final
class Evolution(Strategy):
    """Regularized evolution (Real et al. 2019, arXiv 1802.01548, algorithm 1): the oldest is removed, not the worst.

    Args:
        population: the size of the population.
        tournament: how many are drawn; the best is the parent.
        crossover: how often the parent is a mixture of two.

    >>> space = Space(lambda choose: choose("width", range(100)))
    >>> evolution = Evolution(space, np.random.default_rng(0), population=4, tournament=2)
    >>> for _ in range(20):
    ...     candidate = evolution.ask()
    ...     evolution.tell(candidate, candidate.model)
    >>> len(evolution.alive)
    4
    """

    def __init__(
        self,
        space: Space[Any],
        rng: np.random.Generator,
        population: int = 16,
        tournament: int = 5,
        crossover: float = 0.2,
    ) -> None:
        if not (population >= 1 and 1 <= tournament <= population and 0 <= crossover <= 1):
            raise ParameterError(
                "nas: evolution",
                got=f"population={population}, tournament={tournament}, crossover={crossover}",
                expected="1 <= tournament <= population, 0 <= crossover <= 1",
            )
        self.space = space
        self.rng = rng
        self.population = population
        self.tournament = tournament
        self.crossover = crossover
        self.alive: deque[tuple[float, Genes]] = deque(maxlen=population)

    def ask(self) -> Candidate[Any]:
        if len(self.alive) < self.population:
            return self.space.sample(self.rng)
        parent = self._parent()
        if self.rng.random() < self.crossover:
            parent = self.space.cross(parent, self._parent(), self.rng).genes
        return self.space.mutate(parent, self.rng)

    def _parent(self) -> Genes:
        drawn = self.rng.choice(len(self.alive), self.tournament, replace=False)
        return max((self.alive[i] for i in drawn), key=lambda one: one[0])[1]

    def tell(self, candidate: Candidate[Any], fitness: float | None) -> None:
        if fitness is not None:
            self.alive.append((fitness, candidate.genes))


@final
class Bayesian(Strategy):
    """The tree-structured Parzen estimator of Optuna.

    Args:
        startup: the number of random draws before the model is used.

    Raises:
        MissingExtraError: Optuna is not installed.

    >>> space = Space(lambda choose: choose("width", (8, 16, 32)))
    >>> estimator = Bayesian(space, np.random.default_rng(0), startup=2)
    >>> candidate = estimator.ask()
    >>> estimator.tell(candidate, candidate.model)
    >>> estimator.ask().model in (8, 16, 32)
    True
    """

    def __init__(self, space: Space[Any], rng: np.random.Generator, startup: int = 10) -> None:
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError:
            raise MissingExtraError(
                "nas: the strategy 'bayesian' needs a package that is not installed",
                got="no module 'optuna'",
                expected="the extra 'nas'",
                fix="pip install 'nxjax[nas]'",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Those that still run count as bad, so that no two that run at once are alike.
        seed = int(rng.integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        self.space = space
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.failed = optuna.trial.TrialState.FAIL
        self.made: Any = optuna.trial.create_trial
        self.categories: Any = optuna.distributions.CategoricalDistribution
        self.asked: dict[str, list[Any]] = {}

    def ask(self) -> Candidate[Any]:
        trial = self.study.ask()
        found = self.space.answered(lambda name, options: trial.suggest_categorical(name, range(len(options))))
        self.asked.setdefault(found.key, []).append(trial)
        return found

    def tell(self, candidate: Candidate[Any], fitness: float | None) -> None:
        waiting = self.asked.get(candidate.key)
        if not waiting:
            self._told(candidate, fitness)
            return
        trial = waiting.pop()
        if fitness is None:
            self.study.tell(trial, state=self.failed)
        else:
            self.study.tell(trial, fitness)

    def _told(self, candidate: Candidate[Any], fitness: float | None) -> None:
        """About one that somebody else proposed."""
        if fitness is not None:
            kinds = {n: self.categories(range(size)) for n, size in candidate.sizes.items()}
            made = self.made(params=dict(candidate.genes), distributions=kinds, value=fitness)
            self.study.add_trial(made)


def strategy(name: str, space: Space[Any], seed: int, options: dict[str, Any]) -> Strategy:
    """The strategy called ``name``, with options of its own.

    Raises:
        ParameterError: no such strategy, or an option that it has not.
    """
    found = dict(zip(NAMES, (Random, Evolution, Bayesian, Exhaustive), strict=True)).get(name)
    if found is None:
        raise ParameterError("nas: no such strategy", got=repr(name), expected=", ".join(NAMES))
    try:
        return found(space, np.random.default_rng(seed), **options)
    except ParameterError:
        raise
    except TypeError as error:
        raise ParameterError(f"nas: options of the strategy {name!r}", got=", ".join(options)) from error
