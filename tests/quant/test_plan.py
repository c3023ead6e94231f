"""Plans: what is grouped, what each value is called, which need ranges, what is left in float and why."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import ParameterError
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Layered, as_policy

R = np.random.default_rng(0)
P = {
    "w": R.standard_normal((8, 8)).astype(np.float32), "b": np.ones(8, np.float32), "g": np.full(8, 2, np.float32),
    "k": R.standard_normal((3, 3, 8, 8)).astype(np.float32),
}  # fmt: skip
X = R.standard_normal((2, 8)).astype(np.float32)
I = R.standard_normal((1, 6, 6, 8)).astype(np.float32)


def plan(f: Any, *args: Any, policy: Any = "int8", **kwargs: Any) -> QuantPlan:
    return PlannedCall(f, args or (P, X), kwargs, None).plan(as_policy(policy), "test")


def groups(f: Any, *args: Any, policy: Any = "int8") -> list[tuple[str, ...]]:
    return [tuple(e.op.name for e in g.equations) for g in plan(f, *args, policy=policy).groups()]


def left(f: Any, *args: Any, policy: Any = "int8") -> list[str]:
    return [e.op.name for e, _ in plan(f, *args, policy=policy).left]


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda p, x: x @ p["w"], [("dot_general",)]),
        (lambda p, x: nn.relu(x @ p["w"] + p["b"]), [("dot_general", "add", "relu")]),
        (lambda p, x: nn.relu6(p["b"] + p["w"] @ x.T[:, 0]), None),
        (lambda p, x: (x @ p["w"] - p["b"]) * p["g"] + p["b"], [("dot_general", "sub", "mul", "add")]),
        (lambda p, x: (x @ p["w"]) / p["g"], [("dot_general", "div")]),
        (lambda p, x: jnp.clip(x @ p["w"], -1, 1), None),
        (lambda p, x: jnp.minimum(jnp.maximum(x @ p["w"], 0), 6), [("dot_general", "max", "min")]),
        # What has another user is no part of the product.
        (lambda p, x: (lambda y: nn.relu(y) + y)(x @ p["w"]), [("dot_general",), ("relu",), ("add",)]),
        # Nor what does not lie along its channels, nor what divides by it.
        (lambda p, x: x @ p["w"] + p["w"][:2], [("dot_general",), ("add",)]),
        (lambda p, x: p["b"] - x @ p["w"], [("dot_general",), ("sub",)]),
        # After the clamp, a bias is one of its own.
        (lambda p, x: nn.relu(x @ p["w"]) + p["b"], [("dot_general", "relu"), ("add",)]),
        (lambda p, x: x @ x.T, [("transpose",), ("dot_general",)]),
        (lambda p, x: jnp.tanh(x), [("tanh",)]),
        (lambda p, x: x.mean(0), None),
        (lambda p, x: x * x, [("mul",)]),
    ],
)
def test_groups(f: Any, wanted: Any):
    found = groups(f)
    if wanted is None:
        assert len(found) == 1 or found[-1][0] in ("dot_general", "reduce_sum")
    else:
        assert found == wanted
    assert not [op for op in left(f) if op != "div"]


def test_groups_of_convolutions():
    block = lambda p, x: nn.relu((conv(x, p["k"]) - p["b"]) * (p["g"] / jnp.sqrt(p["b"] + 1e-3)) + p["b"])
    assert groups(block, P, I) == [("conv_general_dilated", "sub", "mul", "add", "relu")]
    # A product is computed where its last equation stands, when all it needs is there.
    late = lambda p, x: (lambda y, z: y + jnp.exp(p["g"]) + 0 * z)(conv(x, p["k"]), jnp.tanh(x))
    q = nx.quantize(late, "int8", calibrate=[(P, I)])
    np.testing.assert_array_equal(np.asarray(q(P, I)), np.asarray(nx.jit(q)(P, I)))


def test_names_do_not_depend_on_the_policy():
    f = lambda p, x: nn.layer_norm(jnp.tanh(x @ p["w"]) @ p["w"], p["g"], p["b"])
    every = plan(f)
    some = plan(f, policy=lambda op, scope, types: "int16x8" if op in ("dot_general", "layer_norm") else None)
    sites = {v for v in some.sites.values() if "/" not in v}
    assert sites <= set(every.names.values())
    assert [every.layer(g) for g in every.groups()][:3] == ["dot_general_0", "tanh_0", "dot_general_1"]
    assert any(site.startswith("layer_norm_0/") for site in every.sites.values())


def test_pieces_of_a_composite_have_its_line_and_scope():
    def f(p, x):
        with nx.named_scope("head"):
            return nn.layer_norm(x @ p["w"], p["g"], p["b"])

    pieces = [e for e in plan(f).program.equations if e.op.name != "dot_general"]
    assert len(pieces) > 5 and {e.scope for e in pieces} == {"head"}
    assert all("nn.layer_norm(x @" in e.source.shown() for e in pieces)


def test_sites_are_what_needs_a_range():
    # Results of tanh and softmax have grids of their own; moves keep theirs.
    f = lambda p, x: nn.softmax(jnp.tanh(x @ p["w"]).reshape(4, 4)[::2])
    assert list(plan(f).sites.values()) == ["in_4", "dot_general_0"]
    assert list(plan(f, policy="dynamic-int8").all_sites()) == []
    # An operand of a concatenation goes to its grid at once.
    g = lambda p, x: jnp.concatenate([x, x @ p["w"]])
    assert sorted(plan(g).sites.values()) == ["concatenate_0", "dot_general_0", "in_4"]


def test_inner_plans_have_inner_names():
    f = lambda p, x: lax.scan(
        lambda c, w: (lax.cond(c.sum() > 0, lambda c: c @ w, lambda c: -c @ w, c), None), x, jnp.stack([p["w"]] * 3)
    )[0]
    found = plan(f)
    (scan,) = [s for s in found.steps if isinstance(s, Inner)]
    (cond,) = [s for s in scan.plans[0].steps if isinstance(s, Inner)]
    assert len(cond.plans) == 2
    sites = found.all_sites()
    assert {"scan_0/cond_0/0", "scan_0/cond_0/1"} <= {s.rsplit("/", 1)[0] for s in sites}
    assert len(set(sites)) == len(sites)


def test_programs_without_products_are_not_looked_into():
    f = lambda p, x: lax.scan(lambda c, _: (jnp.tanh(c), None), x @ p["w"], None, length=2)[0]
    assert left(f) == ["scan"] and groups(f) == [("dot_general",)]


def test_calls_are_written_out():
    @nx.jit
    def layer(p: Any, x: Any) -> Any:
        return nn.relu(x @ p["w"])

    assert groups(lambda p, x: nx.jit(layer)(p, layer(p, x))) == [("dot_general", "relu")] * 2


def test_what_nothing_needs_is_no_user():
    def f(p: Any, x: Any) -> Any:
        y = x @ p["w"]
        unused = jnp.tanh(y) + y  # noqa: F841
        return nn.relu(y + p["b"])

    assert groups(f) == [("dot_general", "add", "relu")]
    assert list(plan(f).sites.values()) == ["in_4", "relu_0"]


def test_weights_are_not_computed_on_integers():
    f = lambda p, x: x @ (jnp.tanh(p["w"]) * 2 + p["b"])
    assert groups(f) == [("dot_general",)] and left(f) == []


def test_composites_open_only_for_integers():
    f = lambda p, x: nn.silu(nn.layer_norm(x @ p["w"], p["g"], p["b"]))
    assert "silu" not in str(plan(f).program) and "layer_norm" not in str(plan(f).program)
    kept = str(plan(f, policy="int8-weights").program)
    assert "silu" in kept and "layer_norm" in kept
    mixed = plan(f, policy=lambda op, scope, types: None if op == "silu" else "int8")
    assert "silu" in str(mixed.program) and "layer_norm[" not in str(mixed.program)


def test_what_is_left_is_said():
    f = lambda p, x: jnp.sort(x @ p["w"]) + lax.top_k(x, 8)[0]
    found = plan(f)
    assert {e.op.name for e, _ in found.left} == {"sort", "top_k"}
    assert all(e.source is not None and e.source.file == __file__ and reason for e, reason in found.left)


def test_layers_excepted_are_left():
    policy = Layered(as_policy("int8"), {"dot_general_0": None, "relu_0": None})
    f = lambda p, x: nn.relu(x @ p["w"]) @ p["w"]
    assert groups(f, policy=policy) == [("dot_general",)] and left(f, policy=policy) == ["dot_general", "relu"]


def test_masks_on_the_way_into_a_softmax_are_marked():
    f = lambda p, x: nn.softmax(jnp.where(np.tril(np.ones((8, 8), bool)), x[0] * p["w"], -1e9))
    found = plan(f)
    assert found.masked and all(v.margin > 6 and v.axis is not None for v in found.masked.values())
    assert not plan(lambda p, x: nn.relu(x @ p["w"])).masked


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (lambda p, x: x, "no equations"),
        (lambda p, x: (x @ p["w"]).astype("float16") if False else jnp.sort(x), "sort in f32"),
        (lambda p, x: x.astype("int32") + 1, "add in i32"),
        (lambda p, x: x.astype("float16") @ p["w"].astype("float16"), "dot_general in f16"),
    ],
)
def test_nothing_to_quantize(f: Any, said: str):
    with pytest.raises(ParameterError, match=said):
        plan(f)


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "mish", "expm1", "log1p", "cube", "fifth"])
def test_functions_without_kernels_of_16_bits_are_their_parts(name: str):
    functions = {
        "elu": nx.nn.elu, "selu": nx.nn.selu, "celu": nx.nn.celu, "softplus": nx.nn.softplus, "expm1": jnp.expm1,
        "mish": lambda x: x * jnp.tanh(nx.nn.softplus(x)), "log1p": lambda x: jnp.log1p(abs(x)),
        "cube": lambda x: x**3, "fifth": lambda x: x**5,
    }  # fmt: skip
    f = functions[name]
    x = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    q = nx.quantize(f, "int16x8", calibrate=[(x,)])
    assert not q.plan(q.traced(x)).left
    y, quantized = np.asarray(f(x), np.float64), np.asarray(q(x), np.float64)
    # The 16-bit exponential of TFLite interpolates between 513 values.
    assert 10 * np.log10((y**2).sum() / ((y - quantized) ** 2).sum()) > 50
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(x)), np.asarray(q(x)))
    # Tables of 8 bits stay whole.
    eight = nx.quantize(f, "int8", calibrate=[(x,)])
    tables = {g.equations[0].op.name for g in eight.plan(eight.traced(x)).groups()}
    assert "exp" not in tables and "log" not in tables
