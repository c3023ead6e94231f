"""Random numbers from explicit keys, with JAX's bits.

    key = nx.random.key(0)
    key, use = nx.random.split(key)
    x = nx.random.normal(use, (3,))

A key determines the numbers: drawing twice with one key gives the same numbers twice. The same key, shape and dtype
give the numbers of `jax.random`, compiled or not, alone or under `vmap`.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "keys": "PRNGKey clone fold_in key key_data key_dtype key_impl split wrap_key_data",
    "uniforms": "bernoulli bits rademacher randint uniform",
    "normals": "lognormal normal truncated_normal",
    "continuous": "cauchy double_sided_maxwell exponential gumbel laplace logistic maxwell pareto rayleigh triangular "
    "wald weibull_min",
    "gammas": "ball beta chisquare dirichlet f gamma generalized_normal loggamma t",
    "discrete": "binomial categorical geometric multinomial poisson",
    "orders": "choice permutation",
    "matrices": "multivariate_normal orthogonal",
}
_HOMES = _homes(_FILES)

__all__ = sorted(_HOMES)
_find, __dir__ = _lazy(__name__, _HOMES)


def _random_gamma(key: _Any, alpha: _Any, *, log_space: bool = False, **_: _Any) -> _Any:
    return _find("loggamma" if log_space else "gamma")(key, alpha, dtype=alpha.dtype)


def __getattr__(name: str) -> _Any:
    if name == "random_gamma_p":
        spelled = _importlib.import_module("nxjax.lax.primitives").Spelled
        found = globals()[name] = spelled("random_gamma", _random_gamma, several=False)
        return found
    return _find(name)
