"""Programs are read, interpreted and written by the names that JAX's custom interpreters use."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import core, lax
from nxjax.extend import core as extend
from nxjax.extend.core import primitives


def interpret(jaxpr, consts, *args):
    env = {}

    def read(v):
        return v.val if type(v) is extend.Literal else env[v]

    env.update(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, consts, strict=True))
    for eqn in jaxpr.eqns:
        values = eqn.primitive.bind(*map(read, eqn.invars), **eqn.primitive.get_bind_params(eqn.params))
        values = values if eqn.primitive.multiple_results else [values]
        env.update(zip(eqn.outvars, values, strict=True))
    return [read(v) for v in jaxpr.outvars]


INVERSES = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh}


def backwards(jaxpr, *args):
    env = dict(zip(jaxpr.outvars, args, strict=True))
    for eqn in jaxpr.eqns[::-1]:
        values = [env[v] for v in eqn.outvars]
        if eqn.primitive is primitives.jit_p:
            env[eqn.invars[0]] = backwards(eqn.params["jaxpr"].jaxpr, *values)[0]
        else:
            env[eqn.invars[0]] = INVERSES[eqn.primitive](*values)
    return [env[v] for v in jaxpr.invars]


def test_an_interpreter_of_ones_own():
    table = np.arange(5, dtype=np.float32)
    closed = nx.make_jaxpr(lambda x: jnp.sort(nx.jit(jnp.exp)(jnp.tanh(x)) * table))(jnp.ones(5))
    assert len(closed.consts) == len(closed.jaxpr.constvars) == 1 and list(closed.consts[0]) == list(table)
    want = np.sort(np.exp(np.tanh(np.ones(5, np.float32))) * table)
    for values in (
        interpret(closed.jaxpr, closed.literals, jnp.ones(5)),
        core.eval_jaxpr(closed.jaxpr, closed.consts, jnp.ones(5)),
        extend.jaxpr_as_fun(closed)(jnp.ones(5)),
        nx.jit(extend.jaxpr_as_fun(extend.ClosedJaxpr(closed.jaxpr, closed.consts)))(jnp.ones(5)),
    ):
        np.testing.assert_allclose(values[0], want, rtol=1e-6)


def test_the_inverse_of_a_function():
    def f(x):
        return nx.jit(lambda v: jnp.exp(jnp.tanh(v)))(x)

    def inverse(y):
        return backwards(nx.make_jaxpr(f)(y).jaxpr, y)[0]

    np.testing.assert_allclose(inverse(f(1.0)), 1.0, rtol=1e-6)
    y = (jnp.arange(5) + 1.0) / 5.0
    want = 1 / (np.asarray(y) * (1 - np.log(y) ** 2))
    np.testing.assert_allclose(nx.jit(nx.vmap(nx.grad(inverse)))(y), want, rtol=1e-5)


def test_primitives_are_the_ops_of_equations():
    x = jnp.arange(6.0).reshape(2, 3)
    assert isinstance(lax.sin_p, extend.Primitive) and lax.sin_p.name == "sin" and lax.sort_p.multiple_results
    assert nx.make_jaxpr(lax.sin)(1.0).eqns[0].primitive is lax.sin_p is primitives.sin_p
    assert lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None).tolist() == [3, 5, 7]
    assert (
        lax.convert_element_type_p.bind(x, new_dtype=np.dtype("int32"), weak_type=False, sharding=None).dtype == "int32"
    )
    assert lax.reshape_p.bind(x, new_sizes=(3, 2), dimensions=None, sharding=None).shape == (3, 2)
    assert lax.exp_p.bind(0.0, accuracy=None).tolist() == 1 and lax.squeeze_p.bind(x[None], dimensions=(0,)).shape == (
        2,
        3,
    )
    assert len(lax.sort_p.bind(x, x, dimension=1, is_stable=True, num_keys=1)) == 2
    order = lax.lt_to_p.bind(jnp.array([-0.0, 1.0, -1.0]), jnp.array([0.0, np.nan, -2.0]))
    assert order.tolist() == [True, True, False]
    for name in dir(primitives):
        assert getattr(primitives, name).bind is not None
    q, r = lax.linalg.qr_p.bind(jnp.eye(2) * 2, full_matrices=False)
    np.testing.assert_allclose(q @ r, 2 * np.eye(2), atol=1e-6)
    with pytest.raises(AttributeError):
        lax.no_such_p  # noqa: B018


def test_parameters_have_jax_names_too():
    closed = nx.make_jaxpr(lambda x: nx.jit(lambda v: lax.fori_loop(0, 3, lambda i, c: lax.sin(c), v))(x))(1.0)
    (eqn,) = closed.eqns
    assert "jaxpr" in eqn.params and eqn.params["jaxpr"] is eqn.params["program"] is eqn.params.get("jaxpr")
    assert "nothing" not in eqn.params and eqn.params.get("nothing", 1) == 1 and set(eqn.params) == {"program", "name"}
    with pytest.raises(KeyError):
        eqn.params["nothing"]
    assert list(extend.subjaxprs(closed)) == [eqn.params["jaxpr"]] == list(extend.jaxprs_in_params(eqn.params))
    assert isinstance(closed, extend.ClosedJaxpr) and isinstance(closed.jaxpr, extend.Jaxpr)


def test_the_parameters_of_a_loop_are_one_and_are_found_one_by_one():
    scan, x = (
        nx.make_jaxpr(lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x)[1])(nx.arange(3.0)).eqns[-1],
        nx.arange(3.0),
    )
    assert set(scan.params) == {"loop"} and scan.params["jaxpr"] is scan.params["body"] is scan.params["loop"].body
    assert [scan.params[name] for name in ("num_consts", "num_carry", "length", "reverse", "unroll")] == [0, 1, 3, 0, 1]
    assert list(extend.jaxprs_in_params(scan.params)) == [scan.params["body"]]
    assert "cond" not in scan.params and "loop" not in str(nx.make_jaxpr(lambda x: lax.map(nx.sin, x))(x))
    _, back = scan.primitive.bind(0.0, x, **{**scan.params, "reverse": True})
    assert back.tolist() == [3, 2, 0]
    (loop,) = nx.make_jaxpr(lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * 2, x))(1.0).eqns
    assert loop.params["cond_jaxpr"] is loop.params["cond"] is loop.params["loop"].cond
    parts = {name: loop.params[name] for name in ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")}
    assert list(extend.jaxprs_in_params(loop.params)) == [parts["cond_jaxpr"], parts["body_jaxpr"]]
    assert loop.primitive.bind(1.0, **parts)[0].tolist() == 16
    for wrong, said in (
        ({"size": 3}, "has no parameter 'size'"),
        ({"body_nconsts": "0"}, "body_nconsts is of another"),
    ):
        with pytest.raises(nx.errors.ParameterError, match=f"while: {said}"):
            loop.primitive.bind(1.0, **loop.params, **wrong)
    with pytest.raises(nx.errors.ParameterError, match="while: lacks the parameter 'cond'"):
        loop.primitive.bind(1.0, body_jaxpr=parts["body_jaxpr"])


def test_programs_are_written():
    p = nx.make_jaxpr(lambda x: lax.sin(lax.cos(x)))(1.0)
    first, second = p.eqns
    swapped = p.replace(eqns=[first.replace(primitive=lax.exp_p), second])
    np.testing.assert_allclose(extend.jaxpr_as_fun(swapped)(1.0)[0], np.sin(np.exp(1.0)), rtol=1e-6)
    extend.check_jaxpr(swapped)
    x, y = extend.Var(p.in_avals[0]), extend.Var(p.in_avals[0])
    made = extend.Jaxpr((), [x], [y], [extend.new_jaxpr_eqn([x], [y], lax.tanh_p, {})])
    assert core.eval_jaxpr(made, (), 0.0)[0].tolist() == 0
    assert isinstance(core.ShapedArray((2,), jnp.float32), core.ShapedArray)
    with pytest.raises(TypeError):
        p.replace(names=1)


def test_where_one_is():
    seen = []

    def f(x):
        seen.append((extend.unsafe_am_i_under_a_jit_DO_NOT_USE(), extend.unsafe_am_i_under_a_vmap_DO_NOT_USE()))
        seen.append(extend.unsafe_get_axis_names_DO_NOT_USE())
        return x

    nx.make_jaxpr(nx.vmap(f, axis_name="i"))(jnp.ones(2))
    assert seen == [(True, True), ["i"]]
    with pytest.raises(nx.errors.ConcretizationTypeError):
        nx.jit(lambda x: extend.concrete_or_error(float, x, "f"))(1.0)
    assert extend.concrete_or_error(float, 2) == 2.0
    aval = core.ShapedArray((2, 3), "float32")
    assert extend.unmapped_aval(2, 0, extend.mapped_aval(2, 0, aval)) == aval


def test_parameters_of_loops_are_replaced_by_the_names_that_programs_print():
    xs = jnp.arange(1.0, 4.0)
    p = nx.make_jaxpr(lambda c, xs: lax.scan(lambda c, x: (c * 2 + x, c), c, xs))(0.0, xs)
    (e,) = p.eqns
    assert e.params.copy()["jaxpr"] is e.params["jaxpr"] and e.params["num_carry"] == 1
    with pytest.raises(KeyError, match="linear"):
        e.params["linear"]
    for params in (dict(e.params, reverse=True), {**e.params, "reverse": True, "jaxpr": e.params["jaxpr"]}):
        other = e.replace(params=params)
        assert other.params["reverse"] and other.params["loop"].reverse
        y, _ = nx.core.eval_jaxpr(p.replace(eqns=[other]), p.consts, 0.0, xs)
        assert y == lax.scan(lambda c, x: (c * 2 + x, c), 0.0, xs, reverse=True)[0]
    p = nx.make_jaxpr(lambda x: lax.while_loop(lambda v: v < 9, lambda v: v * 2, x))(1.0)
    other = nx.make_jaxpr(lambda v: v * 3)(1.0)
    (e,) = p.eqns
    assert nx.core.eval_jaxpr(p.replace(eqns=[e.replace(params=dict(e.params, body_jaxpr=other))]), [], 1.0) == [9.0]
