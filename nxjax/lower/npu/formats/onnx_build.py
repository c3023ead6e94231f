"""ONNX values while a graph is written: which layout each is held in, and the QDQ pair around every real operation.

ONNX convolves channels first, the graph channels last. A tensor is therefore held under a *layout*: ONNX dimension j
is the tensor's dimension ``layout[j]``. Operations that do not care run in the layout at hand, a transpose of the graph
only renames dimensions, so what remains in the file are the transposes at the edges. Knows no operator of the graph.

A tensor with a grid is held as integers; who computes with it reads ``DequantizeLinear`` of them, and its maker ends in
``QuantizeLinear``. Every reader has its own DequantizeLinear, since ONNX Runtime's node units want it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.errors import LoweringError, MissingExtraError
from nxjax.lower.npu.blocks import BlockedWeights, blocked, reads, stored_matrices, taken_off
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, unique
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

Layout = tuple[int, ...]
Style = Literal["qdq", "qdq-pow2", "float"]

NCHW: Final[Layout] = (0, 3, 1, 2)
# Signed storage, its unsigned twin, and what to add to an integer to get there.
UNSIGNED: Final[dict[DType, tuple[DType, int]]] = {
    dtypes.int8: (dtypes.uint8, 128),
    dtypes.int16: (dtypes.uint16, 32768),
}
# Since this opset the standard Quantize/DequantizeLinear take 16-bit and 4-bit integers, and blocks with scales.
WIDE_QDQ: Final = 21


def package() -> Any:
    """The ``onnx`` package."""
    try:
        import onnx
    except ImportError as e:
        fix = "pip install 'nxjax[onnx]'"
        raise MissingExtraError("ONNX files need a package that is not installed", got=e, fix=fix) from e
    return onnx


def identity(rank: int) -> Layout:
    return tuple(range(rank))


@final
@dataclass(frozen=True)
class OnnxOptions:
    """How a graph is written.

    Attributes:
        opset: version of the standard operator set, 13 or later.
        style: "qdq" with Quantize/DequantizeLinear pairs, "qdq-pow2" the same but refusing other scales than powers of
            two, "float" without grids.
        unsigned: int8 activations as uint8 and int16 as uint16, integers and zero points moved by the same amount.
        integer_products: dynamic products as MatMulInteger and ConvInteger; else in floats on the same grids.
    """

    opset: int = 17
    style: Style = "qdq"
    unsigned: bool = False
    integer_products: bool = True


@final
@dataclass
class Port:
    """A graph input or output in the file: its ONNX name and what is added to the tensor's integers there."""

    name: str
    tensor: Tensor
    offset: int = 0
    dtype: DType = field(default_factory=lambda: dtypes.float32)

    def encode(self, x: NDArray) -> NDArray:
        """The tensor's stored form as the file's."""
        x = np.asarray(x, order="C")  # ascontiguousarray gives numbers a dimension
        if x.dtype == self.dtype:
            return x
        grid = self._dropped
        return (x.astype(np.int32) + self.offset).astype(self.dtype) if grid is None else grid.dequantize(x)

    def decode(self, x: NDArray) -> NDArray:
        """The file's form as the tensor's."""
        kept, grid = self.tensor.dtype, self._dropped
        if x.dtype == kept:
            return x
        return (x.astype(np.int32) - self.offset).astype(kept) if grid is None else grid.quantize(x)

    @property
    def _dropped(self) -> Grid | None:
        """The tensor's grid where the file holds its real values."""
        return self.tensor.grid if self.dtype in dtypes.FLOAT else None


class OnnxBuilder:
    """The file being written: nodes, constants, and where each tensor of the graph is held."""

    def __init__(self, onnx: Any, graph: NpuGraph, options: OnnxOptions, outer: OnnxBuilder | None = None) -> None:
        self.onnx = onnx
        self.options = options
        self.opset = options.opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.owners: dict[str, Node | None] = {}
        # Names are unique through all graphs of a file.
        self.notes: list[str] = [] if outer is None else outer.notes
        self.domains: set[str] = set() if outer is None else outer.domains
        self._names: dict[str, int] = {} if outer is None else outer._names
        self._makers: dict[str, Any] = {}
        self._held: dict[Tensor, dict[Layout, str]] = {}
        self._claimed: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._current: Node | None = None
        self._label = "edge"
        self._node_names: dict[str, int] = {} if outer is None else outer._node_names
        self.labels = {n: unique(n.name or n.op, self._node_names) for n in graph.nodes}
        # Weights in blocks are one operation, written for each that reads them.
        self.matrices = stored_matrices(graph)
        newer = self.opset >= WIDE_QDQ and options.style == "qdq"
        off = taken_off(graph)
        found = {n.output: b for n in graph.nodes if newer and (b := blocked(n, off)) is not None}
        self.blocks: dict[Tensor, BlockedWeights] = found
        self.read = {t for n in graph.nodes for t in reads(n, found, self.matrices)} | set(graph.outputs)
        self.names: dict[Tensor, str] = {}
        for t in graph.tensors():
            self.names[t] = unique(t.name or "t", self._names)

    # Graphs inside of this one.

    def inside(self, graph: NpuGraph, inline: bool = False) -> OnnxBuilder:
        """What writes ``graph``, which a node holds: as a graph of its own, or ``inline`` among this one's nodes."""
        inner = OnnxBuilder(self.onnx, graph, self.options, self)
        if inline:
            inner.nodes, inner.initializers = self.nodes, self.initializers
        return inner

    def own(self, inner: OnnxBuilder) -> None:
        """Count what ``inner`` wrote to the node that is being written."""
        self.owners.update(dict.fromkeys(inner.owners, self._current))

    def bind(self, t: Tensor, name: str) -> None:
        """``t`` is a value that has a name already."""
        self._held[t] = {identity(len(t.shape)): name}
        self._claimed.add(name)

    def fresh(self, name: str) -> str:
        """A name that nothing has."""
        return unique(f"{self._label}/{name}", self._names)

    # Whose operations are being written.

    def enter(self, node: Node | None) -> None:
        self._current = node
        self._label = "edge" if node is None else self.labels[node]

    def refuse(self, what: str, fix: str | None = None) -> LoweringError:
        source = self._current.source if self._current else None
        return LoweringError(f"onnx: {what}", got=self._label, fix=fix, source=source)

    # Nodes and constants.

    def op(self, kind: str, inputs: Sequence[str], /, suffix: str = "", domain: str = "", **attrs: Any) -> str:
        """Write one ONNX node with one output; gives the output's name."""
        return self.ops(kind, inputs, 1, suffix=suffix, domain=domain, **attrs)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], count: int, /, suffix: str = "", domain: str = "", **attrs: Any
    ) -> list[str]:
        """Write one ONNX node with ``count`` outputs."""
        name = self._label
        if suffix or name in self.owners or self._current is None:
            name = unique(f"{self._label}/{suffix or 'part'}", self._node_names)
        outputs = [unique(f"{name}:{i}" if count > 1 else f"{name}:out", self._names) for i in range(count)]
        made = self.onnx.helper.make_node(kind, list(inputs), outputs, name=name, domain=domain or None, **attrs)
        if domain:
            self.domains.add(domain)
        self.nodes.append(made)
        self._makers.update(dict.fromkeys(outputs, made))
        self.owners[name] = self._current
        return outputs

    def constant(self, value: Any, dtype: Any = np.int64, name: str = "const") -> str:
        """An initializer, shared by all that have the same value."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            fresh = unique(name, self._names)
            self.initializers[fresh] = self.onnx.numpy_helper.from_array(array, fresh)
            self._constants[key] = fresh
        return self._constants[key]

    # Grids.

    def grid(self, t: Tensor) -> Grid | None:
        """The grid that the file gives ``t``: None in float files."""
        return None if self.options.style == "float" else t.grid

    def stored_grid(self, grid: Grid, weight: bool = False) -> tuple[Grid, int]:
        """The grid with the file's storage dtype, and what is added to integers on the way there."""
        if grid.dtype == dtypes.int4 and self.opset < WIDE_QDQ:
            return replace(grid, dtype=dtypes.int8), 0
        if not self.options.unsigned or weight or grid.axis is not None or grid.dtype not in UNSIGNED:
            return grid, 0
        dtype, offset = UNSIGNED[grid.dtype]
        return replace(grid, dtype=dtype, zero_point=grid.zero_point + offset), offset

    def stored_dtype(self, t: Tensor) -> tuple[DType, int]:
        """The element type of ``t`` in the file, and what is added to its integers."""
        grid = self.grid(t)
        if grid is None:
            return (dtypes.float32 if t.grid is not None else t.dtype), 0
        stored, offset = self.stored_grid(grid)
        return stored.dtype, offset

    def _linear(self, kind: str, value: str, grid: Grid, axis: int | None, suffix: str) -> str:
        scale = self.constant(grid.scale, np.float32, "scale")
        shape = () if grid.axis is None else np.shape(grid.scale)
        zero = self.constant(np.full(shape, grid.zero_point), grid.dtype, "zero")
        wide = grid.dtype in (dtypes.int16, dtypes.uint16, dtypes.int4) and self.opset < WIDE_QDQ
        attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
        return self.op(kind, [value, scale, zero], suffix, "com.microsoft" if wide else "", **attrs)

    def dequantize(self, value: str, grid: Grid, layout: Layout = (), suffix: str = "dq") -> str:
        """Real values of stored ones; ``grid`` is the file's."""
        axis = None if grid.axis is None else layout.index(grid.axis)
        return self._linear("DequantizeLinear", value, grid, axis, suffix)

    def quantize(self, value: str, grid: Grid, layout: Layout = (), suffix: str = "q") -> str:
        axis = None if grid.axis is None else layout.index(grid.axis)
        return self._linear("QuantizeLinear", value, grid, axis, suffix)

    # Reading tensors.

    def layouts(self, t: Tensor) -> list[Layout]:
        """The layouts in which ``t`` is held, the one it was made in first."""
        return list(self._held[t])

    def agree(self, tensors: Iterable[Tensor], rank: int) -> Layout:
        """A layout of ``rank`` dimensions that costs the fewest transposes of ``tensors``."""
        live = [t for t in tensors if not t.constant and t.shape]
        if not live or any(len(t.shape) != rank for t in live):
            return identity(rank)
        votes: dict[Layout, int] = {}
        for t in live:
            for layout in self.layouts(t):
                votes[layout] = votes.get(layout, 0) + t.size
        return max(votes, key=lambda k: votes[k])

    def stored(self, t: Tensor, layout: Layout | None = None) -> str:
        """The name that holds ``t`` as the file stores it, in ``layout``."""
        if t.constant:
            return self._constant(t, layout or identity(len(t.shape)))[0]
        if t in self.blocks:
            return self._of_blocks(t, self.blocks[t], layout or identity(len(t.shape)))
        held = self._held[t]
        if layout is None:
            layout = next(iter(held))
        if layout not in held:
            have, name = next(iter(held.items()))
            perm = [have.index(axis) for axis in layout]
            grid = self.grid(t)
            if grid is None:
                value = self.op("Transpose", [name], "transpose", perm=perm)
            else:
                stored, _ = self.stored_grid(grid)
                real = self.dequantize(name, stored, have, "transpose_dq")
                value = self.op("Transpose", [real], "transpose", perm=perm)
                value = self.quantize(value, stored, layout, "transpose_q")
            self.hold(t, value, layout)
        return held[layout]

    def real(self, t: Tensor, layout: Layout | None = None, weight: bool = False) -> str:
        """The name of ``t``'s real values in ``layout``: what an operation computes with."""
        layout = identity(len(t.shape)) if layout is None else layout
        if t.constant:
            name, grid, axes = self._constant(t, layout, weight)
            return name if grid is None else self.dequantize(name, grid, axes)
        if not t.shape:
            layout = ()
        name, grid = self.stored(t, layout), self.grid(t)
        return name if grid is None else self.dequantize(name, self.stored_grid(grid)[0], layout)

    def _constant(self, t: Tensor, layout: Layout, weight: bool = False) -> tuple[str, Grid | None, Layout]:
        """Initializer of a constant, its grid in the file, and the layout that names its axes."""
        assert t.data is not None
        data, grid = t.data, t.grid
        if grid is not None and self.options.style == "float":
            data, grid = grid.dequantize(data), None
        offset = 0
        if grid is not None:
            grid, offset = self.stored_grid(grid, weight)
            data = (data.astype(np.int64) + offset).astype(grid.dtype)
        missing = len(layout) - data.ndim
        if data.ndim and missing:
            data = data.reshape((1,) * missing + data.shape)
            grid = grid if grid is None or grid.axis is None else replace(grid, axis=grid.axis + missing)
        elif not data.ndim:
            layout = ()
        key = (t, layout, offset)
        if key not in self._constants:
            plain = (
                layout == identity(len(layout)) and not missing and not offset and self.names[t] not in self._claimed
            )
            name = self.names[t] if plain else unique(f"{self.names[t]}_c", self._names)
            self._claimed.add(name)
            self.initializers[name] = self.onnx.numpy_helper.from_array(
                np.asarray(data.transpose(layout), order="C"), name
            )
            self._constants[key] = name
        return self._constants[key], grid, layout

    def _of_blocks(self, t: Tensor, w: BlockedWeights, layout: Layout) -> str:
        return self.in_blocks(f"{self.names[t]}_blocks", w, layout)

    def in_blocks(self, name: str, w: BlockedWeights, layout: Layout) -> str:
        """Weights in blocks as real values."""
        stored = self.constant(w.data.transpose(layout), w.data.dtype, name)
        scales = self.constant(w.scales.transpose(layout), np.float32, f"{name}_scales")
        axis = layout.index(len(layout) - 1)
        return self.op("DequantizeLinear", [stored, scales], "dq", axis=axis, block_size=w.length)

    def scratch(self, name: str, data: NDArray, grid: Grid | None) -> Tensor:
        """A constant that the graph does not have."""
        t = Tensor(name, data.shape, data.dtype, grid, data)
        self.names[t] = unique(name, self._names)
        return t

    # Holding results.

    def hold(self, t: Tensor, value: str, layout: Layout) -> None:
        """``t`` is held by ``value``, which the file stores as ``t`` is stored."""
        wanted = self.names[t]
        made = self._makers.get(value)
        if made is not None and value not in self._claimed and layout == identity(len(layout)):
            outputs = list(made.output)
            outputs[outputs.index(value)] = wanted
            del made.output[:]
            made.output.extend(outputs)
            self._makers[wanted] = self._makers.pop(value)
            value = wanted
        self._claimed.add(value)
        self._held.setdefault(t, {})[layout] = value

    def result(self, t: Tensor, value: str, layout: Layout | None = None) -> None:
        """``t`` has the real values ``value``: quantize them if it has a grid, and hold it."""
        layout = identity(len(t.shape)) if layout is None else layout
        grid = self.grid(t)
        if grid is not None:
            value = self.quantize(value, self.stored_grid(grid)[0], layout)
        self.hold(t, value, layout)

    def port_in(self, t: Tensor) -> Port:
        name, (dtype, offset) = self.names[t], self.stored_dtype(t)
        self.bind(t, name)
        return Port(name, t, offset, dtype)

    def port_out(self, t: Tensor, taken: set[str]) -> Port:
        """The graph's output ``t``, in the graph's own layout, under a name no other output has."""
        name = self.stored(t, identity(len(t.shape)))
        if name not in self._makers or name in taken:
            name = self.op("Identity", [name], "out")
        dtype, offset = self.stored_dtype(t)
        return Port(name, t, offset, dtype)
