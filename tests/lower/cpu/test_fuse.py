"""Fusion: how many kernels programs become, and random programs against the reference executor."""

import math
import random

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower


def tape(f, *xs):
    program, _ = nx.make_jaxpr(f)(*xs).hoist_consts()
    return lower(program)


def names(f, *xs):
    return [c.kernel.title for c in tape(f, *xs).calls()]


def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * g + b


X = jnp.ones((50, 100))
ROW = jnp.ones((100,))


@pytest.mark.parametrize(
    ("f", "xs"),
    [
        (lambda x, y: jnp.tanh(x) * x + jnp.exp(-x * x) + y, (X, ROW)),
        (lambda x: nx.nn.softmax(x), (X,)),
        (lambda x: nx.nn.log_softmax(x, 0 - 1), (X,)),
        (lambda x: nx.nn.logsumexp(x, -1), (X,)),
        (layer_norm, (X, ROW, ROW)),
        (lambda x: jnp.argmax(x, -1), (X,)),
        (lambda x: (x.T + 1).reshape(10, 10, 50).sum(1), (X,)),
        (lambda x: jnp.flip(x[:, ::2] * 2, 1).T.reshape(-1), (X,)),
        (lambda x: x.mean(0), (X,)),
        (lambda x: (x.reshape(5, 10, 100) + 1).transpose(2, 0, 1).reshape(500, 10).max(1), (X,)),
    ],
)
def test_one_kernel(f, xs):
    assert len(list(tape(f, *xs).calls())) == 1, tape(f, *xs)


def test_pieces_of_a_concatenation_are_read_where_they_lie():
    x = np.random.default_rng(0).normal(size=(60, 70)).astype(np.float32)
    shifts = [(1, 0), (-1, 0), (3, 1), (-2, 1)]

    def f(np, x):
        return sum([np.roll(x, n, d) for n, d in shifts[:2]], -2 * x) * sum([np.roll(x, n, d) for n, d in shifts[2:3]])

    assert not [name for name in names(lambda x: f(jnp, x), x) if "move" in name]
    np.testing.assert_array_equal(nx.jit(lambda x: f(jnp, x))(x), f(np, x))
    looped = nx.jit(lambda x: nx.lax.fori_loop(0, 3, lambda i, x: f(jnp, x) / 8, x))(x)
    want = x
    for _ in range(3):
        want = f(np, want) / 8
    np.testing.assert_array_equal(looped, want)


def test_a_carry_that_is_shifted_twice_along_both_dimensions():
    x = np.random.default_rng(0).normal(size=(70, 130)).astype(np.float32)

    def f(np, x):
        for _ in range(2):
            x = x * np.float32(0.5) + np.roll(x, 1, 0) * np.float32(0.25) + np.roll(x, -1, 1) * np.float32(0.25)
        return x

    got = nx.jit(lambda x: nx.lax.fori_loop(0, 2, lambda i, x: f(jnp, x), x))(x)
    np.testing.assert_array_equal(got, f(np, f(np, x)))


@pytest.mark.parametrize(
    "f",
    [
        lambda np, x: (np.concatenate([x, x + 1]) * 2, np.concatenate([x, x + 1])[3:70]),
        lambda np, x: np.concatenate([x[:, 5:], -x[:, :5]], 1).sum(1),
        lambda np, x: np.tanh(np.concatenate([x, x[::-1]], 0).T),
        lambda np, x: np.concatenate([x, x, x], 0).reshape(90, -1) * 2,
        lambda np, x: sum([np.roll(x, i, i % 2) * i for i in range(9)]),
        lambda np, x: np.concatenate([x, x], 1) @ np.concatenate([x, x], 1).T,
        lambda np, x: np.concatenate([x, np.concatenate([x * 2, x])])[::-1] + 1,
        lambda np, x: np.concatenate([x, 0 * x])[10:110] - np.concatenate([0 * x, x])[:100],
    ],
)
def test_concatenations_are_right(f):
    x = np.random.default_rng(0).normal(size=(60, 70)).astype(np.float32)
    got, want = nx.jit(lambda x: f(jnp, x))(x), f(np, x)
    for a, b in zip(nx.tree.leaves(got), nx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_an_optimizers_update_is_one_kernel_per_array():
    def adam(p, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v

    program = tape(adam, X, X, X, X)
    (call,) = program.calls()
    assert len(call.outs) == 3
    assert len(call.ins) == 4


def test_views_cost_nothing():
    assert names(lambda x: (x.T[1:, ::-2] + 0).sum(), X) == ["add"] or len(names(lambda x: x.T[1:].sum(), X)) == 1


def test_what_is_wanted_as_it_lies_and_turned_is_made_once():
    made = names(lambda x: (x - 1).T @ (x - 1), jnp.ones((50, 40)))
    assert [name.split("(")[0] for name in made if not name.startswith("pack")] == ["sub", "gemm"]


def test_what_is_dear_and_needed_twice_is_stored():
    def f(x, w):
        y = jnp.exp(x) + jnp.tanh(x)
        return y @ w, y + 1

    calls = list(tape(f, X, jnp.ones((100, 7))).calls())
    assert sum("tanh" in c.kernel.key for c in calls) == 1


def test_values_made_of_the_same_values_are_one_kernel():
    def step(s, _):
        d = lambda s: jnp.stack([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])
        k = d(s)
        return s + 0.01 * d(s + 0.01 * k), None

    (call,) = tape(lambda s: nx.lax.scan(step, s, None, length=3)[0], jnp.ones((3, 50))).calls()
    assert len(call.outs) == 3

    def both(x):
        y = jnp.exp(x) * jnp.sin(x)
        return nx.lax.scan(lambda c, _: ((c[1] * y, jnp.tanh(c[0]) + c[1] * y), None), (x, x), None, length=3)[0]

    assert sum("tanh" in c.kernel.key for c in tape(both, X).calls()) == 1


def test_a_dear_value_that_would_be_made_three_times_is_stored():
    def force(x):
        d = x[None] - x[:, None]
        return (d / ((d * d).sum(-1) ** 1.3)[..., None]).sum(1)

    calls = [c for c in tape(force, jnp.ones((40, 3))).calls() if "pow" in c.kernel.key]
    assert len(calls) == 1 and "div" not in calls[0].kernel.key


def test_epilogues_are_part_of_products():
    def f(x, w, b):
        return jnp.maximum(x @ w + b, 0)

    assert len([n for n in names(f, X, jnp.ones((100, 64)), jnp.ones((64,))) if n.startswith(("gemm", "gemv"))]) == 1
    assert not [n for n in names(f, X, jnp.ones((100, 64)), jnp.ones((64,))) if "max" in n]


@pytest.mark.parametrize("view", [
    lambda y: y[:5], lambda y: y[:, :3], lambda y: y[::-1], lambda y: y[:, ::2], lambda y: y.T,
    lambda y: y.reshape(4, 28),
    lambda y: y[3:4], lambda y: y[3], lambda y: y[:, 2], lambda y: y[None], lambda y: y.reshape(112),
])  # fmt: skip
@pytest.mark.parametrize("depth", [6, 0])
def test_parts_of_products(view, depth):
    """What is made of a part of a product, or of one in another order, is no epilogue of the whole."""
    x, w = (np.random.default_rng(0).integers(-9, 9, s).astype(np.float32) for s in ((16, depth), (depth, 7)))
    np.testing.assert_array_equal(run("cpu", lambda x, w: view(x @ w) * 2 + 1, x, w)[0], view(x @ w) * 2 + 1)
    both = lambda x, w: (view(x @ w) * 2, (x @ w).sum(0))
    for got, wanted in zip(run("cpu", both, x, w), both(x, w), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 5)], ids=str)
def test_reductions_of_nothing_in_another_shape(shape):
    f = lambda x: ((x * 2).reshape(0, 6).sum(0), (x + 1).reshape(4, 0).max(1, initial=3), (x - 1).reshape(2, 0).T + 1)
    x = np.ones(shape, np.float32)
    for got, wanted in zip(run("cpu", f, x), f(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_reductions_of_the_same_elements_are_one_kernel():
    def f(x, y):
        return x.sum(0), (x * y).sum(0), x.max(0)

    (call,) = tape(f, X, X).calls()
    assert len(call.outs) == 3


def test_results_do_not_wait_for_the_end():
    """A result is computed while its operands are at hand, not when they would be all that is left of the program."""

    def f(x, ws):
        sums = []
        for w in ws:
            x = jnp.sin(x @ w)
            sums.append((x * x).sum(0))
        return sums

    w = jnp.ones((100, 100))
    assert tape(f, jnp.ones((1000, 100)), [w] * 30).arena < 15 * 400_000


def test_cheap_values_are_made_again():
    """Of a gelu's pieces two arrays stay for the backward pass: its argument and the tangent's hyperbola."""

    def f(x, w, v):
        return (nx.nn.gelu(x @ w) @ v).sum()

    calls = list(tape(nx.grad(f, (0, 1)), jnp.ones((64, 32)), jnp.ones((32, 64)), jnp.ones((64, 8))).calls())
    assert max(len(c.outs) for c in calls) <= 3


def test_equal_layers_share_code():
    def f(x, ws):
        for w in ws:
            x = layer_norm(jnp.tanh(x), w, w)
        return x

    program = tape(f, X, [ROW] * 6)
    assert len({c.kernel.symbol for c in program.calls()}) <= 3


def test_a_long_chain_is_cut():
    def f(x):
        for _ in range(300):
            x = jnp.sin(x) * x
        return x

    calls = list(tape(f, ROW).calls())
    assert 2 <= len(calls) <= 40
    np.testing.assert_allclose(run("cpu", f, ROW)[0], run("reference", f, ROW)[0], rtol=1e-4)


# --- reductions of reductions, with dear values between them ---


def _nested(x):
    j, t = x - x.mean(-1, keepdims=True), jnp.cos(x)
    return ((j * t).mean(-1, keepdims=True) * t).mean(-1)


def _weighted(x):
    w = jnp.exp(-x * x)
    mean = (w * x).sum(-1, keepdims=True) / w.sum(-1, keepdims=True)
    return (w * (x - mean) ** 2).sum(-1)


def _pushed(f):
    return lambda x: nx.jvp(f, (x,), (jnp.cos(x),))


def _linearized(f):
    def g(x):
        y, push = nx.linearize(f, x)
        return y, push(jnp.cos(x))

    return g


def _twice(f):
    return nx.grad(lambda x: (nx.grad(lambda x: (f(x) * jnp.sin(f(x))).sum())(x) ** 2).sum())


@pytest.mark.parametrize("shape", [(3,), (17,), (33,), (3000,), (5, 8), (70, 33)], ids=str)
@pytest.mark.parametrize("way", [lambda f: f, _pushed, _linearized, _twice], ids=["plain", "jvp", "linearize", "grad"])
@pytest.mark.parametrize(
    "f",
    [
        _nested,
        _weighted,
        lambda x: nx.nn.softmax(jnp.sin(x)),
        lambda x: nx.nn.softmax(nx.nn.sigmoid(x**3)),
        lambda x: nx.nn.log_softmax(jnp.sin(x)),
        lambda x: nx.nn.standardize(jnp.tanh(x)),
        lambda x: jnp.sin(x)[..., ::2],
    ],
    ids=["nested", "weighted", "softmax", "softmax of logistic", "log_softmax", "standardize", "every second"],
)
def test_compiled_programs_give_what_numpy_gives(f, way, shape):
    """In float64, where rounding does not hide anything."""
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    g = way(f)
    with np.errstate(all="ignore"):
        wanted = nx.tree.leaves(g(jnp.asarray(x, np.float64)))
    for got, y in zip(nx.tree.leaves(nx.jit(g)(jnp.asarray(x, np.float64))), wanted, strict=True):
        y = np.asarray(y)
        np.testing.assert_allclose(np.asarray(got), y, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(y).max()))


# --- what LLVM makes of single elements ---


@pytest.mark.parametrize("shape", [(), (1,), (3,), (17,)], ids=str)
@pytest.mark.parametrize(
    "f",
    [
        lambda a: jnp.tanh(a**1.7),
        lambda a: jnp.arctan(nx.lax.lgamma(a)),
        lambda a: jnp.tanh(jnp.cbrt(a.astype(np.float64)).astype(a.dtype)),
    ],
    ids=["power", "lgamma", "float64"],
)
def test_halves_that_were_doubles(isa_name, f, shape):
    a = jnp.full(shape, 1.5, np.float16)
    np.testing.assert_allclose(np.asarray(nx.jit(f)(a), np.float32), np.asarray(f(a), np.float32), rtol=2e-3)


@pytest.mark.parametrize("shape", [(4, 17), (3,), (16, 16)], ids=str)
def test_conditions_as_numbers_beside_constants(isa_name, shape):
    x = jnp.ones(shape)
    f = lambda x, y: (x < y).all(-1, keepdims=True) // y + jnp.min(x == y, axis=-1, keepdims=True) * y
    np.testing.assert_array_equal(nx.jit(f)(x, x), f(x, x))


# --- views of what is not memory yet ---


def turned(rng, shape):
    """A view of an array of ``shape``: what makes it of an array, the same in both libraries."""
    nd, n = len(shape), math.prod(shape)
    match rng.randrange(6):
        case 0 | 1:  # the same elements, cut otherwise
            new = []
            while n > 1 and len(new) < 4:
                d = rng.choice([k for k in range(2, n + 1) if n % k == 0])
                new.append(d)
                n //= d
            rng.shuffle(new)
            new += [n] if n > 1 else [1] * rng.randrange(2)
            return lambda a: a.reshape(new)
        case 2 if nd > 1:
            order = rng.sample(range(nd), nd)
            return lambda a: a.transpose(order)
        case 3 | 4 if nd:
            at = [slice(None)] * nd
            d = rng.randrange(nd)
            start = rng.randrange(shape[d])
            at[d] = rng.choice([
                slice(None, None, 2), slice(None, None, -1), slice(start, None, 3), slice(start, start + 1),
                slice(start, None, -2),
            ])  # fmt: skip
            return lambda a: a[tuple(at)]
        case 5 if nd < 4 and n < 2000:
            d, m = rng.randrange(nd + 1), rng.choice([2, 3])
            new = (*shape[:d], m, *shape[d:])
            xp = lambda a: np if isinstance(a, np.ndarray) else jnp
            return lambda a: xp(a).broadcast_to(xp(a).expand_dims(a, d), new)
    return lambda a: a


def counted(a, axis):
    if isinstance(a, np.ndarray):
        return np.indices(a.shape, np.int32)[axis]
    return nx.lax.broadcasted_iota(np.int32, a.shape, axis)


LITTLE = {"fuse.most": 3, "fuse.again": 1, "fuse.cheap": 0, "fuse.row": 4, "nest.transpose": 1, "nest.cut": 8}


@pytest.mark.parametrize("block", range(6))
@pytest.mark.parametrize("choices", [{}, LITTLE], ids=["usual", "little"])
def test_any_views_of_what_is_not_made_yet(block, choices):
    """A place in a result is a place in each operand, or the operand is made first. Whole numbers."""
    for seed in range(40 * block, 40 * block + 40):
        rng = random.Random(seed)
        shape = rng.choice([(24,), (4, 6), (2, 3, 4), (12, 5), (3, 8, 5), (7,), (2, 2, 2, 3), (60, 6), (1, 30)])
        x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape) % 97
        y, steps = x, []
        for k in range(rng.randint(2, 6)):
            steps.append(turned(rng, y.shape))
            y = steps[-1](y)
            if rng.random() < 0.5:
                steps.append(lambda a, k=k: (a ^ 5) + k)
                y = steps[-1](y)
            if y.ndim and rng.random() < 0.2:
                steps.append(lambda a, d=rng.randrange(y.ndim): a + counted(a, d))
                y = steps[-1](y)
            if y.ndim and y.size and rng.random() < 0.3:
                axes = tuple(rng.sample(range(y.ndim), rng.randint(1, y.ndim)))
                steps.append(lambda a, axes=axes: a.sum(axes, dtype=np.int32))
                y = steps[-1](y)

        def f(a, steps=steps):
            for step in steps:
                a = step(a)
            return a

        with config.using(reproducible=block % 3 == 2 and not choices):
            got = nx.jit(lambda a, f=f: f(a * 3 + 1), device=CpuBackend(choices).device)(x)
        np.testing.assert_array_equal(got, f(x * np.int32(3) + np.int32(1)), err_msg=str(seed))


# --- random programs ---


def step(rng, vals):
    """One more value, or None."""
    a = rng.choice(vals)
    nd, name = a.ndim, a.dtype.name
    real = "float" in name
    match rng.randint(0, 15):
        case 0:
            return a + 1
        case 1:
            return a * 2
        case 2:
            b = rng.choice(vals).astype(a.dtype)
            try:
                shape = np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                return None
            return a + b if np.prod(shape) <= 20000 else None
        case 3 if nd:
            return a.sum(rng.randrange(nd), keepdims=rng.random() < 0.5)
        case 4 if nd and a.size:
            return a.max(rng.randrange(nd), keepdims=rng.random() < 0.5)
        case 5 if nd > 1:
            order = list(range(nd))
            rng.shuffle(order)
            return a.transpose(order)
        case 6:
            n, shape = a.size, []
            for d in (2, 3, 4, 5, 7):
                while n and n % d == 0 and rng.random() < 0.6:
                    shape.append(d)
                    n //= d
            shape.append(n)
            rng.shuffle(shape)
            return a.reshape(shape)
        case 7 if nd:
            d = rng.randrange(nd)
            if not a.shape[d]:
                return None
            at = [slice(None)] * nd
            at[d] = slice(rng.randrange(a.shape[d]), None, rng.choice([1, 1, 2, 3]))
            return a[tuple(at)]
        case 8 if nd:
            return jnp.flip(a, rng.randrange(nd))
        case 9:
            return jnp.where(a > 0, a, -a)
        case 10 if nd < 4 and a.size < 4000:
            return jnp.broadcast_to(a, (rng.choice([1, 2, 5]), *a.shape))
        case 11:
            return a.astype(rng.choice([np.float32, np.int32, np.float64, jnp.bfloat16]))
        case 12 if real:
            return jnp.tanh(a)
        case 13 if real and nd:
            return a - a.mean(rng.randrange(nd), keepdims=True)
        case 14 if real:
            return jnp.cos(a)
        case 15 if real and nd:
            return (a * a.sum(rng.randrange(nd), keepdims=True)) * 0.125
    return None


SHAPES = [(), (1,), (5,), (8, 9), (3, 4, 5), (2, 100), (70, 3), (0, 4), (16, 16), (2, 3, 4, 5), (130,), (257, 33)]
DTYPES = [np.float32, np.float32, np.int32, np.float64, np.float16, jnp.bfloat16, np.int8]
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 4e-2, "bfloat16": 2e-1}


def run(executor, f, *xs):
    before, config.executor = config.executor, executor
    try:
        return [np.asarray(y) for y in nx.tree.leaves(nx.jit(lambda *a: f(*a))(*xs))]
    finally:
        config.executor = before


@pytest.fixture(params=isa.possible())
def isa_name(request):
    before, config.cpu_isa = config.cpu_isa, request.param
    yield request.param
    config.cpu_isa = before


@pytest.mark.parametrize("block", range(4))
def test_random_programs(isa_name, block):
    for seed in range(1000 * block, 1000 * block + 8):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        xs = []
        for _ in range(rng.randint(1, 3)):
            shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
            xs.append(jnp.asarray((numbers.integers(-40, 40, shape) / 8).astype(dtype)))
        state = rng.getstate()

        def f(*xs, state=state):
            again = random.Random()
            again.setstate(state)
            vals = list(xs)
            for _ in range(again.randint(3, 14)):
                y = step(again, vals)
                if y is not None:
                    vals.append(y)
            return tuple(vals[-again.randint(1, 3) :])

        for got, wanted in zip(run("cpu", f, *xs), run("reference", f, *xs), strict=True):
            assert got.shape == wanted.shape
            assert got.dtype == wanted.dtype
            tolerance = max(TOLERANCE.get(x.dtype.name, 0) for x in (*xs, got))
            a, b = got.astype(np.float64), wanted.astype(np.float64)
            scale = max(1, np.abs(b).max(initial=0, where=np.isfinite(b)))
            np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance, err_msg=str(seed))
