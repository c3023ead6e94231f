"""Conversion by value and by bits: every law over pairs of dtypes, saturation and NaN included."""

import jax
import ml_dtypes
import numpy as np
import pytest

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

VALUES = np.array([0, 1, -1, 2.5, -3.7, 100, 300, -200, 1e10, -1e10, np.inf, -np.inf, np.nan])
NAMES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("old", NAMES)
@pytest.mark.parametrize("new", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_by_value(old, new):
    finite = VALUES[:8] if dtype_of(old).kind in "biu" or "int" in old else VALUES
    x = finite.astype(dtype_of(old))
    reference = lambda x, dtype: jax.lax.convert_element_type(x.real if new != "complex64" else x, dtype)
    check_op(convert_element_type, [sample(x, dtype=dtype_of(new), differentiable=False)], reference=reference)


def test_derivative_is_the_conversion():
    x = np.linspace(-1, 1, 4).astype(np.float32)
    check_op(convert_element_type, [sample(x, dtype=dtypes.complex128), sample(x, dtype=dtypes.float64)])
    check_op(convert_element_type, [], [bad(x, error=DtypeError, says="key", dtype=dtypes.key)])


@pytest.mark.parametrize(
    ("old", "new"), [("float32", "int32"), ("float32", "uint8"), ("int32", "float32"), ("uint64", "float32")]
)
def test_by_bits(old, new):
    x = np.arange(6, dtype=old).reshape(2, 3)
    expected = lambda x, dtype: x.view(dtype).reshape((*x.shape, -1) if x.itemsize != dtype.itemsize else x.shape)
    check_op(bitcast_convert_type, [sample(x, dtype=np.dtype(new))], reference=expected)


def test_narrow_bits_join():
    x = np.arange(8, dtype=np.uint8).reshape(2, 4)
    check_op(
        bitcast_convert_type,
        [sample(x, dtype=dtypes.uint32)],
        [
            bad(x[:, :3].copy(), error=ShapeError, says="last dimension", dtype=dtypes.uint32),
            bad(x > 0, error=DtypeError, says="bool", dtype=dtypes.uint8),
        ],
        reference=lambda x, dtype: x.view(np.uint32)[:, 0],
    )
