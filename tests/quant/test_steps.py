"""Steps of a state on integer grids: one grid at both ends, a state that calibration carries, sums that are exact."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError
from nxjax.quant.steps import ROOM
from nxjax.transforms.inline import inlined
from tests.quant import head

pytest.importorskip("sklearn")


def trained(step, n, seed=1):
    step, state = nx.jit(step), head.first()
    for x, y in head.batches(n, seed):
        state, _ = step(state, x, y)
    return state


def test_sixteen_bits_learn_as_well_as_floats():
    steps = 200
    by_float = head.accuracy(trained(head.train, steps))
    assert by_float > 0.8
    for policy in (head.body_in_8_bits, head.all_in_integers):
        assert head.accuracy(trained(head.quantized(policy), steps)) > by_float - 0.02


def test_the_state_has_one_grid_at_both_ends():
    q = head.quantized(head.all_in_integers, 30)
    x, y = next(head.batches(1))
    call = q.traced(head.first(), x, y)
    plan = q.plan(call)
    ends = zip(plan.program.inputs[:4], plan.program.outputs[:4], strict=True)
    spans = [(q.ranges[plan.sites[i]], q.ranges[plan.sites[o]]) for i, o in ends]
    assert all(a == b and a[0] == -a[1] < 0 for a, b in spans)
    # What comes out stays as it is where it goes in: a step that changes nothing changes no bit.
    state, _ = q(head.first(), x, y)
    grids = [e.params["grid"] for e in inlined(nx.make_jaxpr(q)(state, x, y)).equations if "grid" in e.params]
    w = np.asarray(state[0]["w"])
    assert any((np.asarray(g.dequantize(g.quantize(w))) == w).all() for g in grids if g.dtype == np.int16)


def test_calibration_carries_the_state_and_leaves_room():
    step = lambda n, x: (n + x, n)
    q = nx.quantize(step, "int16x8", calibrate=[(jnp.zeros(1), jnp.ones(1))] * 5, state=0, progress=False)
    assert q.state == 0 and q.ranges["in_0"] == q.ranges["add_0"] == (-5 * ROOM, 5 * ROOM)
    n = jnp.zeros(1)
    for _ in range(8):
        n, _ = q(n, jnp.ones(1))
    assert abs(float(n[0]) - 8) < 0.01


def test_a_state_alone_is_a_result_and_weights_are_found_beside_it():
    step = lambda params, n, x: n * 0.5 + x @ params["w"]
    params = {"w": jnp.ones((2, 2))}
    batch = (params, jnp.zeros((1, 2)), jnp.ones((1, 2)))
    q = nx.quantize(step, "int8", calibrate=[batch] * 9, state=1, progress=False)
    assert q.params == (0,)
    assert bool(abs(q(*batch) - 2).max() < 0.1)


def test_sums_on_grids_are_products_and_others_stay():
    def step(n, x):
        with nx.named_scope("float"):
            y = (x * x).sum(0)
        return n + x.sum((0, 2)) + y.sum(1), x.sum()

    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4)), jnp.float32)
    policy = lambda op, scope, types: None if scope == "float" else "int16x8"
    q = nx.quantize(step, policy, calibrate=[(jnp.zeros(3), x)], state=0, progress=False)
    program = inlined(nx.make_jaxpr(q.fun)(jnp.zeros(3), x))
    assert [e.scope for e in program.equations if e.op.name == "reduce_sum"] == ["float"]
    for got, wanted in zip(q(jnp.zeros(3), x), step(jnp.zeros(3), x), strict=True):
        assert np.allclose(got, wanted, atol=2e-3)


@pytest.mark.parametrize(
    ("step", "options", "says"),
    [
        (lambda n, x: x @ x, {"state": 0}, "does not return the state that it takes"),
        (
            lambda n, x: ({k: v[:1] for k, v in n.items()}, x @ x),
            {"state": 0},
            "does not return the state that it takes",
        ),
        (lambda n, x: (n + x, x), {"state": "n"}, "position of an argument"),
        (lambda n, x: (n + x, x), {"state": True}, "position of an argument"),
        (lambda n, x: (n + x, x), {"state": 2}, "names no argument"),
        (lambda n, x: (n + x, x), {"state": 0, "policy": "auto"}, "steps of a state"),
        (lambda n, x: (n + x, x), {"state": 0, "calibrate": []}, "no batches"),
        (lambda n, x: (n + x, x), {"state": 0, "calibrate": None}, "no ranges are known"),
    ],
)
def test_what_is_no_step_is_refused(step, options, says):
    batch = {"n": jnp.zeros((2, 2))}, jnp.ones((2, 2))
    if "return" not in says:
        batch = jnp.zeros((2, 2)), jnp.ones((2, 2))
    options = {"policy": "int8", "calibrate": [batch], "progress": False, **options}
    with pytest.raises(ParameterError, match=says):
        nx.quantize(step, **options)(*batch)
