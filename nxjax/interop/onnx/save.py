"""An ONNX model written back with other parameters: the same file but for the elements of its tensors.

Of a large model the tensors lie in one data file beside it. Knows no operator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.files import safe_io
from nxjax.interop.onnx.graph import package, weights_of_nodes

NDArray = np.ndarray[Any, Any]

# What a protocol buffer holds at most, with room for the graph.
LARGEST: Final = 2**31 - 2**24
# Smaller tensors stay in the model, as the file writes them.
_LARGE: Final = 1024
_ALIGNED: Final = 4096


def _tensors(proto: Any) -> list[tuple[str, Any]]:
    """The tensors of a model, by the names of the values that they are."""
    return [*((t.name, t) for t in proto.graph.initializer), *weights_of_nodes(proto.graph).items()]


def save(
    path: Path, proto: Any, stripped: frozenset[int], stored: Mapping[str, NDArray], changed: Mapping[str, NDArray]
) -> None:
    """Write a model, whole or not at all.

    Args:
        proto: the model.
        stripped: numbers of the tensors in its graph that are there without their elements.
        stored: the elements of all tensors by name.
        changed: other elements than those.

    Raises:
        ParameterError: what is left without large tensors is more than an ONNX file can hold.
    """
    copy = package().ModelProto()
    copy.CopyFrom(proto)
    external = package().TensorProto.EXTERNAL
    outside = any(t.data_location == external for t in copy.graph.initializer)
    outside = outside or sum(x.nbytes for x in stored.values()) > LARGEST
    parts: list[bytes] = []
    size = 0
    count = len(copy.graph.initializer)
    for i, (name, t) in enumerate(_tensors(copy)):
        if name not in changed and i not in stripped and not (outside and i < count):
            continue
        x = changed.get(name, stored[name])
        made = package().numpy_helper.from_array(np.ascontiguousarray(x).reshape(tuple(t.dims)), t.name)
        if outside and len(made.raw_data) >= _LARGE:
            data, room = made.raw_data, -size % _ALIGNED
            parts += [bytes(room), data]
            size += room + len(data)
            made.ClearField("raw_data")
            made.data_location = external
            for key, v in (("offset", size - len(data)), ("length", len(data))):
                made.external_data.add(key=key, value=str(v))
        if t.HasField("doc_string"):
            made.doc_string = t.doc_string
        t.CopyFrom(made)
    if parts:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        # Named by its bytes: a model that stands here already keeps its own until the new one is whole.
        place = f"{path.name}.{digest.hexdigest()[:8]}.data"
        for _, t in _tensors(copy):
            if t.data_location == external:
                t.external_data.add(key="location", value=place)
        safe_io.write(path.with_name(place), b"".join(parts))
    if copy.ByteSize() > LARGEST:
        raise ParameterError("save: more than an ONNX file can hold", got=f"{copy.ByteSize()} bytes without tensors")
    safe_io.write(path, copy.SerializeToString())
