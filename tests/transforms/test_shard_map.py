"""shard_map: JAX's values and gradients, the meaning on one device, and what is refused.

JAX's are kept in tests/golden/shard_map.npz, since it compiles for long: `--update-golden` asks it, and one test asks
it for a few.
"""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError, ShardingError
from nxjax.sharding import AbstractMesh, AxisType, NamedSharding
from nxjax.sharding import PartitionSpec as P
from nxjax.trace.axes import UnboundAxisError
from tests.transforms import shard_map_cases as cases

GOLDEN = Path(__file__).parents[1] / "golden/shard_map.npz"
ASKED = ["normalized", "scattered", "branches", "training_inside", "random_bits_of_places", "trees"]

MESH = AbstractMesh((2, 4), ("x", "y"))
R = np.random.default_rng(0)
A = R.normal(size=(8, 16)).astype(np.float32)
B = R.normal(size=(16, 4)).astype(np.float32)


def real():
    return nx.make_mesh((2, 4), ("x", "y"))


def ours(mesh):
    return cases.library(nx, mesh)


def asked(file, names):
    """JAX's results, from a process of its own, whose CPU is eight devices."""
    command = [sys.executable, cases.__file__, str(file), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return cases.saved(file)


@pytest.fixture(scope="module")
def golden(request):
    if request.config.getoption("--update-golden"):
        asked(GOLDEN, cases.NAMES)
    return cases.saved(GOLDEN)


@pytest.mark.parametrize("name", cases.NAMES)
def test_values_and_derivatives_are_those_of_jax(golden, name):
    assert cases.difference(cases.results(ours(real()), name), golden[name]) == ""


def test_what_is_kept_is_what_jax_gives(golden, tmp_path):
    for name, found in asked(tmp_path / "jax.npz", ASKED).items():
        assert cases.difference(golden[name], found) == "", name


@pytest.mark.parametrize("name", ["contracted", "gathered_tiled", "exchanged", "branches_of_places", "training_inside"])
def test_devices_compute_what_one_device_does(name):
    eager, args = cases.built(ours(MESH), name)
    spread, _ = cases.built(ours(real()), name)
    expected = eager(*args)
    for found in (spread(*args), nx.jit(spread)(*args), nx.jit(eager)(*args)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with nx.config.using(executor="reference"):
        np.testing.assert_allclose(eager(*args), expected, rtol=1e-5, atol=1e-5)


def matmul(mesh, **options):
    return nx.shard_map(
        lambda a, b: nx.lax.psum(a @ b, "y"),
        mesh=mesh,
        in_specs=(P("x", "y"), P("y")),
        out_specs=P("x"),
        **options,
    )


def test_results_lie_as_their_specs_say():
    mesh = real()
    y = nx.jit(matmul(mesh))(A, B)
    assert y.sharding == NamedSharding(mesh, P("x"))
    assert y.sharding.shard_shape(y.shape) == (4, 4)
    np.testing.assert_allclose(y, A @ B, rtol=1e-4, atol=1e-5)


def test_each_device_sees_its_part():
    seen = []

    def f(a):
        seen.append(a.shape)
        return a

    nx.shard_map(f, mesh=MESH, in_specs=P(("x", "y")), out_specs=P(("x", "y")))(A)
    assert seen == [(1, 16)]


def test_under_vmap_and_around_it():
    f = matmul(MESH)
    batch = jnp.stack([A, 2 * A, A - 1])
    np.testing.assert_allclose(nx.vmap(f, (0, None))(batch, B), batch @ B, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        nx.vmap(f, (2, None), 1)(jnp.moveaxis(batch, 0, 2), B), jnp.moveaxis(batch @ B, 0, 1), rtol=1e-4, atol=1e-4
    )
    g = nx.grad(lambda a: (nx.vmap(f, (0, None))(a, B) ** 2).sum())(batch)
    np.testing.assert_allclose(g, nx.grad(lambda a: ((a @ B) ** 2).sum())(batch), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("check", [True, False])
def test_a_batch_cut_along_a_mesh_axis(check):
    mesh = real()
    f = nx.shard_map(
        lambda a, w: jnp.tanh(a * w) * nx.lax.psum(a.sum(), "x"),
        mesh=mesh,
        in_specs=(P("x"), P()),
        out_specs=P("x"),
        check_vma=check,
    )
    plain = lambda a, w: jnp.tanh(a * w) * a.sum()
    batch = jnp.asarray(R.normal(size=(4, 8)), jnp.float32)
    spread = nx.vmap(f, (0, None), spmd_axis_name="y")
    np.testing.assert_allclose(nx.jit(spread)(batch, 0.3), nx.vmap(plain, (0, None))(batch, 0.3), rtol=1e-5)
    program = str(nx.make_jaxpr(spread)(batch, 0.3))
    assert "partitions=('y', 'x')" in program
    loss = lambda g: nx.grad(
        lambda a, w: (nx.vmap(g, (0, None), **({"spmd_axis_name": "y"} if g is f else {}))(a, w) ** 2).sum(), (0, 1)
    )
    for x, y in zip(nx.jit(loss(f))(batch, 0.3), loss(plain)(batch, 0.3), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShardingError, match="spmd_axis_name"):
        nx.vmap(f, (0, None), spmd_axis_name="x")(batch, 0.3)


def test_programs_print_and_parse_and_are_checked():
    program = nx.make_jaxpr(nx.grad(lambda a: (matmul(MESH)(a, B) ** 2).sum()))(A)
    again = nx.parse_program(str(program), program.values)
    assert str(again) == str(program)
    np.testing.assert_allclose(again(jnp.asarray(A))[0], program(jnp.asarray(A))[0], rtol=1e-5)


def test_a_closed_over_value_is_shared_and_has_a_gradient():
    def f(w):
        return nx.shard_map(lambda a: nx.lax.psum((a * w).sum(), "x"), mesh=MESH, in_specs=P("x"), out_specs=P())(A)

    np.testing.assert_allclose(nx.grad(f)(2.0), A.sum(), rtol=1e-4)


def test_one_inside_another_takes_the_rest_of_the_mesh():
    def outer(a):
        assert nx.sharding.get_abstract_mesh().manual_axes == ("x",)
        inner = nx.shard_map(
            lambda b: nx.lax.psum(b * nx.lax.axis_index("y"), ("y",)),
            in_specs=P(None, "y"),
            out_specs=P(),
            axis_names={"y"},
        )
        return inner(a) + nx.lax.axis_index("x")

    for mesh in (MESH, real()):
        f = nx.shard_map(outer, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        blocks = A.reshape(8, 4, 4)
        expected = (blocks * np.arange(4)[None, :, None]).sum(1) + np.repeat([0, 1], 4)[:, None]
        np.testing.assert_allclose(nx.jit(f)(A), expected, rtol=1e-4, atol=1e-5)


def test_the_current_mesh_and_the_decorator():
    with nx.sharding.set_mesh(real()):

        @nx.shard_map(in_specs=P("x"), out_specs=P())
        def total(a):
            return nx.lax.psum(a.sum(0), "x")

        np.testing.assert_allclose(total(A), A.sum(0), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShardingError, match="no mesh"):
        total(A)


def test_an_argument_without_a_spec_is_a_python_value():
    f = nx.shard_map(lambda a, how: getattr(jnp, how)(a), mesh=MESH, in_specs=(P("x"), None), out_specs=P("x"))
    np.testing.assert_allclose(f(A, "sin"), np.sin(A), rtol=1e-5)


def test_loops_and_branches_find_out_what_varies():
    # JAX asks for pcast in both.
    def f(a, s):
        s = nx.lax.fori_loop(0, 2, lambda i, c: c + a.sum(), s)
        return nx.lax.cond(s.sum() > 0, lambda z: a.sum() * z, lambda z: jnp.ones(()), 2.0)[None]

    out = nx.shard_map(f, mesh=MESH, in_specs=(P("x"), P()), out_specs=P("x"))(A, 100.0)
    np.testing.assert_allclose(out, [2 * A[:4].sum(), 2 * A[4:].sum()], rtol=1e-5)


# Branches whose derivatives keep values of one shape: some of them all places share, others are each place's own.
BRANCHES = {
    "own operand": [lambda z, a, s: z * s, lambda z, a, s: jnp.sin(z), lambda z, a, s: jnp.exp(s) * z.sum() + z],
    "shared operand": [
        lambda z, a, s: s * jnp.sin(s) * jnp.ones_like(a),
        lambda z, a, s: jnp.sin(s) * a[0] * s * jnp.ones_like(a),
        lambda z, a, s: jnp.cos(s) * s * a,
    ],
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("taken", range(3))
@pytest.mark.parametrize("which", BRANCHES)
def test_derivatives_of_branches_in_any_order(which, order, taken):
    """What is summed over the places is summed once, whichever branch comes first and whichever runs."""
    branches = [BRANCHES[which][i] for i in order]
    found = []
    for check in (True, False):
        f = nx.shard_map(
            lambda a, s, k: nx.lax.switch(k, [lambda z, b=b: b(z, a, s) for b in branches], a),
            mesh=MESH,
            in_specs=(P("x"), P(), P()),
            out_specs=P("x"),
            check_vma=check,
        )
        g = nx.grad(lambda a, s, k, f=f: jnp.sin(f(a, s, k)).sum(), (0, 1))
        h = nx.grad(lambda a, s, k, g=g: sum((y**2).sum() for y in g(a, s, k)), (0, 1))
        found.append(nx.jit(lambda *xs, g=g, h=h: (*g(*xs), *h(*xs)))(A[:, 0], 0.7, taken))
    for y, expected in zip(*found, strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_the_former_name_and_arguments():
    from nxjax.experimental.shard_map import shard_map

    f = shard_map(lambda a: nx.lax.psum(a, "x"), MESH, P("x"), P(), check_rep=True, auto=frozenset({"y"}))
    np.testing.assert_allclose(f(A), A[:4] + A[4:], rtol=1e-6)
    assert "manual_axes=('x',)" in str(nx.make_jaxpr(f)(A))


def test_types_say_what_varies():
    kinds = []

    def f(a, b):
        kinds.extend(
            x.aval.vma for x in (a, b, a * b, nx.lax.psum(a, "x"), nx.lax.axis_index("y"), nx.lax.pvary(b, "x"))
        )
        return a

    nx.shard_map(f, mesh=MESH, in_specs=(P("x", "y"), P()), out_specs=P("x", "y"))(A, 1.0)
    assert kinds == [{"x", "y"}, set(), {"x", "y"}, {"y"}, {"y"}, {"x"}]


def local(a):
    return a.sum()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=P("x"), out_specs=P())(A),
            ShardingError,
            "may differ between devices along 'x'",
        ),
        (lambda: nx.shard_map(local, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(A), ShardingError, "a scalar takes"),
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=P("z"), out_specs=P())(A),
            ShardingError,
            "in_specs of arguments.*'z', which",
        ),
        (lambda: nx.shard_map(local, mesh=MESH, in_specs=P("x"), out_specs=P("x", "x"))(A), ShardingError, "twice"),
        (lambda: nx.shard_map(local, mesh=MESH, in_specs=P("y"), out_specs=P())(A[:6]), ShardingError, "pad to 8"),
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=P(None, None, "y"), out_specs=P())(A),
            ShardingError,
            "leave out the last 1",
        ),
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=("x",), out_specs=P())(A),
            ShardingError,
            "not a PartitionSpec",
        ),
        (lambda: nx.shard_map(local, mesh=MESH, out_specs=P())(A), ShardingError, "in_specs is missing"),
        (lambda: nx.shard_map(3, mesh=MESH, in_specs=P(), out_specs=P()), ParameterError, "needs a function"),
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=P(), out_specs=P(), axis_names={"z"})(A),
            ShardingError,
            "no axis 'z'",
        ),
        (
            lambda: nx.shard_map(local, mesh=MESH, in_specs=P("y"), out_specs=P(), axis_names={"x"})(A),
            ShardingError,
            "does not handle",
        ),
        (
            lambda: nx.shard_map(lambda a: nx.lax.psum(a, "z"), mesh=MESH, in_specs=P(), out_specs=P())(A),
            UnboundAxisError,
            "'z'",
        ),
        (
            lambda: nx.shard_map(
                lambda a: nx.lax.ppermute(a, "x", [(0, 2)]), mesh=MESH, in_specs=P("x"), out_specs=P("x")
            )(A),
            ParameterError,
            "not there",
        ),
        (
            lambda: nx.shard_map(
                lambda a: nx.lax.psum(a, "y", axis_index_groups=[[0, 1]]), mesh=MESH, in_specs=P("y"), out_specs=P("y")
            )(A),
            ParameterError,
            "axis_index_groups",
        ),
        (lambda: nx.lax.psum(A, "x"), UnboundAxisError, "shard_map"),
    ],
)
def test_what_does_not_fit_is_told(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_unchecked_results_may_be_said_to_be_the_same():
    f = nx.shard_map(local, mesh=MESH, in_specs=P("x"), out_specs=P(), check_vma=False)
    np.testing.assert_allclose(f(A), A[:4].sum(), rtol=1e-5)


def test_mesh_axes_are_manual_inside():
    types = []

    def f(a):
        mesh = nx.sharding.get_abstract_mesh()
        types.append(mesh.axis_types)
        return a

    nx.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(A)
    assert types == [(AxisType.Manual, AxisType.Manual)]
    assert nx.sharding.get_abstract_mesh().empty


SPECS = [P(), P("x"), P("y"), P(("x", "y")), P(("y", "x")), P(None, "x"), P("x", "y"), P("y", "x"), P(None, ("y", "x"))]


@given(st.sampled_from(SPECS), st.sampled_from(SPECS), st.booleans())
def test_cutting_and_joining_are_inverse(a, b, check):
    """What every device has of one layout, brought to another by gathers, is the whole array again."""
    x = jnp.arange(64.0).reshape(8, 8)

    def f(part):
        whole = part
        for dim in range(2):
            if a.axes(dim):
                whole = nx.lax.all_gather(whole, a.axes(dim), axis=dim, tiled=True)
        for dim in range(2):
            if names := b.axes(dim):
                size = whole.shape[dim] // nx.lax.axis_size(names)
                whole = nx.lax.dynamic_slice_in_dim(whole, nx.lax.axis_index(names) * size, size, dim)
        return whole

    extra = a.names and not set(a.names) <= set(b.names)
    g = nx.shard_map(f, mesh=MESH, in_specs=a, out_specs=b, check_vma=check and not extra)
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(g(x), x)


def test_printing_inside_happens_on_every_device(capfd):
    def f(a):
        nx.debug.print("sum {}", a.sum())
        return a

    for mesh, times in ((AbstractMesh((2,), ("x",)), 2), (nx.make_mesh((2,), ("x",)), 2)):
        g = nx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        np.testing.assert_array_equal(nx.jit(g)(np.ones((4, 2), "f4")), np.ones((4, 2)))
        assert capfd.readouterr().out.count("sum 4.0") == times


def test_constraints_inside_are_for_the_axes_that_are_left():
    def f(*spec):
        g = nx.shard_map(
            lambda a: nx.lax.with_sharding_constraint(a * 2, P(*spec)),
            mesh=real(),
            in_specs=P("x"),
            out_specs=P("x"),
            axis_names={"x"},
        )
        return nx.jit(g)(A)

    assert f(None, "y").sharding.shard_shape(A.shape) == (4, 4)
    with pytest.raises(ShardingError, match="handles"):
        f("x")


def _branches():
    one, three = (lambda v: v + 1), (lambda v: v * 3)
    first = lambda: nx.lax.axis_index("x") == 0
    return {
        "cond": lambda v: nx.lax.cond(first(), lambda: one(v), lambda: three(v)),
        "switch": lambda v: nx.lax.switch(1 - first(), [lambda: one(v), lambda: three(v)]),
        "nested": lambda v: nx.lax.cond(
            first(), lambda: nx.lax.cond(first(), lambda: one(v), lambda: v), lambda: three(v)
        ),
        "jit inside": lambda v: nx.lax.cond(first(), lambda: nx.jit(one)(v), lambda: nx.jit(three)(v)),
        "checkpoint": nx.checkpoint(lambda v: nx.lax.cond(first(), lambda: one(v), lambda: three(v))),
        "operand": lambda v: nx.lax.cond(first(), one, three, v),
        "scan inside": lambda v: nx.lax.cond(
            first(), lambda: nx.lax.scan(lambda c, x: (c * x + v, c[0]), v, v)[0], lambda: three(v)
        ),
        "while inside": lambda v: nx.lax.cond(
            first(), lambda: nx.lax.fori_loop(0, 3, lambda i, c: c * v, nx.numpy.ones(3)), lambda: three(v)
        ),
        "own rule inside": lambda v: nx.lax.cond(first(), lambda: nx.nn.relu(v) * v, lambda: nx.nn.softplus(v)),
        "by data": lambda v: nx.lax.cond(nx.lax.pvary(v, "x")[0] + first() > 1.5, lambda: one(v), lambda: three(v)),
        "unused": lambda v: nx.lax.cond(first(), lambda: jnp.ones(3), lambda: three(v)),
    }


@pytest.mark.parametrize("kind", sorted(_branches()))
def test_gradients_through_a_branch_that_each_device_chooses(kind):
    """What devices share, they share outside of the branches: those in another one would not take part."""
    mesh, v = AbstractMesh((2,), ("x",)), np.float32([1, 2, 3])
    f = nx.shard_map(_branches()[kind], mesh=mesh, in_specs=P(), out_specs=P("x"))
    loss = lambda v: (f(v) ** 2).sum()
    wanted = [float(nx.jvp(loss, (v,), (t,))[1]) for t in np.eye(3, dtype=np.float32)]
    np.testing.assert_allclose(nx.grad(loss)(v), wanted, rtol=1e-6)
