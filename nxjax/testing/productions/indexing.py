"""Rows that read and write at indices."""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import Production
from nxjax.testing.writer import MEDIUM, Draw

_TABLE: Final[Table] = (
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
    # Outside, without a mode: the last element, whose cotangent is dropped, as JAX has it.
    ("gather", "e", 0.15, "ficubn", 1, ("{x}.at[{h}].get()",)),
    ("gather", "se", 0.15, "ficubn", 1, (
        "{x}[{h} % {x}.shape[0]]", "{x}.at[{h}].get(mode='clip')", "{x}.at[{h}].get(mode='fill') if {x}.dtype != bool else {x}", "jnp.take({x}, {h}, 0, mode='wrap')", "jnp.take({x}, {h}, 0, mode='clip')", "{x}[{h} % {x}.shape[0], ..., None]",
        "{x}[..., {h} % max(1, {x}.shape[-1])] if {x}.shape[-1] else {x}", "{x}[::2, None]", "{x}[jnp.array([True, False] * {x}.shape[0])[:{x}.shape[0]].nonzero(size=2)[0]] if {x}.shape[0] else {x}", "{x}[({h} % {x}.shape[0])[:, None]]", "{x}[{h} % {x}.shape[0], :1] if {x}.ndim > 1 else {x}", "{x}[..., None, {h} % max(1, {x}.shape[-1])] if {x}.shape[-1] else {x}",
        "jnp.take_along_axis({x}, {i}.reshape(-1)[:1].reshape((-1,) + (1,) * ({x}.ndim - 1)), 0, mode='clip') if {x}.size and {i}.size else {x}", "{x}[-1] if {x}.shape[0] else {x}", "{x}[..., -1:]", "lax.dynamic_slice_in_dim({x}, {h}[0], {x}.shape[0] // 2 + 1, 0)", "lax.dynamic_index_in_dim({x}, {h}[0], 0)", "lax.dynamic_slice({x}, [{h}[0].astype(jnp.int8)] + [jnp.int8(0)] * ({x}.ndim - 1), (1, *{x}.shape[1:]))",
        "lax.index_take({x}, ({h} % {x}.shape[0],), (0,))", "jnp.take({x}, {h} % {x}.size) if {x}.size else {x}", "jnp.take({x}, jnp.int32({n}), {a}, mode='clip') if {x}.size else {x}", "lax.dynamic_slice({x}, tuple({h}[:1].sum() + k for k in range({x}.ndim)), [(n + 1) // 2 for n in {x}.shape])", "jnp.array([{x}.ravel()[0], {x}.ravel()[-1]]) if {x}.size else {x}",
        "{x}[{i}.reshape(-1)[:3].astype(jnp.uint8) % {x}.shape[0]] if 0 < {x}.shape[0] < 200 else {x}", "{x}[jnp.zeros((0,), jnp.int32)]", "{x}[jnp.array([[0], [-1]]), ...] if {x}.shape[0] else {x}", "{x}[jnp.arange({x}.shape[0]), ..., 0] if {x}.ndim > 1 and {x}.size else {x}", "{x}[0, ..., jnp.array([0, -1])] if {x}.ndim > 2 and {x}.size else {x}",
    )),
    ("scatter", "se", 0.15, "ficubn", 1, (
        "{x}.at[{h}].set({s}[0], mode={g}) if {x}.shape[0] else {x}", "{x}.at[..., {n}:].set({s}[..., {n}:])", "{x}.at[{h} % {x}.shape[0], ..., 0].set({s}[0, ..., 0]) if {x}.ndim > 1 and {x}.size else {x}", "lax.dynamic_update_slice({x}, {s}[-1:], [{h}[0]] + [{h}[-1]] * ({x}.ndim - 1)) if {x}.shape[0] else {x}",
        "lax.dynamic_update_slice_in_dim({x}, {s}[:2], {h}[0], 0)", "lax.dynamic_update_index_in_dim({x}, {s}[0], {h}[0], 0)", "{x}.at[jnp.zeros((0,), jnp.int32)].set({x}[:0])", "{x}.at[::-1].set({s})", "{x}.at[:].set({s})", "{x}.at[...].set(jnp.ones((), {d}))", "{x}.at[jnp.arange({x}.shape[0])].set({s}, unique_indices=True, indices_are_sorted=True)",
        "jnp.put({x}, {h}, 1, mode='clip', inplace=False)", "jnp.put({x}, {h}, 1, mode='wrap', inplace=False)", "{x}.at[{h}, 0].set(1, mode={g}) if {x}.ndim > 1 and {x}.size else {x}", "lax.dynamic_update_slice({x}, {x}[:1, ..., :1] if {x}.ndim > 1 else {x}[:1], ({h}[0],) * {x}.ndim)", "{x}.at[{h}].set({s}[:1], mode={g}, indices_are_sorted=False)",
    )),
    ("scatter", "s", 0.15, "f", 1, (
        "{x}.at[{h}].add({s}[0], mode={g})", "{x}.at[{h}].subtract({c}, mode={g})", "{x}.at[{h}].mul({c}, mode={g})", "{x}.at[{h}].divide(1 + {c} * {c}, mode={g})", "{x}.at[{h}].min({c}, mode={g})", "{x}.at[{h}].max({s}[-1], mode={g})", "{x}.at[{n} % {x}.shape[0]].power(2) if {x}.shape[0] else {x}", "{x}.at[{h}].add(jnp.ones(({h}.shape[0], *{x}.shape[1:]), {d}), mode={g})",
        "{x}.at[..., {i}.reshape(-1)[:4]].add({c}, mode={g})", "{x}.at[:, {h} % 2].add({c}, mode={g}) if {x}.ndim > 1 else {x}", "jnp.add.at({x}, {h}, {c}, inplace=False)", "jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) % 3, 4, mode='clip')", "jax.ops.segment_sum({x}, jnp.sort(jnp.arange({x}.shape[0]) % 3), 3, indices_are_sorted=True)", "jax.ops.segment_prod(jnp.tanh({x}), jnp.arange({x}.shape[0]) // 2, {x}.shape[0] // 2 + 1)",
        "jax.ops.segment_min({x}, jnp.arange({x}.shape[0]) % 2, 2) if {x}.shape[0] > 1 else {x}", "jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) - 1, 3)", "jax.ops.segment_sum({x}, jnp.zeros({x}.shape[0], jnp.int32), 2, bucket_size=2) if {x}.shape[0] else {x}", "jnp.zeros((4, *{x}.shape[1:]), {d}).at[jnp.arange({x}.shape[0]) % 5].add({x}, mode={g})", "{x}.at[{h}].add({x}[{h} % {x}.shape[0]], mode={g})",
    )),
    # In reverse, only where equal indices are known.
    ("scatter", "", 0.15, "f", 1, ("lax.scatter_apply({x}.reshape(-1), {h}[:, None], jnp.sin, lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)), update_shape={h}.shape, mode='clip') if {x}.size else {x}", "{x}.at[{h}].apply(jnp.sin, mode={g})")),
    ("scatter", "e", 0.15, "iu", 1, (
        "{x}.at[{h}].add({s}[0], mode={g})", "{x}.at[{h}].subtract(3, mode={g})", "{x}.at[{h}].mul(3, mode={g})", "{x}.at[{h}].min({s}[-1], mode={g})", "{x}.at[{h}].max({s}[-1], mode={g})", "{x}.at[{h}].apply(lambda v: v * 2 + 1, mode={g})", "{x}.at[..., {h} % max(1, {x}.shape[-1])].add({x}[..., :1]) if {x}.size else {x}", "jax.ops.segment_max({x}, jnp.arange({x}.shape[0]) // 2, {x}.shape[0] // 2 + 2)",
        "jax.ops.segment_prod({x}, jnp.arange({x}.shape[0]) % 2, 3)", "jax.ops.segment_min({x}, {x}.reshape({x}.shape[0], -1)[:, 0].astype(jnp.int32) % 3, 4) if {x}.size else {x}", "jnp.multiply.at({x}, {h}, 3, inplace=False)", "{x}.at[{h}].add({s}[0].astype(jnp.int8), mode={g})", "{x}.at[{h}].power(2, mode={g})",
        "jnp.zeros(5, {d}).at[{x}.reshape(-1).astype(jnp.int32)].add(1, mode={g})", "jnp.bincount({x}.reshape(-1).astype(jnp.int32) % 5, weights=jnp.ones({x}.size), length=5)",
    )),
)  # fmt: skip


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


_LAX_SCATTERS: Final = ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
_MODES: Final = ("None", "'clip'", "'drop'", "'fill'", "'promise_in_bounds'")


def _lax_scatter(draw: Draw) -> str:
    """An update of windows, at places that may be equal or outside, along any axes."""
    r = draw.r
    x = draw.pick("f" if draw.smooth else "fiuc", 1, most=MEDIUM, test=lambda v: v.size > 0 and v.ndim < 4)
    count = r.choice((1, 1, 2, 3))
    axes = tuple(sorted(r.sample(range(x.ndim), r.randint(1, x.ndim))))
    gone = tuple(a for a in axes if r.random() < 0.6)
    window = [n if r.random() < 0.5 else r.randint(1, n) for n in x.shape]
    window = [1 if a in gone else n for a, n in enumerate(window)]
    name, mode = r.choice(_LAX_SCATTERS), r.choice(_MODES)
    inside = mode == "'promise_in_bounds'" or r.random() < 0.3
    low = lambda a: 0 if inside else -2
    high = lambda a: x.shape[a] - window[a] if inside else x.shape[a] + 1
    places = [[r.randint(low(a), max(low(a), high(a))) for a in axes] for _ in range(count)]
    if name in ("scatter", "scatter_mul"):  # which of several comes last is nobody's promise, and has no derivative
        places = places[:1]
    kept = tuple(n for a, n in enumerate(window) if a not in gone)
    numbers = (
        f"lax.ScatterDimensionNumbers(update_window_dims={tuple(range(1, 1 + len(kept)))}, inserted_window_dims={gone}, "
        f"scatter_dims_to_operand_dims={axes})"
    )
    updates = f"jnp.resize({draw.pick(x.kind, like=x)}, {(len(places), *kept)})"
    unique = f", unique_indices={len(places) == 1}"
    return f"lax.{name}({x}, jnp.array({places}), {updates}, {numbers}, mode={mode}{unique})"


def _lax_gather(draw: Draw) -> str:
    """Windows at places that may lie outside, along any axes."""
    r = draw.r
    x = draw.pick("f" if draw.smooth else "fiucbn", 1, most=MEDIUM, test=lambda v: v.size > 0 and v.ndim < 5)
    axes = tuple(r.sample(range(x.ndim), r.randint(1, x.ndim)))
    gone = tuple(sorted(a for a in axes if r.random() < 0.5))
    window = tuple(1 if a in gone else n if r.random() < 0.5 else r.randint(1, n) for a, n in enumerate(x.shape))
    mode = r.choice(_MODES)
    inside = mode in ("None", "'promise_in_bounds'") or r.random() < 0.3
    places = [
        [r.randint(0, x.shape[a] - window[a]) if inside else r.randint(-2, x.shape[a] + 1) for a in axes]
        for _ in range(r.choice((1, 2, 3)))
    ]
    kept = x.ndim - len(gone)
    numbers = (
        f"lax.GatherDimensionNumbers(offset_dims={tuple(range(1, 1 + kept))}, collapsed_slice_dims={gone}, "
        f"start_index_map={axes})"
    )
    return f"lax.gather({x}, jnp.array({places}), {numbers}, {window}, mode={mode})"


def _dynamic(draw: Draw) -> str:
    """A slice, read or written, that begins anywhere: its place is moved into the array."""
    r = draw.r
    x = draw.pick("f" if draw.smooth else "fiucbn", 1, test=lambda v: v.size > 0)
    sizes = tuple(r.choice((n, max(1, n // 2), 1)) for n in x.shape)
    dtype = r.choice(("int32", "int8", "uint8", "int16", "uint32"))
    start = lambda n: r.choice((0, n - 1, n, n + 3, 100) if dtype[0] == "u" else (0, n - 1, n, -1, -n, -n - 2, 100))
    starts = ", ".join(f"jnp.asarray({min(start(n), 127)}, jnp.{dtype})" for n in x.shape)
    if r.random() < 0.5:
        return f"lax.dynamic_slice({x}, ({starts},), {sizes})"
    return f"lax.dynamic_update_slice({x}, jnp.resize({draw.pick(x.kind, like=x)}, {sizes}), ({starts},))"


_ONE: Final = ("add", "subtract", "multiply", "divide", "min", "max", "set")


def _at_rows(draw: Draw) -> str:
    """Updates of rows, columns or slices between them, each of another value; equal places only where order is nothing."""
    r = draw.r
    x = draw.pick("f" if draw.smooth else "fiu", 2, most=MEDIUM, test=lambda v: v.size > 0)
    how = r.choice(_ONE if x.kind == "f" else tuple(n for n in _ONE if n != "divide"))
    spread = range(-x.shape[0] - 1, x.shape[0] + 1)
    if how in ("add", "subtract") or (how in ("min", "max") and not draw.smooth):
        at = [r.choice(spread) for _ in range(r.randint(1, 4))]
    else:
        at = r.sample(range(x.shape[0]), r.randint(1, min(4, x.shape[0])))
    rest = r.choice(("", ", 0", ", ::2", ", -1:", ", ..., None"))
    value = f"jnp.resize({draw.pick(x.kind, like=x)}, {x}[jnp.array({at}){rest}].shape)"
    value = f"jnp.tanh({value}) + 2" if how == "divide" else value
    return f"{x}.at[jnp.array({at}){rest}].{how}({value}, mode={r.choice(_MODES[:4])})"


INDEXING: Final = (
    *rows(_TABLE),
    Production(_take, "gather", smooth=True, exact=True, weight=3),
    Production(_along, "gather", smooth=True, exact=True, weight=3),
    Production(_at, "scatter", smooth=True, weight=3),
    Production(_at_rows, "scatter", smooth=True, weight=3),
    Production(_lax_gather, "gather", smooth=True, exact=True, weight=2),
    Production(_lax_scatter, "scatter", smooth=True, weight=2),
    Production(_dynamic, "dynamic slice", smooth=True, exact=True, weight=3),
)
