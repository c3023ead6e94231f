"""Files of `torch.export.save` as `TorchProgram`, without PyTorch: a zip of a graph in JSON and of raw tensors.

Nothing in a file is executed or unpickled; sizes, names and nesting are checked before they are used, and tensors are
mapped into memory. Format: torch/_export/serde/schema.py of PyTorch, schema version 8.
"""

from __future__ import annotations

import ast
import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, final

import numpy as np

from nxjax.errors import InvalidFileError
from nxjax.files import safe_io
from nxjax.interop.graphs.mapped import MappedZip, mapped, strided
from nxjax.interop.graphs.values import Refused, ValueInfo
from nxjax.interop.torch.functional import functional
from nxjax.interop.torch.graph import (
    BUFFER,
    CONSTANT,
    LEAF,
    PARAMETER,
    USER,
    Container,
    FileBytes,
    NodeRef,
    TorchGraph,
    TorchNode,
    TorchProgram,
    field_names,
    module_path,
)
from nxjax.trace import dtypes
from nxjax.trace.array import wrap

NDArray = np.ndarray[Any, Any]
_SCHEMA: Final = 8
_DTYPES: Final[dict[int, Any]] = {
    1: dtypes.uint8, 2: dtypes.int8, 3: dtypes.int16, 4: dtypes.int32, 5: dtypes.int64, 6: dtypes.float16,
    7: dtypes.float32, 8: dtypes.float64, 10: dtypes.complex64, 11: dtypes.complex128, 12: dtypes.bool_,
    13: dtypes.bfloat16, 28: dtypes.uint16, 29: dtypes.float8_e4m3fn, 30: dtypes.float8_e5m2, 34: dtypes.uint32,
    35: dtypes.uint64,
}  # fmt: skip
# The largest graph, how deep graphs and containers may lie in one another, and axes of a tensor.
_GRAPH: Final = 1 << 28
_DEPTH: Final = 32
_RANK: Final = 16
_TEXT: Final = 1000
_DAMAGE: Final = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError,
    NotImplementedError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_KINDS: Final = {"parameter": PARAMETER, "buffer": BUFFER, "tensor_constant": CONSTANT}
_WRITTEN: Final = {"buffer_mutation": "buffer_name", "user_input_mutation": "user_input_name"}


def read_program(source: Path | bytes) -> TorchProgram:
    """A file, or its bytes.

    Raises:
        InvalidFileError: a damaged file.
        OSError: no such file.
        Refused: something that nxjax cannot take, such as objects of classes.
    """
    name = "program" if isinstance(source, bytes) else source.name
    data = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else mapped(source)
    try:
        archive = _Archive(MappedZip(data))
        return archive.program(re.sub(r"\W", "_", name.removesuffix(".pt2")) or "program")
    except (InvalidFileError, Refused):
        raise
    except _DAMAGE as error:
        raise InvalidFileError(
            f"from_torch: {name} is no file of torch.export.save, or damaged",
            got=f"{type(error).__name__}: {str(error)[:200]}",
        ) from error


def _invalid(what: str, got: object) -> NoReturn:
    raise InvalidFileError(f"from_torch: {what}", got=str(got)[:200])


@final
class _Archive:
    """One file being read."""

    def __init__(self, archive: MappedZip) -> None:
        self._archive, self._names = archive, archive.names

    def program(self, name: str) -> TorchProgram:
        models = [n for n in self._names if n.startswith("models/") and n.endswith(".json")]
        if len(models) != 1:
            _invalid("a file of one graph is needed", f"{len(models)} of them")
        held = self._json(models[0])
        version = held["schema_version"]["major"]
        if version != _SCHEMA:
            _invalid("a version of the format that nxjax does not know", f"{version}, not {_SCHEMA}")
        module = held["graph_module"]
        graph, signature = module["graph"], module["signature"]
        # A parameter of several names is called by its first one.
        names: dict[str, str] = {}
        weights = self._tensors("weights", names)
        saved = dict(names)
        arrays = {**weights, **self._tensors("constants", names)}
        kinds: list[tuple[str, str]] = []
        ports: list[Any] = []
        for spec in signature["input_specs"]:
            ((kind, content),) = spec.items()
            if kind in _KINDS:
                given = str(content[f"{kind}_name"])
                kinds.append((_KINDS[kind], names.get(given, given)))
                if kinds[-1][1] not in arrays:
                    _invalid("a tensor of the graph is not in the file", kinds[-1][1])
            elif kind == "user_input":
                ports.append(_port(content["arg"], graph))
                kinds.append((USER, getattr(ports[-1], "name", "")))
            elif kind == "constant_input":
                ports.append(_plain(content["value"]))
                kinds.append((USER, str(content["name"])))
            else:
                raise Refused("from_torch: an input that nxjax cannot take", got=kind)
        written: list[tuple[str, str]] = []
        outputs: list[ValueInfo] = []
        for spec in signature["output_specs"]:
            ((kind, content),) = spec.items()
            if kind in _WRITTEN:
                written.append((kind.upper(), str(content[_WRITTEN[kind]])))
            elif kind == "user_output":
                port = _port(content["arg"], graph)
                outputs.append(port if isinstance(port, ValueInfo) else ValueInfo(repr(port), None, None, False))
            else:
                raise Refused("from_torch: a result that nxjax cannot give", got=kind)
        used = {k for kind, k in kinds if kind != USER} | set(saved.values())
        made = _graph(graph, 0)
        if len(made.inputs) != len(kinds) or len(made.outputs) != len(written) + len(outputs):
            _invalid("inputs or results of the graph are not those of its signature", len(made.inputs))
        (call,) = (c["signature"] for c in module["module_call_graph"] if c["fqn"] == "")
        given, results = (_container(json.loads(call[k])[1], 0) for k in ("in_spec", "out_spec"))
        if given.count() != len(ports) or results.count() != len(outputs) or len(given.children) != 2:
            _invalid("containers do not hold as many values as the graph has", f"{given.count()} of {len(ports)}")
        bounds = held["range_constraints"].items()
        ranges = {str(k): (float(r["min_val"] or 0), _most(r["max_val"])) for k, r in bounds}
        made, more = functional(made, kinds)
        written = [*more, *written]
        return TorchProgram(
            name, made, tuple(kinds), tuple(ports), tuple(written), tuple(outputs), given, results,
            {k: wrap(v) for k, v in arrays.items() if k in used}, ranges, tuple(call.get("forward_arg_names") or ()),
            saved, FileBytes(self._archive.data),
        )  # fmt: skip

    def _json(self, name: str) -> Any:
        if self._archive.size(name) > _GRAPH:
            _invalid("a graph that is too large", f"{self._archive.size(name)} bytes")
        return safe_io.parsed(self._archive.text(name))

    def _tensors(self, kind: str, names: dict[str, str]) -> dict[str, NDArray]:
        """The tensors of one kind; ``names`` gets all names, and the first of those that a tensor has."""
        config = f"data/{kind}/model_{kind}_config.json"
        if config not in self._names:
            return {}
        rows, first = self._json(config)["config"], dict[str, str]()
        for k, row in rows.items():
            names[str(k)] = first.setdefault(json.dumps([row["path_name"], row["tensor_meta"]]), str(k))
        return {str(k): self._tensor(kind, str(k), v) for k, v in rows.items() if names[str(k)] == k}

    def _tensor(self, kind: str, name: str, row: Mapping[str, Any]) -> NDArray:
        if row["use_pickle"] or row["tensor_meta"] is None:
            raise Refused("from_torch: a tensor that is stored as a Python object", got=name)
        meta = row["tensor_meta"]
        if meta["dtype"] not in _DTYPES:
            _invalid("a tensor of an element type that nxjax does not have", f"{name}: {meta['dtype']}")
        dtype = np.dtype(_DTYPES[meta["dtype"]])
        shape, strides = (tuple(int(n["as_int"]) for n in meta[k]) for k in ("sizes", "strides"))
        offset = int(meta["storage_offset"]["as_int"])
        data = self._archive.bytes_of(f"data/{kind}/{row['path_name']}")
        if len(shape) > _RANK:
            _invalid("a tensor whose shape is none", f"{name}: {shape}, {strides}")
        try:
            return np.ascontiguousarray(strided(data, dtype, offset, shape, strides)).reshape(shape)
        except ValueError as error:
            _invalid(f"tensor {name!r} is none", error)


# --- graphs ---


def _graph(held: Mapping[str, Any], depth: int) -> TorchGraph:
    if depth > _DEPTH:
        _invalid(f"graphs lie in one another more than {_DEPTH} deep", "a file")
    given = [_plain(a, depth) for a in held["inputs"]]
    inputs = tuple(v.name if isinstance(v, NodeRef) else f"constant {i}" for i, v in enumerate(given))
    outputs = tuple(_plain(a, depth) for a in held["outputs"])
    return TorchGraph(inputs, tuple(_node(n, depth) for n in held["nodes"]), outputs)


def _node(held: Mapping[str, Any], depth: int) -> TorchNode:
    target = str(held["target"]).removeprefix("torch.ops.").removesuffix(".default")
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for given in held["inputs"]:
        value = _plain(given["arg"], depth)
        if given.get("kind") == 2:
            kwargs[str(given["name"])] = value
        else:
            args.append(value)
    outputs = [_output(a) for a in held["outputs"]]
    # A list of several names stands for the parts of one result, as several results do.
    output = None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)
    if target.startswith("higher_order.") and isinstance(output, str) and not held.get("is_hop_single_tensor_return"):
        output = (output,)
    return TorchNode(target, tuple(args), kwargs, output, *_said(held.get("metadata") or {}))


def _said(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The user's line and the submodule: a stack is ``key,path,class;key,path,class``."""
    path = str(metadata.get("nn_module_stack", "")).split(";")[-1].split(",")
    return _line(metadata), module_path(path[1][:_TEXT]) if len(path) > 2 else ""


def _line(metadata: Mapping[str, Any]) -> str:
    lines = [v.strip() for v in str(metadata.get("stack_trace", "")).splitlines()]
    own = [i for i, v in enumerate(lines) if v.startswith("File ") and "/torch/" not in v]
    return ": ".join(lines[own[-1] : own[-1] + 2])[:200] if own else ""


def _output(held: Mapping[str, Any]) -> Any:
    ((kind, content),) = held.items()
    if kind == "as_none":
        return None
    if isinstance(content, list):
        return tuple(_named(c) for c in content)
    return _named(content)


def _named(content: Mapping[str, Any]) -> str:
    inner = content.get("as_tensor", content)
    return str(inner["name"] if "name" in inner else inner["as_name"])


def _plain(held: Mapping[str, Any], depth: int = 0) -> Any:
    """An argument as a Python value, a reference or a graph."""
    ((kind, x),) = held.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return NodeRef(str(x["name"]))
        case "as_tensors":
            return [NodeRef(str(t["name"])) for t in x]
        case "as_optional_tensors" | "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_plain(t) for t in x]
        case "as_optional_tensor" | "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _plain(x)
        case "as_name":
            return NodeRef(str(x))
        case "as_scalar_type":
            return np.dtype(_DTYPES[x])
        case "as_graph":
            return _graph(x["graph"], depth + 1)
        case "as_complex":
            return complex(x["real"], x["imag"])
        case "as_nested_tensors":
            return [[NodeRef(str(t["name"])) for t in row] for row in x]
        case "as_device" | "as_layout" | "as_memory_format" | "as_operator":
            return str(x)
        case "as_int" | "as_ints" | "as_bool" | "as_bools" | "as_string" | "as_strings" | "as_int_lists":
            return x
        case "as_float" | "as_floats" | "as_float_lists":
            # JSON has no infinities: they are written as text.
            return _floats(x)
        case _:
            raise Refused("from_torch: an argument that nxjax cannot take", got=f"{kind}: {str(x)[:100]}")


def _most(n: Any) -> float:
    return math.inf if n is None else float(n)


def _floats(x: Any) -> Any:
    return [_floats(v) for v in x] if isinstance(x, list) else float(x)


def _port(held: Mapping[str, Any], graph: Mapping[str, Any]) -> Any:
    value = _plain(held)
    if not isinstance(value, NodeRef):
        return value
    meta = graph["tensor_values"].get(value.name)
    if meta is None:
        return ValueInfo(value.name, np.dtype(np.int64), (), False)
    return ValueInfo(value.name, np.dtype(_DTYPES[meta["dtype"]]), tuple(_size(n) for n in meta["sizes"]))


def _size(held: Mapping[str, Any]) -> int | str:
    if "as_int" in held:
        if held["as_int"] < 0:
            _invalid("a size that is none", held["as_int"])
        return int(held["as_int"])
    text = str(held["as_expr"]["expr_str"])
    return _expression(ast.parse(text[:_TEXT], mode="eval").body, text)


_SIGNS: Final = {"Add": " + ", "Mul": "*"}


def _expression(node: ast.expr, text: str) -> str:
    """A size as people write it: sympy's form is ``Mul(Integer(2), Symbol('s0', positive=True))``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inner = [_expression(a, text) for a in node.args]
        if node.func.id in ("Symbol", "Integer") and len(inner) == 1:
            return inner[0]
        if node.func.id in _SIGNS:
            return _SIGNS[node.func.id].join(inner)
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _container(held: Mapping[str, Any], depth: int) -> Container:
    """The structure in a dumped `TreeSpec`."""
    if depth > _DEPTH:
        _invalid(f"containers lie in one another more than {_DEPTH} deep", "a file")
    kind = held["type"]
    if kind is None:
        return LEAF
    children = tuple(_container(c, depth + 1) for c in held["children_spec"])
    name = str(kind).rpartition(".")[2]
    if name in ("tuple", "list"):
        return Container(name, children)
    if name == "namedtuple":
        return Container("tuple", children)
    keys = field_names(
        json.loads(held["context"]) if isinstance(held["context"], str) else held["context"], len(children)
    )
    return Container("dict" if keys or "dict" in name.lower() else "tuple", children, keys)
