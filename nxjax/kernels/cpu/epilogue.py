"""What matrix products do to their sums before they store them: a row of sums in scratch, an expression, results.

The expression's inputs are the product, converted to its dtype, then further operands; it has one or more outputs.
Operands and results lie in memory row by row: elements of a row side by side, or one element for the whole row. Knows
no product: anything that leaves rows of sums may end with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.config.forks import cached_property
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box
from nxjax.kernels.cpu.expression import Expression, identity
from nxjax.kernels.cpu.ir import Function, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """A further operand: its dtype, and whether its elements lie side by side along a row, or a row has one element."""

    dtype: DType
    wide: bool


@final
@dataclass(frozen=True)
class Epilogue:
    """``expression`` of the product and ``operands``; ``product`` is the dtype to which sums are converted first."""

    product: DType
    expression: Expression
    operands: tuple[Operand, ...] = ()

    @cached_property
    def key(self) -> str:
        operands = "".join(f" {o.dtype.name}{'' if o.wide else '!'}" for o in self.operands)
        return f"{self.product.name} {self.expression.key}{operands}"

    @property
    def outs(self) -> tuple[DType, ...]:
        return self.expression.out_dtypes

    def changes(self, sums: DType) -> bool:
        """Whether anything stands between sums and memory."""
        return self.product != sums or bool(self.operands) or not self.expression.is_identity

    def boxes(
        self, rows: int, columns: int, steps: Sequence[int], batch: Sequence[int], moves: Sequence[Sequence[int]]
    ) -> list[Box]:
        """What it touches of each operand and then of each result: ``steps`` bytes from row to row, ``moves`` along
        the dimensions of ``batch``."""
        dtypes = [*((o.dtype, o.wide) for o in self.operands), *((d, True) for d in self.outs)]
        return [
            Box(d.itemsize, (*batch, rows, columns), (*move, step, d.itemsize if wide else 0))
            for (d, wide), step, move in zip(dtypes, steps, moves, strict=True)
        ]

    def meaning(self, product: NDArray, *xs: NDArray) -> list[NDArray]:
        """The results for a product, and operands that broadcast to its shape."""
        return self.expression.meaning(product, *(np.broadcast_to(x, product.shape) for x in xs))


def plain(dtype: DType) -> Epilogue:
    """The product as it is."""
    return Epilogue(dtype, identity(dtype))


def finish_row(
    f: Function,
    isa: Isa,
    end: Epilogue,
    sums: Value,
    sum_dtype: DType,
    lanes: int,
    operands: Sequence[Value],
    outs: Sequence[Value],
    count: Value,
) -> None:
    """``count`` sums that lie at ``sums``, through the epilogue to ``outs``.

    ``operands`` and ``outs`` are pointers to the elements that belong to the first sum. ``lanes``: sums in a vector.
    """
    whole = count & -lanes
    # What a row has once is read once: results may lie anywhere, so that nobody else sees that it stays.
    operands = [p if o.wide else convert.load(f, isa, o.dtype, p) for o, p in zip(end.operands, operands, strict=True)]
    with f.loop(0, whole, lanes) as loop:
        _point(f, isa, end, sums, sum_dtype, lanes, operands, outs, loop.index, None)
    if isa.bits == 512:
        with f.if_(whole.lt(count)):
            mask = f.lanes_below(count - whole, lanes)
            _point(f, isa, end, sums, sum_dtype, lanes, operands, outs, whole, mask)
    else:
        with f.loop(whole, count) as loop:
            _point(f, isa, end, sums, sum_dtype, 0, operands, outs, loop.index, None)


def _point(
    f: Function,
    isa: Isa,
    end: Epilogue,
    sums: Value,
    sum_dtype: DType,
    lanes: int,
    operands: Sequence[Value],
    outs: Sequence[Value],
    at: Value,
    mask: Value | None,
) -> None:
    """``lanes`` results (0: one, without a vector) from position ``at`` of a row on; operands are places or numbers."""
    size = sum_dtype.itemsize
    type, place = vector(convert.memory_type(sum_dtype), lanes), f.at(sums, at, size)
    x = f.load(type, place, size) if mask is None else f.load_masked(type, place, mask)
    values = [convert.convert(f, isa, x, sum_dtype, end.product)]
    for o, base in zip(end.operands, operands, strict=True):
        if not o.wide:
            values.append(f.splat(base, lanes))
            continue
        place = f.at(base, at, o.dtype.itemsize)
        if mask is None:
            values.append(convert.load(f, isa, o.dtype, place, lanes))
        else:
            raw = f.load_masked(convert.memory_type(o.dtype, lanes), place, mask)
            values.append(convert.from_memory(f, isa, o.dtype, raw))
    for dtype, base, y in zip(end.outs, outs, end.expression.emit(f, isa, values), strict=True):
        word, place = convert.to_memory(f, isa, dtype, y), f.at(base, at, dtype.itemsize)
        if mask is None:
            f.store(word, place, dtype.itemsize)
        else:
            f.store_masked(word, place, mask)
