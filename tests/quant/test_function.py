"""`nx.quantize` as its users meet it: presets, policies, arguments of every form, training, errors."""

import copy
import functools
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.quant import PRESETS, QArray, Scheme
from tests.quant.nets import Net

R = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


P = {"w": normal(64, 48, scale=0.2), "b": normal(48, scale=0.1), "v": normal(48, 10, scale=0.2)}
X = normal(32, 64)
BATCH = [(P, X)]
INTEGER = ("int8", "int16x8")
# Signal to quantization noise of two dense layers, in dB: what each number of bits can give.
LEAST = {"int8": 35, "int16x8": 36, "dynamic-int8": 35, "int8-weights": 37, "int4-weights": 16, "fp8": 23}
# Of random networks, the worst of which have a single channel or four weights.
ANY = {"int8": 24, "int16x8": 30, "dynamic-int8": 28, "int8-weights": 30, "int4-weights": 12, "fp8": 18}


def f(p: Any, x: Any) -> Any:
    return nn.relu(x @ p["w"] + p["b"]) @ p["v"]


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / max(((q - y) ** 2).sum(), 1e-30)))


def bits(a: Any, b: Any) -> None:
    for x, y in zip(nx.tree.leaves(a), nx.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and np.array_equal(x, y)


def arrays(tree: Any) -> Any:
    return nx.tree.map(nx.asarray, tree)


# --- presets ---


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_as_good_as_their_bits(name: str):
    q = nx.quantize(f, name, calibrate=BATCH)
    y = q(P, X)
    assert LEAST[name] < sqnr(f(P, X), y) < 70
    if name in INTEGER:
        bits(nx.jit(q)(P, X), y)
    else:
        # Only the summation's order differs.
        np.testing.assert_allclose(nx.jit(q)(P, X), y, 1e-4, 1e-4)
    assert bool(q.ranges) == PRESETS[name].integer
    if not q.ranges:
        bits(nx.quantize(f, name)(P, X), nx.quantize(f, name, calibrate=BATCH, error_feedback=False)(P, X))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_compute_on_what_they_say(name: str):
    q = nx.quantize(f, name, calibrate=BATCH)
    ops = [e.op.name for e in nx.make_jaxpr(q)(P, X).equations]
    assert ("qdot" in ops) == (name in INTEGER) and ("dot_general" in ops) == (name not in INTEGER)
    stored = q.quantize_params(P, X)
    assert stored["w"].dtype == PRESETS[name].weights and stored["b"] is P["b"]
    assert stored["w"].scale.shape == ((2, 48) if name == "int4-weights" else (1, 48))
    got = q(stored, X)
    if name in INTEGER:
        bits(got, q(P, X))
        bits(nx.jit(q)(stored, X), got)
    np.testing.assert_allclose(got, q(P, X), 1e-5, 1e-5)


def test_int4_takes_groups_only_where_they_fit():
    for rows, groups in ((64, 2), (96, 3), (32, 1), (40, 1), (8, 1)):
        p, x = {"w": normal(rows, 5)}, normal(2, rows)
        q = nx.quantize(lambda p, x: x @ p["w"], "int4-weights")
        stored = q.quantize_params(p, x)["w"]
        assert stored.scale.shape == (groups, 5)
        # Each group reaches the ends of its range.
        top = np.abs(np.asarray(stored.values).astype(int)).reshape(groups, -1, 5).max(1)
        assert (top == 7).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", INTEGER)
def test_random_networks_have_one_meaning(name: str, seed: int):
    net = Net(seed)
    data = net.data(2)
    q = nx.quantize(net, name, calibrate=data)
    for p, x in data:
        y = q(p, x)
        assert sqnr(net(p, x), y) > ANY[name], net
        bits(nx.jit(q)(p, x), y)
    p, x = arrays(data[0])
    (_, forward), g = nx.value_and_grad(lambda p: (q(p, x).sum(), q(p, x)), has_aux=True)(p)
    bits(forward, q(p, x))
    assert all(jnp.isfinite(v).all() for v in nx.tree.leaves(g))


@pytest.mark.parametrize("seed", [20, 22])
@pytest.mark.parametrize("name", [n for n in PRESETS if n not in INTEGER])
def test_random_networks_in_float_sums(name: str, seed: int):
    net = Net(seed)
    ((p, x),) = net.data(1)
    q = nx.quantize(net, name)
    assert sqnr(net(p, x), q(p, x)) > ANY[name], net
    np.testing.assert_allclose(nx.jit(q)(p, x), q(p, x), 1e-3, 1e-4)


# --- policies ---


def scoped(p: Any, x: Any) -> Any:
    with nx.named_scope("body"):
        y = nn.relu(x @ p["w"] + p["b"])
    with nx.named_scope("head"):
        return y @ p["v"]


def test_policies_decide_by_op_scope_and_types():
    asked: list[tuple[str, str, tuple[Any, ...]]] = []

    def policy(op: str, scope: str, types: tuple[Any, ...]) -> Any:
        asked.append((op, scope, types))
        return "int8" if scope == "body" else None

    q = nx.quantize(scoped, policy, calibrate=BATCH)
    text = str(nx.make_jaxpr(q)(P, X))
    assert text.count("qdot") == 1 and text.count(" dot_general") == 1
    seen = {(op, scope): types for op, scope, types in asked}
    assert {"body", "head"} <= {scope for _, scope in seen}
    assert [t.shape for t in seen["dot_general", "head"]] == [(32, 48), (48, 10)]
    np.testing.assert_allclose(nx.jit(q)(P, X), q(P, X), 1e-4, 1e-5)
    by_op = nx.quantize(scoped, lambda op, scope, types: Scheme() if op == "dot_general" else None, calibrate=BATCH)
    assert len(by_op.plan(by_op.traced(P, X)).groups()) == 2
    narrow = nx.quantize(
        scoped, lambda op, scope, types: "int8" if any(10 in t.shape for t in types) else None, calibrate=BATCH
    )
    assert sorted(narrow.ranges) == ["dot_general_1", "relu_0"]


def test_policies_mix_presets():
    policy = lambda op, scope, types: "int16x8" if scope == "head" else "int8-weights"
    q = nx.quantize(scoped, policy, calibrate=BATCH)
    assert sqnr(scoped(P, X), q(P, X)) > 36
    stored = q.quantize_params(P, X)
    assert stored["w"].scale.shape == (1, 48) and stored["v"].scale.shape == (1, 10)


def test_schemes_are_policies_and_policies_are_kept():
    wide = Scheme(dense_per_channel=True, rounding="single")
    q = nx.quantize(f, wide, calibrate=BATCH)
    assert q.policy == wide and nx.quantize(f, "int8").policy == PRESETS["int8"]
    products = [e for e in nx.make_jaxpr(q)(P, X).equations if e.op.name == "qdot"]
    assert [e.params["rounding"] for e in products] == ["single", "single"]
    assert [e.inputs[2].type.shape for e in products] == [(1, 48), (1, 10)]
    assert sqnr(f(P, X), q(P, X)) > LEAST["int8"]


# --- arguments ---


def test_decorators():
    @nx.quantize
    def g(p: Any, x: Any) -> Any:
        """Doc."""
        return f(p, x)

    @functools.partial(nx.quantize, policy="int8-weights")
    def h(p: Any, x: Any) -> Any:
        return f(p, x)

    assert (g.__name__, g.__doc__) == ("g", "Doc.")
    with pytest.raises(ParameterError, match="no calibration data"):
        g(P, X)
    assert sqnr(f(P, X), h(P, X)) > 36

    class Model:
        @functools.partial(nx.quantize, policy="int8-weights")
        def forward(self, x: Any) -> Any:
            return f(self, x)

        def __getitem__(self, name: str) -> Any:
            return P[name]

    nx.tree_util.register_pytree_node(Model, lambda m: ((), None), lambda _, c: Model())
    bits(Model().forward(X), h(P, X))


def test_keyword_arguments_are_the_arguments():
    def g(p: Any, x: Any, mask: Any, scale: Any = None) -> Any:
        y = (x @ p["w"]) * jnp.tanh(mask)
        return y if scale is None else y * scale

    mask, scale = 100 * normal(32, 1), normal(1, 48, scale=0.01)
    q = nx.quantize(g, "int8", calibrate=[(P, X, mask)])
    wanted = q(P, X, mask)
    for call in (
        lambda q: q(P, mask=mask, x=X),
        lambda q: q(P, X, mask=mask),
        lambda q: q(mask=mask, p=P, x=X),
        lambda q: q(scale=None, x=X, mask=mask, p=P),
    ):
        bits(call(q), wanted)
        bits(call(nx.jit(q)), wanted)
    assert isinstance(q.quantize_params(x=X, mask=mask, p=P)["w"], QArray)
    named = nx.quantize(g, params=0, calibrate=[(P, X, mask)])
    bits(named(x=X, mask=mask, p=P), wanted)
    four = nx.quantize(g, "int8", calibrate=[(P, X, mask, scale)])
    bits(four(P, scale=scale, mask=mask, x=X), four(P, X, mask, scale))
    free = nx.quantize(lambda p, **named: g(p, named["x"], named["mask"]), "int8-weights")
    assert sqnr(g(P, X, mask), free(P, mask=mask, x=X)) > 37


def test_trees_in_and_out():
    pair = namedtuple("pair", "a b")

    def g(p: Any, x: Any, extra: Any) -> Any:
        y = f(p["deep"][0], x["x"])
        return {"y": y, "none": None, "t": (pair(y.sum(), extra), [x["x"]]), "n": 3}

    args = ({"deep": [P, None]}, {"x": X}, None)
    q = nx.quantize(g, "int8", calibrate=[args], params=(0,))
    got, wanted = q(*args), g(*args)
    assert nx.tree.structure(got) == nx.tree.structure(wanted) and isinstance(got["t"][0], pair)
    assert sqnr(wanted["y"], got["y"]) > 35 and int(got["n"]) == 3
    bits(got["t"][1], X)
    bits(nx.jit(q)(*args)["y"], got["y"])


def test_closed_over_weights():
    q = nx.quantize(lambda x: f(P, x), calibrate=[X])
    bits(q(X), nx.quantize(f, "int8", calibrate=BATCH)(P, X))
    with pytest.raises(ParameterError, match="3 that the function closes over"):
        q.quantize_params(X)


def test_params_says_what_is_a_weight():
    # Without, an array is data, and the product one of two activations.
    g = lambda x, w: x @ w
    data = nx.quantize(g, "int8", calibrate=[(X, P["w"])])
    weights = nx.quantize(g, "int8", calibrate=[(X, P["w"])], params=(1,))
    assert "qmatmul" in str(nx.make_jaxpr(data)(X, P["w"])) and "qdot" in str(nx.make_jaxpr(weights)(X, P["w"]))
    bits(nx.quantize(g, "int8", calibrate=[(X, P["w"])], params=-1)(X, P["w"]), weights(X, P["w"]))
    assert isinstance(weights.quantize_params(X, P["w"]), QArray)


def test_other_batches_than_calibrated():
    q = nx.quantize(f, "int8", calibrate=BATCH)
    whole = np.asarray(q(P, X))
    for n in (0, 1, 5, 32):
        bits(q(P, X[:n]), whole[:n])
        bits(nx.jit(q)(P, X[:n]), whole[:n])
    bits(q(P, X[0]), whole[0])
    bits(q(P, X.reshape(2, 4, 4, 64)), whole.reshape(2, 4, 4, 10))


def test_beyond_the_calibrated_range_values_saturate():
    q = nx.quantize(f, "int8", calibrate=BATCH)
    bits(q(P, 1e30 * np.sign(X)), q(P, 1e3 * np.sign(X)))
    bits(nx.jit(q)(P, np.sign(X) * np.float32(np.inf)), q(P, 1e3 * np.sign(X)))
    # What is no number becomes the zero of its grid.
    x = X.copy()
    x[3] = np.nan
    zeros = X.copy()
    zeros[3] = 0
    bits(q(P, x), q(P, zeros))
    bits(nx.jit(q)(P, x), q(P, zeros))


def test_numbers_and_scalars():
    g = lambda p, x: x * p["s"] + jnp.tanh(x)
    p = {"s": np.float32(2.0)}
    q = nx.quantize(g, "int8", calibrate=[(p, np.float32(v)) for v in (1.5, -1.0)])
    for v in (0.7, -0.3, 1.5):
        assert abs(float(q(p, v)) - float(g(p, np.float32(v)))) < 0.04 and q(p, v).shape == ()
        bits(nx.jit(q)(p, v), q(p, v))


def test_integers_look_up():
    p = {"e": normal(20, 64), **P}
    g = lambda p, i: f(p, p["e"][i])
    ids = R.integers(0, 20, (3, 7))
    q = nx.quantize(g, "int8", calibrate=[(p, ids)])
    assert sqnr(g(p, ids), q(p, ids)) > 33
    stored = q.quantize_params(p, ids)
    assert isinstance(stored["w"], QArray)
    bits(q(stored, ids), q(p, ids))
    bits(nx.jit(q)(p, ids), q(p, ids))
    bits(nx.vmap(q, in_axes=(None, 0))(p, ids), q(p, ids))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_inputs(dtype: str):
    x = jnp.asarray(X, dtype)
    q = nx.quantize(f, "int8", calibrate=[(P, x)])
    assert q(P, x).dtype == f(P, x).dtype and sqnr(f(P, x), q(P, x)) > 35
    cast = lambda p, x: f(p, x.astype("float32")).astype(dtype)
    q = nx.quantize(cast, "int8", calibrate=[(P, x)])
    assert q(P, x).dtype == cast(P, x).dtype and sqnr(cast(P, x), q(P, x)) > 35
    bits(nx.jit(q)(P, x), q(P, x))
    half = nx.tree.map(lambda v: jnp.asarray(v, dtype), P)
    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    with pytest.raises(ParameterError, match=f"nothing in the function is quantized(?s:.*)dot_general in {short}"):
        nx.quantize(f, "int8", calibrate=[(half, x)])


# --- stored weights ---


def test_stored_weights_stand_for_their_floats():
    stored = nx.quantize(f, "int8-weights").quantize_params(P, X)
    floats = nx.tree.map(np.asarray, stored, is_leaf=lambda v: isinstance(v, QArray))
    np.testing.assert_allclose(f(stored, X), f(floats, X), 1e-6)
    np.testing.assert_allclose(nx.jit(f)(stored, X), f(floats, X), 1e-4, 1e-5)


def test_modules_are_trees():
    m = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    q = nx.quantize(lambda m, x: m(x), calibrate=[(m, X)])
    assert sqnr(m(X), q(m, X)) > 33
    stored = q.quantize_params(m, X)
    assert sum(isinstance(v, QArray) for v in nx.tree.leaves(stored, is_leaf=lambda v: isinstance(v, QArray))) == 2
    bits(nx.jit(q)(stored, X), q(m, X))
    bits(nx.quantize(m, "int8", calibrate=[X])(X), q(m, X))


def test_copies():
    q = nx.quantize(f, "int8", calibrate=BATCH)
    for c in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        bits(c(P, X), q(P, X))
    stored = pickle.loads(pickle.dumps(q.quantize_params(P, X)))
    bits(q(stored, X), q(P, X))
    assert nx.eval_shape(q, P, X).shape == (32, 10)
    assert repr(q) == "quantized(f, 3 ranges)"


# --- training ---


def prototypes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of ten classes, 8 by 8, under noise and shifts: digits, as it were."""
    shapes = np.random.default_rng(5).random((10, 8, 8)) > 0.6
    r = np.random.default_rng(seed)
    labels = r.integers(0, 10, n)
    moved = np.stack([np.roll(shapes[k], r.integers(-1, 2, 2), (0, 1)) for k in labels])
    return (moved + 0.5 * r.standard_normal((n, 8, 8))).astype(np.float32)[..., None], labels.astype(np.int32)


def net(p: Any, x: Any) -> Any:
    y = lax.conv_general_dilated(x, p["c"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = nn.relu(y + p["cb"]).reshape(x.shape[0], -1)
    return nn.relu(y @ p["w"] + p["b"]) @ p["v"]


def accuracy(g: Any, p: Any, x: Any, labels: Any) -> float:
    return float((np.asarray(g(p, x)).argmax(-1) == labels).mean())


@pytest.mark.parametrize("name", ["int8", "int4-weights"])
def test_training_through_the_integers_converges(name: str):
    x, labels = prototypes(1024, 1)
    start = arrays(
        {"c": normal(3, 3, 1, 8, scale=0.3), "cb": normal(8, scale=0.01), "w": normal(128, 32, scale=0.1),
         "b": normal(32, scale=0.01), "v": normal(32, 10, scale=0.2)}
    )  # fmt: skip
    # Ranges with room for what weights become.
    q = nx.quantize(net, name, calibrate=[(start, 4 * x)])

    def trained(model: Any) -> tuple[list[float], Any]:
        def loss(p: Any, x: Any, labels: Any) -> Any:
            return -(nn.log_softmax(model(p, x)) * nn.one_hot(labels, 10)).sum(-1).mean()

        @nx.jit
        def step(p: Any, m: Any, x: Any, labels: Any) -> Any:
            value, g = nx.value_and_grad(loss)(p, x, labels)
            m = nx.tree.map(lambda m, g: 0.9 * m + g, m, g)
            return value, nx.tree.map(lambda p, m: p - 0.03 * m, p, m), m

        p, m, losses = start, nx.tree.map(jnp.zeros_like, start), []
        for i in range(160):
            rows = slice(64 * (i % 16), 64 * (i % 16) + 64)
            value, p, m = step(p, m, x[rows], labels[rows])
            losses.append(float(value))
        return losses, p

    losses, p = trained(q)
    assert np.mean(losses[-16:]) < 0.4 * losses[0]
    _, wanted = trained(net)
    test, answers = prototypes(500, 2)
    # As good as float training, and better than quantizing what float training gave, if that costs anything.
    assert accuracy(q, p, test, answers) > accuracy(net, wanted, test, answers) - 0.03
    assert accuracy(q, p, test, answers) > accuracy(q, wanted, test, answers) - 0.01
    if name == "int8":
        # What was trained is what is deployed.
        bits(q(q.quantize_params(p, test), test), q(p, test))


# --- errors ---


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nx.quantize(f)(P, X), "no calibration data(?s:.*)calibrate=batches"),
        (lambda: nx.quantize(f, "int7"), "no such preset(?s:.*)'int7'(?s:.*)int8, int16x8, dynamic-int8"),
        (lambda: nx.quantize(f, 8), "one of int8.*a Scheme, or a function of"),
        (lambda: nx.quantize(f, lambda op: None), "a function of"),
        (lambda: nx.quantize(f, lambda op, scope, types: "int7")(P, X), "no such preset"),
        (lambda: nx.quantize(f, lambda op, scope, types: 7)(P, X), "the policy's answer for dot_general"),
        (lambda: nx.quantize(f, lambda op, scope, types: None)(P, X), "nothing in the function is quantized"),
        (lambda: nx.quantize(f, Scheme(activations=None, weights=None))(P, X), "nothing in the function is quantized"),
        (lambda: nx.quantize(lambda x: x)(X), "no equations"),
        (lambda: nx.quantize(3), "needs a function"),
        (lambda: nx.quantize(nx.quantize(f)), "quantized already(?s:.*)f.fun"),
        (lambda: nx.quantize(f, params=(5,), calibrate=BATCH), "no such positional argument"),
        (lambda: nx.quantize(f, ranges={"in_0": 3}), "the range of in_0"),
        (lambda: nx.quantize(f, ranges={"in_0": (np.nan, 1)}), "both finite"),
        (lambda: nx.quantize(f, ranges={"in_0": (2, 1)}), r"\(least, greatest\)"),
        (lambda: nx.quantize(f, ranges={"in_0": (0, 1)})(P, X), "another program(?s:.*)in_3, relu_0"),
        (lambda: nx.quantize(f, observer="largest", calibrate=BATCH), "minmax, moving-average"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(make: Any, said: str):
    with pytest.raises(ParameterError, match=said) as caught:
        make()
    assert caught.value.source is not None and caught.value.source.file == __file__


def test_other_errors_are_the_functions_own():
    q = nx.quantize(f, "int8", calibrate=BATCH)
    with pytest.raises(ShapeError, match="contracting dimensions differ"):
        q(P, X[:, :5])
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        q(P)
    with pytest.raises(DtypeError, match="not an array"):
        q(P, "text")
    with pytest.raises(KeyError):
        q({"w": P["w"]}, X)
    stored = q.quantize_params(P, X)
    with pytest.raises(ShapeError, match="do not divide"):
        q({**stored, "w": QArray(stored["w"].values, stored["w"].scale[0])}, X)


def product_of_three(a: Any, b: Any, c: Any) -> Any:
    return jnp.einsum("ij,jk,kl->il", a, b, c)


def test_a_range_of_another_value_is_not_taken():
    """einsum multiplies in another order where sizes differ: values have the names of others, and their ranges not."""
    b, c = (normal(20, 20, scale=10) for _ in range(2))
    short, long = (np.full((n, 20), 0.01, np.float32) for n in (1, 600))
    quantized = nx.quantize(product_of_three, "int8", calibrate=[(short, b, c)])
    assert np.isfinite(quantized(short, b, c)).all()
    for call in (quantized, nx.jit(quantized), lambda *xs: nx.compile(quantized, target="tflite", constants=())(*xs)):
        with pytest.raises(ParameterError, match=r"another program(.|\n)*dot_general_0 is computed from inputs 1, 2"):
            call(long, b, c)
    with pytest.raises(ParameterError, match=r"another program(.|\n)*from inputs 0, 1"):
        nx.quantize(product_of_three, "int8", calibrate=[(short, b, c), (long, b, c)])
    ordered = lambda *xs: jnp.einsum("ij,jk,kl->il", *xs, optimize=[(0, 1), (0, 1)])
    fits = nx.quantize(ordered, "int8", calibrate=[(short, b, c)])
    assert np.abs(fits(long, b, c) - long @ b @ c).max() < 0.05 * np.abs(long @ b @ c).max()


def test_settings_that_change_the_program_do_not_change_what_a_range_is_of():
    outer = lambda a, b, c: jnp.einsum("a,b,c->cab", a, b, c)
    args = normal(4), normal(1), normal(3)
    quantized = nx.quantize(outer, "int16x8", calibrate=[args])
    with nx.config.using(reproducible=True):
        with pytest.raises(ParameterError, match=r"another program(.|\n)*with these settings"):
            quantized(*args)
        again = nx.quantize(outer, "int16x8", calibrate=[args])
        assert np.abs(again(*args) - outer(*args)).max() < 1e-3
