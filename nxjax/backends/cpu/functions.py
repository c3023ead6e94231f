"""Transcendental functions on NumPy arrays: the code that is inside kernels, in kernels of their own.

What takes a program's place for its first run gives the program's own bits so. One piece of code serves arrays of every
size and every program, so that a process makes it once: the second function with a sine in it is called in the time
that NumPy takes. Knows no program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native.loading import Address
from nxjax.kernels.cpu import isa, ops
from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]
NAMES: Final = frozenset({"integer_pow", "rsqrt"}).union(
    *(ops.MODULES[file] for file in ("math_exp", "math_log", "math_power", "math_special", "math_trig"))
)
_ROW: Final = 64  # bytes of an operand that one item reads or writes
_ROWS: Final = 1 << 20  # at most
_CODE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def kernel(op: Op, params: Mapping[str, Any], count: int, dtype: DType) -> Nest | None:
    """``op`` of ``count`` operands, row by row; None where it is none of `NAMES`."""
    if op.name not in NAMES:
        return None
    return _kernel(op, tuple((k, v) for k, v in params.items() if k != "weak"), count, dtype)  # one at most


@lru_cache(256)
def _kernel(op: Op, params: tuple[tuple[str, Any], ...], count: int, dtype: DType) -> Nest:
    size = dtype.itemsize
    strides = (_ROW, size)
    inputs = (Input(dtype, strides),) * count
    node = ExpressionNode(op, params, tuple(range(count)), dtype)
    return Nest((_ROWS, _ROW // size), 2, False, inputs, (node,), (Output(count, strides),))


def made(kernels: Sequence[Nest]) -> list[Callable[..., NDArray]]:
    """What computes each of ``kernels`` of arrays of one shape; its code is made in a hurry where it is new."""
    addresses = engine(isa.current(), 0).addresses(kernels)
    return [_function(k, at) for k, at in zip(kernels, addresses, strict=True)]


def _function(of: Nest, address: Address) -> Callable[..., NDArray]:
    code, dtype = _CODE(address), of.inputs[0].dtype

    def run(*xs: NDArray, **params: Any) -> NDArray:
        rows = -(-xs[0].nbytes // _ROW)
        # Whole rows: what is in them after the last element is computed with, and dropped.
        memory = np.ones((len(xs) + 1, rows * _ROW // dtype.itemsize), dtype)
        for row, x in zip(memory, xs, strict=False):
            row[: x.size] = x.ravel()
        words = (ctypes.c_void_p * len(memory))(*(row.ctypes.data for row in memory))
        code(words, 0, rows, None)
        assert address  # held until here: the code is there as long as it is
        return memory[-1, : xs[0].size].reshape(xs[0].shape)

    return run
