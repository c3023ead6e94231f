"""The law book catches what it is for: one broken op per law."""

import contextlib
import itertools

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.arithmetic import mul, neg, sub
from nxjax.ops.base import Differentiable, LinearOp, Nondifferentiable, Unary
from nxjax.ops.elementary import cos, exp, sin
from nxjax.testing import (
    LawBroken,
    assert_close,
    bad,
    check_batch,
    check_grads,
    check_op,
    checked_programs,
    count_traces,
    executors,
    random_program,
    sample,
    tolerance,
)
from nxjax.trace import dtypes
from nxjax.trace.core import OPS
from nxjax.trace.text import parse_program

NUMBERS = itertools.count()
X = np.linspace(0.2, 1.4, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def define():
    """Makes an op for one test and takes its name back afterwards."""
    with contextlib.ExitStack() as stack:

        def make(*bases, **members):
            # Compiled code is kept by the names of ops, so no two of them share one.
            name = f"broken_{next(NUMBERS)}"
            stack.callback(OPS.pop, name)
            return type("Broken", bases, {"name": name, "allowed": dtypes.FLOAT, **members})()

        yield make


def right(**members):
    """The members of a right op, sine, but for those given."""
    return {
        "hlo": "sine",
        "ufunc": np.sin,
        "tangents": lambda self, y, x: (lambda t: mul(t, cos(x)),),
        **members,
    }


def test_a_right_op_keeps_every_law(define):
    errors = [bad(np.int32(1), error=DtypeError, says="float")]
    check_op(define(Differentiable, Unary, **right()), [sample(X)], errors, reference=np.sin)


BROKEN = {
    "infer = eval": right(eval=lambda self, x: np.sin(x).astype(np.float64)),
    "eval = reference": right(ufunc=np.cos),
    "jit on xla = eager": right(hlo="cosine"),
    "expand = eval": right(expand=lambda self, x: cos(x)),
    "vmap over": right(batch=lambda self, size, args, dims: (neg(self(*args)), dims[0])),
    "first jvp = central differences": right(tangents=lambda self, y, x: (lambda t: mul(t, sin(x)),)),
}


@pytest.mark.parametrize("law", BROKEN)
def test_a_broken_law_is_named(define, law):
    op = define(Differentiable, Unary, **BROKEN[law])
    with pytest.raises(LawBroken, match=law):
        check_op(op, [sample(X)], reference=np.sin)


def test_second_derivatives_are_checked(define):
    frozen = define(Nondifferentiable, Unary, hlo="cosine", ufunc=np.cos)
    op = define(Differentiable, Unary, **right(tangents=lambda self, y, x: (lambda t: mul(t, frozen(x)),)))
    with pytest.raises(LawBroken, match="second jvp"):
        check_op(op, [sample(X)])


def test_a_wrong_transpose_breaks_the_adjoint_identity(define):
    op = define(LinearOp, Unary, hlo="negate", ufunc=np.negative, transpose=lambda self, ct, x: (ct,))
    with pytest.raises(LawBroken, match="adjoint identity"):
        check_op(op, [sample(X)])


def test_refusals_are_checked():
    for wrong, law in (
        (bad(X, error=DtypeError, says="float"), "DtypeError is raised"),
        (bad(np.int32(1), error=DtypeError, says="no such words"), "the error says"),
    ):
        with pytest.raises(LawBroken, match=law):
            check_op(sin, [], [wrong])


def test_closeness():
    assert_close("law", "thing", np.float32(1), np.float32(1 + 1e-6))
    assert tolerance(np.complex64) == tolerance(np.float32) > tolerance(np.float64)
    assert tolerance(np.int32) == 0
    for other in (np.float32(1.1), np.float64(1), np.ones(1, np.float32)):
        with pytest.raises(LawBroken, match="thing: law does not hold"):
            assert_close("law", "thing", np.float32(1), other)


def test_executors_are_those_that_can_run():
    assert {"reference", "xla"} <= set(executors())
    for name in executors():
        assert nx.jit(lambda x: x + 1, device=name)(1.0) == 2


def test_gradients_of_functions():
    x, y = X.astype(np.float64), {"b": np.float64(2.0)}
    check_grads(lambda a, tree: nx.sum(nx.sin(a) * tree["b"]), (x, y), order=3)

    @nx.custom_jvp
    def wrong(v):
        return exp(v)

    wrong.defjvp(lambda primals, tangents: (exp(primals[0]), sub(tangents[0], exp(primals[0]))))
    with pytest.raises(LawBroken, match="order 1 forward derivative"):
        check_grads(wrong, (x,))


def test_batches_of_functions(define):
    check_batch(lambda a, b: nx.dot(a, b), (X, X.T.copy()), (0, 1))
    op = define(Differentiable, Unary, **BROKEN["vmap over"])
    with pytest.raises(LawBroken, match=r"vmap over \(0,\)"):
        check_batch(op, (X,))


def test_traces_are_counted():
    f = nx.jit(lambda x: x * 2)
    with count_traces(f) as traces:
        f(X), f(X + 1), f(X[0])
    assert traces.count == 2
    with count_traces(f) as traces:
        f(X)
    assert traces.count == 0


def test_programs_are_checked_as_they_are_made(define):
    # Says one thing while it is staged and another when its equation is checked.
    answers = iter([np.float32, np.float64])
    op = define(Unary, hlo="sine", ufunc=np.sin, infer=lambda self, x: x.with_dtype(np.dtype(next(answers))))
    with checked_programs(), pytest.raises(nx.errors.ProgramError, match=r"broken_\d+ has other types"):
        nx.make_jaxpr(op)(X)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_run_alike_everywhere(seed):
    program = random_program(np.random.default_rng(seed), 8)
    y = program(*program.args)
    for name in executors():
        assert_close(f"jit on {name} = eager", str(program), nx.jit(program, device=name)(*program.args), y, 1e-4)
    assert_close("vmap of one", str(program), nx.vmap(program)(*(a[None] for a in program.args))[0], y, 1e-4)
    staged = nx.make_jaxpr(program)(*program.args).check()
    assert str(parse_program(str(staged), staged.values)) == str(staged)


def test_random_programs_are_reproducible_and_readable():
    first, again = (random_program(np.random.default_rng(3), 6) for _ in range(2))
    assert repr(first) == repr(again)
    assert len(first.steps) == 6
    assert repr(random_program(lambda n: n - 1, 4)) != repr(random_program(lambda n: 0, 4))
    for x, y in zip(first.args, again.args, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("seed", range(4))
def test_smooth_random_programs_have_derivatives(seed):
    program = random_program(np.random.default_rng(seed), 6, differentiable=True)
    check_grads(program, program.args, order=2, rtol=1e-4)


def test_shapes_in_the_wrong_places_are_refused_by_name():
    check_op(mul, [], [bad(X, X[0], error=ShapeError, says="mul: operands differ in shape")])
