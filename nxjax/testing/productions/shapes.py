"""Rows that move elements, and those that make arrays of nothing."""

from __future__ import annotations

from typing import Final

from nxjax.testing.productions.templates import Table, rows

_TABLE: Final[Table] = (
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
    ("move", "se", 0.15, "ficubn", 1, (
        "jnp.fliplr({x}) if {x}.ndim > 1 else {x}", "jnp.flipud({x})", "jnp.rot90({x}, {n}) if {x}.ndim > 1 else {x}", "jnp.rollaxis({x}, {a}, 0)", "jnp.permute_dims({x}, {p})", "jnp.matrix_transpose({x}) if {x}.ndim > 1 else {x}", "{x}.mT if {x}.ndim > 1 else {x}",
        "jnp.split({x}, [1], {a}) if {x}.size else {x}", "jnp.array_split({x}, 3, {a})", "jnp.hsplit({x}, [1]) if {x}.size else {x}", "jnp.vsplit({x}, [1]) if {x}.ndim > 1 and {x}.size else {x}", "jnp.dsplit({x}, [1]) if {x}.ndim > 2 and {x}.size else {x}", "jnp.unstack({x}) if 0 < {x}.shape[0] < 9 else {x}",
        "jnp.atleast_1d({x})", "jnp.atleast_2d({x})", "jnp.atleast_3d({x})", "jnp.ravel({x})", "jnp.diagonal({x}) if {x}.ndim > 1 else {x}", "jnp.diagonal({x}, {n}, 0, {x}.ndim - 1) if {x}.ndim > 1 else {x}", "jnp.roll({x}, ({n}, 2), (0, {a}))", "jnp.roll({x}, {n})",
        "lax.transpose({x}, {p})", "lax.slice({x}, (0,) * {x}.ndim, {x}.shape, (2,) * {x}.ndim)", "lax.slice({x}, [min(1, n) for n in {x}.shape], {x}.shape)", "lax.expand_dims({x}, ({a} % {x}.ndim,))", "lax.squeeze({x}[:, None], (1,))", "lax.collapse({x}, 0, {x}.ndim)",
        "lax.reshape({x}, ({x}.size,))", "lax.index_in_dim({x}, -1, {a}) if {x}.size else {x}", "lax.split({x}, ({x}.shape[0] // 2, {x}.shape[0] - {x}.shape[0] // 2), 0)", "lax.rev({x}, tuple(range({x}.ndim)))", "{x}[..., ::-1]", "{x}[-1:0:-1]", "{x}[{n}:]", "{x}[:, None, ..., None]",
        "jnp.astype({x}, {d})", "jnp.copy({x}, order='K')", "jnp.squeeze({x}[None], 0)", "{x}.swapaxes({a}, {b}).reshape(-1)", "{x}.flatten()[::3]", "lax.copy_p.bind({x})", "jnp.asarray({x})", "jnp.array({x}, copy={k})", "jnp.moveaxis({x}, ({a},), (0,))", "jnp.reshape({x}, (-1, 1), order='F')",
        "jnp.expand_dims({x}, (0, -1))", "jnp.delete({x}, {n} % max(1, {x}.shape[{a}]), {a}) if {x}.shape[{a}] else {x}", "jnp.delete({x}, np.array([0, 0])) if {x}.size else {x}", "jnp.resize({x}, (3, 2)) if {x}.size else {x}", "lax.unstack({x}, 0) if 0 < {x}.shape[0] < 9 else {x}",
    )),
    ("pad", "seg", 0.12, "fiucb", 1, (
        "jnp.pad({x}, 1, mode='reflect') if min({x}.shape) > 1 else {x}", "jnp.pad({x}, 2, mode='symmetric') if min({x}.shape) > 1 else {x}", "jnp.pad({x}, ((1, 2),) * {x}.ndim, mode='wrap') if 0 not in {x}.shape else {x}", "jnp.pad({x}, 1, constant_values=1)", "jnp.pad({x}, [(0, 0)] * ({x}.ndim - 1) + [(3, 0)], mode='edge') if {x}.size else {x}",
        "lax.pad({x}, jnp.zeros((), {d}), [(-1, -1, 0)] * {x}.ndim) if min({x}.shape) > 1 else {x}", "lax.pad({x}, jnp.ones((), {d}), [(-1, 2, 2)] * {x}.ndim) if min({x}.shape) > 1 else {x}", "lax.pad({x}, jnp.zeros((), {d}), [(2, -1, 1)] + [(0, 0, 0)] * ({x}.ndim - 1)) if min({x}.shape) > 1 else {x}",
        "jnp.tril({x}, {n}) if {x}.ndim > 1 else {x}", "jnp.triu({x}) if {x}.ndim > 1 else {x}", "jnp.diagflat({x}[:2]) if {x}.size < 20 else {x}", "jnp.diag({x}, {n}) if {x}.ndim < 3 and {x}.size < 100 else {x}", "jnp.insert({x}, 1, 3, axis={a}) if {x}.shape[{a}] else {x}", "jnp.insert({x}, jnp.array([0, 1]), jnp.ones((), {d}), axis=0) if {x}.shape[0] else {x}",
        "jnp.append({x}, {s})", "jnp.append({x}, {s}, {a})", "jnp.fill_diagonal({x}, 2, inplace=False) if {x}.ndim == 2 and min({x}.shape) else {x}", "jnp.kron({x}, jnp.eye(2, dtype={d})) if {x}.size < 60 and {x}.ndim < 3 and {x}.dtype != bool else {x}",
    )),
    ("pad", "sg", 0.08, "f", 1, (
        "jnp.pad({x}, 1, mode='linear_ramp', end_values=2)", "jnp.pad({x}, 1, mode='mean') if {x}.size else {x}", "jnp.pad({x}, 1, mode='maximum') if {x}.size else {x}", "jnp.pad({x}, 1, mode='minimum') if {x}.size else {x}", "jnp.pad({x}, (1, 2), mode='reflect', reflect_type='odd') if min({x}.shape) > 2 else {x}",
    )),
    ("broadcast", "seg", 0.12, "ficubn", 0, (
        "jnp.broadcast_arrays({x}, {y})", "lax.broadcast({x}, (2, 1))", "lax.broadcast_in_dim({x}, (*{x}.shape, 2), tuple(range({x}.ndim)))", "lax.broadcast_in_dim({x}, (3, *{x}.shape), tuple(range(1, {x}.ndim + 1)))", "jnp.tile({x}, (2, 1))", "lax.tile({x}, (2,) * {x}.ndim) if {x}.ndim else {x}",
        "jnp.repeat({x}, jnp.arange({x}.shape[0]), axis=0, total_repeat_length=5) if {x}.ndim and {x}.shape[0] else {x}", "jnp.repeat({x}, 3)", "jnp.vstack([{x}, {s}])", "jnp.dstack([{x}, {s}])", "jnp.column_stack([{x}, {s}])", "jnp.block([[{x}, {s}], [{s}, {x}]])", "jnp.concat([jnp.ravel({x}), jnp.ravel({s})])",
        "jnp.meshgrid({x}.reshape(-1)[:3], {s}.reshape(-1)[:2])", "jnp.ones_like({x}) * {x} if {x}.dtype != bool else {x}", "jnp.empty_like({x}).shape[0] * {x} if {x}.ndim and {x}.dtype != bool else {x}", "jnp.full({x}.shape, {x})", "jnp.full_like({x}, 1)", "lax.concatenate([{x}, {s}], {x}.ndim - 1) if {x}.ndim else {x}", "lax.broadcast_to_rank({x}, {x}.ndim + 1)",
        "jnp.stack([{x}, {s}, {x}], 1) if {x}.ndim else {x}", "jnp.broadcast_to({x}, (0, *{x}.shape))", "jnp.concatenate([{x}[:0], {x}]) if {x}.ndim else {x}", "jnp.tile({x}, 0)", "jnp.concatenate([{x}[None], {s}[None], {x}[None]])", "lax.stack([{x}, {s}])",
    )),
    ("select", "se", 0.1, "ficubn", 0, (
        "lax.select({m}, {x}, {s}) if {m}.shape == {x}.shape else {x}", "lax.select_n({m}, {x}, {s}) if {m}.shape == {x}.shape else {x}", "lax.select_n(jnp.full({x}.shape, {n} % 3, jnp.int32), {x}, {s}, {x})", "jnp.select([{m}], [{x}], 0)", "jnp.where(~{m}, {x}, {s})", "jnp.where({m}, {x}, 0)", "jnp.piecewise({x}, [{m}], [1, 0]) if {m}.shape == {x}.shape else {x}",
        "lax.select(jnp.asarray({k}), {x}, {s})", "jnp.place({x}, {m}, jnp.ones(2, {d}), inplace=False) if {m}.shape == {x}.shape else {x}", "jnp.where({k}, {x}, {s})",
    )),
    ("made", "se", 0.06, "fiu", 0, (
        "{x} + jnp.arange(3)[:, None].astype({d}).sum()", "jnp.eye(3, 4, {n}, dtype={d})", "jnp.identity(3, {d})", "jnp.tri(3, 4, {n}, dtype={d})", "jnp.indices((2, 3))", "lax.iota({d}, 7)", "lax.broadcasted_iota(jnp.int32, (2, 3), 1)",
        "jnp.arange(0, {n} * 3, {n})", "jnp.zeros((2, 0))", "jnp.ones((3,), {d})", "jnp.full((2, 2), {x}.reshape(-1)[:1].sum())", "jnp.tril_indices(4, {n})[0]", "jnp.triu_indices(4)[1]", "jnp.diag_indices(3)[0]", "jnp.mask_indices(3, jnp.triu, size=6)[0]", "jnp.ix_(jnp.arange(2), jnp.arange(3))[1]", "jnp.fromfunction(lambda i, j: i * 2 + j, (3, 2))", "jax.nn.one_hot({i} % 5, 4)", "jax.nn.one_hot({i}.reshape(-1)[:3], 3, axis=0, dtype={d})", "lax.full((2, 3), 1, {d})", "jnp.empty((0, 2), {d})", "jnp.triu_indices_from(jnp.ones((3, 3)))[0]", "jnp.tril_indices_from(jnp.ones((3, 2)))[1]", "jnp.diag_indices_from(jnp.ones((2, 2)))[0]",
        "jax.nn.initializers.ones(jax.random.key(1), (2, 3), jnp.float32)", "jnp.zeros_like({x}, shape=(2, 2))", "jnp.frombuffer(b'abcdefgh', dtype=jnp.int32)", "jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing='ij')[0]", "lax.empty((0, 3), {d})", "jnp.broadcast_shapes((2, 1), (3,))[0] * {x}",
    )),
    ("made", "s", 0.06, "f", 0, (
        "jnp.linspace(0, 1, 5)", "jnp.linspace({x}.reshape(-1)[:1].sum().astype(jnp.float32) * 0, 2, 4, endpoint={k})", "jnp.hamming(5)", "jnp.hanning(5)", "jnp.bartlett(5)", "jnp.blackman(5)", "jnp.kaiser(5, 3.0)", "jnp.logspace(0, 1, 4)", "jnp.geomspace(1, 8, 4)", "jax.nn.initializers.glorot_normal()(jax.random.key({n} + 4), (3, 4), jnp.float32)",
    )),
)  # fmt: skip


SHAPES: Final = rows(_TABLE)
