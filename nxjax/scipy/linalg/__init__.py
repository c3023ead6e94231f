"""`nx.scipy.linalg`: solving, factorizing and functions of matrices, under SciPy's names, as `jax.scipy.linalg`.

Operands are batches ``[..., m, n]``; integers become float. The arguments ``overwrite_a``, ``overwrite_b`` and
``check_finite`` are accepted and have no effect.
"""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

_FILES = {
    "systems": "cho_factor cho_solve cholesky det inv lu lu_factor lu_solve solve solve_triangular",
    "factors": "eigh eigh_tridiagonal hessenberg polar qr qr_multiply rsf2csf schur svd",
    "functions": "expm expm_frechet funm solve_sylvester sqrtm",
    "structured": "block_diag circulant companion convolution_matrix dft fiedler fiedler_companion hadamard hankel "
    "helmert hilbert invhilbert invpascal leslie pascal toeplitz",
}
_HOMES = _homes(_FILES)

__all__ = sorted(_HOMES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
