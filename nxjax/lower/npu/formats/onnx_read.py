"""ONNX model bytes -> NpuGraph: what `onnx_writer` writes, and files like it. Hostile bytes are refused, not followed.

Knows the file; `onnx_reader` makes the graph, by the rows of `onnx_ops`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax.errors import InvalidFileError, LoweringError, NxError
from nxjax.files import safe_io
from nxjax.lower.npu.formats.onnx_build import package
from nxjax.lower.npu.formats.onnx_ops import READ
from nxjax.lower.npu.formats.onnx_reader import DEQUANTIZE, QUANTIZE, OnnxReader, held, invalid
from nxjax.lower.npu.graph import NpuGraph
from nxjax.trace import dtypes

# How many tensors may share the bytes of a file beside the model, on average.
_SHARED: Final = 4
# How deep graphs may lie within graphs, and in which operators.
_DEPTH: Final = 4
_HOLDING: Final = frozenset(("If", "Loop"))


def read(data: bytes, folder: str | Path | None = None) -> NpuGraph:
    """The graph that an ONNX file holds.

    Args:
        data: the bytes of the file.
        folder: where tensors stored outside the file may lie; without it there may be none, and none outside of it.

    Raises:
        InvalidFileError: bytes that are no ONNX model, a model that ONNX's checker refuses, tensors that lie elsewhere.
        LoweringError: a sound model with an operator, a dtype or a dynamic shape that a graph cannot hold.
    """
    model = _parsed(data)
    _refuse_unknown(model, frozenset(READ))
    _inside(model, folder)
    try:
        return OnnxReader(_checked(model), READ).graph()
    except (InvalidFileError, LoweringError):
        raise
    except NxError as e:
        raise invalid(e.what, e.got) from e
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, AssertionError) as e:
        # Attributes of the wrong kind and constants of the wrong shape pass ONNX's checker for some operators.
        raise invalid("an operator is not what its name says", f"{type(e).__name__}: {e}") from e


def _parsed(data: bytes) -> Any:
    onnx = package()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as e:
        # The protocol buffer library raises an error class of its own, by version.
        raise invalid("these bytes are no ONNX model", f"{len(data)} bytes; {e}") from e
    if not model.HasField("graph") or not model.opset_import:
        raise invalid("a model without a graph or without an operator set", f"{len(data)} bytes")
    return model


def _refuse_unknown(model: Any, known: frozenset[str]) -> None:
    """Before anything looks deeper: operators that no rule reads, and graphs within graphs."""
    if model.functions:
        raise LoweringError("onnx: a model with functions of its own", got=model.functions[0].name)
    for n in _nodes(model.graph):
        own = n.domain in ("", "ai.onnx") or (n.domain == "com.microsoft" and n.op_type in (QUANTIZE, DEQUANTIZE))
        if n.op_type not in known or not own:
            raise LoweringError("onnx: no rule reads an operator", got=f"{n.domain or 'ai.onnx'}::{n.op_type} {n.name}")
        if any(a.graphs or a.HasField("sparse_tensor") for a in n.attribute):
            raise LoweringError("onnx: an operator with graphs or a sparse tensor within", got=n.name)
        if held(n) and n.op_type not in _HOLDING:
            raise LoweringError("onnx: an operator that holds no graph has one", got=f"{n.op_type} {n.name}")
    if any(g.sparse_initializer for g in _graphs(model.graph)):
        raise LoweringError("onnx: sparse constants", fix="store them dense")


def _graphs(graph: Any, depth: int = 0) -> Iterator[Any]:
    """A graph and those within it."""
    yield graph
    for n in graph.node:
        for inner in held(n):
            if depth == _DEPTH:
                raise LoweringError(f"onnx: {n.op_type} more than {_DEPTH} graphs deep", got=n.name)
            yield from _graphs(inner, depth + 1)


def _nodes(graph: Any) -> Iterator[Any]:
    return (n for g in _graphs(graph) for n in g.node)


def _inside(model: Any, folder: str | Path | None) -> None:
    """Load tensors that lie outside the file, if they lie in ``folder``."""
    onnx = package()
    taken: dict[Path, int] = {}
    stored = [t for g in _graphs(model.graph) for t in g.initializer]
    tensors = [*stored, *(a.t for n in _nodes(model.graph) for a in n.attribute if a.HasField("t"))]
    for t in tensors:
        if t.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {e.key: e.value for e in t.external_data}
        location = entries.get("location", "")
        if folder is None:
            fix = "give the folder that the file came in, if you trust it"
            raise InvalidFileError("onnx: a tensor lies outside the file", got=location, fix=fix)
        base = Path(folder).resolve()
        try:
            path = (base / location).resolve()
            offset = int(entries.get("offset", "0"))
            length = int(entries["length"]) if "length" in entries else None
        except ValueError as e:
            raise invalid("a tensor's place is none", f"{location}: {e}") from e
        if base not in path.parents or not path.is_file():
            raise InvalidFileError("onnx: a tensor lies outside the folder", got=location, expected=f"a file in {base}")
        size = path.stat().st_size
        length = size - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > size:
            raise invalid("a tensor lies beyond the end of its file", f"{location}: {offset} + {length} of {size}")
        taken[path] = taken.get(path, 0) + length
        if taken[path] > _SHARED * size:
            raise invalid("tensors take more than their file has", f"{location}: {taken[path]:,} bytes of {size:,}")
        with safe_io.opened(path) as f:
            f.seek(offset)
            t.raw_data = f.read(length)
        t.data_location = onnx.TensorProto.DEFAULT
        del t.external_data[:]


def _checked(model: Any) -> Any:
    """The model with every value's type inferred. Constants are matched to their sizes first."""
    onnx = package()
    initializers = [t for g in _graphs(model.graph) for t in g.initializer]
    for t in initializers:
        width = 8 * len(t.raw_data)
        if t.HasField("raw_data") and any(d < 0 for d in t.dims):
            raise invalid("a constant with a negative dimension", t.name)
        if t.HasField("raw_data"):
            try:
                bits = dtypes.bit_width(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t.data_type)))
            except (KeyError, TypeError) as e:
                raise invalid("a constant of no known dtype", t.name) from e
            wanted = bits * int(np.prod(t.dims, dtype=object)) if t.dims else bits
            if (wanted + 7) // 8 * 8 != width:
                raise invalid("a constant's size is not that of its shape", f"{t.name}: {width} bits for {wanted}")
    stored = {t.name: t.data_type for t in initializers}
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for n in _nodes(plain.graph):
        if n.domain == "com.microsoft":
            # Inference does not know these; a cast has the same shape.
            zero = stored.get(n.input[2], onnx.TensorProto.UINT8) if len(n.input) > 2 else onnx.TensorProto.UINT8
            to = onnx.TensorProto.FLOAT if n.op_type == DEQUANTIZE else zero
            n.CopyFrom(onnx.helper.make_node("Cast", [n.input[0]], list(n.output), n.name, to=to))
    try:
        onnx.checker.check_model(model)
        onnx.checker.check_model(plain, full_check=True)
        typed = onnx.shape_inference.infer_shapes(plain, check_type=True, strict_mode=True, data_prop=True)
    except Exception as e:
        raise invalid("ONNX's checker refuses the model", str(e).strip().split("\n")[0][:300]) from e
    for graph, known in zip(_graphs(model.graph), _graphs(typed.graph), strict=True):
        del graph.value_info[:]
        graph.value_info.extend(known.value_info)
    return model
