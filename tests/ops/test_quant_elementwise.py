"""Quantized arithmetic of two operands and tables of functions: one meaning in every way of running."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import NxError
from nxjax.ops import arithmetic, elementary
from nxjax.ops.fixed import elementwise as fixed
from nxjax.ops.fixed.functions import FUNCTIONS, unary
from nxjax.ops.quant_elementwise import has_table, qadd, qmul, qsub, qunary
from nxjax.ops.quant_grid import Grid
from nxjax.testing import bad, check_op, sample
from tests.ops.quant_cases import I8, I16, Draw, draws, loops, meanings, same, straight_through, unclamped

BINARY = {"qadd": (qadd, arithmetic.add), "qsub": (qsub, arithmetic.sub), "qmul": (qmul, arithmetic.mul)}
PARAMETERS = {
    "leaky_relu": (("alpha", 0.2),),
    "gelu": (("approximate", False),),
}
G = Grid(I8, 0.05, 3)


def binary(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    x, y = d.grid(dtype), d.grid(dtype)
    out = d.grid(dtype)
    shape = d.shape()
    params = {"x_grid": x, "y_grid": y, "out_grid": out, **d.limits(out), "rounding": d.rounding()}
    return [d.on(x, shape), d.on(y, shape)], params


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("name", sorted(BINARY))
@settings(max_examples=12)
@given(d=draws)
def test_one_meaning(name: str, dtype: np.dtype, d: Draw):
    op, _ = BINARY[name]
    args, params = binary(d, dtype)
    y = meanings(op, args, params)
    q = params["out_grid"].quantize(y)
    same(y, params["out_grid"].dequantize(q), "on its grid")
    assert (q >= params["lo"]).all() and (q <= params["hi"]).all()


@pytest.mark.parametrize("name", sorted(BINARY))
@given(d=draws)
def test_stored_integers_are_those_of_the_kernels(name: str, d: Draw):
    op, _ = BINARY[name]
    args, params = binary(d, d.choice(I8, I16))
    stored = [params[g].quantize(a) for g, a in zip(("x_grid", "y_grid"), args, strict=True)]
    kernel = getattr(fixed, name[1:])
    wanted = kernel(stored[0], params["x_grid"], stored[1], params["y_grid"], params["out_grid"],
                    params["lo"], params["hi"], params["rounding"])  # fmt: skip
    same(params["out_grid"].quantize(op.eval(*args, **params)), wanted, name)


@pytest.mark.parametrize("name", sorted(BINARY))
@given(d=draws)
def test_derivatives_are_straight_through(name: str, d: Draw):
    op, plain = BINARY[name]
    args, params = binary(d, d.choice(I8, I16))
    y = op.eval(*args, **params)
    kept = unclamped(y, params["out_grid"], params["lo"], params["hi"])
    straight_through(op, args, params, plain, args, kept)


@pytest.mark.parametrize("name", sorted(BINARY))
@settings(max_examples=10)
@given(d=draws)
def test_vmap_is_a_loop(name: str, d: Draw):
    op, _ = BINARY[name]
    args, params = binary(d, d.choice(I8, I16))
    rows = [args] + [[d.on(params["x_grid"], args[0].shape), d.on(params["y_grid"], args[0].shape)] for _ in range(2)]
    loops(op, rows, params)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_the_laws_of_ops(name: str):
    op, _ = BINARY[name]
    d = Draw(5)
    params = {"x_grid": G, "y_grid": G, "out_grid": G, "lo": -128, "hi": 127, "rounding": "double"}
    x = d.on(G, (3, 4))
    check_op(
        op,
        [sample(x, d.on(G, (3, 4)), differentiable=False, **params)],
        [
            bad(x, x[:2], error=NxError, says="shape", **params),
            bad(x.astype(np.float64), x, error=NxError, says="f64", **params),
            bad(x, x, error=NxError, says="double or single", **{**params, "rounding": "nearest"}),
            bad(x, x, error=NxError, says="a per-tensor Grid", **{**params, "out_grid": 0.5}),
            bad(x, x, error=NxError, says="a per-tensor Grid", **{**params, "x_grid": Grid(I8, (0.1, 0.2), 0, 0)}),
        ],
        rtol=0.0,
    )


def functions() -> list[str]:
    """Those with arithmetic of their own, and some ops without."""
    return sorted({f for f in FUNCTIONS if f in PARAMETERS or has_table(f) or f == "hard_swish"} | {"sin", "sign"})


def settled(function: str, d: Draw, dtype: np.dtype) -> dict:
    """Grids that the function's kernel takes."""
    from nxjax.quant.pointwise import FIXED

    x = d.grid(dtype, 1e-2, 0.2)
    if function in ("log", "sqrt", "rsqrt"):
        x = Grid(dtype, x.scale, -128 if dtype == I8 else 0)
    out = FIXED[function](dtype) if function in FIXED else d.grid(dtype, 1e-2, 0.2)
    return {
        "function": function, "x_grid": x, "y_grid": out, "rounding": d.rounding(),
        "parameters": PARAMETERS.get(function, ()),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("function", functions())
@settings(max_examples=2)
@given(d=draws)
def test_functions_have_one_meaning(function: str, dtype: np.dtype, d: Draw):
    params = settled(function, d, dtype)
    x = d.on(params["x_grid"], (5, 7))
    if function in ("log", "sqrt", "rsqrt") and dtype == I16:
        x = np.abs(x)
    y = meanings(qunary, [x], params)
    same(y, params["y_grid"].dequantize(params["y_grid"].quantize(y)), "on its grid")
    if function in FUNCTIONS:
        wanted = unary(function, params["x_grid"].quantize(x), params["x_grid"], params["y_grid"], params["rounding"],
                       **dict(params["parameters"]))  # fmt: skip
        same(params["y_grid"].quantize(y), wanted, function)


REAL = {
    "logistic": elementary.logistic,
    "tanh": elementary.tanh,
    "exp": elementary.exp,
    "leaky_relu": lambda x: nx.nn.leaky_relu(x, 0.2),
    "elu": lambda x: nx.nn.elu(x, 1.0),
    "hard_swish": lambda x: x * nx.nn.relu6(x + 3) / 6,
    "gelu": lambda x: nx.nn.gelu(x, approximate=False),
    "sin": elementary.sin,
}


@pytest.mark.parametrize("function", sorted(REAL))
@given(d=draws)
def test_functions_are_differentiated_straight_through(function: str, d: Draw):
    params = settled(function, d, d.choice(I8, I16))
    x = d.on(params["x_grid"], (9,))
    # Off the kinks, where either slope is right.
    x = x[(np.abs(x) > 1e-6) & (np.abs(np.abs(x) - 3) > 1e-6)]
    y = qunary.eval(x, **params)
    kept = unclamped(y, params["y_grid"], *params["y_grid"].limits)
    straight_through(qunary, [x], params, REAL[function], [x], kept, 1e-4)


@settings(max_examples=10)
@given(d=draws)
def test_functions_are_batched(d: Draw):
    params = settled(d.choice("tanh", "hard_swish", "exp"), d, d.choice(I8, I16))
    loops(qunary, [[d.on(params["x_grid"], (2, 3))] for _ in range(3)], params)


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("function", ["log", "rsqrt", "sqrt"])
def test_a_pole_has_no_slope(function: str, dtype: np.dtype):
    """A grid has a 0 where values are not, as behind a small epsilon; an infinite slope there ends training."""
    grid = Grid(dtype, 0.01, -100)
    params = {"function": function, "x_grid": grid, "y_grid": grid, "rounding": "double"}
    g = nx.grad(lambda x: qunary(x, **params).sum())(np.array([0.0, 0.9], np.float32))
    assert g[0] == 0 and g[1] != 0
    scaled = nx.grad(lambda s: qunary(s * np.array([0.0, 0.9], np.float32), **params).sum())(1.0)
    assert np.isfinite(scaled)


def test_unknown_functions_are_refused():
    x = np.zeros(3, np.float32)
    params = {"x_grid": G, "y_grid": G, "rounding": "double", "parameters": ()}
    check_op(
        qunary,
        [sample(x, differentiable=False, function="tanh", **{**params, "y_grid": Grid(I8, 1 / 128)})],
        [bad(x, error=NxError, says="an elementwise op", function="nothing", **params)],
        rtol=0.0,
    )
    assert has_table("sin") and not has_table("add") and not has_table("nothing")


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_sums_saturate(a: int, b: int):
    out = Grid(I8, 0.05, 3)
    x, y = (G.dequantize(np.array([v], np.int8)) for v in (a, b))
    y = qadd.eval(x, y, x_grid=G, y_grid=G, out_grid=out, lo=-128, hi=127, rounding="double")
    assert out.quantize(y)[0] == np.clip(a - 3 + b - 3 + 3, -128, 127)
