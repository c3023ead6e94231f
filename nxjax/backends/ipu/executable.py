"""An IPU program as an executable of `jit`: on modelled tiles, its memory checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.ipu import emit
from nxjax.backends.ipu.engine import IpuEngine
from nxjax.backends.ipu.memory import MemoryUse
from nxjax.backends.ipu.model import CycleModel
from nxjax.lower.ipu.keys import as_words, is_key
from nxjax.lower.ipu.program import IpuProgram, NDArray
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType


def to_tiles(x: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """An array as a tile program's input of ``dtype`` takes it: random keys as words."""
    return as_words(x).astype(dtype, copy=False)


def from_tiles(x: NDArray, t: ArrayType) -> NDArray:
    """A tile program's output as a value of type ``t``."""
    if is_key(t):
        return np.ascontiguousarray(x).view(dtypes.key).reshape(t.shape)
    # A result may be held in another shape of the same order.
    return x.reshape(t.shape).astype(t.dtype, copy=False)


@final
class IpuExecutable(Executable):
    """A program on modelled tiles.

    Attributes:
        program: of tiles.
        model: its memory and cycles.
    """

    def __init__(self, program: IpuProgram, out_types: Sequence[ArrayType]) -> None:
        self.program = program
        self.model = CycleModel(program)
        self.model.memory.check()
        self.engine = IpuEngine(program)
        self.out_types = tuple(out_types)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        xs = [to_tiles(x.numpy(), v.dtype) for x, v in zip(args, self.program.inputs, strict=True)]
        ys = self.engine.run(xs)
        return [DeviceArray(from_tiles(y, t), t) for y, t in zip(ys, self.out_types, strict=True)]

    @property
    def text(self) -> str:
        return emit.text(self.program)

    def cost_analysis(self) -> dict[str, float]:
        """Figures of the model: ``flops``, ``cycles``, ``optimal_seconds``, ``bytes accessed`` (by the exchange)."""
        c = self.model.counted(self.engine.counts) if self.engine.counts else self.model.cycles
        moved = sum(s.moved * n for s, n in c.steps)
        figures = {"flops": c.flops, "cycles": c.total, "optimal_seconds": c.seconds, "bytes accessed": moved}
        return {name: float(value) for name, value in figures.items()}

    def memory_analysis(self) -> MemoryUse:
        return self.model.memory
