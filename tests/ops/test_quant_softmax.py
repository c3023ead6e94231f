"""Quantized softmax: bit for bit in every way of running, close to the real one, differentiable, batched."""

import numpy as np
import pytest
from hypothesis import given, settings

import nxjax as nx
from nxjax.errors import NxError
from nxjax.ops.fixed.softmax import softmax, softmax_grid
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_softmax import qsoftmax
from nxjax.testing import bad, check_op, sample
from tests.ops.quant_cases import I8, I16, Draw, draws, loops, meanings, same, straight_through


def drawn(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    x = d.grid(dtype, 1e-3, 1.0)
    shape = (*d.shape(d.size(0, 2)), d.choice(1, 2, 7, 40))
    axis = int(d.rng.integers(len(shape)))
    return [d.on(x, shape)], {"axis": axis, "x_grid": x, "y_grid": softmax_grid(dtype), "rounding": d.rounding()}


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=15)
@given(d=draws)
def test_one_meaning(dtype: np.dtype, d: Draw):
    (x,), params = drawn(d, dtype)
    y = meanings(qsoftmax, [x], params)
    stored = softmax(params["x_grid"].quantize(x), params["x_grid"], params["y_grid"], params["axis"],
                     rounding=params["rounding"])  # fmt: skip
    same(params["y_grid"].quantize(y), stored)


@pytest.mark.parametrize(("dtype", "error"), [(I8, 0.008), (I16, 0.002)], ids=str)
@given(d=draws)
def test_it_is_a_softmax(dtype: np.dtype, error: float, d: Draw):
    (x,), params = drawn(d, dtype)
    axis = params["axis"]
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    assert np.abs(qsoftmax.eval(x, **params) - e / e.sum(axis, keepdims=True)).max() < error


@given(d=draws)
def test_its_derivative_is_that_of_softmax(d: Draw):
    (x,), params = drawn(d, d.choice(I8, I16))
    straight_through(
        qsoftmax, [x], params, lambda v: nx.nn.softmax(v, axis=params["axis"]), [x], np.ones(x.shape, bool), 1e-4
    )


@settings(max_examples=10)
@given(d=draws)
def test_vmap_is_a_loop(d: Draw):
    (x,), params = drawn(d, d.choice(I8, I16))
    loops(qsoftmax, [[x]] + [[d.on(params["x_grid"], x.shape)] for _ in range(2)], params)


def test_the_laws_of_ops():
    g = Grid(I8, 0.1, 4)
    params = {"axis": 1, "x_grid": g, "y_grid": softmax_grid(I8), "rounding": "double"}
    x = Draw(2).on(g, (3, 5))
    check_op(
        qsoftmax,
        [sample(x, differentiable=False, **params)],
        [bad(x, error=NxError, says="axis", **{**params, "axis": 2})],
        rtol=0.0,
    )


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_of_nothing(axis: int, dtype: np.dtype):
    params = {"axis": axis, "x_grid": Grid(dtype, 0.1), "y_grid": softmax_grid(dtype), "rounding": "double"}
    assert meanings(qsoftmax, [np.zeros((0, 3), np.float32)], params).shape == (0, 3)
