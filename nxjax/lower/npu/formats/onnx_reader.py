"""An ONNX model as it is read: the graph being made, and what each value of the file is in it.

Layouts are undone as they were made: a transposed value is the same tensor under other names for its dimensions, until
an operator asks for an order it does not have. Pairs of Quantize/DequantizeLinear become the grids of tensors; 8- and
16-bit unsigned storage becomes signed. Knows no operator but these: rules are given to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, LoweringError, NxError
from nxjax.lower.npu import infer
from nxjax.lower.npu.formats.onnx_build import UNSIGNED, Layout, identity, package
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.ops import OPS
from nxjax.lower.npu.rewrite import live
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import ROUNDINGS, Grid, Rounding
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

SIGNED: Final = {unsigned: (signed, offset) for signed, (unsigned, offset) in UNSIGNED.items()}
# Graph-level dtypes; ONNX has more.
DTYPES: Final = frozenset(
    [
        dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bool_, dtypes.int4, dtypes.int8, dtypes.uint8,
        dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.int64,
    ]
)  # fmt: skip
_MAX_SIZE: Final = 2**40
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def invalid(what: str, got: object = None) -> InvalidFileError:
    fix = "write the file anew; it is damaged, or not what it says it is"
    return InvalidFileError(f"onnx: {what}", got=got, fix=fix)


@final
@dataclass(frozen=True)
class LayoutView:
    """A value of the file: a tensor of the graph, dimension j of the value being ``layout[j]`` of the tensor.

    ``stored`` values are the tensor's integers plus ``offset``; others its real values.
    """

    tensor: Tensor
    layout: Layout
    stored: bool = False
    offset: int = 0


Rule = Callable[["OnnxReader", Any], None]


class OnnxReader:
    """The graph being made, and what each value of the file is in it."""

    def __init__(self, model: Any, rules: dict[str, Rule], body: Any = None) -> None:
        self.onnx = package()
        self.model, self.rules = model, rules
        self.body = body = model.graph if body is None else body
        self.opset = next((s.version for s in model.opset_import if s.domain in ("", "ai.onnx")), 0)
        self.constants: dict[str, NDArray] = {t.name: self.onnx.numpy_helper.to_array(t) for t in body.initializer}
        self.types = {v.name: v.type.tensor_type for v in [*body.input, *body.value_info, *body.output]}
        self.results = {v.name for v in body.output}
        self.readers: dict[str, list[Any]] = {}
        for n in body.node:
            for name in dict.fromkeys([*n.input, *captured(n)]):
                self.readers.setdefault(name, []).append(n)
        self.views: dict[str, LayoutView] = {}
        self.nodes: list[Node] = []
        self.done: set[int] = set()
        # What constants on a grid mean, under another shape.
        self.weights: dict[Tensor, NDArray] = {}
        self._moved: dict[tuple[Tensor, Layout], Tensor] = {}
        self._real: dict[Tensor, Tensor] = {}
        self._label = ""

    # The file.

    def attributes(self, n: Any) -> dict[str, Any]:
        return {a.name: self.onnx.helper.get_attribute_value(a) for a in n.attribute}

    def shape(self, name: str) -> tuple[int, ...]:
        """A value's shape, which must be static."""
        if name in self.constants:
            return self.constants[name].shape
        kind = self.types.get(name)
        if kind is None or not kind.HasField("shape"):
            raise invalid("a value of no known shape", name)
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if any(d < 0 for d in dims):
            fix = "give every dimension a number before reading"
            raise LoweringError("onnx: a dynamic shape", got=f"{name}: {dims}", fix=fix)
        if math.prod(dims) > _MAX_SIZE:
            raise invalid("a value of impossible shape", f"{name}: {dims[:32]}")
        return tuple(dims)

    def dtype(self, name: str) -> DType:
        if name in self.constants:
            return self.constants[name].dtype
        found = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(self.types[name].elem_type))
        if found not in DTYPES:
            raise LoweringError("onnx: a dtype that graphs do not have", got=f"{name}: {found}")
        return found

    def sole_reader(self, name: str, *kinds: str) -> Any:
        """The only operator that reads a value, if it is one of ``kinds`` and reads nothing else of it."""
        found = self.readers.get(name, [])
        if len(found) != 1 or name in self.results or found[0].op_type not in kinds or found[0].input[0] != name:
            return None
        return found[0]

    def constant(self, name: str) -> NDArray:
        """The value of an operand that must be constant: an axis, a shape, a scale."""
        found = self.constants.get(name)
        if found is None:
            raise LoweringError("onnx: an operand that must be constant is computed", got=f"{self._label}: {name}")
        return found

    def meant(self, name: str) -> NDArray:
        """The real values of an operand that must be known: a constant, or what one on a grid means."""
        view = self.views.get(name)
        if view is not None and view.tensor in self.weights:
            return self.weights[view.tensor].transpose(view.layout)
        if view is not None and view.tensor.data is not None and view.tensor.grid is not None:
            return view.tensor.grid.dequantize(view.tensor.data)
        return self.constant(name)

    # Grids.

    def grid(self, n: Any) -> Grid:
        """The grid of a Quantize- or DequantizeLinear, with signed storage."""
        scale = self.constant(n.input[1])
        if not np.issubdtype(scale.dtype, np.floating):
            raise invalid("a scale that is no float", n.name)
        zero = self.constant(n.input[2]) if len(n.input) > 2 and n.input[2] else np.zeros(scale.shape, np.uint8)
        signed, offset = SIGNED.get(zero.dtype, (zero.dtype, 0))
        if zero.shape != scale.shape or scale.ndim > 1 or (a := self.attributes(n)).get("block_size", 0):
            raise LoweringError("onnx: blocked or irregular quantization", got=n.name)
        if scale.ndim and scale.size > 1:
            if zero.any():
                raise LoweringError("onnx: zero points per channel other than 0", got=n.name)
            rank = len(self.shape(n.input[0]))
            axis = int(a.get("axis", 1))
            return Grid(signed, tuple(float(s) for s in scale), 0, axis % rank if rank else axis)
        return Grid(signed, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) - offset)

    def signed(self, data: NDArray) -> NDArray:
        signed, offset = SIGNED.get(data.dtype, (data.dtype, 0))
        return data if not offset else (data.astype(np.int32) - offset).astype(signed)

    # Operands.

    def view(self, name: str) -> LayoutView | None:
        """The view of a computed value; None for constants."""
        return self.views.get(name)

    def _constant_of(self, name: str) -> tuple[NDArray, Grid | None]:
        view = self.views.get(name)
        if view is not None:
            assert view.tensor.data is not None
            return view.tensor.data, view.tensor.grid
        if name not in self.constants:
            raise invalid("a value that nothing makes", name)
        return self.constants[name], None

    def is_constant(self, name: str) -> bool:
        view = self.views.get(name)
        return view.tensor.constant if view is not None else name in self.constants

    def is_weights(self, name: str) -> bool:
        """Whether a value is known: a constant, or what one means under another shape."""
        view = self.views.get(name)
        return self.is_constant(name) or (view is not None and view.tensor in self.weights)

    def layout(self, names: Sequence[str], rank: int) -> Layout:
        """The layout that computed operands of ``rank`` dimensions are held in; their own order if they differ."""
        live = [self.views[n] for n in names if not self.is_constant(n) and self.views[n].tensor.shape]
        found = {v.layout for v in live}
        return found.pop() if len(found) == 1 and all(len(v.layout) == rank for v in live) else identity(rank)

    def tensor(self, name: str, layout: Layout | None = None, real: bool = False) -> Tensor:
        """An operand as a tensor whose dimension ``layout[j]`` is the value's dimension j.

        ``real`` asks for a tensor without a grid, since the result has none.
        """
        if self.is_constant(name):
            return self._constant_tensor(name, layout)
        view = self.views.get(name)
        if view is None:
            raise invalid("a value that nothing makes", name)
        if view.stored and view.tensor.grid is not None:
            raise LoweringError("onnx: arithmetic on stored integers", got=f"{self._label}: {name}")
        t = self.dequantized(view.tensor) if real else view.tensor
        return self._ordered(t, view.layout, layout if layout is not None else identity(len(view.layout)))

    def _constant_tensor(self, name: str, layout: Layout | None) -> Tensor:
        data, grid = self._constant_of(name)
        if data.dtype not in DTYPES:
            raise LoweringError("onnx: a dtype that graphs do not have", got=f"{name}: {data.dtype}")
        if layout is not None and layout != identity(len(layout)) and data.ndim:
            missing = len(layout) - data.ndim
            data = data.reshape((1,) * missing + data.shape)
            if grid is not None and grid.axis is not None:
                grid = replace(grid, axis=layout[grid.axis + missing])
            data = np.ascontiguousarray(data.transpose(np.argsort(layout)))
        return Tensor(name, data.shape, data.dtype, grid, data)

    def _ordered(self, t: Tensor, have: Layout, want: Layout) -> Tensor:
        """``t``, whose dimensions a value has in the order ``have``, as a tensor that it has in the order ``want``."""
        if len(have) != len(want) or have == want:
            return t
        perm = tuple(have[want.index(i)] for i in range(len(want)))
        if (t, perm) not in self._moved:
            moved = Tensor(f"{t.name}_t", [t.shape[p] for p in perm], t.dtype, t.grid)  # pyright: ignore[reportArgumentType]
            self.nodes.append(Node("transpose", (t,), (moved,), {"permutation": perm}, name=f"{t.name}/transpose"))
            self._moved[t, perm] = moved
        return self._moved[t, perm]

    def dequantized(self, t: Tensor) -> Tensor:
        """The real values of a tensor as a tensor of their own."""
        if t.grid is None or t.constant:
            return t
        if t not in self._real:
            self._real[t] = Tensor(f"{t.name}_real", t.shape, dtypes.float32)
            self.nodes.append(Node("dequantize", (t,), (self._real[t],), name=f"{t.name}/dequantize"))
        return self._real[t]

    def known(self, t: Tensor, shape: Sequence[int], name: str, layout: Layout) -> None:
        """The value ``name`` is what a constant on a grid means, under another shape."""
        real = Tensor(f"{t.name}_real", t.shape, dtypes.float32)
        out = Tensor(name, tuple(shape), dtypes.float32)
        self.nodes.append(Node("dequantize", (t,), (real,), name=f"{name}/dequantize"))
        self.nodes.append(Node("reshape", (real,), (out,), {"shape": out.shape}, name=f"{name}/reshape"))
        self.views[name] = LayoutView(out, layout)
        assert t.data is not None and t.grid is not None
        self.weights[out] = t.grid.dequantize(t.data).reshape(out.shape)

    # Results.

    def next_grid(self, name: str) -> tuple[Grid | None, Any]:
        """The grid that a real value goes to, and the operator that takes it there, if that is all that reads it."""
        q = self.sole_reader(name, QUANTIZE)
        return (None, None) if q is None else (self.grid(q), q)

    def emit(
        self,
        op: str,
        operands: Sequence[tuple[str, Layout | None] | None],
        outputs: Sequence[str],
        layout: Layout | Sequence[Layout],
        attrs: dict[str, Any] | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Write a node of the graph that makes the values ``outputs``, each in ``layout``."""
        layouts = [layout] * len(outputs) if not layout or isinstance(layout[0], int) else list(layout)
        grids = [self.next_grid(o) for o in outputs]
        floating = dtype is None and self.dtype(outputs[0]) in dtypes.FLOAT
        real = floating and (any(g is None for g, _ in grids) or not self._on_grids(operands))
        ins = [None if o is None else self.tensor(o[0], o[1], real) for o in operands]
        # Weights stay on their grids when the results are real: they are compressed, not computed with.
        if real and not OPS[op].weighted:
            ins = [t if t is None or t.grid is None else self._plain(t) for t in ins]
        made: list[Tensor] = []
        for name, (grid, q), held in zip(outputs, grids, layouts, strict=True):
            order: Any = held
            shape = self.shape(name)
            own = tuple(shape[order.index(i)] for i in range(len(shape)))
            kept = grid if not real else None
            t = Tensor(name, own, kept.dtype if kept else dtype or self.dtype(name), kept)
            made.append(t)
            self.views[name] = LayoutView(t, order)
            if kept is not None:
                self.views[q.output[0]] = LayoutView(t, order, stored=True)
                self.done.add(id(q))
        self.nodes.append(Node(op, tuple(ins), tuple(made), attrs or {}, name=self._label))

    def _on_grids(self, operands: Sequence[tuple[str, Layout | None] | None]) -> bool:
        """Whether an operator computes in integers: some operand has a grid, and none is computed in floats."""
        found = False
        for name in [o[0] for o in operands if o is not None]:
            view = self.views.get(name)
            if view is None:
                continue
            found = found or view.tensor.grid is not None
            if view.tensor.grid is None and not view.tensor.constant and view.tensor.dtype in dtypes.FLOAT:
                return False
        return found

    def _plain(self, t: Tensor) -> Tensor:
        assert t.grid is not None and t.data is not None
        return Tensor(t.name, t.shape, dtypes.float32, None, t.grid.dequantize(t.data))

    # The whole.

    def graph(self) -> NpuGraph:
        inputs: list[Tensor] = []
        for v in self.body.input:
            if v.name in self.constants:
                continue
            dtype, grid = self.dtype(v.name), None
            signed, offset = SIGNED.get(dtype, (dtype, 0))
            pair = next((n for n in self.readers.get(v.name, []) if n.op_type == DEQUANTIZE), None)
            if pair is not None:
                grid = self.grid(pair)
            elif dtype in SIGNED or dtype in UNSIGNED:
                grid = Grid(signed, 1.0, -offset)
            inputs.append(Tensor(v.name, self.shape(v.name), signed, grid))
            self.views[v.name] = LayoutView(inputs[-1], identity(len(inputs[-1].shape)), stored=grid is not None)
        return self._whole(inputs)

    def part(self, body: Any, names: Sequence[str], types: Sequence[tuple[Shape, DType]] = ()) -> NpuGraph:
        """A graph of the file within this one: of the values ``names`` of this one that it reads, then its inputs.

        ``types`` are those of its inputs, which files may leave out.
        """
        inputs = [v.name for v in body.input]
        if types:
            body = self._typed(body, names, types)
        inner = OnnxReader(self.model, self.rules, body)
        inner.constants, inner.types = self.constants | inner.constants, self.types | inner.types
        tensors = [inner.given(name, self.shape(name), self.dtype(name)) for name in names]
        # What is known here is known there.
        inner.views.update((name, v) for name, v in self.views.items() if v.tensor.constant)
        for n in self.nodes:
            if not self.weights.keys().isdisjoint(n.outputs):
                inner.nodes += [m for m in self.nodes if n.inputs[0] in m.outputs] + [n]
        inner.weights.update(self.weights)
        inner.views.update((name, v) for name, v in self.views.items() if v.tensor in self.weights)
        tensors += [inner.given(name, *kind) for name, kind in zip(inputs, types, strict=True)]
        graph = inner._whole(tensors)
        if any(t.grid is not None for t in graph.outputs):
            raise LoweringError("onnx: a graph within another that gives stored integers", got=body.name)
        return live(graph)

    def _typed(self, body: Any, names: Sequence[str], types: Sequence[tuple[Shape, DType]]) -> Any:
        """A graph with the types of all its values: what a loop carries has no shape for ONNX, which may change."""
        helper, graph = self.onnx.helper, self.onnx.GraphProto()
        graph.CopyFrom(body)
        del graph.input[:]
        kinds = [(v.name, *kind) for v, kind in zip(body.input, types, strict=True)]
        made = {name for n in body.node for name in n.output} | {v.name for v in (*body.input, *body.initializer)}
        around = dict.fromkeys(x for n in body.node for x in (*n.input, *captured(n)) if x and x not in made)
        for name in {**dict.fromkeys(names), **around}:
            if name in self.constants:
                graph.initializer.append(self.onnx.numpy_helper.from_array(self.constants[name], name))
            else:
                kinds.append((name, self.shape(name), self.dtype(name)))
        for name, shape, dtype in kinds:
            graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape))
        model = helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        return self.onnx.shape_inference.infer_shapes(model, data_prop=True).graph

    def given(self, name: str, shape: Sequence[int], dtype: DType) -> Tensor:
        """An input on no grid."""
        t = Tensor(name, tuple(shape), dtype)
        self.views[name] = LayoutView(t, identity(len(t.shape)))
        return t

    def _whole(self, inputs: list[Tensor]) -> NpuGraph:
        for n in self.body.node:
            if id(n) not in self.done:
                self._label = n.name
                self.rules[n.op_type](self, n)
        outputs = [self._output(v.name) for v in self.body.output]
        meta = {p.key: p.value for p in self.model.metadata_props}
        for made in self.nodes:
            try:
                infer.check(made)
            except NxError as e:
                raise invalid(f"{made.name or made.op}: {e.what.removeprefix('graph: ')}", e.got) from None
        named: list[Rounding] = [r for r in ROUNDINGS if r == meta.get("nxjax.rounding")]
        graph = NpuGraph(self.body.name, inputs, outputs, self.nodes, named[0] if named else "double").check()
        # What is known may have been read at once.
        return live(graph) if self.weights else graph

    def _output(self, name: str) -> Tensor:
        if self.is_constant(name):
            return self._constant_tensor(name, None)
        view = self.views.get(name)
        if view is None:
            raise invalid("an output that nothing makes", name)
        t = view.tensor if view.stored else self.dequantized(view.tensor)
        return self._ordered(t, view.layout, identity(len(view.layout)))


# What rules ask of a node and of the reader.


def refuse(n: Any, what: str) -> LoweringError:
    return LoweringError(f"onnx: {n.op_type} {what}", got=n.name)


def held(n: Any) -> list[Any]:
    """The graphs that an operator holds."""
    return [a.g for a in n.attribute if a.HasField("g")]


def captured(n: Any) -> list[str]:
    """The values that the graphs within an operator read of those around it, each once."""
    found: dict[str, None] = {}
    for body in held(n):
        own = {v.name for v in (*body.input, *body.initializer)}
        for inner in body.node:
            found.update(dict.fromkeys(x for x in (*inner.input, *captured(inner)) if x and x not in own))
            own.update(inner.output)
        found.update(dict.fromkeys(v.name for v in body.output if v.name not in own))
    return list(found)


def name_at(n: Any, i: int) -> str | None:
    """An operand's name; None where it is left out."""
    return (n.input[i] or None) if i < len(n.input) else None


def numbers(r: OnnxReader, n: Any, i: int, attr: str | None = None) -> list[int] | None:
    """Integers that are a constant operand, or in older operator sets an attribute."""
    name = name_at(n, i)
    if name is not None:
        return [int(v) for v in np.atleast_1d(r.constant(name))]
    found = r.attributes(n).get(attr or "")
    return None if found is None else [int(v) for v in found]


def own_layout(r: OnnxReader, name: str) -> Layout:
    view = r.view(name)
    return view.layout if view is not None and not view.tensor.constant else identity(len(r.shape(name)))
