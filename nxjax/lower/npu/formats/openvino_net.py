"""The state of one OpenVINO model under construction: values, layouts, grids, names.

Knows tensors, no op: `openvino_ops` says what an op becomes, `openvino_writer` walks the graph. Values are real
numbers everywhere between the model's ends: a tensor on a grid is a float value followed by FakeQuantize, which is
the form that OpenVINO's low-precision passes turn into integer kernels; only weights stay stored integers (constant,
Convert, Multiply). Images are kept channels first from the first op that wants them so, and turned back where an op
needs the graph's own order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.channels_first import ChannelsFirst, Value
from nxjax.lower.npu.formats.openvino_package import package
from nxjax.lower.npu.graph import NpuGraph, unique
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, bit_width, short_name
from nxjax.trace.types import Shape

# Types that a model's ends can have; NumPy has an own type for each.
PORT_TYPES: Final = frozenset(
    (
        dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
        dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64,
        dtypes.float16, dtypes.float32, dtypes.float64,
    )
)  # fmt: skip
# Grids that results can have: their integers are exact as floats.
LEVELS: Final = frozenset((dtypes.int4, dtypes.int8, dtypes.uint8, dtypes.int16))
# Ends of a grid beyond this overflow float32 inside FakeQuantize; masks of "minus infinity" reach it.
FAR: Final = 1e36
# Ranks for which the CPU plugin has a FakeQuantize kernel.
RANKS: Final = range(2, 6)


def clean(name: str) -> str:
    """A name without the characters that separate names in OpenVINO's lists of them, and ours."""
    return re.sub(r"[^\w./-]", "_", name)


def node_names(graph: NpuGraph) -> list[str]:
    """One name per node: its own, made unique."""
    taken = {clean(t.name): 0 for t in graph.inputs}
    return [unique(clean(n.name) or f"{n.op}_{i}", taken, ".") for i, n in enumerate(graph.nodes)]


def owner(name: str, names: Mapping[str, int]) -> int | None:
    """Which node made the operation ``name``, if any did: ``conv:2`` and ``conv/Subtract`` are ``conv``'s."""
    part = name.split(":")[0]
    while part not in names:
        if "/" not in part:
            return None
        part = part.rsplit("/", 1)[0]
    return names[part]


def unique_name(value: Value) -> str:
    """OpenVINO's own name of the operation behind a value; ``==`` would make an Equal operation of the two."""
    return (value.get_node() if hasattr(value, "get_node") else value).get_name()


@final
class OpsetRecorder:
    """An operation set that remembers what was made with it."""

    def __init__(self, opset: Any) -> None:
        self.opset = opset
        self.made: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        make = getattr(self.opset, name)

        def recorded(*args: Any, **options: Any) -> Any:
            value = make(*args, **options)
            self.made.append(value)
            return value

        return recorded


@final
class OpenvinoNet(ChannelsFirst):
    """The model so far.

    Attributes:
        op: the operation set, `openvino.opset13`.
        ov: the package.
    """

    format = "openvino"

    def __init__(self) -> None:
        super().__init__()
        self.ov: Any = package()
        self.op: Any = OpsetRecorder(self.ov.opset13)
        self.principal: str | None = None
        self._constants: dict[tuple[str, Shape, bytes], Value] = {}

    def main(self, value: Value | None) -> None:
        """Say which operation stands for the node that is being written: the first one said does."""
        if self.principal is None and value is not None:
            name = unique_name(value)
            if any(unique_name(made) == name for made in self.op.made):
                self.principal = name

    def name_new(self, name: str) -> None:
        """Name what was made since the last call: the principal ``name``, the others ``name:1``, ``name:2``, ..."""
        count = 0
        for made in self.op.made:
            if unique_name(made) == self.principal:
                made.set_friendly_name(name)
            else:
                count += 1
                made.set_friendly_name(f"{name}:{count}")
        self.op.made.clear()
        self.principal = None

    def constant(self, data: NDArray) -> Value:
        """A constant of ``data``'s own type, one operation for all of equal content."""
        data = np.asarray(data, order="C")
        key = (data.dtype.name, data.shape, data.tobytes())
        if key not in self._constants:
            self._constants[key] = self._constant(data)
        return self._constants[key]

    def _constant(self, data: NDArray) -> Value:
        """Four-bit integers are packed, bfloat16 is widened and converted back."""
        dtype = data.dtype
        if dtype in (dtypes.int4, dtypes.uint4) and (data.ndim == 0 or math.prod(data.shape[1:]) % 2):
            # Rows that end inside a byte: the CPU plugin's 1x1 convolutions read them wrongly.
            return self.op.constant(data.astype(np.int8 if dtype == dtypes.int4 else np.uint8))
        if dtype in PORT_TYPES:
            return self.op.constant(data)
        if dtype in (dtypes.int4, dtypes.uint4):
            flat = data.reshape(-1).astype(np.int8).view(np.uint8) & 15
            flat = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
            packed = (flat[0::2] | flat[1::2] << 4).astype(np.uint8)
            kind = self.ov.Type.i4 if dtype == dtypes.int4 else self.ov.Type.u4
            # A tensor of its own memory: one around ``packed`` would not keep it alive.
            tensor = self.ov.Tensor(kind, self.ov.Shape(list(data.shape)))
            tensor.data[...] = packed.reshape(tensor.data.shape)
            return self.op.constant(tensor)
        if dtype == dtypes.bfloat16:
            return self.op.convert(self.op.constant(data.astype(np.float32)), "bf16")
        raise LoweringError("openvino: a constant's type", got=short_name(dtype), expected="bool, int or float types")

    def real(self, x: float | NDArray | np.floating[Any], like: DType = dtypes.float32) -> Value:
        """A small constant of the float type ``like``."""
        return self.constant(np.asarray(x, np.float32).astype(like))

    def ints(self, xs: Sequence[int] | int) -> Value:
        return self.constant(np.asarray(xs, np.int64))

    def dequantize(self, stored: Value, grid: Grid, ndim: int, axis: int | None = None) -> Value:
        """Convert, Subtract (if there is a zero point), Multiply: real values of stored integers."""
        scale = np.asarray(grid.scale, np.float32)
        if grid.axis is not None:
            at = grid.axis if axis is None else axis
            scale = scale.reshape(tuple(-1 if i == at else 1 for i in range(ndim)))
        value = self.op.convert(stored, np.float32)
        if grid.zero_point:
            value = self.op.subtract(value, self.real(grid.zero_point))
        return self.op.multiply(value, self.real(scale))

    def on_grid(self, value: Value, grid: Grid) -> Value:
        """The value rounded to ``grid`` and clipped to its range."""
        if grid.dtype not in LEVELS or grid.axis is not None:
            raise LoweringError(
                "openvino: a result's grid",
                got=f"{short_name(grid.dtype)}{' per axis' if grid.axis is not None else ''}",
                expected="int4, int8, uint8 or int16, one scale",
            )
        low, high = grid.bounds
        if grid.dtype == dtypes.int16 or max(-low, high) > FAR or len(value.shape) not in RANKS:
            # Written out: the CPU plugin drops FakeQuantize of 65536 levels, and with it the clipping; it multiplies by
            # the number of levels before it divides; and it has no kernel for other ranks.
            return self.op.multiply(self.numbers(value, grid), self.real(np.float32(np.max(grid.scale))))
        ends = [self.real(e) for e in (low, high, low, high)]
        return self.op.fake_quantize(value, *ends, 1 << bit_width(grid.dtype))

    def numbers(self, value: Value, grid: Grid) -> Value:
        """The stored integers of real values, less the zero point, as floats within the grid's limits."""
        steps = self.op.divide(value, self.real(np.float32(np.max(grid.scale))))
        low, high = grid.limits
        return self.op.clamp(
            self.op.round(steps, "half_to_even"), float(low - grid.zero_point), float(high - grid.zero_point)
        )

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        return self.op.reshape(value, self.ints(shape), False)

    def transposed(self, value: Value, perm: Sequence[int]) -> Value:
        return self.op.transpose(value, self.ints(perm))

    def fixed(self, data: NDArray, grid: Grid | None, axis: int | None) -> Value:
        value = self.constant(data)
        return value if grid is None else self.dequantize(value, grid, data.ndim, axis)

    def in_blocks(self, data: NDArray, scales: NDArray, axis: int) -> Value:
        """With a dimension for the elements of a block, which is how the plugins know compressed weights.

        OpenVINO 2026.4's CPU plugin reads other lengths than powers of two wrongly: these are rows of a matrix.
        """
        count, length = scales.shape[axis], data.shape[axis] // scales.shape[axis]
        cut = (*data.shape[:axis], count, length, *data.shape[axis + 1 :])
        if axis == data.ndim - 1 and length & (length - 1):
            cut, scales = (-1, length), scales.reshape(-1)
            axis = 0
        value = self.op.convert(self.constant(data.reshape(cut)), np.float32)
        value = self.op.multiply(value, self.real(np.expand_dims(scales, axis + 1)))
        return self.reshaped(value, data.shape)

    def exact(self, value: Value, grid: Grid) -> Value:
        """A value on a per-tensor grid to the last bit, as `Grid.dequantize` gives it.

        FakeQuantize leaves a real 0 at 1e-8 or so, which is enough to turn a sign or a comparison.
        """
        scale = self.real(np.asarray(grid.scale, np.float32))
        return self.op.multiply(self.op.round(self.op.divide(value, scale), "half_to_even"), scale)
