"""The same bits on every instruction set, with any number of threads, in any batch; the rest is refused."""

import inspect
import math
import re
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.backends import registry
from nxjax.errors import LoweringError
from nxjax.generation.config import DecoderConfig
from nxjax.generation.rope import _rotations, rotations
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.registry import NAMES
from nxjax.lower.reproducible import CALLS
from nxjax.ops import vocabulary
from nxjax.ops.base import Binary, DataMovement, Unary
from nxjax.scipy.special.errs import _legendre

rng = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return jnp.asarray((rng.integers(-(10**6), 10**6, shape) / 3e5).astype(dtype))


@pytest.fixture(autouse=True)
def reproducible():
    with nx.config.using(reproducible=True):
        yield


def bits(ys):
    """All bytes of some results; any NaN is as good as another."""
    found = []
    for y in nx.tree.leaves(ys):
        y = np.asarray(y)
        nan = y != y
        y = np.where(nan, np.zeros_like(y), y) if nan.any() else y
        found.append((y.shape, y.dtype.name, y.tobytes(), nan.tobytes()))
    return found


W, V, KERNEL, DEEP, WIDE = array(65, 33), array(33, 65), array(8, 5, 3, 3), array(5, 1, 3, 3), array(16, 16, 3, 3)
EYE = 10 * np.eye(7, dtype=np.float32)


def conv(x, w, **how):
    return lax.conv_general_dilated(x, w, how.pop("strides", (1, 1)), "SAME", **how)


# A function of one element of a batch, and the shape of that element.
PROGRAMS = {
    "sum": (jnp.sum, (19, 65)),
    "sum of columns": (lambda x: x.sum(0), (19, 65)),
    "sum of rows": (lambda x: x.sum(1), (19, 65)),
    "long sum": (jnp.sum, (5003,)),
    "long columns": (lambda x: x.sum(0), (5003, 3)),
    "short rows": (lambda x: x.sum(-1), (40, 3)),
    "sum in the middle": (lambda x: x.mean((0, 2)), (5, 6, 7)),
    "sum of what is transposed": (lambda x: (x.T * 2).sum(1), (17, 29)),
    "sum of what is reshaped": (lambda x: x.reshape(6, 35).sum(1), (210,)),
    "sum of what was rows": (lambda x: x.reshape(210).sum(), (6, 35)),
    "sum of what is repeated": (lambda x: (jnp.broadcast_to(x[:, None], (9, 11)) * 2).sum(1), (9,)),
    "sum of a slice": (lambda x: x[::-1, ::2].sum(1), (4, 50)),
    "product": (lambda x: (1 + x / 9).prod(0), (19, 5)),
    "largest zero": (lambda x: (x * 0).max(0), (19, 5)),
    "float64": (lambda x: jnp.exp(x.astype(np.float64)).sum(0), (19, 5)),
    "bfloat16": (lambda x: nx.nn.softmax(x.astype(jnp.bfloat16) @ W.astype(jnp.bfloat16)), (5, 65)),
    "float16": (lambda x: (x.astype(jnp.float16) ** 3).sum(0), (21, 5)),
    "softmax": (nx.nn.softmax, (7, 33)),
    "softmax of columns": (lambda x: nx.nn.softmax(x, 0), (33, 7)),
    "variance": (jnp.var, (17, 9)),
    "functions": (lambda x: jnp.exp(x) * jnp.sin(x * 1e7) + jnp.log1p(abs(x)) + jnp.tan(x * 1e20), (33,)),
    "zeta and polygamma": (lambda x: lax.zeta(2 + abs(x), x) + lax.polygamma(x * 0 + 1, x), (33,)),
    "functions of complex numbers": (
        lambda x: [f(lax.complex(x[:9], x[9:])) for f in (jnp.sqrt, jnp.log, jnp.expm1, jnp.sin, jnp.tanh, jnp.arccos)],
        (18,),
    ),
    "vector by matrix": (lambda x: x @ W, (65,)),
    "matrix by matrix": (lambda x: jnp.tanh(x @ W) + 1, (5, 65)),
    "vector by transposed matrix": (lambda x: x @ V.T, (65,)),
    "matrix by vector": (lambda x: W @ x, (33,)),
    "inner product": (lambda x: jnp.dot(x, x), (1000,)),
    "its own transpose": (lambda x: x @ x.T, (9, 65)),
    "deep product": (lambda x: x @ jnp.ones((2000, 3)) / 3, (2, 2000)),
    "einsum": (lambda x: jnp.einsum("ij,jk->ki", x, W), (4, 65)),
    "gradient": (nx.grad(lambda x: (jnp.tanh(x @ W) ** 2).mean()), (5, 65)),
    "gradient of a gradient": (nx.grad(lambda x: nx.grad(lambda y: (y @ W).var())(x).sum()), (5, 65)),
    "convolution": (lambda x: conv(x[None], KERNEL)[0], (5, 9, 9)),
    "convolution of many features": (lambda x: conv(x[None], WIDE)[0], (16, 9, 9)),
    "depthwise convolution": (lambda x: conv(x[None], DEEP, feature_group_count=5), (5, 9, 9)),
    "convolution by one's own": (lambda x: conv(x[:405].reshape(1, 5, 9, 9), x[405:].reshape(1, 5, 3, 3)), (450,)),
    "long convolution by one's own": (lambda x: jnp.convolve(x[:200], x[200:]), (300,)),
    "gradient by a kernel of one's own": (
        lambda x: nx.grad(lambda k: jnp.sin(conv(x[None, :2], k)).sum())(x[None, 2:, :3, :3]), (4, 12, 11),
    ),
    "gradient by an image of one's own": (
        lambda x: nx.grad(lambda v: jnp.sin(conv(v[None], x[1:, None, :3, :3])).sum())(x[:1]), (41, 9, 9),
    ),
    "gradient of a kernel": (lambda x: nx.grad(lambda k: (conv(x[None], k) ** 2).sum())(KERNEL), (5, 9, 9)),
    "gradient of an image": (nx.grad(lambda x: (conv(x[None], KERNEL, strides=(2, 2)) ** 2).sum()), (5, 9, 9)),
    "windows": (lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 3), (1, 1), "SAME"), (9, 9)),
    "gradient of windows": (
        nx.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2).sum()), (9, 9),
    ),
    "running sum": (jnp.cumsum, (300,)),
    "running sum of float64": (lambda x: jnp.cumsum(x.astype(np.float64)), (300,)),
    "running product of columns": (lambda x: jnp.cumprod(1 + x / 9, 0), (50, 7)),
    "running logarithm": (lax.cumlogsumexp, (50,)),
    "scan": (lambda x: lax.scan(lambda c, v: (jnp.tanh(c @ V @ W + v), c.sum()), jnp.zeros(33), x), (11, 33)),
    "scatter": (lambda x: jnp.zeros(5).at[jnp.arange(60) % 5].add(x), (60,)),
    "gradient of gather": (nx.grad(lambda x: (x[jnp.arange(60) % 7] ** 2).sum()), (7, 3)),
    "attention": (lambda x: nx.nn.dot_product_attention(x[None], x[None] * 2, x[None]), (40, 4, 16)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + EYE), (7, 9)),
    "solve": (lambda x: jnp.linalg.solve(x @ x.T + EYE, x), (7, 9)),
    "qr": (jnp.linalg.qr, (9, 7)),
    "determinant": (jnp.linalg.det, (7, 7)),
    "sort": (lambda x: jnp.sort(x).sum(), (33,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_element_has_the_same_bits_in_every_batch(name):
    f, shape = PROGRAMS[name]
    with nx.config.using(enable_x64=True):
        x = array(64, *shape)
        alone = [bits(nx.jit(lambda v: f(v))(x[i])) for i in (0, 5)]
        assert bits(f(x[0])) == alone[0], "eager"
        for size, axis in ((1, 0), (7, -1), (64, 0)):
            ys = nx.jit(nx.vmap(f, in_axes=axis))(jnp.array(jnp.moveaxis(x[:size], 0, axis)))
            for i, one in zip((0, 5), alone, strict=True):
                if i < size:
                    assert bits(nx.tree.map(lambda y, i=i: y[i], ys)) == one, (size, axis)


def test_batches_differ_where_nothing_is_promised():
    x = array(64, 19, 65)
    with nx.config.using(reproducible=False):
        ys = nx.jit(nx.vmap(jnp.sum, in_axes=2))(jnp.array(jnp.moveaxis(x, 0, 2)))
        assert any(bits(nx.jit(jnp.sum)(v)) != bits(y) for v, y in zip(x, ys, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_instruction_sets_run_one_text(name):
    f, shape = PROGRAMS[name]
    texts = set()
    with nx.config.using(enable_x64=True):
        x = array(3, *shape)
        for which in isa.possible():
            with nx.config.using(cpu_isa=which):
                texts.add(nx.jit(nx.vmap(f)).lower(x).as_text(dialect="llvm"))
    (text,) = texts
    # Nothing rounds twice on one machine and once on another, and no function of C computes.
    called = {line.split("@")[1].split("(")[0] for line in text.splitlines() if line.startswith("declare")}
    assert {c for c in called if not c.startswith("llvm.")} <= {"memcpy", "memset"}
    assert not any(c.startswith(("llvm.fmuladd", "llvm.x86", "llvm.sin", "llvm.cos")) for c in called)


def test_texts_differ_where_nothing_is_promised():
    # A matrix unit has products only.
    names = [n for n in isa.possible() if not isa.named(n).tiles]
    if len(names) < 2:
        pytest.skip("one instruction set")
    texts = set()
    for which in names:
        with nx.config.using(cpu_isa=which, reproducible=False):
            texts.add(nx.jit(jnp.exp).lower(array(99)).as_text(dialect="llvm"))
    assert len(texts) == len(names)


@pytest.mark.parametrize("name", ["softmax", "functions", "matrix by matrix", "scan", "gradient of a kernel", "solve"])
def test_instruction_sets_and_threads_give_the_same_bits(name):
    f, shape = PROGRAMS[name]
    x, found = array(17, *shape), []
    for which in isa.possible():
        for threads in (1, 3):
            with nx.config.using(cpu_isa=which, num_threads=threads):
                found.append(bits(nx.jit(nx.vmap(f))(x)))
    assert all(y == found[0] for y in found)


# --- arithmetic that processors have or have not ---


def rounded(x: Fraction, dtype):
    """The nearest float, ties to even."""
    info = np.finfo(dtype)
    if not x:
        return dtype(0)
    e = max(math.frexp(float(x))[1] if 1e-300 < abs(x) < Fraction(10) ** 300 else _exponent(x), int(info.minexp) + 1)
    unit = Fraction(2) ** (e - info.nmant - 1)
    n = round(x / unit)  # Python's rounding of fractions is to even
    top = Fraction(float(info.max))
    return dtype(np.inf if n * unit > top else -np.inf if n * unit < -top else float(n * unit))


def _exponent(x: Fraction) -> int:
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e + (Fraction(2) ** e <= x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("which", isa.possible())
def test_multiply_adds_are_rounded_once(dtype, which):
    word = np.uint32 if dtype == np.float32 else np.uint64
    x, y, z = rng.integers(0, np.iinfo(word).max, (3, 600), word, endpoint=True).view(dtype)
    # Products near the addend, at both ends of the range, and any.
    least = np.finfo(dtype).smallest_subnormal
    x[:200], y[:200] = rng.integers(1, 2**20, 200) * least, rng.integers(1, 2**20, 200) / 2**19
    z[:200] = rng.integers(1, 2**20, 200) * least
    with np.errstate(all="ignore"):
        z[200:400] = -(x[200:400] * y[200:400])
    with nx.config.using(cpu_isa=which, enable_x64=True):
        got = nx.jit(lambda x, y, z: jnp.einsum("ik,ik->i", jnp.stack([z, x], 1), jnp.stack([z * 0 + 1, y], 1)))(
            x, y, z
        )
    for a, b, c, d in zip(x, y, z, np.asarray(got), strict=True):
        if np.isfinite(a) and np.isfinite(b) and np.isfinite(c):
            assert d == rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), dtype), (a, b, c)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_call_nothing_whose_rounding_is_open(dtype):
    """C's functions of one name differ between libraries and processors; what is exact, or rounded once, does not."""
    exact = {"ceil", "copysign", "fabs", "floor", "fma", "fshl", "rint", "roundeven", "smax", "smin", "sqrt", "trunc"}
    tried = 0
    for op in vocabulary.every().values():
        own = any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(op.infer).parameters.values())
        if op.name not in NAMES or not isinstance(op, (Unary, Binary)) or np.dtype(dtype) not in op.allowed or own:
            continue
        xs = [np.ones(99, dtype)] * (1 if isinstance(op, Unary) else 2)
        with nx.enable_x64(True):
            text = nx.jit(partial(op, y=0.3) if op.name == "power" else op).lower(*xs).as_text(dialect="llvm")
        called = {name.split(".")[0] for name in re.findall(r"^declare .*@(?:llvm\.)?([\w.]+)\(", text, re.M)}
        assert called <= exact, f"{op} calls {called - exact}"
        tried += 1
    assert tried > 40


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_logarithm_of_the_gamma_function(dtype):
    near = np.array([-2.4570247382208006, -2.7476826467274127, -3.1435808883499798, 1.0, 2.0])[:, None]
    x = np.concatenate([
        np.linspace(-20.0301, 20.0703, 4001),
        (near + np.linspace(-1.1e-3, 1e-3, 22)).ravel(),
        [1e-30, -1e-30, 1e30, 7.999, 8.0, -7.999, -8.001, 170.5, -170.5],
    ]).astype(dtype)  # fmt: skip
    want = np.array([float(mpmath.log(abs(mpmath.gamma(float(v))))) for v in x])
    with nx.enable_x64(True):
        got = np.asarray(nx.jit(lax.lgamma)(x))
        ends = nx.jit(lax.lgamma)(np.array([0.0, -0.0, -3, np.inf, -np.inf, np.nan, -1e300, 1e308], np.float64))
    np.testing.assert_allclose(got, want, rtol=3e-15 if dtype == np.float64 else 6e-8, atol=1e-14)
    np.testing.assert_array_equal(ends, [np.inf] * 5 + [np.nan] + [np.inf] * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_any_size(dtype):
    top = np.finfo(dtype).maxexp - 1
    x = np.ldexp(rng.uniform(-1, 1, 200), rng.integers(15, top, 200)).astype(dtype)
    x[:4] = (
        np.finfo(dtype).max,
        -np.finfo(dtype).max,
        2.0**20 * 1.5,
        6381956970095103 * 2.0 ** (797 if top > 127 else 60),
    )
    with nx.config.using(enable_x64=True), mpmath.workprec(1300):
        for name in ("sin", "cos", "tan"):
            got = np.asarray(nx.jit(getattr(jnp, name))(x))
            for a, b in zip(x, got, strict=True):
                exact = getattr(mpmath, name)(mpmath.mpf(float(a)))
                assert abs(mpmath.mpf(float(b)) - exact) <= 2 * float(np.spacing(dtype(abs(float(exact)))))
        assert np.isnan(np.asarray(nx.jit(jnp.sin)(np.array([np.inf, -np.inf, np.nan], dtype)))).all()


# --- what is refused ---

REFUSED = {
    "eig": lambda: jnp.linalg.eig(W[:7, :7]),
    "eigh": lambda: jnp.linalg.eigh(EYE),
    "fft": lambda: jnp.fft.fft(W[0]),
    "hessenberg": lambda: lax.linalg.hessenberg(jnp.asarray(EYE)),
    "igamma": lambda: lax.igamma(jnp.ones(3), jnp.ones(3)),
    "igamma_grad_a": lambda: lax.igamma_grad_a(jnp.ones(3), jnp.ones(3)),
    "igammac": lambda: lax.igammac(jnp.ones(3), jnp.ones(3)),
    "qr_pivots": lambda: nx.scipy.linalg.qr(jnp.asarray(EYE), pivoting=True),
    "random_gamma_grad": lambda: lax.random_gamma_grad(jnp.ones(3), jnp.ones(3)),
    "regularized_incomplete_beta": lambda: lax.betainc(jnp.ones(3), jnp.ones(3), jnp.ones(3) / 2),
    "schur": lambda: lax.linalg.schur(jnp.asarray(EYE)),
    "svd": lambda: jnp.linalg.svd(EYE),
    "tridiagonal": lambda: lax.linalg.tridiagonal(jnp.asarray(EYE)),
}
# Of several devices, and so of XLA; and what is written out before anything is lowered.
ELSEWHERE = frozenset((
    "all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_invariant", "pvary",
    "reduce_scatter", "sharding_constraint",
))  # fmt: skip
WRITTEN_OUT = frozenset(("no_derivative", "custom_lin", "custom_linear_solve", "custom_root"))
INTEGERS = frozenset(("lu_pivots_to_permutation",))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused(name):
    for run in (REFUSED[name], nx.jit(REFUSED[name])):
        with pytest.raises(LoweringError, match=f"{name}.*no promise of the same bits everywhere") as error:
            run()
        assert "reproducible=False" in str(error.value)


def test_every_op_is_promised_or_refused():
    ops = vocabulary.every()
    unknown = {
        n for n, op in ops.items() if n not in NAMES and not op.has("expand") and not isinstance(op, DataMovement)
    }
    unknown -= {*REFUSED, *ELSEWHERE, *WRITTEN_OUT, *INTEGERS, *CALLS}
    assert not unknown, "no kernel, and not listed as refused"


@pytest.mark.parametrize("executor", ["reference", "xla"])
def test_other_executors_are_refused(executor):
    with nx.config.using(executor=executor), pytest.raises(LoweringError, match="no promise"):
        nx.jit(lambda x: x + 1)(W)
    with nx.config.using(executor=executor), pytest.raises(LoweringError, match="no promise"):
        jnp.exp(W)


def test_the_setting_is_part_of_what_is_kept():
    f, x = nx.jit(lambda x: nx.nn.softmax(x * 3).sum(0)), array(999, 7)
    promised = bits(f(x))
    for _ in range(4):
        with nx.config.using(reproducible=False):
            other = bits(f(x))
        assert bits(f(x)) == promised
    assert other != promised  # else this test says nothing


def test_constants_are_computed_by_the_same_kernels():
    x = np.linspace(-9, 9, 999, dtype=np.float32)
    known = nx.jit(lambda: jnp.exp(x) + jnp.tanh(x) ** 3 + jnp.sum(x * 0.1))()
    assert bits(known) == bits(nx.jit(lambda x: jnp.exp(x) + jnp.tanh(x) ** 3 + jnp.sum(x * 0.1))(x))


@pytest.mark.parametrize("name", ["tanh", "log", "sin", "erf", "lgamma", "cbrt"])
def test_numbers_that_passes_find_have_the_bits_of_kernels(name):
    """NumPy's last places differ for a part of these."""
    f = getattr(lax, name)
    for number in np.linspace(0.1, 7, 40).astype(np.float32):
        found = nx.jit(lambda x, number=number: f(lax.select_n(False, number, x)))(jnp.float32(2))
        assert bits(found) == bits(nx.jit(f)(number))


def test_eager_calls_by_any_name_give_what_jit_gives():
    a, b = array(9, 65), array(65, 5)
    for f in (
        lambda a, b: a @ b,
        lambda a, b: jnp.matmul(a, b),
        lambda a, b: a.sum(0) + jnp.mean(a),
        lambda a, b: jnp.exp(a) * jnp.sin(a) + a**3 + abs(a) ** 0.3,
        lambda a, b: jnp.maximum(a * 0, -a * 0),
        lambda a, b: a % 0.7 + a // 0.3,
        lambda a, b: jnp.where(a > 0, jnp.log(abs(a)), jnp.sqrt(abs(a))),
        lambda a, b: a.astype(jnp.bfloat16) * 3 + 1,
        lambda a, b: (a * 1e9).astype(np.int8),
    ):
        assert bits(f(a, b)) == bits(nx.jit(f)(a, b))


def test_no_size_changes_the_order_of_products_of_several():
    a, b, c = array(64, 5, 33), array(33, 65), array(65, 3)
    f = nx.jit(lambda a: jnp.einsum("bij,jk,kl->bil", a, b, c))
    assert bits(f(a)[5]) == bits(f(a[5:6])[0])
    # The first two have no index in common: their product would take 41 GB.
    a, b, c = array(320, 320), array(320, 320), array(320, 320)
    np.testing.assert_allclose(
        jnp.einsum("ij,kl,jk->il", a, b, c), np.asarray(a) @ np.asarray(c) @ np.asarray(b), rtol=1e-3, atol=0.1
    )


def test_factorizations_of_large_matrices_are_promised():
    x = array(300, 300)
    f = lambda x: (jnp.linalg.cholesky(x @ x.T + 999 * jnp.eye(300)), jnp.linalg.qr(x[:, :200]))
    found = []
    for which in isa.possible():
        with nx.config.using(cpu_isa=which, num_threads=1 + len(found)):
            found.append(nx.jit(f)(x))
    root, (q, r) = nx.tree.map(np.asarray, found[0])
    np.testing.assert_allclose(root @ root.T, x @ x.T + 999 * np.eye(300), rtol=1e-4, atol=0.1)
    np.testing.assert_allclose(q @ r, x[:, :200], rtol=1e-4, atol=1e-4)
    assert all(bits(y) == bits(found[0]) for y in found)


@pytest.mark.parametrize("name", ["hanning", "hamming", "blackman"])
def test_windows_of_numpy_are_refused(name):
    with pytest.raises(LoweringError, match=f"{name}.*no promise"):
        getattr(jnp, name)(9)


def written():
    """Numbers that are made while a program is written down."""
    _rotations.cache_clear()
    _legendre.cache_clear()
    x = np.linspace(-3, 4, 63).reshape(9, 7)
    decoder = DecoderConfig(vocabulary=9, width=8, layers=1, heads=1, kv_heads=1, head_size=8, hidden=8, context=37)
    sizes = [("lanczos3", (31, 8)), ("lanczos5", (4, 3)), ("cubic", (5, 11))]
    return [
        [nx.image.resize(x, shape, method) for method, shape in sizes],
        nx.jit(lambda: nx.image.resize(np.ones((5, 5)), (9, 4), "lanczos3"))(),
        nx.scipy.linalg.dft(37, dtype=np.complex128),
        nx.scipy.special.owens_t(x, x[::-1]),
        rotations(decoder),
    ]


def test_what_a_program_is_written_with_is_not_computed_by_numpy(monkeypatch):
    with nx.config.using(enable_x64=True):
        expected = bits(written())
        for name in ("sin", "cos", "exp", "power"):
            monkeypatch.setattr(np, name, lambda *xs, f=getattr(np, name): f(*xs) * (1 + 1e-9))
        monkeypatch.setattr(np.polynomial.legendre, "leggauss", None)
        assert bits(written()) == expected
    _rotations.cache_clear()


def test_what_was_compiled_without_the_promise_is_refused():
    f, x = nx.jit(lambda x: nx.nn.softmax(x * 3).sum(0)), array(9, 7)
    with nx.config.using(reproducible=False):
        lowered = f.lower(x)
        early = lowered.compile()
    with pytest.raises(LoweringError, match="compiled call: no promise of the same bits everywhere"):
        early(x)
    made = lowered.compile()
    assert bits(made(x)) == bits(f(x))
    with nx.config.using(reproducible=False):
        assert bits(made(x)) == bits(made(x))
        early(x)


def test_code_that_is_made_later_is_for_what_the_program_was_lowered_for():
    with nx.config.using(enable_x64=True, cache_dir=""):
        x = array(4999, dtype=np.float64) * 1e15
        program, _ = nx.make_jaxpr(jnp.sin)(x).hoist_consts()
        made = registry.get("cpu").compile(program)
        expected = bits(made([x]))
        with nx.config.using(reproducible=False):
            assert [bits(made([x])) for _ in range(3)] == [expected] * 3
            other = registry.get("cpu").compile(program)
            other.prepare()
        assert bits(other([x])) != expected  # else this says nothing: C's sine has other last bits


@pytest.mark.parametrize("name", isa.possible())
def test_products_of_bytes_take_no_instruction_that_a_processor_lacks(name):
    """Vectors of 256 bits are described for all processors, instructions on them are only some processors'."""
    x = np.random.default_rng(1).integers(-128, 128, (2, 8, 9, 9)).astype(np.int8)
    w = np.random.default_rng(2).integers(-128, 128, (16, 8, 3, 3)).astype(np.int8)
    wide = lambda a: a.astype(np.int64)
    with nx.config.using(cpu_isa=name):
        product = nx.jit(lambda a: lax.dot_general(a, a, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32))
        rows = x.reshape(18, 72)
        np.testing.assert_array_equal(np.asarray(product(rows)), wide(rows) @ wide(rows).T)
        y = nx.jit(lambda a, b: conv(a, b, preferred_element_type=jnp.int32))(x, w)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    np.testing.assert_array_equal(np.asarray(y), np.einsum("nchwij,ocij->nohw", windows, wide(w)))
