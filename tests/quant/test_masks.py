"""Attention masks of every style keep int8 attention exact and good: what only means "not this" is no range."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.quant import results

rng = np.random.default_rng(0)
T, D = 10, 32
P = {k: rng.normal(size=(D, D)).astype(np.float32) * 0.3 for k in "qkvo"}
X = rng.normal(size=(2, T, D)).astype(np.float32)
SEEN = np.tril(np.ones((T, T), bool))


def composite(p, x):
    heads = lambda w: (x @ w).reshape(2, T, 4, 8)
    y = nn.dot_product_attention(heads(p["q"]), heads(p["k"]), heads(p["v"]), is_causal=True)
    return y.reshape(2, T, D) @ p["o"]


def by_hand(mask):
    def f(p, x):
        scores = jnp.einsum("btd,bsd->bts", x @ p["q"], x @ p["k"]) / D**0.5
        return nn.softmax(mask(scores, x)) @ (x @ p["v"]) @ p["o"]

    return f


def padding(scores, x):
    """A mask that is data, added."""
    here = (x.sum(-1) > -50).astype(np.float32)[:, None, :]
    return scores + (1.0 - jnp.broadcast_to(here, scores.shape)) * -1e9


STYLES = {
    "composite": composite,
    "minus infinity": by_hand(lambda s, x: jnp.where(SEEN, s, -jnp.inf)),
    "a large number": by_hand(lambda s, x: jnp.where(SEEN, s, -1e9)),
    "BERT's number": by_hand(lambda s, x: jnp.where(SEEN, s, -1e4)),
    "added": by_hand(lambda s, x: s + jnp.where(SEEN, 0.0, -1e9)),
    "multiplied and added": by_hand(lambda s, x: s + (1 - SEEN.astype(np.float32)) * -1e9),
    "data": by_hand(padding),
}


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("style", STYLES)
def test_masked_attention(style: str, policy: str):
    f = STYLES[style]
    quantized = nx.quantize(f, policy, calibrate=[(P, X)])
    assert all(np.isfinite(r).all() and abs(np.array(r)).max() < 200 for r in quantized.ranges.values())
    y, q = np.asarray(f(P, X), np.float64), np.asarray(quantized(P, X), np.float64)
    assert 10 * np.log10((y**2).sum() / ((q - y) ** 2).sum()) > 27
    assert (np.asarray(nx.jit(quantized)(P, X)) == q).all()


def test_what_is_masked_has_no_weight():
    f = by_hand(lambda s, x: jnp.where(SEEN, s, -1e9))
    quantized = nx.quantize(f, "int8", calibrate=[(P, X)])
    later = X.copy()
    later[:, -1] += 1.0  # within the ranges, and seen by the last row alone
    assert (np.asarray(quantized(P, later))[:, :-1] == np.asarray(quantized(P, X))[:, :-1]).all()


def test_histogram_observers_leave_masks_out():
    f = STYLES["a large number"]
    quantized = nx.quantize(f, "int8", calibrate=[(P, X)], observer="percentile")
    assert max(abs(v) for r in quantized.ranges.values() for v in r) < 200


def test_far_values_that_enter_no_softmax_keep_their_range():
    f = lambda p, x: nn.relu(x @ p["q"]) * 300.0 - 900.0
    quantized = nx.quantize(f, "int8", calibrate=[(P, X)])
    assert min(r[0] for r in quantized.ranges.values()) == -900.0


DATA_MASKS = {
    "where": lambda s, m: jnp.where(m[:, None] > 0, s, -1e9),
    "minus infinity": lambda s, m: jnp.where(m[:, None] > 0, s, -jnp.inf),
    "added choice": lambda s, m: s + jnp.where(m > 0, 0.0, -1e9)[:, None],
    "one minus": lambda s, m: s + (1.0 - m)[:, None] * -1e9,
    "minus one": lambda s, m: s + (m - 1.0)[:, None] * 1e30,
}


def with_data_mask(style):
    """Attention with a mask as an argument, quantized where nothing was masked; a mask of all, and a shorter one."""

    def f(p, x, m):
        scores = jnp.einsum("btd,bsd->bts", x @ p["q"], x @ p["k"]) / D**0.5
        return nn.softmax(DATA_MASKS[style](scores, m)) @ (x @ p["v"])

    whole, short = np.ones((2, T), np.float32), np.ones((2, T), np.float32)
    short[1, 4:] = 0
    return f, nx.quantize(f, "int8", calibrate=[(P, X, whole)]), whole, short


@pytest.mark.parametrize("style", DATA_MASKS)
def test_masks_hold_though_the_calibration_data_has_nothing_to_mask(style):
    f, quantized, whole, short = with_data_mask(style)
    for mask in (whole, short):
        y, q = np.asarray(f(P, X, mask), np.float64), np.asarray(quantized(P, X, mask), np.float64)
        assert 10 * np.log10((y**2).sum() / ((q - y) ** 2).sum()) > 25
    other = X.copy()
    other[1, 4:] = 0
    assert (np.asarray(quantized(P, other, short))[1, :4] == np.asarray(quantized(P, X, short))[1, :4]).all()


@pytest.mark.parametrize("style", DATA_MASKS)
def test_masks_hold_in_the_file(style):
    pytest.importorskip("ai_edge_litert")
    _, quantized, _, short = with_data_mask(style)
    assert nx.compile(quantized, target="tflite")(P, X, short).deviation.exact


@pytest.mark.parametrize("observer", ["percentile", "entropy", "mse"])
@pytest.mark.parametrize("style", ["where", "one minus"])
def test_histograms_leave_room_for_masks_too(style, observer):
    def f(p, x, m):
        scores = jnp.einsum("btd,bsd->bts", x @ p["q"], x @ p["k"]) / D**0.5
        return nn.softmax(DATA_MASKS[style](scores, m)) @ (x @ p["v"])

    whole, short = np.ones((2, T), np.float32), np.ones((2, T), np.float32)
    short[1, 4:] = 0
    quantized = nx.quantize(f, "int8", calibrate=[(P, X, whole)], observer=observer)
    y, q = np.asarray(f(P, X, short), np.float64), np.asarray(quantized(P, X, short), np.float64)
    assert 10 * np.log10((y**2).sum() / ((q - y) ** 2).sum()) > 18


ROWS = {
    "rows of other sizes": [[600, 601, 602, 603], [-7, -8, -9, -100]],
    "one far above": [[0, 0, 0, 1000], [1, 2, 3, 4]],
    "far above and masked": [[0, 0, 0, 1000], [-1000, 0, 0, 0]],
    "a whole row masked": [[-1e9, -1e9, -1e9, -1e9], [0, 1, 2, -1e9]],
    "a whole row masked by adding": [[-1e4, -9999, -9998, -9999], [0, 1, 2, -1e4]],
}


@pytest.mark.parametrize("rows", ROWS)
def test_a_mask_is_far_below_its_own_row(rows: str):
    x = np.float32(ROWS[rows])
    for f, at in (
        (nn.softmax, x),
        (lambda x: nn.softmax(x.T, axis=0).T, x),
        (lambda x: nn.softmax(x[:, None])[:, 0], x),
    ):
        q = nx.quantize(f, "int16x8", calibrate=[at])
        kept = slice(1, None) if "whole" in rows else slice(None)
        np.testing.assert_allclose(np.asarray(q(at))[kept], np.asarray(f(at))[kept], atol=0.005)
        q = nx.quantize(f, "int8", calibrate=[at])
        # Of 8 bits, with steps of up to 4; what is far below has no weight all the same.
        np.testing.assert_allclose(np.asarray(q(at))[kept], np.asarray(f(at))[kept], atol=0.5)
        assert np.asarray(q(at))[np.asarray(f(at)) < 1e-30].max(initial=0) < 0.01


HERE = np.arange(10) >= 5
ADDED = np.where(HERE, 0, -1e9).astype(np.float32)
W = {"w": rng.normal(size=(16, 10)).astype(np.float32), "v": rng.normal(size=(10, 4)).astype(np.float32)}
ROW = rng.normal(size=(64, 16)).astype(np.float32)
READERS = {
    "a result": lambda p, x, m: jnp.where(HERE, x @ p["w"], -1e9),
    "a result of minus infinity": lambda p, x, m: jnp.where(HERE, x @ p["w"], -jnp.inf),
    "a result of the least float": lambda p, x, m: jnp.where(m < 0, jnp.finfo("float32").min, x @ p["w"]),
    "a result with an argument": lambda p, x, m: x @ p["w"] + m,
    "a result with a constant": lambda p, x, m: x @ p["w"] + ADDED,
    "two results": lambda p, x, m: (nn.softmax(y := jnp.where(HERE, x @ p["w"], -1e9)), y),
    "the largest": lambda p, x, m: jnp.where(HERE, x @ p["w"], -jnp.inf).max(-1),
    "the least": lambda p, x, m: jnp.where(HERE, x @ p["w"], 1e9).min(-1),
    "sorted": lambda p, x, m: lax.top_k(jnp.where(HERE, x @ p["w"], -1e9), 7)[0],
    "a product": lambda p, x, m: nn.relu(x @ p["w"] + m) @ p["v"],
    "a bias": lambda p, x, m: nn.softmax(x @ p["w"] + ADDED),
    "padded": lambda p, x, m: jnp.pad(x @ p["w"], ((0, 0), (0, 2)), constant_values=-1e9),
    "a loop": lambda p, x, m: lax.map(lambda x: x @ p["w"] + m, x[None]),
}


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("reader", READERS)
def test_a_mask_that_is_a_value_stays_one(reader: str, policy: str):
    """No grid reaches out to it, on which the values beside it would all be one."""
    f = READERS[reader]
    quantized = nx.quantize(f, policy, calibrate=[(W, ROW, ADDED)])
    pairs = zip(nx.tree.leaves(f(W, ROW, ADDED)), nx.tree.leaves(quantized(W, ROW, ADDED)), strict=True)
    for y, q in pairs:
        y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
        near = abs(y) < 1e3
        assert 10 * np.log10((y[near] ** 2).sum() / ((y[near] - q[near]) ** 2).sum()) > 27
        np.testing.assert_allclose(q[~near], y[~near], 1e-6)


CHOSEN = {
    "where": lambda y, m: jnp.where(HERE, y, -1e9),
    "minus infinity": lambda y, m: jnp.where(HERE, y, -jnp.inf),
    "an argument": lambda y, m: y + m,
    "joined": lambda y, m: jnp.concatenate([y, jnp.full((64, 3), -1e9)], -1),
}


@pytest.mark.parametrize("style", CHOSEN)
def test_what_is_chosen_is_not_what_is_masked(style: str):
    f = lambda p, x, m: CHOSEN[style](x @ p["w"], m).argmax(-1)
    quantized = nx.quantize(f, calibrate=[(W, ROW, ADDED)])
    y, q = (np.asarray(g(W, ROW, ADDED)) for g in (f, quantized))
    assert (y == q).mean() > 0.9 and len(set(q.tolist())) > 2
    # All of it is on integers where the program shows the mask, and what decides is measured.
    plan = quantized.plan(quantized.traced(W, ROW, ADDED))
    assert [e.op.name for e, _ in plan.left] == ["add"] * (style == "an argument")
    found = results.measured(f, quantized.policy, None, quantized.ranges, {}, [(W, ROW, ADDED)])
    assert 15 < found.worst < 60 and found.places == ["what decides result 0"]


def test_small_results_beside_far_ones_are_measured_alone():
    x = jnp.asarray([-1e9, -1e9, 3.0, -4.0])
    far, near = ([float(v) for v in results.powers([(x, q)], apart=True)[0]] for q in (x.at[0].set(0), x.at[2].set(0)))
    assert results.sqnr(*far[1:]) == pytest.approx(10 * np.log10(25 / 4), abs=0.01)
    assert results.sqnr(*near[1:]) == pytest.approx(10 * np.log10(25 / 9), abs=0.01)
    assert results.sqnr(*(float(v) for v in results.powers([(x, x.at[2].set(0))])[0][1:])) > 100


CODES = rng.normal(size=(8, 16)).astype(np.float32)
NEAR = (CODES[rng.integers(0, 8, 256)] + rng.uniform(0.2, 2, (256, 1)) * rng.normal(size=(256, 16))).astype(np.float32)


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_scores_far_below_others_are_no_masks(policy: str):
    """Rows of log likelihoods lie thousands below one another, and every row has a winner."""
    f = lambda x: (-50 * ((x[:, None] - CODES) ** 2).sum(-1)).argmax(-1)
    assert (np.asarray(f(NEAR)) == np.asarray(nx.quantize(f, policy, calibrate=[NEAR])(NEAR))).mean() > 0.95


def test_units_are_no_masks():
    x, w = np.float32(1e-4) * ROW, 2e4 * rng.normal(size=(16, 16)).astype(np.float32)
    quantized = nx.quantize(lambda x: ((x * 2e4 + np.float32(0.1)).argmax(-1), x @ w), "int8", calibrate=[x])
    assert quantized.ranges["in_0"][0] == x.min()


def test_masks_lose_no_batch():
    far = [(((9 if i == 30 else 1) * rng.normal(size=(2, 10))).astype(np.float32), ADDED) for i in range(40)]
    f = lambda x, m: jnp.tanh(x @ W["v"]) @ W["v"].T + m
    ranges = [nx.quantize(f, "int8", observer="minmax", calibrate=x).ranges["in_0"] for x in (far, iter(far))]
    assert ranges[0] == ranges[1] and ranges[0][1] > 9
    late = [(x, ADDED if i == 30 else 0 * ADDED) for i, (x, _) in enumerate(far)]
    for data in (late, iter(late)):
        quantized = nx.quantize(f, "int8", observer="minmax", calibrate=data)
        assert [e.op.name for e, _ in quantized.plan(quantized.traced(*late[0])).left] == ["add"]


LARGE = {
    "a norm of large values": (lambda x: nn.layer_norm(80 * x, jnp.ones(16), jnp.zeros(16)) @ W["w"], ROW),
    "a bound": (lambda x: nn.relu(jnp.where(x > 3e4, 3e4, x) @ (W["w"] / 3e4)), abs(2e4 * ROW)),
    "two values": (lambda x: jnp.tanh(x / 65535) @ W["w"], np.where(ROW > 0, np.float32(65535), np.float32(0))),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_no_masks(name: str):
    f, x = LARGE[name]
    quantized = nx.quantize(f, "int8", calibrate=[x])
    # A positive bound is no mask that the program shows, and none that the data show.
    assert not quantized.plan(quantized.traced(x)).left
    y, q = np.asarray(f(x), np.float64), np.asarray(quantized(x), np.float64)
    assert 10 * np.log10((y**2).sum() / ((y - q) ** 2).sum()) > 25


@pytest.mark.parametrize("mask", [-1e9, -np.inf])
def test_a_value_at_the_threshold_is_no_error_of_a_mask(mask: float):
    def f(p, x):
        c = nn.sigmoid(x @ p["w"])
        return lax.top_k(jnp.where(c > 0.5, c, mask).reshape(-1), 20), jnp.where(c > 0.5, c, mask), c > 0.5

    quantized = nx.quantize(f, "int8", calibrate=[(W, ROW)])
    found = results.measured(f, quantized.policy, None, quantized.ranges, {}, [(W, ROW)])
    assert found.worst > 14
    # Masks that are lost are an error all the same.
    lost = results.powers([(f(W, ROW)[1], nn.sigmoid(ROW @ W["w"]))], apart=True)[0]
    assert results.sqnr(*(float(v) for v in lost[1:])) < 10


def test_who_asks_for_masks_reads_no_value():
    """PyTorch's softmax of masked scores, which gives 0 where all of a row is masked."""

    def f(p, x):
        y = jnp.where(HERE, x @ p["w"], -jnp.inf)
        return jnp.where((y == -jnp.inf).all(-1, keepdims=True), 0.0, nn.softmax(y))

    quantized = nx.quantize(f, "int8", calibrate=[(W, ROW)])
    assert not quantized.plan(quantized.traced(W, ROW)).left
    assert abs(np.asarray(f(W, ROW)) - np.asarray(quantized(W, ROW))).max() < 0.1


def test_scaled_masks_have_room():
    f = lambda p, x: nn.softmax(jnp.where(HERE, x @ p["w"], -1e9) / 0.7)
    quantized = nx.quantize(f, "int8", calibrate=[(W, ROW)])
    assert not quantized.plan(quantized.traced(W, ROW)).left
    assert abs(np.asarray(f(W, ROW)) - np.asarray(quantized(W, ROW))).max() < 0.1
