"""The state of one Core ML program under construction: values, layouts, grids, names.

Knows tensors, no op: `coreml_ops` says what an op becomes, `coreml_writer` walks the graph. Reals are float16 between
the program's ends, since that is what the Neural Engine computes in; a tensor on an 8-bit grid is a value behind a
quantize and dequantize pair, which is the form that Core ML turns into int8 arithmetic; weights stay stored integers
behind ``constexpr_affine_dequantize`` (8 bits) or ``constexpr_blockwise_shift_scale`` (4 bits). Images are channels
first from the first op that wants them so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.channels_first import ChannelsFirst, Value
from nxjax.lower.npu.graph import NpuGraph, unique
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, short_name

# Core ML's arrays end at this rank.
MAX_RANK: Final = 5
EIGHT: Final = frozenset((dtypes.int8, dtypes.uint8))
REALS: Final = frozenset((dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bfloat16))
# Numbers below are subnormal in float16 and lose digits; there are none above.
LEAST: Final = 2.0**-14
MOST: Final = 65504.0


def clean(name: str) -> str:
    """A name of letters, digits and underscores that starts with no digit, as the program text wants it."""
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if not text or text[0].isdigit() else text


def port_names(graph: NpuGraph) -> tuple[list[str], list[str]]:
    """The names of a program's inputs and results: the tensors' own, made clean and different."""
    taken: dict[str, int] = {}
    inputs, outputs = ([unique(clean(t.name), taken) for t in ts] for ts in (graph.inputs, graph.outputs))
    return inputs, outputs


def node_names(graph: NpuGraph) -> list[str]:
    """The operation that stands for each node; apart from the names of inputs and results."""
    inputs, outputs = port_names(graph)
    taken = dict.fromkeys([*inputs, *outputs], 0)
    return [unique(clean(n.name or f"{n.op}_{i}"), taken) for i, n in enumerate(graph.nodes)]


@final
class MilBuilder:
    """coremltools' builder; every operation gets a name of the node that is being written."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.prefix = ""
        self.count = 0
        self.made: list[Any] = []

    def start(self, prefix: str) -> None:
        self.prefix, self.count = prefix, 0
        self.made.clear()

    def __getattr__(self, name: str) -> Any:
        make = getattr(self.make, name)

        def named(**arguments: Any) -> Any:
            self.count += 1
            value = make(**{"name": f"{self.prefix}_op{self.count}"} | arguments)
            self.made += value if isinstance(value, (list, tuple)) else [value]
            return value

        return named


@final
class CoremlNet(ChannelsFirst):
    """The program so far.

    Attributes:
        op: the builder.
        types: coremltools' types.
        real: the float type of everything between the ends.
        notes: what could not be said exactly.
    """

    format = "coreml"

    def __init__(self, real: DType) -> None:
        super().__init__()
        from coremltools.converters.mil import Builder as make
        from coremltools.converters.mil.mil import types

        self.op: Any = MilBuilder(make)
        self.types: Any = types
        self.real = real
        self.notes: list[str] = []

    def inside(self) -> CoremlNet:
        """What writes a block of this program: its constants are its own."""
        inner = CoremlNet(self.real)
        inner.op, inner.notes = self.op, self.notes
        return inner

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def kind(self, dtype: DType) -> str:
        """The name of the type that stands for a dtype between the ends."""
        if dtype in REALS:
            return {dtypes.float16: "fp16", dtypes.float32: "fp32"}[self.real]
        return "bool" if dtype == dtypes.bool_ else "int32"

    def reals(self, data: NDArray) -> NDArray:
        """Real constants; what float16 has no number for becomes its largest, as masks of minus infinity do."""
        if self.real == dtypes.float16 and data.size and float(np.max(np.abs(data))) > MOST:
            self.note("constants beyond 65504 were brought into float16's range")
            data = np.clip(data, -MOST, MOST)
        return data.astype(self.real)

    def number(self, x: float) -> Any:
        """A real scalar constant."""
        return self.reals(np.asarray(x, np.float64))[()]

    def array(self, data: NDArray) -> NDArray:
        """A constant in the type that stands for its own."""
        if data.dtype in REALS:
            return self.reals(data)
        if data.dtype == dtypes.bool_:
            return data
        if data.dtype not in dtypes.INTEGER:
            raise LoweringError("coreml: a constant's type", got=short_name(data.dtype))
        wide = data.astype(np.int64)
        if wide.size and (wide.max() > np.iinfo(np.int32).max or wide.min() < np.iinfo(np.int32).min):
            raise LoweringError("coreml: a constant does not fit in int32", got=short_name(data.dtype))
        return wide.astype(np.int32)

    def name_main(self, value: Value, name: str) -> None:
        """Let the operation behind ``value`` bear the node's name, if this node made it."""
        if any(value.op is made.op for made in self.op.made if made.op is not None):
            value.op.name = name
            if len(value.op.outputs) == 1:
                value.name = name

    def stored(self, data: NDArray, grid: Grid, axis: int | None) -> Value:
        """A constant of stored integers as reals; ``axis`` has a scale per slice if the grid has."""
        scale = np.asarray(grid.scale, np.float32)
        if scale.ndim:
            # A slice of zeros is zero on any scale, and has often none that fits.
            others = tuple(i for i in range(data.ndim) if i != axis)
            scale = np.where(np.any(data.astype(np.int32) != 0, axis=others), scale, np.float32(1))
        if data.ndim == 0 or data.dtype not in (*EIGHT, dtypes.int4) or self.unscalable(scale):
            shape = tuple(-1 if i == axis else 1 for i in range(data.ndim)) if scale.ndim else ()
            reals = (data.astype(np.int32) - grid.zero_point).astype(np.float32) * scale.reshape(shape)
            return self.op.const(val=self.reals(reals))
        if data.dtype == dtypes.int4:
            shape = tuple(scale.size if i == axis else 1 for i in range(data.ndim))
            four = self.types.nptype_from_builtin(self.types.int4)
            # A grid of four bits has zero point 0: stored weights are symmetric.
            return self.op.constexpr_blockwise_shift_scale(
                data=data.astype(np.int8).astype(four), scale=scale.astype(self.real).reshape(shape)
            )
        zero = np.full(scale.shape, grid.zero_point, data.dtype)
        return self.op.constexpr_affine_dequantize(
            quantized_data=data,
            zero_point=zero if zero.ndim else zero[()],
            scale=scale.astype(self.real) if scale.ndim else self.real.type(scale),
            axis=np.int32(axis or 0),
        )

    def in_blocks(self, data: NDArray, scales: NDArray, axis: int) -> Value:
        """A block of zeros is zero on any scale, and has often none that fits."""
        cut = (*data.shape[:axis], scales.shape[axis], -1, *data.shape[axis + 1 :])
        rows = data.astype(np.int8).reshape(cut)
        scales = np.where(np.any(rows != 0, axis + 1), scales, np.float32(1))
        if self.unscalable(scales):
            reals = rows.astype(np.float32) * np.expand_dims(scales, axis + 1)
            return self.op.const(val=self.reals(reals.reshape(data.shape)))
        four = data.dtype == dtypes.int4
        stored = data.astype(np.int8).astype(self.types.nptype_from_builtin(self.types.int4)) if four else data
        return self.op.constexpr_blockwise_shift_scale(data=stored, scale=scales.astype(self.real))

    def unscalable(self, scale: NDArray) -> bool:
        """Whether scales are too small or too large for float16; then the reals themselves are kept."""
        apart = self.real == dtypes.float16 and not LEAST <= float(scale.min()) <= float(scale.max()) * 256 <= MOST
        if apart:
            self.note(
                "scales below 2**-14 or above 255 do not fit float16: weights are kept as float16, activations are "
                "quantized in float32"
            )
        return apart

    def on_grid(self, value: Value, grid: Grid, result: str) -> Value:
        """The value rounded to ``grid``: quantize, then dequantize."""
        if grid.dtype not in EIGHT or grid.axis is not None:
            self.note(f"{short_name(grid.dtype)} activations have no quantized form in Core ML: {result} stays float16")
            return value
        scale = np.asarray(grid.scale, np.float32)
        wide = self.unscalable(scale)
        if wide:
            value = self.op.cast(x=value, dtype="fp32")
        kind = np.float32 if wide else self.real.type
        ends = {"zero_point": grid.dtype.type(grid.zero_point), "scale": kind(scale)}
        stored = self.op.quantize(input=value, output_dtype=grid.dtype.name, **ends)
        value = self.op.dequantize(input=stored, **ends)
        return self.narrowed(value) if wide else value

    def narrowed(self, value: Value) -> Value:
        """A float32 value in float16, within its range."""
        return self.op.cast(x=self.op.clip(x=value, alpha=np.float32(-MOST), beta=np.float32(MOST)), dtype="fp16")

    def numbers(self, value: Value, grid: Grid) -> Value:
        """The stored integers of a value on a grid, as int32; counted in float32, which holds 16 bits exactly."""
        step = np.float32(1 / np.float64(np.max(grid.scale)))
        steps = self.op.round(x=self.op.mul(x=self.op.cast(x=value, dtype="fp32"), y=step))
        low, high = (np.float32(v - grid.zero_point) for v in grid.limits)
        steps = self.op.clip(x=steps, alpha=low, beta=high)
        if grid.zero_point:
            steps = self.op.add(x=steps, y=np.float32(grid.zero_point))
        return self.op.cast(x=steps, dtype="int32")

    def meant(self, stored: Value, grid: Grid) -> Value:
        """Reals of int32 stored integers."""
        wide = self.op.cast(x=stored, dtype="fp32")
        if grid.zero_point:
            wide = self.op.sub(x=wide, y=np.float32(grid.zero_point))
        reals = self.op.mul(x=wide, y=np.float32(np.max(grid.scale)))
        return self.narrowed(reals) if self.real == dtypes.float16 else reals

    def shaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape; without dimensions it is squeezed, which reshapes cannot say."""
        if shape:
            return self.reshaped(value, shape)
        return self.op.squeeze(x=value) if value.shape else value

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        return self.op.reshape(x=value, shape=list(shape))

    def transposed(self, value: Value, perm: Sequence[int]) -> Value:
        return self.op.transpose(x=value, perm=list(perm))

    def fixed(self, data: NDArray, grid: Grid | None, axis: int | None) -> Value:
        return self.op.const(val=self.array(data)) if grid is None else self.stored(data, grid, axis)
