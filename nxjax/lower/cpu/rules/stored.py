"""Quantized values between kernels: integers, int16, less the zero point.

A quantized op's result is a graph of one step, `ops_quant.real` of its integers. A quantized op that reads it on the
same grid takes the integers; anything else takes the float values, which are then made in its own kernel. Knows no op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.cpu import ops_quant as steps
from nxjax.lower.cpu.builder import Builder, NoKernel, View
from nxjax.lower.cpu.lazy import Lazy, LazyIndex, LazyLeaf, Map, Shaped, indexed, shaped
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

_BYTES: Final = (dtypes.int8, dtypes.uint8, dtypes.int4)
_REPEATED: Final = 4  # so often, at least
_REAL: Final[Any] = steps.real


def need_bytes(*grids: Grid) -> None:
    """Only grids of eight bits and less are stored as int16 less the zero point."""
    if any(g.dtype not in _BYTES or isinstance(g.scale, tuple) for g in grids):
        raise NoKernel("grids of more than eight bits")


def step(b: Builder, what: steps.StoredStep, args: Sequence[Lazy], shape: Shape, dtype: DType, **params: Any) -> Lazy:
    """One step on elements, as part of a graph."""
    op: Any = what
    y = Map(op, tuple(sorted(params.items())), tuple(args), shape, dtype)
    y.equation = b.equation
    return y


def integers(b: Builder, x: Any, grid: Grid) -> Lazy:
    """The integers of a value on ``grid``, less its zero point."""
    found = beneath(x)
    if found is not None and found[1] == grid:
        return found[0]
    value = b.lazy(x)
    if value.view is not None and _REPEATED * _moving(value.view).size <= value.size:
        # What is repeated, as a row of weights is, is made once, and ahead where it is known.
        least = _moving(value.view)
        made = b.view(step(b, steps.quantized, [LazyLeaf(least)], least.shape, dtypes.int16, grid=grid))
        strides = tuple(s if k else 0 for s, k in zip(made.strides, value.view.strides, strict=True))
        return LazyLeaf(View(made.ref, value.shape, strides, made.dtype))
    return step(b, steps.quantized, [value], value.shape, dtypes.int16, grid=grid)


def beneath(x: Any) -> tuple[Lazy, Grid] | None:
    """The integers that ``x`` is made of, moved as they are in it, and their grid; None: of something else."""
    if not isinstance(x, (Map, LazyIndex, Shaped)) or not x.args:
        return None
    if isinstance(x, Map):
        return (x.args[0], dict(x.params)["grid"]) if x.op is _REAL else None
    below = beneath(x.args[0])
    if below is None:
        return None
    q, grid = below
    return (shaped(q, x.shape) if isinstance(x, Shaped) else indexed(q, x.shape, x.places)), grid


def _moving(v: View) -> View:
    """The elements of ``v`` without those that are repeated."""
    return View(v.ref, tuple(n if s else 1 for n, s in zip(v.shape, v.strides, strict=True)), v.strides, v.dtype)


def values(b: Builder, q: Lazy, grid: Grid) -> Lazy:
    """The float values of integers."""
    return step(b, steps.real, [q], q.shape, dtypes.float32, grid=grid)
