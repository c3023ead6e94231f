"""`nx.scipy.special`: special functions; names, dtypes and values as `jax.scipy.special`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from nxjax.ops.vocabulary import FUNCTIONS as _FUNCTIONS
from nxjax.ops.vocabulary import LISTED as _LISTED
from nxjax.trace.lazy import missing_attribute as _missing
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "bessels": "bessel_jn i0 i1",
    "entropies": "entr kl_div logit rel_entr xlog1py xlogy",
    "errs": "log_ndtr ndtr ndtri owens_t",
    "faddeeva": "dawsn erfcx wofz",
    "gammas": "bernoulli beta betaln boxcox boxcox1p comb factorial gamma gammasgn loggamma "
    "multigammaln poch polygamma zeta",
    "harmonics": "sph_harm_y",
    "hypergeometric": "hyp1f1 hyp2f1",
    "incomplete": "betainc gammainc gammaincc",
    "integrals": "exp1 expi expn fresnel sici spence",
    "reductions": "log_softmax logsumexp softmax",
}
_HOMES = _homes(_FILES)
_HOMES |= dict.fromkeys(_LISTED["scipy.special"], "functions")

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    file = _HOMES.get(name) or ("functions" if name in _FUNCTIONS["scipy.special"] else None)
    if file is None:
        raise _missing(__name__, name)
    found = globals()[name] = getattr(_importlib.import_module(f"nxjax.scipy.special.{file}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__]
