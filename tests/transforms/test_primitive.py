"""Primitives of one's own: every rule is used, and a missing one is an error that says which."""

import copy

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.extend.core import Primitive
from nxjax.interpreters import ad, batching, mlir
from nxjax.trace.core import OPS


def multiply_add():
    p = Primitive("multiply_add")
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(lambda x, y, z: nx.core.ShapedArray(x.shape, x.dtype))
    return p


def test_rules_one_by_one():
    p = multiply_add()

    def f(a, b):
        return p.bind(a, a, b)

    assert float(f(2.0, 10.0)) == 14 == float(nx.jit(f)(2.0, 10.0))
    with pytest.raises(NotImplementedError, match="primitive_jvps"):
        nx.jvp(f, (2.0, 10.0), (1.0, 1.0))

    def jvp(primals, tangents):
        x, y, z = primals
        tx, ty, tz = (jnp.zeros_like(v) if type(t) is ad.Zero else t for t, v in zip(tangents, primals, strict=True))
        return p.bind(x, y, z), p.bind(tx, y, p.bind(x, ty, tz))

    ad.primitive_jvps[p] = jvp
    for g in (f, nx.jit(f)):
        assert [float(v) for v in nx.jvp(g, (2.0, 10.0), (1.0, 1.0))] == [14, 5]
    with pytest.raises(NotImplementedError, match="transpose rule"):
        nx.grad(f)(2.0, 10.0)

    def transpose(ct, x, y, z):
        if ad.is_undefined_primal(x):
            return p.bind(ct, y, jnp.zeros_like(y)), None, ct
        return None, p.bind(x, ct, jnp.zeros_like(x)), ct

    ad.primitive_transposes[p] = transpose
    assert float(nx.grad(f)(2.0, 10.0)) == 4 == float(nx.jit(nx.grad(nx.jit(f)))(2.0, 10.0))
    with pytest.raises(NotImplementedError, match="batching rule"):
        nx.vmap(f)(jnp.ones(2), jnp.ones(2))
    batching.defbroadcasting(p)
    assert nx.jit(nx.vmap(f))(jnp.array([2.0, 3.0]), jnp.array([10.0, 20.0])).tolist() == [14, 29]
    assert nx.vmap(nx.grad(f))(jnp.array([2.0, 3.0]), jnp.array([10.0, 20.0])).tolist() == [4, 6]
    assert set(ad.primitive_jvps) >= {p}


def test_families_of_rules():
    product, double, total = Primitive("product"), Primitive("double"), Primitive("total")
    product.def_impl(lambda x, y: x * y)
    product.def_abstract_eval(lambda x, y: x)
    ad.defbilinear(product, lambda ct, x, y: ct * y, lambda ct, x, y: x * ct)
    batching.defbroadcasting(product)
    double.def_impl(lambda x: x + x)
    double.def_abstract_eval(lambda x: x)
    ad.deflinear(double, lambda ct: [double.bind(ct)])
    batching.defvectorized(double)
    total.def_impl(lambda x, *, axes: jnp.sum(x, axes))
    total.def_abstract_eval(lambda x, *, axes: nx.eval_shape(lambda v: jnp.sum(v, axes), x))
    batching.defreducer(total)
    x = jnp.arange(6.0).reshape(2, 3)
    f = lambda v, w: double.bind(product.bind(v, w)).sum()
    for got, want in zip(nx.grad(f, (0, 1))(x, x + 1), (2 * (x + 1), 2 * x), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(nx.vmap(product.bind, (0, None))(x, x[0]), x * x[0])
    np.testing.assert_array_equal(nx.vmap(lambda v: total.bind(v, axes=(0,)), 1)(x), x.sum(0))
    scaled = Primitive("scaled")
    scaled.def_impl(lambda x, y: x * y)
    scaled.def_abstract_eval(lambda x, y: x)
    ad.defjvp(scaled, lambda t, x, y: t * y, None)
    assert [float(v) for v in nx.jvp(scaled.bind, (2.0, 3.0), (1.0, 1.0))] == [6, 3]


def test_several_results_and_lowering():
    p = Primitive("both")
    p.multiple_results = True
    p.def_abstract_eval(lambda x, *, k: (x, x))
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, k: [x + k, x * k], multiple_results=True))
    assert [float(v) for v in nx.jit(lambda x: p.bind(x, k=3))(2.0)] == [5, 6] == [float(v) for v in p.bind(2.0, k=3)]
    ad.primitive_jvps[p] = lambda xs, ts, k: (p.bind(*xs, k=k), [ts[0], ts[0] * k])
    assert float(nx.grad(lambda x: sum(p.bind(x, k=3)))(1.0)) == 4


def test_a_lowering_that_writes_mlir_is_not_read():
    p = Primitive("by_hand")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, lambda ctx, x: x)
    with pytest.raises(NotImplementedError, match="def_impl"):
        nx.jit(p.bind)(2.0)
    p.def_impl(lambda x: x * 5)
    assert float(nx.jit(p.bind)(2.0)) == 10


def test_one_name_twice():
    first, second = Primitive("twin"), Primitive("twin")
    for p, k in ((first, 2), (second, 3)):
        p.def_abstract_eval(lambda x: x)
        p.def_impl(lambda x, k=k: x * k)
    assert float(nx.jit(first.bind)(1.0)) == 2 and float(nx.jit(second.bind)(1.0)) == 3 and second.name == "twin"
    nothing = Primitive("nothing")
    assert "nothing" not in OPS and copy.deepcopy(nothing) is nothing
    with pytest.raises(NotImplementedError, match="not implemented"):
        nothing.bind(1.0)
    with pytest.raises(NotImplementedError, match="def_abstract_eval"):
        nx.jit(nothing.bind)(1.0)


def test_rules_of_built_in_ops_are_read_only():
    y, t = ad.primitive_jvps[lax.sin_p]((jnp.float32(0),), (jnp.float32(2),))
    assert float(y) == 0 and float(t) == 2
    assert type(ad.primitive_jvps[lax.floor_p]((jnp.float32(0),), (jnp.float32(2),))[1]) is ad.Zero
    assert (
        ad.get_primitive_transpose(lax.neg_p)(jnp.float32(1), ad.UndefinedPrimal(jnp.float32(1).type))[0].tolist() == -1
    )
    y, dim = batching.primitive_batchers[lax.reduce_sum_p]((jnp.ones((2, 3)),), (1,), axes=(0,))
    assert y.shape == (3,) and dim == 0
    with pytest.raises(ValueError, match="cannot be replaced"):
        ad.primitive_jvps[lax.sin_p] = lambda *_: None
    with pytest.raises(KeyError):
        ad.primitive_transposes[lax.sin_p]
    with pytest.raises(NotImplementedError):
        ad.get_primitive_transpose(lax.sin_p)


def test_an_undefined_primal_is_handed_through_transforms():
    undefined = ad.UndefinedPrimal(nx.core.ShapedArray((2,), jnp.float32))
    assert nx.tree.leaves(undefined) == []
    seen = []
    nx.vmap(lambda x, y: seen.append(x) or y, in_axes=(0, 0))(undefined, jnp.ones(3))
    assert ad.is_undefined_primal(seen[0]) and seen[0].aval == undefined.aval
