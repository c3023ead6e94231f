"""An ONNX model as plain data: graphs of nodes, their attributes as Python values, tensors as NumPy arrays.

Bytes are not trusted: sizes, nesting and the places of external tensors are checked before they are used. Large tensors
stay in the file until something reads them. Knows the protocol buffers of the `onnx` package; knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, MissingExtraError
from nxjax.interop.graphs.mapped import mapped
from nxjax.interop.graphs.values import ValueInfo
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]

# How deep graphs may lie in one another, how many elements sparse tensors may have that no file stores, and axes.
DEPTH: Final = 32
_UNSTORED: Final = 1 << 26
_RANK: Final = 64
_STANDARD: Final = ("", "ai.onnx")


def package() -> Any:
    """The ``onnx`` package."""
    try:
        import onnx
    except ImportError as e:
        fix = "pip install 'nxjax[onnx]'"
        raise MissingExtraError("from_onnx: a package is not installed", got=e, expected="onnx", fix=fix) from e
    return onnx


def invalid(what: str, got: object) -> InvalidFileError:
    """The error for a file that is damaged or hostile."""
    return InvalidFileError(f"from_onnx: {what}", got=str(got)[:300])


def qualified(domain: str, kind: str, overload: str = "") -> str:
    """The name of an operator: ``Conv``, or ``com.microsoft::Gelu`` outside the standard domain.

    A function of a file may have more than one body by the same name: ``local::Scale:second``.
    """
    name = kind if domain in _STANDARD else f"{domain}::{kind}"
    return f"{name}:{overload}" if overload else name


@final
@dataclass(frozen=True)
class AttributeReference:
    """An attribute of a node in a function's body, that the function's caller gives."""

    name: str


@final
@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One operator.

    Attributes:
        kind: its name, with its domain unless that is the standard one.
        inputs, outputs: names of values, empty where one is left out.
        attributes: Python values; tensors as arrays, graphs as `OnnxGraph`.
        opset: the version of its domain.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    @property
    def title(self) -> str:
        """Its name, or that of its first result."""
        return self.name or next((y for y in self.outputs if y), self.kind)

    def __str__(self) -> str:
        return f"{self.kind} {self.name or '-> ' + ', '.join(self.outputs)}"[:120]


@final
@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """Nodes in an order in which they can run, with the tensors that are stored beside them.

    Attributes:
        proto: what it was read from, for ONNX's own schemas.
        defaults: of the body of a function, the attributes that a caller may leave out.
    """

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, NDArray]
    proto: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])


def inside(node: OnnxNode) -> list[OnnxGraph]:
    """The graphs that a node has."""
    return [a for a in node.attributes.values() if isinstance(a, OnnxGraph)]


def read_by(graph: OnnxGraph) -> set[str]:
    """Names of the values that a graph or one inside it reads, its own and those around it."""
    found = {name for n in graph.nodes for name in n.inputs} | {p.name for p in graph.outputs}
    return found.union(*(read_by(inner) for n in graph.nodes for inner in inside(n)))


def _ordered(nodes: tuple[OnnxNode, ...]) -> tuple[OnnxNode, ...]:
    """Nodes in an order in which they can run: as they stand, if they can. A ring stays for the walk to refuse."""
    makers = {name: i for i, n in enumerate(nodes) for name in n.outputs if name}
    needs = [
        {makers[name] for name in {*n.inputs}.union(*map(read_by, inside(n))) if name in makers} - {i}
        for i, n in enumerate(nodes)
    ]
    if all(j < i for i, some in enumerate(needs) for j in some):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for i, some in enumerate(needs):
        for j in some:
            users[j].append(i)
    left = [len(some) for some in needs]
    ready = [i for i, count in enumerate(left) if not count]
    for i in ready:
        for k in users[i]:
            left[k] -= 1
            if not left[k]:
                ready.append(k)
    return tuple(nodes[i] for i in (*ready, *(i for i, count in enumerate(left) if count)))


@final
@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A graph, the functions that the file defines for itself, and texts that it has by key."""

    graph: OnnxGraph
    functions: Mapping[str, OnnxGraph] = field(default_factory=dict[str, OnnxGraph])
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


def weights_of_nodes(graph: Any) -> dict[str, Any]:
    """Tensors that `Constant` nodes of a `GraphProto` hold, by the name of the value; single numbers aside.

    Some exporters write all weights so, instead of beside the graph.
    """
    nodes = [n for n in graph.node if n.op_type == "Constant" and n.domain in _STANDARD and len(n.output) == 1]
    held = {_text(n.output[0]): a.t for n in nodes for a in n.attribute if a.name == "value" and not a.ref_attr_name}
    return {name: t for name, t in held.items() if math.prod(t.dims) > 1}


def dtype_of(code: int) -> Any:
    """The NumPy dtype of a `TensorProto` element type; object for strings.

    Raises:
        InvalidFileError: no element type.
    """
    try:
        return np.dtype(package().helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, TypeError, ValueError) as e:
        raise invalid("an element type that ONNX does not have", code) from e


@final
class ModelReader:
    """Turns protocol buffers into `OnnxGraph`s.

    Attributes:
        stripped: numbers of the tensors in the graph whose elements are not in the protocol buffer.
    """

    def __init__(
        self, folder: Path | None, elements: Mapping[int, NDArray] | None = None, anywhere: bool = False
    ) -> None:
        # `anywhere`: tensors may lie outside the folder.
        self._folder, self._anywhere = folder, anywhere
        # Bytes of tensors that are not in the protocol buffer, by their number in the graph.
        self._elements = elements or {}
        self.stripped = frozenset(self._elements)
        self._files: dict[Path, NDArray] = {}
        self._unstored = 0

    def __getstate__(self) -> dict[str, Any]:
        # Elements that were read are in the model; other files are mapped again when something reads them.
        return {**self.__dict__, "_elements": {}, "_files": {}}

    def model(self, proto: Any) -> OnnxFile:
        if not proto.HasField("graph") or not proto.opset_import:
            raise invalid("a model without a graph or without an operator set", "an incomplete file")
        opsets = _opsets(proto)
        functions = {_named(f, f.name): self.function(f) for f in proto.functions}
        metadata = {_text(p.key): _text(p.value) for p in proto.metadata_props}
        return OnnxFile(self.graph(proto.graph, opsets, 0), functions, metadata)

    def function(self, proto: Any) -> OnnxGraph:
        opsets = _opsets(proto)
        nodes = tuple(self._node(n, opsets, 0) for n in proto.node)
        ports = lambda names: tuple(ValueInfo(_text(name), None, None) for name in names)
        defaults = {_text(a.name): self._attribute(a, opsets, 0) for a in proto.attribute_proto}
        _check_names(proto.name, [*proto.input, *(y for n in nodes for y in n.outputs)])
        return OnnxGraph(
            _text(proto.name), _ordered(nodes), ports(proto.input), ports(proto.output), {}, defaults=defaults
        )

    def graph(self, proto: Any, opsets: Mapping[str, int], depth: int) -> OnnxGraph:
        if depth > DEPTH:
            raise invalid(f"graphs lie in one another more than {DEPTH} deep", proto.name)
        elements = {} if depth else self._elements
        stored = {_text(t.name): self.tensor(t, elements.get(i)) for i, t in enumerate(proto.initializer)}
        stored.update((_text(t.values.name), self._dense(t)) for t in proto.sparse_initializer)
        given = tuple(p for p in map(_port, proto.input) if p.name not in stored)
        held = {} if depth else weights_of_nodes(proto)
        stored.update((name, self.tensor(t)) for name, t in held.items())
        kept = [n for n in proto.node if n.op_type != "Constant" or held.keys().isdisjoint(map(_text, n.output))]
        nodes = tuple(self._node(n, opsets, depth) for n in kept)
        _check_names(proto.name, [*stored, *(p.name for p in given), *(y for n in nodes for y in n.outputs)])
        return OnnxGraph(
            _text(proto.name), _ordered(nodes), given, tuple(map(_port, proto.output)), stored, proto if depth else None
        )

    def _node(self, n: Any, opsets: Mapping[str, int], depth: int) -> OnnxNode:
        domain = _text(n.domain)
        domain = "" if domain in _STANDARD else domain
        attributes = {_text(a.name): self._attribute(a, opsets, depth) for a in n.attribute}
        kind = _named(n, n.op_type)
        names = lambda given: tuple(map(_text, given))
        return OnnxNode(kind, _text(n.name), names(n.input), names(n.output), attributes, opsets.get(domain, 1))

    def _attribute(self, a: Any, opsets: Mapping[str, int], depth: int) -> Any:
        if a.ref_attr_name:
            return AttributeReference(_text(a.ref_attr_name))
        kinds = package().AttributeProto
        if a.type == kinds.TENSOR:
            return self.tensor(a.t)
        if a.type == kinds.GRAPH:
            return self.graph(a.g, opsets, depth + 1)
        if a.type == kinds.SPARSE_TENSOR:
            return self._dense(a.sparse_tensor)
        if a.type == kinds.TENSORS:
            return tuple(map(self.tensor, a.tensors))
        if a.type == kinds.GRAPHS:
            return tuple(self.graph(g, opsets, depth + 1) for g in a.graphs)
        if a.type == kinds.STRING:
            return _text(a.s)
        if a.type == kinds.STRINGS:
            return tuple(map(_text, a.strings))
        if a.type in (kinds.FLOAT, kinds.INT):
            return a.f if a.type == kinds.FLOAT else a.i
        if a.type in (kinds.FLOATS, kinds.INTS):
            return tuple(a.floats if a.type == kinds.FLOATS else a.ints)
        return None

    def tensor(self, t: Any, elements: NDArray | None = None) -> NDArray:
        """The array of a `TensorProto`; one that lies outside is a view of its file, or of ``elements``.

        Raises:
            InvalidFileError: its bytes are not as many as its shape says, or lie where they may not.
        """
        onnx = package()
        dtype, shape = dtype_of(t.data_type), tuple(t.dims)
        if any(d < 0 for d in shape):
            raise invalid("a tensor with a negative dimension", f"{t.name}: {shape}")
        if t.data_location == onnx.TensorProto.EXTERNAL:
            return self._external(t, dtype, shape)
        if elements is not None:
            return self._viewed(t, dtype, shape, elements, 0)
        try:
            x = np.asarray(onnx.numpy_helper.to_array(t))
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as e:
            raise invalid("a tensor's bytes do not fit its shape", f"{t.name}: {e}") from e
        if x.dtype == object:
            return np.array([_text(v) for v in x.reshape(-1)], object).reshape(x.shape)
        x.flags.writeable = False
        return x

    def _external(self, t: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray:
        entries = {_text(e.key): _text(e.value) for e in t.external_data}
        location = entries.get("location", "")
        if self._folder is None:
            fix = "give the path of the model instead of its bytes"
            raise InvalidFileError("from_onnx: a tensor lies outside the file", got=location, fix=fix)
        base = self._folder.resolve()
        try:
            path = (base / location).resolve()
            offset = int(entries.get("offset", "0"))
            found = path.is_file()
        except (ValueError, OSError, RuntimeError) as e:
            # Names that are too long, and links in a ring.
            raise invalid("a tensor's place is none", f"{location[:100]}: {e}") from e
        if base not in path.parents and not self._anywhere:
            raise InvalidFileError(
                "from_onnx: a tensor lies outside the folder", got=location, expected=f"a file in {base}",
                fix="trusted=True, if you know where the model comes from",
            )  # fmt: skip
        if not found:
            raise invalid("the file of a tensor is not there", path)
        if path not in self._files:
            self._files[path] = mapped(path)
        return self._viewed(t, dtype, shape, self._files[path], offset)

    def _viewed(self, t: Any, dtype: Any, shape: tuple[int, ...], data: NDArray, offset: int) -> NDArray:
        """A tensor whose bytes lie in ``data``."""
        bits = dtypes.bit_width(dtype) if dtype in dtypes.NUMERIC else 8 * dtype.itemsize
        size = (math.prod(shape) * bits + 7) // 8
        if dtype.kind == "O" or offset < 0 or offset + size > data.size:
            raise invalid("a tensor lies beyond its bytes", f"{_text(t.name)}: {offset} + {size} of {data.size}")
        piece = data[offset : offset + size]
        if bits < 8:
            held = package().TensorProto(data_type=t.data_type, dims=shape, raw_data=piece.tobytes())
            return np.asarray(package().numpy_helper.to_array(held))
        # Elements that are not aligned are copied once, when something reads them.
        return piece.view(dtype).reshape(shape)

    def _dense(self, t: Any) -> NDArray:
        values, places = self.tensor(t.values), self.tensor(t.indices)
        shape = tuple(t.dims)
        size = math.prod(shape)
        # An empty one, too, may have only so many elements in its other axes.
        self._unstored += math.prod(max(n, 1) for n in shape)
        if any(d < 0 for d in shape) or len(shape) > _RANK or self._unstored > _UNSTORED + 64 * values.size:
            raise invalid("sparse tensors of too many elements", shape)
        try:
            flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape)
        except (ValueError, TypeError) as e:
            raise invalid("a sparse tensor's indices lie outside it", e) from e
        if values.ndim != 1 or flat.shape != values.shape or flat.dtype.kind not in "iu":
            raise invalid("a sparse tensor without one index for each element", f"{values.shape}, {places.shape}")
        if flat.size and (flat.min() < 0 or flat.max() >= size or (np.diff(flat) <= 0).any()):
            raise invalid("a sparse tensor's indices lie outside it, or are not in order", shape)
        dense = np.zeros(size, values.dtype)
        dense[flat] = values
        return dense.reshape(shape)


def _check_names(graph: str, names: Sequence[Any]) -> None:
    """Raise unless each value has one maker."""
    seen = set[str]()
    for name in map(_text, names):
        if name in seen:
            raise invalid(f"graph {_text(graph)[:100]!r} makes a value twice", name)
        if name:
            seen.add(name)


def _opsets(proto: Any) -> dict[str, int]:
    return {"" if _text(o.domain) in _STANDARD else _text(o.domain): o.version for o in proto.opset_import}


def _named(proto: Any, kind: Any) -> str:
    """The name of the operator that a node is, or that a function defines."""
    return qualified(_text(proto.domain), _text(kind), _text(getattr(proto, "overload", "")))


def _text(raw: Any) -> str:
    """A text of a protocol buffer, which gives bytes where a damaged file's are no UTF-8."""
    return raw if isinstance(raw, str) else bytes(raw).decode("utf-8", "surrogateescape")


def _port(v: Any) -> ValueInfo:
    kind, name = v.type.WhichOneof("value"), _text(v.name)
    if kind != "tensor_type":
        return ValueInfo(name, None, None, kind is None)
    t = v.type.tensor_type
    dims: tuple[int | str, ...] | None = None
    if t.HasField("shape"):
        # Some exporters write -1 or "?" for a size that is not known.
        dims = tuple(
            d.dim_value
            if d.HasField("dim_value") and d.dim_value >= 0
            else _text(d.dim_param).strip("?") or f"{name}.{i}"
            for i, d in enumerate(t.shape.dim)
        )
    return ValueInfo(name, dtype_of(t.elem_type) if t.elem_type else None, dims)


def parsed(data: bytes) -> Any:
    """The `ModelProto` of some bytes.

    Raises:
        InvalidFileError: no ONNX model.
    """
    model = package().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as e:
        # The protocol buffer library raises an error class of its own, by version.
        raise invalid("these bytes are no ONNX model", f"{len(data)} bytes; {e}") from e
    return model
