"""Sliding windows against JAX: values, derivatives of any order, batching, dilations, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops.window import (
    reduce_window_max,
    reduce_window_min,
    reduce_window_sum,
    select_and_gather_add,
    select_and_scatter_add,
)
from nxjax.testing import check_op, sample
from nxjax.trace import dtypes

OPS = {"add": reduce_window_sum, "max": reduce_window_max, "min": reduce_window_min}


def random_config(seed, dilate=True, cut=True):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    ints = lambda low, high: tuple(int(v) for v in rng.integers(low, high, n))
    shape = ints(5, 9)
    params = {
        "window_dimensions": ints(1, 4),
        "window_strides": ints(1, 4),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1 if cut else 0, 3, (n, 2))),
        "base_dilation": ints(1, 3) if dilate else (1,) * n,
        "window_dilation": ints(1, 3) if dilate else (1,) * n,
    }
    # Elements differ, so that every choice is unique.
    x = rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    return x, params


def peer(name, params):
    import jax

    init = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]
    order = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return lambda x: jax.lax.reduce_window(x, init, getattr(jax.lax, name), *(params[k] for k in order))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", OPS)
def test_values_are_jax(name, seed):
    x, params = random_config(seed)
    expected = np.asarray(peer(name, params)(x))
    f = lambda v: OPS[name](v, **params)
    np.testing.assert_allclose(f(nx.asarray(x)).numpy(), expected, rtol=1e-5)
    if seed < 4:
        np.testing.assert_allclose(nx.jit(f)(x).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", OPS)
def test_gradients_are_jax(name, seed):
    import jax

    x, params = random_config(seed + 100, dilate=name == "add", cut=name == "add")
    f = lambda v: OPS[name](v, **params)
    expected, pull_jax = jax.vjp(peer(name, params), x)
    _, pull = nx.vjp(f, x)
    ct = np.random.default_rng(seed).standard_normal(expected.shape).astype(np.float32)
    np.testing.assert_allclose(pull(nx.asarray(ct))[0].numpy(), np.asarray(pull_jax(ct)[0]), rtol=1e-5, atol=1e-5)
    t = np.random.default_rng(seed).standard_normal(x.shape).astype(np.float32)
    pushed = np.asarray(jax.jvp(peer(name, params), (x,), (t,))[1])
    np.testing.assert_allclose(nx.jvp(f, (x,), (t,))[1].numpy(), pushed, rtol=1e-5, atol=1e-5)
    if seed < 4:
        np.testing.assert_allclose(
            nx.jit(lambda c: pull(c))(ct)[0].numpy(), np.asarray(pull_jax(ct)[0]), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            nx.jit(lambda v, w: nx.jvp(f, (v,), (w,))[1])(x, t).numpy(), pushed, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("select", ["ge", "le"])
def test_gather_and_scatter_are_adjoint_under_any_dilation(select, seed):
    x, params = random_config(seed + 200)
    rng = np.random.default_rng(seed)
    t = nx.asarray(rng.standard_normal(x.shape).astype(np.float32))
    v = nx.asarray(x)
    y = select_and_gather_add(t, v, select_prim=select, **params)
    ct = nx.asarray(rng.standard_normal(y.shape).astype(np.float32))
    back = select_and_scatter_add(ct, v, select_prim=select, **params)
    np.testing.assert_allclose(np.vdot(ct.numpy(), y.numpy()), np.vdot(back.numpy(), t.numpy()), rtol=1e-3, atol=1e-3)
    # Compiled by its expansion or by StableHLO's own operation, it is the same.
    scatter = lambda c, w: select_and_scatter_add(c, w, select_prim=select, **params)
    np.testing.assert_allclose(nx.jit(scatter)(ct, v).numpy(), back.numpy(), rtol=1e-5, atol=1e-5)
    gather = lambda a, w: select_and_gather_add(a, w, select_prim=select, **params)
    np.testing.assert_allclose(nx.jit(gather)(t, v).numpy(), y.numpy(), rtol=1e-5, atol=1e-5)
    # Gathering the operand itself is the reduction.
    op = reduce_window_max if select == "ge" else reduce_window_min
    whole = op(v, **params).numpy()
    finite = np.isfinite(whole)
    np.testing.assert_array_equal(
        select_and_gather_add(v, v, select_prim=select, **params).numpy()[finite], whole[finite]
    )


def test_ties_go_to_the_first_element():
    import jax

    params = {
        "window_dimensions": (2, 2),
        "window_strides": (1, 2),
        "padding": ((1, 0), (0, 1)),
        "base_dilation": (1, 1),
        "window_dilation": (1, 1),
    }
    x = np.zeros((4, 5), np.float32)
    expected, pull_jax = jax.vjp(peer("max", params), x)
    ct = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    pull = nx.vjp(lambda v: reduce_window_max(v, **params), x)[1]
    np.testing.assert_array_equal(pull(nx.asarray(ct))[0].numpy(), np.asarray(pull_jax(ct)[0]))
    np.testing.assert_array_equal(nx.jit(lambda c: pull(c))(ct)[0].numpy(), np.asarray(pull_jax(ct)[0]))


def first_best(x, params, better):
    """Of each window the index of the first best element; None where no element lies in it."""
    shape = reduce_window_max(nx.asarray(x), **params).shape
    columns = zip(*(params[k] for k in ("window_strides", "padding", "base_dilation", "window_dilation")), strict=True)
    columns = list(columns)
    found = {}
    for at in np.ndindex(shape):
        best = None
        for tap in np.ndindex(params["window_dimensions"]):
            places = [i * s + j * w - low for i, j, (s, (low, _), _, w) in zip(at, tap, columns, strict=True)]
            index = tuple(p // b for p, (_, _, b, _) in zip(places, columns, strict=True))
            whole = all(p % b == 0 for p, (_, _, b, _) in zip(places, columns, strict=True))
            if whole and all(0 <= i < n for i, n in zip(index, x.shape, strict=True)):
                best = index if best is None or better(x[index], x[best]) else best
        found[at] = best
    return shape, found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["max", "min"])
def test_padding_is_never_chosen(name, seed):
    """Not even beside elements that are as low, or as high, as anything can be; of equals the first is."""
    _, params = random_config(seed + 300)
    rng = np.random.default_rng(seed)
    shape = (6,) * len(params["padding"])
    x = rng.choice([-np.inf, -np.inf, 0.0, 1.0], shape).astype(np.float32) * (1 if name == "max" else -1)
    out, chosen = first_best(x, params, np.greater if name == "max" else np.less)
    t, ct = (rng.standard_normal(s).astype(np.float32) for s in (shape, out))
    pushed, pulled = np.zeros(out, np.float32), np.zeros(shape, np.float32)
    for at, index in chosen.items():
        if index is not None:
            pushed[at] = t[index]
            pulled[index] += ct[at]
    f = lambda v: OPS[name](v, **params)
    forwards = lambda v, w: nx.jvp(f, (v,), (w,))[1]
    backwards = lambda v, c: nx.vjp(f, v)[1](c)[0]
    for way in (lambda f: f, nx.jit):
        np.testing.assert_array_equal(way(forwards)(nx.asarray(x), nx.asarray(t)), pushed)
        np.testing.assert_allclose(way(backwards)(nx.asarray(x), nx.asarray(ct)), pulled, rtol=1e-5, atol=1e-5)


POOL = {
    "window_dimensions": (2, 2),
    "window_strides": (2, 2),
    "padding": ((0, 0), (1, 0)),
    "base_dilation": (1, 1),
    "window_dilation": (1, 1),
}


def test_second_order_is_jax():
    import jax

    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    mine = lambda v: nx.sum(reduce_window_max(v * v * v, **POOL) ** 2)
    theirs = lambda v: (peer("max", POOL)(v * v * v) ** 2).sum()
    hvp = nx.jvp(nx.grad(mine), (x,), (x,))[1]
    np.testing.assert_allclose(hvp.numpy(), np.asarray(jax.jvp(jax.grad(theirs), (x,), (x,))[1]), rtol=1e-4)
    reverse = nx.grad(lambda v: nx.sum(nx.grad(mine)(v) * x))(x)
    np.testing.assert_allclose(reverse.numpy(), hvp.numpy(), rtol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", OPS)
def test_vmap_of_value_and_gradient(name, dim):
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    op = OPS[name]
    value_and_gradient = nx.value_and_grad(lambda v: nx.sum(op(v, **POOL) ** 2))
    values, grads = nx.vmap(value_and_gradient, in_axes=dim)(np.moveaxis(x, 0, dim))
    for i in range(3):
        value, g = value_and_gradient(x[i])
        np.testing.assert_allclose(values.numpy()[i], value.numpy(), rtol=1e-5)
        np.testing.assert_allclose(grads.numpy()[i], g.numpy(), rtol=1e-5)


def test_vmap_of_the_tangent_alone():
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    ts = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    f = lambda t: nx.jvp(lambda v: reduce_window_max(v, **POOL), (x,), (t,))[1]
    np.testing.assert_allclose(nx.vmap(f)(ts).numpy(), np.stack([f(t).numpy() for t in ts]))


def test_integers_booleans_and_short_floats():
    x = np.arange(20, dtype=np.int8).reshape(4, 5)
    params = {**POOL, "padding": ((0, 0), (0, 1))}
    f = lambda v: reduce_window_max(v, **params)
    np.testing.assert_array_equal(f(nx.asarray(x)).numpy(), nx.jit(f)(x).numpy())
    assert f(nx.asarray(x)).numpy().tolist() == [[6, 8, 9], [16, 18, 19]]
    flags = reduce_window_max(nx.asarray(x > 15), **params).numpy()
    assert flags.tolist() == [[False] * 3, [True] * 3]
    ones = nx.asarray(np.ones((1, 1000), ml_dtypes.bfloat16))
    whole = {**POOL, "window_dimensions": (1, 1000), "padding": ((0, 0), (0, 0))}
    assert float(reduce_window_sum(ones, **whole).numpy()[0, 0]) == 1000.0


@pytest.mark.parametrize("dtype", sorted(dtypes.NARROW, key=str), ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_padding_of_floats_without_infinities_is_never_chosen(name, dtype):
    x = np.array([[1, 4, 2], [0.5, 2, 1]]).astype(dtype)
    f = lambda x: OPS[name](x, **{**POOL, "padding": ((2, 1), (2, 2))})
    for run in (f, nx.jit(f), nx.jit(f, device="reference")):
        y = np.asarray(run(nx.asarray(x))).astype(np.float32)
        expected = np.asarray(f(nx.asarray(x.astype(np.float32))))
        found = np.isfinite(expected)  # windows of padding alone hold the lowest, or the highest number
        np.testing.assert_array_equal(y[found], expected[found])
        assert not np.isnan(y).any()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"window_dimensions": (2,)}, ParameterError, "window_dimensions"),
        ({"window_strides": (0, 1)}, ParameterError, "window_strides"),
        ({"padding": ((0, 0),)}, ParameterError, "padding"),
        ({"padding": ((-4, -4), (0, 0))}, ShapeError, "negative padding"),
    ],
)
def test_errors(change, error, text):
    with pytest.raises(error, match=f"reduce_window_max: {text}"):
        reduce_window_max(nx.asarray(np.ones((4, 4), np.float32)), **{**POOL, **change})


def test_complex_maximum_is_refused():
    with pytest.raises(DtypeError, match="reduce_window_max"):
        reduce_window_max(nx.asarray(np.ones((4, 4), np.complex64)), **POOL)


def test_scatter_wants_one_source_element_per_window():
    x = nx.asarray(np.ones((4, 4), np.float32))
    with pytest.raises(ShapeError, match="one source element per window"):
        select_and_scatter_add(x, x, select_prim="ge", **POOL)
    with pytest.raises(ParameterError, match="select_prim"):
        select_and_scatter_add(x, x, select_prim="max", **POOL)


def test_laws():
    for seed in range(3):
        x, params = random_config(seed + 300)
        check_op(reduce_window_sum, [sample(x, **params)])
        source = reduce_window_sum(nx.asarray(x), **params).numpy()
        check_op(select_and_gather_add, [sample(x[::-1] / 8, x, select_prim="le", **params)])
        check_op(select_and_scatter_add, [sample(source, x, select_prim="ge", **params)])
    # Every window holds an element here, since the derivative of an infinity is none.
    x = np.random.default_rng(0).permutation(20).reshape(4, 5).astype(np.float32)
    for op in (reduce_window_max, reduce_window_min):
        check_op(op, [sample(x, **POOL), sample(x, **{**POOL, "window_dilation": (1, 2)})])


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_sums_of_long_windows_keep_digits(executor):
    x = np.full((70_000, 1), 0.1, np.float32)
    with nx.config.using(executor=executor):
        y = nx.lax.reduce_window(x, np.float32(0), nx.lax.add, (70_000, 1), (1, 1), "VALID")
    np.testing.assert_allclose(y, [[x.sum(dtype=np.float64)]], rtol=1e-5)
