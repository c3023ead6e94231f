"""Loops and choices that do less: what leaves them, and that they mean the same."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.simplify import simplified
from nxjax.trace.evaluate import evaluate
from nxjax.transforms.control.cond_op import cond_op
from nxjax.transforms.control.scan_op import scan_op
from nxjax.transforms.control.while_loop import while_op

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.linspace(0, 1, 9, dtype=np.float32).reshape(3, 3)


def simple(function, *args):
    hoisted, consts = nx.make_jaxpr(function)(*args).hoist_consts()
    result = simplified(hoisted).check()
    values = [x.numpy() for x in consts] + [np.asarray(x) for x in nx.tree.leaves(args)]
    for got, expected in zip(evaluate(result, values), evaluate(hoisted, values), strict=True):
        np.testing.assert_array_equal(got, expected)
    return result


def loop_of(program, name="scan"):
    (e,) = (e for e in program.equations if e.op.name == name)
    return e


def test_programs_that_hold_arrays_give_them_to_their_op():
    """nx.lax's functions pass them as operands; an op takes any program."""
    a, b, c = (jnp.arange(3.0) + k for k in (1, 10, 100))
    x = np.linspace(-1, 1, 3, dtype=np.float32)
    whole = lambda f, *args: nx.make_jaxpr(f)(*args)
    branches = tuple(whole(f, x) for f in (lambda x: x * a, lambda x: x + b * c, lambda x: x, lambda x: x - a - c * b))
    body, test = whole(lambda x: x * 0.5 + a * b, x), whole(lambda x: (x + c).sum() < (b + c).sum(), x)
    assert [len(p.constvars) for p in (*branches, body, test)] == [1, 2, 0, 3, 2, 2]
    for i in range(4):
        got = simple(lambda i, x: cond_op(i, x, branches=branches), np.int32(i), x)
        assert not any(p.constvars for p in loop_of(got, "cond").programs())
    simple(lambda x: while_op.bind(x, cond=test, body=body, cond_nconsts=0, body_nconsts=0), x)
    pair = whole(lambda x, y: (x * y + a, y - b * c), x, x)
    params = {"num_consts": 0, "num_carry": 1, "length": 4, "reverse": False, "unroll": 1}
    simple(lambda x, ys: scan_op.bind(x, ys, body=pair, **params), x, np.ones((4, 3), np.float32))


def test_what_does_not_change_is_computed_before_the_loop():
    p = simple(lambda w, xs: nx.lax.scan(lambda c, x: (c @ nx.sin(w) + x, None), xs[0], xs)[0], W, X)
    body = loop_of(p).params["body"]
    assert [e.op.name for e in body.equations] == ["dot_general", "add"]
    assert "sin" in [e.op.name for e in p.equations]
    p = simple(lambda w: nx.lax.while_loop(lambda c: c.sum() < nx.cos(w).sum(), lambda c: c + nx.sin(w), w * 0), W + 1)
    loop = loop_of(p, "while")
    assert {"sin", "cos"} <= {e.op.name for e in p.equations}
    assert [e.op.name for e in loop.params["body"].equations] == ["add"]


def test_what_a_condition_does_not_read_is_no_operand():
    test = nx.make_jaxpr(lambda a, b, c: c < b)(1.0, 2.0, 3.0)
    body = nx.make_jaxpr(lambda c: c + 1)(3.0)
    f = lambda a, b, c: while_op.bind(a, b, c, cond=test, body=body, cond_nconsts=2, body_nconsts=0)
    loop = loop_of(simple(f, np.float32(1), np.float32(5), np.float32(0)), "while")
    assert (loop.params["cond_nconsts"], len(loop.inputs)) == (1, 2)


def test_what_may_never_end_waits_for_the_first_turn():
    """Neither a loop in a loop that takes no turn runs, nor a function of Python."""

    def endless(w):
        return nx.lax.while_loop(lambda v: v < w, lambda v: v * 2, w * 0)

    def f(n, w):
        return nx.lax.fori_loop(0, n, lambda i, c: c + nx.lax.cond(w > 3, endless, lambda w: w, w), w)

    hoisted, _ = nx.make_jaxpr(f)(np.int32(0), np.int32(5)).hoist_consts()
    assert "cond" not in {e.op.name for e in simplified(hoisted).equations}
    assert nx.jit(f)(np.int32(0), np.int32(5)) == 5
    p = simple(lambda xs, w: nx.lax.scan(lambda c, x: (c + x + endless(-w), None), xs[0], xs)[0], np.arange(4), 3)
    assert loop_of(p, "while") and [e.op.name for e in loop_of(p).params["body"].equations] == ["add", "add"]

    def never(w):
        raise AssertionError("called")

    def g(n, w):
        again = lambda i, c: c + nx.pure_callback(never, nx.ShapeDtypeStruct((), np.float32), w)
        return nx.lax.fori_loop(0, n, again, w)

    assert nx.jit(g)(np.int32(0), np.float32(5)) == 5


def test_cheap_views_stay_inside():
    p = simple(lambda w, xs: nx.lax.scan(lambda c, x: (c * x + w[0, 0], None), xs[0], xs)[0], W, X)
    names = [e.op.name for e in loop_of(p).params["body"].equations]
    assert "broadcast_in_dim" in names
    assert all(a.type.size <= 3 for a in loop_of(p).inputs[: loop_of(p).params["num_consts"]])


def test_a_carry_that_does_not_change_beside_what_is_closed_over():
    b = X[0] + 3

    def turn(w, b):
        # That it does not change is known when the product is gone, not when it is traced.
        return lambda c: (nx.numpy.tanh(c[0] @ w) + c[1] + 1, c[1] * 1.0, c[2] + b[0])

    def scanned(w, b, v, xs):
        return nx.lax.scan(lambda c, x: (turn(w, b)(c), c[1] * x + b), (xs[0], v, 0.0), xs)

    def repeated(w, b, v, limit):
        return nx.lax.while_loop(lambda c: (c[2] < limit[0]) & (c[1][0] < 99), turn(w, b), (v * 0, v, 0.0))

    p = simple(scanned, W, b, X[1], X)
    assert loop_of(p).params["num_carry"] == 2
    p = simple(repeated, W, b, X[1], X[3] + 9)
    assert len(loop_of(p, "while").outputs) == 2


def test_what_stays_keeps_its_order():
    """Of many carries, each told by its place: a set of numbers is no order."""

    def body(c, x):
        return tuple(v + (i + 1) * x[0] for i, v in enumerate(c)), tuple(v * i for i, v in enumerate(c))

    def turn(c):
        return tuple(v + (i + 1) for i, v in enumerate(c))

    def some(xs, kept):
        return [xs[i] for i in kept]

    start = tuple(np.float32(100 * i) for i in range(20))
    for kept in ((1, 8), (3, 16, 17), (0, 9, 16)):
        p = simple(lambda xs, kept=kept: some(nx.lax.scan(body, start, xs)[0], kept), X)
        assert loop_of(p).params["num_carry"] == len(kept)
        p = simple(lambda xs, kept=kept: some(nx.lax.scan(body, start, xs)[1], kept), X)
        assert len(loop_of(p).outputs) == 2 * len(kept)
        p = simple(lambda s, kept=kept: some(nx.lax.while_loop(lambda c: c[19] < 2000, turn, s), kept), start)
        assert len(loop_of(p, "while").outputs) == len(kept) + 1


def test_carries_that_do_not_change_or_are_not_read_leave():
    def body(c, x):
        h, count, w = c
        return (h @ w + x, count + 1, w), (h, h * 2)

    p = simple(lambda w, xs: nx.lax.scan(body, (xs[0], 0, w), xs)[1][0], W, X)
    loop = loop_of(p)
    assert loop.params["num_carry"] == 1 and len(loop.outputs) == 2 - 1 + 1
    p = simple(lambda w, xs: nx.lax.scan(body, (xs[0], 0, w), xs)[0], W, X)
    assert loop_of(p).params["num_carry"] == 2 and len(loop_of(p).outputs) == 2
    # i decides, the second carry is not asked for, the third is fixed.
    p = simple(
        lambda w: nx.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * w, c[2], c[3] + c[2]), (0, w, w, w)
        )[2:],
        W,
    )
    loop = loop_of(p, "while")
    assert len(loop.outputs) == 2 and loop.params["body_nconsts"] == 1


def test_effects_in_bodies_stay():
    seen = []

    def body(c, x):
        nx.debug.callback(lambda v: seen.append(float(v)), c)
        return c + 1, None

    p = simple(lambda xs: (nx.lax.scan(body, 0.0, xs), xs)[1], X)
    assert loop_of(p).params["body"].effect and seen == [0.0, 1.0, 2.0, 3.0] * 2


@pytest.mark.parametrize("read", [0, 1])
def test_branches_lose_what_nobody_reads(read):
    table = np.arange(3, dtype=np.float32)
    f = lambda p, x, y: nx.lax.cond(p, lambda a, b: (a * table, nx.sin(b)), lambda a, b: (a + table, b), x, y)[read]
    for p in (True, False):
        e = loop_of(simple(f, p, X, X + 1), "cond")
        assert len(e.outputs) == 1
        assert not any(b.constvars for b in e.params["branches"])
        assert len(e.inputs) == 1 + (1 if read else 3)


def test_loops_of_no_turns():
    empty = X[:0]
    simple(lambda w, xs: nx.lax.scan(lambda c, x: (c @ nx.sin(w) + x, c), w[0], xs), W, empty)
    simple(lambda w: nx.lax.while_loop(lambda c: c.sum() < -1e9, lambda c: c + nx.sin(w), w), W)
