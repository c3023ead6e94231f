"""Functions of complex numbers: within a unit in the last place or two, and C99's results where a part has no size."""

import itertools

import numpy as np
import pytest

from nxjax.ops import complex as complex_ops
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.test_ops import kernel_of

assert complex_ops.real  # its ops are known by name
NAN, INF, PI = np.nan, np.inf, np.pi
BOTH = ("sqrt", "log", "log1p", "expm1", "sin", "cos", "sinh", "cosh", "tan", "tanh", "sign")
SINGLE = ("asin", "acos", "atan", "asinh", "acosh", "atanh", "exp2")
NUMPY = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
ODD = {"sin", "sinh", "tan", "tanh", "asin", "atan", "asinh", "atanh", "sign"}
CASES = [(name, dtype) for dtype in sorted(dtypes.COMPLEX, key=str) for name in BOTH]
CASES += [(name, dtypes.complex64) for name in SINGLE]


def computed(name, isa_name, *xs):
    types = tuple(x.dtype for x in xs)
    kernel = kernel_of(name, types, types[0], {}, isa_name, len(xs[0]))
    with np.errstate(all="ignore"):
        return run(kernel, *xs, name=isa_name)[0]


def exact(name, x):
    """In NumPy's widest type, whose own last places do not count."""
    z = x.astype(np.clongdouble)
    with np.errstate(all="ignore"):
        if name == "log1p":  # NumPy's loses small numbers
            less = 2 * z.real + z.real * z.real + z.imag * z.imag
            return np.log1p(less) / 2 + 1j * np.arctan2(z.imag, 1 + z.real)
        return getattr(np, NUMPY.get(name, name))(z)


def drawn(dtype):
    rng = np.random.default_rng(7)
    z = rng.standard_normal(300) + 1j * rng.standard_normal(300)
    circle = np.exp(1j * rng.uniform(0, 7, 100)) * (1 + 1e-6 * rng.standard_normal(100))
    axes = np.concatenate([rng.uniform(-0.99, 0.99, 50), 1j * rng.standard_normal(50)])
    return np.concatenate([z, z * 10.0 ** rng.integers(-8, 1, 300), z[:99] * 1e-20, circle, axes]).astype(dtype)


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_last_places(isa_name, case):
    name, dtype = case
    if np.finfo(np.longdouble).eps > np.finfo(dtype).eps / 100:
        pytest.skip("no wider type to compare with")
    x = drawn(dtype)
    y, wanted = computed(name, isa_name, x), exact(name, x)
    bound = (0.6 if dtype == dtypes.complex64 else 3) * np.finfo(dtype).eps * np.abs(wanted)
    wrong = ~(np.abs(y - wanted) <= bound)
    assert not wrong.any(), (x[wrong][:3], y[wrong][:3], wanted[wrong][:3])


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conjugates_and_opposites(isa_name, case):
    """f(conj z) = conj f(z) for all parts, and f(-z) = -f(z) of odd functions: to the bit, but for signs of NaN."""
    name, dtype = case
    huge = float(np.finfo(dtype).max)
    parts = [0.0, 0.3, 1.0, 2.5, 90.0, 800.0, huge, float(np.finfo(dtype).smallest_subnormal), INF]
    x = np.array([complex(a, b) for a, b in itertools.product(parts, parts)], dtype)
    x = np.concatenate([x, -x.conj()])
    y = computed(name, isa_name, x)
    np.testing.assert_array_equal(computed(name, isa_name, x.conj().copy()), y.conj())
    if name in ODD:
        np.testing.assert_array_equal(computed(name, isa_name, -x), -y)


# Annex G of C99, in the quarter of positive parts. None: not said.
LIMITS = [
    ("sqrt", complex(1, INF), (INF, INF)), ("sqrt", complex(NAN, INF), (INF, INF)),
    ("sqrt", complex(-INF, 1), (0, INF)), ("sqrt", complex(INF, 1), (INF, 0)), ("sqrt", complex(INF, NAN), (INF, NAN)),
    ("sqrt", complex(-INF, NAN), (NAN, None)), ("sqrt", complex(1, NAN), (NAN, NAN)), ("sqrt", 0j, (0, 0)),
    ("log", 0j, (-INF, 0)), ("log", complex(-0.0, 0.0), (-INF, PI)), ("log", complex(1, INF), (INF, PI / 2)),
    ("log", complex(-INF, 1), (INF, PI)), ("log", complex(INF, INF), (INF, PI / 4)),
    ("log", complex(NAN, INF), (INF, NAN)), ("sinh", complex(0, INF), (0, NAN)), ("sinh", complex(INF, 0), (INF, 0)),
    ("sinh", complex(INF, 1), (INF, INF)), ("sinh", complex(INF, INF), (None, NAN)),
    ("sinh", complex(NAN, 0), (NAN, 0)), ("sinh", complex(1, INF), (NAN, NAN)), ("cosh", complex(0, INF), (NAN, 0)),
    ("cosh", complex(INF, 0), (INF, 0)), ("cosh", complex(INF, INF), (INF, NAN)),
    ("cosh", complex(INF, NAN), (INF, NAN)), ("cosh", complex(NAN, 0), (NAN, 0)),
    ("cosh", complex(NAN, 1), (NAN, NAN)), ("tanh", complex(INF, 1), (1, 0)), ("tanh", complex(INF, INF), (1, 0)),
    ("tanh", complex(INF, NAN), (1, 0)), ("tanh", complex(1, INF), (NAN, NAN)), ("tanh", complex(NAN, 0), (NAN, 0)),
    ("tanh", complex(NAN, 1), (NAN, NAN)), ("acos", complex(INF, 1), (0, -INF)),
    ("acos", complex(-INF, 1), (PI, -INF)), ("acos", complex(1, INF), (PI / 2, -INF)),
    ("acos", complex(0, NAN), (PI / 2, NAN)), ("asinh", complex(INF, INF), (INF, PI / 4)),
    ("asinh", complex(1, INF), (INF, PI / 2)), ("asinh", complex(NAN, 0), (NAN, 0)),
    ("acosh", complex(INF, 1), (INF, 0)), ("acosh", complex(-INF, 1), (INF, PI)),
    ("acosh", complex(INF, INF), (INF, PI / 4)), ("acosh", complex(0.5, 0), (0, np.arccos(0.5))),
    ("expm1", complex(-INF, INF), (-1, 0)), ("expm1", complex(-INF, NAN), (-1, 0)),
    ("expm1", complex(-INF, 1), (-1, 0)), ("expm1", complex(INF, INF), (INF, NAN)),
    ("expm1", complex(INF, NAN), (INF, NAN)), ("expm1", 0j, (0, 0)), ("expm1", complex(INF, 0), (INF, 0)),
    ("expm1", complex(-0.0, 0), (0, 0)), ("expm1", complex(NAN, 0), (NAN, 0)), ("expm1", complex(1, INF), (NAN, NAN)),
    ("expm1", complex(800, 0), (INF, 0)), ("exp2", complex(-INF, INF), (0, 0)), ("exp2", complex(3, 0), (8, 0)),
    ("atanh", complex(1, 0), (INF, 0)),
    ("atanh", complex(1, INF), (0, PI / 2)), ("atanh", complex(INF, 1), (0, PI / 2)),
    ("atanh", complex(0, NAN), (0, NAN)), ("atanh", complex(2, 0), (np.arctanh(0.5), PI / 2)),
    ("sign", complex(0, INF), (0, 1)), ("sign", complex(-0.0, -0.0), (0, 0)), ("sign", complex(NAN, 0), (NAN, NAN)),
]  # fmt: skip


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", sorted(dtypes.COMPLEX, key=str), ids=str)
def test_parts_without_a_size(isa_name, dtype):
    for name, z, wanted in LIMITS:
        if name in SINGLE and dtype != dtypes.complex64:
            continue
        (y,) = computed(name, isa_name, np.array([z], dtype))
        for part, known in zip((y.real, y.imag), wanted, strict=True):
            if known is not None:
                np.testing.assert_allclose(part, known, rtol=1e-6, err_msg=f"{name}({z})")
                assert known != known or np.signbit(part) == np.signbit(known), (name, z, y)


@pytest.mark.parametrize("isa_name", ISAS)
def test_powers(isa_name):
    rng = np.random.default_rng(8)
    z, w = ((rng.standard_normal(300) + 1j * rng.standard_normal(300)).astype("c8") for _ in range(2))
    w[::3] = w[::3].real * 4
    w[1::3] = np.round(w[1::3].real * 4)
    wanted = z.astype(np.clongdouble) ** w.astype(np.clongdouble)
    assert (np.abs(computed("pow", isa_name, z, w) - wanted) <= 0.6 * np.finfo("f4").eps * np.abs(wanted)).all()
    z = np.array([-2, 2j, -2j, 0, 0, 0, 3], "c8")
    w = np.array([2, 2, 3, 2, 0, 1j, 0], "c8")
    wanted = np.array([4, -4, 8j, 0, 1, complex(NAN, NAN), 1], "c8")
    y = computed("pow", isa_name, z, w)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    assert (y.imag[[0, 1]] == 0).all() and y.real[2] == 0  # whole powers of numbers on an axis stay on one
