"""The builder: values that broadcast, constants that move, grids that are taken off once."""

import numpy as np
import pytest

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Unsupported, check_dtype, stored_constant
from nxjax.lower.npu.graph import Tensor
from nxjax.lower.npu.rules.table import RULES
from nxjax.ops import vocabulary
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from tests.lower.npu.lowering import normal

G = Grid(dtypes.int8, 0.5, 3)
ROWS = Grid(dtypes.int8, (0.1, 0.2, 0.3), 0, 1)


def built():
    return GraphBuilder(RULES)


def tensor(*shape, grid=None):
    return LogicalTensor(shape, Tensor("x", shape, grid.dtype if grid else dtypes.float32, grid))


def test_every_rule_is_of_an_op():
    assert RULES.keys() <= vocabulary.every().keys()


def test_constants_move_without_nodes():
    b = built()
    x = b.constant(normal(2, 3, 4))
    y = b.slice(b.transpose(b.reshape(x, (6, 4)), (1, 0)), (1, 0), (4, 6), (2, 1))
    np.testing.assert_array_equal(y.full(), x.data.reshape(6, 4).T[1:4:2])
    assert not b.nodes


def test_grids_of_constants_follow_their_axis():
    b = built()
    w = b.constant(np.arange(24, dtype=np.int8).reshape(2, 3, 4), grid=ROWS)
    assert b.transpose(w, (1, 0, 2)).grid.axis == 0
    assert b.reshape(w, (2, 3, 2, 2)).grid.axis == 1
    assert b.reshape(b.transpose(w, (1, 0, 2)), (3, 8)).grid.axis == 0
    # Rows that run into other dimensions have no grid: the weights come off it first.
    y = b.reshape(w, (6, 4))
    assert y.grid is None
    assert [n.op for n in b.nodes] == ["dequantize", "reshape"]
    np.testing.assert_array_equal(w.known.data, ROWS.dequantize(w.data))


def test_what_repeats_is_not_stored():
    b = built()
    x = b.fill((4, 5), 2.0, dtypes.float32)
    assert x.small == (1, 1)
    assert x.scalar() == 2.0
    assert b.reshape(x, (20,)).small == (1,)
    v = tensor(1, 5)
    wide = LogicalTensor((4, 5), v.tensor)
    assert b.reshape(wide, (4, 1, 5)).small == (1, 1, 5)
    assert b.transpose(wide, (1, 0)).small == (5, 1)
    assert b.slice(wide, (1, 2), (3, 5)).small == (1, 3)
    assert [n.op for n in b.nodes] == ["reshape", "transpose", "slice"]
    assert b.full(wide).small == (4, 5)
    assert b.nodes[-1].op == "broadcast_to"


def test_grids_are_put_on_and_taken_off_once():
    b = built()
    x = tensor(2, 3)
    q = b.on(x, G)
    assert b.on(x, G).tensor is q.tensor
    assert b.on(q, G) is q
    assert b.real(q).tensor is b.real(q).tensor
    assert [n.op for n in b.nodes] == ["quantize", "dequantize"]
    c = b.on(b.constant(np.float32([1.0, 1.1])), G)
    assert c.data.dtype == np.int8
    assert b.fits(b.constant(np.float32([1.0, -3.5])), G)
    assert not b.fits(b.constant(np.float32([1.1])), G)


def test_one_tensor_per_constant():
    b = built()
    c = b.constant(normal(3))
    x = tensor(3)
    b.elementwise("add", [x, c], dtypes.float32)
    b.elementwise("mul", [x, c], dtypes.float32)
    first, second = b.nodes
    assert first.inputs[1] is second.inputs[1]


def test_padding_and_joining():
    b = built()
    x = tensor(2, 3)
    assert b.pad(x, [(0, 0), (0, 0)]) is x
    assert b.pad(x, [(0, 0), (-1, 2)]).shape == (2, 4)
    assert [n.op for n in b.nodes] == ["slice", "pad"]
    assert b.concatenate([x], 0) is x
    assert b.concatenate([x, x], 1).shape == (2, 6)


def test_dtypes():
    assert stored_constant(np.array([1, 2], np.int64)).dtype == np.int32
    assert stored_constant(np.array([1], np.uint32)).dtype == np.int32
    for attempt in (lambda: check_dtype(dtypes.int64), lambda: stored_constant(np.array([2**40]))):
        with pytest.raises(Unsupported, match="i64") as caught:
            attempt()
        assert "int32" in caught.value.suggestion
    with pytest.raises(Unsupported, match="keys"):
        check_dtype(dtypes.key)
    check_dtype(dtypes.float16)
