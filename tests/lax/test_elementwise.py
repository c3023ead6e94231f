"""The elementwise functions of lax: signatures, strictness and values beside JAX's."""

import inspect
import re

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import DtypeError, NxError, ParameterError, ShapeError
from nxjax.testing import check_batch, check_grads

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 0.9, (2, 3)).astype(np.float32)
Y = RNG.uniform(0.2, 3, (2, 3)).astype(np.float32)
Z = (X + 1j * Y).astype(np.complex64)
I = RNG.integers(-9, 9, (2, 3), dtype=np.int32)
J = RNG.integers(1, 9, (2, 3), dtype=np.int32)
B = X > 0.5


def each(names, *args):
    return dict.fromkeys(re.findall(r"\w+", names), args)


CALLS = {
    **each("abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc", X),
    **each("exp exp2 expm1 floor is_finite lgamma log log1p logistic neg reciprocal round rsqrt sign sin sinh", X),
    **each("sqrt square tan tanh", X),
    **each("add atan2 complex div eq ge gt le lt max min mul ne nextafter pow rem sub", X, Y),
    **each("igamma igamma_grad_a igammac random_gamma_grad", X, Y),
    **each("bitwise_and bitwise_or bitwise_xor mulhi", I, J),
    **each("shift_left shift_right_arithmetic shift_right_logical", I, J),
    **each("bitwise_not clz population_count", I),
    **each("conj imag real", Z),
    "acosh": (Y + 1,),
    "zeta": (Y + 1, X),
    "polygamma": (np.ones_like(X), Y),
    "betainc": (X, Y, X),
    "integer_pow": (X, 3),
    "reduce_precision": (X, 5, 4),
    "convert_element_type": (X, np.int32),
    "bitcast_convert_type": (X, np.int32),
    "select": (B, X, Y),
    "select_n": (B, X, Y),
    "clamp": (np.float32(0.3), X, np.float32(0.6)),
}


@pytest.mark.parametrize("name", lax._FILES["elementwise"].split()[1:])  # but for `RoundingMethod`
def test_value_type_and_signature_are_those_of_jax(name):
    ours, theirs = getattr(lax, name), getattr(jax.lax, name)
    got, expected = ours(*CALLS[name]), theirs(*CALLS[name])
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=5e-5, atol=1e-6)
    if name != "random_gamma_grad":  # JAX's takes anything
        names = lambda f: [(p.name, p.kind) for p in inspect.signature(f).parameters.values()]
        assert names(ours) == names(theirs)
    assert ours.__name__ == name
    assert ours.__doc__


def test_python_scalars_have_their_default_dtypes():
    half, wide = nx.array(X, nx.float16), nx.array(X, nx.float64)
    for call in (lambda m: m.add(1, 1.0), lambda m: m.mul(X, 2), lambda m: m.max(I, 0.5), lambda m: m.add(B, B)):
        with pytest.raises(TypeError):
            call(jax.lax)
        with pytest.raises(DtypeError):
            call(lax)
    with pytest.raises(DtypeError, match=r"got: +f16\[2,3\], f32\[\]"):
        lax.add(half, 2.0)
    assert lax.add(wide, 2.0).dtype == nx.float64 and not lax.add(wide, 2.0).weak_type
    assert lax.add(1, 2).weak_type
    np.testing.assert_allclose(lax.sub(X, X[:1]), jax.lax.sub(X, X[:1]))
    assert not lax.convert_element_type(X, float).weak_type and not lax.stop_gradient(0.5).weak_type
    np.testing.assert_allclose(lax.sub(X, np.float32(1)), X - 1)
    np.testing.assert_allclose(lax.clamp(0.0, X, 1.0), X)
    assert lax.select(B, X, 0.0).dtype == nx.float32


def test_arrays_do_not_promote_and_do_not_broadcast():
    with pytest.raises(DtypeError, match="add: operands differ in dtype"):
        lax.add(X, I)
    with pytest.raises(ShapeError, match="add: operands differ in shape"):
        lax.add(X, X[0])
    with pytest.raises(DtypeError, match="sin"):
        lax.sin(I)
    with pytest.raises(DtypeError, match="pow"):
        lax.pow(I, 2)
    with pytest.raises(ParameterError, match="mulhi"):
        lax.mulhi(X, X)
    with pytest.raises(NxError, match="not an array"):
        lax.add([1.0], [2.0])


def test_powers():
    for x, y in ((X, 2), (X, J), (Z, 3), (X, -1.5), (2.0, J)):
        ours, theirs = lax.pow(x, y), jax.lax.pow(x, y)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    check_grads(lambda v: lax.pow(v, 3), (X.astype(np.float64),), order=2)


def test_products_in_a_wider_dtype():
    wide = lax.mul(np.int8([100, -100]), np.int8([100, 7]), out_dtype=np.int32)
    assert wide.dtype == nx.int32
    np.testing.assert_array_equal(wide, [10000, -700])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.uint32, np.int64, np.uint64])
def test_upper_half_of_a_product(dtype):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 30, dtype=dtype, endpoint=True)
    y = RNG.integers(info.min, info.max, 30, dtype=dtype, endpoint=True)
    y[:2] = info.min, info.max
    expected = [int(a) * int(b) >> info.bits for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(lax.mulhi(nx.array(x, dtype), nx.array(y, dtype)), np.array(expected, dtype))


def test_rounding_methods():
    x = np.float32([0.5, 1.5, -2.5])
    np.testing.assert_array_equal(lax.round(x), [1, 2, -3])
    np.testing.assert_array_equal(lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), [0, 2, -2])
    with pytest.raises(ParameterError, match="rounding_method"):
        lax.round(x, 5)


def test_functions_are_batched_and_differentiated():
    check_batch(lax.betainc, (X, Y, X))
    check_batch(lambda p, x: lax.clamp(p, x, 1.0), (X[:, 0], X), (0, 0))
    check_grads(lambda v: lax.select(B, lax.sin(v), lax.square(v)), (X.astype(np.float64),), order=2)
