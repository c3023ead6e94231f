"""Incomplete gamma and beta functions: every law, against SciPy and JAX, at the edges of the domain too."""

import jax
import numpy as np
import pytest
import scipy.special as peer

import nxjax as nx
from nxjax.errors import DtypeError, GradientError
from nxjax.ops import incomplete as ops
from nxjax.ops.recurrence import MOST_STEPS
from nxjax.testing import bad, check_grads, check_op, sample

RNG = np.random.default_rng(0)
A = np.append(RNG.gamma(1, 5, 9), [0.05, 150.0, 0.7])
X = np.append(RNG.gamma(1, 5, 9), [3.0, 140.0, 1e-4])
# Both operands at every kind of edge.
EDGES = np.array([[a, x] for a in (0, -1, 1, np.inf, np.nan) for x in (0, -1, 1, np.inf, np.nan)]).T
GAMMAS = {"igamma": peer.gammainc, "igammac": peer.gammaincc}
WRONG = [bad(np.int32(1), np.int32(1), error=DtypeError, says="i32")]


@pytest.mark.parametrize("name", GAMMAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma(name, dtype):
    reference = lambda a, x: GAMMAS[name](a.astype(float), x.astype(float)).astype(dtype)
    samples = [sample(A.astype(dtype), X.astype(dtype), differentiable=False)]
    samples += [sample(dtype(2), dtype(3), differentiable=False)]
    check_op(getattr(ops, name), samples, WRONG, reference=reference, rtol=3e-5 if dtype is np.float32 else 1e-10)


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad"])
def test_edges_and_slopes_are_those_of_jax(name):
    with jax.enable_x64(True):
        expected = np.asarray(getattr(jax.lax, name)(np.append(A, EDGES[0]), np.append(X, EDGES[1])))
    ours = getattr(ops, name)(
        nx.array(np.append(A, EDGES[0]), nx.float64), nx.array(np.append(X, EDGES[1]), nx.float64)
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["igamma_grad_a", "random_gamma_grad"])
def test_slopes(name):
    check_op(getattr(ops, name), [sample(A, X, differentiable=False)], WRONG)
    check_op(getattr(ops, name), [sample(A.astype(np.float32), X.astype(np.float32), differentiable=False)], rtol=2e-4)


def test_derivatives():
    a, x = nx.array(A[:6], nx.float64), nx.array(X[:6], nx.float64)
    for op in (ops.igamma, ops.igammac):
        check_grads(lambda a, x, op=op: op(a, x), (a, x))
        check_grads(lambda x, op=op: op(a, x), (x,), order=2)
    b, p = nx.array(X[:6], nx.float64), nx.array(np.linspace(0.1, 0.9, 6), nx.float64)
    check_grads(lambda x: ops.regularized_incomplete_beta(a, b, x), (p,), order=2)
    check_grads(lambda x: ops.igamma_grad_a(a, x), (x,))


def test_a_missing_derivative_is_an_error_and_not_zero():
    half = nx.array(0.5)
    for f in (
        lambda v: ops.igamma_grad_a(v, half),
        lambda v: ops.random_gamma_grad(half, v),
        lambda v: ops.regularized_incomplete_beta(v, half, half),
    ):
        with pytest.raises(GradientError, match="has no derivative"):
            nx.grad(f)(half)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_beta(dtype):
    b, x = np.roll(A, 3), np.linspace(0.02, 0.97, 12)
    args = [v.astype(dtype) for v in (A, b, x)]
    reference = lambda a, b, x: peer.betainc(a.astype(float), b.astype(float), x.astype(float)).astype(dtype)
    check_op(
        ops.regularized_incomplete_beta,
        [sample(*args, differentiable=False)],
        [bad(*args[:2], np.float16(0.5), error=(TypeError), says="equal")],
        reference=reference,
        rtol=1e-4 if dtype is np.float32 else 1e-10,
    )


def test_beta_at_the_edges():
    a, b, x = (v.ravel() for v in np.meshgrid([0, -1, 1, np.inf, np.nan], [0, -1, 1, np.nan], [0, 1, 0.5, -0.1, 1.1]))
    with jax.enable_x64(True):
        expected = jax.lax.betainc(a, b, x)
    ours = ops.regularized_incomplete_beta(*(nx.array(v, nx.float64) for v in (a, b, x)))
    np.testing.assert_allclose(ours, expected)


def test_a_sample_of_infinite_shape_is_below_no_small_number():
    a, x = nx.numpy.full(3, np.inf), nx.numpy.array([0.5, np.inf, 0.0])
    for igamma, igammac in ((ops.igamma, ops.igammac), (nx.jit(ops.igamma), nx.jit(ops.igammac))):
        np.testing.assert_array_equal(igamma(a, x), [0, 1, 0])
        np.testing.assert_array_equal(igammac(a, x), [1, 0, 1])


def test_what_has_no_derivative_is_an_error_only_where_it_is_needed():
    """In reverse mode what no result asks back; in a jitted function what no result needs."""
    a, x = nx.numpy.float32(1.5), nx.numpy.float32(2.0)
    slope = lambda a: nx.lax.igamma_grad_a(a, x)

    def in_both(a):
        return nx.vjp(nx.lax.igamma, a, x)[1](nx.numpy.float32(1.0))

    expected = nx.grad(lambda x: nx.lax.igamma_grad_a(a, x))(x)
    np.testing.assert_allclose(nx.grad(lambda a: in_both(a)[1])(a), expected, rtol=1e-5)
    value, tangent = nx.jit(lambda a: nx.jvp(lambda a: (slope(a), a * 2)[1], (a,), (a,)))(a)
    assert float(value) == float(tangent) == 3
    assert float(nx.jit(lambda a: nx.jvp(slope, (a,), (a,))[0])(a)) == float(slope(a))
    push = lambda f: lambda a: nx.jvp(f, (a,), (a,))[1]
    for needed in (
        nx.grad(lambda a: in_both(a)[0]),
        push(slope),
        nx.jit(push(slope)),
        nx.jit(nx.grad(slope)),
        lambda a: nx.vmap(nx.grad(slope))(nx.numpy.stack([a, a])),
        push(lambda b: nx.lax.betainc(b, a, nx.numpy.float32(0.5))),
        nx.grad(lambda s: nx.lax.zeta(s, x)),
    ):
        with pytest.raises(nx.errors.GradientError, match="has no derivative in"):
            needed(a)


@pytest.mark.parametrize("name", ["gamma", "slope", "beta"])
def test_an_element_that_is_done_stays_done(name):
    """All elements go on while one does: rounding that moved others once more made the loop run to its limit."""
    rng = np.random.default_rng(0)
    a = np.abs(rng.standard_normal(4096)) + 0.1
    recurrence, xs = ops._Fraction(name == "slope"), (a, a + 1)
    if name == "beta":
        recurrence, xs = ops._BetaFraction(), (a, a + 1, rng.random(4096) * (a + 1) / (2 * a + 3))
    eps, tiny = np.finfo(np.float64).eps, 1e-300
    state, steps = recurrence.start(eps, tiny, *xs), 0
    done = np.zeros(4096, bool)
    while not done.all():
        steps += 1
        with np.errstate(all="ignore"):
            state = recurrence.step(eps, tiny, float(steps), xs, state)
        going = recurrence.unfinished(eps, state)
        assert not (done & going).any()
        done = ~going
        assert steps < MOST_STEPS
