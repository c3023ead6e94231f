"""A pass that changes types, leaves consts over, or moves, drops or doubles an effect is told so."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.config import config
from nxjax.errors import ProgramError
from nxjax.lower.passes.invariants import effects, passed
from nxjax.lower.passes.simplify import simplified
from nxjax.trace.array import wrap
from nxjax.trace.program import Literal, Program, Var
from nxjax.trace.types import ArrayType


def told(x):
    def turn(c, _):
        nx.debug.print("in {}", c)
        return c + 1, None

    nx.debug.print("before {}", x)
    y, _ = lax.scan(turn, x, None, length=3)
    z = lax.cond(y.sum() > 0, lambda a: nx.debug.print("yes {}", a) or a, lambda a: a, y)
    nx.experimental.io_callback(lambda a: None, None, z, ordered=True)
    return z


def test_effects_are_read_in_order_and_nested():
    found = list(effects(nx.make_jaxpr(told)(jnp.ones(2))))
    assert found == [
        "debug_callback",
        ("scan", [["debug_callback"]]),
        ("cond", [[], ["debug_callback"]]),
        "io_callback",
    ]


def test_passes_keep_effects():
    program = nx.make_jaxpr(nx.jit(told))(jnp.ones(2))
    assert list(effects(simplified(program))) == list(effects(program))


def test_what_runs_once_is_written_out():
    once = nx.make_jaxpr(lambda x: lax.scan(lambda c, _: (nx.debug.print("{}", c) or c, None), x, None, length=1)[0])(
        1.0
    )
    assert list(effects(once)) == list(effects(simplified(once))) == ["debug_callback"]


def test_a_pass_may_find_which_branch_runs():
    told = lambda x: nx.debug.print("{}", x) or x
    both = lambda x: told(told(x))
    before = nx.make_jaxpr(lambda x: lax.switch(x.astype(int).sum() * 0 + 5, [told, both], told(x)))(jnp.ones(2))
    after, other = (nx.make_jaxpr(f)(jnp.ones(2)) for f in (lambda x: both(told(x)), lambda x: both(both(x))))
    assert passed(before, after) is after
    with pytest.raises(ProgramError, match="a pass changed the order of effects"):
        passed(before, other)


@pytest.mark.parametrize(("at", "runs"), [(-3, 0), (0, 0), (1, 1), (2, 2), (7, 2)])
def test_a_known_branch_has_its_effects(at, runs):
    told = lambda x: nx.debug.print("{}", x) or x
    branches = [lambda x: x, told, lambda x: told(told(x))]
    unknown = nx.make_jaxpr(lambda i, x: lax.switch(i, branches, x))(1, jnp.ones(2))
    (*before, cond) = unknown.equations
    index = Literal(jnp.asarray(at, dtype=cond.inputs[0].type.dtype))
    known = Program(unknown.inputs, (*before, cond.replaced((index, *cond.inputs[1:]), cond.outputs)), unknown.outputs)
    assert list(effects(known)) == list(effects(nx.make_jaxpr(branches[runs])(jnp.ones(2))))


CHANGES = [lambda a, b: [a], lambda a, b: [b, a], lambda a, b: [a, b, a]]


@pytest.mark.parametrize("change", CHANGES, ids=["dropped", "moved", "doubled"])
def test_another_order_of_effects_is_refused(change):
    x = jnp.ones(2)
    (first,) = nx.make_jaxpr(lambda a: nx.debug.print("{}", a))(x).equations
    whole = nx.make_jaxpr(lambda a: nx.experimental.io_callback(lambda b: None, None, a))(x)
    (second,) = whole.equations
    first = first.replaced(second.inputs, first.outputs)
    before = Program(whole.inputs, (first, second), ())
    assert passed(before, Program(whole.inputs, (first, second), ())).equations == before.equations
    with pytest.raises(ProgramError, match="a pass changed the order of effects"):
        passed(before, Program(whole.inputs, change(first, second), ()))


def test_other_types_and_consts_left_over_are_refused():
    x, y, const = Var(ArrayType((2,), np.dtype("f4"))), Var(ArrayType((3,), np.dtype("f4"))), wrap(np.float32([1, 2]))
    same = Program((x,), (), (x,))
    for other, what in ((Program((x, y), (), (x,)), "arguments"), (Program((x,), (), (x, x)), "results")):
        with pytest.raises(ProgramError, match=f"a pass changed the {what}"):
            passed(same, other)
    left = Program((x,), (), (x,), (Var(x.type),), (const,))
    assert passed(same, left) is left
    with pytest.raises(ProgramError, match="consts that nothing reads"):
        passed(same, left, used=True)
    with config.using(check=False):
        assert passed(same, left, used=True) is left
