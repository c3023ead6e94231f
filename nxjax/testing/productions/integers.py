"""Rows of integers and truth values."""

from __future__ import annotations

from typing import Final

from nxjax.testing.productions.templates import Table, rows

_TABLE: Final[Table] = (
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
    ("bitcast", "e", 0.15, "iu", 1, (
        "lax.bitcast_convert_type({x}.astype(jnp.uint32), jnp.int32)", "lax.bitcast_convert_type({x}.astype(jnp.int32), jnp.uint8)",
        "lax.bitcast_convert_type({x}.astype(jnp.int16), jnp.uint16)",
    )),
    ("integer", "e", 0.12, "iu", 0, (
        "{x} // {y}", "{x} % {y}", "lax.div({x}, {s})", "lax.rem({x}, {s})", "jnp.divmod({x}, {s})", "jnp.floor_divide({x}, -1)", "lax.div({x}, jnp.asarray(-1, {d}))",
        "jnp.remainder({x}, {s})", "jnp.fmod({x}, {s})", "{x} ** {n}" , "{x} ** 5", "lax.integer_pow({x}, 7)", "jnp.power({x}, jnp.abs({s}) % 5)", "jnp.power({x}, 0)",
        "{x} << {s}", "{x} >> {s}", "lax.shift_left({x}, {s})", "lax.shift_right_logical({x}, {s})", "lax.shift_right_arithmetic({x}, {s})", "{x} << {w}", "{x} >> {w}",
        "lax.shift_left({x}, jnp.asarray({w}).astype({d}))", "lax.shift_right_logical({x}, jnp.asarray({w}).astype({d}))", "lax.shift_right_arithmetic({x}, jnp.asarray({w}).astype({d}))",
        "jnp.left_shift({x}, {s} & 3)", "jnp.right_shift({x}, {s} & 3)", "jnp.bitwise_left_shift({x}, 2)", "jnp.bitwise_right_shift({x}, 2)", "jnp.bitwise_and({x}, {y})", "jnp.bitwise_or({x}, {y})",
        "jnp.bitwise_xor({x}, {y})", "jnp.bitwise_not({x})", "jnp.bitwise_invert({x})", "lax.bitwise_and({x}, {s})", "lax.bitwise_or({x}, {s})", "lax.bitwise_xor({x}, {s})", "lax.bitwise_not({x})",
        "lax.abs({x})", "lax.sign({x})", "lax.neg({x})", "lax.square({x})", "lax.clamp(jnp.asarray(1, {d}), {x}, jnp.asarray(5, {d}))", "lax.max({x}, {s})", "lax.min({x}, {s})",
        "jnp.lcm({x} % 20, {s} % 30)", "jnp.gcd({x}, 12)", "jnp.negative({x})", "jnp.abs(-{x})", "jnp.square({x})", "jnp.maximum({x}, 3)", "~{x} & {s}", "jnp.sign(-{x})",
        "{x}.astype({q})", "{x} - {x}.astype({q}).astype({d})", "jnp.astype({x}, {q})", "{x}.astype({q}) + 1", "jnp.where({x} > 0, {x}, -{x})", "jnp.signbit({x})", "jnp.clip({x}, {s}, 50)",
        "jnp.unravel_index({x} % 20, (4, 5))", "jnp.ravel_multi_index(({x} % 3, {s} % 4), (3, 4), mode='wrap')", "jnp.isin({x}, jnp.array([0, 1, -1, 3]))",
        "jnp.equal({x}, {y})", "jnp.not_equal({x}, {y})", "jnp.greater({x}, {y})", "jnp.greater_equal({x}, {y})", "jnp.less({x}, {y})", "jnp.less_equal({x}, {y})", "jnp.rint({x})", "jnp.round({x}, -1)",
        "jnp.trunc({x})", "jnp.floor({x})", "jnp.conj({x})", "jnp.mod({x}, 7)", "jnp.mod({x}, -7)", "jnp.floor_divide({x}, 7)", "{x} // -3", "lax.rem({x}, jnp.asarray(7, {d}))", "lax.div({x}, jnp.asarray(3, {d}))",
        "jnp.packbits({x} > 0)", "jnp.unpackbits({x}.astype(jnp.uint8))", "lax.population_count(~{x})", "lax.clz({x} >> 2)", "jnp.ldexp(jnp.float32(1.5), {x} % 20)",
    )),
    ("integer reduction", "e", 0.12, "iu", 1, (
        "jnp.sum({x}, {e}, dtype={q})", "jnp.prod({x}, {e}, dtype={q})", "jnp.cumsum({x}, {a}, dtype={q})", "jnp.mean({x}, {a}) > 1", "jnp.max({x}, {e}, initial=3)", "jnp.sum({x}, {a}, where={x} > 1, initial=2)",
        "lax.reduce_sum({x}, ({a} % {x}.ndim,))", "lax.reduce_max({x}, ({a} % {x}.ndim,))", "lax.reduce_min({x}, ({a} % {x}.ndim,))", "lax.reduce_prod({x}, ({a} % {x}.ndim,))", "lax.reduce_or({x}, ({a} % {x}.ndim,))",
        "lax.argmax({x}, {a} % {x}.ndim, jnp.int32)", "lax.argmin({x}, {a} % {x}.ndim, jnp.int16)", "lax.cumsum({x}, {a} % {x}.ndim, reverse={k})", "lax.cumprod({x}, {a} % {x}.ndim, reverse={k})", "lax.cummin({x}, {a} % {x}.ndim, reverse={k})",
        "lax.reduce({x}, jnp.zeros((), {d}), lax.bitwise_xor, ({a} % {x}.ndim,))", "lax.reduce({x}, jnp.ones((), {d}), lambda p, q: p * q, ({a} % {x}.ndim,))", "lax.reduce({x}, jnp.asarray(jnp.iinfo({d}).min, {d}), lax.max, tuple(range({x}.ndim)))",
        "jnp.add.reduce({x}, axis={a})", "jnp.multiply.reduce({x}, axis={a})", "jnp.bitwise_or.reduce({x}, axis={a})", "jnp.maximum.accumulate({x}, axis={a})", "jnp.add.accumulate({x}, axis={a})", "jnp.add.reduceat({x}, jnp.array([0, 0])) if {x}.shape[0] else {x}",
        "jnp.ptp({x}, {a})", "jnp.trace({x}) if {x}.ndim > 1 else {x}", "jnp.unique({x}, size=5, fill_value=0)", "jnp.unique({x}, return_index={k}, return_inverse={k}, return_counts=True, size=4, fill_value=1) if {x}.size else {x}",
        "jnp.unique_values({x}, size=3, fill_value=0)", "jnp.unique_counts({x}, size=3, fill_value=0)[1]", "jnp.unique_inverse({x}, size=3, fill_value=0)[0]", "jnp.unique_all({x}, size=3, fill_value=0)[0]",
        "jnp.union1d({x}, {s}, size=6, fill_value=0)", "jnp.intersect1d({x}, {s}, size=4, fill_value=0)", "jnp.setdiff1d({x}, {s}, size=4, fill_value=0)", "jnp.setxor1d({x}, {s}, size=4, fill_value=0)",
        "jnp.nonzero({x}, size=4, fill_value=0)[0]", "jnp.flatnonzero({x} > 1, size=5, fill_value=-1)", "jnp.argwhere({x} > 0, size=4, fill_value=0)", "jnp.where({x} > 1, size=3, fill_value=1)[0]", "jnp.extract({x} > 0, {x}, size=min(4, {x}.size), fill_value=0) if {x}.size else {x}",
        "jnp.compress({x}.reshape(-1) > 0, {x}.reshape(-1), size=min(4, {x}.size), fill_value=0) if {x}.size else {x}", "jnp.argpartition({x}, {v} - 1) // 999", "jnp.partition({x}, {v} - 1)[..., {v} - 1]", "jnp.lexsort((({x} & 1).reshape(-1), {s}.reshape(-1)))",
        "lax.sort_key_val({x} & 3, {s}, dimension={a})", "lax.sort(({x} & 1, {s}, -{x}), dimension={a} % {x}.ndim, num_keys=2, is_stable=True)", "lax.sort({x}, dimension={a} % {x}.ndim)", "lax.top_k({x}, {v})", "lax.top_k({x}, {v}, axis=-1)[1]",
        "jnp.argsort({x}, {a}, descending={k}, stable=True)", "jnp.sort({x}, {a}, descending={k})", "jnp.searchsorted(jnp.sort({x}.reshape(-1)), {s}.reshape(-1), side='right')", "jnp.searchsorted(jnp.sort({x}.reshape(-1)), {s}, method='compare_all')",
        "jnp.bincount({i}.reshape(-1), length=6)", "jnp.digitize({x}, jnp.array([-3, 0, 2]), right={k})", "jnp.histogram({x}, jnp.array([-10, 0, 3, 50]))[0]", "jnp.nansum({x}, {a})", "jnp.all({x} > 0, {e}, keepdims={k})", "jnp.nanmax({x}, {a})",
        "jnp.count_nonzero({x}, {e}, keepdims={k})", "jnp.median({x}, {a}) > 1", "jnp.cumulative_sum({x}, axis={a}, include_initial={k})", "jnp.cumulative_prod({x}, axis={a}, dtype={q}, include_initial={k})", "jnp.ediff1d({x})", "jnp.trapezoid({x}, axis={a}) > 0",
        "jnp.cross({x}[..., :3], {s}[..., :3]) if {x}.shape[-1] > 2 else {x}", "jnp.vander({x}[:5].reshape(-1)[:5], 3)", "jnp.apply_along_axis(lambda row: row[::-1], {a}, {x}) if {x}.size else {x}", "jnp.apply_over_axes(jnp.sum, {x}, [0])",
    )),
    ("logic", "e", 0.1, "b", 0, (
        "jnp.logical_or({x}, {y})", "jnp.logical_xor({x}, {y})", "jnp.logical_not({x})", "{x} + {y}", "{x} * {y}", "{x} == {y}", "{x} < {y}", "jnp.maximum({x}, {y})", "lax.bitwise_xor({x}, {s})", "lax.select({x}, {s}, ~{x})",
        "jnp.where({x}, 2, 0.5)", "lax.select_n({x}, {s}, {x})", "{x}.astype(jnp.bfloat16)", "{x}.max() if {x}.size else {x}", "{x}.prod()", "{x} & True", "jnp.packbits({x})", "jnp.count_nonzero({x})", "{x} ** 2", "jnp.bitwise_count({x}.astype(jnp.int8))",
    )),
    ("logic", "e", 0.1, "b", 1, (
        "lax.reduce_and({x}, ({a} % {x}.ndim,))", "lax.reduce_or({x}, ({a} % {x}.ndim,))", "lax.reduce_xor({x}, ({a} % {x}.ndim,))", "jnp.argmax({x}, {a})", "jnp.cumsum({x}, {a})", "jnp.sort({x}, {a})", "jnp.argsort({x}, {a})", "jnp.sum({x}, {e}, dtype={q})", "jnp.mean({x}, {a}) > 0.5",
        "jnp.logical_and.reduce({x}, axis={a})", "jnp.nonzero({x}, size=4, fill_value=0)", "{x}.at[{h}].set(True, mode={g})", "{x}.at[{h}].max(True, mode={g})", "{x}.at[0].set(~{x}[0]) if {x}.shape[0] else {x}", "lax.top_k({x}.astype(jnp.int32), {v})[1]",
    )),
)  # fmt: skip


INTEGERS: Final = rows(_TABLE)
