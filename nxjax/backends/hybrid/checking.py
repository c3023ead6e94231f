"""Whether a region computes what it means: run once on random numbers, and compared bit for bit.

For regions of integers on units that are called exact; of others there is no one right answer. Knows programs and what
runs them, no unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.backends import registry
from nxjax.backends.hybrid.capability import is_exact, meaning
from nxjax.backends.hybrid.unit import RegionRefused
from nxjax.lower.macs import macs
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.program import Program

# Regions of more multiply-accumulates than NumPy does in a moment are compared with what the host's executor gives.
BY_NUMPY: Final = 20_000_000
NOT_INTEGERS: Final = "not compared with a reference: its operations are not all integers"


def sample(program: Program) -> list[NDArray]:
    """Random arguments, the same ones each time: narrow integers over all of their range."""
    rng = np.random.default_rng(0)

    def one(shape: tuple[int, ...], dtype: Any) -> NDArray:
        if dtype in dtypes.FLOAT:
            return rng.uniform(-4, 4, shape).astype(dtype)
        if dtype == dtypes.bool_:
            return rng.integers(0, 2, shape).astype(dtype)
        if dtype.itemsize == 1 and dtype in (np.int8, np.uint8):
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max + 1, shape).astype(dtype)
        # Wider ones may be places in something.
        return rng.integers(0, 100, shape).astype(dtype)

    return [one(v.type.shape, v.type.dtype) for v in program.inputs]


def small(program: Program) -> bool:
    return sum(map(macs, program.equations)) <= BY_NUMPY


def compared(
    program: Program, run: Callable[[Sequence[NDArray]], Sequence[NDArray]], where: str
) -> tuple[str, list[NDArray], list[NDArray]]:
    """What the results of a region were compared with, in words; the arguments and the results.

    Raises:
        RegionRefused: a bit differs.
    """
    args = sample(program)
    if small(program):
        wanted, by = meaning(program, args), "the integer reference"
    else:
        opened, consts = program.close_over()
        made = registry.host().compile(opened)
        wanted = [y.numpy() for y in made([*consts, *map(wrap, args)])]  # pyright: ignore[reportArgumentType]
        by = "the host's executor"
    got = list(run(args))
    if len(got) != len(wanted):
        raise RegionRefused(f"it gives {len(got)} results on {where}, where {len(wanted)} are due")
    for y, w in zip(got, wanted, strict=True):
        if y.shape != w.shape or y.dtype != w.dtype:
            raise RegionRefused(f"its results on {where} are {y.dtype}{list(y.shape)}, not {w.dtype}{list(w.shape)}")
        if y.tobytes() != w.tobytes():
            off = np.abs(y.astype(np.float64) - w.astype(np.float64)).max()
            raise RegionRefused(f"its results differ from {by} by up to {off:.3g} on {where}")
    return f"compared with {by} on random numbers, bit for bit", args, wanted


def comparable(program: Program) -> bool:
    """Whether all that it computes has one right answer."""
    return all(map(is_exact, program.equations))
