"""Models of times, fitted by scikit-learn and kept as plain numbers: predicting needs NumPy alone, and no pickle.

Times differ by orders of magnitude, so what is small is the relative error. Knows features by their order only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Self, final

import numpy as np

from nxjax.errors import MissingExtraError, Shown

NDArray = np.ndarray[Any, Any]
_TREES: Final = {"n_estimators": 150, "max_depth": 3, "learning_rate": 0.08, "subsample": 0.8, "min_samples_leaf": 3}
_LEAST: Final = 1e-12  # seconds


class TimeModel(Shown, ABC):
    """``model(x)``: seconds [n] of features [n, d], of which the last is what our own model says, or 0."""

    name: ClassVar[str]
    least: ClassVar[int]  # samples that it takes

    @classmethod
    @abstractmethod
    def fit(cls, x: NDArray, seconds: NDArray) -> Self:
        """The model of these times."""

    @abstractmethod
    def __call__(self, x: NDArray) -> NDArray: ...

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """Plain numbers and lists."""

    @classmethod
    @abstractmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """The model of what `data` gave."""


@final
class Scaled(TimeModel):
    """Our own model of the target, times a factor."""

    name = "scaled"
    least = 3

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @classmethod
    def fit(cls, x: NDArray, seconds: NDArray) -> Self:
        return cls(float(np.exp(np.log(seconds / x[:, -1]).mean())))

    def __call__(self, x: NDArray) -> NDArray:
        return np.maximum(self.factor * x[:, -1], _LEAST)

    def data(self) -> dict[str, Any]:
        return {"factor": self.factor}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        return cls(float(data["factor"]))


@final
class LinearModel(TimeModel):
    """Seconds per unit of each feature, none negative: least squares of relative errors."""

    name = "linear"
    least = 6

    def __init__(self, weights: NDArray) -> None:
        self.weights = weights

    @classmethod
    def fit(cls, x: NDArray, seconds: NDArray) -> Self:
        scale = np.maximum(np.abs(x).max(0), 1e-30)
        model = _sklearn("linear_model").LinearRegression(positive=True, fit_intercept=False)
        model.fit(x / scale / seconds[:, None], np.ones(len(x)))
        return cls(np.asarray(model.coef_, float) / scale)

    def __call__(self, x: NDArray) -> NDArray:
        return np.maximum(x @ self.weights, _LEAST)

    def data(self) -> dict[str, Any]:
        return {"weights": self.weights.tolist()}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        return cls(np.asarray(data["weights"], float))


@final
class Boosted(TimeModel):
    """The linear model, corrected by gradient-boosted trees (Friedman, 2001) of the logarithms of the features."""

    name = "boosted"
    least = 40

    def __init__(self, base: LinearModel, start: float, trees: list[dict[str, NDArray]]) -> None:
        self.base = base
        self.start = start
        self.trees = trees

    @classmethod
    def fit(cls, x: NDArray, seconds: NDArray) -> Self:
        base = LinearModel.fit(x, seconds)
        target = np.log(seconds / base(x))
        model = _sklearn("ensemble").GradientBoostingRegressor(random_state=0, **_TREES)
        model.fit(_seen(x, base), target)
        trees: list[dict[str, NDArray]] = []
        for found in model.estimators_[:, 0]:
            t = found.tree_
            trees.append(
                {
                    "left": t.children_left.astype(int),
                    "right": t.children_right.astype(int),
                    "feature": t.feature.astype(int),
                    "threshold": t.threshold.astype(float),
                    "value": _TREES["learning_rate"] * t.value[:, 0, 0],
                }
            )
        return cls(base, float(target.mean()), trees)

    def __call__(self, x: NDArray) -> NDArray:
        seen = _seen(x, self.base)
        total = np.full(len(x), self.start)
        rows = np.arange(len(x))
        for t in self.trees:
            node = np.zeros(len(x), int)
            while (inner := t["left"][node] >= 0).any():
                goes_left = seen[rows, np.maximum(t["feature"][node], 0)] <= t["threshold"][node]
                node = np.where(inner, np.where(goes_left, t["left"][node], t["right"][node]), node)
            total += t["value"][node]
        return self.base(x) * np.exp(total)

    def data(self) -> dict[str, Any]:
        trees = [{k: v.tolist() for k, v in t.items()} for t in self.trees]
        return {"base": self.base.data(), "start": self.start, "trees": trees}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        trees = [{k: np.asarray(v) for k, v in t.items()} for t in data["trees"]]
        for t in trees:
            size = len(t["left"])
            inner = t["left"] >= 0
            # Children stand behind their parents, so that no file makes a walk that never ends.
            for side in ("left", "right"):
                if not ((t[side][inner] > np.flatnonzero(inner)) & (t[side][inner] < size)).all():
                    raise ValueError("a tree that is none")
        return cls(LinearModel.of(data["base"]), float(data["start"]), trees)


def _seen(x: NDArray, base: LinearModel) -> NDArray:
    """What trees see: in float32, as scikit-learn's do."""
    return np.concatenate([np.log1p(np.maximum(x[:, :-1], 0)), np.log(base(x))[:, None]], 1).astype(np.float32)


def _sklearn(module: str) -> Any:
    try:
        from sklearn import ensemble, linear_model  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingExtraError(
            "predict: fitting needs scikit-learn", fix='pip install "nxjax[predict]"; predicting from a file does not'
        ) from error
    return {"ensemble": ensemble, "linear_model": linear_model}[module]


MODELS: Final[tuple[type[TimeModel], ...]] = (Scaled, LinearModel, Boosted)
