"""Every family of ops on tiles gives what it means: on eight tiles, on a whole IPU, on tiles of little memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.ops.composite_norm import layer_norm, rms_norm
from tests.lower.ipu.cases import CRAMPED, TINY, WHOLE, check, integers, lax, normal

X = normal(7, 5)
LONG = normal(300)
DIMS = lax.GatherDimensionNumbers
CASES = {
    # views
    "transpose and reshape": (lambda x: x.T.reshape(-1) + 1, X),
    "reverse": (lambda x: x[::-1, ::2] * 2, X),
    "negative steps and new axes": (lambda x: x[None, 4:1:-1] - x[:3], X),
    "broadcast a row": (lambda x: x + x[0], X),
    "broadcast a column": (lambda x: x * x[:, :1], X),
    "broadcast both": (lambda x: x[:, None] * x[None], X),
    "broadcast in the middle": (lambda x: x[:, None, :] + nx.zeros((7, 4, 5)), X),
    "split": (lambda x: nx.split(x, (2, 3)), X),
    "concatenate": (lambda x: nx.concatenate([x, x[:2], x[:, ::-1]]), X),
    "pad": (lambda x: lax.pad(x, 1.5, ((1, 2, 0), (0, 1, 2))), X),
    "pad that cuts": (lambda x: lax.pad(x, 1.5, ((-1, 2, 1), (3, -2, 0))), X),
    "pad that cuts all": (lambda x: lax.pad(x, 1.5, ((-8, 9, 0), (0, 0, 0))), X),
    "outputs that are inputs": (lambda x: (x, x, x.T, x.reshape(-1), nx.zeros(3)), X),
    "empty": (lambda x: (x[:0] + 1, nx.sum(x[:0], 0), nx.concatenate([x[:0], x])), X),
    "iota": (lambda x: x + lax.broadcasted_iota(np.float32, (7, 5), 0), X),
    # elementwise
    "chain": (lambda x: nx.tanh(nx.exp(-x * x) + 1) / 2, X),
    "two results": (lambda x: (nx.sin(x), nx.sin(x) * 2 + x), X),
    "half": (lambda x: nx.exp(x.astype(np.float16)) * 2, X),
    "integers": (lambda i: (i // 3, i % 3, i << 2, i >> 1, ~i, abs(i)), integers(-9, 9, (33,))),
    "small integers": (lambda i: (i + i, i.astype(np.uint8)), integers(-128, 127, (33,), np.int8)),
    "bools": (lambda x: ((x > 0) & (x < 1), nx.where(x > 0, x, 0)), X),
    "scalar bounds": (lambda x: nx.clip(x, -0.5, nx.sum(x) * 0 + 0.5), X),
    "bits": (lambda x: lax.bitcast_convert_type(x, np.int32) ^ 5, X),
    "bits of other widths": (
        lambda x: [
            lax.bitcast_convert_type(lax.bitcast_convert_type(x, t), np.float32) for t in (np.uint8, np.float16)
        ],
        X,
    ),
    "activations": (lambda x: (nx.nn.gelu(x), nx.nn.silu(x), nx.nn.softplus(x), nx.nn.elu(x)), X),
    "special": (lambda x: (lax.erf_inv(x / 9), lax.lgamma(x), lax.digamma(abs(x) + 1)), X),
    "incomplete": (lambda x: lax.igamma(abs(x) + 1, abs(x) + 0.5), X[:2]),
    # reductions
    "sum of rows": (lambda x: nx.sum(x, 1), X),
    "sum of columns": (lambda x: nx.sum(x, 0), X),
    "sum of all": (lambda x: nx.sum(x), normal(40, 50)),
    "sum of ends": (lambda x: nx.sum(x, (0, 2)), normal(3, 4, 5)),
    "sum of the middle": (lambda x: nx.sum(x, 1), normal(3, 4, 5)),
    "sum of a view": (lambda x: nx.sum(x[::-1].T, 0), X),
    "sum of halves": (lambda x: nx.sum(x), normal(4096, dtype=np.float16)),
    "others": (lambda x: (nx.max(x, 0), nx.min(x), nx.prod(x, 1), nx.any(x > 2), nx.all(x > 2, 1)), X),
    "argmax": (lambda x: (nx.argmax(x, 1), nx.argmin(x)), X),
    "long cumsum": (lambda x: (nx.cumsum(x), lax.cummax(x, reverse=True)), LONG),
    "softmax": (lambda x: (nx.nn.softmax(x), nx.nn.log_softmax(x, 0), nx.nn.logsumexp(x, 1)), X),
    "general reduce": (lambda x: lax.reduce(x, 0.0, lambda a, b: a + b * 2 - b, (0,)), X),
    # windows
    "max pool": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID"), normal(2, 7, 6)),
    "long window": (lambda x: lax.reduce_window(x, 0.0, lax.add, (21,), (3,), "SAME"), LONG),
    "long window of max": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (21,), (1,), "SAME"), LONG),
    "grad of a max pool": (
        nx.grad(lambda x: nx.sum(lax.reduce_window(x, -np.inf, lax.max, (3, 2), (2, 2), "SAME") ** 2)),
        normal(7, 6),
    ),
    # places
    "rows": (lambda x, i: x[i], X, integers(-7, 7, (4, 3))),
    "rows out of bounds": (lambda x, i: x.at[i].get(mode="fill", fill_value=3.0), X, integers(-20, 20, (9,))),
    "rows out of bounds, nan": (lambda x, i: x.at[i].get(mode="fill"), X, integers(-20, 20, (9,))),
    "elements": (lambda x, i: x[i, i % 5], X, integers(0, 7, (9,))),
    "along": (lambda x, i: nx.take_along_axis(x, i, 1), X, integers(0, 5, (7, 3))),
    "columns of many": (lambda x, i: x[:, i], X, integers(0, 5, (40,))),
    "from a long line": (lambda x, i: x[i], LONG, integers(0, 300, (70,))),
    "unsigned": (lambda x, i: x[i], X, integers(0, 7, (4,), np.uint8)),
    "set": (lambda x, i: x.at[i].set(9.0), X, integers(0, 7, (3,))),
    "add, some out of bounds": (lambda x, i: x.at[i].add(x[:4]), X, integers(-9, 12, (4,))),
    "add to a long line": (lambda x, i: x.at[i].add(2.0), LONG, integers(0, 300, (200,))),
    "mul, min, max": (lambda x, i: (x.at[i].mul(2), x.at[:, i % 5].min(0), x.at[i].max(0)), X, integers(0, 7, (4,))),
    "block": (lambda x, i: lax.dynamic_slice(x, (i, i), (3, 2)), X, np.int32(3)),
    "block moved inside": (lambda x, i: lax.dynamic_slice(x, (i, i), (3, 2)), X, np.int32(30)),
    "update a block": (lambda x, i: lax.dynamic_update_slice(x, x[:3, :2] * 0, (i, i - 1)), X, np.int32(3)),
    "update a known block": (lambda x: lax.dynamic_update_slice(x, x[:3, :2] * 0, (1, 2)), X),
    "one hot": (lambda i: nx.nn.one_hot(i, 9), integers(-2, 11, (12,))),
    # order
    "sort": (lambda x: (nx.sort(x, 0), nx.argsort(x, 1)), X),
    "sort a long line": (lambda x: nx.sort(x), LONG),
    "sort with companions": (lambda i, x: lax.sort((i, x[:, 0]), num_keys=1), integers(0, 3, (7,)), X),
    "top k": (lambda x: lax.top_k(x, 3), X),
    "nan last": (lambda x: nx.sort(nx.where(x > 0.5, nx.nan, x), 1), X),
    # random
    "random": (lambda k: nx.random.normal(nx.random.wrap_key_data(k), (3, 4)), np.array([1, 2], np.uint32)),
    "keys": (lambda k: nx.random.split(nx.random.wrap_key_data(k), 3)[::-1], np.array([1, 2], np.uint32)),
    "bits of a key": (lambda k: nx.random.bits(k, (5,), np.uint8), nx.random.key(3)),
    "fold": (lambda k: nx.random.fold_in(k, 7), nx.random.key(3)),
    # loops
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[2] * 1.5, c[1]), (0, x, x + 1)), X),
    "while that never runs": (lambda x: lax.while_loop(lambda c: c[0, 0] > 99, lambda c: c + 1, x), X),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, c: c.at[i].add(c[i + 1]), x), X),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, (c * r, r[0])), nx.zeros(5), x), X),
    "scan backwards": (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c), nx.zeros(5), x, reverse=True), X),
    "scan of nothing": (lambda x: lax.scan(lambda c, r: (c + r, c), nx.zeros(5), x[:0]), X),
    "scan without carry": (lambda x: lax.map(lambda r: nx.sort(r), x), X),
    "nested loops": (lambda x: lax.scan(lambda c, r: (lax.fori_loop(0, 3, lambda i, v: v + r, c), c), X[0], x), X),
    "keys in a loop": (
        lambda k: lax.scan(lambda c, _: (nx.random.split(c)[0], nx.random.uniform(c)), k, None, 3)[1],
        nx.random.key(3),
    ),
    "cond": (lambda p, x: lax.cond(p, lambda x: x + 1, nx.sin, x), True, X),
    "switch": (lambda i, x: lax.switch(i, [lambda x: x, lambda x: x.T.reshape(7, 5), nx.sin], x), np.int32(2), X),
    "switch out of range": (lambda i, x: lax.switch(i, [lambda x: x, nx.sin], x), np.int32(9), X),
    "vmapped cond": (nx.vmap(lambda x: lax.cond(x[0] > 0, lambda x: x + 1, nx.sin, x)), X),
    "associative scan": (lambda x: lax.associative_scan(nx.multiply, x), X),
    # factorizations
    "cholesky": (lambda x: nx.linalg.cholesky(x.T @ x + nx.eye(5)), X),
    "no cholesky": (lambda x: nx.linalg.cholesky(-x.T @ x), X),
    "solve": (lambda x: nx.linalg.solve(x[:5] + 3 * nx.eye(5), x[:5]), X),
    "triangular": (
        lambda x: [
            lax.linalg.triangular_solve(x[:5] + 3 * nx.eye(5), x[:5], left_side=l, lower=o, transpose_a=t)
            for l in (True, False)
            for o in (True, False)
            for t in (True, False)
        ],
        X,
    ),
    "eigh": (lambda x: abs(nx.linalg.eigh(x.T @ x)[0]), X),
    "qr": (lambda x: nx.linalg.qr(x), X),
    "singular values": (lambda x: nx.linalg.svd(x, compute_uv=False), X),
    # products
    "matmul": (lambda x: x @ x.T, X),
    "batched": (lambda x: nx.einsum("bij,bkj->bik", x, x), normal(3, 4, 5)),
    "attention": (lambda q: nx.nn.dot_product_attention(q, q, q, is_causal=True), normal(2, 6, 2, 4)),
    "conv": (lambda x: lax.conv_general_dilated(x, x[:2, :, :2, :2], (1, 1), "SAME"), normal(2, 3, 5, 6)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("system", [TINY, WHOLE], ids=lambda s: s.name)
def test_a_program_gives_what_it_means(name, system):
    function, *args = CASES[name]
    check(function, *args, system=system, rtol=2e-4 if name in ("eigh", "singular values", "qr") else 2e-5)


@pytest.mark.parametrize("name", ["rows", "from a long line", "add to a long line", "elements", "along", "fori"])
def test_tables_larger_than_a_tile_may_hold(name):
    function, *args = CASES[name]
    check(function, *args, system=CRAMPED)


def test_views_cost_nothing():
    assert not [s for s in check(lambda x: x.T[None], X).steps if type(s).__name__ == "Execute"]
    program = check(lambda x: nx.sum(x.T[::-1] * 2 + x[0, 0], 1), X)
    assert [type(s).__name__ for s in program.steps] == ["Execute", "Execute"]


def test_a_chain_is_one_vertex_of_each_tile():
    def f(x, y):
        z = x * y
        return nx.tanh(z + 1) / 2, z

    program = check(f, X, X)
    (step,) = program.steps
    assert all(len(set(g.tiles.tolist())) == len(g.tiles) for g in step.groups)
    assert len({g.codelet.name for g in step.groups}) == 1
    assert {f.name for f in step.groups[0].codelet.fields} == {"x0", "x1", "y0", "y1"}


def test_a_known_block_is_a_view():
    program = check(lambda x: lax.dynamic_slice(x, (1, 0), (3, 5)) * 2, X)
    assert len(program.steps) == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(2, 200), st.sampled_from([np.float32, np.int32, np.uint8, np.float16]))
def test_rows_of_any_length_are_sorted(rows, n, dtype):
    x = (normal(rows, n) * 5).astype(dtype)
    check(lambda x: (nx.sort(x, 1), nx.argsort(x, 1)), x)
    check(lambda x: (nx.sort(x, 1), nx.argsort(x, 1)), x, system=CRAMPED)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 300), st.integers(1, 3), st.booleans())
def test_rows_of_any_length_are_run_over(outer, n, inner, reverse):
    x = normal(outer, n, inner)
    check(lambda x: (lax.cumsum(x, 1, reverse), lax.cummax(x, 1, reverse), lax.cumlogsumexp(x, 1, reverse)), x)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_reductions_of_any_view(data):
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    order = data.draw(st.permutations(range(len(shape))))
    axes = data.draw(st.sets(st.sampled_from(range(len(shape)))))
    back = data.draw(st.sets(st.sampled_from(range(len(shape)))))

    def f(x):
        y = lax.rev(lax.transpose(x, order), tuple(back))
        return nx.sum(y, tuple(axes)), nx.max(y, tuple(axes)), y * 2 + nx.sum(y, tuple(axes), keepdims=True)

    check(f, normal(*shape), system=data.draw(st.sampled_from([TINY, WHOLE])))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reshapes_of_any_view(data):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple))
    order = data.draw(st.permutations(range(len(shape))))
    x = normal(*shape)
    flat = [n for n in shape if n > 1]
    to = data.draw(st.permutations([*flat, 1]))
    check(lambda x: lax.reshape(lax.transpose(x, order)[::-1], to) + 1, x)
    check(lambda x: lax.reshape(nx.broadcast_to(x[:1], shape), (x.size,)) * 2, x)


@pytest.mark.parametrize("system", [TINY, WHOLE, CRAMPED], ids=lambda s: s.name)
def test_rows_are_normalized_where_they_fit(system):
    x, scale, bias = normal(6, 5, 12), normal(12), normal(12)
    f = lambda x: (nx.nn.softmax(x), nx.nn.softmax(x, 1), nx.nn.log_softmax(x, 0), nx.nn.logsumexp(x, (0, 2)))
    check(f, x, system=system)
    check(f, x.astype(np.float16), system=system)
    check(lambda x, s, b: layer_norm(x, s, b, axis=(2,), epsilon=1e-5), x, scale, bias, system=system)
    check(lambda x, s: rms_norm(x, s, axis=(1, 2), epsilon=1e-5), x, normal(5, 12), system=system)
    check(lambda x, s: rms_norm(x, s, axis=(2,), epsilon=1e-5), x.astype(np.float16), scale.astype(np.float16))


def test_a_softmax_of_many_rows_is_one_compute_set():
    assert len(check(nx.nn.softmax, normal(40, 9), system=WHOLE).steps) == 1
    assert len(check(nx.nn.softmax, normal(1, 40000), system=WHOLE).steps) > 1


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_gradients_of_pools(data):
    draw = lambda low, high: data.draw(st.integers(low, high))
    x = normal(2, draw(3, 8), draw(3, 8), draw(1, 5))
    window, steps = (1, draw(1, 3), draw(1, 3), 1), (1, draw(1, 3), draw(1, 3), 1)
    padding = data.draw(st.sampled_from(["SAME", "VALID", ((0, 0), (2, 1), (0, 2), (0, 0))]))
    f = lambda x: lax.reduce_window(x, -np.inf, lax.max, window, steps, padding)
    check(nx.value_and_grad(lambda x: nx.sum(nx.sin(nx.clip(f(x), -9, 9)))), x)
    check(nx.grad(lambda x: nx.sum(f(x))), nx.round(x).numpy())
