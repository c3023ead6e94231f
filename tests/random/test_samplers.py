"""Every sampler gives JAX's numbers: same key, shape, dtype.

Those of most cases are kept in tests/golden/samplers.npz, since JAX compiles for seconds: `--update-golden` asks it.
"""

import itertools
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import registry
from nxjax.errors import DtypeError

F = np.float32
X = np.arange(24, dtype=F).reshape(2, 3, 4)
P = np.array([0.1, 0.2, 0.3, 0.3, 0.1], F)
LOGITS = np.random.default_rng(0).normal(size=(4, 10)).astype(F)
COV = np.array([[2, 0.5], [0.5, 1]], F)
# On XLA the same program gives the same bits; NumPy's logarithms differ from XLA's in the last one.
EXACT = registry.default().name == "xla"
# Products and sums that the compiler may contract in another order than in JAX's program.
ULPS = {"maxwell", "double_sided_maxwell", "multivariate_normal", "orthogonal"}

SHAPED = [
    *((name, (), {"dtype": d}) for name in ("uniform", "normal") for d in ("float32", "bfloat16", "float16")),
    ("normal", (), {"dtype": "complex64"}),
    *(
        (name, (), {"dtype": d})
        for name in ("exponential", "cauchy", "laplace", "logistic", "gumbel", "maxwell")
        for d in ("float32", "bfloat16")
        if (name, d) != ("maxwell", "bfloat16")
    ),
    ("gumbel", (), {"mode": "high"}),
    *(("bits", (), {"dtype": f"uint{w}"}) for w in (8, 16, 32)),
    ("uniform", (), {"minval": -2.3, "maxval": 5.7}),
    *(("randint", (0, 10), {"dtype": d}) for d in ("int8", "uint8", "int16", "uint16", "int32", "uint32")),
    ("randint", (0, 256), {"dtype": "uint8"}),
    ("randint", (-1000000, 10000000), {}),
    ("randint", (5, 5), {}),
    ("rademacher", (), {}),
    ("truncated_normal", (-1.0, 2.0), {}),
    ("lognormal", (F(0.5),), {}),
    ("bernoulli", (0.3,), {}),
    ("bernoulli", (0.3,), {"mode": "high"}),
    ("pareto", (2.5,), {}),
    ("rayleigh", (F(2.5),), {}),
    ("triangular", (0.0, 1.0, 3.0), {}),
    ("wald", (F(1.5),), {}),
    ("weibull_min", (2.0, 3.0), {}),
    ("double_sided_maxwell", (1.0, 2.0), {}),
    *((name, (a,), {}) for name in ("gamma", "loggamma") for a in (0.3, 1.0, 5.0)),
    ("beta", (0.5, 2.0), {}),
    ("chisquare", (3.0,), {}),
    ("f", (3.0, 4.0), {}),
    ("t", (3.0,), {}),
    ("generalized_normal", (1.5,), {}),
    ("ball", (3,), {}),
    *(("poisson", (lam,), {}) for lam in (0.0, 0.5, 15.0, 1000.0)),
    *(("geometric", (p,), {}) for p in (0.1, 0.7)),
    *(("binomial", (n, p), {}) for n, p in ((5.0, 0.3), (100.0, 0.7), (1000.0, 0.5))),
    ("dirichlet", (P * 3,), {}),
    ("multivariate_normal", (np.zeros(2, F), COV), {}),
]
WHOLE = [
    ("categorical", (LOGITS,), {}),
    ("categorical", (LOGITS,), {"axis": 0}),
    ("categorical", (LOGITS,), {"axis": 1, "shape": (6, 4)}),
    ("categorical", (LOGITS,), {"axis": 1, "shape": (6, 4), "replace": False}),
    ("categorical", (LOGITS,), {"mode": "high"}),
    ("permutation", (10,), {}),
    ("permutation", (X,), {}),
    ("permutation", (X, 1), {}),
    ("permutation", (X, 2, True), {}),
    ("permutation", (np.arange(3000),), {}),
    ("choice", (10, (3,)), {}),
    ("choice", (10, (3, 2), False), {}),
    ("choice", (X, (5,), True, None, 1), {}),
    ("choice", (X, (2,), False, None, 2), {}),
    ("choice", (5, (3,), True, P), {}),
    ("choice", (5, (3,), False, P), {}),
    ("choice", (X, ()), {"axis": 1}),
    ("choice", (np.arange(2), (0,)), {}),
    ("multinomial", (F(20), np.array([0.2, 0.3, 0.5], F)), {}),
    ("orthogonal", (3,), {}),
    ("orthogonal", (3, (2,)), {"m": 5}),
    ("orthogonal", (5,), {"m": 3}),
    ("gamma", (np.array([0.5, 2.0], F), (3, 2)), {}),
    ("beta", (P, np.array([[1.0], [2.0]], F)), {}),
]
POSITION = {"truncated_normal": 2, "triangular": 3, "weibull_min": 2, "double_sided_maxwell": 2, "ball": 2}


SHAPES = ((), (50, 3))
GOLDEN = Path(__file__).parents[1] / "golden/samplers.npz"


def shaped(name, args, kwargs, shape):
    if name == "randint":
        return (shape, *args), kwargs
    if name == "ball":
        return (*args, 2, shape), kwargs
    return args, {**kwargs, "shape": shape}


CASES = [(n, *shaped(n, a, k, shape)) for n, a, k in SHAPED for shape in SHAPES] + WHOLE


def label(name, args, kwargs):
    return f"{name}-{zlib.crc32(repr((name, args, kwargs)).encode()):08x}"


def jaxs(name, args, kwargs):
    return np.asarray(getattr(jax.random, name)(jax.random.key(3), *args, **kwargs))


@pytest.fixture(scope="module")
def golden(request):
    """Case -> JAX's numbers; in the file as words, since NumPy writes no bfloat16."""
    if request.config.getoption("--update-golden"):
        found = {label(*case): jaxs(*case) for case in CASES}
        words = {f"{name}@{x.dtype.name}": x.view(f"u{x.itemsize}") for name, x in found.items()}
        np.savez_compressed(GOLDEN, **words)
    with np.load(GOLDEN) as file:
        return {key.split("@")[0]: file[key].view(key.split("@")[1]) for key in file}


def compare(golden, name, args, kwargs):
    want = golden[label(name, args, kwargs)]
    got = getattr(nx.random, name)(nx.random.key(3), *args, **kwargs)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if name in ULPS:
        np.testing.assert_allclose(
            np.asarray(got), want, rtol=1e-4 if name in ("orthogonal", "multivariate_normal") else 3e-7, atol=1e-6
        )
    elif EXACT or want.dtype.kind not in "fcV":
        np.testing.assert_array_equal(np.asarray(got), want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        rtol = 1e-4 if want.dtype.itemsize >= 4 else 2e-2
        np.testing.assert_allclose(np.asarray(got).astype(wide), want.astype(wide), rtol=rtol, atol=1e-5)


@pytest.mark.parametrize(("name", "args", "kwargs"), SHAPED)
def test_same_numbers(golden, name, args, kwargs):
    for shape in SHAPES:
        compare(golden, name, *shaped(name, args, kwargs, shape))


@pytest.mark.parametrize(("name", "args", "kwargs"), WHOLE)
def test_same_numbers_of_arrays(golden, name, args, kwargs):
    compare(golden, name, args, kwargs)


@pytest.mark.parametrize("case", range(0, len(WHOLE), 5))
def test_golden_numbers_are_those_of_the_jax_that_is_here(golden, case):
    want, found = golden[label(*WHOLE[case])], np.asarray(jaxs(*WHOLE[case]))
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, want)
    else:  # processors round what XLA contracts in their own ways
        last = 4 * float(np.finfo(want.dtype).eps)
        np.testing.assert_allclose(found, want, rtol=last, atol=last)


@pytest.mark.parametrize("name", ["uniform", "normal", "randint", "bits", "gamma", "permutation", "categorical"])
def test_vmap_over_keys_is_a_loop_and_jit_changes_nothing(name):
    args = {"randint": ((3,), 0, 100), "gamma": (0.7, (3,)), "permutation": (7,), "categorical": (LOGITS,)}.get(
        name, ((3,),)
    )

    def draw(key):
        return getattr(nx.random, name)(key, *args)

    keys = nx.random.split(nx.random.key(1), 4)
    jkeys = jax.random.split(jax.random.key(1), 4)
    mapped = np.asarray(nx.vmap(draw)(keys))
    # A loop of several fused steps may be contracted otherwise when it is batched.
    rtol = 1e-6 if name == "gamma" else 0 if EXACT else 1e-4
    for other in (
        np.stack([np.asarray(draw(k)) for k in keys]),
        np.asarray(nx.jit(nx.vmap(draw))(keys)),
        np.asarray(jax.vmap(lambda k: getattr(jax.random, name)(k, *args))(jkeys)),
    ):
        np.testing.assert_allclose(mapped, other, rtol=rtol)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tosses_whose_chance_is_below_the_resolution_of_numbers(dtype):
    for chance in (3 * 2.0**-16, 2.0**-9, 2.0**-8, 0.3):
        p = np.asarray(chance).astype(nx.numpy.dtype(dtype))
        ours = np.asarray(nx.random.bernoulli(nx.random.key(3), p, (50_000,), mode="high"))
        np.testing.assert_array_equal(ours, jax.random.bernoulli(jax.random.key(3), p, (50_000,), mode="high"))
        assert abs(ours.mean() - chance) < 5 * (chance / ours.size) ** 0.5


def test_64_bits():
    with jax.enable_x64(True):
        key = jax.random.key(3)
        for name, args in (
            ("uniform", ((10,), "float64")),
            ("bits", ((10,), "uint64")),
        ):
            want = np.asarray(getattr(jax.random, name)(key, *args))
            np.testing.assert_array_equal(np.asarray(getattr(nx.random, name)(nx.random.key(3), *args)), want)
        # The same bits through another erf_inv.
        want = np.asarray(jax.random.normal(key, (10,), "float64"))
        np.testing.assert_allclose(nx.random.normal(nx.random.key(3), (10,), "float64"), want, rtol=4e-15)
        want = np.asarray(jax.random.randint(key, (10,), 0, 2**40, "int64"))
        got = nx.random.randint(nx.random.key(3), (10,), nx.asarray(0, "int64"), nx.asarray(2**40, "int64"), "int64")
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("name", ["gamma", "loggamma"])
def test_gamma_samples_are_differentiable(name):
    a = np.array([0.1, 0.5, 1.0, 3.0, 20.0, 200.0], F)
    got = nx.grad(lambda a: getattr(nx.random, name)(nx.random.key(0), a).sum())(a)
    want = jax.grad(lambda a: getattr(jax.random, name)(jax.random.key(0), a).sum())(a)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4)


def test_normal_is_differentiable_through_its_parameters():
    got = nx.grad(lambda s: nx.random.lognormal(nx.random.key(0), s))(0.5)
    want = jax.grad(lambda s: jax.random.lognormal(jax.random.key(0), s))(0.5)
    np.testing.assert_allclose(float(got), float(want), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda k: nx.random.uniform(k, (), "int32"), nx.errors.DtypeError, "float dtype"),
        (lambda k: nx.random.randint(k, (), 0, 1, "float32"), nx.errors.DtypeError, "integer dtype"),
        (lambda k: nx.random.bits(k, (), "int32"), nx.errors.DtypeError, "unsigned"),
        (lambda k: nx.random.normal(k, (2,), "int8"), nx.errors.DtypeError, "float or complex"),
        (lambda k: nx.random.bernoulli(k, 1), nx.errors.DtypeError, "float"),
        (lambda k: nx.random.bernoulli(k, 0.5, mode="x"), nx.errors.ParameterError, "mode"),
        (lambda k: nx.random.gamma(k, np.ones(3, F), (2,)), ValueError, "gamma"),
        (lambda k: nx.random.choice(k, 3, (4,), replace=False), ValueError, "more draws"),
        (lambda k: nx.random.choice(k, 3, 4), TypeError, "shape is a tuple"),
        (lambda k: nx.random.permutation(k, 1.5), TypeError, "integer"),
        (lambda k: nx.random.categorical(k, LOGITS, shape=(3,)), ValueError, "categorical"),
        (lambda k: nx.random.dirichlet(k, 1.0), ValueError, "axis"),
        (lambda k: nx.random.multivariate_normal(k, np.zeros(3, F), COV), ValueError, "do not fit"),
    ],
)
def test_errors_name_the_sampler(call, error, words):
    with pytest.raises(error, match=words):
        call(nx.random.key(0))


ONE = ("categorical", "chisquare", "gamma", "geometric", "lognormal", "pareto", "poisson", "t")


@pytest.mark.parametrize(("name", "count"), [*((n, 1) for n in ONE), ("beta", 2), ("f", 2), ("weibull_min", 2)])
def test_parameters_are_real(name, count):
    for given in itertools.product((0.5, np.complex64(0.5 + 1j)), repeat=count):
        values = [np.full(2, x) for x in given]
        if any(x.dtype.kind == "c" for x in values):
            with pytest.raises(DtypeError, match=rf"random\.{name}"):
                getattr(nx.random, name)(nx.random.key(0), *values)


@pytest.mark.parametrize("draw", [nx.random.normal, nx.nn.initializers.ones])
def test_the_layout_of_a_plain_array_asks_for_nothing(draw):
    plain = nx.typeof(nx.numpy.ones((1, 2))).sharding  # what layers hand on, whatever mesh there is
    assert plain.mesh.empty
    mapped = nx.pmap(lambda x: x + draw(nx.random.key(0), (2,), out_sharding=plain))
    np.testing.assert_array_equal(mapped(np.zeros((1, 2), F))[0], draw(nx.random.key(0), (2,)))
