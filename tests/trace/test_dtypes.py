"""Promotion is JAX's for every pair of dtypes, weak or not; 64 bits come when asked for."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import DtypeError
from nxjax.trace import dtypes

NAMES = [
    "bool", "int4", "uint4", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float8_e4m3fn", "float8_e5m2",
    "bfloat16", "float16", "float32", "complex64",
]  # fmt: skip
PYTHON = [int, float, complex]


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(NAMES, 2)))
def test_pairs_promote_as_in_jax(a, b):
    try:
        expected = jnp.promote_types(dtype(a), dtype(b))
    except jax.dtypes.TypePromotionError:
        with pytest.raises(DtypeError, match="no common dtype"):
            dtypes.promote_types(dtype(a), dtype(b))
    else:
        assert dtypes.promote_types(dtype(a), dtype(b)) == expected
        assert dtypes.promote_types(dtype(b), dtype(a)) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", PYTHON)
def test_python_scalars_yield(name, kind):
    pair = (dtype(name), False), (dtypes.as_dtype(kind), True)
    try:
        expected = jnp.result_type(jnp.zeros((), dtype(name)), kind(1))
    except jax.dtypes.TypePromotionError:
        with pytest.raises(DtypeError, match="no common dtype"):
            dtypes.promote(*pair)
    else:
        assert dtypes.promote(*pair)[0] == expected


def test_sixty_four_bits_when_asked_for():
    assert nx.asarray(np.zeros(2)).dtype == np.float32
    assert nx.zeros(2, dtype="float64").dtype == np.float64
    assert (nx.zeros(2, dtype="float64") + 1.0).dtype == np.float64
    assert dtypes.promote_types("int32", "uint32") == np.int32
    with config.using(enable_x64=True):
        assert nx.asarray(np.zeros(2)).dtype == np.float64
        assert dtypes.as_dtype(float) == np.float64
        assert dtypes.promote_types("int32", "uint32") == np.int64


def test_names():
    for d in (dtypes.bfloat16, dtypes.uint4, dtypes.key, dtypes.float8_e4m3fn, dtypes.bool_):
        assert dtypes.from_short_name(dtypes.short_name(d)) == d
    assert dtypes.as_dtype("bfloat16") == dtypes.bfloat16
    with pytest.raises(DtypeError, match="cannot hold"):
        dtypes.as_dtype("U5")
    with pytest.raises(DtypeError, match="not understood"):
        dtypes.as_dtype("floot")
    # NumPy's strings, such as elements of a table, are names too.
    for name in np.array(["float32", "bfloat16", "float8_e5m2", "int4"]):
        assert dtypes.as_dtype(name) == dtypes.as_stored(name) == dtypes.as_dtype(str(name))


KINDS = ("bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("x64", [False, True])
def test_floats_made_of_integers(x64):
    """float32, of 64-bit integers float64, as in JAX, where 64 bits are the default, too."""
    functions = {
        "divide": lambda m, x: x / 2,
        "divide itself": lambda m, x: x / x,
        "mean": lambda m, x: m.mean(x),
        "std": lambda m, x: m.std(x),
        "var": lambda m, x: m.var(x, 0),
        "sin": lambda m, x: m.sin(x),
        "hypot": lambda m, x: m.hypot(x, x),
        "linspace": lambda m, x: m.linspace(x[0], x[1], 3),
        "trapezoid": lambda m, x: m.trapezoid(x),
        "median": lambda m, x: m.median(x),
        "norm": lambda m, x: m.linalg.norm(x),
        "angle": lambda m, x: m.angle(x),
        "logaddexp": lambda m, x: m.logaddexp(x, 1),
        "square": lambda m, x: m.square(x),
        "searchsorted": lambda m, x: m.searchsorted(x, x),
        "digitize": lambda m, x: m.digitize(x, x),
        "argsort": lambda m, x: m.argsort(x),
        "argpartition": lambda m, x: m.argpartition(x, 1),
        "power": lambda m, x: m.power(x, x),
    }
    with nx.enable_x64(x64), jax.enable_x64(x64):
        for kind in KINDS if x64 else [k for k in KINDS if not k.endswith("64")]:
            x = np.arange(3).astype(jax.numpy.dtype(kind))
            for name, f in functions.items():
                if kind == "bool" and name not in ("divide", "mean", "sin", "square"):
                    continue  # of others JAX refuses some
                want = jax.eval_shape(lambda v, f=f: f(jax.numpy, v), x)
                got = nx.eval_shape(lambda v, f=f: f(nx.numpy, v), x)
                assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type), (name, kind)


def test_rounding_is_the_same_whatever_made_the_array():
    """Also where one rounding and two give different numbers: on 2**26 + 2**18 + 1, between two of bfloat16."""
    whole = 2**26 + 2**18 + 1
    made = [
        nx.numpy.asarray(np.array([whole]), dtype="bfloat16"),
        nx.numpy.asarray([whole]).astype("bfloat16"),
        nx.numpy.full((1,), whole, dtype="bfloat16"),
        nx.numpy.arange(whole, whole + 1, dtype="bfloat16"),
        nx.numpy.ones(1, "bfloat16") * whole,
        nx.jit(lambda x: x.astype("bfloat16"))(np.array([whole])),
        nx.jit(lambda x: x * whole)(nx.numpy.ones(1, "bfloat16")),
    ]
    assert [int(y[0]) for y in made] == [2**26] * len(made)
    fraction = 1 + 2.0**-8 + 2.0**-40  # just above the middle of two
    made = [
        nx.numpy.asarray(np.array([fraction]), dtype="bfloat16"),
        nx.numpy.full((1,), fraction, dtype="bfloat16"),
        nx.numpy.ones(1, "bfloat16") * fraction,
        nx.jit(lambda x: x * fraction)(nx.numpy.ones(1, "bfloat16")),
    ]
    assert [float(y[0]) for y in made] == [1 + 2.0**-7] * len(made)
    assert np.isinf(float(nx.numpy.ones(1, "bfloat16")[0] * 1e300))  # without a warning
