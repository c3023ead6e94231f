"""The table that random programs are made from: what each line needs and how it is written, with JAX's public names.

A row is a template, or a function where a template cannot say it. Those that define inner functions are in
`nxjax.testing.productions_nested`. Knows nothing of how programs are grown, run or judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from nxjax.testing.generator import LARGE, MEDIUM, Draw, Row, Unfit, Var
from nxjax.testing.productions_nested import NESTED


class _Fields(Mapping[str, Any]):
    """What a template may name. The same letter is the same thing, wherever it stands.

    x: the first operand. s: another of its type. y: another of its dtype that it broadcasts with. a, b: axes of x.
    k: True or False. c: a float. n: a small integer. p: a permutation of the axes. e: axes, at least one. o: x's shape
    with ones at e. d: x's dtype. i: an array of integers. j: one integer. m: a mask that x broadcasts with.
    """

    def __init__(self, draw: Draw, kinds: str, rank: int, most: int) -> None:
        self._draw, self._known = draw, {"x": draw.pick(kinds, rank, most=most)}

    def __getitem__(self, key: str) -> Any:
        if key not in self._known:
            self._known[key] = self._make(key)
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _make(self, key: str) -> Any:
        draw, r = self._draw, self._draw.r
        x: Var = self._known["x"]
        match key:
            case "s":
                return draw.pick(x.kind, like=x)
            case "y":
                return draw.pick(x.kind, test=lambda v: v.dtype == x.dtype and joins(v, x))
            case "m":
                return draw.pick("b", test=lambda v: joins(v, x))
            case "i":
                return draw.pick("i", 1, most=MEDIUM)
            case "j":
                return draw.pick("iu", test=lambda v: v.ndim == 0)
            case "a" | "b":
                return draw.axis(x)
            case "k":
                return r.random() < 0.5
            case "c":
                return r.choice((0.1, 0.5, 0.7, 1.3, -0.3, 2.0))
            case "n":
                return r.choice((1, 2, 3, -1, -2))
            case "p":
                return tuple(r.sample(range(x.ndim), x.ndim))
            case "e":
                axes = tuple(sorted(r.sample(range(x.ndim), r.randint(1, x.ndim)))) if x.ndim else ()
                return axes if r.random() < 0.7 or len(axes) != 1 else axes[0]
            case "d":
                return x.jnp
            case _:
                raise KeyError(key)


def joins(x: Var, y: Var) -> bool:
    """Whether they broadcast to something that isn't too large."""
    try:
        return bool(np.prod(np.broadcast_shapes(x.shape, y.shape)) <= max(LARGE, x.size, y.size))
    except ValueError:
        return False


def _template(text: str, kinds: str, rank: int, most: int) -> Callable[[Draw], str]:
    return lambda draw: text.format_map(_Fields(draw, kinds, rank, most))


# feature -> flags, then kinds and rank of x, then templates. s: smooth; e: exact; a weight follows.
_TEMPLATES: Final[tuple[tuple[str, str, float, str, int, tuple[str, ...]], ...]] = (
    ("elementwise", "s", 0.5, "f", 0, (
        "jnp.sin({x})", "jnp.cos({x})", "jnp.tanh({x})", "jnp.exp(-{x} * {x})", "jax.nn.sigmoid({x})",
        "jnp.arctan({x})", "jnp.log({x} * {x} + {c} * {c})", "jnp.sqrt({x} * {x} + 1)", "lax.rsqrt({x} * {x} + 0.5)",
        "jnp.log1p(jnp.exp(jnp.tanh({x})))", "jnp.expm1(jnp.tanh({x}))", "jnp.tanh({x}) ** 3", "jnp.square(jnp.tanh({x}))",
        "lax.erf({x})", "lax.erf_inv(jnp.tanh({x}) * 0.9)", "jnp.arcsinh({x})", "jnp.arctanh(jnp.tanh({x}) * 0.5)",
        "jnp.reciprocal(1 + {x} * {x})", "jnp.sinh(jnp.tanh({x}))", "jnp.cosh(jnp.tanh({x}))", "jnp.sinc({x})",
        "jnp.logaddexp({x}, {s})", "jnp.hypot({x}, {s} + 2)", "jnp.arctan2({x}, {y} * {y} + 1)", "jnp.exp2(jnp.tanh({x}))",
        "jnp.power(jnp.tanh({x}) ** 2 + 0.5, {c})", "lax.integer_pow(jnp.tanh({x}), {n} % 5)", "-{x}", "jnp.cbrt({x} + 3)",
        "jnp.tanh({x} * 1e-3)", "jnp.log({x} * {x} + 1) * {c}", "lax.logistic({x} * {c})", "jnp.tan(jnp.tanh({x}))",
    )),
    ("special function", "s", 0.1, "f", 0, (
        "lax.lgamma({x} * {x} + 1)", "lax.digamma({x} * {x} + 1)", "lax.erfc({x})", "lax.bessel_i0e({x})",
        "lax.bessel_i1e({x})", "lax.igamma({c} * {c} + 0.5, {x} * {x} + 0.5)",
    )),
    ("activation", "s", 0.25, "f", 0, (
        "jax.nn.relu({x})", "jax.nn.gelu({x})", "jax.nn.gelu({x}, approximate=False)", "jax.nn.silu({x})",
        "jax.nn.softplus({x})", "jax.nn.log_sigmoid({x})", "jax.nn.elu({x})", "jax.nn.selu({x})", "jax.nn.celu({x}, 1.3)",
        "jax.nn.leaky_relu({x}, 0.2)", "jax.nn.relu6({x})", "jax.nn.soft_sign({x})", "jax.nn.squareplus({x})",
        "jax.nn.mish({x})", "jax.nn.hard_tanh({x})", "jax.nn.hard_sigmoid({x})", "jax.nn.hard_silu({x})",
        "jnp.abs({x})", "jnp.clip({x}, -1, {c})",
    )),
    ("binary", "s", 0.8, "f", 0, (
        "{x} + {y}", "{x} - {y}", "jnp.tanh({x}) * {y}", "jnp.maximum({x}, {y})", "jnp.minimum({x}, {y})",
        "{x} / (1.5 + jnp.tanh({y}))", "jnp.where({x} > {y}, {x}, {y} * {c})", "{x} * {c} + {y}", "{y} - {x} * {c}",
        "{x} * jnp.float32({c}).astype({d}) + {s}",
    )),
    ("rough", "", 0.12, "f", 0, (
        "jnp.sign({x})", "jnp.floor({x})", "jnp.ceil({x} + 0.137)", "jnp.round({x} * 3)", "jnp.trunc({x})",
        "jnp.mod({x}, 1.5 + jnp.tanh({y}))", "jnp.fmod({x}, 0.7)", "jnp.floor_divide({x}, jnp.abs({y}) + 0.6)",
        "jnp.nan_to_num({x})", "jnp.copysign({x}, {s})", "jnp.heaviside({x}, 0.5)", "lax.reduce_precision({x}, 5, 7)",
        "jnp.sqrt({x})", "jnp.log({x})", "{x} / {y}", "jnp.exp({x})", "{x} * {y}", "jnp.arccos({x})", "jnp.nextafter({x}, {s})",
        "lax.rsqrt({x})", "1 / {x}", "jnp.power(jnp.abs({x}), {y})", "jnp.isfinite({x})", "jnp.isnan({x})", "jnp.signbit({x})",
    )),
    ("reduction", "s", 0.8, "f", 1, (
        "{x}.sum({e}, keepdims={k})", "{x}.mean({e}, keepdims={k})", "jnp.max({x}, {e}, keepdims={k})",
        "{x}.min({a}, keepdims={k})", "jnp.var({x}, {e}, keepdims={k})", "jnp.sqrt(jnp.var({x}, {a}, keepdims={k}) + 0.5)",
        "jnp.tanh({x}).prod({a}, keepdims={k})", "({x} * {x}).sum({e}, keepdims={k}) * 0.1", "{x}.sum()", "{x}.mean()",
        "jnp.linalg.norm({x}, axis={a}, keepdims=True) + 0 * {x}", "jnp.sqrt(({x} * {x}).mean({e}, keepdims={k}) + 1e-3)",
        "{x}.mean({a}, keepdims=True) * jnp.ones_like({x})", "jax.nn.logmeanexp({x}, {a}, keepdims={k}) + 2",
        "jnp.average({x}, {a}, weights=jax.nn.softmax({s}, {a}))", "jnp.sum({x}, {a}, where={x} > 0)",
    )),
    ("rough reduction", "", 0.2, "f", 1, (
        "jnp.argmax({x}, {a})", "jnp.argmin({x}, {a}, keepdims={k})", "jnp.any({x} > {c}, {e})", "jnp.all({x} < 3, {e})",
        "jnp.count_nonzero({x} > 0, {a})", "jnp.ptp({x}, {a})", "jnp.median({x}, {a})", "jnp.nansum({x}, {a})",
        "jnp.quantile({x}, 0.3, {a})", "jnp.nanmax({x}, {a})", "jnp.std({x}, {a}, ddof=1)", "jnp.nanmean({x}, {a})",
    )),
    ("cumulative", "s", 0.35, "f", 1, (
        "jnp.cumsum({x}, {a})", "lax.cumsum({x}, {a} % {x}.ndim, reverse={k})", "jnp.cumprod(jnp.tanh({x}), {a})",
        "lax.cummax({x}, {a} % {x}.ndim, reverse={k})", "lax.cummin({x}, {a} % {x}.ndim, reverse={k})",
        "lax.cumlogsumexp({x}, {a} % {x}.ndim, reverse={k})", "lax.cumprod(jnp.tanh({x}), {a} % {x}.ndim, reverse={k})",
        "jnp.diff({x}, axis={a})", "jnp.diff({x}, axis={a}, prepend=0)",
    )),
    ("softmax", "s", 0.9, "f", 1, (
        "jax.nn.softmax({x}, {a})", "jax.nn.log_softmax({x}, {a})", "jax.nn.logsumexp({x}, {a}, keepdims={k})",
        "jax.nn.softmax({x} * 3, {e})", "jax.scipy.special.logsumexp({x}, {a}, b=jnp.abs({s}) + 0.1)",
        "jnp.exp({x} - {x}.max({a}, keepdims=True)) / jnp.exp({x} - {x}.max({a}, keepdims=True)).sum({a}, keepdims=True)",
        "jax.nn.softmax({x}, {a}, where=({s} > -0.5) | ({x} >= {x}.max({a}, keepdims=True)))",
    )),
    ("cross-entropy", "s", 0.5, "f", 1, (
        "-(jax.nn.log_softmax({x}, {a}) * jax.nn.softmax({s}, {a})).sum({a})",
        "-jnp.take_along_axis(jax.nn.log_softmax({x}, -1), jnp.zeros((*{x}.shape[:-1], 1), jnp.int32), -1).mean() if {x}.shape[-1] else {x}",
        "jnp.mean(jax.nn.softplus({x}) - {x} * jax.nn.sigmoid({s}))", "jnp.mean(({x} - {s}) ** 2, {e})",
        "jax.nn.logsumexp({x}, {a}) - jnp.mean({x}, {a})",
    )),
    ("normalization", "s", 0.9, "f", 1, (
        "jax.nn.standardize({x}, {a})", "jax.nn.standardize({x}, {e}, epsilon=1e-3)", "{x} - {x}.mean({e}, keepdims=True)",
        "({x} - {x}.mean(-1, keepdims=True)) * lax.rsqrt({x}.var(-1, keepdims=True) + 1e-3)",
        "({x} - {x}.mean({e}, keepdims=True)) / jnp.sqrt((({x} - {x}.mean({e}, keepdims=True)) ** 2)"
        ".mean({e}, keepdims=True) + 1e-2) * {c} + {y}",
        "{x} * lax.rsqrt(({x} * {x}).mean(-1, keepdims=True) + 1e-3)", "{x} / (1 + jnp.sqrt(({x} * {x}).sum({a}, keepdims=True) + 1e-3))",
        "jax.nn.standardize({x}, tuple(range({x}.ndim - 1)) or 0)", "{x} / (jnp.abs({x}).sum({e}, keepdims=True) + 1)",
        "({x} - {x}.min({a}, keepdims=True)) / ({x}.max({a}, keepdims=True) - {x}.min({a}, keepdims=True) + 0.1)",
        "jax.nn.standardize({x}.reshape((*{x}.shape[:-1], -1, 2) if {x}.shape[-1] % 2 == 0 and {x}.size else ({x}.size, 1)), (-1, -2))",
    )),
    ("move", "se", 0.5, "ficubq", 1, (
        "jnp.transpose({x}, {p})", "{x}.reshape(-1)", "jnp.flip({x}, {a})", "lax.rev({x}, ({a} % {x}.ndim,))", "{x}[::-1]", "{x}[..., ::-2]",
        "jnp.expand_dims({x}, {a})", "jnp.roll({x}, {n}, {a})", "jnp.moveaxis({x}, {a}, {b})", "jnp.swapaxes({x}, {a}, {b})",
        "{x}.T", "{x}[::2]", "{x}[1:]", "{x}[..., None]", "{x}[None]", "{x}[..., 1::3]", "{x}[:{n}]", "jnp.squeeze({x})",
        "{x}.reshape({x}.shape[::-1])", "lax.slice_in_dim({x}, 0, {x}.shape[{a}], 2, {a})", "jnp.array_split({x}, 2, {a})[1]",
        "jnp.copy({x})", "lax.optimization_barrier({x})", "jnp.ravel({x}, order='F')",
    )),
    ("pad", "se", 0.35, "fiub", 1, (
        "jnp.pad({x}, 1)", "jnp.pad({x}, 1, mode='edge' if 0 not in {x}.shape else 'constant')",
        "lax.pad({x}, jnp.zeros((), {d}), [({n} % 3, 1, {n} % 2)] + [(0, {n} % 2, 0)] * ({x}.ndim - 1))",
        "lax.pad({x}, jnp.ones((), {d}), [(0, 0, 0)] * ({x}.ndim - 1) + [(-({x}.shape[-1] > 1), 2, 1)])",
        "jnp.pad({x}, [(0, 1)] + [(0, 0)] * ({x}.ndim - 1), mode='wrap' if 0 not in {x}.shape else 'constant')",
        "jnp.tril({x}) if {x}.ndim > 1 else {x}[:1]", "jnp.triu({x}, {n}) if {x}.ndim > 1 else {x}[-1:]",
        "jnp.diag({x}) if {x}.ndim < 3 and {x}.size < 100 else {x}[0:1]",
    )),
    ("broadcast", "se", 0.4, "ficu", 0, (
        "jnp.broadcast_to({x}, (2, *{x}.shape))", "jnp.broadcast_to({x}[..., None], (*{x}.shape, 3))", "jnp.stack([{x}, {s}])",
        "jnp.stack([{x}, {s}], -1)", "jnp.concatenate([{x}.reshape(-1), {s}.reshape(-1)])", "jnp.tile({x}, 2)",
        "jnp.repeat({x}, 2, axis=0 if {x}.ndim else None)",
    )),
    ("concatenate", "se", 0.4, "ficub", 1, (
        "jnp.concatenate([{x}, {s}], {a})", "jnp.concatenate([{x}[:1], {s}, {x}[1:]])", "jnp.concatenate([{x}[..., 1:], {x}[..., :1]], -1)",
        "jnp.hstack([{x}, {s}, {x}])", "jnp.concatenate([{x}, jnp.zeros_like({s}), {x}], {a})",
    )),
    ("select", "se", 0.3, "ficub", 0, (
        "jnp.where({m}, {x}, {s})", "lax.select(jnp.broadcast_to(True, {x}.shape), {x}, {s})", "jnp.where({m}, {x}, jnp.zeros((), {d}))",
    )),
    ("compare", "", 0.25, "fiu", 0, (
        "{x} > {y}", "{x} == {y}", "{x} <= {y}", "{x} != {s}", "{x} < 1", "jnp.isclose({x}, {s})", "{x} >= {y}",
    )),
    ("logic", "e", 0.3, "b", 0, (
        "{x} & {y}", "{x} | {y}", "{x} ^ {y}", "~{x}", "jnp.logical_and({x}, {y})", "{x}.any()", "{x}.all()", "{x}.sum()", "{x}.astype(jnp.int32)",
        "jnp.where({x}, jnp.int32(3), jnp.int32(-1))", "jnp.where({x}, jnp.float32(0.5), jnp.float32(-1))",
    )),
    ("integer", "e", 0.35, "iu", 0, (
        "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} & {y}", "{x} | {s}", "{x} ^ {y}", "~{x}", "jnp.abs({x})", "jnp.maximum({x}, {y})",
        "jnp.minimum({x}, {y})", "{x} // ({y} | 1)", "{x} % ({y} | 1)", "lax.div({x}, {s} | 1)", "lax.rem({x}, {s} | 1)", "{x} << ({y} & 3)",
        "{x} >> ({y} & 3)", "lax.shift_right_logical({x}, {s} & 3)", "lax.population_count({x})", "lax.clz({x})", "jnp.sign({x})",
        "jnp.clip({x}, 1, 5)", "{x} + 1", "{x} * 3", "{x} == {y}", "{x} > {y}", "{x} <= 2", "lax.mulhi({x}, {s})", "jnp.gcd({x}, {s})",
        "-{x}", "{x} ** 2", "jnp.bitwise_count({x})", "jnp.invert({x})", "jnp.where({x} > {s}, {x}, {s})",
    )),
    ("integer reduction", "e", 0.4, "iu", 1, (
        "{x}.sum({e}, keepdims={k})", "{x}.max({a}, keepdims={k})", "{x}.min({e})", "{x}.prod({a})", "jnp.cumsum({x}, {a})",
        "jnp.sort({x}, {a})", "jnp.argsort({x}, {a})", "jnp.argmax({x}, {a})", "jnp.argmin({x}, {a})", "lax.cummax({x}, {a} % {x}.ndim)",
        "lax.reduce_xor({x}, ({a} % {x}.ndim,))", "lax.reduce_and({x}, ({a} % {x}.ndim,))", "jnp.any({x}, {a})", "jnp.count_nonzero({x}, {a})",
        "jnp.bincount(jnp.abs({x}.reshape(-1).astype(jnp.int32)) % 7, length=8)", "jnp.cumprod({x}, {a})",
    )),
    ("sort", "s", 0.4, "f", 1, (
        "jnp.sort({x}, {a})", "jnp.sort({x}, {a}, descending=True)", "lax.sort((jnp.sin({x}), {s}), dimension={a} % {x}.ndim, num_keys=1)[1]",
        "lax.top_k({x}, min(2, {x}.shape[-1]))[0]", "jnp.sort({x}, {a})[..., :2]", "jnp.take_along_axis({x}, jnp.argsort({s}, {a}), {a})",
        "lax.sort((jnp.broadcast_to(jnp.arange({x}.shape[-1]) % 2, {x}.shape), jnp.sin({x}), {s}), dimension={x}.ndim - 1, num_keys=2)[2]",
    )),
    ("sort", "", 0.3, "f", 1, (
        "jnp.argsort({x}, {a})", "lax.top_k({x}, {x}.shape[-1] // 2)", "jnp.searchsorted(jnp.sort({x}.reshape(-1)), {s}.reshape(-1))",
        "jnp.argsort({x}, {a}, descending=True, stable=True)", "lax.sort(({x}, {s}), dimension=0, num_keys=2)[1]",
        "jnp.digitize({x}, jnp.array([-1.0, 0.0, 0.5], {d}))", "jnp.histogram({x}.astype(jnp.float32), 5, (-2.0, 2.0))[0]",
    )),
    ("complex", "s", 0.5, "c", 0, (
        "{x} + {y}", "{x} * {y}", "{x} - {s}", "jnp.conj({x})", "{x} / (2 + {x} * jnp.conj({x}))", "jnp.exp(1j * jnp.real({x}))", "jnp.tanh(jnp.real({x})) * {x}",
        "-{x}", "jnp.real({x})", "jnp.imag({x})", "{x} * (0.5 - 1j)", "jnp.sum({x})", "jnp.real({x} * jnp.conj({x}))",
    )),
    ("complex", "", 0.3, "c", 0, (
        "jnp.abs({x})", "jnp.angle({x} + 0.5j)", "jnp.sqrt({x} + 0.5j)", "jnp.log({x} + 0.5j)", "{x} == {s}", "jnp.isfinite({x})", "jnp.sin({x})", "jnp.tanh({x})",
    )),
    ("complex", "s", 0.15, "f", 0, ("lax.complex({x}.astype(jnp.float32), {s}.astype(jnp.float32))",)),
    ("fft", "s", 0.3, "f", 1, (
        "jnp.fft.fft({x}.astype(jnp.float32)) if {x}.shape[-1] else {x}", "jnp.fft.rfft({x}.astype(jnp.float32), 8)",
        "jnp.fft.irfft({x}.astype(jnp.complex64), 6)", "jnp.abs(jnp.fft.fft({x}.astype(jnp.float32), 5)) ** 2", "jnp.fft.fftshift({x})",
    )),
    ("convert", "s", 0.4, "f", 0, (
        "{x}.astype(jnp.float32)", "{x}.astype(jnp.bfloat16)", "{x}.astype(jnp.float16)", "lax.convert_element_type({x}, jnp.float32)",
    )),
    ("convert", "", 0.3, "f", 0, (
        "jnp.clip({x}, -50, 50).astype(jnp.int32)", "jnp.clip({x}, 0, 99).astype(jnp.uint8)", "({x} * 8).clip(-100, 100).astype(jnp.int8)",
        "({x} > 0).astype(jnp.int32)", "jnp.clip({x}, -9, 9).astype(jnp.float8_e4m3fn).astype({d})", "{x}.astype(bool)",
        "jnp.clip({x}, -9, 9).astype(jnp.float8_e5m2).astype(jnp.float32)", "jnp.round({x}.clip(-7, 7)).astype(jnp.int4).astype(jnp.int32)",
    )),
    ("convert", "e", 0.5, "iub", 0, (
        "{x}.astype(jnp.int32)", "{x}.astype(jnp.int8)", "{x}.astype(jnp.uint8)", "{x}.astype(jnp.uint32)", "{x}.astype(jnp.int16)",
        "{x}.astype(bool)", "({x} & 7).astype(jnp.int4).astype(jnp.int8) if {x}.dtype != bool else {x}",
    )),
    ("convert", "s", 0.5, "iub", 0, (
        "jnp.tanh({x}.astype(jnp.float32) * 0.05)", "{x}.astype(jnp.float32)", "{x}.astype(jnp.bfloat16) * 0.1", "{x} * jnp.float32(0.25)", "{x}.astype(jnp.float32).mean()",
    )),
    ("convert", "s", 2.0, "q", 0, ("{x}.astype(jnp.float32)", "{x}.astype(jnp.bfloat16) * 0.5")),
    ("convert", "", 0.5, "q", 0, ("{x}.astype(jnp.int32)", "{x}.astype(jnp.int8)")),
    ("bitcast", "e", 0.15, "iu", 1, (
        "lax.bitcast_convert_type({x}.astype(jnp.uint32), jnp.int32)", "lax.bitcast_convert_type({x}.astype(jnp.int32), jnp.uint8)",
        "lax.bitcast_convert_type({x}.astype(jnp.int16), jnp.uint16)",
    )),
    ("linalg", "s", 0.15, "f", 2, (
        "jnp.linalg.cholesky(jnp.tanh({x}[..., :3, :]) @ jnp.tanh({x}[..., :3, :]).mT + 2 * jnp.eye(min(3, {x}.shape[-2]), dtype={d}))",
        "jnp.linalg.solve(jnp.eye(min(4, {x}.shape[-2]), dtype=jnp.float32) * 9 + (jnp.tanh({x}[..., :4, :]) @ jnp.tanh({x}[..., :4, :]).mT)"
        ".astype(jnp.float32) / ({x}.shape[-1] + 1), {x}[..., :4, :].astype(jnp.float32))",
        "jnp.linalg.inv(jnp.eye(min(3, {x}.shape[-2]), dtype=jnp.float32) * 5 + (jnp.tanh({x}[..., :3, :]) @ jnp.tanh({x}[..., :3, :]).mT)"
        ".astype(jnp.float32) / ({x}.shape[-1] + 1))",
        "jnp.linalg.slogdet(jnp.eye(min(3, {x}.shape[-2]), dtype=jnp.float32) * 5 + (jnp.tanh({x}[..., :3, :]) @ jnp.tanh({x}[..., :3, :]).mT)"
        ".astype(jnp.float32) / ({x}.shape[-1] + 1))[1]",
        "lax.linalg.triangular_solve(jnp.eye(min(4, {x}.shape[-2]), dtype=jnp.float32) * 4 + jnp.tril(jnp.tanh({x}[..., :4, :]) @ jnp.tanh({x}[..., :4, :]).mT)"
        ".astype(jnp.float32) / ({x}.shape[-1] + 1), {x}[..., :4, :].astype(jnp.float32), left_side=True, lower=True)",
    )),
    ("linalg", "", 0.1, "f", 2, (
        "jnp.linalg.eigvalsh((jnp.tanh({x}[..., :3, :]) @ jnp.tanh({x}[..., :3, :]).mT).astype(jnp.float32))",
        "jnp.linalg.svd({x}[..., :4, :4].astype(jnp.float32), compute_uv=False) if {x}.size else {x}",
        "jnp.abs(jnp.linalg.qr({x}[..., :4, :3].astype(jnp.float32), mode='r')) if {x}.size else {x}",
    )),
    ("random", "s", 0.1, "f", 0, (
        "{x} + jax.random.normal(jax.random.key({n} + 5), {x}.shape, 'float32').astype({d})",
        "{x} * jax.random.uniform(jax.random.fold_in(jax.random.key(3), {n} + 9), {x}.shape, 'float32').astype({d})",
        "jnp.where(jax.random.bernoulli(jax.random.key({n} + 7), 0.5, {x}.shape), {x} * 2, 0).astype({d})",
    )),
    ("random", "e", 0.15, "iu", 0, (
        "jax.random.bits(jax.random.key({n} + 5), {x}.shape, 'uint32')", "jax.random.randint(jax.random.key({n} + 5), {x}.shape, -3, 9, 'int32')",
        "jax.random.permutation(jax.random.key({n} + 5), {x}.reshape(-1))", "jax.random.key_data(jax.random.split(jax.random.key({n} + 9), 3))",
    )),
    ("matmul", "s", 0.6, "f", 2, (
        "jnp.tanh({x}) @ jnp.swapaxes({x}, -1, -2) / ({x}.shape[-1] + 1)", "jnp.einsum('...ij,...kj->...ik', jnp.tanh({x}), {s}) / ({x}.shape[-1] + 1)",
        "jnp.swapaxes({x}, -1, -2) @ jnp.tanh({s}) / ({x}.shape[-2] + 1)", "jnp.einsum('...ij,...ij->...j', {x}, {s})",
        "lax.dot_general({x}, jnp.tanh({s}), ((({x}.ndim - 1,), ({x}.ndim - 1,)), (tuple(range({x}.ndim - 2)),) * 2)) / ({x}.shape[-1] + 1)",
        "jnp.matmul(jnp.tanh({x}), {s}.mT, preferred_element_type=jnp.float32)", "jnp.einsum('...ij->...', {x})",
        "jnp.tensordot(jnp.tanh({x}[..., :5, :]), {s}[..., :5, :], (({x}.ndim - 1,), ({x}.ndim - 1,))) if {x}.size < 200 else {x}",
    )),
    ("matmul", "s", 0.3, "f", 1, (
        "jnp.dot({x}, {s}.reshape(-1, {s}.shape[-1])[-1]) if {x}.size else {x}", "jnp.vdot({x}, jnp.tanh({s}))", "jnp.outer({x}[:5], {s}[:4]) if {x}.size < 400 else {x}",
        "jnp.convolve({x}.reshape(-1)[:40], {s}.reshape(-1)[:3], mode='same') if {x}.size else {x}", "jnp.inner({x}, jnp.tanh({s})) if {x}.size < 200 else {x}",
    )),
    ("matmul", "e", 0.3, "iu", 2, (
        "{x} @ {s}.mT", "lax.dot_general({x}.astype(jnp.int8), {s}.astype(jnp.int8), ((({x}.ndim - 1,), ({x}.ndim - 1,)), (tuple(range({x}.ndim - 2)),) * 2), preferred_element_type=jnp.int32)",
        "jnp.einsum('...ij,...ij->...i', {x}, {s})",
    )),
    ("gather", "se", 0.6, "ficub", 1, (
        "jnp.take({x}, jnp.array([0, -1, 0, {n}]), axis={a}, mode='wrap') if {x}.size else {x}", "jnp.take({x}, {i}.reshape(-1)[:5], axis={a}, mode='clip') if {x}.size else {x}",
        "{x}[{i}.reshape(-1)[:7] % max(1, {x}.shape[0])] if {x}.size else {x}", "{x}[jnp.array([0, 0, -1])] if {x}.size else {x}", "{x}[0] if {x}.shape[0] else {x}",
        "{x}.at[{i}.reshape(-1)[:6]].get(mode='fill', fill_value=0)", "{x}.at[..., jnp.array([{n}, 99, -99])].get(mode='clip') if {x}.size else {x}",
        "lax.dynamic_slice_in_dim({x}, {i}.reshape(-1)[:1].sum(), max(0, {x}.shape[{a}] // 2), {a})", "lax.dynamic_index_in_dim({x}, {i}.sum(), {a}, keepdims={k}) if {x}.size else {x}",
        "jnp.take_along_axis({x}, jnp.zeros_like({x}, dtype=jnp.int32), {a}) if {x}.size else {x}", "{x}[..., 0] if {x}.shape[-1] else {x}",
        "lax.dynamic_slice({x}, [jnp.int32({n})] * {x}.ndim, [max(0, n - 1) for n in {x}.shape])", "{x}.at[({x}.shape[0] + {n},)].get(mode='fill', fill_value=1)",
    )),
    ("scatter", "se", 0.5, "ficub", 1, (
        "{x}.at[0].set({s}[-1]) if {x}.shape[0] else {x}", "{x}.at[::2].set({s}[::2])", "{x}.at[..., -1].set({s}[..., 0]) if {x}.shape[-1] else {x}",
        "lax.dynamic_update_slice_in_dim({x}, {s}[: {s}.shape[0] // 2], {i}.reshape(-1)[:1].sum(), 0)", "{x}.at[1:].set({s}[:-1])",
        "lax.dynamic_update_slice({x}, {s}[:1], [jnp.int32({n})] * {x}.ndim)", "lax.dynamic_update_index_in_dim({x}, {s}[0], {n}, 0) if {x}.shape[0] else {x}",
        "{x}.at[jnp.array([1, -2, 50])].set({s}[:1], mode='drop') if {x}.shape[0] else {x}", "{x}.at[jnp.array([{n}, 70, -70])].set(jnp.ones((), {d}), mode='clip') if {x}.shape[0] else {x}",
        "jnp.put_along_axis({x}, jnp.zeros_like({x}, dtype=jnp.int32)[:1], {s}[:1], 0, inplace=False) if {x}.size else {x}",
    )),
    ("scatter", "se", 0.7, "ficub", 1, (
        "{x}.at[{j}].set({s}[0]) if {x}.shape[0] else {x}", "{x}.at[..., {j}].set({s}[..., -1]) if {x}.shape[-1] else {x}",
        "lax.dynamic_update_slice_in_dim({x}, {s}[:1], {j}, 0)", "lax.dynamic_update_index_in_dim({x}, {x}[-1], {j}, 0) if {x}.shape[0] else {x}",
        "lax.dynamic_update_slice({x}, {x}[: {x}.shape[0] // 2], [{j}] + [0 * {j}] * ({x}.ndim - 1))", "lax.dynamic_index_in_dim({x}, {j}, 0, keepdims=False) if {x}.shape[0] else {x}",
        "{x}[{j}] if {x}.shape[0] else {x}", "lax.dynamic_slice_in_dim({x}, {j}, {x}.shape[0] // 2, 0)", "{x}.at[{j}].set({x}[0]) if {x}.shape[0] else {x}",
    )),
    ("scatter", "s", 0.6, "fiu", 1, (
        "{x}.at[{j}].add({s}[-1]) if {x}.shape[0] else {x}", "{x}.at[{j}].max({s}[0]) if {x}.shape[0] else {x}",
    )),
    ("scatter", "s", 0.6, "f", 1, (
        "{x}.at[{i}.reshape(-1)[:5]].add({c})", "{x}.at[jnp.array([0, 0, -1])].add({s}[:1]) if {x}.shape[0] else {x}", "{x}.at[jnp.array([0, 2, 0])].mul({c}) if {x}.shape[0] else {x}",
        "{x}.at[{i}.reshape(-1)[:5]].max({c}, mode='drop')", "{x}.at[..., {i}.reshape(-1)[:4]].min({c})", "{x}.at[{i}.reshape(-1)[:5]].add({c}, mode='clip') if {x}.shape[0] else {x}",
        "jnp.zeros_like({x}).at[{i}.reshape(-1)[:9] % max(1, {x}.shape[0])].add({x}[:1]) if {x}.shape[0] else {x}", "{x}.at[0].multiply({s}[-1]) if {x}.shape[0] else {x}",
        "jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) // 2, 4)", "{x}.at[::2].add({s}[::2])", "{x}.at[0].apply(jnp.tanh) if {x}.shape[0] else {x}",
        "jax.ops.segment_max({x}, jnp.arange({x}.shape[0]) % 2, 2) if {x}.shape[0] > 1 else {x}",
    )),
    ("scatter", "e", 0.5, "iu", 1, (
        "{x}.at[{i}.reshape(-1)[:5]].add({s}[:1]) if {x}.shape[0] else {x}", "{x}.at[jnp.array([0, 0, -1])].mul({s}[:1]) if {x}.shape[0] else {x}", "{x}.at[{i}.reshape(-1)[:5]].max(3)",
        "{x}.at[{i}.reshape(-1)[:5]].min(1, mode='drop')", "{x}.at[jnp.array([0, 9, -9])].add(1, mode='drop')", "jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) // 2, 3)",
        "jnp.zeros((7,), jnp.int32).at[jnp.abs({x}.reshape(-1).astype(jnp.int32)) % 9].add(1)",
    )),
    ("pool", "s", 0.3, "f", 2, (
        "lax.reduce_window({x}, -jnp.inf, lax.max, (1,) * ({x}.ndim - 1) + (2,), (1,) * ({x}.ndim - 1) + (2,), 'SAME')",
        "lax.reduce_window({x}, 0.0, lax.add, (1,) * ({x}.ndim - 2) + (3, 2), (1,) * {x}.ndim, 'SAME')",
        "lax.reduce_window({x}, 0.0, lax.add, (1,) * ({x}.ndim - 1) + (2,), (1,) * {x}.ndim, 'VALID', window_dilation=(1,) * ({x}.ndim - 1) + (2,))",
    )),
)  # fmt: skip


def _conv(draw: Draw) -> str:
    """A convolution in one or two dimensions, with steps, dilation, groups and padding."""
    r = draw.r
    x = draw.pick("f", 1, most=MEDIUM, test=lambda v: v.size > 0)
    space = r.choice((1, 2))
    shape, (batch, channels) = x.shape, r.choice(((1, 1), (1, 2), (2, 1), (2, 4)))
    rest = x.size // (batch * channels)
    if space == 2:
        width = next(d for d in (shape[-1], 3, 2, 1) if d and rest % d == 0)
        size: tuple[int, ...] = (rest // width, width)
    else:
        size = (rest,)
    if batch * channels * rest != x.size or not rest or max(size) > 400:
        raise Unfit
    groups = r.choice((1, channels))
    out = groups * r.choice((1, 2, 3))
    window = tuple(r.choice((1, 2, 3)) for _ in range(space))
    kernel = (out, channels // groups, *window)
    names = ("NCH", "OIH", "NCH") if space == 1 else ("NCHW", "OIHW", "NCHW")
    options = [f"dimension_numbers={names}"]
    options += [f"feature_group_count={groups}"] if groups > 1 else []
    options += [f"rhs_dilation={tuple(r.choice((1, 2)) for _ in range(space))}"] if r.random() < 0.2 else []
    dilated = r.random() < 0.2
    options += [f"lhs_dilation={tuple(r.choice((1, 2)) for _ in range(space))}"] if dilated else []
    strides = tuple(r.choice((1, 1, 2)) for _ in range(space))
    count = int(np.prod(kernel))
    weights = f"jnp.sin(jnp.arange({count})).reshape({kernel}).astype({x.jnp})"
    padding = "'SAME'" if r.random() < 0.6 and not dilated else f"[(1, 2)] * {space}"
    options = ", ".join(options)
    return (
        f"lax.conv_general_dilated({x}.reshape({(batch, channels, *size)}), {weights}, {strides}, {padding}, {options})"
    )


def _attention(draw: Draw) -> str:
    """Attention of sequences to one another; JAX computes that of float64 in float32."""
    x = draw.pick("f", 2, most=MEDIUM, test=lambda v: v.size > 0 and v.ndim < 5 and v.dtype != np.float64)
    y = draw.pick("f", like=x)
    more = draw.r.choice(("", ", is_causal=True", ", scale=0.5"))
    shape = "[..., None, :]" if x.ndim < 4 else ""
    return f"jax.nn.dot_product_attention({x}{shape}, {y}{shape}, {x}{shape}{more})"


# Differentiable functions, each where it is smooth and moderate: u is between -1 and 1.
_FUNCTIONS: Final = (
    "jnp.abs({x})", "jnp.exp({u})", "jnp.exp2({u})", "jnp.expm1({u})", "jnp.log({u} * {u} + 0.5)", "jnp.log1p({u} * {u})",
    "jnp.sin({x})", "jnp.cos({x})", "jnp.tan({u})", "jnp.arcsin({u} * 0.9)", "jnp.arccos({u} * 0.9)", "jnp.arctan({x})",
    "jnp.arctan2({x}, {u} + 2)", "jnp.arctan2({u} + 2, {x})", "jnp.sinh({u})", "jnp.cosh({u})", "jnp.tanh({x})", "jnp.sinc({x})",
    "jnp.arcsinh({x})", "jnp.arccosh({u} * {u} + 1.5)", "jnp.arctanh({u} * 0.9)", "jnp.sqrt({u} + 1.5)", "lax.rsqrt({u} + 1.5)",
    "jnp.cbrt({u} + 2)", "jnp.square({u})", "lax.integer_pow({u}, 3)", "({u} + 1.5) ** 2.5", "jnp.power({u} + 1.5, {u})",
    "lax.rem({x}, {u} + 2)", "jnp.maximum({x}, {u})", "jnp.minimum({x}, {u})", "{x} / ({u} + 2)", "jnp.logaddexp({x}, {u})",
    "lax.logistic({x})", "jax.nn.relu({x})", "jax.nn.relu6({x})", "jax.nn.leaky_relu({x})", "jax.nn.silu({x})", "jax.nn.elu({x})",
    "jax.nn.hard_silu({x})", "jax.nn.softplus({x})", "jax.nn.gelu({x})", "jax.nn.gelu({x}, approximate=False)",
    "lax.erf({x})", "lax.erfc({x})", "lax.erf_inv({u} * 0.9)", "lax.lgamma({u} + 1.5)", "lax.digamma({u} + 1.5)",
    "lax.polygamma(jnp.ones_like({x}), {u} + 1.5)", "lax.bessel_i0e({x})", "lax.bessel_i1e({x})",
    "lax.igamma(jnp.full_like({x}, 1.5), {u} + 1.5)", "lax.igammac(jnp.full_like({x}, 1.5), {u} + 1.5)",
    "lax.betainc(jnp.full_like({x}, 1.5), jnp.full_like({x}, 2.5), {u} * 0.4 + 0.5)",
    "jax.scipy.special.gammainc(1.5, {u} + 1.5)", "jax.scipy.special.gammaincc(1.5, {u} + 1.5)",
    "jax.scipy.special.betainc(1.5, 2.5, {u} * 0.4 + 0.5)",
)  # fmt: skip


def _functions(draw: Draw) -> str:
    """A sum of differentiable functions: each has to be drawn often enough that its slope is judged."""
    x = draw.pick("f", most=MEDIUM)
    names = {"x": str(x), "u": f"jnp.tanh({x})"}
    return " + ".join(f"({text.format(**names)}).astype({x.jnp})" for text in draw.r.sample(_FUNCTIONS, 5))


def _take(draw: Draw) -> str:
    """A gather with indices that repeat, count from the end, and lie outside, in every mode."""
    r = draw.r
    x = draw.pick("ficub", 1, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    n = x.shape[axis]
    indices = [r.choice((0, n - 1, -1, -n, n // 2, n, -n - 1, n + 5)) for _ in range(r.randint(1, 5))]
    mode = r.choice(
        ("'fill'", "'clip'", "'wrap'", "'fill', fill_value=True" if x.kind == "b" else "'fill', fill_value=3")
    )
    return f"jnp.take({x}, jnp.array({indices}), axis={axis}, mode={mode})"


def _along(draw: Draw) -> str:
    """A gather of one place or a few of each row, the rows lying in any order."""
    r = draw.r
    x = draw.pick("ficub", 1, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    n, count = x.shape[axis], r.choice((1, 1, 2, 3))
    shape = (*x.shape[: axis % x.ndim], count, *x.shape[axis % x.ndim + 1 :])
    size = int(np.prod(shape))
    inside = r.random() < 0.5
    index = f"(jnp.arange({size}) * {r.choice((3, 5, 7))} {'' if inside else f'- {n} '}).reshape({shape})"
    index = f"{index} % {n if inside else 2 * n + 1}"
    if r.random() < 0.3 and count == 1 and inside:
        rows = f"jnp.moveaxis({x}, {axis}, -1).reshape(-1, {n})"
        return f"jax.vmap(lambda a, b: a[b])({rows}, jnp.moveaxis({index}, {axis}, -1).reshape(-1))"
    mode = r.choice(("", ", mode='clip'", ", mode='fill'"))
    return f"jnp.take_along_axis({x}, {index}, {axis}{mode})"


def _at(draw: Draw) -> str:
    """An update at several places at once, some of them equal or outside."""
    r = draw.r
    x = draw.pick("fiu", 2, test=lambda v: v.size > 0)
    rows, columns = ([r.choice((0, n - 1, -1, n // 2, n, -n, n + 3)) for _ in range(4)] for n in x.shape[:2])
    how = r.choice(("add", "add", "min", "max", "mul"))
    mode = r.choice(("", ", mode='drop'", ", mode='clip'"))
    amount = f"jnp.asarray({r.choice((2, 3))}, {x.jnp})"
    return f"{x}.at[jnp.array({rows}), jnp.array({columns})].{how}({amount}{mode})"


def _fit(draw: Draw) -> str:
    """A value of the type of the first operand that depends on the second."""
    x, y = draw.pick("fiucb", huge=True), draw.pick("fiucb", huge=True)
    if x.kind == "b":
        return f"{x} ^ ({y} != 0).any()"
    part = f"jnp.real({y})" if y.kind == "c" else str(y)
    if x.kind in "fc":
        return f"{x} * 0.5 + jnp.tanh({part}.astype(jnp.float32).sum()).astype({x.jnp})"
    return f"{x} + jnp.clip({part}.sum(), 0, 3).astype({x.jnp})"


def _table() -> tuple[Row, ...]:
    rows = [
        Row(
            _template(text, kinds, rank, MEDIUM if feature in _GROWS else LARGE),
            feature,
            "s" in flags,
            "e" in flags,
            weight,
        )
        for feature, flags, weight, kinds, rank, texts in _TEMPLATES
        for text in texts
    ]
    rows += [
        Row(_conv, "convolution", smooth=True, weight=2),
        Row(_attention, "attention", smooth=True, weight=1),
        Row(_functions, "functions", smooth=True, weight=10),
        Row(_take, "gather", smooth=True, exact=True, weight=3),
        Row(_along, "gather", smooth=True, exact=True, weight=3),
        Row(_at, "scatter", smooth=True, weight=3),
        # Written where an inner function must give a type that it has not.
        Row(_fit, "fit", smooth=True, weight=0),
    ]
    return (*rows, *NESTED)


_GROWS: Final = ("broadcast", "concatenate", "pad", "matmul", "linalg", "scatter")
ROWS: Final = _table()
