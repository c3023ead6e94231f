"""Elementary functions: every law, real and complex, against JAX."""

import jax
import ml_dtypes
import numpy as np
import pytest

from nxjax.errors import DtypeError
from nxjax.ops import elementary as ops
from nxjax.testing import bad, check_op, sample

RNG = np.random.default_rng(0)
ANY = RNG.uniform(-3, 3, (2, 3)).astype(np.float32)
DOMAIN = {
    "log": RNG.uniform(0.2, 3, (2, 3)),
    "log1p": RNG.uniform(-0.8, 3, (2, 3)),
    "asin": RNG.uniform(-0.9, 0.9, (2, 3)),
    "acos": RNG.uniform(-0.9, 0.9, (2, 3)),
    "atanh": RNG.uniform(-0.9, 0.9, (2, 3)),
    "acosh": RNG.uniform(1.2, 4, (2, 3)),
}
NAMES = [
    "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "logistic",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_real(name):
    x = DOMAIN.get(name, ANY)
    samples = [sample(x.astype(np.float32)), sample(np.float32(x[0, 0]))]
    samples += [sample(x.astype(d), differentiable=False) for d in (np.float16, ml_dtypes.bfloat16)]
    errors = [bad(np.int32(1), error=DtypeError, says="float or complex")]
    check_op(getattr(ops, name), samples, errors, reference=getattr(jax.lax, name))


@pytest.mark.parametrize("name", NAMES)
def test_complex(name):
    z = (DOMAIN.get(name, ANY) + 0.3j * ANY).astype(np.complex64)
    check_op(getattr(ops, name), [sample(z)], reference=getattr(jax.lax, name), rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_float64_is_exact(name):
    x = np.asarray(DOMAIN.get(name, ANY), np.float64)
    import nxjax as nx

    ours = nx.jit(lambda v: getattr(ops, name)(v))(nx.asarray(x, nx.float64))
    with jax.enable_x64(True):
        np.testing.assert_allclose(ours, getattr(jax.lax, name)(x), rtol=1e-13)


def test_exp2_of_narrow_floats_rounds_once():
    x = np.array([-5, -4, -2.5, 0.5, 3, 5])
    for d in (ml_dtypes.float8_e5m2, ml_dtypes.bfloat16, np.float16):
        check_op(
            ops.exp2,
            [sample(x.astype(d), differentiable=False)],
            reference=lambda v: np.exp2(v.astype(float)).astype(v.dtype),
            rtol=1e-9,
        )


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_second_derivatives_at_small_numbers_and_next_to_one(dtype):
    import nxjax as nx

    x = np.array([1e-30, -1e-10, 1e-4, 0.3, 0.5, -0.7, 0.999]).astype(dtype)
    wide = x.astype(np.complex128)
    slope = wide / (1 - wide * wide) ** 1.5
    for name, right in ("asin", slope), ("acos", -slope), ("atanh", 2 * wide / (1 - wide * wide) ** 2):
        f = getattr(ops, name)
        first = lambda v: nx.jvp(f, (v,), (np.ones_like(x),))[1]  # noqa: B023
        for second in lambda v: nx.jvp(first, (v,), (np.ones_like(x),))[1], lambda v: nx.vjp(first, v)[1](v * 0 + 1)[0]:  # noqa: B023
            np.testing.assert_allclose(second(nx.asarray(x)), right, rtol=1e-6, err_msg=name)
            np.testing.assert_allclose(nx.jit(second)(x), right, rtol=1e-6, err_msg=name)
