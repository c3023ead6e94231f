"""The observing interpreter: results untouched, statistics of every site, whatever control flow they lie in."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import ParameterError
from nxjax.quant.observe import BINS, Histograms, Ranges
from nxjax.quant.plan import Inner
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import preset

R = np.random.default_rng(0)
P = {"w": (R.standard_normal((4, 4)) / 2).astype(np.float32)}
X = R.standard_normal((3, 4)).astype(np.float32)


def ranges(f: Any, *args: Any) -> dict[str, tuple[float, float]]:
    y, found = nx.calibrate(f)(*args)
    for a, b in zip(nx.tree.leaves(y), nx.tree.leaves(f(*args)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return {k: (float(low), float(high)) for k, (low, high) in found.items()}


def span(*xs: Any) -> tuple[float, float]:
    return min(float(np.min(x)) for x in xs), max(float(np.max(x)) for x in xs)


def close(found: tuple[float, float], wanted: tuple[float, float]) -> None:
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def steps(n: int) -> list[np.ndarray]:
    xs = [X]
    for _ in range(n):
        xs.append(np.tanh(xs[-1] @ P["w"]))
    return xs


def test_scans_join_their_steps():
    f = lambda p, x: lax.scan(lambda c, _: (jnp.tanh(c @ p["w"]), c.sum()), x, None, length=4)
    xs = steps(4)
    found = ranges(f, P, X)
    close(found["scan_0/in_0" if "scan_0/in_0" in found else "scan_0/in_1"], span(*xs[:4]))
    close(found["scan_0/dot_general_0"], span(*(x @ P["w"] for x in xs[:4])))


@pytest.mark.parametrize("n", [1, 3])
def test_loops_join_their_steps(n: int):
    f = lambda p, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ p["w"])), (0, x))[1]
    found = ranges(f, P, X)
    (dot,) = [v for k, v in found.items() if "dot_general" in k]
    close(dot, span(*(x @ P["w"] for x in steps(n)[:n])))


def test_a_loop_of_no_steps_sees_nothing():
    f = lambda p, x, n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] @ p["w"]), (0, x))[1]
    found = ranges(f, P, X, 0)
    assert {v for k, v in found.items() if "while" in k} == {(np.inf, -np.inf)}


def test_branches_see_what_they_compute():
    f = lambda p, x: lax.cond(x[0, 0] > 0, lambda x: x @ p["w"], lambda x: -x @ p["w"], x)
    for x in (np.abs(X), -np.abs(X)):
        found = ranges(f, P, x)
        taken, other = ("1", "0") if x[0, 0] > 0 else ("0", "1")
        dots = {k: v for k, v in found.items() if "dot_general" in k}
        (seen,) = [v for k, v in dots.items() if k.startswith(f"cond_0/{taken}/")]
        (unseen,) = [v for k, v in dots.items() if k.startswith(f"cond_0/{other}/")]
        close(seen, span((x if taken == "1" else -x) @ P["w"]))
        assert unseen == (np.inf, -np.inf)


def test_nested_control_flow():
    inner = lambda p, x: lax.cond(x.sum() > 1e6, lambda x: x, lambda x: jnp.tanh(x @ p["w"]), x)
    f = lambda p, x: lax.scan(lambda c, _: (nx.checkpoint(inner)(p, c), None), x, None, length=2)[0]
    found = ranges(f, P, X)
    (dot,) = [v for k, v in found.items() if k.endswith("dot_general_0")]
    close(dot, span(*(x @ P["w"] for x in steps(2)[:2])))


def test_a_condition_that_computes_products_stays_float():
    f = lambda p, x: lax.while_loop(lambda x: (x @ p["w"]).sum() > 1e9, lambda x: x @ p["w"], x)
    assert not [site for site in ranges(f, P, X) if site.startswith("while_0/0/")]


def test_a_loop_runs_as_often_as_it_does_in_float():
    up = np.sign(P["w"].sum(1)) / 10
    below = lambda p, s: ((s[1] @ p["w"]).sum() < 3) & (s[0] < 50)
    body = lambda p, s: (s[0] + 1, s[1] + up + jnp.tanh(s[1] @ p["w"]) / 1000)
    turns = lambda p, x: lax.while_loop(lambda s: below(p, s), lambda s: body(p, s), (0, x))
    q = nx.quantize(turns, calibrate=[(P, X)])
    assert 0 < int(turns(P, X)[0]) < 50 and abs(int(q(P, X)[0]) - int(turns(P, X)[0])) <= 1
    plan = q.plan(q.traced(P, X))
    (inner,) = [step for step in plan.steps if isinstance(step, Inner)]
    condition, body = inner.plans
    assert not condition.groups() and body.groups()
    assert {why for _, why in condition.left} == {"it decides how often a loop runs, which stays float"}


def test_under_vmap_each_element_turns_as_often_as_it_does_in_float():
    f = lambda p, x: lax.while_loop(lambda x: (x * x).sum() > 1e-3, lambda x: jnp.tanh(x @ p["w"]) / 2, x)
    q = nx.quantize(nx.vmap(f, (None, 0)), "int8", calibrate=[(P, X)])
    assert (np.square(q(P, X)).sum(1) <= 1e-3).all() and "qdot" in str(nx.make_jaxpr(q)(P, X))


def test_under_vmap_what_is_computed_for_elements_that_are_done_has_no_part_in_ranges():
    shrunk = lambda c: (c[0] - 1, jnp.tanh((c[1] / c[0]) @ P["w"]))
    f = nx.vmap(lambda n, x: lax.while_loop(lambda c: c[0] > 0, shrunk, (n, x))[1])
    n = np.array([1, 3, 2], np.float32)
    q = nx.quantize(f, "int8", calibrate=[(n, X)])
    np.testing.assert_allclose(q(n, X), f(n, X), atol=0.1)


def histogram(f: Any, spans: dict[str, Any], *args: Any) -> dict[str, np.ndarray]:
    call = PlannedCall(f, args, {}, None)
    _, found = call.observed(call.plan(preset("int8"), "test"), Histograms(spans, spans))
    return {k: np.asarray(v) for k, (v,) in found.items()}


def test_histograms_are_numpys():
    x = R.standard_normal((500, 4)).astype(np.float32)
    f = lambda p, x: x @ p["w"]
    spans = {"in_1": span(x), "dot_general_0": span(x @ P["w"])}
    found = histogram(f, spans, P, x)
    for site, v in (("in_1", x), ("dot_general_0", x @ P["w"])):
        top = max(map(abs, spans[site]))
        wanted = np.histogram(np.abs(v), BINS, (0, top))[0]
        assert found[site].sum() == v.size and np.abs(np.cumsum(found[site]) - np.cumsum(wanted)).max() <= 2


def test_histograms_of_constants_and_of_nothing():
    f = lambda p, x: x @ p["w"]
    spans = {"in_1": (0.0, 0.0), "dot_general_0": (-1.0, 2.0)}
    found = histogram(f, spans, P, np.zeros((2, 4), np.float32))
    assert found["in_1"][0] == 8 and found["in_1"].sum() == 8
    found = histogram(f, spans, P, np.zeros((0, 4), np.float32))
    assert not found["in_1"].any()


def test_values_beyond_the_range_count_into_the_last_bin():
    f = lambda p, x: x @ p["w"]
    found = histogram(f, {"in_1": (-1.0, 1.0), "dot_general_0": (-1.0, 1.0)}, P, np.full((2, 4), 5, np.float32))
    assert found["in_1"][-1] == 8


def test_histograms_in_scans_add_up():
    f = lambda p, x: lax.scan(lambda c, _: (c @ p["w"], None), x, None, length=5)[0]
    sites = nx.calibrate(f)(P, X)[1]
    found = histogram(f, dict.fromkeys(sites, (-10.0, 10.0)), P, X)
    assert all(v.sum() == 5 * X.size for k, v in found.items() if k.startswith("scan_0/"))


def test_statistics_of_a_recorder_join():
    r = Ranges()
    a, b = (nx.asarray(np.float32(v)) for v in (-1, 2)), (nx.asarray(np.float32(v)) for v in (-3, 1))
    joined = r.joined(tuple(a), tuple(b))
    assert [float(v) for v in joined] == [-3, 2]
    assert [float(v) for v in r.joined(joined, r.neutral())] == [-3, 2]


SPREAD = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.where(x > 0, jnp.sqrt(x), 0),
        lambda x: jnp.where(x > 0, jnp.sqrt(x) * 2 + 1, 0),
        lambda x: jnp.where(x > 0, 0, jnp.sqrt(-x)),
        lambda x: jnp.where(x > 0.1, jnp.log(x), 0),
        lambda x: jnp.where(jnp.abs(x) > 0.5, 1 / x, 0),
        lambda x: jnp.where(x > 0.5, 1 / jnp.maximum(x, 0), 0),
        lambda x: (lambda r: jnp.where(x > 0, r, 0) + jnp.where(x > 1, r, 1))(jnp.sqrt(x)),
        lambda x: jnp.where(x > 0, jnp.where(x > 1, jnp.log(x), jnp.sqrt(x)), 0),
        lambda x: jnp.where(x > 0, 2 - jnp.where(x > 1, jnp.sqrt(x), x * x), 0),
        lambda x: jnp.select([x < 0, x < 1], [jnp.sqrt(-x), jnp.sqrt(x)], jnp.log(x)),
    ],
)
@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_elements_that_a_where_leaves_out_have_no_part_in_the_range(f, policy):
    q = nx.quantize(f, policy, calibrate=[(SPREAD,)])
    y, wanted = np.asarray(q(SPREAD)), np.asarray(f(SPREAD))
    assert np.isfinite(y).all()
    # Beside the threshold, a rounded x chooses otherwise.
    assert np.quantile(np.abs(y - wanted), 0.97) < (0.06 if policy == "int8" else 0.002) * np.ptp(wanted)


def test_many_readers_on_the_way_to_a_where_are_looked_at_once():
    def f(x):
        y = jnp.sqrt(x)
        for _ in range(40):
            y = abs(y) * 0.5 + y * 0.5
        return jnp.where(x > 0, jnp.where(x > 1, y, -y), 0)

    q = nx.quantize(f, "int8", calibrate=[(SPREAD,)])
    assert np.isfinite(np.asarray(q(SPREAD))).all()


@pytest.mark.parametrize("observer", ["percentile", "entropy", "mse"])
def test_histograms_leave_them_out_too(observer):
    f = lambda x: jnp.where(x > 0, jnp.sqrt(x), 0)
    assert np.isfinite(np.asarray(nx.quantize(f, "int8", calibrate=[(SPREAD,)], observer=observer)(SPREAD))).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.where(x > -1, jnp.sqrt(x), 0),  # some NaN are taken
        lambda x: jnp.where(x > 0, jnp.sqrt(x), 0) + jnp.sqrt(x),  # or read by somebody else
        lambda x: jnp.where(x[:, 0] > 0, jnp.sqrt(x).sum(1), 0),  # or part of what is taken
        lambda x: (lambda r: (jnp.where(x > 0, r, 0), r))(jnp.sqrt(x)),
    ],
)
def test_a_nan_that_counts_is_an_error(f):
    with pytest.raises(ParameterError, match="is not finite"):
        nx.quantize(f, "int8", calibrate=[(SPREAD,)])(SPREAD)


def guarded(p: Any, x: Any) -> Any:
    """Not to be computed where it is not taken."""
    return lax.cond(x[0] > 0, lambda x: jnp.log(x[0]) * (x @ p["w"]), lambda x: x @ p["w"].T + 1e6 * (x[0] > 0), x)


def counted(p: Any, x: Any) -> Any:
    turn = lambda x, i: (lax.switch(i, [jnp.tanh, lambda x: x @ p["w"]], x), None)
    return lax.scan(turn, x, (x > 0).astype(int))[0]


@pytest.mark.parametrize("f", [guarded, counted])
def test_under_vmap_branches_see_the_elements_that_take_them(f: Any):
    some = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    each = [{k: np.asarray(v) for k, v in nx.calibrate(f)(P, x)[1].items()} for x in some.reshape(6, 4)]
    twice = nx.vmap(nx.vmap(f, (None, 0)), (None, 0))
    for site, seen in ranges(twice, P, some).items():
        if np.isfinite(seen).all() and site in each[0]:
            close(seen, (min(r[site][0] for r in each), max(r[site][1] for r in each)))
    q = nx.quantize(twice, "int8", calibrate=[(P, some)])
    y, x = np.asarray(q(P, some)), np.asarray(twice(P, some))
    assert ((y - x) ** 2).sum() < 1e-2 * (x**2).sum()


def test_under_vmap_a_branch_that_no_element_takes_stays_in_float():
    some = np.abs(np.random.default_rng(1).standard_normal((6, 4))).astype(np.float32)
    with pytest.warns(UserWarning, match="no batch of calibration takes cond_0/0"):
        q = nx.quantize(nx.vmap(guarded, (None, 0)), "int8", calibrate=[(P, some)])
    y, x = np.asarray(q(P, -some)), np.asarray(nx.vmap(guarded, (None, 0))(P, -some))
    assert ((y - x) ** 2).sum() < 1e-2 * (x**2).sum()
