"""Rows with derivatives that a program writes itself, with trees of values, mapped axes and higher derivatives.

They define inner functions, as those of `nxjax.testing.productions.nested` do.
"""

from __future__ import annotations

from typing import Final

import nxjax
from nxjax.testing.productions.nested import any_, floats, function, points, scalar, tangents
from nxjax.testing.productions.templates import Table, rows
from nxjax.testing.steps import GeneratedVar, Production, Unfit
from nxjax.testing.writer import MEDIUM, Draw

_SMALL: Final = 300


def _alone(draw: Draw) -> tuple[str, tuple[GeneratedVar, ...]]:
    """A function of floats that uses nothing from around it: what has a rule of its own may not."""
    xs = floats(draw)
    return draw.block([x.value for x in xs], ("f",), smooth=True, alone=True), xs


def _custom_jvp(draw: Draw) -> str:
    f, xs = _alone(draw)
    rule = f"lambda ps, ts: jax.jvp({f}, ps, ts)"
    made = f"(lambda h: (h.defjvp({rule}), h)[1])(jax.custom_jvp({f}))"
    return _used(draw, made, xs)


def _custom_vjp(draw: Draw) -> str:
    """What its derivative keeps is a function, the arguments, or a tree of both."""
    f, xs = _alone(draw)
    names = ", ".join("ab"[: len(xs)])
    forward, back = draw.r.choice(
        (
            (f"lambda {names}: jax.vjp({f}, {names})", "lambda kept, ct: kept(ct)"),
            (f"lambda *ps: ({f}(*ps), ps)", f"lambda kept, ct: jax.vjp({f}, *kept)[1](ct)"),
            (f"lambda *ps: ({f}(*ps), {{'p': ps, 'n': None}})", f"lambda kept, ct: jax.vjp({f}, *kept['p'])[1](ct)"),
        )
    )
    made = f"(lambda h: (h.defvjp({forward}, {back}), h)[1])(jax.custom_vjp({f}))"
    return _used(draw, made, xs, reverse=True)


def _used(draw: Draw, made: str, xs: tuple[GeneratedVar, ...], reverse: bool = False) -> str:
    """A function with a rule, called, and differentiated inside of other transforms."""
    given = ", ".join(xs)
    names = ", ".join("ab"[: len(xs)])
    sum_ = f"lambda {names}: jnp.sin({made}({names})).sum()"
    ways = [
        f"{made}({given})",
        f"jax.jit({made})({given})",
        f"jax.grad({sum_})({given})",
        f"jax.value_and_grad({sum_})({given})",
        f"jax.vjp({made}, {given})[1](jnp.cos({made}({given})))",
        f"jax.grad(jax.checkpoint({sum_}))({given})",
        f"jax.jit(jax.grad({sum_}))({given})",
        f"jax.grad(lambda p: lax.scan(lambda c, _: (c + ({sum_})(p, {', '.join(xs[1:])}), None), 0 * ({sum_})({given}), None, length=2)[0])({xs[0]})",
        f"jax.vmap(jax.grad({sum_}))({', '.join(f'jnp.stack([{x}, {x} * 0.5])' for x in xs)})",
        f"jax.vmap({made}, out_axes=-1)({', '.join(f'jnp.stack([{x}, {x} * 0.5])' for x in xs)})",
        f"jax.grad(lambda {names}: lax.cond(jnp.sum(a) > 0, {sum_}, lambda {names}: jnp.sum(a) * 0, {names}))({given})",
    ]
    if not reverse:
        ways += [
            f"jax.jvp({made}, ({points(xs)}), ({tangents(xs)}))",
            f"jax.grad(lambda a: jax.grad({sum_})(a, {', '.join(xs[1:])}).sum())({xs[0]})",
            f"jax.linearize({made}, {given})[1]({', '.join(f'jnp.cos({x})' for x in xs)})",
        ]
    return draw.r.choice(ways)


# Functions with a rule that is not their derivative, or that takes parts of its arguments for constants.
_RULES: Final[Table] = (
    ("custom_jvp", "s", 0.4, "f", 0, (
        "(lambda h: (h.defjvps(lambda t, y, a: t * jnp.cos(a)), h)[1])(jax.custom_jvp(jnp.sin))({x})",
        "(lambda h: (h.defjvps(lambda t, y, a, b: t * b, lambda t, y, a, b: t * a), h)[1])(jax.custom_jvp(lambda a, b: a * b))(jnp.tanh({x}), {s})",
        "(lambda h: (h.defjvps(lambda t, y, a, b: t, None), h)[1])(jax.custom_jvp(lambda a, b: a + b))({x}, jnp.zeros((), {d}))",
        "(lambda h: (h.defjvp(lambda n, ps, ts: (jnp.sin(n * ps[0]), n * jnp.cos(n * ps[0]) * ts[0])), h)[1])(jax.custom_jvp(lambda n, a: jnp.sin(n * a), nondiff_argnums=(0,)))({n}, {x})",
        "(lambda h: (h.defjvp(lambda ps, ts: ({{'u': jnp.sin(ps[0]['p']), 'v': (ps[0]['q'], None)}}, {{'u': jnp.cos(ps[0]['p']) * ts[0]['p'], 'v': (ts[0]['q'], None)}})), h)[1])"
        "(jax.custom_jvp(lambda t: {{'u': jnp.sin(t['p']), 'v': (t['q'], None)}}))({{'p': {x}, 'q': {s}}})['u']",
    )),
    ("custom_vjp", "", 0.4, "f", 0, (
        "jax.grad(lambda a: (lambda h: (h.defvjp(lambda n, b: (jnp.sin(n * b), (b,)), lambda n, kept, ct: (ct * n * jnp.cos(n * kept[0]),)), h)[1])(jax.custom_vjp(lambda n, b: jnp.sin(n * b), nondiff_argnums=(0,)))({n}, a).sum())({x})",
        "jax.grad(lambda a: (lambda h: (h.defvjp(lambda b, n, g: (g(b) * n, (b, n)), lambda n, g, kept, ct: (jax.vjp(g, kept[0])[1](ct * n)[0],)), h)[1])(jax.custom_vjp(lambda b, n, g: g(b) * n, nondiff_argnums=(1, 2)))(a, {n}, jnp.tanh).sum())({x})",
        "jax.grad(lambda p: (lambda h: (h.defvjp(lambda t: (t['u'] * t['v'][0], t), lambda t, ct: ({{'u': ct * t['v'][0], 'v': (ct * t['u'], None)}},)), h)[1])(jax.custom_vjp(lambda t: t['u'] * t['v'][0]))({{'u': p, 'v': (jnp.tanh(p), None)}}).sum())({x})",
        "jax.grad(lambda a: (lambda h: (h.defvjp(lambda b, i: (b * i, (i, b)), lambda kept, ct: (ct * kept[0], None)), h)[1])(jax.custom_vjp(lambda b, i: b * i))(a, jnp.int32({n})).sum())({x})",
        "jax.vmap(jax.grad(lambda a, b: (lambda h: (h.defvjp(lambda p, q: (p * q, (p, q)), lambda kept, ct: (ct * kept[1], ct * kept[0])), h)[1])(jax.custom_vjp(lambda p, q: p * q))(a, b).sum()), in_axes=(0, None))(jnp.stack([{x}, {s}]), {s})",
    )),
    ("stop_gradient", "s", 0.2, "f", 0, ("lax.stop_gradient({x}) + {s}", "{x} * lax.stop_gradient(jnp.sin({x}))")),
    ("own rule", "s", 0.3, "f", 0, (
        "{x} + lax.stop_gradient(jnp.round({x}) - {x})", "(lambda h: (h.defjvps(lambda t, y, a: 2 * t), h)[1])(jax.custom_jvp(lambda a: jnp.round(a)))({x})", "jax.jvp((lambda h: (h.defjvps(lambda t, y, a: 3 * t), h)[1])(jax.custom_jvp(jnp.floor)), ({x},), ({s},))[1]",
    )),
    ("own rule", "", 0.3, "f", 0, (
        "jax.grad(lambda a: (lambda h: (h.defvjp(lambda b: (jnp.floor(b), None), lambda kept, ct: (jnp.clip(ct, -0.5, 0.5),)), h)[1])(jax.custom_vjp(jnp.floor))(a * 3).sum())({x})",
        "jax.grad(lambda a: jnp.sum(a * lax.stop_gradient(jnp.sin(a))))({x})", "jax.grad(lambda a: jnp.sum(jax.lax.stop_gradient({{'k': a}})['k'] * a))({x})",
    )),
    ("rule for vmap", "s", 0.3, "f", 1, (
        "jax.vmap((lambda h: (h.def_vmap(lambda size, mapped, a: (jnp.sin(a), mapped[0])), h)[1])(jax.custom_batching.custom_vmap(jnp.sin)))({x})",
        "jax.vmap(jax.custom_batching.sequential_vmap(lambda a: jnp.tanh(a) * 2))({x}) if {x}.shape[0] else {x}",
    )),
    ("solve", "s", 0.2, "f", 0, (
        "lax.custom_root(lambda v: v ** 3 - jnp.tanh({x}.astype(jnp.float32)) - 2, jnp.ones({x}.shape, jnp.float32), lambda g, v: lax.fori_loop(0, 12, lambda _, u: u - g(u) / (3 * u * u), v), lambda g, y: y / g(jnp.ones_like(y)))",
        "lax.custom_linear_solve(lambda v: 3 * v, {x}, lambda matvec, b: b / 3, lambda vecmat, b: b / 3, symmetric=True)", "jax.linear_transpose(lambda a: a * 3, {x})({s})[0]",
    )),
    ("static argument", "s", 0.2, "f", 0, (
        "jax.jit(lambda a, n: a * n + 1, static_argnums=1)({x}, {n})", "jax.jit(lambda a, how: getattr(jnp, how)(a), static_argnames='how')({x}, how='tanh')", "jax.jit(lambda shape, a: jnp.broadcast_to(a, shape), static_argnums=(0,))((2, *{x}.shape), {x})", "jax.jit(lambda a, *, k=2.5: a * k)({x}, k={c})",
        "jax.jit(lambda a, b=None: a if b is None else a + b)({x})", "jax.jit(jax.jit(lambda a, n: a * n, static_argnums=1), static_argnums=1)({x}, 2)", "jax.named_call(jnp.tanh, name='t')({x})", "jax.jit(lambda t: t[0] * t[1], inline={k})(({x}, 2.0))", "jax.jit(lambda a, n: jnp.sin(a) * n, static_argnums=-1)({x}, 3.0)",
    )),
    ("tree", "s", 0.2, "f", 0, (
        "jax.tree.map(lambda p, q: p + q * {c}, {{'a': {x}, 'b': (None, {s})}}, {{'a': {s}, 'b': (None, {x})}})['b'][1]", "jax.tree.leaves({{'z': {x}, 'a': [{s} * 2, None]}})", "jax.flatten_util.ravel_pytree(({x}, {{'u': {s}}}))[0]", "jax.tree.reduce(lambda p, q: p + q, [{x}, ({s}, None)])",
        "jax.grad(lambda p: (p['w'] * jnp.tanh(p['b'][0])).sum())({{'w': {x}, 'b': ({s}, None)}})['b'][0]", "jax.value_and_grad(lambda p, q: (jnp.sum(p[0] * p[1]['k']), q), has_aux=True)(({x}, {{'k': jnp.sin({s})}}), {s})[1][0]", "jax.jvp(lambda t: {{'r': t['a'] * jnp.sin(t['b'])}}, ({{'a': {x}, 'b': {s}}},), ({{'a': {s}, 'b': {x}}},))[1]['r']",
        "jax.jit(lambda t: {{'u': t[0], 'v': (t[1]['k'] * 2, None)}})(({x}, {{'k': {s}}}))['v'][0]", "jax.vjp(lambda t: (t[0] * jnp.tanh(t[1]),), ({x}, {s}))[1](({s},))[0]", "jax.grad(lambda a, b: jnp.sum(a * jnp.tanh(b)), argnums=(1, 0))({x}, {s})", "jax.checkpoint(lambda t: t['a'] * jnp.sin(t['b']))({{'a': {x}, 'b': {s}}})",
        "jax.checkpoint(lambda a, b: jnp.sin(a) * jnp.tanh(b), policy=jax.checkpoint_policies.nothing_saveable)({x}, {s})", "jax.grad(jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)).sum(), policy=jax.checkpoint_policies.everything_saveable))({x})", "(lambda r: (r.sign, r.logabsdet))(lax.scan(lambda c, _: (type(c)(c.logabsdet, c.sign), None), type(jnp.linalg.slogdet(jnp.eye(1)))({x}, {s}), None, length=3)[0])",
    )),
    ("mapped axis", "s", 0.15, "f", 1, tuple(f"jax.vmap(lambda a: {text}, axis_name='i'{axes})({{x}}) if {{x}}.shape[0] else {{x}}" for text, axes in (
        ("a - lax.pmean(a, 'i')", ""), ("lax.psum(jnp.sin(a), 'i')", ", out_axes=None"), ("lax.pmax(a, 'i') + a", ""), ("a * lax.axis_index('i')", ", out_axes=-1"), ("lax.all_gather(a, 'i')", ""), ("a / lax.axis_size('i')", ""), ("lax.pmin(a, 'i') - a", ""), ("lax.ppermute(a, 'i', [(0, 0)])", ""),
        ("lax.psum(1, 'i') * a", ""), ("lax.psum((a, 2 * a), 'i')[1]", ""), ("lax.all_gather(a, 'i', axis=0, tiled=True) if a.ndim else a", ""), ("lax.psum(a, ('i',))", ""),
    ))),
    ("mapped axis", "s", 0.15, "f", 0, tuple(f"jax.vmap(lambda a: {text}, axis_name='i')(jnp.resize({{x}}, (3, 3, 2))) if {{x}}.size else {{x}}" for text in (
        "lax.all_to_all(a, 'i', 0, 0)", "lax.all_to_all(a, 'i', 0, 1, tiled=True)", "lax.psum_scatter(a, 'i')", "lax.pswapaxes(a, 'i', 0)", "lax.pshuffle(a, 'i', [2, 0, 1])", "lax.ppermute(a, 'i', [(0, 1), (1, 2)])", "lax.pmean(jax.vmap(lambda b: b - lax.psum(b, ('i', 'j')), axis_name='j')(a), 'i')",
    ))),
    ("jit", "s", 0.2, "f", 0, ("lax.platform_dependent({x}, cpu=jnp.sin, default=jnp.cos)", "lax.broadcast_to_rank({x}, {x}.ndim + 1)", "jax.jit(lambda a: lax.dce_sink(jnp.sin(a)) or a * 2)({x})", "jax.closure_convert(lambda a: a * 2, {x})[0]({x})", "jax.ad_checkpoint.checkpoint_name(jnp.sin({x}), 'n')")),
    ("vmap", "s", 0.15, "f", 1, (
        "jax.vmap(lambda t, b: {{'r': t['a'] * 2 + t['b'].sum() + b}}, in_axes=({{'a': -1, 'b': None}}, None), out_axes=0)({{'a': {x}, 'b': {s}}}, {c})['r'] if {x}.shape[-1] else {x}", "jax.vmap(lambda a, b: (a + b, b), in_axes=(0, -1), out_axes=(-1, None if False else 0))({x}.reshape({x}.shape[0], -1), {s}.reshape({x}.shape[0], -1).T) if {x}.size else {x}",
        "jax.vmap(jax.vmap(jnp.dot, (None, 0)), (0, None))({x}.reshape({x}.shape[0], -1)[:5], {s}.reshape({x}.shape[0], -1)[:4]) if {x}.size else {x}", "jax.vmap(lambda a, i: a.at[i].add({c}), (0, 0))({x}, jnp.arange({x}.shape[0]) - 1) if {x}.ndim > 1 and {x}.size else {x}", "jax.vmap(lambda a, i: lax.dynamic_slice_in_dim(a, i, 1), (0, 0))({x}, jnp.arange({x}.shape[0]) - 2) if {x}.ndim > 1 and {x}.size else {x}",
        "jax.vmap(lambda a, i: a[i], (0, 0))({x}, jnp.arange({x}.shape[0])) if {x}.ndim > 1 and {x}.size and {x}.shape[1] >= {x}.shape[0] else {x}", "jax.vmap(lambda a: lax.cond(a.sum() > 0, jnp.sin, lambda b: b * 2, a))({x}) if {x}.size else {x}", "jax.vmap(lambda a, axis_size=2: {x} * 2, axis_size=3, in_axes=None)(0) if {x}.size < 500 else {x}", "jax.vmap(lambda a: jnp.sort(a, axis=None), in_axes={a}, out_axes=-1)({x}) if {x}.ndim > 1 and {x}.size else {x}",
        "jax.vmap(lambda a, b: lax.dynamic_update_slice_in_dim(a, b[:1], 1, 0), in_axes=(-1, -1))({x}, {s}) if {x}.ndim > 1 and {x}.size else {x}", "jax.vmap(lambda v: jnp.convolve(v, jnp.array([1.0, {c}], {d}), 'same'))({x}) if {x}.ndim == 2 and {x}.size else {x}", "jax.vmap(lambda a: jnp.linalg.solve(jnp.eye(2) * 3, jnp.resize(a, (2,)).astype(jnp.float32)))({x}) if {x}.size else {x}",
    )),
    ("higher derivative", "s", 0.3, "f", 0, (
        "jax.grad(jax.grad(jax.grad(lambda a: jnp.sin(a * 1.3))))(jnp.mean({x}))", "jax.hessian(lambda a: jnp.sum(jnp.tanh(a) ** 3))({x}) if {x}.size < 7 else {x}", "jax.jacfwd(jax.jacrev(lambda a: jnp.sin(a) * a.sum()))({x}) if {x}.size < 5 else {x}", "jax.jvp(lambda a: jax.jvp(lambda b: jax.jvp(jnp.tanh, (b,), ({s},))[1], (a,), ({s},))[1], ({x},), ({s},))[1]",
        "jax.jacrev(jax.grad(lambda a: jnp.prod(jnp.sin(a) + 1.5)))({x}) if {x}.size < 7 else {x}", "jax.jacfwd(lambda p: {{'r': p['a'] * p['b']}})({{'a': {x}, 'b': {s}}})['r']['b'] if {x}.size < 7 else {x}", "jax.grad(lambda a: jnp.vdot(jax.grad(lambda b: jax.nn.logsumexp(b * b))(a), a))({x}) if {x}.size else {x}", "jax.jacobian(jnp.cumsum)({x}) if {x}.ndim == 1 and {x}.size < 12 else {x}",
    )),
)  # fmt: skip


def _scan_tree(draw: Draw) -> str:
    """A loop over a dictionary with a tuple and None in it."""
    x, y = any_(draw), any_(draw)
    f = draw.block((x.value, y.value), (x, y))
    start = f"{{'a': {x}, 'b': ({y}, None)}}"
    one = f"lambda c, t: (lambda r: ({{'a': r[0], 'b': (r[1], None)}}, {{'y': r[1], 'n': None, 't': t}}))({f}(c['a'], c['b'][0]))"
    steps = draw.r.choice(
        (
            "None, length=3",
            "jnp.arange(4)",
            "{'k': jnp.arange(2), 'n': None}",
            "None, length=0",
            "jnp.arange(3), reverse=True",
        )
    )
    return f"(lambda r: (r[0]['a'], r[0]['b'][0], r[1]['y']))(lax.scan({one}, {start}, {steps}))"


def _while_tree(draw: Draw) -> str:
    x, y = any_(draw), any_(draw)
    f = draw.block((x.value, y.value), (x, y))
    body = f"lambda c: (lambda r: {{'k': c['k'] + 1, 'v': (r[0], [r[1], None])}})({f}(c['v'][0], c['v'][1][0]))"
    start = f"{{'k': jnp.int32(0), 'v': ({x}, [{y}, None])}}"
    return f"(lambda r: (r['k'], r['v'][0], r['v'][1][0]))(lax.while_loop(lambda c: c['k'] < {draw.r.randint(0, 3)}, {body}, {start}))"


def _vmapped_scan(draw: Draw) -> str:
    """Gradients of a loop for every row, one transform inside of the other."""
    x = draw.pick("f", 2, most=_SMALL, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    row = nxjax.numpy.take(x.value, 0, axis=axis)
    carry = nxjax.numpy.take(row, 0, axis=0)
    f = draw.block((carry, carry), ((carry.shape, str(carry.dtype), False),), smooth=True)
    total = f"lambda a: jnp.sum(lax.scan(lambda c, t: ({f}(c, t), c), a[0], a)[{draw.r.choice((0, 1))}])"
    return f"jax.vmap(jax.grad({total}), in_axes={axis}, out_axes={draw.r.choice((0, -1, axis))})({x})"


def _vmap_axes(draw: Draw) -> str:
    """Two arguments mapped along axes of their own, two results put back along others."""
    x = any_(draw, rank=1, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    count = x.shape[axis]
    y = any_(draw, rank=1, test=lambda v: v.size > 0 and count in v.shape)
    other = y.shape.index(count)
    take = nxjax.numpy.take
    f = draw.block((take(x.value, 0, axis=axis), take(y.value, 0, axis=other)), ("fiucb", "fiucb"))
    return f"jax.vmap({f}, in_axes=({axis}, {other}), out_axes=({draw.r.choice((0, -1))}, {draw.r.choice((0, -1))}))({x}, {y})"


def _nested_vmap(draw: Draw) -> str:
    x = any_(draw, rank=2, test=lambda v: v.size > 0)
    a = draw.r.randrange(x.ndim)
    b = draw.r.randrange(x.ndim - 1)
    sample = nxjax.numpy.take(nxjax.numpy.take(x.value, 0, axis=a), 0, axis=b)
    f = draw.block((sample,), ("fiucb",))
    return f"jax.vmap(jax.vmap({f}, in_axes={b}, out_axes={draw.r.choice((0, -1))}), in_axes={a}, out_axes={draw.r.choice((0, 1))})({x})"


def _third(draw: Draw) -> str:
    """A derivative of a derivative of a derivative, in several modes."""
    x = draw.pick("f", most=8)
    f = scalar(function(draw, (x,)), (x,), draw)
    once = f"lambda b: jax.jvp(jax.grad({f}), (b,), (jnp.cos(b),))[1].sum()"
    return draw.r.choice(
        (
            f"jax.grad({once})({x})",
            f"jax.jvp({once}, ({x},), (jnp.sin({x}),))[1]",
            f"jax.vjp({once}, {x})[1](jnp.ones((), {x.jnp}))[0]",
        )
    )


def _reduce(draw: Draw) -> str:
    """A reduction of two arrays at once: the largest and its place."""
    x = draw.pick("fi", 1, test=lambda v: v.size > 0)
    axis = draw.axis(x) % x.ndim
    low = "-jnp.inf" if x.kind == "f" else f"jnp.iinfo({x.jnp}).min"
    pick = "lambda p, q: (jnp.where(p[0] >= q[0], p[0], q[0]), jnp.where((p[0] > q[0]) | ((p[0] == q[0]) & (p[1] < q[1])), p[1], q[1]))"
    given = f"jnp.nan_to_num({x})" if x.kind == "f" else x  # which of several NaN is found hangs on the order
    return f"lax.reduce(({given}, lax.broadcasted_iota(jnp.int32, {x}.shape, {axis})), (jnp.asarray({low}, {x.jnp}), jnp.int32(2**30)), {pick}, ({axis},))"


def _several(draw: Draw) -> str:
    """Several results that share what they are made of, some of them twice."""
    x = draw.pick("f" if draw.smooth else "fiu", most=MEDIUM)
    f = draw.block((x.value,), ("f" if draw.smooth else "fiu",))
    more = draw.r.choice(
        (
            "(r, r)",
            "(r, r.sum(), r.max(initial=0))",
            "(r, r[None], r.reshape(-1))",
            "(r + 1, r * 2, r)",
            "(r.astype(jnp.float32), r, {0})",
        )
    )
    return f"(lambda r: {more.format(x)})({f}({x}))"


def _switched_grad(draw: Draw) -> str:
    """The gradient of one of several functions, chosen by a value."""
    x = draw.pick("f", most=_SMALL)
    if not x.size:
        raise Unfit
    branches = [draw.block((x.value,), ((x.shape, str(x.dtype), x.type[2]),), smooth=True) for _ in range(2)]
    index = draw.r.choice((f"({x}.sum() > 0).astype(jnp.int32)", "jnp.int32(1)", "jnp.int32(7)"))
    return f"jax.grad(lambda a: jnp.sin(lax.switch({index}, [{', '.join(branches)}], a)).sum())({x})"


CUSTOM: Final = (
    Production(_custom_jvp, "custom_jvp", smooth=True, weight=1.5, nested=True),
    Production(_custom_vjp, "custom_vjp", weight=1.5, nested=True),
    Production(_scan_tree, "tree", smooth=True, weight=0.8, nested=True),
    Production(_while_tree, "while_loop", weight=0.5, nested=True),
    Production(_vmapped_scan, "vmap of grad", smooth=True, weight=0.6, nested=True),
    Production(_vmap_axes, "vmap", smooth=True, weight=0.6, nested=True),
    Production(_nested_vmap, "vmap", smooth=True, weight=0.5, nested=True),
    Production(_third, "higher derivative", smooth=True, weight=0.6, nested=True),
    Production(_switched_grad, "grad", weight=0.5, nested=True),
    Production(_several, "several results", smooth=True, weight=0.6, nested=True),
    Production(_reduce, "reduction", weight=1.0),
    *rows(_RULES),
)
