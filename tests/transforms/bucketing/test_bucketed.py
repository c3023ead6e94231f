"""nx.bucketed: for every length, the function's own value and derivatives, from few programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax import tree
from nxjax.config import config
from nxjax.errors import LoweringError, ParameterError, ShapeError
from nxjax.testing import count_traces
from nxjax.transforms.bucketing.bucketed import Bucketed
from nxjax.transforms.inline import inlined

BUCKETS = {0: {0: [8, 16]}}


@pytest.fixture(autouse=True)
def _quick():
    # The meaning is tested, in NumPy; compiled code has tests of its own below.
    with config.using(executor="reference"):
        yield


def rows(n: int, seed: int = 0) -> nx.Array:
    return nx.asarray(np.random.default_rng(seed + n).normal(size=(n, 4)).astype(np.float32))


def close(got, wanted, tol: float = 2e-5) -> None:
    for a, b in zip(tree.leaves(got), tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype.kind != "V":  # float0
            np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def scalar(f):
    """A scalar of all float results, none of which has a zero weight."""

    def loss(x):
        floats = [y for y in tree.leaves(f(x)) if nx.issubdtype(y.dtype, nx.floating)]
        return sum((nx.sin(y) * 1.3 + y).sum() for y in floats)

    return loss


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


W, K, D, EMBEDDING = map(nx.asarray, (weights(4, 4), weights(3, 4, 5), weights(3, 1, 4), weights(5, 3)))
TABLE, STARTS = nx.asarray(weights(40, 4)), nx.array([0, 3, 38])
NWC = ("NWC", "WIO", "NWC")


def conv(x, w, stride, padding, **rest):
    return nx.lax.conv_general_dilated(x[None], w, (stride,), padding, dimension_numbers=NWC, **rest)[0]


def pool(x, start, op, stride, padding):
    return nx.lax.reduce_window(x, start, op, (3, 1), (stride, 1), padding)


def attention(x, **rest):
    return nx.nn.dot_product_attention(x[:, None, :], (x + 1)[:, None, :], x[:, None, :], **rest)


FUNCTIONS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(1)),
    "variance": lambda x: (x.var(0), x.std(0, ddof=1)),
    "prod": lambda x: x.prod(0),
    "extrema": lambda x: (x.max(0), x.min()),
    "any_all": lambda x: ((x > -5).all(), (x > 5).any(), (x > 0).sum(0)),
    "softmax": lambda x: (nx.nn.softmax(x, 0), nx.nn.softmax(x, 1), nx.nn.log_softmax(x, 0)),
    "softmax_then_log": lambda x: (nx.log(nx.nn.softmax(x, 0)) * x).sum(),
    "logsumexp": lambda x: nx.nn.logsumexp(x, axis=0),
    "layer_norm_channels": lambda x: nx.nn.layer_norm(x, W[0], W[1]),
    "layer_norm_time": lambda x: nx.nn.layer_norm(x, axis=0),
    "rms_norm_time": lambda x: nx.nn.rms_norm(x, axis=0),
    "standardize": lambda x: nx.nn.standardize(x, 0),
    "norm": lambda x: nx.linalg.norm(x, axis=0),
    "cumsum": lambda x: (x.cumsum(0), nx.lax.cumsum(x, 0, reverse=True)),
    "cumulative": lambda x: (x.cumprod(0), nx.lax.cummax(x, 0, reverse=True), nx.lax.cumlogsumexp(x, 0)),
    "sort": lambda x: (nx.sort(x, 0), nx.sort(x, 0, descending=True), nx.median(x, 0)),
    "gram": lambda x: x.T @ x,
    "pairs": lambda x: x @ x.T,
    "dense": lambda x: nx.tanh(x @ W),
    "einsum": lambda x: nx.einsum("ti,tj,tk->ijk", x, x, x),
    "flatten": lambda x: x.reshape(-1),
    "flatten_the_other_way": lambda x: x.T.reshape(-1),
    "split_axis": lambda x: x.reshape(-1, 2, 2).sum(1),
    "outer": lambda x: (x[:, None, 0] * x[None, :, 1]).reshape(-1).cumsum(),
    "transpose": lambda x: x.T[1],
    "reverse": lambda x: (x[::-1] * W[0]).cumsum(0),
    "roll": lambda x: nx.roll(x, 1, 0),
    "ends": lambda x: (x[0], x[-1], x[1:], x[:-1], x[-2:]),
    "strided": lambda x: (x[::2], x[1::2]),
    "difference": lambda x: nx.diff(x, axis=0),
    "concatenate": lambda x: nx.concatenate([x, x * 2, x[:1]], 0),
    "stack": lambda x: nx.stack([x, x[::-1]], 0),
    "pad": lambda x: nx.pad(x, ((2, 3), (0, 0))),
    "pad_to": lambda x: nx.pad(x, ((0, 20 - x.shape[0]), (0, 0)), constant_values=3),
    "pad_to_left": lambda x: nx.pad(x, ((20 - x.shape[0], 0), (0, 0)), constant_values=3),
    "repeat": lambda x: nx.repeat(x, 2, axis=0),
    "first_everywhere": lambda x: nx.broadcast_to(x[:1], x.shape) * x,
    "take": lambda x: (x[nx.arange(x.shape[0])[::-1]], x[nx.array([-1, 0, -1])]),
    "take_along": lambda x: nx.take_along_axis(x, nx.argsort(x, 0), 0),
    "embedding": lambda x: EMBEDDING[(nx.abs(x[:, 0]) * 3).astype(int) % 5].mean(0) + x.mean(),
    "scatter_add": lambda x: nx.zeros(6).at[nx.arange(x.shape[0]) % 6].add(x[:, 0]),
    "set_ends": lambda x: x.at[0].set(1.0).at[-1].add(2.0),
    "dynamic_slice": lambda x: nx.lax.dynamic_slice(x, (nx.asarray(100), 0), (2, 4)),
    "dynamic_update": lambda x: nx.lax.dynamic_update_slice(nx.zeros((40, 4)), x, (nx.asarray(3), 0)).cumsum(0),
    "gathered_windows": lambda x: nx.vmap(lambda i: nx.lax.dynamic_slice(TABLE, (i, 0), x.shape))(STARTS).sum(0) * x,
    "where_mean": lambda x: nx.where(x > 0, x, 0).sum() / nx.maximum((x > 0).sum(), 1),
    "positions": lambda x: nx.arange(x.shape[0])[:, None] * x / x.shape[0],
    "linspace": lambda x: nx.linspace(0, 1, x.shape[0]) * x[:, 0],
    "tril": lambda x: nx.tril(nx.ones((x.shape[0],) * 2)) @ x,
    "eye": lambda x: nx.eye(x.shape[0]) @ x,
    "size_in_python": lambda x: x.sum(0) / np.sqrt(x.shape[0]) + 0.3 / x.shape[0] + np.log(x.shape[0]),
    "attention": attention,
    "attention_causal": lambda x: attention(x, is_causal=True),
    "attention_window": lambda x: attention(x, local_window_size=(1, 0)),
    "attention_masked": lambda x: attention(x, mask=(x[:, 0] > 0)[None, None, None, :]),
    "scan": lambda x: nx.scan(lambda c, r: (nx.tanh(c @ W + r), c), nx.zeros(4), x),
    "scan_back": lambda x: nx.scan(lambda c, r: (c * 0.5 + nx.sin(r), c), nx.zeros(4), x, reverse=True),
    "scan_of_whole": lambda x: nx.scan(lambda c, r: (c * 0.5 + c.mean(0) * r, None), x, nx.arange(3.0)),
    "fori": lambda x: nx.fori_loop(0, x.shape[0], lambda i, c: c * 0.5 + x[i], nx.zeros(4)),
    "cond": lambda x: nx.cond(x.sum() > 0, lambda y: y.mean(0), lambda y: y.max(0), x),
    "vmap_cond": lambda x: nx.vmap(lambda r: nx.cond(r[0] > 0, nx.sin, nx.cos, r))(x).sum(0),
    "jit": lambda x: nx.jit(lambda y: y.mean(0))(x),
    "checkpoint": lambda x: nx.checkpoint(lambda y: nx.exp(y).mean(0))(x),
    "causal_conv": lambda x: conv(x, K, 1, [(4, 0)], rhs_dilation=(2,)),
    "conv_transpose": lambda x: nx.lax.conv_transpose(x[None], K, (2,), "SAME", dimension_numbers=NWC),
    "depthwise": lambda x: conv(x, D, 2, "SAME", feature_group_count=4),
    **{f"conv_{p}_{s}": (lambda x, p=p, s=s: conv(x, K, s, p)) for p in ("SAME", "VALID") for s in (1, 2, 3)},
    **{
        f"max_{p}_{s}": (lambda x, p=p, s=s: pool(x, -np.inf, nx.lax.max, s, p)) for p, s in (("SAME", 2), ("VALID", 3))
    },
    "average_pool": lambda x: pool(x, 0.0, nx.lax.add, 2, "SAME") / pool(nx.ones_like(x), 0.0, nx.lax.add, 2, "SAME"),
    "two_convs": lambda x: conv(nx.nn.relu(conv(x, K, 2, "SAME")), weights(3, 5, 4), 2, "SAME").mean(0),
    "global_pool": lambda x: nx.lax.reduce_window(x, 0.0, nx.lax.add, (x.shape[0], 1), (1, 1), "VALID"),
}
# Running products take other steps at other lengths when they are differentiated.
NOT_IN_REVERSE_INSIDE = {"cumulative"}
LENGTHS = (3, 5, 8, 13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value(name):
    f = FUNCTIONS[name]
    g = nx.bucketed(f, BUCKETS, at_least=3)
    for n in (1, 2, 3, 4, 7, 8, 9, 13, 16):
        if n < 3 and ("VALID" in name or name in ("variance", "ends", "dynamic_slice")):
            continue
        x = rows(n)
        close(g(x), f(x))
    assert g.trace_count <= 4  # two buckets, and the lengths 1 and 2 as they are


@pytest.mark.parametrize("name", ["first_everywhere", "standardize", "layer_norm_time"])
def test_one_row_is_repeated_as_many_are(name):
    """Where there is one row, there is nothing to repeat: the traced functions differ in an equation."""
    f = FUNCTIONS[name]
    g = nx.bucketed(f, BUCKETS, at_least=1)
    for n in (1, 2, 5, 8):
        close(g(rows(n)), f(rows(n)))
    assert g.trace_count == 1


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("any_all", "global_pool")])
def test_derivatives(name):
    f = FUNCTIONS[name]
    loss, g = scalar(f), nx.bucketed(f, BUCKETS, at_least=3)
    inside = nx.bucketed(nx.grad(loss), BUCKETS, at_least=3)
    for n in LENGTHS:
        x, t = rows(n), rows(n, 1)
        wanted = nx.grad(loss)(x)
        close(nx.grad(scalar(g))(x), wanted, 1e-3)
        if name not in NOT_IN_REVERSE_INSIDE:
            close(inside(x), wanted, 1e-3)
        close(nx.jvp(g, (x,), (t,)), nx.jvp(f, (x,), (t,)), 1e-3)


@pytest.mark.parametrize("name", ["softmax", "sort", "gram", "flatten_the_other_way", "scan", "conv_SAME_2", "cond"])
def test_vmap(name):
    f = FUNCTIONS[name]
    g = nx.bucketed(f, BUCKETS, at_least=3)
    for n in LENGTHS:
        x = nx.stack([rows(n, s) for s in range(3)])
        close(nx.vmap(g)(x), nx.vmap(f)(x))
        close(nx.vmap(nx.grad(scalar(g)))(x), nx.vmap(nx.grad(scalar(f)))(x), 1e-3)


@pytest.mark.parametrize("name", ["mean", "attention", "scan", "conv_SAME_2", "sort", "flatten_the_other_way"])
def test_compiled(name, executor):
    f = FUNCTIONS[name]
    with config.using(executor=executor):
        g = nx.bucketed(f, {0: {0: [8]}}, at_least=3)
        for n in (3, 6):
            x = rows(n)
            close(g(x), f(x))
            close(nx.jit(nx.grad(scalar(g)))(x), nx.grad(scalar(f))(x), 1e-3)


def test_integers():
    f = lambda x: (x.argmax(0), x.argmin(0), nx.argsort(x, 0), nx.lax.top_k(x.T, 2)[1], nx.nn.one_hot(x[:, 0] > 0, 2))
    g = nx.bucketed(f, BUCKETS)
    for n in (2, 5, 8, 9):
        close(g(rows(n)), f(rows(n)))
    low = nx.asarray(np.full((3, 2), np.iinfo(np.int32).min, np.int32))
    close(g(low), f(low))


def test_while():
    def f(x):
        return nx.while_loop(lambda c: c[1].mean() < 3, lambda c: (c[0] + 1, c[1] * 1.5 + c[1].max()), (0, nx.abs(x)))

    g = nx.bucketed(f, BUCKETS)
    for n in (2, 5, 13):
        close(g(rows(n)), f(rows(n)), 1e-4)


def test_second_order():
    f = lambda x: (nx.nn.softmax(x, 0) * x).sum() + (x.mean(0) ** 3).sum()
    g = nx.bucketed(f, BUCKETS)
    for n in (3, 9):
        close(nx.hessian(g)(rows(n)), nx.hessian(f)(rows(n)), 1e-3)


def test_padding_that_is_infinite_cannot_reach_a_gradient():
    f = lambda w, x: (nx.log(x[:, 0] * w) + 1 / x[:, 1] + nx.sqrt(x[:, 2])).mean()
    g = nx.bucketed(f, {1: {0: [8]}})
    x = nx.abs(rows(5)) + 0.5
    for argnums in (0, 1):
        close(nx.grad(g, argnums)(2.0, x), nx.grad(f, argnums)(2.0, x), 1e-5)


def test_rules_of_the_users_own_hold():
    @nx.custom_vjp
    def strange(x):
        return nx.sin(x).sum()

    strange.defvjp(lambda x: (strange(x), x), lambda x, ct: (ct * 2 * nx.cos(x),))
    f = lambda x: strange(x) + x.mean()
    g = nx.bucketed(f, BUCKETS)
    close(nx.grad(g)(rows(5)), nx.grad(f)(rows(5)))


def test_closing_over_what_is_differentiated():
    x = rows(5)
    loss = lambda wrap: lambda w: (wrap(lambda y: nx.tanh(y @ w).mean(0))(x) ** 2).sum()
    mine = loss(lambda f: nx.bucketed(f, BUCKETS))
    close(nx.grad(mine)(nx.asarray(W)), nx.grad(loss(lambda f: f))(nx.asarray(W)))
    close(nx.jit(nx.grad(mine))(nx.asarray(W)), nx.grad(loss(lambda f: f))(nx.asarray(W)))


def test_several_dimensions():
    f = lambda x: (x.reshape(-1, 4).mean(0), nx.sort(x.reshape(-1)), x.reshape(x.shape[0] * x.shape[1], 4).cumsum(0))
    g = nx.bucketed(f, {0: {0: "batch", 1: "time"}}, {"batch": [4, 8], "time": [8]})
    for b, n in ((2, 3), (4, 8), (3, 5), (5, 2)):
        x = nx.asarray(np.random.default_rng(b).normal(size=(b, n, 4)).astype(np.float32))
        close(g(x), f(x))
        close(nx.grad(scalar(g))(x), nx.grad(scalar(f))(x), 1e-3)
    assert g.trace_count == 2


def test_a_dimension_shared_by_arguments():
    f = lambda q, k, v: nx.nn.softmax(q @ k.T, -1) @ v
    g = nx.bucketed(f, {"q": {0: "queries"}, "k": {0: "keys"}, "v": {-2: "keys"}}, {"queries": [4], "keys": [8, 16]})
    for a, b in ((2, 3), (4, 8), (3, 9)):
        close(g(rows(a), rows(b), rows(b, 1)), f(rows(a), rows(b), rows(b, 1)))
    close(g(rows(2), v=rows(3), k=rows(3)), f(rows(2), rows(3), rows(3)))
    with pytest.raises(ShapeError, match=r"'keys' differ in length"):
        g(rows(2), rows(3), rows(4))


def test_trees():
    f = lambda batch, scale: (batch["x"] * batch["m"][:, None] * scale).sum(0) / batch["m"].sum()
    g = nx.bucketed(f, {0: {"x": {0: "n"}, "m": {0: "n"}}}, {"n": [8]})
    batch = {"x": rows(5), "m": nx.abs(rows(5)[:, 0])}
    close(g(batch, 2.0), f(batch, 2.0))
    h = nx.bucketed(lambda pair: pair[0].sum(0) + pair[1], {0: ({0: "n"}, None)})
    close(h((rows(5), 1.0)), rows(5).sum(0) + 1.0)


def test_traces_are_bounded_by_the_buckets():
    g = nx.bucketed(lambda x: x.mean(0), {0: {0: [8, 16, 32]}})
    assert isinstance(g, Bucketed)
    with count_traces(g) as traces:
        for n in (*range(2, 33), *range(2, 33)):
            g(rows(n))
    assert traces.count == 3
    with count_traces(g) as traces:
        nx.grad(lambda x: g(x).sum())(rows(5))
    assert traces.count == 0


def test_powers_of_two():
    g = nx.bucketed(lambda x: x.mean(0), {0: {0: "powers of two"}})
    for n in (1, 2, 3, 4, 5, 31, 32, 33):
        close(g(rows(n)), rows(n).mean(0))
    assert g.trace_count == 6  # 1, 2, 4, 8, 32, 64


def test_lengths_as_data():
    f = lambda x: nx.nn.softmax(x[:, 0]) * x.shape[0]
    g = nx.bucketed(f, {0: {0: "n"}}, {"n": [8]})
    batch, lengths = nx.stack([rows(8, s) for s in range(3)]), [2, 5, 8]
    y = nx.vmap(g.padded)({"n": nx.asarray(lengths)}, batch)
    for row, x, n in zip(y, batch, lengths, strict=True):
        close(row[:n], f(x[:n]))
    close(nx.jit(g.padded)({"n": 3}, batch[0])[:3], f(batch[0, :3]))
    with pytest.raises(ShapeError, match="bucket's size"):
        g.padded({"n": 3}, rows(5))
    with pytest.raises(ParameterError, match="lengths"):
        g.padded({"m": 3}, rows(8))


def test_a_table_as_long_as_the_bucket():
    table = nx.asarray(weights(16, 4))
    f = lambda x: (x + table[: x.shape[0]]).sum(0)
    g = nx.bucketed(f, {0: {0: [16]}})
    for n in (2, 5, 16):
        close(g(rows(n)), f(rows(n)))


def test_a_table_among_other_arrays_as_long_as_the_bucket():
    """The member without the slice reads what the slice would have repeated, which is neither first nor second."""
    table = nx.asarray(weights(16, 4))
    f = lambda p, q, x: (x * p + table[: x.shape[0]]).sum(0) * q
    g = nx.bucketed(f, {2: {0: [4, 16]}})
    for n in (2, 4, 5, 16):
        close(g(2.0, 3.0, rows(n)), f(2.0, 3.0, rows(n)))


def test_arrays_made_by_numpy():
    f = lambda x: x * np.arange(x.shape[0], dtype=np.float32)[:, None] + np.tri(x.shape[0], 4, dtype=np.float32)
    g = nx.bucketed(f, BUCKETS)
    for n in (2, 5, 9):
        close(g(rows(n)), f(rows(n)))


def test_lengths_that_are_multiples():
    f = lambda x: x.reshape(-1, 4, 4).mean(0)
    g = nx.bucketed(f, BUCKETS, multiple_of=4)
    for n in (4, 8, 12, 16):
        close(g(rows(n)), f(rows(n)))
    with pytest.raises(ShapeError, match="a length of"):
        g(rows(6))


def test_disable_jit_calls_the_function():
    with config.using(disable_jit=True):
        g = nx.bucketed(lambda x: x.mean(0), BUCKETS)
        close(g(rows(5)), rows(5).mean(0))
    assert g.trace_count == 0


# --- what is refused ---


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: x * 2 if x.shape[0] > 5 else nx.sin(x), "other things at one length"),
        (lambda x: nx.fft.fft(x, axis=0), "fft"),
        (lambda x: nx.linalg.cholesky(x @ x.T), "cholesky"),
        (lambda x: nx.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: x * np.hanning(x.shape[0]).astype(np.float32)[:, None], "an array made outside"),
        (lambda x: x * (x.shape[0] ** 0.3 + 1), "a number in the program"),
        (lambda x: x[: x.shape[0] * x.shape[0] % 7 + 1], "a size|other things"),
        (lambda x: nx.concatenate([x, nx.ones((30 - x.shape[0], 4))], 0), "does not fit"),
        (nx.grad(lambda x: FUNCTIONS["global_pool"](x).sum()), "window or stride"),
    ],
)
def test_what_cannot_be_kept_right_is_refused(f, text):
    g = nx.bucketed(f, {0: {0: [20]}})
    with pytest.raises(LoweringError, match=text) as caught:
        g(rows(5))
    assert "fix:" in str(caught.value)


def test_the_error_names_the_line():
    def f(x):
        y = x + 1
        return nx.fft.fft(y, axis=0)  # this one

    with pytest.raises(LoweringError) as caught:
        nx.bucketed(f, BUCKETS)(rows(5))
    assert "# this one" in str(caught.value)


def test_numbers_of_few_lengths_are_in_a_table():
    f = lambda x: x * (x.shape[0] ** 0.3 + 1)
    g = nx.bucketed(f, {0: {0: [6]}})
    for n in (2, 5, 6):
        close(g(rows(n)), f(rows(n)))


QUANTIZED = {
    "mean": lambda x: (x @ W).mean(0),
    "softmax": lambda x: nx.nn.softmax(x @ W, 0),
    "attention": lambda x: nx.nn.softmax((x @ W) @ (x @ W).T, -1) @ x,
    "conv": lambda x: conv(x, K, 2, "SAME"),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_functions_keep_their_integers(name):
    f = nx.quantize(QUANTIZED[name], "int8", calibrate=[(10 * rows(6),)])
    g = nx.bucketed(f, {0: {0: [16]}})
    for n in (2, 5, 13):
        np.testing.assert_array_equal(g(10 * rows(n)), f(10 * rows(n)))
        close(nx.grad(scalar(g))(rows(n)), nx.grad(scalar(f))(rows(n)), 1e-3)


@pytest.mark.parametrize("name", ["attention", "conv"])
def test_quantized_products_stay_what_devices_know(name):
    only = lambda op, scope, types: "int8" if str(op) in ("dot_general", "conv_general_dilated") else None
    f = nx.quantize(QUANTIZED[name], only, calibrate=[(rows(6),)])
    g = nx.bucketed(f, {0: {0: "n"}}, {"n": [16]})
    program = inlined(nx.make_jaxpr(lambda x, n: g.padded({"n": n}, x))(rows(16), 5))
    used = [e.op.name for e in program.equations]
    wanted = [e.op.name for e in inlined(nx.make_jaxpr(f)(rows(16))).equations]
    products = {"qdot", "qmatmul", "qconv"}
    assert [n for n in used if n in products] == [n for n in wanted if n in products]
    assert products & set(used)
    for n in (5, 12):
        close(g(rows(n)), f(rows(n)), 1e-6)


def test_quantized_sums_pools_and_softmaxes():
    def f(x):
        image = nx.nn.relu(x @ W).reshape(1, -1, 2, 2)
        pooled = nx.lax.reduce_window(image, 0.0, nx.lax.add, (1, 1, 2, 1), (1, 1, 2, 1), "VALID") / 2
        return (x @ W).sum(0), nx.nn.softmax(x @ W, -1), pooled

    q = nx.quantize(f, "int8", calibrate=[(rows(6),)])
    g = nx.bucketed(q, {0: {0: [16]}})
    for n in (3, 11):
        close(g(rows(n)), q(rows(n)), 1e-6)


def test_quantizing_a_bucketed_function():
    # The other order is the better one: padding and masks then need no ranges.
    f = lambda x: nx.tanh(x @ W).mean(0)
    q = nx.quantize(nx.bucketed(f, BUCKETS), "int8", calibrate=[(rows(5),)])
    close(q(rows(5)), f(rows(5)), 0.1)
    assert np.abs(np.asarray(q(rows(5)) - f(rows(5)))).max() > 0


def test_a_bucket_border_where_the_function_changes():
    f = lambda x: x * 2 if x.shape[0] > 5 else nx.sin(x)
    g = nx.bucketed(f, {0: {0: [5, 8]}})
    for n in (2, 5, 6, 8):
        close(g(rows(n)), f(rows(n)))


def test_unused_dead_code_is_not_looked_at():
    def f(x):
        nx.fft.fft(x, axis=0)
        return x.mean(0)

    close(nx.bucketed(f, BUCKETS)(rows(5)), rows(5).mean(0))


def test_bad_arguments():
    mean = lambda x: x.mean(0)
    for dims, buckets in (
        ({}, {}),
        ({0: {0: [0, 4]}}, {}),
        ({0: {0: "n"}}, {"m": [4]}),
        ({0: {0: "n"}}, {"n": "powers of three"}),
        ({0: 3}, {}),
    ):
        with pytest.raises(ParameterError):
            nx.bucketed(mean, dims, buckets)
    for dims in ({0: {5: [8]}}, {1: {0: [8]}}, {0: {"a": {0: [8]}}}, {0: ({0: [8]},)}):
        with pytest.raises(ParameterError):
            nx.bucketed(mean, dims)(rows(5))
    with pytest.raises(ParameterError, match="at_least"):
        nx.bucketed(mean, {0: {0: "n"}}, at_least={"m": 3})
    with pytest.raises(ShapeError, match="larger than the largest bucket"):
        nx.bucketed(mean, BUCKETS)(rows(17))


# --- random programs ---

# Each maps [n, 4] to [m, 4], m growing with n.
STEPS = [
    nx.sin,
    lambda x: x @ W * 0.5,
    lambda x: x - x.mean(0),
    lambda x: nx.nn.softmax(x, 0) + x,
    lambda x: nx.nn.layer_norm(x, axis=0),
    lambda x: nx.nn.layer_norm(x),
    lambda x: x.cumsum(0) / x.shape[0],
    lambda x: nx.lax.cumsum(x, 0, reverse=True) / 5,
    lambda x: x[::-1],
    lambda x: x[1:],
    lambda x: x[:-1] + x[-1:],
    lambda x: nx.concatenate([x, nx.tanh(x)], 0),
    lambda x: nx.concatenate([x[-1:], x], 0),
    lambda x: nx.pad(x, ((1, 2), (0, 0)), constant_values=0.5),
    lambda x: nx.roll(x, 2, 0),
    lambda x: x.T.reshape(-1, 4),
    lambda x: nx.sort(x, 0),
    lambda x: nx.where(x > x.mean(), x, 0.1),
    lambda x: nx.nn.softmax(x @ x.T, -1) @ x,
    lambda x: conv(x, weights(3, 4, 4), 1, "SAME") * 0.3,
    lambda x: conv(x, weights(3, 4, 4), 1, [(2, 0)]) * 0.3,
    lambda x: pool(x, -np.inf, nx.lax.max, 1, "SAME"),
    lambda x: x[nx.argsort(x[:, 0])],
    lambda x: nx.scan(lambda c, r: (nx.tanh(c + r), c * r), nx.zeros(4), x)[1],
    lambda x: x + nx.arange(x.shape[0])[:, None] / x.shape[0],
    lambda x: x.at[0].add(x.max(0)),
    lambda x: x * nx.linalg.norm(x, axis=0) / 3,
    lambda x: nx.repeat(x, 2, axis=0)[1:],
]
ENDS = [
    lambda x: x.mean(0),
    lambda x: x.max(0),
    lambda x: nx.nn.logsumexp(x, axis=0),
    lambda x: x[-1],
    lambda x: x.T @ x / x.shape[0],
    lambda x: (nx.tanh(x) + 1.5).prod(0) ** (1 / 8),
    lambda x: x,
]


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=4), st.sampled_from(range(len(ENDS))), st.data()
)
def test_random_programs(steps, end, data):
    def f(x):
        for i in steps:
            x = STEPS[i](x)
        return ENDS[end](x)

    g = nx.bucketed(f, {0: {0: [13, 24]}}, at_least=8)
    for _ in range(2):
        n = data.draw(st.integers(8, 24))
        x = rows(n, data.draw(st.integers(0, 5)))
        close(g(x), f(x), 1e-3)
        close(nx.grad(scalar(g))(x), nx.grad(scalar(f))(x), 2e-2)


def test_step_by_step_equals_whole():
    # Each step of the random programs alone, so that a failure names it.
    for step in STEPS:
        g = nx.bucketed(step, {0: {0: [16]}}, at_least=4)
        for n in (4, 11):
            close(g(rows(n)), step(rows(n)), 1e-4)
