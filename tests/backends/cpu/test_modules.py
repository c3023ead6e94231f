"""All kinds of kernels in one module: no name in it means two things, and LLVM takes it."""

import llvmlite.binding as llvm
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.backends.cpu.engine import engine
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.trace.stage import stage
from nxjax.trace.types import parse_type

NAMES = (*isa.possible(), *(["avx512-base"] if "avx512" in isa.possible() else []))
IMAGES, KERNEL = "f32[2,5,9,9]", "f32[6,5,1,1]"

# What the kernels are made for: functions of values of these types.
MADE = (
    (lambda x, i: x[i] + 1, "f32[300]", "i32[64]"),
    (lambda x, i: jnp.take(x, i, axis=0, mode="fill"), "f16[30,7]", "i32[64]"),
    (lambda x: jnp.tanh(x.T)[:, ::19].sum(0), "f32[200,96]"),
    (lambda x: jnp.flip(x.T, 0) * 2, "bf16[33,40]"),
    (lambda x: jnp.where(x > 0, x.T, x)[::5], "i8[70,70]"),
    (lambda x, y: (jnp.sin(x), jnp.cos(y), jnp.exp(x), lax.erf_inv(y), lax.rsqrt(x), jnp.fmod(x, y)), *["f32[77]"] * 2),
    (lambda x, y: (jnp.log1p(x), jnp.arctan2(x, y), lax.lgamma(x), lax.digamma(y), jnp.round(x)), *["f64[9]"] * 2),
    (lambda x, y: (x @ y, nx.nn.softmax(x @ y)), "f32[40,64]", "f32[64,50]"),
    (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), "i8[33,64]", "i8[64,48]"),
    (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), "u8[1,64]", "i8[64,48]"),
    (lambda x, y: x @ y, "bf16[16,40]", "bf16[40,24]"),
    (lambda x, y: x @ y, "c64[5,7]", "c64[7,3]"),
    (lambda x, w: nx.nn.silu(lax.conv(x, w, (1, 1), "SAME")), IMAGES, KERNEL),
    (lambda x, w: lax.conv(x, w, (2, 2), "SAME"), "f32[1,16,12,12]", "f32[16,16,3,3]"),
    (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), "f32[1,16,12,12]", "f32[32,16,3,3]"),
    (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"), IMAGES),
    (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), lax.top_k(x, 5)), "f32[40,300]"),
    (lambda x: jnp.sort(x), "i8[5000]"),
    (lambda x: (jnp.cumsum(x, 0), lax.cummax(x, 1), jnp.cumprod(x, 1)), "f32[40,50]"),
    (lambda x, i, u: (x.at[i].add(u), x.at[i].set(u, mode="drop")), "f32[50,3]", "i32[20]", "f32[20,3]"),
    (lambda x: (jnp.linalg.cholesky(x @ x.T), jnp.linalg.qr(x), lax.linalg.lu(x)), "f32[20,20]"),
    (lambda x: lax.linalg.triangular_solve(x, x, left_side=True), "f64[3,9,9]"),
    (lambda k: (nx.random.bits(k, (300,)), nx.random.normal(k, (100,))), "key<fry>[]"),
    (lambda q, k, v: nx.nn.dot_product_attention(q, k, v), *["f32[1,64,2,16]"] * 3),
)


def kernels():
    """The kernels of everything in `MADE`, for the instruction set that is current."""
    found = []
    for function, *types in MADE:

        def results(*xs, function=function):
            return nx.tree_util.tree_leaves(function(*xs))

        program = stage(results, [parse_type(t) for t in types])
        found += [c.kernel for c in CpuBackend().lowered(program).calls()]
    return list({k.symbol: k for k in found}.values())


@pytest.mark.parametrize("name", NAMES)
def test_all_kinds_of_kernels_are_one_module(name):
    with config.using(cpu_isa=name):
        module = llvm.parse_assembly(engine(isa.named(name)).texts(kernels()))
        module.verify()
        assert sum(not f.is_declaration for f in module.functions) > 50


@pytest.mark.parametrize("name", NAMES)
def test_quantized_programs_that_gather_in_two_ways(name):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(126, 4)).astype("f4"), rng.normal(size=(4, 4)).astype("f4")
    q = nx.quantize(lambda w, x: nx.nn.standardize(x @ w), "int16x8", calibrate=[(w, x)])
    with config.using(cpu_isa=name):
        np.testing.assert_allclose(nx.jit(q)(w, x), q(jnp.asarray(w), jnp.asarray(x)), atol=1e-3)


@pytest.mark.parametrize("activation", [nx.nn.silu, nx.nn.mish])
def test_quantized_convolutions_of_few_pixels(activation):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 8, 3, 3)).astype("f4"), rng.normal(size=(8, 8, 1, 1)).astype("f4")
    q = nx.quantize(lambda w, x: activation(lax.conv(x, w, (1, 1), "VALID")), "int8", calibrate=[(w, x)])
    np.testing.assert_array_equal(nx.jit(q)(w, x), q(jnp.asarray(w), jnp.asarray(x)))
