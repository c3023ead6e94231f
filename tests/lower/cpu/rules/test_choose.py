import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import HostStep, walk
from nxjax.ops.window import select_and_gather_add, select_and_scatter_add, window_shape
from nxjax.trace.types import ArrayType
from tests.lower.cpu.rules.windows import compiled, numbers

DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint16, np.int64)


def cases(rng, dtype):
    """Windows along some of the dimensions, often with equal elements."""
    ndim = int(rng.integers(1, 6))
    x = numbers(rng, tuple(map(int, rng.integers(1, 12 if ndim < 4 else 6, ndim))), dtype)
    x = np.where(rng.random(x.shape) < 0.5, x, np.sign(x.astype(np.float32)).astype(dtype))
    sliding = rng.permutation(ndim)[: int(rng.integers(0, 5))]
    pick = lambda values: tuple(int(rng.choice(values)) if i in sliding else 1 for i in range(ndim))
    params = {
        "window_dimensions": pick([1, 2, 3]),
        "window_strides": pick([1, 2, 3]),
        "padding": tuple((int(rng.integers(-1, 3)), 1) if i in sliding[:2] else (0, 0) for i in range(ndim)),
        "base_dilation": pick([1, 1, 2]),
        "window_dilation": pick([1, 1, 2]),
    }
    return x, {"select_prim": str(rng.choice(["ge", "le"])), **params}


def per_window(op, x, params):
    """The shape of what has one element per window; None where the op refuses."""
    kept = {k: v for k, v in params.items() if k != "select_prim"}
    try:
        return window_shape(op, ArrayType(x.shape, x.dtype), **kept)
    except nx.errors.NxError:
        return None


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("seed", range(3))
def test_any_window(name, seed):
    """The bits of the op's meaning, sums of elements of several windows included."""
    rng = np.random.default_rng([seed, isa.possible().index(name)])
    for dtype in DTYPES:
        for _ in range(3):
            x, params = cases(rng, np.dtype(dtype))
            shape = per_window(select_and_scatter_add, x, params)
            if shape is None:
                continue
            for op, first in (
                (select_and_scatter_add, numbers(rng, shape, dtype)),
                (select_and_gather_add, numbers(rng, x.shape, dtype)),
            ):
                y = compiled(op, first, x, name=name, **params)
                if y is not None:
                    assert y.dtype == dtype
                    np.testing.assert_array_equal(
                        y, op.eval(first, x, **params), err_msg=f"{op.name} {x.shape} {params}"
                    )


@pytest.mark.parametrize("name", isa.possible())
def test_ties_and_what_is_no_number(name):
    """Equal elements, zeros of either sign, infinities and NaN: the choice is that of the op."""
    rng = np.random.default_rng(0)
    values = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf], np.float32)
    x = rng.choice(values, (2, 9, 8, 19))
    params = {
        "window_dimensions": (1, 3, 2, 1), "window_strides": (1, 2, 1, 1), "base_dilation": (1,) * 4,
        "window_dilation": (1,) * 4, "padding": ((0, 0), (1, 2), (0, 1), (0, 0)),
    }  # fmt: skip
    for direction in ("ge", "le"):
        shape = per_window(select_and_scatter_add, x, params)
        for op, size in ((select_and_scatter_add, shape), (select_and_gather_add, x.shape)):
            first = rng.normal(size=size).astype(np.float32)
            y = compiled(op, first, x, name=name, select_prim=direction, **params)
            np.testing.assert_array_equal(y, op.eval(first, x, select_prim=direction, **params))


@pytest.mark.parametrize("window", [(2, 2), (3, 2)])
def test_gradients_of_pools_run_native(window):
    """In the order of images with channels second, in reverse and forward mode."""
    x = np.random.default_rng(0).normal(size=(2, 5, 8, 9)).astype(np.float32)

    def pool(x):
        return nx.lax.reduce_window(x, -float("inf"), nx.lax.max, (1, 1, *window), (1, 1, 2, 2), "SAME")

    back = lambda x: nx.grad(lambda v: (pool(v) ** 2).sum())(x)
    forward = lambda x: nx.jvp(pool, (x,), (x + 1,))
    for f in (back, forward):
        found = lower(nx.make_jaxpr(f)(nx.ShapeDtypeStruct(x.shape, x.dtype)))
        assert not [s for s in walk(found.steps) if isinstance(s, HostStep)], str(found)
        with nx.config.using(executor="cpu"):
            ys = nx.tree.leaves(nx.jit(f)(x))
        with nx.config.using(executor="reference"):
            zs = nx.tree.leaves(f(nx.numpy.asarray(x)))
        for y, z in zip(ys, zs, strict=True):
            np.testing.assert_array_equal(np.asarray(y), np.asarray(z))
