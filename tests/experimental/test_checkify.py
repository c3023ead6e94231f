"""`checkify`: every kind of check, in and under every transform; messages as JAX gives them."""

import functools

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import errors, lax
from nxjax.experimental import checkify as c


def positive(x):
    c.check(x > 0, "{x} is not positive", x=x)
    return x * 2


def says(x):
    return f"{x} is not positive (`check` failed)"


def message(f, *args, kinds=c.user_checks):
    """The same, eagerly and jitted."""
    err, y = c.checkify(f, errors=kinds)(*args)
    jitted, z = nx.jit(c.checkify(f, errors=kinds))(*args)
    assert err.get() == jitted.get()
    nx.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), y, z)
    return err.get()


def test_a_check_where_nobody_checkifies():
    assert positive(jnp.float32(1)) == 2
    with pytest.raises(c.JaxRuntimeError, match="is not positive") as caught:
        positive(jnp.float32(-1))
    assert isinstance(caught.value, ValueError) and "c.check(x > 0" in str(caught.value)
    with pytest.raises(c.JaxRuntimeError, match="is not positive"):
        nx.jit(positive)(-1.0)
    nx.jit(lambda x: c.debug_check(x > 0, "not looked at"))(-1.0)
    with pytest.raises(errors.DtypeError, match="bool scalar"):
        c.check(1.0, "x")
    with pytest.raises(errors.DtypeError, match="has to be arrays"):
        c.check(True, "{x}", x="text")


def test_loops_branches_and_calls():
    xs = jnp.array([1.0, 2.0, -3.0, -4.0])
    assert message(positive, 1.0) is None
    assert message(nx.jit(positive), -1.0) == says(-1.0)
    assert message(nx.checkpoint(positive), -1.0) == says(-1.0)
    assert message(lambda xs: lax.scan(lambda s, x: (s + positive(x), s), 0.0, xs), xs) == says(-3.0)
    assert message(lambda xs: lax.map(nx.jit(positive), xs), xs) == says(-3.0)
    assert message(lambda n: lax.while_loop(lambda v: v > -2, lambda v: (positive(v), v - 1)[1], n), 2) == says(0)
    assert message(lambda n: lax.while_loop(lambda v: positive(v) > -4, lambda v: v - 1, n), 2) == says(0)
    chosen = lambda p, x: lax.cond(p, positive, lambda x: x, x)
    assert message(chosen, True, -1.0) == says(-1.0) and message(chosen, False, -1.0) is None
    both = lambda x: (c.check(x > 0, "first"), c.check(x > 1, "second"), x)[2]
    assert message(both, 0.5) == "second (`check` failed)" and message(both, -1.0) == "first (`check` failed)"


INSIDE = {
    "jit": nx.jit,
    "checkpoint": nx.checkpoint,
    "scan": lambda f: lambda x: lax.scan(lambda y, _: (f(y), None), x, None, length=2)[0],
    "body": lambda f: lambda x: lax.while_loop(lambda s: s[1] < 2, lambda s: (f(s[0]), s[1] + 1), (x, 0))[0],
    "condition": lambda f: (
        lambda x: lax.while_loop(lambda s: f(s[0])[1] + s[1] < 2, lambda s: (s[0], s[1] + 1), (x, 0))[0]
    ),
    "branch": lambda f: lambda x: lax.cond(x[0] == 99, lambda x: told(x, 98, "not run"), f, x),
    "vmap": lambda f: lambda x: nx.vmap(f, axis_size=2, in_axes=None)(x)[0],
}


def told(x, which, message):
    c.check(x[0] != which, message)
    return x


@pytest.mark.parametrize("inner", INSIDE)
@pytest.mark.parametrize("outer", INSIDE)
def test_which_check_failed_is_known_however_deep_it_is(outer, inner):
    def f(x):
        x = INSIDE[inner](lambda x: told(x, 2, "deep"))(told(x, 1, "outer"))
        return told(x, 3, "outer, later")

    whole = c.checkify(lambda x: told(INSIDE[outer](f)(told(x, 0, "first")), 4, "last"))
    for call in (whole, nx.jit(whole)):
        for which, message in enumerate(("first", "outer", "deep", "outer, later", "last", None)):
            error, y = call(jnp.array([which, 0]))
            assert (error.get() or "").split(" (")[0] == (message or ""), which
            assert which != 5 or y.tolist() == [5, 0]


def test_batches_and_derivatives():
    xs = jnp.array([1.0, -2.0, -3.0])
    err, _ = nx.vmap(c.checkify(positive))(xs)
    assert err.get() == f"at mapped index 1: {says(-2.0)}\nat mapped index 2: {says(-3.0)}"
    with pytest.raises(c.JaxRuntimeError, match="mapped index 1"):
        c.check_error(err)
    assert message(nx.vmap(positive), xs) == says(-2.0)
    doubled = lambda x: lax.while_loop(lambda v: v < 5, lambda v: abs(positive(v)) + 1, x)
    assert nx.vmap(c.checkify(doubled))(xs)[0].get().startswith("at mapped index 1: -2.0")
    assert message(nx.grad(lambda x: positive(x) ** 2), -1.0) == says(-1.0)
    slope = nx.grad(lambda x: c.checkify(lambda x: lax.scan(lambda s, v: (s * positive(v), v), 1.0, x)[0])(x)[1])
    np.testing.assert_allclose(slope(jnp.array([1.0, 2.0])), [8.0, 4.0])

    @nx.custom_jvp
    def own(x):
        return positive(x)

    own.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * 7.0))
    assert message(own, -1.0) == says(-1.0)
    # The rule is kept, whatever is looked at; checks that nobody asked for are not done.
    assert nx.grad(lambda x: c.checkify(own, errors=c.all_checks)(x)[1])(-1.0) == 7
    assert message(own, -1.0, kinds=c.nan_checks) is None


def test_checks_in_maps_over_devices():
    """Every device has its own checks; the first that failed is said."""
    mesh, spec = nx.sharding.AbstractMesh((2,), ("i",)), nx.sharding.PartitionSpec("i")
    xs = jnp.array([[1.0], [2.0], [-3.0], [-4.0]])

    def f(start, x):
        lax.scan(lambda s, v: (s, positive(v[0]) + s), start(), x)
        return x * lax.pmax(x, "i")

    for checked, start in ((True, lambda: lax.pvary(0.0, "i")), (False, lambda: 0.0)):
        g = nx.shard_map(functools.partial(f, start), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=checked)
        assert message(g, xs) == message(nx.jit(g), xs) == says(-3.0) and message(g, -xs) == says(-1.0)
        assert message(g, abs(xs)) is None
        assert message(lambda x, g=g: (positive(x[0, 0]), g(x)), -xs) == says(-1.0)
        slope = nx.grad(lambda x, g=g: c.checkify(g)(x)[1].sum())(abs(xs))
        np.testing.assert_allclose(slope, nx.grad(lambda x, g=g: g(x).sum())(abs(xs)))
    assert message(nx.pmap(positive), jnp.array([-1.0])) == says(-1.0)


def test_what_is_formatted_are_arrays():
    def f(x):
        c.check(x["a"][0] > 0, "{} {k} {:.2f}", x, x["a"][0], k=nx.random.key(0))

    for message_of in (lambda: message(f, {"a": -jnp.ones(2)}), lambda: _said(f, {"a": -jnp.ones(2)})):
        said = message_of()
        assert said.startswith("{'a': Array([-1., -1.], dtype=float32)} Array((), dtype=key<fry>)")
        assert "-1.00 (`check` failed)" in said


def _said(f, x):
    with pytest.raises(c.JaxRuntimeError) as error:
        f(x)
    return error.value.what


def test_what_is_checked_by_itself():
    m, i = jnp.ones((3, 2)), jnp.array([0, 7])
    nan = "nan generated by primitive: log."
    assert message(jnp.log, -1.0, kinds=c.nan_checks) == nan
    assert message(lambda x: jnp.where(x > 0, nx.jit(jnp.log)(x), 0.0), -1.0, kinds=c.float_checks) == nan
    assert message(jnp.log, -1.0, kinds=c.index_checks) is None
    assert message(lambda x, y: x / y, 1.0, 0.0, kinds=c.div_checks) == "division by zero"
    assert message(lambda x, y: x // y, 1, 0, kinds=c.div_checks) == "division by zero"
    assert message(nx.nn.relu, -1.0, kinds=c.all_checks) is None
    outside = "out-of-bounds indexing for array of shape (3, 2): index {} is out of bounds for axis {} with size {}. "
    for f, args, where in [
        (lambda x, i: x[i], (m, 5), (5, 0, 3)),
        (lambda x, i: x[i], (m, -5), (-2, 0, 3)),
        (lambda x, i: x[0, i], (m, 4), (4, 1, 2)),
        (lambda x, i: x[i], (m, i), (7, 0, 3)),
        (lambda x, i: x.at[i].add(1.0), (m, i), (7, 0, 3)),
        (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 2)), (m, 2), (2, 0, 3)),
        (lambda x, i: lax.dynamic_update_slice(x, x[:2], (i, 0)), (m, 2), (2, 0, 3)),
    ]:
        assert message(f, *args, kinds=c.index_checks) == outside.format(*where)
    assert message(lambda x, i: x[i], m, -3, kinds=c.index_checks) is None


def test_errors_are_values():
    err, _ = nx.jit(c.checkify(positive))(-1.0)
    assert nx.tree.map(lambda x: x, err).get() == nx.device_get(err).get() == says(-1.0)
    assert "is not positive" in repr(err) and c.init_error.get() is None
    with pytest.raises(c.JaxRuntimeError, match="is not positive"):
        err.throw()

    def again(x):
        err, y = nx.vmap(nx.vmap(c.checkify(positive)))(x)
        c.check_error(err)
        return y

    assert message(again, jnp.array([[1.0, 1.0], [2.0, -2.0]])) == says(-2.0)
    assert message(again, jnp.ones((2, 2))) is None
    inner = lambda x: c.check_error(c.checkify(jnp.log, errors=c.nan_checks)(x)[0])
    assert message(inner, -1.0, kinds=c.all_checks) == "nan generated by primitive: log."
    assert message(inner, -1.0) is None
