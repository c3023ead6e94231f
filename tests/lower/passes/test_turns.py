"""Products that leave a scan: which do, and that results stay."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes import turns
from nxjax.lower.passes.simplify import simplified
from nxjax.lower.passes.turns import staged
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var

T, B, N, H = 6, 3, 5, 4
RNG = np.random.default_rng(0)
XS = RNG.standard_normal((T, B, N)).astype(np.float32)
U, W = RNG.standard_normal((N, H)).astype(np.float32), RNG.standard_normal((H, H)).astype(np.float32) / 2
H0 = RNG.standard_normal((B, H)).astype(np.float32)


def loops(function, *args):
    """The scans of a function, simplified."""
    p = simplified(nx.make_jaxpr(function)(*args).hoist_consts()[0])
    return [e for e in p.equations if e.op.name == "scan"]


def names(equations):
    return [e.op.name for e in equations]


def checked(e):
    """What the loop becomes, if it gives what the loop gives for random operands."""
    made = staged(e)
    assert made is not None
    made.check()
    inputs = [Var(a.type) for a in e.inputs]
    plain = Program(inputs, [e.replaced(tuple(inputs), e.outputs)], e.outputs)
    values = [RNG.standard_normal(v.type.shape).astype(v.type.dtype) for v in inputs]
    for got, expected in zip(evaluate(made, values), evaluate(plain, values), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return made


def rnn(u, w, xs, h, reverse=False):
    def cell(h, x):
        h = jnp.tanh(x @ u + h @ w)
        return h, h

    return nx.lax.scan(cell, h, xs, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_products_of_slices_come_before(reverse):
    (e,) = loops(lambda *a: rnn(*a, reverse=reverse), U, W, XS, H0)
    made = checked(e)
    assert names(made.equations) == ["dot_general", "scan"]
    assert names(made.equations[1].params["body"].equations).count("dot_general") == 1
    # The slices themselves are not read any more.
    assert len(made.equations[1].inputs) == len(e.inputs) - 1


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_products_of_all_turns(reverse):
    loss = lambda *a: (rnn(*a, reverse=reverse)[1] ** 2).sum()
    _, back = loops(nx.grad(loss, (0, 1, 2)), U, W, XS, H0)
    made = checked(back)
    (loop,) = (e for e in made.equations if e.op.name == "scan")
    # Of four products the one that the carry goes through is left, and no carry but that one.
    assert names(loop.params["body"].equations).count("dot_general") == 1
    assert loop.params["num_carry"] == 1
    assert names(made.equations).count("dot_general") == 3


def test_what_a_carry_needs_stays():
    (e,) = loops(lambda w, h: nx.lax.scan(lambda h, _: (jnp.tanh(h @ w), h @ w), h, None, length=T), W, H0)
    assert staged(e) is None
    total = lambda xs: nx.lax.scan(lambda c, x: (c + x.T @ x, c.sum()), np.zeros((N, N), np.float32), xs)
    (e,) = loops(total, XS)  # each turn's sum is read
    assert staged(e) is None


def test_a_sum_that_each_turn_gives_stays():
    """Partial sums are read, if only as results: the carry is not all that is wanted."""

    def sums(xs, ys, h):
        def turn(c, v):
            c = c + v[0].T @ v[1]
            return c, c

        return nx.lax.scan(turn, h, (xs, ys))

    (e,) = loops(sums, XS, RNG.standard_normal((T, B, H)).astype(np.float32), np.zeros((N, H), np.float32))
    assert staged(e) is None


def test_a_loop_that_is_left_with_nothing_goes():
    gram = lambda x: nx.lax.dot_general(x, x, (((0,), (0,)), ((), ())))
    total = lambda xs: nx.lax.scan(lambda c, x: (c + gram(x), None), np.zeros((N, N), np.float32), xs)
    (e,) = loops(total, XS)
    assert "scan" not in names(checked(e).equations)


def test_few_turns_much_memory_and_many_rows_stay(monkeypatch):
    (e,) = loops(rnn, U, W, XS[:3], H0)
    assert staged(e) is None
    many = RNG.standard_normal((T, 20, N)).astype(np.float32)
    (e,) = loops(rnn, U, W, many, np.zeros((20, H), np.float32))
    assert staged(e) is None  # the matrix is small
    monkeypatch.setattr(turns, "LARGE", 16)
    assert staged(e) is not None
    monkeypatch.setattr(turns, "SMALL", 0)
    monkeypatch.setattr(turns, "TIMES", 0)
    assert staged(e) is None


@pytest.mark.parametrize("reverse", [False, True])
def test_compiled(reverse):
    loss = lambda *a: (rnn(*a, reverse=reverse)[1] ** 2).sum()
    grad = nx.grad(loss, (0, 1, 2, 3))
    with nx.disable_jit():
        expected = grad(U, W, XS, H0)
    for got, want in zip(nx.jit(grad)(U, W, XS, H0), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _gram(x):
    return nx.lax.dot_general(x, x, (((0,), (0,)), ((), ())))


def _given(y):
    return y, y


ZEROS = np.zeros((N, N), np.float32)
V = RNG.standard_normal((B, B)).astype(np.float32)
BODIES = {
    "a sum": (lambda c, x: (c + _gram(x), None), ZEROS, True),
    "a sum the other way round": (lambda c, x: (_gram(x) + c, None), ZEROS, True),
    "a sum of whole numbers": (lambda c, x: (c + _gram(x.astype(np.int32)), None), ZEROS.astype(np.int32), False),
    "sums that are exchanged": (lambda c, x: ((c[1] + _gram(x), c[0]), None), (ZEROS, ZEROS), False),
    "a product that is given, too": (lambda c, x: (c + (y := _gram(x)), y), ZEROS, False),
    "twice a product": (lambda c, x: (c + (y := _gram(x)) + y, None), ZEROS, False),
    "what was, too": (lambda c, x: (c + _gram(x), c * 2), ZEROS, False),
    "a difference": (lambda c, x: (c - _gram(x), None), ZEROS, False),
    "a sum that is scaled": (lambda c, x: ((c + _gram(x)) * 0.5, None), ZEROS, False),
    "the matrix at the left": (lambda c, x: (c, V @ x), 0.0, False),
    "the matrix at the right": (lambda c, x: (c, x @ U), 0.0, True),
    "a product of what is made": (lambda c, x: (c + 1, (x * c) @ U), 0.0, True),
    "a product that goes on": (lambda c, x: (c, jnp.tanh(x @ U) @ W), 0.0, True),
    "a product of a product": (lambda c, x: (c, (x @ U) @ W), 0.0, True),
    "a product twice in the result": (lambda c, x: (c, _given(x @ U)), 0.0, True),
    "a product given and read": (lambda c, x: (c + (y := x @ U).sum(), y), 0.0, True),
    "a batch of products": (lambda c, x: (c, nx.lax.batch_matmul(x[None], U[None])), 0.0, False),
    "a product of the carry": (lambda c, x: (c @ W + x @ U, c @ W), H0, True),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("what", BODIES)
def test_results_stay_whatever_leaves(what, reverse):
    body, start, leaves = BODIES[what]
    found = loops(lambda c, xs, u, w: nx.lax.scan(body, c, xs, reverse=reverse), start, XS, U, W)
    assert all((staged(e) is not None) == leaves for e in found)
    for e in found:
        if leaves:
            checked(e)


@pytest.mark.parametrize("past", [0, 1])
def test_how_deep_and_how_many_rows(past):
    deep = RNG.standard_normal((T, turns.DEPTH + past, N)).astype(np.float32)
    (e,) = loops(lambda xs: nx.lax.scan(lambda c, x: (c + _gram(x), None), ZEROS, xs), deep)
    assert (staged(e) is None) == bool(past)
    product = lambda w, xs: nx.lax.scan(lambda c, x: (c, x @ w), 0.0, xs)[1]
    few = RNG.standard_normal((T, turns.FEW + past, N)).astype(np.float32)
    (e,) = loops(product, U, few)
    assert (staged(e) is None) == bool(past)
    columns = turns.LARGE // 4 // 64
    for rows, wide, stays in ((turns.ROWS + past, columns, past), (turns.FEW + 1, columns - past, past)):
        x, w = np.zeros((turns.TURNS, rows, 64), np.float32), np.zeros((64, wide), np.float32)
        (e,) = loops(product, w, x)
        assert (staged(e) is None) == bool(stays)
    for count in (turns.TURNS - 1, turns.TURNS):
        (e,) = loops(product, U, XS[:count])
        assert (staged(e) is None) == (count < turns.TURNS)
