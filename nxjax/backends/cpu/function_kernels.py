"""The kernels of `functions`, for a process that finds none of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native.loading import Address
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType


def kernel(op: Op, params: tuple[tuple[str, object], ...], count: int, dtype: DType, row: int, rows: int) -> Nest:
    """``op`` of ``count`` operands, ``row`` bytes an item."""
    size = dtype.itemsize
    strides = (row, size)
    inputs = (Input(dtype, strides),) * count
    node = ExpressionNode(op, params, tuple(range(count)), dtype)
    return Nest((rows, row // size), 2, False, inputs, (node,), (Output(count, strides),))


def addresses(kernels: Sequence[Nest]) -> list[Address]:
    """Where their code is, made in a hurry where it is new."""
    return engine(isa.current(), 0).addresses(kernels)
