"""What is done to sums before they are stored: conversions, operands along a row or one for it, any count."""

import numpy as np
import pytest

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.epilogue import Epilogue, Operand, finish_row, plain
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.ops.arithmetic import add, mul
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.written import Written

F32 = np.dtype(np.float32)


def added(product):
    """``(product + wide) * single``."""
    dtypes = (product, product, product)
    nodes = (ExpressionNode(add, (), (0, 1), product), ExpressionNode(mul, (), (3, 2), product))
    return Epilogue(product, Expression(dtypes, nodes, (4,)), (Operand(product, True), Operand(product, False)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [0, 1, 3, 16, 37])
@pytest.mark.parametrize("product", ["float32", "float16"])
def test_rows_of_any_length(isa, count, product):
    end = added(np.dtype(product))
    room = count + 16  # the memory of the sums goes on to whole vectors
    sums = np.arange(room, dtype=np.float32) / 3
    wide = np.linspace(-1, 1, count).astype(product)
    single = np.array([1.5], product)

    def body(f, isa, words, scratch, index):
        sums, wide, single, out = (pointer(f, words, i) for i in range(4))
        lanes = isa.lanes(4)
        finish_row(f, isa, end, sums, F32, lanes, (wide, single), (out,), f.constant("i64", count))

    meaning = lambda sums, wide, single: end.meaning(sums[:count].astype(product), wide, single)
    kernel = Written(body, meaning, about=(count, end.key))
    (got,) = run(kernel, sums, wide, single, name=isa)
    np.testing.assert_array_equal(got, meaning(sums, wide, single)[0])


def test_the_product_as_it_is_changes_nothing():
    assert not plain(F32).changes(F32)
    assert plain(F32).changes(np.dtype(np.float64))
    assert added(F32).changes(F32)
    assert added(F32).key != plain(F32).key
