"""An ONNX model written back with other parameters: the same file but for the elements of its tensors.

Of a large model the tensors lie in one data file beside it. Knows no operator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.files import safe_io
from nxjax.interop.onnx.graph import ModelReader, package, weights_of_nodes

NDArray = np.ndarray[Any, Any]

# What a protocol buffer holds at most, with room for the graph.
LARGEST: Final = 2**31 - 2**24
# Smaller tensors stay in the model, as the file writes them.
_LARGE: Final = 1024
_ALIGNED: Final = 4096
# Where a tensor may have its elements.
_ELEMENTS: Final = (
    "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data", "external_data",
)  # fmt: skip


def _tensors(proto: Any) -> list[tuple[str, Any]]:
    """The tensors of a model, by the names of the values that they are."""
    return [*((t.name, t) for t in proto.graph.initializer), *weights_of_nodes(proto.graph).items()]


def _within(proto: Any) -> Iterator[Any]:
    """All tensors of a graph or of a function's body, and of the graphs inside of it."""
    sparse = list(getattr(proto, "sparse_initializer", ()))
    yield from getattr(proto, "initializer", ())
    for a in (a for n in proto.node for a in n.attribute):
        if a.HasField("t"):
            yield a.t
        yield from a.tensors
        sparse += [a.sparse_tensor] if a.HasField("sparse_tensor") else []
        for graph in ([a.g] if a.HasField("g") else []) + list(a.graphs):
            yield from _within(graph)
    for t in sparse:
        yield from (t.values, t.indices)


def _dense(graph: Any, changed: Mapping[str, NDArray]) -> None:
    """Sparse tensors that get other elements become dense ones: nothing says that these have the same zeros."""
    for i in reversed(range(len(graph.sparse_initializer))):
        t = graph.sparse_initializer[i]
        if t.values.name in changed:
            graph.initializer.add(name=t.values.name, data_type=t.values.data_type, dims=t.dims)
            del graph.sparse_initializer[i]


def save(
    path: Path, proto: Any, reader: ModelReader, stored: Mapping[str, NDArray], changed: Mapping[str, NDArray]
) -> None:
    """Write a model, whole or not at all.

    Args:
        proto: the model.
        reader: what has read it: of tensors whose elements lie elsewhere.
        stored: the elements of all tensors by name.
        changed: other elements than those.

    Raises:
        ParameterError: what is left without large tensors is more than an ONNX file can hold.
    """
    copy = package().ModelProto()
    copy.CopyFrom(proto)
    _dense(copy.graph, changed)
    external = package().TensorProto.EXTERNAL
    every = lambda: (t for body in (copy.graph, *copy.functions) for t in _within(body))
    outside = any(t.data_location == external for t in every())
    outside = outside or sum(x.nbytes for x in stored.values()) > LARGEST
    parts: list[bytes] = []

    def put(t: Any, x: NDArray) -> None:
        """Give a tensor other elements, and leave all else that it says."""
        data = package().numpy_helper.from_array(np.ascontiguousarray(x).reshape(tuple(t.dims))).raw_data
        for name in _ELEMENTS:
            t.ClearField(name)
        if outside and len(data) >= _LARGE:
            size = sum(map(len, parts))
            room = -size % _ALIGNED
            parts.extend((bytes(room), data))
            t.data_location = external
            for key, v in (("offset", size + room), ("length", len(data))):
                t.external_data.add(key=key, value=str(v))
            return
        if t.data_location == external:
            t.ClearField("data_location")
        t.raw_data = data

    count = len(copy.graph.initializer)
    for i, (name, t) in enumerate(_tensors(copy)):
        if name in changed or i in reader.stripped or (outside and i < count and stored[name].dtype != object):
            put(t, changed.get(name, stored[name]))
    for t in every():
        # Elements that lie beside the file that was read, and not yet beside this one.
        if t.data_location == external and any(e.key == "location" for e in t.external_data):
            put(t, reader.tensor(t))
    if parts:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        # Named by its bytes: a model that stands here already keeps its own until the new one is whole.
        place = f"{path.name}.{digest.hexdigest()[:8]}.data"
        for t in every():
            if t.data_location == external:
                t.external_data.add(key="location", value=place)
        safe_io.write(path.with_name(place), b"".join(parts))
    if copy.ByteSize() > LARGEST:
        raise ParameterError("save: more than an ONNX file can hold", got=f"{copy.ByteSize()} bytes without tensors")
    safe_io.write(path, copy.SerializeToString())
