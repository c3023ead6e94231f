"""Comparison: every law, with NaN and signed zeros."""

import jax
import numpy as np
import pytest

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops import compare as ops
from nxjax.testing import bad, check_op, sample

X = np.array([1, 2, np.nan, -0.0, 3], np.float32)
Y = np.array([1, 3, np.nan, 0.0, -np.inf], np.float32)


SIGNED = np.array([-3, 4], np.int8), np.array([3, 4], np.int8)
UNSIGNED = np.array([253, 4], np.uint8), np.array([3, 4], np.uint8)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare(name):
    samples = [
        sample(X, Y),
        sample(X > 0, Y > 0),
        sample(np.int8([-3, 4]), np.int8([3, 4])),
        sample(np.uint8([253, 4]), np.uint8([3, 4])),
    ]
    check_op(
        getattr(ops, name),
        samples,
        [
            bad(X, Y[:2], error=ShapeError, says="equal shapes"),
            bad(X, X.astype(np.float16), error=DtypeError, says="equal dtypes"),
        ],
        reference=getattr(jax.lax, name),
    )


def test_complex_numbers_have_no_order():
    z = X.astype(np.complex64)
    check_op(ops.eq, [sample(z, z)], reference=jax.lax.eq)
    check_op(ops.lt, [], [bad(z, z, error=DtypeError, says="c64")])
