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
from nxjax.interop.onnx.graph import package

NDArray = np.ndarray[Any, Any]

# What a protocol buffer holds at most, with room for the graph.
LARGEST: Final = 2**31 - 2**24
# Smaller tensors stay in the model, as the file writes them.
_LARGE: Final = 1024
_ALIGNED: Final = 4096
_DATA: Final = [
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
    "external_data",
]


def without_data(proto: Any) -> Any:
    """The model without the elements of its large tensors, which are read already; changes ``proto``."""
    for t in proto.graph.initializer:
        if t.data_location == package().TensorProto.EXTERNAL or t.ByteSize() > _LARGE:
            for field in _DATA:
                t.ClearField(field)
            t.data_location = package().TensorProto.EXTERNAL
    return proto


def save(path: Path, proto: Any, stored: Mapping[str, NDArray], changed: Mapping[str, NDArray], outside: bool) -> None:
    """Write a model, whole or not at all.

    Args:
        proto: the model `without_data`.
        stored: the elements of its tensors.
        changed: others, by name.
        outside: whether large tensors lie in a file of their own; those that are too large for one always do.

    Raises:
        ParameterError: what is left is more than an ONNX file can hold.
    """
    copy = package().ModelProto()
    copy.CopyFrom(proto)
    outside = outside or sum(x.nbytes for x in stored.values()) > LARGEST
    parts: list[bytes] = []
    size = 0
    for t in copy.graph.initializer:
        if t.name not in changed and t.data_location != package().TensorProto.EXTERNAL:
            continue
        x = changed.get(t.name, stored[t.name])
        made = package().numpy_helper.from_array(np.ascontiguousarray(x).reshape(tuple(t.dims)), t.name)
        if outside and len(made.raw_data) >= _LARGE:
            data, room = made.raw_data, -size % _ALIGNED
            parts += [bytes(room), data]
            size += room + len(data)
            made.ClearField("raw_data")
            made.data_location = package().TensorProto.EXTERNAL
            for key, v in (("offset", size - len(data)), ("length", len(data))):
                made.external_data.add(key=key, value=str(v))
        made.doc_string = t.doc_string
        t.CopyFrom(made)
    if parts:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        # Named by its bytes: a model that stands here already keeps its own until the new one is whole.
        name = f"{path.name}.{digest.hexdigest()[:8]}.data"
        for t in copy.graph.initializer:
            if t.data_location == package().TensorProto.EXTERNAL:
                t.external_data.add(key="location", value=name)
        safe_io.write(path.with_name(name), b"".join(parts))
    if copy.ByteSize() > LARGEST:
        raise ParameterError("save: more than an ONNX file can hold", got=f"{copy.ByteSize()} bytes without tensors")
    safe_io.write(path, copy.SerializeToString())
