"""`nx.nas.search`: asks a strategy for architectures, refuses those over a limit, trains the others, keeps the journal.

Deterministic for a seed and a number of workers: with a journal, a search that was cut off gives what it would have
given.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, final

from nxjax.config import with_current_settings
from nxjax.display.progress import bars
from nxjax.errors import NxError, ParameterError
from nxjax.nas.journal import Journal
from nxjax.nas.result import Result, Trial
from nxjax.nas.space import Candidate, Space
from nxjax.nas.strategies import Strategy, strategy
from nxjax.trace.boundary import entry

T = TypeVar("T")
Figures = Mapping[str, float]
# Proposals in a row that bring nothing new, after which the space is taken to be exhausted.
PATIENCE: Final = 2000


def search(
    space: Space[T] | Callable[..., T],
    evaluate: Callable[[T, int], float | Figures],
    *,
    budget: int,
    strategy: str = "evolution",
    costs: Callable[[T], Figures] | None = None,
    limits: Figures | None = None,
    fitness: Callable[[Figures], float] | None = None,
    main: str = "accuracy",
    start: Iterable[Mapping[str, int]] = (),
    seed: int = 0,
    workers: int = 1,
    journal: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
    **options: Any,
) -> Result[T]:
    """Search for the best architecture of a space within limits.

    Args:
        space: a `Space`, or its function.
        evaluate: ``evaluate(model, seed)`` trains one and returns its accuracy, or figures by name that include
            ``main``. The seed depends only on the search's seed and the architecture.
        budget: how many architectures to train. Those over a limit, and repeated ones, are free.
        strategy: "random", "evolution" (regularized), "bayesian" (Optuna's TPE) or "exhaustive".
        costs: ``costs(model)`` returns figures known without training, such as `Costs` of a target.
        limits: the largest value of each cost; architectures above it are not trained.
        fitness: a function of all figures to maximize; by default the figure ``main``. See `reward`.
        main: the name of the figure of ``evaluate``.
        start: genes of the first architectures, such as a hand-made one; the strategy gets their results.
        seed: of the strategy, and of every evaluation.
        workers: evaluations at a time, in threads. Another number gives another search, because proposals are made
            before running evaluations finish.
        journal: a file for all results; with the same file, the search continues from there.
        on_error: "raise" errors of evaluations, or "skip" the architecture and keep the error in its trial.
        progress: show a bar; by default in a terminal or notebook.
        **options: of the strategy: ``population``, ``tournament``, ``crossover``; ``startup``.

    Returns:
        A `Result`.

    Raises:
        ParameterError: options that do not fit, figures that are not numbers, a limit on an unknown cost.

    >>> def space(choose):
    ...     return [choose(f"width{i}", (8, 16, 32)) for i in range(choose("depth", (1, 2, 3)))]
    >>> found = search(space, lambda widths, seed: len(widths), costs=lambda w: {"sum": sum(w)}, limits={"sum": 40},
    ...                budget=20, progress=False)
    >>> found.best.figures["accuracy"], found.best.figures["sum"] <= 40
    (3.0, True)
    """
    whole = space if isinstance(space, Space) else Space(space)
    if budget < 1 or workers < 1 or on_error not in ("raise", "skip"):
        raise ParameterError(
            "nas: search",
            got=f"budget={budget}, workers={workers}, on_error={on_error!r}",
            expected="a budget and workers of at least 1, on_error 'raise' or 'skip'",
        )
    if not isinstance(seed, int):
        raise ParameterError("nas: a seed is an integer", got=repr(seed), expected="such as 0")
    if limits and costs is None:
        raise ParameterError("nas: limits without costs", got=", ".join(limits), fix="pass costs=...")
    about = {
        "space": whole.__name__,
        "strategy": strategy,
        "seed": seed,
        "workers": workers,
        "main": main,
        "start": [dict(genes) for genes in start],
        "options": {k: options[k] for k in sorted(options)},
    }
    first = [whole.build(genes) for genes in about["start"]]
    run = _Search(whole, evaluate, costs, dict(limits or {}), fitness, main, seed, on_error, Journal(journal, about))
    made = _strategy(strategy, whole, seed, options)
    make_bar = bars(progress, "nas.search", budget > 1)
    bar = None if make_bar is None else make_bar(total=budget, desc=f"searching {whole.__name__}", unit="model")
    try:
        exhausted = run.go(made, first, budget, workers, bar)
    finally:
        if bar is not None:
            bar.close()
    return Result(whole, tuple(run.trials), main, strategy, seed, dict(limits or {}), exhausted)


_strategy = strategy


@final
class _Search:
    def __init__(
        self,
        space: Space[Any],
        evaluate: Callable[[Any, int], float | Figures],
        costs: Callable[[Any], Figures] | None,
        limits: dict[str, float],
        fitness: Callable[[Figures], float] | None,
        main: str,
        seed: int,
        on_error: str,
        journal: Journal,
    ) -> None:
        self.space = space
        self.evaluate = evaluate
        self.costs = costs
        self.limits = limits
        self.fitness = fitness
        self.main = main
        self.seed = seed
        self.on_error = on_error
        self.journal = journal
        self.trials: list[Trial] = []
        self.seen: dict[str, Trial] = {}
        # Costs of those that are being trained.
        self.pending: dict[str, dict[str, float]] = {}

    def go(self, made: Strategy, start: list[Candidate[Any]], budget: int, workers: int, bar: Any) -> bool:
        """Run until the budget is spent; whether the space came to its end before."""
        with ThreadPoolExecutor(workers, thread_name_prefix="nxjax-nas") as pool:
            known = with_current_settings(self._known)
            spent = 0
            while spent < budget:
                batch = self._proposals(made, start, min(workers, budget - spent))
                # In the order in which they were asked for, whichever is ready first.
                for candidate, row in zip(batch, pool.map(known, batch), strict=True):
                    trial = self._note(candidate, row)
                    made.tell(candidate, trial.fitness)
                    if bar is not None:
                        bar.update()
                        bar.set_postfix(best=f"{max((t.fitness for t in self.trials if t.trained), default=0):.4g}")
                spent += len(batch)
                if not batch:
                    return True
        return False

    def _proposals(self, made: Strategy, start: list[Candidate[Any]], count: int) -> list[Candidate[Any]]:
        """Up to so many architectures that are new and within the limits; fewer where there are no more."""
        found: dict[str, Candidate[Any]] = {}
        idle = 0
        while len(found) < count and idle < PATIENCE:
            candidate = start.pop(0) if start else made.ask()
            if candidate is None:
                break
            known = self.seen.get(candidate.key)
            if known is not None or candidate.key in found:
                idle += 1
                # It is told again what it has paid for, so that a good architecture may stay alive. What still runs
                # has no answer yet.
                made.tell(candidate, known.fitness if known is not None else None)
                continue
            figures = self._figures(self.costs, candidate.model, "costs") if self.costs is not None else {}
            over = self._over(figures)
            if over:
                idle += 1
                self._add(Trial(len(self.trials), candidate.genes, candidate.choices, figures, None, over), candidate)
                made.tell(candidate, None)
                continue
            found[candidate.key] = candidate
            self.pending[candidate.key] = figures
        return list(found.values())

    def _over(self, figures: Figures) -> str:
        for name, limit in self.limits.items():
            if name not in figures:
                raise ParameterError(
                    f"nas: a limit on {name!r}, which is not a cost", got=repr(name), expected=", ".join(figures)
                )
            if not figures[name] <= limit:
                return f"{name} {figures[name]:.6g} is over {limit:.6g}"
        return ""

    def _known(self, candidate: Candidate[Any]) -> dict[str, Any]:
        """The journal's row of one architecture, which is trained if there is none."""
        row = self.journal.known.get(candidate.key)
        if row is not None:
            return {**row, "seconds": 0.0, "remembered": True}
        start = time.perf_counter()
        try:
            made = self._figures(self.evaluate, candidate.model, "evaluate", self._seed_of(candidate.key))
            why = ""
        except NxError as error:
            if self.on_error == "raise":
                raise
            made, why = {}, str(error)
        except Exception as error:
            if self.on_error == "raise":
                raise
            made, why = {}, f"{type(error).__name__}: {error}"
        return {
            "key": candidate.key,
            "choices": candidate.choices,
            "costs": self.pending[candidate.key],
            "figures": made,
            "why": why,
            "seconds": time.perf_counter() - start,
        }

    def _seed_of(self, key: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed} {key}".encode()).digest()[:4], "little")

    def _figures(self, function: Callable[..., Any], model: Any, what: str, *more: Any) -> dict[str, float]:
        y = function(model, *more)
        named = y if isinstance(y, Mapping) else {self.main: y}
        try:
            return {str(k): float(v) for k, v in named.items()}
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"nas: {what} must return a number, or numbers by name", got=repr(y)[:80], expected="{'accuracy': 0.97}"
            ) from error

    def _note(self, candidate: Candidate[Any], row: dict[str, Any]) -> Trial:
        if not row.pop("remembered", False):
            self.journal.add(row)
        figures = {**self.pending.pop(candidate.key), **row["figures"]}
        value, why = None, str(row["why"])
        if not why:
            if self.fitness is None and self.main not in figures:
                raise ParameterError(
                    f"nas: evaluate returns no figure {self.main!r}",
                    got=", ".join(figures),
                    fix="name the one that counts: main='...', or pass fitness=...",
                )
            value = float(figures[self.main] if self.fitness is None else self.fitness(figures))
            if math.isnan(value):
                value, why = None, "its fitness is not a number"
        return self._add(
            Trial(len(self.trials), candidate.genes, candidate.choices, figures, value, why, row["seconds"]), candidate
        )

    def _add(self, trial: Trial, candidate: Candidate[Any]) -> Trial:
        self.trials.append(trial)
        self.seen[candidate.key] = trial
        return trial


@entry
def reward(accuracy: float, cost: float, target: float, weight: float = -0.07) -> float:
    """Accuracy with a soft price: ``accuracy * (cost / target) ** weight`` (MnasNet, Tan et al. 2019, section 3.1).

    With the paper's weight, a model with twice the cost must be about 5 % more accurate to be as good.

    >>> round(reward(0.9, 2.0, 1.0) / reward(0.9, 1.0, 1.0), 3)
    0.953
    """
    if not (cost > 0 and target > 0):
        raise ParameterError("nas.reward: costs are positive", got=f"cost={cost}, target={target}")
    return accuracy * (cost / target) ** weight
