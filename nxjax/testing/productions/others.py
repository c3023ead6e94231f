"""Rows of complex numbers, Fourier transforms and random numbers."""

from __future__ import annotations

from typing import Final

from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import Production
from nxjax.testing.writer import Draw

_TABLE: Final[Table] = (
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
    ("random", "s", 0.1, "f", 0, (
        "{x} + jax.random.normal(jax.random.key({n} + 5), {x}.shape, 'float32').astype({d})",
        "{x} * jax.random.uniform(jax.random.fold_in(jax.random.key(3), {n} + 9), {x}.shape, 'float32').astype({d})",
        "jnp.where(jax.random.bernoulli(jax.random.key({n} + 7), 0.5, {x}.shape), {x} * 2, 0).astype({d})",
    )),
    ("random", "e", 0.15, "iu", 0, (
        "jax.random.bits(jax.random.key({n} + 5), {x}.shape, 'uint32')", "jax.random.randint(jax.random.key({n} + 5), {x}.shape, -3, 9, 'int32')",
        "jax.random.permutation(jax.random.key({n} + 5), {x}.reshape(-1))", "jax.random.key_data(jax.random.split(jax.random.key({n} + 9), 3))",
    )),
    ("complex", "s", 0.15, "c", 0, (
        "jnp.exp({x} * 0.3)", "jnp.sin({x} * 0.3)", "jnp.cos({x} * 0.3)", "jnp.square({x})", "{x} ** 2", "lax.real({x})", "lax.imag({x})", "lax.conj({x})", "{x} * jnp.conj({s})", "jnp.where({m}, {x}, {s})", "{x}.real + {x}.imag", "jnp.multiply({x}, 2j)", "{x} / (jnp.abs({s}) + 1)",
        "jnp.abs({x} + 3)", "jnp.sum({x} * {x})", "jnp.mean({x})", "{x} - 1", "jnp.dot({x}.reshape(-1), {s}.reshape(-1))", "jnp.vdot({x}, {s})", "{x} @ {s}.mT if {x}.ndim > 1 else {x}", "jnp.cumsum({x}, -1) if {x}.ndim else {x}", "jnp.prod({x} * 0.5, -1) if {x}.ndim else {x}", "jnp.einsum('...i,...i->...', {x}, {s}) if {x}.ndim else {x}",
        "jnp.sinh({x} * 0.3)", "jnp.cosh({x} * 0.3)", "jnp.reciprocal({x} + 4)", "lax.complex(jnp.imag({x}), jnp.real({x}))", "jnp.power({x} + 4, 2)", "lax.integer_pow({x}, 3)", "jnp.angle({x} + 9)",
    )),
    ("rough", "", 0.04, "c", 0, (
        "jnp.exp({x})", "jnp.cos({x})", "jnp.tan({x} * 0.3)", "jnp.arctan({x} * 0.3)", "jnp.arcsin({x} * 0.3)", "jnp.arccos({x} * 0.3)", "jnp.arcsinh({x} * 0.3)", "jnp.arccosh({x} + 3)", "jnp.arctanh({x} * 0.2)", "jnp.log1p({x} + 2)", "jnp.expm1({x})", "jnp.power({x} + 3, {s} * 0.2)", "lax.rsqrt({x} + 3)",
        "jnp.sign({x})", "lax.sign({x})", "jnp.isnan({x})", "jnp.iscomplex({x})", "jnp.isreal({x})", "jnp.nan_to_num({x})", "{x} != {y}", "jnp.sort({x}) if {x}.ndim else {x}", "jnp.sort_complex({x})", "jnp.argsort({x}) if {x}.ndim else {x}", "jnp.log2({x} + 3)", "jnp.log10({x} + 3)", "jnp.exp2({x} * 0.3)", "jnp.linalg.norm({x})", "jnp.logical_not({x})",
        "lax.logistic({x})", "lax.tanh({x} * 0.4)", "jnp.linalg.inv(jnp.eye(2) * 5 + jnp.resize({x}, (2, 2)) * 0.3) if {x}.size else {x}", "jnp.linalg.cholesky(jnp.eye(2) * 9 + (lambda m: m @ jnp.conj(m.T))(jnp.resize({x} * 0.3, (2, 2)))) if {x}.size else {x}",
    )),
    ("fft", "s", 0.1, "fc", 1, (
        "jnp.fft.fft({x}, 4, {a}) if {x}.size else {x}", "jnp.fft.ifft({x}, axis={a}) if {x}.size else {x}", "jnp.fft.fft2({x}) if {x}.ndim > 1 and {x}.size else {x}", "jnp.fft.ifft2({x}) if {x}.ndim > 1 and {x}.size else {x}", "jnp.fft.fftn({x}) if {x}.size and {x}.ndim < 4 else {x}", "jnp.fft.ifftn({x}, axes=({a},)) if {x}.size else {x}", "jnp.fft.ifftshift({x}, {a})",
        "jnp.fft.fft({x}, norm='ortho') if {x}.size else {x}", "jnp.fft.hfft({x}, 6) if {x}.size else {x}", "jnp.fft.irfft({x}, 7, {a}) if {x}.size else {x}", "jnp.fft.irfft2({x}) if {x}.ndim > 1 and {x}.shape[-1] > 1 and {x}.size else {x}", "jnp.fft.irfftn({x}) if {x}.ndim < 4 and {x}.shape[-1] > 1 and {x}.size else {x}", "jnp.fft.fftfreq(5) * {x}.sum()",
    )),
    ("fft", "s", 0.1, "f", 1, (
        "jnp.fft.rfft({x}, axis={a}) if {x}.size else {x}", "jnp.fft.rfft2({x}) if {x}.ndim > 1 and {x}.size else {x}", "jnp.fft.rfftn({x}) if {x}.size and {x}.ndim < 4 else {x}", "jnp.fft.ihfft({x}) if {x}.size else {x}", "lax.fft({x}.astype(jnp.complex64), 'fft', {x}.shape[-1:]) if {x}.size else {x}", "jnp.fft.rfftfreq(6) * {x}.sum()",
    )),
    ("random", "s", 0.05, "f", 0, tuple(f"jax.random.{text}" for text in (
        "gumbel(jax.random.key({n} + 5), {x}.shape, 'float32').astype({d}) + {x}", "laplace(jax.random.key({n} + 5), (3,), 'float32').astype({d})", "exponential(jax.random.key({n} + 5), {x}.shape, 'float32').astype({d}) * {x}", "truncated_normal(jax.random.key({n} + 5), -1, 1, {x}.shape, 'float32').astype({d}) + {x}",
    ))),
    ("random", "e", 0.05, "fiu", 1, tuple(f"jax.random.{text}" for text in (
        "rademacher(jax.random.key({n} + 5), {x}.shape)", "categorical(jax.random.key({n} + 5), jnp.zeros((4, 3)))", "choice(jax.random.key({n} + 5), {x}) if {x}.shape[0] else {x}", "key_data(jax.random.PRNGKey({n} + 7))", "key_data(jax.random.split(jax.random.key({n} + 5), (2, 2)))", "permutation(jax.random.key({n} + 5), 9)", "permutation(jax.random.key({n} + 5), {x}, {a}, independent={k})", "bernoulli(jax.random.key({n} + 5), 0.3, {x}.shape)",
    ))),
)  # fmt: skip


def _fit(draw: Draw) -> str:
    """A value of the type of the first operand that depends on the second."""
    x, y = draw.pick("fiucb", huge=True), draw.pick("fiucb", huge=True)
    if x.kind == "b":
        return f"{x} ^ ({y} != 0).any()"
    part = f"jnp.real({y})" if y.kind == "c" else str(y)
    if x.kind in "fc":
        return f"{x} * 0.5 + jnp.tanh({part}.astype(jnp.float32).sum()).astype({x.jnp})"
    return f"{x} + jnp.clip({part}.sum(), 0, 3).astype({x.jnp})"


OTHERS: Final = (
    *rows(_TABLE),
    # Written where an inner function must give a type that it has not.
    Production(_fit, "fit", smooth=True, weight=0),
)
