"""Rows that reduce: sums, softmax, normalizations, windows, sorts."""

from __future__ import annotations

from typing import Any, Final

from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import Production, Unfit
from nxjax.testing.writer import MEDIUM, Draw

_TABLE: Final[Table] = (
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
    ("pool", "s", 0.3, "f", 2, (
        "lax.reduce_window({x}, -jnp.inf, lax.max, (1,) * ({x}.ndim - 1) + (2,), (1,) * ({x}.ndim - 1) + (2,), 'SAME')",
        "lax.reduce_window({x}, 0.0, lax.add, (1,) * ({x}.ndim - 2) + (3, 2), (1,) * {x}.ndim, 'SAME')",
        "lax.reduce_window({x}, 0.0, lax.add, (1,) * ({x}.ndim - 1) + (2,), (1,) * {x}.ndim, 'VALID', window_dilation=(1,) * ({x}.ndim - 1) + (2,))",
    )),
    ("reduction", "s", 0.15, "f", 1, (
        "lax.reduce_sum({x}, ({a} % {x}.ndim,))", "lax.reduce_max({x}, ({a} % {x}.ndim,))", "lax.reduce_min({x}, ({a} % {x}.ndim,))", "lax.reduce_prod(jnp.tanh({x}), ({a} % {x}.ndim,))",
        "lax.reduce({x}, jnp.zeros((), {d}), lax.add, ({a} % {x}.ndim,))", "lax.reduce({x}, jnp.asarray(-jnp.inf, {d}), lax.max, tuple(range({x}.ndim)))", "lax.reduce({x}, jnp.asarray(0, {d}), lambda p, q: p + q, ({a} % {x}.ndim,))",
        "jnp.sum({x}, {e}, where={x} > {c}, initial={c})", "jnp.max({x}, {e}, initial={c})", "jnp.max({x}, {e}, where={s} > 0, initial=-2)", "jnp.min({x}, {a}, where={s} > 0, initial=9, keepdims={k})", "jnp.mean({x}, {a}, where={s} > -9)",
        "jnp.var({x}, {e}, ddof={k})", "jnp.std({x} + {s} * 2, {a}, keepdims={k}) + 1", "jnp.sum({x}, {e}, dtype=jnp.float32)", "jnp.mean({x}, {e}, dtype={t})", "jnp.amax({x}, {a})", "jnp.amin({x}, {e}, keepdims={k})", "jnp.trace({x}) if {x}.ndim > 1 else {x}",
        "jnp.add.reduce({x}, axis={a}, keepdims={k})", "jnp.logaddexp.reduce({x}, axis={a})", "jnp.maximum.reduce({x}, axis={a})", "jnp.multiply.reduce(jnp.tanh({x}), axis={a})", "jnp.add.outer({x}[:3], {s}[:2]) if {x}.size < 200 else {x}",
        "jnp.trapezoid({x}, axis={a})", "jnp.trapezoid({x}, dx=0.1)", "jnp.nancumsum({x}, {a})", "jnp.gradient({x}, axis={a}) if min({x}.shape) > 1 else {x}", "jnp.cov({x}[:4].reshape({x}[:4].shape[0], -1)) if {x}.shape[0] > 1 and {x}[0].size > 2 else {x}",
        "jnp.linalg.vector_norm({x} + 3, axis={a}, keepdims={k})", "jnp.linalg.norm({x} * {x} + 0.5, 1, {a})", "jnp.linalg.norm({x} + 2, jnp.inf, {a})", "jnp.linalg.matrix_norm({x}) if {x}.ndim > 1 and {x}.size else {x}",
        "jnp.cumulative_sum({x}, axis={a}, include_initial={k})", "jnp.cumulative_prod(jnp.tanh({x}), axis={a}, include_initial={k})", "jnp.ediff1d({x})", "jnp.apply_along_axis(jnp.cumsum, {a}, {x}) if {x}.size else {x}", "jnp.apply_over_axes(jnp.sum, {x}, [0])",
    )),
    ("rough reduction", "", 0.08, "f", 1, (
        "jnp.nanmin({x}, {a})", "jnp.nanargmax({x}, {a})", "jnp.nanargmin({x}, {a})", "jnp.nanprod(jnp.tanh({x}), {a})", "jnp.nanstd({x}, {a})", "jnp.nanvar({x}, {e}, keepdims={k})", "jnp.nanmedian({x}, {a})", "jnp.nancumprod(jnp.tanh({x}), {a})",
        "jnp.nanquantile({x}, 0.4, {a})", "jnp.nanpercentile({x}, 30, {a})", "jnp.percentile({x}, jnp.array([10, 50]), {a})", "jnp.quantile({x}, 0.5, {a}, method='lower')", "jnp.quantile({x}, jnp.array([0.0, 1.0]), {a}, keepdims={k})", "jnp.std({x}, {e})",
        "lax.argmax({x}, {a} % {x}.ndim, jnp.int32)", "lax.argmin({x}, {a} % {x}.ndim, jnp.int32)", "jnp.corrcoef({x}[:3].reshape({x}[:3].shape[0], -1)) if {x}.shape[0] > 1 and {x}[0].size > 2 else {x}", "jnp.histogram2d({x}.reshape(-1).astype(jnp.float32), {s}.reshape(-1).astype(jnp.float32), 3, [[-2, 2], [-2, 2]])[0]",
        "jnp.histogram_bin_edges({x}, 4, (-1, 1))", "jnp.histogramdd({x}.reshape(-1, 1), 3, [[-2, 2]])[0]", "jnp.unique({x}, size=4, fill_value=0)", "jnp.nonzero({x} > 0, size=3, fill_value=0)[0]", "jnp.flatnonzero({x} > {c}, size=5, fill_value=0)",
        "jnp.argwhere({x} > 0, size=3, fill_value=0)", "jnp.extract({x} > 0, {x}, size=min(4, {x}.size), fill_value=0) if {x}.size else {x}", "jnp.compress({x}.reshape(-1) > 0, {x}.reshape(-1), size=min(4, {x}.size), fill_value=0) if {x}.size else {x}", "jnp.mean({x}, {a}, where={s} > 0)",
        "lax.approx_max_k({x}, {v})[0]", "lax.approx_min_k({x}, {v})[0]", "jnp.nanmean({x}, {e}, keepdims={k})", "jnp.max(jnp.abs({x}), {e}, keepdims={k}) if {x}.size else {x}", "jnp.array_equal({x}, {s}, equal_nan=True)",
    )),
    ("cumulative", "s", 0.2, "f", 1, (
        "lax.associative_scan(jnp.add, {x}, axis={a})", "lax.associative_scan(jnp.maximum, {x}, reverse={k}, axis={a})", "jnp.cumsum({x}, {a}, dtype=jnp.float32)", "jnp.diff({x}, n=2, axis={a})", "jnp.cumsum({x})", "jnp.add.accumulate({x}, axis={a})",
        "lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (jnp.tanh({x}), {s}), axis={a})", "jnp.logaddexp.accumulate({x}, axis={a})", "jnp.flip(jnp.cumsum(jnp.flip({x}, {a}), {a}), {a})",
    )),
    ("softmax", "s", 0.25, "f", 1, (
        "jax.nn.softmax(jnp.where({m}, {x}, -jnp.inf), {a}, where={m}, initial=-1e9) if {m}.ndim <= {x}.ndim else {x}", "jax.nn.logsumexp({x}, {e}, b=jnp.where({s} > 0, {s} + 0.5, {s} - 0.5), return_sign=True)[0]", "jax.nn.softmax(jnp.where({m}, {x}, -1e9), {a})", "jax.nn.log_softmax({x} * 30, {a})",
        "jax.nn.logsumexp({x})", "jax.nn.logmeanexp({x}, {e})", "jax.nn.softmax({x}.astype(jnp.float32), {a}).astype({d})", "jax.nn.standardize({x}, {a}, where={s} > -5, epsilon=1e-2)", "jax.nn.logsumexp({x}, {a}, where={s} > -5)", "jax.nn.log_softmax({x}, {e})",
    )),
    ("sort", "s", 0.2, "f", 1, (
        "lax.top_k({x}, {v})[0]", "lax.top_k({x}, {v}, axis=-1)", "jnp.partition({x}, {v} - 1)[..., {v} - 1]", "lax.sort_key_val({x}, {s}, dimension={a})", "lax.sort([{x}, {s}, {x} * 2], dimension={a} % {x}.ndim, num_keys={k} + 1, is_stable=True)", "jnp.sort({x}, {a}, descending={k}, stable={l})",
        "jnp.sort({x}, None)", "lax.sort({x}, dimension={a} % {x}.ndim, is_stable=False)", "jnp.take_along_axis({x}, jnp.argsort({x}, {a}, descending={k}), {a})", "jnp.median({x} + jnp.arange({x}.size, dtype={d}).reshape({x}.shape) * 0.01, {a}) if {x}.size else {x}",
    )),
    ("sort", "", 0.1, "f", 1, (
        "jnp.argsort({x}, {a}, descending={k}, stable=True)", "jnp.lexsort(({x}.reshape(-1), jnp.round({s}.reshape(-1))))", "jnp.lexsort((jnp.round({x}), {s}), axis={a})", "jnp.searchsorted(jnp.sort({x}.reshape(-1)), {s}, side='right', method='sort')", "jnp.argpartition({x}, {v} - 1) // 9999",
        "jnp.isin(jnp.round({x}), jnp.array([0.0, 1.0]))", "jnp.sort_complex({x})", "jnp.digitize({x}, jnp.array([2.0, 0.5, -1.0]), right={k})",
    )),
)  # fmt: skip


def _reduce_window(draw: Draw) -> str:
    """Windows of any size, step, padding and dilation."""
    r = draw.r
    x = draw.pick("f" if draw.smooth else "fiu", 1, most=MEDIUM, test=lambda v: v.size > 0 and v.ndim < 5)
    each = lambda choices: tuple(r.choice(choices) for _ in range(x.ndim))
    how = r.choice(("add", "add", "max", "max", "min", "mul"))
    if how == "mul" and draw.smooth:
        raise Unfit
    low, high = ("-jnp.inf", "jnp.inf") if x.kind == "f" else (f"jnp.iinfo({x.jnp}).min", f"jnp.iinfo({x.jnp}).max")
    start = {"add": 0, "mul": 1, "max": low, "min": high}[how]
    padding: Any = (
        r.choice(("SAME", "VALID")) if r.random() < 0.5 else list(zip(each((0, 0, 1, 2)), each((0, 1, 3)), strict=True))
    )
    dilations = f", {each((1, 1, 2))}, {each((1, 1, 2))}" if r.random() < 0.4 and not draw.smooth else ""
    value = f"jnp.tanh({x})" if how == "mul" and x.kind == "f" else x
    window = tuple(min(r.choice((1, 1, 2, 3)), n) for n in x.shape)
    return f"lax.reduce_window({value}, jnp.asarray({start}, {x.jnp}), lax.{how}, {window}, {each((1, 1, 2, 3))}, {padding!r}{dilations})"


def _sort(draw: Draw) -> str:
    """Several operands, of which some are keys, in any order of them."""
    r = draw.r
    x = draw.pick("fniub" if not draw.smooth else "f", 1, test=lambda v: v.size > 0)
    others = [
        x,
        *(
            draw.pick("fniubc" if not draw.smooth else "f", test=lambda v: v.shape == x.shape)
            for _ in range(r.randint(1, 3))
        ),
    ]
    keys = sum(1 for v in others if v.kind != "c")
    others.sort(key=lambda v: v.kind == "c")
    axis = r.randrange(x.ndim)
    # Elements that are equal stay in their order, or they could be told apart.
    return f"lax.sort(({', '.join(others)},), dimension={axis}, num_keys={r.randint(1, keys)}, is_stable=True)"


REDUCTIONS: Final = (
    *rows(_TABLE),
    Production(_reduce_window, "pool", smooth=True, weight=1.5),
    Production(_sort, "sort", smooth=True, exact=True, weight=1.5),
)
