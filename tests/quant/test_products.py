"""Products on integers: every layout, with what follows folded in, against the float function and exact arithmetic."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.ops.quant_grid import asymmetric

R = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / max(((q - y) ** 2).sum(), 1e-30)))


def check(f: Any, p: Any, x: Any, least: float = 27, ops: tuple[str, ...] = ()) -> None:
    for policy, more in (("int8", 0), ("int16x8", 6)):
        q = nx.quantize(f, policy, calibrate=[(p, x)])
        assert not q.plan(q.traced(p, x)).left
        y = q(p, x)
        assert sqnr(f(p, x), y) > least + more
        np.testing.assert_array_equal(np.asarray(nx.jit(q)(p, x)), np.asarray(y))
        names = [e.op.name for e in nx.make_jaxpr(q)(p, x).equations]
        assert all(names.count(op) == 1 for op in ops), names
        stored = q.quantize_params(p, x) if any(isinstance(v, nx.QArray) for v in _stored(q, p, x)) else p
        np.testing.assert_array_equal(np.asarray(q(stored, x)), np.asarray(y))


def _stored(q: Any, p: Any, x: Any) -> list[Any]:
    try:
        return list(q.quantize_params(p, x).values())
    except nx.errors.ParameterError:
        return []


CONVS = {
    "NHWC": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 3, 4, 5), {}),
    "NCHW": (("NCHW", "OIHW", "NCHW"), (2, 4, 6, 7), (5, 4, 3, 3), {}),
    "mixed": (("NHWC", "OIHW", "NCHW"), (2, 6, 7, 4), (5, 4, 3, 3), {}),
    "strides": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 2, 4, 5), {"window_strides": (2, 3)}),
    "valid": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 3, 4, 5), {"padding": "VALID"}),
    "uneven": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 3, 4, 5), {"padding": [(0, 2), (3, 1)]}),
    "dilated": (("NHWC", "HWIO", "NHWC"), (2, 8, 8, 4), (3, 3, 4, 5), {"rhs_dilation": (2, 3)}),
    "transposed": (
        ("NHWC", "HWIO", "NHWC"),
        (2, 4, 4, 4),
        (3, 3, 4, 5),
        {"lhs_dilation": (2, 2), "padding": [(1, 2), (2, 1)]},
    ),
    "grouped": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 3, 2, 6), {"feature_group_count": 2}),
    "depthwise": (("NHWC", "HWIO", "NHWC"), (2, 6, 7, 4), (3, 3, 1, 8), {"feature_group_count": 4}),
    "1 dimension": (("NWC", "WIO", "NWC"), (2, 9, 4), (3, 4, 5), {"window_strides": (2,)}),
    "3 dimensions": (("NDHWC", "DHWIO", "NDHWC"), (1, 4, 4, 4, 3), (2, 2, 2, 3, 4), {"window_strides": (1, 1, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name: str):
    numbers, given, shape, params = CONVS[name]
    p = {"w": normal(*shape, scale=0.3), "b": normal(shape[0] if "OI" in numbers[1] else shape[-1])}
    params = {"window_strides": (1, 1), "padding": "SAME", **params}
    at = numbers[2].index("C")
    row = lambda b: b.reshape([-1 if i == at else 1 for i in range(len(numbers[2]))])
    f = lambda p, x: nn.relu(lax.conv_general_dilated(x, p["w"], dimension_numbers=numbers, **params) + row(p["b"]))
    check(f, p, normal(*given), ops=("qconv",))


DOTS = {
    "matrix": ("bi,io->bo", (4, 6), (6, 5)),
    "transposed": ("bi,oi->bo", (4, 6), (5, 6)),
    "vector": ("i,io->o", (6,), (6, 5)),
    "to a number": ("bi,i->b", (4, 6), (6,)),
    "three": ("bti,io->bto", (2, 3, 6), (6, 5)),
    "heads": ("bti,ihd->bhtd", (2, 3, 6), (6, 2, 4)),
    "two summed": ("bthd,hdo->bto", (2, 3, 2, 4), (2, 4, 5)),
    "first operand": ("oi,ib->ob", (6, 3), (5, 6)),
    "experts": ("ebi,eio->ebo", (3, 2, 6), (3, 6, 4)),
}


@pytest.mark.parametrize("name", DOTS)
def test_dots(name: str):
    spec, given, shape = DOTS[name]
    p, x = {"w": normal(*shape, scale=0.4)}, normal(*given)
    f = (lambda p, x: jnp.einsum(spec, p["w"], x)) if name == "first operand" else (
        lambda p, x: jnp.einsum(spec, x, p["w"])
    )  # fmt: skip
    check(f, p, x, 24, ("qdot",))
    per_tensor = nx.quantize(f, nx.quant.Scheme(dense_per_channel=False), calibrate=[(p, x)])
    assert sqnr(f(p, x), per_tensor(p, x)) > 24


def test_products_of_activations():
    p = {"w": normal(8, 8, scale=0.3)}
    x = normal(2, 5, 8)
    for f in (
        lambda p, x: x @ (x @ p["w"]).swapaxes(1, 2),
        lambda p, x: jnp.einsum("bti,bsi->bts", x, x @ p["w"]),
        lambda p, x: nn.relu(jnp.einsum("bti,btj->bij", x, x @ p["w"])),
    ):
        check(f, p, x, 27, ("qdot", "qmatmul"))


AFTER = {
    "add": lambda y, v: y + v, "sub": lambda y, v: y - v, "mul": lambda y, v: y * v, "div": lambda y, v: y / v,
    "number": lambda y, v: y * 0.5 + 1, "minus": lambda y, v: y * -1.0,
}  # fmt: skip


CLAMPS = {
    "none": lambda y: y, "relu": nn.relu, "relu6": nn.relu6, "clip": lambda y: jnp.clip(y, -0.5, 2.5),
    "max": lambda y: jnp.maximum(y, -1.0),
}  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(st.sampled_from(list(AFTER)), max_size=3),
    clamp=st.sampled_from(list(CLAMPS)),
    seed=st.integers(0, 1000),
)
def test_what_follows_is_folded_in(steps: list[str], clamp: str, seed: int):
    r = np.random.default_rng(seed)
    p = {"w": r.standard_normal((6, 5)).astype(np.float32)}
    p.update({f"v{i}": (r.uniform(0.5, 2, 5) * r.choice([-1, 1], 5)).astype(np.float32) for i in range(len(steps))})

    def affine(p: Any, x: Any) -> Any:
        y = x @ p["w"]
        for i, step in enumerate(steps):
            v = p[f"v{i}"]
            y = AFTER[step](y, v)
        return y

    f = lambda p, x: CLAMPS[clamp](affine(p, x))
    x = r.standard_normal((40, 6)).astype(np.float32)
    q = nx.quantize(f, "int8", calibrate=[(p, x)])
    plan = q.plan(q.traced(p, x))
    assert len(plan.groups()) == 1 and not plan.left
    y = np.asarray(f(p, x))
    step = max(plan_scale(q), 1e-6)
    # Two steps of the result's grid, and what 8-bit weights and inputs lose on the way.
    ends = np.asarray(affine(p, np.concatenate([np.eye(6), np.zeros((1, 6))]).astype(np.float32)))
    gain = max(np.abs(ends[:-1] - ends[-1]).sum(0).max(), 1)
    assert np.abs(np.asarray(q(p, x)) - y).max() < 2 * step + 0.04 * gain * np.abs(x).max()
    np.testing.assert_array_equal(np.asarray(nx.jit(q)(p, x)), np.asarray(q(p, x)))


def plan_scale(q: Any) -> float:
    low, high = list(q.ranges.values())[-1]
    return float(np.asarray(asymmetric(low, high).scale))


def test_the_integers_are_the_specifications():
    """One dense layer by hand: weights, bias, sum, rescaling, clamp."""
    p, x = {"w": normal(16, 4), "b": normal(4)}, normal(8, 16)
    f = lambda p, x: nn.relu(x @ p["w"] + p["b"])
    q = nx.quantize(f, nx.quant.Scheme(dense_per_channel=False), calibrate=[(p, x)])
    x_grid, y_grid = asymmetric(*q.ranges["in_2"]), asymmetric(*q.ranges["relu_0"])
    scale = np.float32(np.abs(p["w"]).max() * np.float32(1 / 127))
    w = np.rint(p["w"] / scale).astype(np.int64)
    b = np.rint(p["b"].astype(np.float64) / (np.float64(x_grid.scale) * np.float64(scale))).astype(np.int64)
    total = (x_grid.quantize(x).astype(np.int64) - x_grid.zero_point) @ w + b
    real = total * (np.float64(x_grid.scale) * np.float64(scale) / np.float64(y_grid.scale))
    wanted = np.clip(np.rint(real) + y_grid.zero_point, y_grid.zero_point, 127)
    got = np.asarray(q(p, x), np.float64) / y_grid.scale + y_grid.zero_point
    # Fixed point rounds halves its own way, and has 31 bits for the factor.
    assert np.abs(np.rint(got) - wanted).max() <= 1 and (np.rint(got) == wanted).mean() > 0.9
    assert np.abs(got - np.rint(got)).max() < 1e-3


@pytest.mark.parametrize("policy", nx.quant.PRESETS)
def test_weights_of_zeros_and_of_one_value(policy: str):
    x = normal(4, 64)
    for w in (np.zeros((64, 3), np.float32), np.full((64, 3), 0.7, np.float32), 1e-30 * normal(64, 3)):
        f = lambda p, x: x @ p["w"]
        q = nx.quantize(f, policy, calibrate=[({"w": w}, x)])
        y = np.asarray(q({"w": w}, x))
        assert np.isfinite(y).all() and np.abs(y - x @ w).max() <= 0.2 * np.abs(x @ w).max() + 1e-25
        assert np.isfinite(np.asarray(nx.grad(lambda p, q=q: q(p, x).sum())({"w": nx.asarray(w)})["w"])).all()


def test_products_with_the_batch_in_the_weights_stay_float():
    f = lambda p, x: lax.conv_general_dilated(
        x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), batch_group_count=2
    ) + jnp.tanh(p["w"]).sum()  # fmt: skip
    p, x = {"w": normal(3, 3, 4, 6)}, normal(2, 5, 5, 4)
    q = nx.quantize(f, "int8", calibrate=[(p, x)])
    assert [e.op.name for e, _ in q.plan(q.traced(p, x)).left] == ["conv_general_dilated"]
    assert sqnr(f(p, x), q(p, x)) > 30
