from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.kernels.cpu.epilogue import Epilogue, Operand, plain
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.kernels.cpu.gemv import DEEP, MOST, Gemv, block_for
from nxjax.ops.arithmetic import add
from tests.kernels.cpu.running import ISAS, run

ROWS = max(MOST.values())


def kernel(x, y, sums, out, end=None, others=None, block=None):
    along = "columns" if y.strides[1] == y.itemsize else "depth"
    (rows, depth), columns = x.shape, y.shape[1]
    end = end or plain(np.dtype(out))
    step = y.strides[1] if along == "depth" else y.strides[0]
    others = others or (columns * np.dtype(out).itemsize,)
    block = block or block_for(along, columns, depth, False)
    return Gemv(
        rows, x.dtype, y.dtype, np.dtype(sums), along, columns, depth, block, x.strides[0], step, tuple(others), end
    )


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("dtype", "sums", "out"),
    [
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("bfloat16", "float32", "bfloat16"),
        ("int8", "int32", "int32"),
        ("int64", "int64", "int64"),
    ],
)
@given(
    rows=st.integers(1, ROWS),
    depth=st.integers(0, 70),
    columns=st.integers(1, 150),
    block=st.sampled_from([64, None]),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None)
def test_products(name, turned, dtype, sums, out, rows, depth, columns, block, seed):
    import ml_dtypes

    dtype, out = (np.dtype(getattr(ml_dtypes, d, d)) for d in (dtype, out))
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-128, 127, s).astype(np.int64) for s in ((rows, depth), (depth, columns)))
    if np.dtype(sums).kind == "f":
        x, y = x / 128, y / 128
    x, y = x.astype(dtype), y.astype(dtype)
    if turned:
        y = np.ascontiguousarray(y.T).T
    k = kernel(x, y, sums, out, block=block)
    (found,) = run(k, x, y, name=name, strided=True, cuts=[k.items // 2])
    wanted = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(out)
    tolerance = 0.02 if out == ml_dtypes.bfloat16 else 1e-5
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("turned", [False, True])
def test_epilogue(name, turned):
    rng = np.random.default_rng(0)
    f32 = np.dtype("float32")
    x, y, bias = (rng.standard_normal(s).astype(f32) for s in ((2, 300), (300, 101), (2, 101)))
    if turned:
        y = np.ascontiguousarray(y.T).T
    end = Epilogue(f32, Expression((f32, f32), (ExpressionNode(add, (), (0, 1), f32),), (2,)), (Operand(f32, True),))
    k = kernel(x, y, f32, f32, end, (404, 404))
    (found,) = run(k, x, y, bias, name=name, strided=True)
    np.testing.assert_allclose(found, x @ y + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("rows", [1, ROWS])
def test_products_deeper_than_one_row_of_sums(name, dtype, rows):
    """Whole numbers, whose sums are exact in every order."""
    rng = np.random.default_rng(rows)
    for depth in (DEEP - 1, DEEP, DEEP + 1, 2 * DEEP - 1, 2 * DEEP, 2 * DEEP + 129):
        x, y = (rng.integers(-9, 10, s).astype(dtype) for s in ((rows, depth), (depth, 3)))
        y = np.ascontiguousarray(y.T).T
        k = kernel(x, y, dtype, dtype)
        (found,) = run(k, x, y, name=name, strided=True)
        np.testing.assert_array_equal(found, x @ y)


def test_any_cut_gives_the_same_bits():
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((1, 5000), (5000, 300)))
    y = np.ascontiguousarray(y.T).T
    k = kernel(x, y, "float32", "float32")
    assert k.items > 2
    whole = run(k, x, y, strided=True)[0]
    parts = run(k, x, y, strided=True, cuts=[1, 2])[0]
    assert whole.tobytes() == parts.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("columns", [1, 2, 3, 70])
def test_batches(name, columns):
    """Each product of the batch with its own matrix, or all with one."""
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((3, 2, 1, 300), (3, 1, columns, 300)))
    turned = y[:, 0].transpose(0, 2, 1)
    row = 4 * columns
    axes = ((3, x.strides[0], y.strides[0], 2 * row), (2, x.strides[1], 0, row))
    k = replace(kernel(x[0, 0], turned[0], "float32", "float32", block=64), batch=axes)
    many = y.transpose(0, 1, 3, 2)
    (found,) = run(k, x, many, name=name, strided=True, cuts=[1, 4])
    np.testing.assert_allclose(found, np.matmul(x, many), rtol=1e-4, atol=1e-4)
