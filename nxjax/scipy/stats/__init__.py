"""`nx.scipy.stats`: densities and distribution functions; names and values as `jax.scipy.stats`.

Each distribution is a module with SciPy's functions: ``logpdf``, ``pdf`` (``logpmf``, ``pmf``), ``cdf``, ``sf``, ...
It also has summaries of data and the kernel density estimator.
"""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy

_MODULES = (
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gennorm", "geom",
    "gumbel_l", "gumbel_r", "laplace", "logistic", "multinomial", "multivariate_normal", "nbinom", "norm", "pareto",
    "poisson", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
)  # fmt: skip

_HOMES = {"gaussian_kde": "kde", "mode": "summaries", "rankdata": "summaries", "sem": "summaries"}

__all__ = sorted([*_MODULES, *_HOMES])
__getattr__, __dir__ = _lazy(__name__, _HOMES, _MODULES)
