"""Rows of products: matrices, convolutions, linear algebra."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import Production, Unfit
from nxjax.testing.writer import MEDIUM, Draw

_TABLE: Final[Table] = (
    ("linalg", "s", 0.15, "f", 2, (
        "jnp.linalg.cholesky(jnp.tanh({x}[..., :3, :]) @ jnp.tanh({x}[..., :3, :]).mT + 2 * jnp.eye(min(3, {x}.shape[-2]), dtype={d})).astype({d})",
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
    ("matmul", "sg", 0.15, "fc", 1, (
        "jnp.matvec({x}[None], {s}[..., :1] * 0 + {s})", "jnp.vecmat({s}, {x}[..., :, None])", "jnp.vecdot({x}, {s}, axis={a})", "jnp.linalg.vecdot({x}, {s})", "jnp.linalg.outer({x}.reshape(-1)[:5], {s}.reshape(-1)[:3])", "jnp.kron({x}[:3], {s}[:2]) if {x}.size < 40 else {x}", "lax.dot({x}[None, ..., 0] if {x}.ndim > 1 else {x}, {s}[..., 0].T if {x}.ndim > 1 else {s}) if {x}.ndim < 3 and {x}.size else {x}",
        "jnp.cross({x}[..., :3], {s}[..., :3]) if {x}.shape[-1] > 2 else {x}", "jnp.correlate({x}.reshape(-1)[:20], {s}.reshape(-1)[:4], mode='full') if {x}.size else {x}", "jnp.convolve({x}.reshape(-1)[:20], {s}.reshape(-1)[:4], mode='valid') if {x}.size else {x}", "jnp.polymul({x}.reshape(-1)[:4], {s}.reshape(-1)[:3]) if {x}.size else {x}",
        "jnp.polyadd({x}.reshape(-1)[:4], {s}.reshape(-1)[:3]) if {x}.size else {x}", "jnp.polysub({x}.reshape(-1)[:4], {s}.reshape(-1)[:3]) if {x}.size else {x}", "jnp.polyder({x}.reshape(-1)[:4]) if {x}.size > 3 else {x}", "jnp.polyint({x}.reshape(-1)[:4]) if {x}.size > 3 else {x}", "jnp.vander({x}.reshape(-1)[:4] * 0.5, 3)", "jnp.poly({x}.reshape(-1)[:3]) if {x}.size > 2 else {x}",
    )),
    ("matmul", "sg", 0.2, "f", 2, (
        "lax.batch_matmul(jnp.tanh({x}), {s}.mT) if {x}.ndim > 2 else {x}", "jnp.matvec(jnp.tanh({x}), {s}[..., 0, :]) if {x}.size else {x}", "jnp.vecmat({x}[..., 0], {s}) if {x}.size else {x}", "jnp.matmul({x}[..., 0, :], {s}.mT) if {x}.size else {x}", "jnp.linalg.multi_dot([{x}[:3], {s}.T[:, :3], {x}[:3]]) if {x}.ndim == 2 and {x}.size else {x}",
        "jnp.tensordot({x}, {s}, {x}.ndim)", "jnp.linalg.tensordot({x}, {s}, axes={x}.ndim)", "jnp.linalg.matmul({x}, {s}.mT)", "jnp.linalg.matrix_transpose({x})", "jnp.linalg.diagonal({x})", "jnp.linalg.trace({x})",
        "jnp.linalg.matrix_power(jnp.tanh({x}[..., :2, :2]), 3) if min({x}.shape[-2:]) > 1 else {x}", "jnp.dot({x}, {s}[..., 0, :]) if {x}.size and {x}.ndim == 2 else {x}", "({x}.mT @ {x}) @ jnp.tanh({s}).mT / ({x}.shape[-1] + 1)", "jnp.tanh({x}) @ jnp.zeros(({x}.shape[-1], 0), {d})", "jnp.zeros((2, 0), {d}) @ jnp.zeros((0, 3), {d}) + {x}.sum()",
    )),
    ("matmul", "e", 0.15, "iub", 2, (
        "jnp.dot({x}, {s}.T) if {x}.ndim == 2 else {x}", "jnp.vdot({x}, {s})", "jnp.inner({x}[..., :1, :], {s}[..., :2, :]) if {x}.size < 200 else {x}", "jnp.matmul({x}, {s}.mT, preferred_element_type=jnp.int32) if {x}.dtype in (jnp.int8, jnp.int16) else {x}", "jnp.tensordot({x}, {s}, {x}.ndim)", "jnp.einsum('...ii->...i', {x}[..., :2, :2]) if min({x}.shape[-2:]) > 1 else {x}", "jnp.trace({x}, {n})",
    )),
    ("linalg", "s", 0.08, "f", 2, tuple(text.replace("SPD", "(jnp.eye(3, dtype=jnp.float32) * 4 + jnp.tanh(jnp.resize({x}, (3, 3)).astype(jnp.float32)))").replace("SYM", "(jnp.diag(jnp.array([1.0, 4.0, 9.0])) + 0.3 * (lambda m: m + m.T)(jnp.tanh(jnp.resize({x}, (3, 3)).astype(jnp.float32))))") for text in (
        "jnp.linalg.det(SPD)", "jnp.linalg.pinv(SPD)", "jnp.linalg.lstsq(SPD, jnp.resize({x}, (3, 2)).astype(jnp.float32))[0]", "jnp.linalg.eigh(SYM)[0]", "lax.linalg.eigh(SYM)[1]", "jnp.linalg.svdvals(SYM)", "jnp.linalg.tensorsolve(SPD, jnp.resize({x}, (3,)).astype(jnp.float32))", "jnp.linalg.tensorinv(SPD, 1)", "jnp.linalg.cond(SYM)", "jnp.linalg.cross(SPD[0], SPD[1])",
        "jax.scipy.linalg.expm(jnp.tanh(jnp.resize({x}, (2, 2)).astype(jnp.float32)))", "jax.scipy.linalg.solve(SPD, jnp.ones(3))", "jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(SYM), True), jnp.ones(3))", "lax.linalg.cholesky(SYM)", "lax.linalg.lu(SPD)[0]", "jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(SPD), jnp.ones(3))", "jnp.abs(lax.linalg.qr(SPD)[1])",
        "lax.linalg.tridiagonal_solve(jnp.zeros(3), jnp.full(3, 3.0), jnp.zeros(3), jnp.resize({x}, (3, 2)).astype(jnp.float32))", "lax.linalg.triangular_solve(SPD, jnp.resize({x}, (2, 3)).astype(jnp.float32), left_side=False, lower={k}, transpose_a={l})", "jnp.linalg.slogdet(SPD)", "jnp.linalg.solve(SPD, jnp.resize({x}, (2, 3, 1)).astype(jnp.float32))",
    ))),
    ("linalg", "", 0.05, "f", 2, (
        "jnp.linalg.matrix_rank(jnp.resize({x}, (3, 3)).astype(jnp.float32))", "jnp.abs(jnp.linalg.eigh((lambda m: m + m.mT)(jnp.resize({x}, (3, 3)).astype(jnp.float32)))[0])", "jnp.sort(jnp.abs(jnp.linalg.eigvals(jnp.resize({x}, (3, 3)).astype(jnp.float32))))", "jnp.sort(jnp.abs(jnp.linalg.eig(jnp.resize({x}, (2, 2)).astype(jnp.float32))[0]))", "jnp.roots(jnp.array([1.0, {c}, -2.0])).real.sum()",
        "jnp.polyfit(jnp.arange(5.0), jnp.resize({x}, (5,)).astype(jnp.float32), 1)", "jnp.abs(lax.linalg.svd(jnp.resize({x}, (3, 2)).astype(jnp.float32), full_matrices=False)[1])", "jnp.polydiv(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, {c}]))", "jnp.abs(lax.linalg.schur(jnp.eye(2))[0])", "jnp.sort(jnp.abs(lax.linalg.eig(jnp.resize({x}, (2, 2)).astype(jnp.float32))[0]))", "lax.linalg.lu_pivots_to_permutation(jnp.array([1, 2, 2], jnp.int32), 3)", "lax.linalg.householder_product(jnp.resize({x}, (3, 2)).astype(jnp.float32) * 0.2, jnp.full(2, 0.5))", "jnp.abs(lax.linalg.tridiagonal((lambda m: m + m.T)(jnp.resize({x}, (3, 3)).astype(jnp.float32)))[1])", "lax.linalg.hessenberg(jnp.resize({x}, (3, 3)).astype(jnp.float32))[0][0, 0]",
        "lax.linalg.qdwh(jnp.eye(3) * 4 + jnp.tanh(jnp.resize({x}, (3, 3)).astype(jnp.float32)))[0]", "lax.linalg.cholesky_update(jnp.eye(3) * 2, jnp.tanh(jnp.resize({x}, (3,)).astype(jnp.float32)))", "lax.linalg.ormqr(jnp.resize({x}, (3, 2)).astype(jnp.float32) * 0.2, jnp.full(2, 0.5), jnp.eye(3))", "lax.linalg.symmetric_product(jnp.resize({x}, (3, 2)).astype(jnp.float32), jnp.eye(3))",
    )),
    ("convolution", "s", 0.3, "f", 1, (
        "lax.conv(jnp.resize({x}, (1, 2, 9)), jnp.resize({x}, (3, 2, 3)), (2,), 'SAME')", "lax.conv_transpose(jnp.resize({x}, (1, 5, 2)), jnp.resize({s}, (3, 2, 3)), ({k} + 1,), 'SAME', dimension_numbers=('NHC', 'HIO', 'NHC'), transpose_kernel=False)",
        "lax.conv_transpose(jnp.resize({x}, (1, 4, 3, 2)), jnp.resize({s}, (2, 3, 3, 2)), (2, 1), 'VALID', transpose_kernel=True)", "lax.conv_general_dilated_patches(jnp.resize({x}, (1, 2, 6, 5)), (2, 3), (1, 2), 'SAME')", "lax.conv_with_general_padding(jnp.resize({x}, (2, 1, 7)), jnp.resize({s}, (2, 1, 3)), (1,), [(2, 0)], None, (2,))",
        "lax.conv_general_dilated_local(jnp.resize({x}, (1, 2, 5)), jnp.resize({s}, (3, 4, 4)), (1,), 'VALID', (2,), dimension_numbers=('NCH', 'OIH', 'NCH'))",
    )),
    ("ragged product", "s", 0.5, "f", 1, (
        "lax.ragged_dot(jnp.resize({x}, (6, 3)), jnp.tanh(jnp.resize({s}, (3, 3, 2))), jnp.array([{n} % 3, 2, 1], jnp.int32))", "lax.ragged_dot(jnp.resize({x}, (7, 2)), jnp.tanh(jnp.resize({s}, (4, 2, 5))), jnp.array([3, 0, 4, 0], jnp.int32), preferred_element_type=jnp.float32)",
        "lax.ragged_dot(jnp.resize({x}, (5, 4)), jnp.resize({s}, (2, 4, 1)), jnp.clip({i}.reshape(-1)[:2], 0, 2)) if {i}.size > 1 else {x}", "lax.ragged_dot(jnp.resize({x}, (1, 2)), jnp.resize({s}, (1, 2, 2)), jnp.array([1]))",
    )),
    ("ragged product", "s", 0.3, "f", 1, (
        "lax.ragged_dot_general(jnp.resize({x}, (4, 6)), jnp.tanh(jnp.resize({s}, (6, 2))), jnp.array([2, {n} % 3, 1], jnp.int32), lax.RaggedDotDimensionNumbers((([1], [0]), ([], [])), [1], []))", "lax.ragged_dot_general(jnp.resize({x}, (3, 5)), jnp.tanh(jnp.resize({s}, (2, 4, 5))), jnp.array([1, 2], jnp.int32), lax.RaggedDotDimensionNumbers((([1], [2]), ([], [])), [0], [0]))",
    )),
    ("product of integers", "e", 0.3, "iu", 1, (
        "lax.ragged_dot(jnp.resize({x}, (4, 3)), jnp.resize({s}, (2, 3, 2)), jnp.array([1, 3], jnp.int32))", "lax.conv_general_dilated(jnp.resize({x}, (1, 2, 7)), jnp.resize({s}, (4, 1, 3)), ({k} + 1,), [(1, 2)], feature_group_count=2)", "lax.conv_general_dilated(jnp.resize({x}, (1, 1, 5, 4)).astype(jnp.int8), jnp.resize({s}, (2, 1, 2, 2)).astype(jnp.int8), (1, 1), 'SAME', preferred_element_type=jnp.int32)",
        "jnp.einsum('ij,jk,k->i', jnp.resize({x}, (2, 3)), jnp.resize({s}, (3, 4)), jnp.resize({x}, (4,)))", "jnp.einsum('ii->i', jnp.resize({x}, (4, 4)))", "jnp.outer({x}.reshape(-1)[:4], {s}.reshape(-1)[:4])", "jnp.convolve({x}.reshape(-1)[:9], {s}.reshape(-1)[:3]) if {x}.size else {x}",
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


def _dot_general(draw: Draw) -> str:
    """A product over any axes in any order, with any of them in common, some of size 0 or 1."""
    r = draw.r
    x = draw.pick("fnciu", test=lambda v: v.size > 0)
    y = draw.pick(x.kind, test=lambda v: v.size > 0 and v.dtype == x.dtype)
    dim = lambda: r.choice((1, 2, 3, 4, 5, 8) if r.random() < 0.95 else (0,))
    batch, shared = [dim() for _ in range(r.randint(0, 2))], [dim() for _ in range(r.choice((0, 1, 1, 2)))]
    places: list[tuple[list[int], list[int]]] = []
    shapes: list[tuple[int, ...]] = []
    for _ in range(2):
        free = [dim() for _ in range(r.randint(0, 2))]
        dims = [*batch, *shared, *free]
        order = r.sample(range(len(dims)), len(dims))
        shapes.append(tuple(dims[k] for k in order))
        at = [order.index(k) for k in range(len(dims))]
        places.append((at[: len(batch)], at[len(batch) : len(batch) + len(shared)]))
    (left_batch, left), (right_batch, right) = places
    numbers = f"(({left}, {right}), ({left_batch}, {right_batch}))"
    wide = {"f": "jnp.float32", "n": "jnp.float32", "i": "jnp.int32", "u": "jnp.uint32"}.get(x.kind)
    fits = wide and x.dtype.itemsize < 4 and r.random() < 0.5
    more = f", preferred_element_type={wide}" if fits else r.choice(("", "", ", precision='highest'"))
    return f"lax.dot_general(jnp.resize({x}, {shapes[0]}), jnp.resize({y}, {shapes[1]}), {numbers}{more})"


# Letters may stand twice in an operand, may be summed alone, and results have any order.
_EINSUMS: Final = (
    "ij,jk->ik", "ij,jk->ki", "ij,ij->", "ii->i", "ii->", "iij->ij", "ij->ji", "ijk->i", "i,j->ij", "i,i,i->i", "ij,kj,kl->il",
    "bij,bjk->bik", "bij,jk->bik", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "ij,j", "ij,ij,jk->ki", "iji,jk->k", "...ij,...j->...i",
    "i...,i...->...", "ij,jk,kl,lm->im", "abc,cba->b", "ab,->ab", "ii,ij->j", "ijk,ilm,njm,nlk,abc->", "aab,bc->ac", "a,b,c->cab",
)  # fmt: skip


def _einsum(draw: Draw) -> str:
    r = draw.r
    x = draw.pick("fciu", test=lambda v: v.size > 0)
    spec = r.choice(_EINSUMS)
    operands = spec.split("->")[0].split(",")
    sizes = {letter: r.choice((1, 2, 3, 4)) for letter in "abcdefghijklmnopqrstuvwxyz"}
    rest = tuple(r.choice((1, 2, 3)) for _ in range(r.randint(0, 2)))
    found: list[str] = []
    for term in operands:
        v = x if r.random() < 0.6 else draw.pick(x.kind, test=lambda v: v.size > 0 and v.dtype == x.dtype)
        shape = tuple(sizes[c] for c in term.partition("...")[0])
        shape += rest * ("..." in term) + tuple(sizes[c] for c in term.partition("...")[2])
        found.append(f"jnp.resize({v}, {shape})")
    more = r.choice(("", "", ", optimize=False", ", optimize='greedy'", ", preferred_element_type=jnp.float32"))
    return f"jnp.einsum('{spec}', {', '.join(found)}{more if x.kind == 'f' else ''})"


def _conv_any(draw: Draw) -> str:
    """A convolution with any of its parameters: layouts, groups of features or of the batch, padding of each side."""
    r = draw.r
    x = draw.pick("fniu", most=MEDIUM, test=lambda v: v.size > 0)
    y = draw.pick(x.kind, most=MEDIUM, test=lambda v: v.size > 0 and v.dtype == x.dtype)
    space = r.choice((0, 1, 1, 2, 2, 3))
    groups, batches = r.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
    size = [r.randint(1, 7) for _ in range(space)]
    window = [r.randint(1, 3) for _ in range(space)]
    batch, features, out = r.randint(1, 2) * batches, r.randint(1, 3) * groups, r.randint(1, 2) * groups * batches
    letters = "DHW"[3 - space :]
    lhs, rhs, result = (
        "".join(r.sample(name + letters, 2 + space)) if r.random() < 0.4 else name + letters
        for name in ("NC", "OI", "NC")
    )
    of = dict(zip(letters, size, strict=True)) | {"N": batch, "C": features}
    kernel = dict(zip(letters, window, strict=True)) | {"O": out, "I": features // groups}
    each = lambda choices: tuple(r.choice(choices) for _ in range(space))
    padding: Any = (
        r.choice(("SAME", "VALID", "SAME_LOWER"))
        if r.random() < 0.4
        else list(zip(each((0, 1, 2, 3, -1)), each((0, 1, 2)), strict=True))
    )
    dilation = each((1, 1, 2)) if not isinstance(padding, str) else (1,) * space
    options = [
        f"dimension_numbers={(lhs, rhs, result)}",
        f"feature_group_count={groups}",
        f"batch_group_count={batches}",
    ]
    options += [f"lhs_dilation={dilation}", f"rhs_dilation={each((1, 1, 2))}"]
    if x.kind in "fn" and x.dtype.itemsize < 4 and r.random() < 0.5:
        options.append("preferred_element_type=jnp.float32")
    shapes = tuple(of[c] for c in lhs), tuple(kernel[c] for c in rhs)
    return (
        f"lax.conv_general_dilated(jnp.resize({x}, {shapes[0]}), jnp.resize({y}, {shapes[1]}), {each((1, 1, 2, 3))}, "
        f"{padding!r}, {', '.join(options)})"
    )


def _ragged(draw: Draw) -> str:
    """A product of groups of rows, each with a matrix of its own; groups may be empty, and may leave rows out."""
    r = draw.r
    x = draw.pick("fn", test=lambda v: v.size > 0)
    y = draw.pick(x.kind, test=lambda v: v.size > 0 and v.dtype == x.dtype)
    groups, inner, columns = r.randint(1, 4), r.choice((1, 2, 3, 8)), r.choice((1, 2, 5))
    sizes = [r.choice((0, 1, 2, 3)) for _ in range(groups)]
    rows_ = sum(sizes) + r.choice((0, 0, 1, 2))
    more = r.choice(("", "", ", preferred_element_type=jnp.float32"))
    left, right = f"jnp.resize({x}, {(rows_, inner)})", f"jnp.tanh(jnp.resize({y}, {(groups, inner, columns)}))"
    if not rows_:
        raise Unfit
    return f"lax.ragged_dot({left}, {right}, jnp.array({sizes}, jnp.int32){more})"


PRODUCTS: Final = (
    *rows(_TABLE),
    Production(_conv, "convolution", smooth=True, weight=2),
    Production(_conv_any, "convolution", smooth=True, weight=2),
    Production(_attention, "attention", smooth=True, weight=1),
    Production(_dot_general, "product", smooth=True, weight=2),
    Production(_einsum, "product", smooth=True, weight=2),
    Production(_ragged, "ragged product", smooth=True, weight=1.5),
)
