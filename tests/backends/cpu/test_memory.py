"""Blocks of the pool: seen without a copy, read-only, given back when nobody looks at them."""

import gc
import sys

import numpy as np
import pytest

from nxjax.backends.cpu.memory import CpuBuffer, PoolBlock, constant
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.trace.types import ArrayType

F32 = np.dtype(np.float32)


def held():
    gc.collect()
    return runtime().statistics()["in_use"]


@pytest.mark.unguarded
def test_a_view_keeps_its_block():
    before = held()
    view = CpuBuffer(PoolBlock(4000), ArrayType((10, 100), F32)).to_numpy()
    assert view.shape == (10, 100)
    assert view.ctypes.data % 64 == 0
    assert held() >= before + 4000
    row = view[3]
    del view
    assert held() >= before + 4000
    del row
    assert held() == before


def test_a_view_is_as_large_as_its_type():
    for shape in ((10,), (2, 3), ()):
        assert CpuBuffer(PoolBlock(400), ArrayType(shape, F32)).to_numpy().shape == shape


def test_results_cannot_be_written():
    view = CpuBuffer(PoolBlock(40), ArrayType((10,), F32)).to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_array_without_elements_needs_no_memory(shape):
    view = CpuBuffer(PoolBlock(0), ArrayType(shape, F32)).to_numpy()
    assert view.shape == shape
    assert not view.flags.writeable


def test_constants_are_read_only_views():
    data = np.arange(6, dtype=np.float32)
    view = constant(data.view(np.uint8), ArrayType((2, 3), F32))
    np.testing.assert_array_equal(view, data.reshape(2, 3))
    assert np.shares_memory(view, data)
    assert not view.flags.writeable


def test_a_block_that_was_never_made_is_nothing_to_free(monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    block = PoolBlock.__new__(PoolBlock)
    del block
    gc.collect()
    assert not lost
