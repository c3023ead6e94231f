"""Every family of ops compiles for a TPU or is refused with a reason: one program of each, several a process."""

import re
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.chips import parsed
from nxjax.lower.passes.narrow import narrow
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.support import verdict
from nxjax.ops.composite_attention import cached_attention
from nxjax.ops.quant_integer import integer_products
from nxjax.quant.packed import packed
from nxjax.transforms.inline import inlined

pytestmark = pytest.mark.usefixtures("libtpu")
PAGE = Path(__file__).parents[3] / "docs" / "ops.md"
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
M = np.eye(4, dtype=np.float32) * 3 + 0.1
I = np.arange(12, dtype=np.int32).reshape(3, 4)
C = X.astype(np.complex64)
IMAGE = np.ones((1, 8, 8, 4), np.float32)
NHWC = ("NHWC", "HWIO", "NHWC")
key = lambda: nx.random.key(0)


def quantized(f, *args):
    return nx.quantize(f, "int8", calibrate=[args], params=())


@nx.custom_vjp
def rule(x):
    return x


rule.defvjp(lambda x: (x, x), lambda r, ct: (ct * r,))


@nx.custom_jvp
def doubled(x):
    return x * 2


doubled.defjvp(lambda primals, tangents: (doubled(*primals), tangents[0] * 2))


def few_bits(x):
    w = packed(nx.QArray(np.ones((64, 8), np.int8), np.ones((2, 8), np.float32)))
    return [w.with_layout(activations=a).product(x) for a in ("float32", "int8")]


FAMILIES = {
    # Of several devices: see test_ahead.py.
    "sharding": [],
    "argreduce": [(lambda x: (jnp.argmax(x, 0), jnp.argmin(x)), X)],
    "arithmetic": [(lambda x: (x + x, x * x, x / 3, abs(x) ** 0.5, jnp.sqrt(abs(x)), jnp.sign(x), x % 2), X)],
    "bitwise": [(lambda i: (i & 3, i | 1, i ^ 5, ~i, i << 1, i >> 1, nx.lax.population_count(i)), I)],
    "block_dot": [(few_bits, np.ones((2, 64), np.float32))],
    "collectives": [(nx.vmap(lambda x: nx.lax.psum(x, "b"), axis_name="b"), X)],
    "compare": [(lambda x: (x > 0, x == x, x != 1, x <= 0), X)],
    "complex": [(lambda c: (jnp.real(c), jnp.imag(c), jnp.conj(c)), C)],
    "composite_activation": [(lambda x: (nx.nn.relu(x), nx.nn.gelu(x), nx.nn.silu(x), nx.nn.sigmoid(x)), X)],
    "composite_attention": [
        (lambda q: nx.nn.dot_product_attention(q, q, q), np.ones((1, 8, 2, 4), np.float32)),
        (lambda q: cached_attention(q[:, :2], q, q, jnp.array([3], np.int32), scale=0.5, window=0, cap=None),
         np.ones((1, 8, 2, 4), np.float32)),
    ],
    "composite_norm": [(lambda x: nx.nn.standardize(x), X)],
    "composite_one_hot": [(lambda i: nx.nn.one_hot(i, 12), I)],
    "composite_search": [(lambda x: jnp.searchsorted(x[0], x), X)],
    "composite_softmax": [(lambda x: (nx.nn.softmax(x), nx.nn.log_softmax(x)), X)],
    "conv": [
        (lambda x, w: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC), IMAGE,
         np.ones((3, 3, 4, 8), np.float32)),
    ],
    "convert": [(lambda x: (x.astype("int8"), x.astype("bfloat16"), nx.lax.bitcast_convert_type(x, "int32")), X)],
    "create": [(lambda x: x + nx.lax.iota("float32", 4), X)],
    "cumulative": [(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), nx.lax.cummax(x)), X)],
    "dot": [(lambda x, m: jnp.einsum("ij,jk->ki", x, m), X, M)],
    "elementary": [(lambda x: (jnp.exp(x), jnp.sin(x), jnp.tanh(x), jnp.log1p(abs(x)), jnp.arctan(x)), X)],
    "fft": [(lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x))), X)],
    "identity": [(lambda x: nx.lax.stop_gradient(x), X)],
    "incomplete": [(lambda x: nx.scipy.special.gammainc(abs(x) + 1, abs(x)), X)],
    "indexing": [(lambda x, i: x.ravel()[i], X, I)],
    "linalg_base": [(lambda m: jnp.linalg.cholesky(m), M)],
    "linalg_eigen": [(lambda m: jnp.linalg.eigh(m + m.T), M)],
    "linalg_lu": [(lambda m: jnp.linalg.inv(m), M)],
    "linalg_qr": [(lambda m: jnp.linalg.qr(m), M)],
    "linalg_svd": [(lambda m: jnp.linalg.svd(m), M)],
    "linalg_triangular": [(lambda m, x: nx.scipy.linalg.solve_triangular(m, x.T, lower=True), M, X)],
    "power": [(lambda x: abs(x) ** x, X)],
    "prelu": [(lambda x: nx.nn.leaky_relu(x), X)],
    "random": [
        (lambda x: (nx.random.normal(key(), (3,)) + x[:, 0], nx.random.bits(key(), (4,))), X),
        (lambda x: nx.random.permutation(key(), x), X),
    ],
    "recurrence": [(lambda x: nx.lax.associative_scan(jnp.add, x), X)],
    "reduce": [(lambda x: (x.sum(0), x.max(1), x.prod(), jnp.any(x > 0), jnp.mean(x)), X)],
    "resize": [(lambda x: nx.image.resize(x, (1, 16, 16, 4), "bilinear"), IMAGE)],
    "rounding": [(lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x)), X)],
    "scatter": [(lambda x, i: x.ravel().at[i.ravel()].add(1.0), X, I)],
    "select": [(lambda x: (jnp.where(x > 0, x, 0), jnp.clip(x, -0.5, 0.5)), X)],
    "shape": [(lambda x: (x.T, x.reshape(2, 6), jnp.concatenate([x, x]), jnp.broadcast_to(x, (2, 3, 4))), X)],
    "slicing": [(lambda x, i: (x[1:, ::2], nx.lax.dynamic_slice(x, (i[0, 0], 0), (1, 2)), jnp.pad(x, 1)), X, I)],
    "sort": [(lambda x: (jnp.sort(x), jnp.argsort(x), nx.lax.top_k(x, 2)), X)],
    "special": [(lambda x: (nx.lax.erf(x), nx.lax.lgamma(abs(x) + 1), nx.lax.digamma(abs(x) + 1)), X)],
    "window": [(lambda x: nx.lax.reduce_window(x, -jnp.inf, nx.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), IMAGE)],
    "quant_elementwise": [(quantized(lambda x: x + x * 0.5, X), X)],
    "quant_products": [(quantized(lambda x, m: nx.nn.relu(x @ m), X, M), X, M)],
    "quant_reduce": [(quantized(lambda x: x.mean(0), X), X)],
    "quant_resize": [(quantized(lambda x: nx.image.resize(x, (1, 16, 16, 4), "nearest"), IMAGE), IMAGE)],
    "fake_quantize": [(nx.quantize(lambda x, m: x @ m, "int8-weights", params=1), X, M)],
    "quant_softmax": [(quantized(lambda x: nx.nn.softmax(x), X), X)],
}  # fmt: skip
# Decompositions that LAPACK's hosts give.
HOST_ONLY = {"linalg_hessenberg", "linalg_schur"}
TRANSFORMS = {
    "scan": [(lambda x: nx.lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x), X)],
    "while": [(lambda x: nx.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), X)],
    "cond": [(lambda x: nx.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), X)],
    "jit": [(lambda x: nx.jit(jnp.tanh)(x), X)],
    "grad": [(lambda x: nx.grad(lambda v: jnp.sum(nx.nn.softmax(v @ v.T) ** 2))(x), X)],
    "vmap": [(nx.vmap(lambda r: jnp.outer(r, r)), X)],
    "custom": [(nx.grad(lambda x: rule(x).sum()), X), (nx.grad(lambda x: doubled(x).sum()), X)],
    "checkpoint": [(nx.grad(lambda x: nx.checkpoint(lambda v: jnp.sin(jnp.sin(v)).sum())(x)), X)],
}
CASES = [
    (f"{name} {i}", *case)
    for table in (FAMILIES, TRANSFORMS)
    for name, rows in table.items()
    for i, case in enumerate(rows)
]


def test_every_family_of_the_page_is_in_the_table():
    families = set(re.findall(r"^## ops\.(\w+)", PAGE.read_text(), re.MULTILINE))
    assert families - set(FAMILIES) == HOST_ONLY


@pytest.mark.parametrize("f", [nx.lax.linalg.hessenberg, nx.lax.linalg.schur, nx.lax.linalg.tridiagonal])
def test_what_only_a_host_computes_is_refused(f):
    (equation,) = inlined(nx.jit(f).trace(M).program).equations
    assert not (found := verdict(equation)).ok and "no form in StableHLO" in found.reason


def lowered(name, f, *args):
    program = inlined(nx.jit(f).trace(*args).program)
    assert all(verdict(e).ok for e in program.equations), name
    with integer_products():
        return lower(narrow(program), located=True)[0]


def test_a_quantized_softmax_divides_by_shifts():
    """A division of 64 bits is hundreds of steps there, and takes the compiler seconds."""
    text = lowered(*next(case for case in CASES if case[0] == "quant_softmax 0"))
    assert "stablehlo.shift_right_arithmetic" in text and not re.search(r"stablehlo\.divide .*i64>", text)


@pytest.mark.parametrize("part", range(3))
def test_all_compile(part):
    chosen = CASES[part::3]
    texts = [lowered(*case) for case in chosen]
    made = compiler.compile_texts(texts, parsed("v5e"))
    left = {
        name: str(m) for (name, *_), m in zip(chosen, made, strict=True) if not isinstance(m, compiler.CompiledModule)
    }
    assert left == {}
    # No call of a library that a TPU has not.
    assert not any("lapack" in m.hlo for m in made)


def test_callbacks_are_the_only_ops_without_a_form():
    def f(x):
        nx.debug.print("{}", x)
        return nx.pure_callback(np.sin, nx.ShapeDtypeStruct((3, 4), "float32"), x)

    verdicts = [verdict(e) for e in nx.jit(f).trace(X).program.equations]
    assert [v.ok for v in verdicts] == [False, False]
    assert all("calls back" in v.reason or "no form" in v.reason for v in verdicts)
