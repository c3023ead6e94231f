"""PReLU: its laws in float, its bits quantized."""

import numpy as np
from hypothesis import given, settings

import nxjax as nx
from nxjax.errors import NxError
from nxjax.ops.fixed.functions import prelu as kernel
from nxjax.ops.prelu import prelu, qprelu
from nxjax.testing import bad, check_op, sample
from tests.ops.quant_cases import I8, Draw, draws, loops, meanings, same, straight_through, unclamped

rng = np.random.default_rng(0)
X, A = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.uniform(0.1, 0.5, (2, 3, 4)).astype(np.float32)


def test_float():
    check_op(prelu, [sample(X, A)], [bad(X, A[:1], error=NxError, says="shape")])
    assert np.asarray(prelu(nx.asarray(np.float32([-2, 3])), nx.asarray(np.float32([0.5, 0.5])))).tolist() == [-1, 3]


def case(d: Draw):
    params = {"x_grid": d.grid(), "y_grid": d.grid(), "out_grid": d.grid(), "rounding": d.rounding()}
    shape = d.shape()
    return [d.on(params["x_grid"], shape), d.on(params["y_grid"], shape)], params


@settings(max_examples=20)
@given(d=draws)
def test_one_meaning(d: Draw):
    args, params = case(d)
    y = meanings(qprelu, args, params)
    x, alpha = (params[g].quantize(a) for g, a in zip(("x_grid", "y_grid"), args, strict=True))
    out = params["out_grid"]
    same(out.quantize(y), kernel(x, params["x_grid"], alpha, params["y_grid"], out, params["rounding"]))


@settings(max_examples=20)
@given(d=draws)
def test_derivatives_are_straight_through(d: Draw):
    args, params = case(d)
    low, high = params["out_grid"].limits
    kept = unclamped(qprelu.eval(*args, **params), params["out_grid"], low, high)
    straight_through(qprelu, args, params, prelu, args, kept)


def test_batches():
    d = Draw(3)
    args, params = case(d)
    rows = [args] + [[d.on(params["x_grid"], args[0].shape), d.on(params["y_grid"], args[0].shape)] for _ in range(2)]
    loops(qprelu, rows, params)
    x = d.on(params["x_grid"], (2, 3))
    check_op(
        qprelu,
        [sample(x, d.on(params["y_grid"], (2, 3)), differentiable=False, **params)],
        [bad(x, x[:1], error=NxError, says="shape", **params)],
        rtol=0.0,
    )
    assert params["x_grid"].dtype == I8
