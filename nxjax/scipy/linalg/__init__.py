"""`nx.scipy.linalg`: solving, factorizing and functions of matrices, under SciPy's names, as `jax.scipy.linalg`.

Operands are batches ``[..., m, n]``; integers become float. The arguments ``overwrite_a``, ``overwrite_b`` and
``check_finite`` are accepted and have no effect.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_FILES = {
    "systems": "cho_factor cho_solve cholesky det inv lu lu_factor lu_solve solve solve_triangular",
    "factors": "eigh eigh_tridiagonal hessenberg polar qr qr_multiply rsf2csf schur svd",
    "functions": "expm expm_frechet funm solve_sylvester sqrtm",
    "structured": "block_diag circulant companion convolution_matrix dft fiedler fiedler_companion hadamard hankel "
    "helmert hilbert invhilbert invpascal leslie pascal toeplitz",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    file = _HOMES.get(name)
    if file is None:
        raise AttributeError(f"module 'nxjax.scipy.linalg' has no attribute {name!r}")
    found = globals()[name] = getattr(_importlib.import_module(f"nxjax.scipy.linalg.{file}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__]
