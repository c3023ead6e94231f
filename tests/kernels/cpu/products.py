"""Runs planned matrix products: packs, then multiplies, on strided arrays."""

import numpy as np

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.epilogue import plain
from nxjax.kernels.cpu.gemm import BatchAxis
from nxjax.kernels.cpu.gemm_plan import Matrix, plan
from tests.kernels.cpu.running import run


def planned(x, y, out, name, end=None, operands=(), constant=False, again=False):
    """The plan for ``x @ y`` (the last two dimensions; the others are batches of one shape)."""
    end = end or plain(np.dtype(out))
    *batch, m, k = x.shape
    n = y.shape[-1]
    shape = (*batch, m, n)
    strides = [[v.strides[i] for v in operands] for i in range(len(shape))]
    dense = [np.empty(shape, d).strides for d in end.outs]
    for i, found in enumerate(strides):
        found.extend(s[i] for s in dense)
    axes = [BatchAxis(s, x.strides[i], y.strides[i], tuple(strides[i])) for i, s in enumerate(batch)]
    left, right = Matrix(x.dtype, *x.strides[-2:]), Matrix(y.dtype, y.strides[-1], y.strides[-2])
    return plan(isa.named(name), m, n, k, left, right, end, strides[-2], axes, constant=constant, again=again)


def multiply(x, y, out, name, *, end=None, operands=(), cut=False, constant=False, again=False):
    """``x @ y`` in dtype ``out`` through the epilogue; operands as they lie in memory, of the product's shape."""
    made = planned(x, y, out, name, end, operands, constant, again)
    cuts = lambda kernel: [kernel.items // 3, kernel.items // 2] if cut else None
    right = y
    if made.pack is not None:
        (right,) = run(made.pack, y, name=name, strided=True, cuts=cuts(made.pack))
    kernel = made.product
    return run(kernel, x, right, *operands, name=name, strided=True, cuts=cuts(kernel))
