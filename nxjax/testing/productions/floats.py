"""Rows of floats: functions, conversions, floats of 8 bits, and numbers of several types."""

from __future__ import annotations

from typing import Final

from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import Production
from nxjax.testing.writer import MEDIUM, Draw

_TABLE: Final[Table] = (
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
        "lax.lgamma({x} * {x} + 1)", "lax.zeta(jnp.tanh({x}) + 2.5, jnp.full_like({x}, 1.5))", "lax.digamma({x} * {x} + 1)", "lax.erfc({x})", "lax.bessel_i0e({x})",
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
        "lax.rsqrt({x})", "1 / {x}", "jnp.power(jnp.abs({x}), {y})", "jnp.isfinite({x})", "jnp.isnan({x})", "jnp.signbit(jnp.where({x} == {x}, {x}, 1))",
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
    ("functions of lax", "s", 0.1, "fn", 0, tuple(f"lax.{name}(jnp.tanh({{x}}) * 0.9)" for name in (
        "sin", "cos", "tan", "tanh", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "exp", "exp2", "expm1", "log1p",
        "erf", "erfc", "erf_inv", "logistic", "square", "neg", "abs",
    ))),
    ("functions of lax", "s", 0.1, "fn", 0, tuple(f"lax.{name}(jnp.tanh({{x}}) + 1.6)" for name in (
        "log", "sqrt", "rsqrt", "cbrt", "reciprocal", "lgamma", "digamma",
    ))),
    ("functions of lax", "s", 0.1, "f", 0, (
        "lax.acosh(jnp.tanh({x}) + 2.5)", "lax.add({x}, {s})", "lax.sub({x}, {s})", "lax.mul(jnp.tanh({x}), {s})", "lax.div({x}, jnp.tanh({s}) + 2)",
        "lax.max({x}, {s})", "lax.min({x}, {s})", "lax.pow(jnp.tanh({x}) + 1.6, {s})", "lax.pow(jnp.tanh({x}) + 1.6, 3)", "lax.atan2({x}, jnp.tanh({s}) + 2)",
        "lax.clamp(jnp.asarray(-0.5, {d}), {x}, jnp.asarray(1, {d}))", "lax.clamp(-jnp.abs({x}) - 0.1, {s}, jnp.abs({x}) + 1)",
    )),
    ("functions of lax", "", 0.05, "f", 0, (
        "lax.ge({x}, {s})", "lax.gt({x}, {s})", "lax.le({x}, {s})", "lax.lt({x}, {s})", "lax.eq({x}, {s})", "lax.ne({x}, {s})", "lax.is_finite({x})",
    )),
    ("own rule", "", 0.05, "f", 0, ("lax.composite(lambda a: a > 1, name='my.test')({x})",)),
    ("rough", "", 0.05, "f", 0, (
        "lax.floor({x})", "lax.ceil({x})", "lax.round({x}, lax.RoundingMethod.TO_NEAREST_EVEN)", "lax.round({x})", "lax.sign({x})", "lax.nextafter({x}, {s})",
        "lax.rem({x}, {s})", "jnp.remainder({x}, {s})", "jnp.rint({x} * 3)", "jnp.around({x}, 1)", "jnp.modf({x})", "jnp.frexp({x})",
        "jnp.divmod({x}, 0.7)", "jnp.spacing({x})", "jnp.isinf({x})", "jnp.isneginf({x})", "jnp.isposinf({x})", "jnp.ldexp({x}, {n})", "jnp.i0({x})",
        "jnp.unwrap({x})  if {x}.ndim else {x}", "jnp.allclose({x}, {s})", "jnp.array_equal({x}, {s})", "jnp.array_equiv({x}, {s})",
        "jnp.iscomplex({x})", "jnp.isreal({x})", "jnp.fmod({x}, {s})", "lax.integer_pow({x}, {n} * 3)", "jnp.float_power({x}, {n})",
    )),
    ("functions of jnp", "s", 0.08, "f", 0, (
        "jnp.log2({x} * {x} + 0.5)", "jnp.log10({x} * {x} + 0.5)", "jnp.logaddexp2({x}, {s})", "jnp.float_power(jnp.tanh({x}) + 1.5, {c})",
        "jnp.deg2rad({x} * 50)", "jnp.rad2deg({x})", "jnp.degrees({x})", "jnp.radians({x} * 50)", "jnp.positive({x})", "jnp.negative({x})", "jnp.absolute({x})",
        "jnp.fabs({x})", "jnp.add({x}, {y})", "jnp.subtract({x}, {y})", "jnp.multiply(jnp.tanh({x}), {y})", "jnp.divide({x}, jnp.tanh({y}) + 2)",
        "jnp.true_divide({x}, {c})", "jnp.fmax({x}, {y})", "jnp.fmin({x}, {y})", "jnp.pow(jnp.tanh({x}) + 1.5, {y})", "jnp.acos(jnp.tanh({x}) * 0.9)",
        "jnp.acosh(jnp.tanh({x}) + 2.5)", "jnp.asin(jnp.tanh({x}) * 0.9)", "jnp.asinh({x})", "jnp.atan({x})", "jnp.atan2({x}, {x} * {x} + 1)",
        "jnp.atanh(jnp.tanh({x}) * 0.9)", "jnp.conjugate({x})", "jnp.real({x})", "jnp.imag({x})", "jnp.arcsin(jnp.tanh({x}) * 0.9)",
        "jnp.arccosh(jnp.tanh({x}) + 2.5)", "jnp.where({x} > 0, jnp.sqrt(jnp.where({x} > 0, {x}, 1)), 0)", "jnp.where({x} > 0, jnp.log({x}), 0)",
        "jnp.where({x} != 0, jnp.sin({x}) / {x}, 1)", "jnp.piecewise({x}, [{x} < 0, {x} > 1], [lambda a: a * 0.1, jnp.tanh, lambda a: a])",
        "jnp.select([{x} > 1, {x} > 0], [{x}, {s}], {c})", "jnp.interp({x}, jnp.array([-1.0, 0.0, 2.0]), jnp.array([1.0, 3.0, -2.0]))", "jnp.vectorize(lambda a: jnp.sin(a) * 2)({x})",
        "jnp.polyval(jnp.array([0.5, -1.0, 2.0], {d}), {x} * 0.5)", "jnp.choose(jnp.where({x} > 0, 1, 0), [{x}, {s}], mode='clip')",
    )),
    ("special function", "s", 0.04, "f", 0, tuple(f"jax.scipy.special.{text}" for text in (
        "erf({x})", "erfc({x})", "erfinv(jnp.tanh({x}) * 0.9)", "expit({x})", "logit(jnp.tanh({x}) * 0.4 + 0.5)", "gammaln({x} * {x} + 1)",
        "digamma({x} * {x} + 1)", "gamma({x} * {x} + 1)", "i0({x})", "i0e({x})", "i1({x})", "i1e({x})", "ndtr({x})", "ndtri(jnp.tanh({x}) * 0.4 + 0.5)",
        "log_ndtr({x})", "xlogy({x}, {s} * {s} + 0.5)", "xlog1py({x}, {s} * {s})", "entr({x} * {x} + 0.1)", "rel_entr({x} * {x} + 0.1, {s} * {s} + 0.1)",
        "kl_div({x} * {x} + 0.1, {s} * {s} + 0.1)", "betaln({x} * {x} + 1, {s} * {s} + 1)", "softmax({x}, axis=-1) if {x}.ndim else {x}",
        "log_softmax({x}, axis=-1) if {x}.ndim else {x}", "exp1({x} * {x} + 0.5)", "multigammaln({x} * {x} + 3, 2)", "polygamma(1, {x} * {x} + 1)",
        "zeta({x} * {x} + 2, 1.5)", "spence({x} * {x} + 0.5)", "factorial({x} * {x})", "poch(jnp.tanh({x}) + 2, 1.5)", "expn(2, {x} * {x} + 0.5)", "beta({x} * {x} + 1, {s} * {s} + 1)",
        "boxcox({x} * {x} + 0.5, {c})", "boxcox1p({x} * {x} + 0.5, {c})", "fresnel({x})", "hyp1f1(0.5, 1.5, jnp.tanh({x}))", "sici({x} * {x} + 0.5)", "gammasgn({x})",
        "dawsn({x})", "erfcx({x})", "loggamma({x} * {x} + 1)", "wofz({x})", "owens_t({x}, 0.5)", "comb({x} * {x} + 3, 2.0)", "expi({x} * {x} + 0.5)", "hyp2f1(0.5, 1.0, 1.5, jnp.tanh({x}) * 0.5)", "sph_harm_y(jnp.array([1]), jnp.array([2]), jnp.full(1, {c}), jnp.full(1, 0.3), n_max=2)", "bernoulli(4)", "bessel_jn(9 + 8 * jnp.tanh({x}), v=3)",
    ))),
    ("activation", "s", 0.1, "f", 0, (
        "jax.nn.swish({x})", "jax.nn.hard_swish({x})", "jax.nn.tanh({x})", "jax.nn.identity({x})", "jax.nn.sparse_plus({x})", "jax.nn.sparse_sigmoid({x})",
        "jax.nn.log1mexp({x} * {x} + 0.1)", "jax.nn.glu(jnp.concatenate([{x}, {s}], -1), -1) if {x}.ndim else {x}", "jax.nn.leaky_relu({x}, {s})", "jax.nn.elu({x}, {c})",
        "jax.nn.gelu({x} * 3)", "jax.nn.softplus({x} * 20)", "jax.nn.relu({x}) ** 2", "jax.nn.log_sigmoid({x} * 20)",
    )),
    # One rounding of what is known to the bit is known to the bit.
    ("one operation", "o", 0.3, "fn", 0, (
        "{x} + {s}", "{x} - {y}", "{x} * {y}", "{x} / {s}", "jnp.sqrt({x})", "{x} * {c}", "{x} + {c}", "1 / {x}", "{x}.astype({t})", "{x} * {x}",
    )),
    ("one operation", "e", 0.3, "fn", 0, (
        "-{x}", "jnp.abs({x})", "jnp.maximum({x}, {s})", "jnp.minimum({x}, {y})", "jnp.sign({x})", "{x} > {y}", "{x} == {s}", "jnp.where({x} < {s}, {x}, {s})",
        "jnp.floor({x})", "jnp.round({x})", "jnp.isnan({x})", "jnp.sort({x}) if {x}.ndim else {x}", "{x}.max()  if {x}.size else {x}", "jnp.argmax({x}) if {x}.size else {x}",
        "jnp.clip({x}, -1, 1)", "jnp.trunc({x})", "jnp.signbit(jnp.where({x} == {x}, {x}, 1))", "jnp.isfinite({x})", "jnp.copysign({x}, {s})", "jnp.nextafter({x}, {s})",
    )),
    ("one operation", "o", 0.3, "iub", 0, ("{x}.astype({t})", "lax.convert_element_type({x}, {t})", "{x} / {s}", "{x} * 0.5", "jnp.sqrt({x})")),
    ("narrow floats", "s", 0.6, "n", 0, (
        "{x}.astype(jnp.float32)", "{x}.astype(jnp.bfloat16) * 0.5", "jnp.tanh({x}).astype(jnp.float32)", "({x} * 0.5).astype(jnp.float32)", "{x}.astype(jnp.float16) + 1",
        "{x} + {y}", "{x} * {c}", "jnp.tanh({x})", "{x} - {s}", "jnp.maximum({x}, {y})", "jnp.sin({x})", "{x}.sum().astype(jnp.float32)", "jnp.mean({x})", "jax.nn.relu({x})",
    )),
    ("narrow floats", "s", 0.5, "n", 1, (
        "{x}.sum({e}, keepdims={k})", "jnp.max({x}, {a})", "jax.nn.softmax({x}, {a})", "jnp.cumsum({x}, {a})", "jnp.sum({x}, {a}, dtype=jnp.float32)", "jnp.mean({x}, {a}, dtype=jnp.float32)",
        "jnp.dot({x}, {s}.T, preferred_element_type=jnp.float32) if {x}.ndim < 3 else {x}", "jnp.einsum('...i,...i->...', {x}, {s}, preferred_element_type=jnp.float32)",
        "lax.dot_general({x}, {s}, ((({x}.ndim - 1,), ({x}.ndim - 1,)), ((), ())), preferred_element_type=jnp.float32) if {x}.size < 200 else {x}",
        "jnp.matmul({x}, {s}.mT, preferred_element_type=jnp.bfloat16) if {x}.ndim > 1 else {x}", "{x} @ {s}.mT if {x}.ndim > 1 else {x}", "jax.nn.standardize({x}.astype(jnp.float32), {a})",
    )),
    ("narrow floats", "", 0.3, "n", 0, (
        "{x}.astype(jnp.int32)", "{x}.astype({q})", "{x} > {y}", "{x} == {s}", "jnp.isnan({x})", "jnp.argsort({x}) if {x}.ndim else {x}", "lax.bitcast_convert_type({x}.astype(jax.numpy.float8_e5m2), jnp.uint8)",
    )),
    ("convert", "s", 0.15, "f", 0, ("{x}.astype({t})", "{x}.astype({t}).astype({d})", "lax.reduce_precision({x}, 8, 23)")),
    ("rough", "", 0.1, "f", 0, (
        "{x}.astype({q})", "lax.bitcast_convert_type({x}.astype(np.float32), jnp.int32)", "{x}.astype(np.float32).view(jnp.uint32)", "{x}.astype(np.float16).view(jnp.int16)", "lax.bitcast_convert_type({x}.astype(jax.numpy.bfloat16), jnp.uint8)",
        "lax.reduce_precision({x}, 4, 3)", "lax.reduce_precision({x}, 2, 10)", "jnp.astype({x}, {q})", "{x}.astype(jnp.complex64)",
    )),
    ("promote", "s", 0.3, "fiub", 0, (
        "{x} + {z}", "{x} * 0.5 + {z}", "jnp.where({m}, {x}, {z})", "jnp.add({x}, {z})", "{z} - 1.5 * {x}", "{x} + jnp.asarray(0.5)", "{x} * True", "jnp.stack([{x}.sum(), {z}.sum()])",
        "jnp.array([1.5, 2])[0] * {x}", "{x} + np.float32(0.5)", "jnp.float32(0.5) * {x}", "jnp.full_like({x}, {c}) + {x}", "lax.full_like({x}, 2) + {x}", "{x} + jnp.full((), 2)",
    )),
    ("promote", "", 0.1, "fiub", 0, ("{x} > {z}", "{x} == {z}", "{x} < 0.5", "jnp.maximum({x}, {z})", "jnp.power({x}, 2)", "{x} // 2", "{x} % 3", "jnp.floor_divide({x}, {z})")),
)  # fmt: skip


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
    # Where they change: near zero, far out, at the ends.
    "jax.nn.softplus({x} * 10)", "jnp.power({x}, 2)", "jnp.power({x}, 3.0)", "{x} ** 1.0", "{x} ** 0", "jnp.power(jnp.abs({x}), 2.5)", "lax.integer_pow({x} * 0.1, 7)", "jnp.power(2.0, {u} * 9)",
    "jax.nn.leaky_relu({x}, 0.1)", "jnp.where({x} > 0, {x}, {u} * {x})", "jax.nn.log_sigmoid({x} * 5)", "jax.nn.celu({x}, 0.7)", "jax.nn.selu({x})", "jax.nn.mish({x})", "jax.nn.squareplus({x}, 0.5)", "jax.nn.soft_sign({x})",
    "jax.nn.sparse_plus({x})", "jax.nn.hard_tanh({x})", "jax.nn.hard_sigmoid({x})", "jnp.logaddexp({x} * 5, 0)", "jnp.logaddexp2({x}, {u})", "jnp.log1p(jnp.exp(-jnp.abs({x})))", "jnp.hypot({x}, {u} + 2)", "jnp.hypot({x}, 0.5)",
    "jnp.log(jnp.abs({x}) + 1e-2)", "jnp.sqrt({x} * {x} + 1e-2)", "jnp.where({x} > 0.3, jnp.sqrt(jnp.where({x} > 0.3, {x}, 1)), 0.1)", "jnp.clip({x}, -2.5, 1.7)", "jnp.expm1({u} * 1e-3)", "jnp.log1p({u} * 1e-3)",
    "jax.nn.tanh({x} * 3)", "jax.nn.sigmoid({x} * 7)", "jnp.arctan2({x}, -1.5)", "jnp.arctan2(1.5, {x})", "jnp.fmod({x}, 1.7)", "lax.rem({x}, jnp.full_like({x}, 1.3))", "jnp.copysign({x}, -1.0)", "jnp.float_power(jnp.abs({x}) + 0.1, 1.5)",
    "jax.scipy.special.xlogy({u} + 2, jnp.abs({x}) + 0.1)", "jax.scipy.special.xlog1py({x}, {u} * 0.9)", "jax.scipy.special.logit({u} * 0.45 + 0.5)", "jax.scipy.special.entr({u} + 1.2)", "jax.scipy.special.ndtr({x})", "jax.scipy.special.log_ndtr({x})",
    "jax.scipy.special.ndtri({u} * 0.4 + 0.5)", "jax.scipy.special.i0({u})", "jax.scipy.special.i1({u})", "jnp.i0({u} + 0.1)", "jax.scipy.special.gammaln({u} + 1.5)", "jax.scipy.special.betaln({u} + 1.5, 2.0)", "jax.scipy.special.zeta({u} + 3.0, 1.5)",
    "jnp.interp({x}, jnp.array([-1.03, 0.07, 2.03]), jnp.array([1.0, 3.0, -2.0]))", "lax.pow(jnp.abs({x}) + 0.1, {u})", "lax.cbrt(jnp.abs({x}) + 0.1)", "jnp.tanh({x}) / 0.7", "jax.nn.log1mexp(jnp.abs({x}) + 0.2)",
)  # fmt: skip


def _functions(draw: Draw) -> str:
    """A sum of differentiable functions: each has to be drawn often enough that its slope is judged."""
    x = draw.pick("f", most=MEDIUM)
    names = {"x": str(x), "u": f"jnp.tanh({x})"}
    return " + ".join(f"({text.format(**names)}).astype({x.jnp})" for text in draw.r.sample(_FUNCTIONS, 5))


FLOATS: Final = (*rows(_TABLE), Production(_functions, "functions", smooth=True, weight=10))
