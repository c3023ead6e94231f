"""`jax.lax`'s functions under their own names: strict about shapes and dtypes, thin over the ops.

Loaded part by part: a name is looked for in the parts in turn.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from nxjax.ops.vocabulary import FUNCTIONS as _FUNCTIONS
from nxjax.ops.vocabulary import LISTED as _LISTED

_PARTS = ("elementwise", "structural", "algebra", "control", "sharding", "products", "generators", "staging")
_MODULES = ("linalg",)
# Primitives that JAX names in `jax.lax.linalg`.
_LINALG = frozenset(
    ("cholesky_p", "cholesky_update_p", "eig_p", "eigh_p", "geqrf_p", "hessenberg_p", "householder_product_p", "lu_p",
     "lu_pivots_to_permutation_p", "ormqr_p", "qr_p", "schur_p", "svd_p", "symmetric_product_p", "triangular_solve_p",
     "tridiagonal_p", "tridiagonal_solve_p")
)  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"nxjax.lax.{name}")
    if not name.startswith("_") and name not in (*_PARTS, "reductions"):
        for part in _PARTS:
            module = _importlib.import_module(f"nxjax.lax.{part}")
            if name in module.__all__ or (part == "elementwise" and name in _FUNCTIONS["lax"]):
                value = globals()[name] = getattr(module, name)
                return value
        if name.endswith("_p"):
            value = globals()[name] = _importlib.import_module("nxjax.lax.primitives").find(name)
            return value
    raise AttributeError(f"module 'nxjax.lax' has no attribute {name!r}")


def __dir__() -> list[str]:
    found = {*_MODULES, *_LISTED["lax"]}
    for part in _PARTS:
        found.update(_importlib.import_module(f"nxjax.lax.{part}").__all__)
    found.update(n for n in _importlib.import_module("nxjax.lax.primitives").NAMES if n not in _LINALG)
    return sorted(found)
