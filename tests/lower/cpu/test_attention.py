import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import tree
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.config import config
from nxjax.kernels.cpu import isa, knobs
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CallStep, walk


@pytest.fixture(autouse=True)
def any_size():
    with knobs.using({"attention.least": 0}):
        yield


def lowered(function, *xs):
    return lower(nx.make_jaxpr(function)(*(nx.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in xs)))


def names(program):
    return [s.kernel.title for s in walk(program.steps) if isinstance(s, CallStep)]


def run(program, *xs):
    return [np.array(y) for y in TapeInterpreter(program, engine(isa.current()))([np.asarray(x) for x in xs])]


def values(*shapes, dtype="float32"):
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(s).astype(np.float32).astype(dtype) for s in shapes]


def check(function, *xs, name="", count=1):
    """Joined, with the bits of the separate steps, and near the reference executor's numbers."""
    with config.using(cpu_isa=name):
        joined = lowered(function, *xs)
        assert names(joined).count("attention") == count, str(joined)
        found = run(joined, *xs)
        with knobs.using({"attention.least": knobs.NEVER}):
            apart = lowered(function, *xs)
        assert "attention" not in names(apart)
        for y, z in zip(found, run(apart, *xs), strict=True):
            assert y.tobytes() == z.tobytes()
    with config.using(executor="reference"):
        wanted = np.asarray(tree.leaves(function(*map(jnp.asarray, xs)))[0])
    tolerance = 0.03 if found[0].dtype.itemsize == 2 else 1e-4
    np.testing.assert_allclose(found[0].astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def by_hand(q, k, v, mask=None):
    scores = jnp.einsum("bqhc,bkhc->bhqk", q, k) / 4
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bkhc->bqhc", nx.nn.softmax(scores), v)


def causal(q, k, v):
    return by_hand(q, k, v, jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])[None])


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize(("queries", "keys"), [(171, 150), (97, 130), (150, 401)])
def test_written_by_hand(queries, keys, name):
    q, k, v = values((2, queries, 3, 16), (2, keys, 3, 16), (2, keys, 3, 16))
    check(by_hand, q, k, v, name=name)
    check(causal, q, k, v, name=name)
    mask = np.random.default_rng(0).random((2, 1, queries, keys)) < 0.5
    check(by_hand, q, k, v, mask, name=name)


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_functions_own(dtype, name):
    q, k, v = values((1, 170, 4, 16), (1, 170, 2, 16), (1, 170, 2, 16), dtype=dtype)
    check(lambda q, k, v: nx.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v, name=name)
    (bias,) = values((1, 4, 1, 170), dtype=dtype)
    check(lambda q, k, v, bias: nx.nn.dot_product_attention(q, k, v, bias), q, k, v, bias, name=name)


def test_one_matrix_and_something_else_than_a_softmax():
    q, k, v = values((300, 24), (24, 200), (200, 40))
    norm = lambda s: (s - s.mean(-1, keepdims=True)) / jnp.sqrt(s.shape[-1] * (1 + s.var(-1, keepdims=True)))
    check(lambda q, k, v: norm(q @ k) @ v, q, k, v)
    assert "attention" not in names(lowered(lambda q, k, v: norm((q @ k).T) @ v[:, :1], q, k, np.zeros((300, 40))))


def test_panels_are_made_once():
    q, k, v = values((200, 200), (1100, 200), (1100, 200))
    function = lambda q, k, v: nx.nn.softmax(q @ k.T / 16) @ v
    check(function, q, k, v)
    assert names(lowered(function, q, k, v)) in (["pack", "attention"], ["pack", "pack", "attention"])


def test_panels_of_many_heads_are_made_before():
    check(by_hand, *values((2, 200, 3, 64), (2, 2100, 3, 64), (2, 2100, 3, 64)))


def test_several_in_a_row_and_in_a_loop():
    q, k, v = values((1, 160, 2, 16), (1, 160, 2, 16), (1, 160, 2, 16))
    check(lambda q, k, v: by_hand(by_hand(q, k, v), k, v), q, k, v, count=2)
    turn = lambda k, v: lambda q, _: (by_hand(q, k, v), None)
    check(lambda q, k, v: nx.lax.scan(turn(k, v), q, None, length=3)[0], q, k, v)


def test_matrices_that_others_read_stay():
    q, k, v = values((1, 160, 2, 16), (1, 160, 2, 16), (1, 160, 2, 16))

    def weights_too(q, k, v):
        weights = nx.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
        return jnp.einsum("bhqk,bkhc->bqhc", weights, v), weights

    assert "attention" not in names(lowered(weights_too, q, k, v))
    # A gradient reads the weights, but what comes back through them is used once, if only queries' is wanted.
    loss = lambda q, k, v: (by_hand(q, k, v) ** 2).sum()
    check(nx.grad(loss), q, k, v)
    check(nx.grad(loss, argnums=(0, 1, 2)), q, k, v, count=0)


def test_small_matrices_stay():
    with knobs.using({}):
        q, k, v = values((1, 128, 1, 16), (1, 128, 1, 16), (1, 128, 1, 16))
        assert "attention" not in names(lowered(by_hand, q, k, v))
        q, k, v = (nx.ShapeDtypeStruct((4, 512, 8, 16), "float32") for _ in range(3))
        program = lower(nx.make_jaxpr(by_hand)(q, k, v))
        assert names(program).count("attention") == 1
    assert program.arena < 4 * 8 * 512 * 512 * 4 // 8


def test_threads_do_not_matter():
    q, k, v = values((2, 170, 3, 16), (2, 170, 3, 16), (2, 170, 3, 16))
    f = nx.jit(causal)
    found = []
    for threads in (1, 2, 7):
        with config.using(num_threads=threads):
            found.append(np.asarray(f(q, k, v)).tobytes())
    assert len(set(found)) == 1
    assert "attention" in f.lower(q, k, v).as_text()
