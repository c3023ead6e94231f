"""Parts of complex numbers: every law."""

import jax
import numpy as np

from nxjax.errors import DtypeError
from nxjax.ops import complex as ops
from nxjax.testing import bad, check_op, sample

RNG = np.random.default_rng(0)
Z = (RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))).astype(np.complex64)
X = Z.real.copy()


def test_parts():
    for name in ("real", "imag", "conj"):
        check_op(getattr(ops, name), [sample(Z)], reference=getattr(jax.lax, name))
    check_op(ops.real, [], [bad(X, error=DtypeError, says="f32")])


def test_joining():
    check_op(
        ops.complex,
        [sample(X, Z.imag.copy())],
        [bad(X, X.astype(np.float64), error=DtypeError, says="equal")],
        reference=jax.lax.complex,
    )


def test_conj_of_a_real_is_complex():
    check_op(ops.conj, [sample(X)], reference=jax.lax.conj)
