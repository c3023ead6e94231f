"""Quantized functions under every transform and around and inside every kind of control flow, in any order."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.testing import executors

R = np.random.default_rng(0)
P = {"w": R.standard_normal((4, 4)).astype(np.float32) / 2, "b": R.standard_normal(4).astype(np.float32) / 3}
X = R.standard_normal((3, 4)).astype(np.float32)
PARAMS = {k: nx.asarray(v) for k, v in P.items()}


def layer(p: Any, x: Any) -> Any:
    return nx.nn.relu(x @ p["w"] + p["b"])


def scanned(p: Any, x: Any) -> Any:
    return lax.scan(lambda c, _: (layer(p, c) * 0.7, c.sum()), x, None, length=3)


def stacked(p: Any, x: Any) -> Any:
    """A scan over layers: the weights are what is scanned."""
    ws = jnp.stack([p["w"], -p["w"], 2 * p["w"]])
    return lax.scan(lambda c, w: (jnp.tanh(c @ w + p["b"]), None), x, ws)[0]


def looped(p: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, layer(p, c[1]) * 0.3), (0, x))[1]


def counted(p: Any, x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: layer(p, c) * 0.3, x)


def chosen(p: Any, x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: layer(p, x), lambda x: jnp.tanh(x @ p["w"]), x)


def switched(p: Any, x: Any) -> Any:
    index = jnp.clip(x[0, 0] * 2 + 1, 0, 2).astype(np.int32)
    return lax.switch(index, [lambda x: layer(p, x), lambda x: x @ p["w"], lambda x: nx.nn.sigmoid(x @ p["w"])], x)


def rematerialized(p: Any, x: Any) -> Any:
    return nx.checkpoint(layer)(p, layer(p, x))


def compiled(p: Any, x: Any) -> Any:
    return nx.jit(layer)(p, nx.jit(nx.jit(layer))(p, x))


FUNCTIONS = {
    "layer": layer, "scan": scanned, "scan of layers": stacked, "while": looped, "fori": counted, "cond": chosen,
    "switch": switched, "checkpoint": rematerialized, "jit": compiled,
}  # fmt: skip
# Both branches, all cases, and the ranges of either.
DATA = [(P, s * np.abs(X)) for s in (1, -1)] + [(P, X), (P, X - X[0, 0]), (P, X - X[0, 0] + 1), (P, X - X[0, 0] - 1)]


def leaves(y: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in nx.tree.leaves(y)]


def bits(got: Any, wanted: Any) -> None:
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b), np.abs(a - b).max()


def quantized(name: str, policy: str = "int8") -> Any:
    return nx.quantize(FUNCTIONS[name], policy, calibrate=DATA)


def scalar(f: Any) -> Any:
    return lambda p, x: sum(v.sum() for v in nx.tree.leaves(f(p, x)))


def with_total(f: Any) -> Any:
    """The results too: their sum is a float reduction, in whatever order an executor takes."""

    def pair(p: Any, x: Any) -> Any:
        y = f(p, x)
        return sum(v.sum() for v in nx.tree.leaves(y)), y

    return pair


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_control_flow_is_quantized(name: str, policy: str):
    f, qf = FUNCTIONS[name], quantized(name, policy)
    text = str(nx.make_jaxpr(qf)(P, X))
    assert "qdot[" in text and " dot_general[" not in text
    for p, x in DATA:
        for y, q in zip(leaves(f(p, x)), leaves(qf(p, x)), strict=True):
            assert np.abs(y - q).max() < (0.05 if policy == "int8" else 0.03) * max(1, np.abs(y).max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_and_grad_have_the_bits_of_the_call(name: str):
    qf = quantized(name)
    y = qf(P, X)
    for executor in executors():
        bits(nx.jit(qf, device=executor)(P, X), y)
    if name == "while":
        # A while loop has a derivative in forward mode only.
        (value, tangent) = nx.jvp(lambda x: qf(PARAMS, x), (nx.asarray(X),), (jnp.ones(X.shape),))
        bits(value, y)
        assert tangent.shape == (3, 4)
        return
    step = nx.value_and_grad(with_total(qf), argnums=(0, 1), has_aux=True)
    (_, value), (gp, gx) = step(PARAMS, nx.asarray(X))
    bits(value, y)
    jitted = nx.jit(step)(PARAMS, nx.asarray(X))
    bits(jitted[0][1], y)
    for a, b in zip(leaves(jitted[1]), leaves((gp, gx)), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    # Close to the derivative of the float function.
    wanted = nx.grad(scalar(FUNCTIONS[name]), argnums=(0, 1))(PARAMS, nx.asarray(X))
    for a, b in zip(leaves((gp, gx)), leaves(wanted), strict=True):
        assert np.linalg.norm(a - b) <= 0.35 * np.linalg.norm(b) + 0.05


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_loop(name: str):
    qf = quantized(name)
    xs = np.stack([x for _, x in DATA])
    wanted = [leaves(qf(P, x)) for x in xs]
    for f in (nx.vmap(qf, in_axes=(None, 0)), nx.jit(nx.vmap(qf, in_axes=(None, 0)))):
        got = leaves(f(P, xs))
        for i, row in enumerate(wanted):
            bits([g[i] for g in got], row)
    if name != "while":
        grads = nx.vmap(nx.grad(scalar(qf)), in_axes=(None, 0))(PARAMS, nx.asarray(xs[:2]))
        one = nx.grad(scalar(qf))(PARAMS, nx.asarray(xs[1]))
        np.testing.assert_allclose(grads["w"].numpy()[1], one["w"].numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians_and_hessians(name: str):
    qf = quantized(name)
    first = lambda x: leaves_of(qf(PARAMS, x))
    forward = nx.jacfwd(first)(nx.asarray(X))
    if name == "while":
        return
    backward = nx.jacrev(first)(nx.asarray(X))
    np.testing.assert_allclose(forward.numpy(), backward.numpy(), 1e-5, 1e-6)
    assert nx.hessian(lambda x: scalar(qf)(PARAMS, x))(nx.asarray(X)).shape == (3, 4, 3, 4)


def leaves_of(y: Any) -> Any:
    return nx.tree.leaves(y)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inside_of_control_flow(name: str):
    qf = quantized(name)
    head = lambda p, x: nx.tree.leaves(qf(p, x))[0]
    y = np.asarray(head(P, np.asarray(head(P, X))))
    inside = {
        "scan": lambda p, x: lax.scan(lambda c, _: (head(p, c), None), x, None, length=2)[0],
        "fori": lambda p, x: lax.fori_loop(0, 2, lambda i, c: head(p, c), x),
        "cond": lambda p, x: lax.cond(True, lambda x: head(p, head(p, x)), lambda x: x, x),
        "checkpoint": lambda p, x: nx.checkpoint(head)(p, nx.checkpoint(head)(p, x)),
    }
    for f in inside.values():
        bits(f(P, X), y)
        bits(nx.jit(f)(P, X), y)


def test_quantize_takes_transformed_functions():
    ranges = nx.quantize(layer, "int8", calibrate=[(P, X)]).ranges
    wanted = nx.quantize(layer, "int8", calibrate=[(P, X)])(P, X)
    for f in (
        nx.jit(layer),
        nx.vmap(layer, in_axes=(None, 0)),
        nx.checkpoint(layer),
        nx.jit(nx.vmap(nx.jit(layer), (None, 0))),
    ):
        qf = nx.quantize(f, "int8", calibrate=[(P, X)])
        assert len(qf.ranges) == len(ranges)
        bits(qf(P, X), wanted)
    rows = nx.quantize(layer, ranges=ranges)
    bits(nx.vmap(rows, in_axes=(None, 0))(P, X), wanted)


def test_gradients_of_float_functions_can_be_quantized():
    """Any program is a program: that of a gradient too."""
    step = nx.grad(lambda x, p: (layer(p, x) ** 2).sum())
    qf = nx.quantize(step, "int8", calibrate=[(X, P)])
    y = np.asarray(step(nx.asarray(X), P))
    assert np.abs(np.asarray(qf(X, P)) - y).max() < 0.1 * np.abs(y).max()


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_a_value_on_two_grids_is_snapped_once_to_each(policy: str):
    def f(p: Any, x: Any) -> Any:
        a, b = x @ p["w"], jnp.tanh(x @ p["w"])
        return jnp.concatenate([a, b, a], 1) + jnp.concatenate([b, a, b], 1)

    qf = nx.quantize(f, policy, calibrate=[(P, X)])
    ops = [e.op.name for e in nx.make_jaxpr(qf)(P, X).equations]
    assert ops.count("quantize_dequantize") == 1
    assert np.abs(np.asarray(qf(P, X)) - np.asarray(f(P, X))).max() < 0.1
    bits(nx.jit(qf)(P, X), qf(P, X))


def test_mixed_dtypes_meet():
    """int16 layers beside int8 ones, and float ones between."""

    def f(p: Any, x: Any) -> Any:
        with nx.named_scope("wide"):
            a = nx.nn.relu(x @ p["w"])
        with nx.named_scope("float"):
            b = jnp.tanh(a @ p["w"])
        with nx.named_scope("narrow"):
            return b @ p["w"] + a

    schemes = {"wide": "int16x8", "float": None, "narrow": "int8"}
    policy = lambda op, scope, types: next((v for k, v in schemes.items() if k in scope), "int8")
    qf = nx.quantize(f, policy, calibrate=[(P, X)])
    text = str(nx.make_jaxpr(qf)(P, X))
    assert "Grid(dtype=i16" in text and "Grid(dtype=i8" in text and " dot_general[" in text
    bits(nx.jit(qf)(P, X), qf(P, X))
    assert np.abs(np.asarray(qf(P, X)) - np.asarray(f(P, X))).max() < 0.1
