"""The sharding constraint: under every transform, and what the compiler makes of it on several devices."""

import re

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ShardingError
from nxjax.ops.sharding import sharding_constraint
from nxjax.sharding import AbstractMesh, NamedSharding
from nxjax.sharding import PartitionSpec as P
from nxjax.testing import check_op, sample

R = np.random.default_rng(0)
ABSTRACT = AbstractMesh((2, 4), ("x", "y"))
X = R.normal(size=(8, 16)).astype(np.float32)
W = R.normal(size=(16, 32)).astype(np.float32)
U = R.normal(size=(32, 8)).astype(np.float32)


def mesh(shape=(2, 4), names=("x", "y")):
    return nx.make_mesh(shape, names)


def collectives(f, *args, **options):
    """The kinds of collectives in the compiled program, sorted."""
    text = nx.jit(f, **options).lower(*args).compile().as_text()
    return sorted(set(re.findall(r"= \S+ (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)", text)))


def test_the_laws():
    sharding = NamedSharding(ABSTRACT, P("x", None, "y"))
    check_op(sharding_constraint, [sample(R.normal(size=(2, 3, 4)).astype(np.float32), sharding=sharding)])


def test_batched_dimensions_are_free_or_cut_as_said():
    def f(a):
        return nx.lax.with_sharding_constraint(a, NamedSharding(ABSTRACT, P(None, "y")))

    batch = jnp.zeros((2, 8, 16))
    assert "P(UNCONSTRAINED, None, 'y')" in str(spec_of(nx.vmap(f), batch))
    assert "P('x', None, 'y')" in str(spec_of(nx.vmap(f, spmd_axis_name="x"), batch))
    assert "P(None, 'x', 'y')" in str(spec_of(nx.vmap(f, 1, 1, spmd_axis_name="x"), jnp.zeros((8, 2, 16))))
    assert "P('x', None, 'y')" in str(spec_of(nx.vmap(nx.jit(f), spmd_axis_name="x"), batch))


def spec_of(f, x):
    def walk(program):
        for e in program.equations:
            if e.op is sharding_constraint:
                return e.params["sharding"].spec
            for inner in e.programs():
                return walk(inner)
        raise AssertionError("no constraint")

    return walk(nx.make_jaxpr(f)(x))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (P("z"), "which the mesh has not"),
        (P("x", "x"), "twice"),
        (P(None, None, "x"), "rank at least 3"),
        (P(None, ("x", "y")), "pad to 16"),
    ],
)
def test_what_does_not_fit_is_told(spec, says):
    with pytest.raises(ShardingError, match=says):
        nx.jit(lambda a: nx.lax.with_sharding_constraint(a[:, :15], NamedSharding(ABSTRACT, spec)))(X)


def test_a_bare_spec_is_of_the_current_mesh_and_jit_traces_again_for_another():
    f = nx.jit(lambda a: nx.lax.with_sharding_constraint(a * 2, P("x")))
    with pytest.raises(ShardingError, match="current mesh"):
        f(X)
    wide, tall = mesh((8,), ("x",)), mesh((2, 4))
    with nx.sharding.set_mesh(wide):
        assert f(X).sharding.shard_shape(X.shape) == (1, 16)
    with tall:
        assert f(X).sharding.shard_shape(X.shape) == (4, 16)


def test_outside_of_jit_it_moves():
    s = NamedSharding(mesh(), P("x", "y"))
    y = nx.lax.with_sharding_constraint({"a": jnp.asarray(X)}, s)["a"]
    assert y.sharding == s
    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (P("x"), P(), []),  # rows of data
        (P(), P(None, "y"), []),  # columns of weights
        (P(None, "y"), P("y"), ["all-reduce"]),  # the contracted dimension
        (P("x", "y"), P("y"), ["all-reduce"]),
    ],
)
@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (1, 8)])
def test_products_communicate_where_they_contract(a, b, expected, shape):
    m = mesh(shape)
    found = collectives(jnp.matmul, X, W, in_shardings=(NamedSharding(m, a), NamedSharding(m, b)))
    assert found == (expected if m.shape["y"] > 1 else [])


def test_elementwise_work_needs_no_communication():
    s = NamedSharding(mesh(), P("x", "y"))
    assert collectives(lambda a: jnp.tanh(a) * 2 + a, X, in_shardings=s, out_shardings=s) == []


def loss_and_gradient(keep):
    """A loss with calls, a loop, a branch and a rule of its own, in which ``keep`` is applied all over."""

    @nx.custom_jvp
    def act(a):
        return keep(jnp.tanh(a))

    act.defjvp(lambda p, t: (act(p[0]), keep((1 - jnp.tanh(p[0]) ** 2) * t[0])))

    def loss(w, a):
        h = nx.jit(lambda z: keep(z @ w))(a)
        h, _ = nx.lax.scan(lambda c, _: (keep(act(c)), None), h, None, length=3)
        h = nx.lax.cond(a[0, 0] > 100, lambda z: z, lambda z: keep(z * 2), h)
        return (h**2).sum()

    return nx.value_and_grad(loss, (0, 1))


def test_constraints_reach_into_calls_loops_branches_and_rules():
    m = mesh()
    rows, whole = NamedSharding(m, P("x")), NamedSharding(m, P())
    f = loss_and_gradient(lambda a: nx.lax.with_sharding_constraint(a, rows))
    assert nx.jit(f).lower(W, X).as_text().count("sdy.sharding_constraint") >= 6
    value, gradient = loss_and_gradient(lambda a: a)(W, X)
    found = nx.jit(f, in_shardings=(whole, rows), out_shardings=(None, (whole, rows)))(W, X)
    np.testing.assert_allclose(found[0], value, rtol=1e-4)
    for x, y in zip(found[1], gradient, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
    assert found[1][1].sharding.is_equivalent_to(rows, 2)
