"""Transcendental functions on NumPy arrays: the code that is inside kernels, in kernels of their own.

What takes a program's place for its first run gives the program's own bits so. One piece of code serves arrays of every
size and every program, so that a process makes it once, and later processes find it: the second function with a sine in
it is called in the time that NumPy takes. Knows no program. Must not import the compiler: `function_kernels` has what
is needed of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.native.loading import Address
from nxjax.config import config
from nxjax.kernels.cpu.op_files import FUNCTIONS
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]
_ROW: Final = 64  # bytes of an operand that one item reads or writes
_ROWS: Final = 1 << 20  # at most
_CODE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class SharedFunction(NamedTuple):
    """``op`` of ``count`` operands of a dtype, and with these parameters."""

    op: Op
    params: tuple[tuple[str, Any], ...]
    count: int
    dtype: DType

    @property
    def record(self) -> tuple[str, ...]:
        """What its record of an earlier process is found by."""
        return ("function", self.op.name, repr(self.params), str(self.count), self.dtype.name)


def find(op: Op, params: Mapping[str, Any], count: int, dtype: DType) -> SharedFunction | None:
    """The function that ``op`` is; None where it has no code to share."""
    # An op of a user's may have any name.
    if op.name not in FUNCTIONS or not type(op).__module__.startswith("nxjax."):
        return None
    return SharedFunction(op, tuple((k, v) for k, v in params.items() if k != "weak"), count, dtype)  # one at most


def made(functions: Sequence[SharedFunction]) -> list[Callable[..., NDArray]]:
    """What computes each of ``functions`` of arrays of one shape; its code is made in a hurry where it is new."""
    addresses = {f: _found(f, config.cpu_isa, config.reproducible) for f in functions}
    new = [f for f, at in addresses.items() if at is None]
    if new:
        from nxjax.backends.cpu import function_kernels as code

        kernels = [code.kernel(*f, _ROW, _ROWS) for f in new]
        for f, kernel, at in zip(new, kernels, code.addresses(kernels), strict=True):
            addresses[f] = at
            earlier.write(f"{at.code.file} {kernel.symbol}".encode(), *f.record)
    return [_function(f.dtype, addresses[f]) for f in functions]


@lru_cache(256)
def _found(function: SharedFunction, isa: str, reproducible: bool) -> Any:
    """Where its code is, if an earlier process has left it."""
    record = earlier.read(*function.record)
    if record is None:
        return None
    file, _, symbol = record.decode(errors="replace").partition(" ")
    code = earlier.code(file, (symbol,))
    return None if code is None else Address.of(code, symbol)


def _function(dtype: DType, address: Address) -> Callable[..., NDArray]:
    code = _CODE(address)

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
