"""Equations that hold programs: derivatives of one's own stay, grids and scales go in and come out."""

import functools
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.quant import QArray, walk
from nxjax.quant.subprograms import rebuild_call

R = np.random.default_rng(0)
INTEGER = ("int8", "int16x8")


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


P = {"w": normal(64, 48, scale=0.2), "b": normal(48, scale=0.1), "v": normal(48, 10, scale=0.2)}
X = normal(32, 64)


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / max(((q - y) ** 2).sum(), 1e-30)))


def bits(a: Any, b: Any) -> None:
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and np.array_equal(a, b)


def test_the_program_that_is_quantized_stays_what_it_was(monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def watched(e: Any, *args: Any) -> Any:
        before = dict(e.params)
        made = rebuild_call(e, *args)
        assert all(e.params[k] is v for k, v in before.items()) and len(e.params) == len(before)
        seen.append(e.op.name)
        return made

    monkeypatch.setattr(walk, "rebuild_call", watched)

    def f(p: Any, x: Any) -> Any:
        y = lax.scan(lambda c, r: (c, nn.relu(r @ p["w"])), 0.0, x)[1]
        y = lax.cond(x.sum() > 0, lambda v: v @ p["v"], lambda v: -v @ p["v"], y)
        return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + y @ p["v"].T @ p["v"]), (0, y))[1]

    nx.quantize(f, "int8", calibrate=[(P, X), (P, -X)])(P, X)
    assert {"scan", "cond", "while"} <= set(seen)


def test_custom_derivatives_survive():
    @nx.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return x @ w

    product.defvjp(lambda x, w: (x @ w, (x, w)), lambda r, g: (3 * g @ r[1].T, jnp.ones_like(r[1])))

    @nx.custom_jvp
    def act(x: Any) -> Any:
        return jnp.tanh(x)

    act.defjvp(lambda x, t: (act(x[0]), 5 * t[0]))
    g = lambda p, x: act(product(x, p["w"]))
    p, x = nx.tree.map(nx.asarray, P), nx.asarray(X)
    q = nx.quantize(g, "int8", calibrate=[(p, x)])
    assert sqnr(g(p, x), q(p, x)) > 33
    assert "qdot" in str(nx.make_jaxpr(q)(p, x))
    scalar = lambda f: lambda p, x: f(p, x).sum()
    gp, gx = nx.grad(scalar(q), (0, 1))(p, x)
    np.testing.assert_array_equal(gp["w"], np.ones((64, 48)))
    np.testing.assert_allclose(gx, np.broadcast_to(15 * P["w"].sum(1), X.shape), 1e-4, 1e-4)
    (_, y), _ = nx.jit(nx.value_and_grad(lambda p, x: (q(p, x).sum(), q(p, x)), has_aux=True))(p, x)
    bits(y, q(p, x))
    many = nx.vmap(nx.grad(scalar(q), 1), (None, 0))(p, x[:, None])
    np.testing.assert_allclose(many[:, 0], gx, 1e-4, 1e-4)
    stored = q.quantize_params(p, x)
    assert isinstance(stored["w"], QArray)
    bits(q(stored, x), q(p, x))


def test_what_a_custom_derivative_closes_over():
    """It reaches the integers, and has no derivative."""

    def model(x: Any, w: Any) -> Any:
        @nx.custom_jvp
        def product(x: Any) -> Any:
            return x @ w

        product.defjvp(lambda x, t: (x[0][:, :48], 7 * t[0][:, :48]))
        return product(x)

    @nx.custom_vjp
    def pulled(x: Any, y: Any) -> Any:
        return x @ P["w"] + y

    pulled.defvjp(lambda x, y: (pulled(x, y), None), lambda _, g: (None, 2 * g))
    x, w, y = nx.asarray(X), nx.asarray(P["w"]), normal(32, 48)
    q = nx.quantize(model, "int8", calibrate=[(x, w)], params=(1,))
    bits(nx.jit(q)(x, w), q(x, w))
    assert sqnr(x @ w, q(x, w)) > 33
    value, g = nx.value_and_grad(lambda x: q(x, w).sum())(x)
    np.testing.assert_allclose(value, q(x, w).sum(), 1e-6)
    np.testing.assert_array_equal(g, np.pad(np.full((32, 48), 7), ((0, 0), (0, 16))))
    with pytest.raises(nx.errors.GradientError, match="closes over"):
        nx.grad(lambda w: q(x, w).sum())(w)
    q = nx.quantize(pulled, "int8", calibrate=[(x, y)])
    gx, gy = nx.jit(nx.grad(lambda x, y: q(x, y).sum(), (0, 1)))(x, nx.asarray(y))
    assert not np.asarray(gx).any() and (np.asarray(gy) == 2).all()


def test_calibration_keeps_custom_derivatives():
    @nx.custom_jvp
    def product(x: Any, w: Any) -> Any:
        return x @ w

    product.defjvp(lambda x, t: (product(*x), 0 * (x[0] @ x[1])))
    c = nx.calibrate(lambda p, x: product(x, p["w"]))
    assert not np.asarray(nx.grad(lambda x: c(P, x)[0].sum())(nx.asarray(X))).any()
    _, ranges = nx.jit(c)(P, X)
    y = X @ P["w"]
    np.testing.assert_allclose(ranges["dot_general_0"], (y.min(), y.max()), 1e-5)


# --- what calls hold ---


def same(layer: Any) -> Any:
    """The layer, with its derivative as its own."""
    held = nx.custom_vjp(layer)
    held.defvjp(lambda *xs: nx.vjp(layer, *xs), lambda pull, ct: pull(ct))
    return held


def pushed(layer: Any) -> Any:
    held = nx.custom_jvp(layer)
    held.defjvp(lambda xs, ts: nx.jvp(layer, xs, ts))
    return held


HELD = {"custom_vjp": same, "all": lambda f: nx.checkpoint(same(nx.jit(pushed(f))))}


def fragile(p: Any, x: Any) -> Any:
    """A product that few bits bear, and a difference that 8 do not."""
    y = x @ p
    return jnp.tanh(y) - jnp.tanh(y + 0.02), y


@functools.cache
def of_fragile(held: str, policy: str | None) -> tuple[Any, list[Any]]:
    """Two such layers quantized, and the data; the difference of the first is no result."""
    rng = np.random.default_rng(0)
    p, rows = (rng.standard_normal((16, 16)) / 4).astype("f"), np.linspace(0.2, 3, 16) * rng.standard_normal((2, 8, 16))
    layer, data = HELD.get(held, lambda f: f)(fragile), [(r.astype("f"),) for r in rows]
    return nx.quantize(lambda x: layer(p, layer(p, x)[1]), policy, calibrate=data), data


@pytest.mark.parametrize("name", HELD)
def test_what_a_call_holds_is_quantized_as_if_it_stood_there(name: str):
    for policy in (None, "int4-weights"):
        (flat, data), (q, _) = of_fragile("flat", policy), of_fragile(name, policy)
        assert q.ranges == flat.ranges and q.trials == flat.trials and bool(q.trials) == (policy is None)
        assert getattr(q.policy, "exceptions", 0) == getattr(flat.policy, "exceptions", 0)
        assert q.corrections.keys() == flat.corrections.keys() and (q.corrections or policy is None)
        for a, b in zip(q(*data[0]), flat(*data[0]), strict=True):
            bits(a, b)


def test_products_in_a_call_with_its_own_vmap_are_quantized():
    held = nx.custom_batching.custom_vmap(lambda x: nn.relu(x @ P["w"]))
    held.def_vmap(lambda size, batched, x: (held(x), True))
    q, flat = (nx.quantize(f, "int8", calibrate=[(X,)]) for f in (held, held.fun))
    bits(q(X), flat(X))
    bits(nx.vmap(q)(X[None])[0], flat(X))


def test_derivatives_of_ones_own_are_those_of_the_results_alone():
    """What a call was given and gives on has another derivative for those who read the result only."""

    @nx.custom_vjp
    def inner(x: Any, w: Any) -> Any:
        return x @ w, x

    inner.defvjp(lambda x, w: (inner(x, w), x), lambda x, g: (10 * g[1], None))

    @nx.custom_vjp
    def outer(x: Any, w: Any) -> Any:
        y, x = inner(x, w)
        return y, y, x

    outer.defvjp(lambda x, w: (outer(x, w), x), lambda x, g: (g[0][:, :64] + 3 * g[1][:, :64] + 5 * g[2], None))
    for f, slope in (
        (lambda x, w: outer(x, w)[0], 1),
        (lambda x, w: outer(x, w)[1], 3),
        (lambda x, w: outer(x, w)[2] + 7 * x, 12),
        (lambda x, w: inner(x, w)[1] + inner(x, w)[1], 20),
        (lambda x, w: nn.relu(inner(x, w)[0] + 100) + 2 * x, 2),
    ):
        x, w = nx.asarray(X), normal(64, 64, scale=0.2)
        q = nx.quantize(f, "int8", calibrate=[(x, w)], params=(1,))
        assert sqnr(f(x, w), q(x, w)) > 30
        g = nx.grad(lambda x, q=q, w=w: q(x, w).sum())
        for found in (g(x), nx.jit(g)(x), nx.vmap(g)(x[None])[0]):
            # What lies at the ends of its grid has no derivative.
            assert (np.asarray(found) == slope).mean() > 0.98


def test_rules_hear_of_what_is_not_differentiated():
    @nx.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return x @ w

    seen: list[tuple[bool, bool]] = []

    def fwd(x: Any, w: Any) -> Any:
        seen.append((x.perturbed, w.perturbed))
        return x.value @ w.value, w.value

    product.defvjp(fwd, lambda w, g: (g @ w.T, None), symbolic_zeros=True)
    q = nx.quantize(product, "int8", calibrate=[(X, P["w"])], params=(1,))
    assert np.asarray(nx.grad(lambda x: q(x, P["w"]).sum())(nx.asarray(X))).any()
    assert seen == [(True, False)]


# --- grids go in and come out ---


def snaps(q: Any, *args: Any) -> int:
    """How often a value is put on a grid, at all levels."""
    return str(nx.make_jaxpr(q)(*args)).count("quantize_dequantize")


def test_values_on_grids_stay_on_them():
    p, x = {"w": normal(16, 16, scale=0.3)}, normal(4, 16)
    inner = lambda p, x: nn.relu(x @ p["w"])
    straight = lambda p, x: inner(p, inner(p, x)) @ p["w"]
    held = lambda p, x: nx.checkpoint(inner)(p, inner(p, x)) @ p["w"]
    chosen = lambda p, x: lax.cond(x.sum() > 0, inner, lambda p, x: inner(p, x) + 1, p, inner(p, x)) @ p["w"]
    data = [(p, x), (p, -x)]
    wanted, q, c = (nx.quantize(g, "int8", calibrate=data) for g in (straight, held, chosen))
    assert snaps(q, p, x) == snaps(wanted, p, x) == 1
    bits(q(p, x), wanted(p, x))
    # Branches give different grids: what comes out is put on one.
    (cond,) = [e for e in nx.make_jaxpr(c)(p, x).equations if e.op.name == "cond"]
    assert all("quantize_dequantize" not in [e.op.name for e in b.equations[:4]] for b in cond.params["branches"])
    for _, x in data:
        assert sqnr(chosen(p, x), c(p, x)) > 30
        bits(nx.jit(c)(p, x), c(p, x))


@pytest.mark.parametrize("policy", INTEGER)
@pytest.mark.parametrize("cell", ["relu", "tanh", "gated"])
def test_what_a_scan_carries_keeps_its_grid(cell: str, policy: str):
    """Steps hand integers on: no change of grid between them, so that a chip runs all of them."""
    p = {"w": normal(8, 16, scale=0.3), "u": normal(16, 16, scale=0.2)}
    cells = {
        "relu": lambda h, z: nn.relu(z),
        "tanh": lambda h, z: jnp.tanh(z),
        "gated": lambda h, z: nn.sigmoid(z) * h + jnp.tanh(z),
    }

    def rnn(p: Any, xs: Any) -> Any:
        step = lambda h, x: (cells[cell](h, x @ p["w"] + h @ p["u"]), h)
        return lax.scan(step, jnp.zeros((3, 16)), xs)

    xs = normal(5, 3, 8)
    q = nx.quantize(rnn, policy, calibrate=[(p, xs), (p, 2 * xs)])
    (scan,) = [e for e in nx.make_jaxpr(q)(p, xs).equations if e.op.name == "scan"]
    inside = [e.op.name for e in scan.params["body"].equations]
    # What comes in is put on its grid, what is carried lies there.
    assert inside.count("quantize_dequantize") == 1 and "requantize" not in inside and "qdot" in inside
    for a, b in zip(rnn(p, xs), q(p, xs), strict=True):
        assert sqnr(a, b) > 25
    for a, b in zip(nx.jit(q)(p, xs), q(p, xs), strict=True):
        bits(a, b)
    # Step by step, it is the function of one step on the same ranges.
    long = nx.quantize(rnn, policy, ranges=q.ranges)(p, xs[:0])
    assert long[0].shape == (3, 16) and long[1].shape == (0, 3, 16) and not np.asarray(long[0]).any()
    g = nx.grad(lambda p: q(p, xs)[0].sum())(nx.tree.map(nx.asarray, p))
    assert all(jnp.isfinite(v).all() and jnp.abs(v).max() > 0 for v in nx.tree.leaves(g))


def test_what_is_carried_from_beyond_a_fixed_grid():
    """A start that tanh's grid does not hold is not cut off."""
    p, xs = {"u": normal(4, 4)}, normal(3, 2, 4)
    rnn = lambda p, xs, h: lax.scan(lambda h, x: (jnp.tanh(x + h @ p["u"]), h), h, xs)[1]
    start = np.full((2, 4), 5, np.float32)
    q = nx.quantize(rnn, "int8", calibrate=[(p, xs, start)])
    np.testing.assert_allclose(q(p, xs, start)[0], start, atol=0.05)
    bits(nx.jit(q)(p, xs, start), q(p, xs, start))


CELLS = {
    "two of one": lambda p, x: lax.scan(
        lambda c, r: ((lambda y: (y, y))(nn.relu(c[0] @ p["w"] + r)), c[1]), (x[0], x[1]), x
    ),
    "swapped": lambda p, x: lax.scan(
        lambda c, _: ((c[1], nn.relu(c[0] @ p["w"])), c[0]), (x[0], 3 * x[1]), None, length=3
    ),
    "passed through": lambda p, x: lax.scan(
        lambda c, _: ((c[0], c[1] @ p["w"] + c[0]), None), (x[0], x[1]), None, length=3
    ),
    "counted": lambda p, x: lax.scan(lambda c, r: ((c[0] + 1, jnp.tanh(c[1] @ p["w"] + r)), c[0]), (0, x[0]), x),
    "moved": lambda p, x: lax.scan(lambda c, _: ((c @ p["w"]).T.reshape(c.shape), None), x[0], None, length=3),
    "shifted in": lambda p, x: lax.scan(lambda c, r: (jnp.concatenate([c[1:], (r @ p["w"])[:1]]), None), x[0], x),
    "through float": lambda p, x: lax.scan(lambda c, r: (jnp.sort(c @ p["w"] + r), c), x[0], x),
    "residual": lambda p, x: lax.scan(lambda c, _: (c + nn.relu(c @ p["w"]) * 0.1, None), x[0], None, length=4),
    "in a loop": lambda p, x: lax.scan(
        lambda c, r: (lax.scan(lambda d, s: (nn.relu(d @ p["w"] + s), d), c, r)[0], c), x[0, 0], x
    ),
    "backwards": lambda p, x: lax.scan(lambda c, r: (jnp.tanh(c + r @ p["w"]), c), x[0], x, reverse=True),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_carries_of_every_kind(name: str):
    f, p, x = CELLS[name], {"w": normal(8, 8, scale=0.3)}, normal(3, 5, 8)
    q = nx.quantize(f, "int8", calibrate=[(p, x), (p, -x)])
    y = nx.tree.leaves(q(p, x))
    for a, b in zip(nx.tree.leaves(f(p, x)), y, strict=True):
        assert a.dtype == b.dtype and (a.dtype != np.float32 or sqnr(a, b) > 24)
    others = (
        nx.jit(q)(p, x),
        nx.tree.map(lambda v: v[0], nx.vmap(q, (None, 0))(p, np.stack([x, -x]))),
        q(q.quantize_params(p, x), x),
    )
    for other in others:
        for a, b in zip(nx.tree.leaves(other), y, strict=True):
            bits(a, b)


def test_products_in_a_composite_are_quantized():
    w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    f = lambda x: nn.relu(x @ w)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    quantized = nx.quantize(lambda x: lax.composite(f, "my.layer")(x), calibrate=[(x,)])
    np.testing.assert_array_equal(quantized(x), nx.quantize(f, "int8", calibrate=[(x,)])(x))
