"""Rounding and reduced precision: every law, halves and infinities included."""

import jax
import ml_dtypes
import numpy as np
import pytest

from nxjax.errors import ParameterError
from nxjax.ops import rounding as ops
from nxjax.testing import bad, check_op, sample

X = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 3.2, -7.7, np.inf, np.nan, 8388609.0], np.float32)


@pytest.mark.parametrize("name", ["floor", "ceil", "is_finite"])
def test_plain(name):
    with np.errstate(over="ignore"):
        samples = [sample(X.astype(d), differentiable=False) for d in (np.float32, np.float16, ml_dtypes.bfloat16)]
    check_op(getattr(ops, name), samples, reference=getattr(jax.lax, name))


@pytest.mark.parametrize("method", [ops.AWAY_FROM_ZERO, ops.TO_NEAREST_EVEN])
def test_round(method):
    check_op(
        ops.round,
        [sample(X, rounding_method=method, differentiable=False)],
        [bad(X, error=ParameterError, says="rounding_method", rounding_method=7)],
        reference=lambda x, rounding_method: jax.lax.round(x, jax.lax.RoundingMethod(rounding_method)),
    )


@pytest.mark.usefixtures("shipped_jax")
@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (5, 2), (8, 0), (3, 0), (2, 1)])
def test_reduce_precision(exponent, mantissa):
    x = np.random.default_rng(0).normal(size=50).astype(np.float32) * np.float32(10.0) ** np.arange(-25, 25)
    # Ties: to even, which without mantissa bits is an even exponent.
    x = np.append(x, [np.inf, -np.inf, np.nan, 0.0, 0.75, -0.75, 1.5, 3.0, -6.0, 1.25, 1.75]).astype(np.float32)
    check_op(
        ops.reduce_precision,
        [sample(x, exponent_bits=exponent, mantissa_bits=mantissa, differentiable=False)],
        [bad(x, error=ParameterError, says="bits", exponent_bits=0, mantissa_bits=1)],
        reference=lambda x, **p: jax.lax.reduce_precision(x, **p),
    )
