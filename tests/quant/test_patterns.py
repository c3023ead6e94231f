"""What programs spell out computes on integers: norms, quotients, roots, PReLU in every spelling, softplus."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import nn

rng = np.random.default_rng(0)
A = rng.uniform(0.05, 0.5, 8).astype(np.float32)
P = {"w": (0.4 * rng.normal(size=(6, 8))).astype(np.float32), "a": A, "o": rng.normal(size=(8, 4)).astype(np.float32)}
DATA = [(P, rng.normal(size=(16, 6)).astype(np.float32)) for _ in range(3)]

SLOPES = {
    "where": lambda x, a: jnp.where(x >= 0, x, a * x),
    "where above": lambda x, a: jnp.where(x > 0, x, x * a),
    "where below": lambda x, a: jnp.where(x < 0, a * x, x),
    "maximum and minimum": lambda x, a: jnp.maximum(x, 0) + a * jnp.minimum(x, 0),
    "minimum and maximum": lambda x, a: jnp.minimum(0.0, x) * a + nn.relu(x),
    "two relus": lambda x, a: nn.relu(x) - a * nn.relu(-x),
}


def quantized(f, policy="int8"):
    q = nx.quantize(f, policy, calibrate=DATA)
    return q, q.plan(q.traced(*DATA[0]))


def ops_of(q):
    return [e.op.name for e in nx.make_jaxpr(q)(*DATA[0]).equations]


def good(q, f, least=28.0):
    """Eager and compiled bits agree, close to the float function; the TFLite file gives the same bits."""
    eager, real = np.asarray(q(*DATA[0])), np.asarray(f(*DATA[0]))
    assert (np.asarray(nx.jit(q)(*DATA[0])) == eager).all()
    assert 10 * np.log10((real**2).mean() / ((real - eager) ** 2).mean()) > least
    artifact = nx.compile(q, target="tflite")(*DATA[0])
    assert artifact.deviation.exact and (np.asarray(artifact.run(DATA[0][1])) == eager).all()
    return artifact.graph


@pytest.mark.parametrize("spelling", SLOPES)
def test_prelu(spelling):
    f = lambda p, x: SLOPES[spelling](x @ p["w"], p["a"]) @ p["o"]
    q, plan = quantized(f)
    assert not plan.left and ops_of(q).count("qprelu") == 1
    assert [n.op for n in good(q, f).nodes] == ["fully_connected", "prelu", "fully_connected"]


@pytest.mark.parametrize("spelling", [*SLOPES, "larger"])
def test_one_slope_is_leaky_relu(spelling):
    slope = {**SLOPES, "larger": lambda x, a: jnp.maximum(x, a * x)}[spelling]
    f = lambda p, x: slope(x @ p["w"], 0.125) @ p["o"]
    q, _ = quantized(f)
    assert [n.op for n in good(q, f).nodes] == ["fully_connected", "leaky_relu", "fully_connected"]


def test_what_only_looks_like_a_slope():
    for f in (
        lambda p, x: jnp.where(x @ p["w"] >= 1, x @ p["w"], p["a"] * (x @ p["w"])),
        lambda p, x: jnp.where(x @ p["w"] >= 0, p["a"] * (x @ p["w"]), x @ p["w"]),
        lambda p, x: jnp.maximum(x @ p["w"], 0) + p["a"] * jnp.minimum(2 * (x @ p["w"]), 0),
        lambda p, x: jnp.maximum(x @ p["w"], 2.0 * (x @ p["w"])),
    ):
        q, _ = quantized(f)
        assert not {"qprelu", "qunary"} & set(ops_of(q))
        good(q, f)


def norm(p, x):
    y = x @ p["w"]
    y = y - y.mean(-1, keepdims=True)
    return (y / jnp.sqrt((y**2).mean(-1, keepdims=True) + 1e-5)) @ p["o"]


def test_norms_by_hand_are_as_good_as_norms():
    q, plan = quantized(norm)
    assert not plan.left and "div" not in ops_of(q)
    assert "rsqrt" in [n.op for n in good(q, norm, 25).nodes]
    short, _ = quantized(lambda p, x: nn.layer_norm(x @ p["w"]) @ p["o"])
    error = lambda f: abs(np.asarray(f(*DATA[0])) - np.asarray(norm(*DATA[0]))).max()
    assert error(q) <= 1.5 * error(short)


def test_a_root_that_others_read_stays():
    def f(p, x):
        root = jnp.sqrt(nn.relu(x @ p["w"]) + 1)
        return (root + p["a"] / root + (x @ p["w"]) / root) @ p["o"]

    q, plan = quantized(f)
    functions = [e.params["function"] for e in nx.make_jaxpr(q)(*DATA[0]).equations if e.op.name == "qunary"]
    assert not plan.left and functions == ["sqrt", "rsqrt"]
    good(q, f)


def test_quotients():
    f = lambda p, x: ((x @ p["w"]) / (1 + jnp.exp(-(x @ p["w"])))) @ p["o"]
    q, plan = quantized(f)
    assert not plan.left and "div" not in ops_of(q)
    assert [n.attrs["function"] for n in good(q, f).nodes if n.op == "table"] == ["integer_pow"]
    # Two quotients by one value have one reciprocal.
    g = lambda p, x: (lambda d: ((x @ p["w"]) / d + p["a"] / d) @ p["o"])(nn.relu(x @ p["w"]) + 1)
    q, _ = quantized(g)
    assert ops_of(q).count("qunary") == 1
    good(q, g)


def test_sixteen_bits_have_the_root_only():
    q, plan = quantized(norm, "int16x8")
    assert not plan.left
    good(q, norm, 38)
    f = lambda p, x: (nn.softplus(x @ p["w"]) / (nn.relu(x @ p["w"]) + 1)) @ p["o"]
    q, plan = quantized(f, "int16x8")
    assert {e.op.name for e, _ in plan.left} == {"div"}
    assert nx.compile(q, target="tflite")(*DATA[0]).deviation.max_lsb <= 1


def test_softplus():
    for f in (lambda p, x: nn.softplus(x @ p["w"]) @ p["o"], lambda p, x: nn.mish(x @ p["w"]) @ p["o"]):
        q, plan = quantized(f)
        functions = [e.params["function"] for e in nx.make_jaxpr(q)(*DATA[0]).equations if e.op.name == "qunary"]
        assert not plan.left and functions[0] == "softplus"
        good(q, f)
        loss = lambda g: lambda p: (g(p, DATA[0][1]) ** 2).mean()
        got, wanted = (np.asarray(nx.grad(loss(g))(P)["w"]) for g in (q, f))
        assert abs(got - wanted).max() < 0.1 * abs(wanted).max()


def test_derivatives_of_slopes():
    f = lambda p, x: SLOPES["where"](x @ p["w"], p["a"]) @ p["o"]
    q, _ = quantized(f)
    loss = lambda g: lambda p: (g(p, DATA[0][1]) ** 2).mean()
    got, wanted = nx.grad(loss(q))(P), nx.grad(loss(f))(P)
    for name in P:
        a, b = np.asarray(got[name]), np.asarray(wanted[name])
        assert abs(a - b).max() < 0.1 * abs(b).max()


def test_float_policies_change_nothing():
    program = nx.make_jaxpr(nx.quantize(norm, "int8-weights"))(*DATA[0])
    assert "div" in [e.op.name for e in program.equations]


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_powers_of_a_half_are_roots(policy):
    mean_square = lambda y: (y * y).mean(-1, keepdims=True) + 1e-5
    for power, table in (
        (lambda y: y * mean_square(y) ** -0.5, "rsqrt"),
        (lambda y: y / mean_square(y) ** 0.5, "rsqrt"),
        (lambda y: y * jnp.power(nn.relu(y) + 1, 0.5), "sqrt"),
    ):
        f = lambda p, x, power=power: power(x @ p["w"]) @ p["o"]
        q, plan = quantized(f, policy)
        assert not plan.left
        traced = nx.make_jaxpr(q)(*DATA[0]).equations
        assert [e.params["function"] for e in traced if e.op.name == "qunary"] == [table]
        good(q, f, 25)


@pytest.mark.parametrize(("policy", "exponent"), [("int16x8", lambda p: 0.3), ("int8", lambda p: p["a"])])
def test_other_powers_stay(policy, exponent):
    f = lambda p, x: (nn.relu(x @ p["w"]) + 1) ** exponent(p) @ p["o"]
    assert [e.op.name for e, _ in quantized(f, policy)[1].left] == ["pow"]


@pytest.mark.parametrize("window", [(1, 3, 3, 1), (1, 1, 1, 5), (1, 2, 1, 2)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_sums_of_windows_are_means_so_many_times(window, padding):
    x = rng.normal(size=(1, 6, 7, 8)).astype(np.float32)
    f = lambda x: nn.relu(nx.lax.reduce_window(x, 0.0, nx.lax.add, window, (1, 1, 1, 1), padding))
    q = nx.quantize(f, "int8", calibrate=[(x,)])
    assert not q.plan(q.traced(x)).left
    eager, real = np.asarray(q(x)), np.asarray(f(x))
    assert (np.asarray(nx.jit(q)(x)) == eager).all() and abs(eager - real).max() < 0.04 * real.max()
    artifact = nx.compile(q, target="tflite")(x)
    assert artifact.deviation.exact and "average_pool_2d" in [n.op for n in artifact.graph.nodes]


def test_hard_swish_of_sixteen_bits_is_its_pieces():
    f = lambda p, x: nn.hard_swish(x @ p["w"]) @ p["o"]
    q, plan = quantized(f, "int16x8")
    assert not plan.left and "hard_swish" not in [n.op for n in good(q, f, 40).nodes]
    assert "hard_swish" in [n.op for n in good(quantized(f)[0], f).nodes]


POWERS = {
    "cube root": (lambda x: x ** (1 / 3), ["power"]),
    "five halves": (lambda x: x**2.5, ["power"]),
    "root": (lambda x: x**0.5, ["sqrt"]),
    "root below": (lambda x: x**-0.5, ["rsqrt"]),
    "of two": (lambda x: jnp.power(2.0, x), ["exp"]),
}


@pytest.mark.parametrize("power", POWERS)
def test_powers(power):
    raised, functions = POWERS[power]
    f = lambda p, x: raised(nn.relu(x @ p["w"]) + 0.5) @ p["o"]
    q, plan = quantized(f)
    made = [e.params["function"] for e in nx.make_jaxpr(q)(*DATA[0]).equations if e.op.name == "qunary"]
    assert not plan.left and made == functions
    good(q, f)
    loss = lambda g: lambda p: (g(p, DATA[0][1]) ** 2).mean()
    got, wanted = (np.asarray(nx.grad(loss(g))(P)["w"]) for g in (q, f))
    assert abs(got - wanted).max() < 0.15 * abs(wanted).max()
