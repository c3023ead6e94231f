"""Elementwise graphs as data: their meaning, their key, and their code inside a nest."""

import numpy as np
import pytest

from nxjax.kernels.cpu.expression import Constant, Expression, ExpressionNode, identity
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.ops.arithmetic import add, mul
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run

F32, BF16 = np.dtype(np.float32), dtypes.bfloat16


def relu_like(dtype=F32):
    one = Constant(np.float32(1).astype(dtype).tobytes(), dtype)
    return Expression(
        (dtype, dtype), (one, ExpressionNode(add, (), (0, 2), dtype), ExpressionNode(mul, (), (3, 1), dtype)), (4, 3)
    )


def test_meaning_broadcasts():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([1, 2, 3])
    a, b = relu_like().meaning(x, y)
    np.testing.assert_array_equal(a, (x + 1) * y)
    np.testing.assert_array_equal(b, x + 1)


def test_keys_are_of_structure():
    assert relu_like() == relu_like()
    assert relu_like().key != relu_like(BF16).key
    assert identity(F32).is_identity
    assert not relu_like().is_identity
    assert relu_like().out_dtypes == (F32, F32)
    assert str(relu_like()) == "add+mul"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_emits_what_it_means(isa, dtype):
    e = relu_like(dtype)
    n = dtype.itemsize
    nest = Nest((101,), 1, False, (Input(dtype, (n,)), Input(dtype, (n,))), e.nodes, (Output(4, (n,)), Output(3, (n,))))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(101).astype(dtype) for _ in range(2))
    for got, wanted in zip(run(nest, x, y, name=isa), e.meaning(x, y), strict=True):
        np.testing.assert_array_equal(got, wanted)
