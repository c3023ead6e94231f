"""Several hundred calls of JAX's own functions, imported: they give JAX's numbers.

A family is traced as one function of the family's arguments, so that compiling it costs little.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import nxjax as nx
from nxjax.interop import from_jax

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 5)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
P = np.abs(A) + 0.1
U = (0.9 * np.tanh(A)).astype(np.float32)
I = RNG.integers(-9, 9, (4, 5)).astype(np.int32)
J = RNG.integers(1, 9, (4, 5)).astype(np.int32)
S = RNG.standard_normal((4, 4)).astype(np.float32) + 4 * np.eye(4, dtype=np.float32)
H = S @ S.T
C = (A + 1j * B).astype(np.complex64)
V = RNG.standard_normal(12).astype(np.float32)
X = RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)
K = RNG.standard_normal((3, 3, 3, 4)).astype(np.float32) * 0.3
KEY = np.array([0, 42], np.uint32)
Calls = dict[str, Callable[..., Any]]


def each(*functions: Any) -> Calls:
    return {f.__name__: f for f in functions}


def positive(*functions: Any) -> Calls:
    return {f.__name__: lambda p, f=f: f(p) for f in functions}


FAMILIES: dict[str, tuple[tuple[Any, ...], Calls]] = {
    "unary": (
        (A,),
        each(jnp.abs, jnp.sign, jnp.floor, jnp.ceil, jnp.rint, jnp.round, jnp.trunc, jnp.exp, jnp.exp2, jnp.expm1,
             jnp.sin, jnp.cos, jnp.tan, jnp.arctan, jnp.sinh, jnp.cosh, jnp.tanh, jnp.arcsinh, jnp.square, jnp.cbrt,
             jnp.negative, jnp.positive, jnp.reciprocal, jnp.isnan, jnp.isinf, jnp.isfinite, jnp.signbit, jnp.sinc,
             jnp.deg2rad, jnp.rad2deg, jnp.nan_to_num, jnp.real, jnp.imag, jnp.conj, jnp.angle, jnp.frexp, jnp.modf,
             jsp.special.erf, jsp.special.erfc, jsp.special.expit, jsp.special.ndtr, jsp.special.log_ndtr,
             jsp.special.i0, jsp.special.i0e, jsp.special.i1, jsp.special.i1e),
    ),
    "positive": (
        (P,),
        positive(jnp.log, jnp.log2, jnp.log10, jnp.log1p, jnp.sqrt, lax.rsqrt, jsp.special.gammaln, jsp.special.digamma,
                 jsp.special.gamma, jsp.special.factorial, jsp.special.entr, jnp.arccosh, jnp.i0),
    ),
    "unit": ((U,), positive(jnp.arcsin, jnp.arccos, jnp.arctanh, lax.erf_inv)),
    "binary": (
        (A, B),
        each(jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.fmax, jnp.fmin,
             jnp.arctan2, jnp.hypot, jnp.logaddexp, jnp.logaddexp2, jnp.copysign, jnp.nextafter, jnp.fmod,
             jnp.remainder, jnp.floor_divide, jnp.heaviside, jnp.equal, jnp.not_equal, jnp.less, jnp.less_equal,
             jnp.greater, jnp.greater_equal, jnp.isclose, jnp.logical_and, jnp.logical_or, jnp.logical_xor,
             jnp.divmod),
    ),
    "integers": (
        (I, J),
        each(jnp.add, jnp.multiply, jnp.floor_divide, jnp.remainder, jnp.fmod, jnp.bitwise_and, jnp.bitwise_or,
             jnp.bitwise_xor, jnp.left_shift, jnp.right_shift, jnp.gcd, jnp.lcm, jnp.maximum, jnp.power, jnp.divide)
        | {
            "not": lambda i, j: ~i,
            "popcount": lambda i, j: lax.population_count(i),
            "clz": lambda i, j: lax.clz(i),
            "to float": lambda i, j: i.astype(jnp.float32) / j,
            "to int8": lambda i, j: (i * 100).astype(jnp.int8),
            "mod of sign": lambda i, j: jnp.sign(i) * (i % j),
            "shift logical": lambda i, j: lax.shift_right_logical(i, j),
            "bits": lambda i, j: lax.bitcast_convert_type(i, jnp.float32) * 0 + j,
        },
    ),
    "special": (
        (P, P[::-1].copy(), U),
        {
            "igamma": lambda a, x, u: jsp.special.gammainc(a, x),
            "igammac": lambda a, x, u: jsp.special.gammaincc(a, x),
            "betainc": lambda a, b, u: jsp.special.betainc(a, b, jnp.abs(u)),
            "betaln": lambda a, b, u: jsp.special.betaln(a, b),
            "polygamma": lambda a, x, u: jsp.special.polygamma(2, x),
            "zeta": lambda a, x, u: jsp.special.zeta(a + 1.5, x),
            "xlogy": lambda a, x, u: jsp.special.xlogy(a, x),
            "xlog1py": lambda a, x, u: jsp.special.xlog1py(a, x),
            "logit": lambda a, x, u: jsp.special.logit(jnp.abs(u) * 0.9 + 0.01),
            "ndtri": lambda a, x, u: jsp.special.ndtri(jnp.abs(u) * 0.9 + 0.01),
            "kl_div": lambda a, x, u: jsp.special.kl_div(a, x),
            "rel_entr": lambda a, x, u: jsp.special.rel_entr(a, x),
            "logsumexp": lambda a, x, u: jsp.special.logsumexp(a, axis=1, b=x),
            "multigammaln": lambda a, x, u: jsp.special.multigammaln(a + 2, 3),
            "poch": lambda a, x, u: jsp.special.poch(a, x),
            "pdf": lambda a, x, u: jsp.stats.norm.logpdf(u, a, x),
            "gamma": lambda a, x, u: jsp.stats.gamma.logpdf(x, a),
            "t": lambda a, x, u: jsp.stats.t.logpdf(u, a),
            "beta": lambda a, x, u: jsp.stats.beta.logpdf(jnp.abs(u), a, x),
            "poisson": lambda a, x, u: jsp.stats.poisson.logpmf(3, a),
        },
    ),
    "reductions": (
        (A, I),
        {
            name: lambda a, i, f=getattr(jnp, name), v=v, axis=axis: f(i if v else a, axis=axis)
            for name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "median",
                         "count_nonzero", "nansum", "nanmean", "nanmax", "ptp", "average", "cumsum", "cumprod")
            for v, axis in (((False, 0), (True, 1))[len(name) % 2],)
        }
        | {
            "all axes": lambda a, i: (a.sum(), a.max(), i.min(), jnp.argmin(a), a.std(ddof=1)),
            "keepdims": lambda a, i: a.sum(1, keepdims=True) + i.max(0, keepdims=True),
            "where": lambda a, i: jnp.sum(a, where=i > 0, initial=3.0),
            "norm": lambda a, i: (jnp.linalg.norm(a), jnp.linalg.norm(a, 1), jnp.linalg.norm(a, axis=1)),
            "logsumexp": lambda a, i: jax.nn.logsumexp(a, axis=0),
            "quantile": lambda a, i: jnp.quantile(a, jnp.array([0.1, 0.7]), axis=1),
            "histogram": lambda a, i: jnp.histogram(a, bins=4)[0],
            "bincount": lambda a, i: jnp.bincount(jnp.abs(i).reshape(-1), length=10),
            "cov": lambda a, i: (jnp.cov(a), jnp.corrcoef(a)),
            "lax cums": lambda a, i: (lax.cummax(a, 1), lax.cummin(a, 0), lax.cumlogsumexp(a, 1, reverse=True)),
            "bits": lambda a, i: (lax.reduce_and(i, (0,)), lax.reduce_or(i, (1,)), lax.reduce_xor(i, (0, 1))),
            "reduce": lambda a, i: lax.reduce(a, 1.0, lambda x, y: x + y - x * y * 0.1, (1,)),
        },
    ),
    "shapes": (
        (A, B),
        {
            "reshape": lambda a, b: a.reshape(2, -1),
            "transpose": lambda a, b: a.T,
            "moveaxis": lambda a, b: jnp.moveaxis(a[None], 0, 2),
            "expand": lambda a, b: jnp.expand_dims(a, (0, 3)),
            "squeeze": lambda a, b: a[None].squeeze(0),
            "concatenate": lambda a, b: jnp.concatenate([a, b], 1),
            "stack": lambda a, b: jnp.stack([a, b], 1),
            "split": lambda a, b: jnp.split(a, [1, 3], 1),
            "tile": lambda a, b: jnp.tile(a, (2, 1)),
            "repeat": lambda a, b: jnp.repeat(a, 3, 1),
            "roll": lambda a, b: jnp.roll(a, 2, 1),
            "flip": lambda a, b: jnp.flip(a, 0),
            "rot90": lambda a, b: jnp.rot90(a),
            "pad": lambda a, b: jnp.pad(a, ((1, 2), (0, 1)), constant_values=3),
            "pad reflect": lambda a, b: jnp.pad(a, 2, mode="reflect"),
            "pad edge": lambda a, b: jnp.pad(a, 2, mode="edge"),
            "lax pad": lambda a, b: lax.pad(a, 1.0, ((1, -1, 2), (-2, 0, 0))),
            "tri": lambda a, b: (jnp.tril(a, 1), jnp.triu(b), jnp.eye(3), jnp.diag(a[0])),
            "diagonal": lambda a, b: (jnp.diagonal(a, 1), jnp.trace(a)),
            "broadcast": lambda a, b: jnp.broadcast_to(a, (3, 4, 5)),
            "where": lambda a, b: jnp.where(a > 0, a, b),
            "select": lambda a, b: jnp.select([a > 1, a > 0], [a, b], 7.0),
            "clip": lambda a, b: jnp.clip(a, -0.5, 0.5),
            "meshgrid": lambda a, b: jnp.meshgrid(a[0], b[:, 0]),
            "linspace": lambda a, b: jnp.linspace(a[0, 0], b[0, 0], 7),
            "arange": lambda a, b: jnp.arange(3, 20, 4),
            "interp": lambda a, b: jnp.interp(a, jnp.arange(5.0), b[0]),
            "diff": lambda a, b: jnp.diff(a, 2, 1),
            "gradient": lambda a, b: jnp.gradient(a, axis=0),
            "ravel": lambda a, b: jnp.ravel(a, order="F"),
            "convolve": lambda a, b: jnp.convolve(a[0], b[0], "same"),
            "polyval": lambda a, b: jnp.polyval(a[0], b),
            "vander": lambda a, b: jnp.vander(a[0], 3),
            "trapezoid": lambda a, b: jnp.trapezoid(a, axis=1),
            "unwrap": lambda a, b: jnp.unwrap(a * 3),
            "complex": lambda a, b: lax.complex(a, b),
        },
    ),
    "indexing": (
        (A, I, V),
        {
            "rows": lambda a, i, v: a[jnp.array([3, 0, 0])],
            "points": lambda a, i, v: a[jnp.array([3, 0]), jnp.array([1, 4])],
            "slices": lambda a, i, v: (a[1:3, ::-2], a[-1], a[..., None, 2]),
            "traced": lambda a, i, v: v[i % 12],
            "out of bounds": lambda a, i, v: (v[i], v.at[i].get(mode="fill", fill_value=9), v.at[i].get(mode="clip")),
            "set": lambda a, i, v: a.at[1:3, jnp.array([0, 2])].set(7.0),
            "add": lambda a, i, v: v.at[i].add(a),
            "mul": lambda a, i, v: v.at[i % 12].multiply(0.5),
            "min": lambda a, i, v: (v.at[i].min(a), v.at[i].max(a)),
            "apply": lambda a, i, v: v.at[jnp.array([1, 3])].apply(jnp.sin),
            "take": lambda a, i, v: jnp.take(a, jnp.array([1, 1]), axis=1),
            "take_along": lambda a, i, v: jnp.take_along_axis(a, jnp.argsort(a, 1), 1),
            "dynamic": lambda a, i, v: lax.dynamic_slice(a, (i[0, 0], 1), (2, 3)),
            "update": lambda a, i, v: lax.dynamic_update_slice(a, jnp.ones((2, 2)), (i[0, 0], 9)),
            "segment": lambda a, i, v: jax.ops.segment_sum(a, jnp.array([0, 1, 0, 2]), 3),
            "one_hot": lambda a, i, v: jax.nn.one_hot(i, 4),
            "searchsorted": lambda a, i, v: jnp.searchsorted(jnp.sort(v), a),
            "vmapped": lambda a, i, v: jax.vmap(lambda r, k: r[k])(a, jnp.array([0, 4, 1, 2])),
            "nonzero": lambda a, i, v: jnp.nonzero(a > 0, size=8, fill_value=-1),
            "unique": lambda a, i, v: jnp.unique(i, size=20, fill_value=0),
            "mask": lambda a, i, v: jnp.where(i > 0, a, 0).at[:, 0].set(1),
        },
    ),
    "sorting": (
        (A, I, C),
        {
            "sort": lambda a, i, c: (jnp.sort(a), jnp.sort(i, axis=0), jnp.sort(a, descending=True)),
            "argsort": lambda a, i, c: (jnp.argsort(a, axis=0), jnp.argsort(i, stable=True, descending=True)),
            "complex": lambda a, i, c: jnp.sort(c),
            "pairs": lambda a, i, c: lax.sort((i, a), num_keys=1, dimension=0),
            "two keys": lambda a, i, c: lax.sort((i % 3, a, i), num_keys=2),
            "lexsort": lambda a, i, c: jnp.lexsort((a[0], i[0] % 2)),
            "top_k": lambda a, i, c: (lax.top_k(a, 3), lax.top_k(i, 2)),
            "median": lambda a, i, c: jnp.median(a),
            "partition": lambda a, i, c: jnp.sort(jnp.partition(a, 2)[:, :2]),
            "rank": lambda a, i, c: jsp.stats.rankdata(a[0]),
            "approx": lambda a, i, c: lax.approx_max_k(a, 2),
            "bools": lambda a, i, c: jnp.sort(a > 0),
            "set ops": lambda a, i, c: jnp.isin(i, jnp.array([1, 2, 3])),
        },
    ),
    "products": (
        (A, B, S, X, K),
        {
            "dot": lambda a, b, s, x, k: a @ b.T,
            "einsum": lambda a, b, s, x, k: jnp.einsum("ij,kj,kl->il", a, b, s),
            "tensordot": lambda a, b, s, x, k: jnp.tensordot(x, k, ((3,), (2,))),
            "outer": lambda a, b, s, x, k: (jnp.outer(a[0], b[0]), jnp.kron(a, b), jnp.vdot(a, b), jnp.inner(a, b)),
            "cross": lambda a, b, s, x, k: jnp.cross(a[:, :3], b[:, :3]),
            "preferred": lambda a, b, s, x, k: lax.dot(
                a.astype(jnp.bfloat16), b.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32
            ),
            "int8": lambda a, b, s, x, k: lax.dot(
                (a * 50).astype(jnp.int8), (b.T * 50).astype(jnp.int8), preferred_element_type=jnp.int32
            ),
            "highest": lambda a, b, s, x, k: jnp.dot(a, b.T, precision="highest"),
            "conv": lambda a, b, s, x, k: lax.conv_general_dilated(
                x, k, (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            "conv nchw": lambda a, b, s, x, k: lax.conv(
                x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), (1, 1), "VALID"
            ),
            "conv transpose": lambda a, b, s, x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
            "depthwise": lambda a, b, s, x, k: lax.conv_general_dilated(
                x, k[:, :, :1, :3], (1, 1), "SAME", feature_group_count=3, dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            "max pool": lambda a, b, s, x, k: lax.reduce_window(
                x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
            ),
            "sum pool": lambda a, b, s, x, k: lax.reduce_window(
                x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0), (1, 0), (0, 1), (0, 0))
            ),
            "resize": lambda a, b, s, x, k: jax.image.resize(x, (2, 5, 11, 3), "bilinear"),
            "resize near": lambda a, b, s, x, k: jax.image.resize(x, (2, 16, 4, 3), "nearest"),
            "attention": lambda a, b, s, x, k: jax.nn.dot_product_attention(x, x, x, is_causal=True),
            "patches": lambda a, b, s, x, k: lax.conv_general_dilated_patches(
                x, (3, 3), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            "map_coordinates": lambda a, b, s, x, k: jsp.ndimage.map_coordinates(a, [b[:3] + 1, b[1:] + 2], 1),
        },
    ),
    "linalg": (
        (S, H, A, C[:, :4]),
        {
            "solve": lambda s, h, a, c: (jnp.linalg.solve(s, a), jnp.linalg.solve(s, a[:, 0])),
            "inv": lambda s, h, a, c: (jnp.linalg.inv(s), jnp.linalg.det(s), jnp.linalg.slogdet(s)),
            "cholesky": lambda s, h, a, c: (jnp.linalg.cholesky(h), jsp.linalg.cholesky(h)),
            "cho_solve": lambda s, h, a, c: jsp.linalg.cho_solve(jsp.linalg.cho_factor(h), a),
            "triangular": lambda s, h, a, c: jsp.linalg.solve_triangular(s, a, lower=True, trans=1),
            "qr": lambda s, h, a, c: jnp.abs(jnp.linalg.qr(a.T)[1]),
            "eigh": lambda s, h, a, c: (jnp.linalg.eigvalsh(h), jnp.abs(jnp.linalg.eigh(h)[1])),
            "svd": lambda s, h, a, c: (jnp.linalg.svd(a, compute_uv=False), jnp.linalg.svd(a, full_matrices=False)[1]),
            "eig": lambda s, h, a, c: jnp.sort(jnp.abs(jnp.linalg.eigvals(s))),
            "lu": lambda s, h, a, c: jsp.linalg.lu(s),
            "lu_factor": lambda s, h, a, c: jsp.linalg.lu_solve(jsp.linalg.lu_factor(s), a),
            "pinv": lambda s, h, a, c: (jnp.linalg.pinv(a), jnp.linalg.matrix_rank(a)),
            "lstsq": lambda s, h, a, c: jnp.linalg.lstsq(a.T, a[0])[0],
            "power": lambda s, h, a, c: jnp.linalg.matrix_power(s, 3),
            "expm": lambda s, h, a, c: jsp.linalg.expm(s * 0.1),
            "complex": lambda s, h, a, c: (jnp.linalg.solve(c, c.T), jnp.linalg.det(c)),
            "norms": lambda s, h, a, c: (jnp.linalg.norm(a, "nuc"), jnp.linalg.norm(a, 2), jnp.linalg.cond(s)),
            "batched": lambda s, h, a, c: jax.vmap(jnp.linalg.solve)(jnp.stack([s, h]), jnp.stack([a, a])),
            "tridiagonal": lambda s, h, a, c: lax.linalg.tridiagonal_solve(
                s[0].at[0].set(0), s[1] + 9, s[2].at[3].set(0), a[:, :2]
            ),
        },
    ),
    "fft": (
        (C, A, X),
        {
            "fft": lambda c, a, x: (jnp.fft.fft(c), jnp.fft.ifft(c, axis=0)),
            "rfft": lambda c, a, x: (jnp.fft.rfft(a), jnp.fft.irfft(c, n=7)),
            "fft2": lambda c, a, x: (jnp.fft.fft2(c), jnp.fft.rfft2(a), jnp.fft.irfft2(c)),
            "fftn": lambda c, a, x: jnp.fft.fftn(x, axes=(1, 2, 3)),
            "hfft": lambda c, a, x: (jnp.fft.hfft(c), jnp.fft.ihfft(a), jnp.fft.fftshift(a)),
            "dct": lambda c, a, x: (jsp.fft.dct(a), jsp.fft.idct(a)),
            "stft": lambda c, a, x: jsp.signal.stft(x.reshape(-1), nperseg=32)[2],
            "convolve": lambda c, a, x: jsp.signal.fftconvolve(a, a, mode="full"),
        },
    ),
    "complex": (
        (C, C[::-1].copy()),
        {
            name: lambda c, d, f=f: f(c)
            for name, f in (
                ("abs", jnp.abs), ("exp", jnp.exp), ("log", jnp.log), ("sqrt", jnp.sqrt), ("sin", jnp.sin),
                ("tanh", jnp.tanh), ("angle", jnp.angle), ("conj", jnp.conj), ("sign", jnp.sign),
                ("square", jnp.square),
                ("log1p", jnp.log1p), ("expm1", jnp.expm1), ("cosh", jnp.cosh), ("arctan", jnp.arctan),
                ("arcsinh", jnp.arcsinh), ("rsqrt", lax.rsqrt), ("cumsum", jnp.cumsum), ("prod", jnp.prod),
            )
        }
        | {"mul": lambda c, d: c * d, "div": lambda c, d: c / d, "pow": lambda c, d: c**d, "eq": lambda c, d: c == d},
    ),
    "random": (
        (KEY,),
        {
            name: lambda k, f=f: f(jax.random.wrap_key_data(k))
            for name, f in {
                "uniform": lambda k: jax.random.uniform(k, (3, 5), minval=-1),
                "normal": lambda k: jax.random.normal(k, (7,)),
                "bits": lambda k: jax.random.bits(k, (5,), jnp.uint8),
                "randint": lambda k: jax.random.randint(k, (9,), -5, 70),
                "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
                "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(k, 7)),
                "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (9,)),
                "permutation": lambda k: jax.random.permutation(k, 11),
                "choice": lambda k: jax.random.choice(k, 9, (4,), replace=False),
                "categorical": lambda k: jax.random.categorical(k, jnp.arange(5.0), shape=(6,)),
                "gamma": lambda k: jax.random.gamma(k, jnp.array([0.5, 2.0, 7.0])),
                "beta": lambda k: jax.random.beta(k, 2.0, 3.0, (3,)),
                "poisson": lambda k: jax.random.poisson(k, 4.0, (6,)),
                "exponential": lambda k: jax.random.exponential(k, (4,)),
                "gumbel": lambda k: jax.random.gumbel(k, (4,)),
                "laplace": lambda k: jax.random.laplace(k, (4,)),
                "truncated": lambda k: jax.random.truncated_normal(k, -1, 2, (5,)),
                "multivariate": lambda k: jax.random.multivariate_normal(
                    k, jnp.zeros(2), jnp.eye(2) * 3, method="cholesky"
                ),
                "orthogonal": lambda k: jnp.abs(jax.random.orthogonal(k, 3)),
                "dirichlet": lambda k: jax.random.dirichlet(k, jnp.ones(4)),
                "glorot": lambda k: jax.nn.initializers.glorot_normal()(k, (4, 3)),
            }.items()
        },
    ),
    "nn": (
        (A, X),
        {
            **{
                f.__name__: lambda a, x, f=f: f(a)
                for f in (
                    jax.nn.relu, jax.nn.relu6, jax.nn.sigmoid, jax.nn.softplus, jax.nn.soft_sign, jax.nn.silu,
                    jax.nn.log_sigmoid, jax.nn.leaky_relu, jax.nn.hard_sigmoid, jax.nn.hard_swish, jax.nn.hard_tanh,
                    jax.nn.elu, jax.nn.celu, jax.nn.selu, jax.nn.gelu, jax.nn.mish, jax.nn.squareplus,
                    jax.nn.softmax, jax.nn.log_softmax, jax.nn.standardize, jax.nn.sparse_plus,
                )
            },
            "gelu exact": lambda a, x: jax.nn.gelu(a, approximate=False),
            "glu": lambda a, x: jax.nn.glu(a[:, :4]),
            "softmax where": lambda a, x: jax.nn.softmax(a, axis=0, where=a > -2),
            "batch norm": lambda a, x: (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5),
        },
    ),
    "control": (
        (A, I, V),
        {
            "cond": lambda a, i, v: lax.cond(a.sum() > 0, jnp.sin, jnp.cos, a),
            "switch": lambda a, i, v: lax.switch(i[0, 0], [lambda y: y, jnp.sin, lambda y: y * 2], a),
            "while": lambda a, i, v: lax.while_loop(lambda c: jnp.abs(c).max() > 0.1, lambda c: c * 0.7, a),
            "fori": lambda a, i, v: lax.fori_loop(0, 5, lambda k, y: jnp.sin(y) + k, a),
            "fori dynamic": lambda a, i, v: lax.fori_loop(0, jnp.abs(i[0, 0]), lambda k, y: jnp.sin(y) + k, a),
            "scan": lambda a, i, v: lax.scan(lambda c, x: (c + x, c * x), jnp.zeros(5), a),
            "scan reversed": lambda a, i, v: lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, v, reverse=True),
            "scan unrolled": lambda a, i, v: lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, v, unroll=5),
            "map": lambda a, i, v: lax.map(lambda r: r.sum() * r, a),
            "associative": lambda a, i, v: lax.associative_scan(jnp.maximum, v),
            "vmap while": lambda a, i, v: jax.vmap(
                lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 1.5), (0, 1.0))[1]
            )(jnp.abs(i[0])),
            "vmap cond": lambda a, i, v: jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.exp, x))(v),
            "checkpoint": lambda a, i, v: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(a),
            "custom root": lambda a, i, v: lax.custom_root(
                lambda x: x**3 - jnp.abs(v[:2]) - 1, jnp.ones(2), lambda f, x: lax.fori_loop(
                    0, 30, lambda _, y: y - f(y) / (3 * y**2), x), lambda g, y: y / g(jnp.ones(2))),
            "cg": lambda a, i, v: jsp.sparse.linalg.cg(lambda x: 3 * x, v)[0],
            "barrier": lambda a, i, v: lax.optimization_barrier((a, i)),
        },
    ),
    "derivatives": (
        (A, S, X, K),
        {
            "tanh": lambda a, s, x, k: jax.grad(lambda a: jnp.tanh(a @ a.T).sum())(a),
            "softmax": lambda a, s, x, k: jax.grad(lambda a: (jax.nn.softmax(a) ** 2).sum())(a),
            "logsumexp": lambda a, s, x, k: jax.hessian(lambda v: jax.nn.logsumexp(v))(a[0]),
            "conv": lambda a, s, x, k: jax.grad(
                lambda x, k: (lax.conv_general_dilated(
                    x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2).sum(), (0, 1))(x, k),
            "max pool": lambda a, s, x, k: jax.grad(
                lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2).sum())(x),
            "avg pool": lambda a, s, x, k: jax.grad(
                lambda x: (lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum())(x),
            "solve": lambda a, s, x, k: jax.grad(lambda s: jnp.linalg.solve(s, a).sum())(s),
            "cholesky": lambda a, s, x, k: jax.grad(lambda s: jnp.linalg.cholesky(s @ s.T).sum())(s),
            "eigh": lambda a, s, x, k: jax.grad(lambda s: jnp.linalg.eigvalsh(s @ s.T)[0])(s),
            "svd": lambda a, s, x, k: jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False).sum())(a),
            "sort": lambda a, s, x, k: jax.grad(lambda a: (jnp.sort(a) * jnp.arange(5)).sum())(a),
            "scan": lambda a, s, x, k: jax.grad(
                lambda a: lax.scan(lambda c, r: (jnp.tanh(c + r), c), jnp.zeros(5), a)[0].sum())(a),
            "gather": lambda a, s, x, k: jax.grad(lambda a: a[jnp.array([0, 2, 2])].sum() * a[0, 0])(a),
            "cumprod": lambda a, s, x, k: jax.grad(lambda a: jnp.cumprod(a, 1).sum())(a),
            "prod": lambda a, s, x, k: jax.grad(lambda a: jnp.prod(a, 0).sum())(a),
            "lgamma": lambda a, s, x, k: jax.grad(lambda a: jax.lax.lgamma(jnp.abs(a) + 1).sum())(a),
            "jacfwd": lambda a, s, x, k: jax.jacfwd(lambda v: jnp.sin(v) * v.sum())(a[0]),
            "jacrev": lambda a, s, x, k: jax.jacrev(lambda v: jnp.sin(v) * v.sum())(a[0]),
            "vmap of grad": lambda a, s, x, k: jax.vmap(jax.grad(lambda v: (v**3).sum()))(a),
            "norm": lambda a, s, x, k: jax.grad(lambda a: jnp.linalg.norm(a))(a),
            "var": lambda a, s, x, k: jax.grad(lambda a: a.var())(a),
            "attention": lambda a, s, x, k: jax.grad(lambda x: jax.nn.dot_product_attention(x, x, x).sum())(x),
            "checkpoint": lambda a, s, x, k: jax.grad(
                lambda a: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(a).sum()
            )(a),
        },
    ),
}  # fmt: skip


def chunks(calls: Calls, size: int = 12) -> list[Calls]:
    items = list(calls.items())
    return [dict(items[i : i + size]) for i in range(0, len(items), size)]


CASES = [(name, i) for name, (_, calls) in FAMILIES.items() for i in range(len(chunks(calls)))]


@pytest.mark.parametrize(("family", "part"), CASES)
def test_family(family: str, part: int):
    args, calls = FAMILIES[family]
    chosen = chunks(calls)[part]

    def function(*xs: Any) -> Any:
        return {name: f(*xs) for name, f in chosen.items()}

    expected = jax.jit(function)(*args)
    got = from_jax(function)(*args)
    for name in chosen:
        ys, zs = (jax.tree_util.tree_leaves(tree[name]) for tree in (got, expected))
        assert len(ys) == len(zs), name
        for y, z in zip(ys, zs, strict=True):
            y, z = np.asarray(y.numpy()), np.asarray(z)
            assert y.dtype == z.dtype and y.shape == z.shape, name
            if z.dtype.kind in "biu":
                np.testing.assert_array_equal(y, z, name)
            else:
                scale = float(np.max(np.abs(z[np.isfinite(z)]), initial=1e-3))
                np.testing.assert_allclose(y, z, 2e-3 if family == "special" else 2e-4, 1e-4 * scale, err_msg=name)


def test_there_are_several_hundred_calls():
    assert sum(len(calls) for _, calls in FAMILIES.values()) > 300


def test_a_pure_callback_runs_with_jaxs_arrays_in_every_transform():
    def f(x):
        def host(v: Any) -> Any:
            assert isinstance(v, jax.Array)
            return np.sin(v)

        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims") * x

    g = from_jax(f)
    for found in (g(V), nx.jit(g)(V), nx.vmap(g)(V)):
        np.testing.assert_allclose(found, np.sin(V) * V, rtol=1e-6)


@pytest.mark.parametrize("derivative", ["nxjax", "jax"])
def test_a_callback_with_a_derivative_of_its_own_in_jax(derivative: str):
    def call(g, x):
        return jax.pure_callback(g, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    @jax.custom_jvp
    def sin(x):
        return call(np.sin, x)

    sin.defjvp(lambda xs, ts: (sin(*xs), call(np.cos, *xs) * ts[0]))
    if derivative == "jax":
        np.testing.assert_allclose(nx.grad(lambda x: from_jax(sin, derivative="jax")(x).sum())(V), np.cos(V), rtol=1e-6)
    else:
        found = from_jax(jax.grad(lambda x: sin(x).sum()))(V)
        np.testing.assert_allclose(found, np.cos(V), rtol=1e-6)


def test_ordered_callbacks_keep_their_order_in_loops_and_branches():
    seen: list[float] = []

    def f(x):
        def body(total, v):
            io_callback(lambda a: seen.append(float(a)), None, v, ordered=True)
            twice = io_callback(lambda a: 2 * a, jax.ShapeDtypeStruct((), v.dtype), v, ordered=True)
            return total + lax.cond(v > 1, lambda: twice, lambda: v), None

        return lax.scan(body, jnp.float32(0), x)[0]

    g = from_jax(f)
    for run in (g, nx.jit(g)):
        assert float(run(np.float32([1, 2, 3]))) == 11
        nx.effects_barrier()
        assert seen == [1, 2, 3]
        seen.clear()


@pytest.mark.parametrize("ordered", [False, True])
def test_prints_of_jax(ordered: bool, capfd: pytest.CaptureFixture[str]):
    def f(x):
        jax.debug.print("x {x}", x=x, ordered=ordered)
        jax.debug.callback(lambda v: print("y", v), x + 1, ordered=ordered)
        return x * x

    g = from_jax(f)
    assert float(nx.jit(g)(2.0)) == 4.0
    nx.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:2] == ["x 2.0", "y 3.0"]
    assert float(nx.grad(g)(2.0)) == 4.0
