"""The state of one Core ML program under construction: values, layouts, grids, names.

Knows tensors, no op: `coreml_ops` says what an op becomes, `coreml_writer` walks the graph. Reals are float16 between
the program's ends, since that is what the Neural Engine computes in; a tensor on an 8-bit grid is a value behind a
quantize and dequantize pair, which is the form that Core ML turns into int8 arithmetic; weights stay stored integers
behind ``constexpr_affine_dequantize`` (8 bits) or ``constexpr_blockwise_shift_scale`` (4 bits). Images are channels
first from the first op that wants them so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, short_name

# A variable of the program.
Value = Any

TO_FIRST: Final = (0, 3, 1, 2)
TO_LAST: Final = (0, 2, 3, 1)
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


def unique(names: Iterable[str], taken: set[str]) -> list[str]:
    """Names made clean and different from one another and from ``taken``, which they are added to."""
    found: list[str] = []
    for base in map(clean, names):
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        found.append(name)
    return found


def port_names(graph: NpuGraph) -> tuple[list[str], list[str]]:
    """The names of a program's inputs and results: the tensors' own, made clean and different."""
    taken: set[str] = set()
    return unique((t.name for t in graph.inputs), taken), unique((t.name for t in graph.outputs), taken)


def node_names(graph: NpuGraph) -> list[str]:
    """The operation that stands for each node; apart from the names of inputs and results."""
    inputs, outputs = port_names(graph)
    return unique((n.name or f"{n.op}_{i}" for i, n in enumerate(graph.nodes)), {*inputs, *outputs})


def last_axis(rank: int, axis: int, first: bool) -> int:
    """Where a channels-last axis lies in the layout that is used."""
    axis %= max(rank, 1)
    return TO_FIRST.index(axis) if first and rank == 4 else axis


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
class Net:
    """Values of the tensors so far, in one or both layouts.

    Attributes:
        op: the builder.
        types: coremltools' types.
        real: the float type of everything between the ends.
        notes: what could not be said exactly.
    """

    def __init__(self, real: DType) -> None:
        from coremltools.converters.mil import Builder as make
        from coremltools.converters.mil.mil import types

        self.op: Any = MilBuilder(make)
        self.types: Any = types
        self.real = real
        self.notes: list[str] = []
        self.values: dict[Tensor, dict[bool, Value]] = {}
        self.natural: dict[Tensor, bool] = {}
        # What constants on a grid are called once they are taken off it -> the constants.
        self.taken: dict[Tensor, Tensor] = {}

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
            return self.op.reshape(x=value, shape=list(shape))
        return self.op.squeeze(x=value) if value.shape else value

    def turn(self, value: Value, shape: Sequence[int], first: bool) -> Value:
        """An image of channels-last ``shape`` brought to the other layout; a reshape where no element moves."""
        n, h, w, c = shape
        if c == 1 or h * w == 1:
            return self.op.reshape(x=value, shape=[n, c, h, w] if first else [n, h, w, c])
        return self.op.transpose(x=value, perm=list(TO_FIRST if first else TO_LAST))

    def literal(self, t: Tensor, first: bool = False, shape: Sequence[int] | None = None) -> Value:
        """A constant tensor: reals, or integers where it has no grid and is none."""
        assert t.data is not None
        data = t.data if shape is None else t.data.reshape(tuple(shape))
        axis = None if t.grid is None or t.grid.axis is None else t.grid.axis % len(t.shape) + data.ndim - len(t.shape)
        if first:
            data = data.transpose(TO_FIRST)
            axis = None if axis is None else TO_FIRST.index(axis)
        if t.grid is not None:
            return self.stored(data, t.grid, axis)
        return self.op.const(val=self.array(data))

    def get(self, t: Tensor, first: bool = False) -> Value:
        """The value of a tensor, channels first if asked for (then of rank 4)."""
        known = self.values.setdefault(t, {})
        if first not in known:
            if t.data is not None:
                known[first] = self.literal(t, first)
            else:
                known[first] = self.turn(known[not first], t.shape, first)
        return known[first]

    def widened(self, t: Tensor, rank: int, first: bool) -> Value:
        """An operand of an elementwise op brought to ``rank`` by leading ones, so that it broadcasts in ``first``."""
        if len(t.shape) == rank or not first:
            return self.get(t, first and len(t.shape) == 4)
        shape = (1,) * (rank - len(t.shape)) + t.shape
        if t.data is not None:
            return self.literal(t, first, shape)
        return self.turn(self.op.reshape(x=self.get(t), shape=list(shape)), shape, first)

    def channels_first(self, t: Tensor | None) -> bool:
        """Whether the tensor was made channels first."""
        return t is not None and self.natural.get(t, False)

    def follow(self, result: Tensor, operands: Iterable[Tensor]) -> bool:
        """The layout of an elementwise op: channels first if any image it reads is, and its result is an image."""
        return len(result.shape) == 4 and any(self.channels_first(t) for t in operands)

    def put(self, t: Tensor, value: Value, first: bool) -> None:
        self.values[t] = {first: value}
        self.natural[t] = first
