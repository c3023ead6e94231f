"""`nx.scipy.stats`: densities and distribution functions; names and values as `jax.scipy.stats`.

Each distribution is a module with SciPy's functions: ``logpdf``, ``pdf`` (``logpmf``, ``pmf``), ``cdf``, ``sf``, ...
Summaries of data and the kernel density estimator stand beside them.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_MODULES = (
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gennorm", "geom",
    "gumbel_l", "gumbel_r", "laplace", "logistic", "multinomial", "multivariate_normal", "nbinom", "norm", "pareto",
    "poisson", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
)  # fmt: skip

_HOMES = {"gaussian_kde": "kde", "mode": "summaries", "rankdata": "summaries", "sem": "summaries"}

__all__ = sorted([*_MODULES, *_HOMES])


def __getattr__(name: str) -> _Any:
    if name in _HOMES:
        found = getattr(_importlib.import_module(f"nxjax.scipy.stats.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if name not in _MODULES:
        raise AttributeError(f"module 'nxjax.scipy.stats' has no attribute {name!r}")
    return _importlib.import_module(f"nxjax.scipy.stats.{name}")


def __dir__() -> list[str]:
    return [*__all__]
