"""TFLite operators while a graph is written: constants, padding, biases. Knows of ops what windows and biases are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.blocks import BlockedWeights, reads, stored_matrices
from nxjax.lower.npu.formats.tflite_schema import SAME, TYPE_NUMBERS, VALID
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

# From so many elements on, zero points are a small part of weights in blocks.
_LONG_ROW: Final = 128
# Writes an operator: name, inputs, outputs, options.
Emit = Callable[..., None]


# Places of inputs that an operator keeps its state in: variables.
VARIABLES: Final = {"UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19), "UNIDIRECTIONAL_SEQUENCE_RNN": (4,)}
# Places of an operator's inputs that are feature maps; the others are parameters (shapes, axes, weights, biases).
_MAPS: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(
        ("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "RESHAPE", "TRANSPOSE", "PAD", "PADV2"), (0,)
    ),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "ARG_MAX", "ARG_MIN"), (0,)),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE", "SPLIT_V", "TILE", "REVERSE_V2", "BROADCAST_TO", "CUMSUM"), (0,)),
    **dict.fromkeys(VARIABLES, (0,)),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "GATHER", "ONE_HOT", "TOPK_V2"), (0,)),
    "SPLIT": (1,),
    **dict.fromkeys(("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"), (2,)),
}


@final
@dataclass(eq=False)
class TFLiteOperator:
    """One TFLite operator: its name there, operands and results in the file's order, options, and whose node it is."""

    name: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    node: Node | None = None

    @property
    def maps(self) -> list[Tensor]:
        """The feature maps that it reads."""
        places = _MAPS.get(self.name, range(len(self.inputs)))
        return [t for i in places if (t := self.inputs[i]) is not None]

    @property
    def every_map(self) -> list[Tensor]:
        """The feature maps that it reads and writes."""
        return [*self.maps, *self.outputs]

    @property
    def variables(self) -> list[Tensor]:
        """The variables that it keeps its state in."""
        return [t for i in VARIABLES.get(self.name, ()) if (t := self.inputs[i]) is not None]

    @property
    def first(self) -> Tensor:
        """The feature map that it reads first."""
        return self.maps[0]

    @property
    def weights(self) -> Tensor:
        """The weights of a convolution or a fully connected layer."""
        found = self.inputs[1]
        assert found is not None
        return found

    def known(self, i: int) -> NDArray:
        """The value of an operand that is constant in every file."""
        t = self.inputs[i]
        assert t is not None and t.data is not None
        return t.data

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a reduction, from 0 up."""
        rank = len(self.first.shape)
        return tuple(sorted({int(a) % rank for a in np.atleast_1d(self.known(1))}))

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of a window."""
        if "filter_height" in self.options:
            return self.options["filter_height"], self.options["filter_width"]
        shape = self.weights.shape
        return shape[1], shape[2]

    @property
    def stride(self) -> tuple[int, int]:
        """Vertical and horizontal stride of a window."""
        return self.options["stride_h"], self.options["stride_w"]

    @property
    def dilation(self) -> tuple[int, int]:
        """Vertical and horizontal dilation of a window."""
        return self.options.get("dilation_h_factor", 1), self.options.get("dilation_w_factor", 1)


def same_padding(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """What SAME pads one axis with: so much that ``ceil(size / stride)`` windows fit, the odd one at the end."""
    total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def windowed(padding: int, strides: Sequence[int], activation: int = 0, **sizes: Sequence[int]) -> dict[str, Any]:
    """Options of an operator of windows.

    >>> windowed(VALID, (1, 2), filter=(3, 4))  # doctest: +NORMALIZE_WHITESPACE
    {'padding': 1, 'stride_h': 1, 'stride_w': 2, 'fused_activation_function': 0, 'filter_height': 3, 'filter_width': 4}
    """
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    options["fused_activation_function"] = activation
    names = {"filter": ("filter_height", "filter_width"), "dilations": ("dilation_h_factor", "dilation_w_factor")}
    return options | {name: n for key, size in sizes.items() for name, n in zip(names[key], size, strict=True)}


def integers(name: str, values: Sequence[int]) -> Tensor:
    """A constant row of integers, such as axes."""
    return Tensor(name, (len(values),), dtypes.int32, None, np.asarray(values, np.int32))


def look_up(emit: Emit, x: Tensor, out: Tensor, entries: Tensor, half: Tensor) -> None:
    """``out`` from its value for each of the 256 integers: index + 128 looks it up, exactly."""
    index, shifted = (Tensor(f"{out.name}/{part}", x.shape, dtypes.int32) for part in ("index", "shifted"))
    emit("CAST", [x], [index], in_data_type=TYPE_NUMBERS[x.dtype], out_data_type=TYPE_NUMBERS[dtypes.int32])
    emit("ADD", [index, half], [shifted], fused_activation_function=0)
    emit("GATHER", [entries, shifted], [out], axis=0)


@final
class TFLiteWriter:
    """Collects the operators of a graph, and the constants and intermediate tensors they need."""

    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.read = {t for n in graph.nodes for t in n.operands} | set(graph.outputs)
        # Weights that are made of stored integers, those in blocks, and what is read of all else.
        self.matrices = stored_matrices(graph)
        self.blocks = {n.output: w for n in graph.nodes if n.op == "reshape" and (w := self.matrices.get(n.output))}
        self.apart = {t for n in graph.nodes for t in reads(n, self.blocks, self.matrices)} | set(graph.outputs)
        self._makers = graph.producers()
        self._off_grid: dict[Any, Tensor] = {}
        self.operations: list[TFLiteOperator] = []
        self.shared: dict[tuple[str, Shape, bytes, Grid | None], Tensor] = {}
        self.node: Node | None = None

    def emit(self, name: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], **options: Any) -> None:
        self.operations.append(TFLiteOperator(name, list(inputs), list(outputs), options, self.node))

    def constant(self, values: Any, dtype: DType = dtypes.int32, grid: Grid | None = None) -> Tensor:
        """A constant of ours, such as a shape; equal ones are one tensor."""
        try:
            data = np.asarray(values, dtype)
        except OverflowError:
            raise LoweringError(
                "tflite: a size that does not fit the format",
                got=values,
                expected=f"numbers of {dtypes.short_name(dtype)}",
                source=self.node.source if self.node is not None else None,
            ) from None
        key = (dtype.name, data.shape, data.tobytes(), grid)
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = Tensor(f"const_{len(self.shared)}", data.shape, dtype, grid, data)
        return found

    def meant(self, t: Tensor, part: int, w: BlockedWeights) -> Tensor:
        """What a part of ``t`` means that is made of the stored integers ``w``; equal ones are one tensor."""
        key = (w.data.shape, w.scales.shape, w.data.tobytes(), w.scales.tobytes())
        if key not in self._off_grid:
            self._off_grid[key] = Tensor(f"{t.name}/{part}", w.data.shape, dtypes.float32)
            self.off_grid(w, self._off_grid[key], t)
        return self._off_grid[key]

    def off_grid(self, w: BlockedWeights, out: Tensor, t: Tensor) -> None:
        """``out`` is what stored integers of ``t`` mean: in short blocks off a grid of scale 1, and times their scales.

        Each scale of a tensor has a zero point of 8 bytes beside it, which is half of 32 weights of 4 bits.
        """
        dtype, here, shaped = w.data.dtype, self.node, self._makers[t]
        rows, scales = w.data.reshape(-1, w.length), w.scales.reshape(-1, 1)
        whole = rows.shape == out.shape
        real, steps = (Tensor(f"{out.name}/{part}", rows.shape, dtypes.float32) for part in ("rows", "steps"))
        short = w.length < _LONG_ROW and not whole
        grid = Grid(dtype, 1.0) if short else Grid(dtype, tuple(map(float, scales[:, 0])), 0, 0)
        self.node = shaped if shaped.op == "dequantize" else self._makers[shaped.operand()]
        made = out if whole else steps if short else real
        self.emit("DEQUANTIZE", [Tensor(f"{out.name}/stored", rows.shape, dtype, grid, rows)], [made])
        if short:
            self.emit("MUL", [steps, self.constant(scales, dtypes.float32)], [real], fused_activation_function=0)
        self.node = shaped
        if not whole:
            self.emit("RESHAPE", [real, self.constant(out.shape)], [out], new_shape=out.shape)
        self.node = here

    def between(self, like: Tensor, shape: Shape, what: str) -> Tensor:
        """A tensor that no node of the graph has, of ``like``'s dtype and grid."""
        return Tensor(f"{like.name}/{what}", shape, like.dtype, like.grid)

    def refuse(self, node: Node, why: str, fix: str) -> LoweringError:
        return LoweringError(f"tflite: {node.op} has no TFLite form", got=why, fix=fix, source=node.source)

    def pad(self, x: Tensor, pads: Sequence[tuple[int, int]], value: float | None, out: Tensor | None = None) -> Tensor:
        """``x`` with a border: of zeros, or of the real ``value``."""
        shape = tuple(n + low + high for n, (low, high) in zip(x.shape, pads, strict=True))
        out = self.between(x, shape, "padded") if out is None else out
        widths = self.constant(np.asarray(pads).reshape(len(pads), 2))
        if value is None or value == 0:
            self.emit("PAD", [x, widths], [out])
            return out
        if x.grid is not None:
            limit = x.grid.limits[0] if value == -np.inf else None
            stored = np.asarray(limit) if limit is not None else x.grid.quantize(np.asarray(value, np.float32))
            if stored == x.grid.zero_point:
                # The least value of what a relu gave, which more chips can pad with than with any number.
                self.emit("PAD", [x, widths], [out])
                return out
        elif value == -np.inf and x.dtype in dtypes.INTEGER:
            stored = np.asarray(dtypes.integer_info(x.dtype).min)
        else:
            stored = np.asarray(value)
        self.emit("PADV2", [x, widths, self.constant(stored, x.dtype, x.grid)], [out])
        return out

    def word(self, node: Node, x: Tensor) -> int | None:
        """The padding word that says the border of a convolution or pooling; None where none does."""
        attrs = node.attrs
        size = attrs["window"] if "window" in attrs else node.operand(1).shape[1:3]
        if not any(map(any, attrs["padding"])):
            return VALID
        rows = zip(x.shape[1:3], size, attrs["strides"], attrs.get("dilations", (1, 1)), strict=True)
        return SAME if attrs["padding"] == tuple(same_padding(*row) for row in rows) else None

    def window(self, node: Node, x: Tensor, border: float | None) -> tuple[Tensor, int]:
        """The padding word of a convolution or pooling, and its operand, padded in front if no word says it."""
        word, pads = self.word(node, x), node.attrs["padding"]
        if word is not None:
            return x, word
        if min(n for p in pads for n in p) < 0:
            raise self.refuse(node, f"padding {pads}", "slice the operand first")
        if node.op == "average_pool_2d":
            raise self.refuse(node, f"padding {pads}, which is not counted", "pad as SAME does, or not at all")
        return self.pad(x, ((0, 0), *pads, (0, 0)), border), VALID

    def bias(self, node: Node, x: Tensor, w: Tensor) -> Tensor:
        """The bias of a convolution, zeros if it has none; on its grid of scale x's times w's."""
        b = node.inputs[2] if len(node.inputs) > 2 else None
        channels = node.output.shape[-1]
        if x.grid is None or w.grid is None:
            return b if b is not None else self.constant(np.zeros(channels), dtypes.float32)
        if b is not None and b.grid is not None:
            return b
        wide = dtypes.int64 if x.dtype == dtypes.int16 else dtypes.int32
        grid = bias_grid(x.grid, w.grid, b.dtype if b is not None else wide)
        if b is None:
            return self.constant(np.zeros(channels), wide, grid)
        return Tensor(b.name, b.shape, b.dtype, grid, b.data)


def bias_grid(x: Grid, w: Grid, dtype: DType) -> Grid:
    """The grid of stored biases: scale of x times scale of w, per channel if w's is."""
    assert not isinstance(x.scale, tuple)
    if isinstance(w.scale, tuple):
        scales = (np.asarray(w.scale) * x.scale).astype(np.float32)
        return Grid(dtype, tuple(scales.tolist()), 0, 0)
    return Grid(dtype, float(np.float32(x.scale * w.scale)))
