"""`lax.reduce_window` with any associative function, against `jax.lax`."""

from __future__ import annotations

import operator

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import DtypeError, ParameterError, ShapeError

CASES = [
    ((3, 2), (1, 1), "VALID", None, None),
    ((3, 2), (2, 1), "SAME", None, None),
    ((2, 5), (1, 3), ((1, 0), (2, 3)), (2, 1), (1, 2)),
    ((1, 7), (1, 1), "SAME_LOWER", None, None),
    ((7, 1), (1, 2), ((-1, 4), (0, 0)), None, None),
]


def operand():
    return np.random.default_rng(0).standard_normal((6, 9)).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("name", "init"), [("add", 0.0), ("add", 1.5), ("max", -np.inf), ("min", 0.25), ("mul", 1.0), ("mul", 3.0)]
)
def test_values_are_jax(case, name, init):
    import jax

    x = operand()
    expected = np.asarray(jax.lax.reduce_window(x, np.float32(init), getattr(jax.lax, name), *case))
    f = lambda v: lax.reduce_window(v, init, getattr(lax, name), *case)
    np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(nx.jit(f)(x).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [operator.add, nx.numpy.add, nx.jit(lambda a, b: b + a), lax.add])
def test_sums_are_recognized(function):
    program = nx.jit(lambda v: lax.reduce_window(v, 0.0, function, (2, 2))).trace(operand()).program
    assert [e.op.name for e in program.equations] == ["reduce_window_sum"]


@pytest.mark.parametrize("function", [operator.sub, lambda a, b: a + a, lambda a, b: a])
def test_other_functions_of_one_op_are_not_taken_for_sums(function):
    program = nx.jit(lambda v: lax.reduce_window(v, 0.0, function, (2, 2))).trace(operand()).program
    assert "reduce_window_sum" not in [e.op.name for e in program.equations]


def test_gradient_of_products():
    import jax

    x = operand()
    mine = nx.grad(lambda v: nx.sum(lax.reduce_window(v, 1.0, lax.mul, (2, 3), (1, 2), "SAME")))(x)
    slow = lambda v: sum(
        np.prod
        if False
        else jax.numpy.prod(jax.numpy.pad(v, ((0, 1), (1, 1)), constant_values=1)[i : i + 2, j : j + 3])
        for i in range(6)
        for j in range(0, 9, 2)
    )
    np.testing.assert_allclose(mine.numpy(), np.asarray(jax.grad(slow)(x)), rtol=1e-3, atol=1e-5)


def test_trees():
    """Largest element of each window and where it was."""
    x = operand()
    places = np.arange(x.size, dtype=np.int32).reshape(x.shape)

    def better(a, b):
        keep = a[0] >= b[0]
        return nx.where(keep, a[0], b[0]), nx.where(keep, a[1], b[1])

    f = lambda v, i: lax.reduce_window((v, i), (-np.inf, np.int32(-1)), better, (2, 3), (2, 3))
    value, place = f(x, places)
    np.testing.assert_array_equal(value.numpy(), x.reshape(3, 2, 3, 3).max((1, 3)))
    np.testing.assert_array_equal(x.ravel()[place.numpy()], value.numpy())
    np.testing.assert_array_equal(nx.jit(f)(x, places)[1].numpy(), place.numpy())


def test_vmap_over_operand_and_start():
    x = np.stack([operand(), operand() * 2])
    f = lambda v, i: lax.reduce_window(v, i, lax.max, (2, 2))
    y = nx.vmap(f)(x, np.array([0.0, 3.0], np.float32)).numpy()
    for i, start in enumerate((0.0, 3.0)):
        np.testing.assert_array_equal(y[i], f(x[i], np.float32(start)).numpy())


def test_no_window_fits():
    x = operand()
    assert lax.reduce_window(x, 1.0, lax.mul, (7, 2)).shape == (0, 8)
    assert lax.reduce_window(x, 0.0, lax.add, (7, 2)).shape == (0, 8)
    padding_only = lax.reduce_window(x[:0], 2.0, lax.mul, (1, 1), None, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(padding_only.numpy(), np.full((2, 9), 2.0))


def test_shape_tuple():
    import jax

    for module in (lax, jax.lax):
        shape = module.reduce_window_shape_tuple((6, 9), (2, 3), (1, 2), ((0, 0), (1, 1)), (2, 1), (1, 2))
        assert tuple(map(int, shape)) == (10, 4)


def test_errors():
    x = operand()
    with pytest.raises(ParameterError, match="window_dimensions"):
        lax.reduce_window(x, 0.0, lax.add, (2,), (1, 1), ((0, 0), (0, 0)))
    with pytest.raises(DtypeError, match="None stands for no array"):
        lax.reduce_window(x, None, operator.add, (2, 2))
    with pytest.raises(ShapeError, match="initial values are scalars"):
        lax.reduce_window(x, np.zeros(3, np.float32), lax.add, (2, 2))


def test_shape_tuple_of_an_unknown_batch():
    for module in (nx.lax, jax.lax):
        shape = module.reduce_window_shape_tuple((-1, 8, 9, 3), (1, 2, 3, 1), (1, 2, 2, 1), ((0, 0),) * 4)
        assert tuple(shape) == (0, 4, 4, 3)
        assert all(type(n) is int for n in shape)
        assert tuple(module.reduce_window_shape_tuple((8,), (3,), (2,), ((-9, -1),))) == (0,)
    with pytest.raises(ParameterError, match="one per dimension"):
        nx.lax.reduce_window_shape_tuple((8, 8), (3, 3), (1, 1), ((0, 0),))
    with pytest.raises(ParameterError, match="positive"):
        nx.lax.reduce_window_shape_tuple((8,), (3,), (0,), ((0, 0),))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER"])
def test_padding_by_name_is_of_the_sizes_before_dilation(padding):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    settings = ((2, 2), (2, 1), padding, (2, 1))
    ours = lax.reduce_window(x, 0.0, lax.add, *settings)
    np.testing.assert_array_equal(ours, jax.lax.reduce_window(x, 0.0, jax.lax.add, *settings))
