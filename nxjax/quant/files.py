"""Parameter trees in safetensors files: floats unchanged, `QArray` leaves as integers and scales.

Any safetensors library can read the file. Its metadata has the structure as JSON. Nothing in a file is executed.
Format: github.com/huggingface/safetensors, README, section "Format".
"""

from __future__ import annotations

import importlib
import json
import math
import os
from typing import Any, Final

import ml_dtypes
import numpy as np

from nxjax.errors import DtypeError, InvalidFileError, MissingExtraError, TreeError
from nxjax.files import safe_io
from nxjax.quant.qarray import QArray
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]
TREE: Final = "nxjax.tree"
DEEPEST: Final = 100
# Element types by safetensors' names. int4 is packed, two to a byte, under the name of bytes.
TYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def save(path: str | os.PathLike[str], params: Any) -> None:
    """Write a tree of dicts, lists, tuples, arrays and QArrays; atomically.

    Args:
        path: of the file; usually ``.safetensors``.
        params: the tree. Keys of dicts are strings.

    Raises:
        TreeError: something else in the tree.
        DtypeError: an element type that the format does not have.
        MissingExtraError: safetensors is not installed.

    >>> import nxjax as nx, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save(path, {"w": QArray(nx.array([[1, 2]], dtype="int8"), nx.array([[0.5]]))})
    >>> load(path)["w"]
    QArray(i8[1,2], 1x1 scales)
    """
    tensors: dict[str, NDArray] = {}
    tree = _described(params, "", tensors)
    for key, x in tensors.items():
        if x.dtype.name not in TYPES.values():
            raise _no_type(key, x.dtype)
    safe_io.write(path, _library("safetensors.numpy").save(tensors, {TREE: json.dumps(tree)}))


def _no_type(path: str, dtype: Any) -> DtypeError:
    return DtypeError(
        f"save: {path or 'the tree'} has an element type that safetensors has not",
        got=dtype,
        expected=f"int4, {', '.join(TYPES.values())}",
        fix="save keys of random numbers as nx.random.key_data(key), complex numbers as two arrays",
    )


def load(path: str | os.PathLike[str]) -> Any:
    """Read a file of `save`. Other files give a flat dict of their tensors.

    Raises:
        InvalidFileError: not a safetensors file, or damaged.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save(path, {"layers": [np.ones(2), 3]})
    >>> load(path)
    {'layers': [Array([1., 1.], dtype=float64), Array(3, dtype=int32)]}
    """
    return loads(safe_io.read(path, safe_io.memory()), str(path))


def loads(data: bytes | bytearray | memoryview, name: str = "safetensors data") -> Any:
    """As `load`, from bytes.

    Raises:
        InvalidFileError: not safetensors data, or damaged.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save(path, {"w": np.arange(3.0)})
    >>> loads(safe_io.read(path, 1000))["w"].tolist()
    [0.0, 1.0, 2.0]
    """
    library = _library("safetensors")
    data = bytes(data)
    try:
        rows = library.deserialize(data)
        size = int.from_bytes(data[:8], "little")
        header = safe_io.parsed(data[8 : 8 + size])
    except Exception as error:
        # The library's own errors: of a class it does not promise.
        raise InvalidFileError(
            f"{name}: not a safetensors file, or damaged", got=str(error), fix="save or download it again"
        ) from None
    tensors = {k: _array(name, k, row) for k, row in rows}
    described = (header.get("__metadata__") or {}).get(TREE)
    if described is None:
        return {k: wrap(v) for k, v in tensors.items()}
    try:
        # A tensor is one leaf: each is taken, so that a short description cannot ask for many copies of one.
        return _built(safe_io.parsed(described), tensors, 0)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise InvalidFileError(f"{name}: its description of the tree is damaged", got=repr(error)) from None


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            "parameter files need safetensors", got=f"no module {module!r}", fix="pip install 'nxjax[quant]'"
        ) from None


def _described(x: Any, path: str, tensors: dict[str, NDArray], depth: int = 0) -> Any:
    """The structure of ``x`` as JSON; its arrays go to ``tensors`` under their paths."""
    if depth > DEEPEST:
        raise TreeError("save: the tree is too deep", got=f"more than {DEEPEST} levels")
    here = lambda key: f"{path}.{key}" if path else str(key)
    if isinstance(x, QArray):
        values = np.asarray(x.checked().values)
        _put(tensors, here("values"), values)
        _put(tensors, here("scale"), np.asarray(x.scale))
        if x.least is not None:
            _put(tensors, here("least"), np.asarray(x.least))
        return {"q": [path, values.dtype.name, list(values.shape), *(["least"] if x.least is not None else [])]}
    if isinstance(x, dict):
        wrong = [k for k in x if not isinstance(k, str)]
        if wrong:
            raise TreeError("save: keys of dicts are strings", got=wrong)
        return {"d": [[k, _described(v, here(k), tensors, depth + 1)] for k, v in x.items()]}
    if isinstance(x, (list, tuple)):
        kind = "l" if isinstance(x, list) else "t"
        return {kind: [_described(v, here(i), tensors, depth + 1) for i, v in enumerate(x)]}
    if x is None:
        return {"n": 0}
    masked = isinstance(x, np.ma.MaskedArray)
    if masked or not isinstance(x, (Array, np.ndarray, np.generic, bool, int, float)):
        raise TreeError(
            f"save: {path or 'the tree'} cannot be saved",
            got=type(x).__name__,
            expected="dicts, lists, tuples, arrays and QArrays",
            fix="x.filled(value), or its data and its mask"
            if masked
            else "save module.parameters() or tree.leaves(...)",
        )
    if isinstance(x, Array) and x.dtype == dtypes.key:
        raise _no_type(path, x.dtype)
    # Python's numbers are what they are in a program; NumPy's keep their dtype.
    value = np.asarray(x if isinstance(x, (Array, np.ndarray, np.generic)) else as_value(x, "save"))
    name = path or "value"
    _put(tensors, name, value)
    return {"i": [name, list(value.shape)]} if value.dtype == dtypes.int4 else {"a": name}


def _put(tensors: dict[str, NDArray], name: str, x: NDArray) -> None:
    if name in tensors or name == "__metadata__":
        raise TreeError("save: two leaves have one path", got=name, fix="rename the key, or the one with a dot in it")
    tensors[name] = _packed(x) if x.dtype == dtypes.int4 else np.ascontiguousarray(x).reshape(x.shape)


def _packed(values: NDArray) -> NDArray:
    """int4 values, two to a byte, the first in the low half."""
    flat = values.astype(np.int8).reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return flat[0::2] | flat[1::2] << 4


def _unpacked(data: NDArray, shape: list[int]) -> NDArray:
    whole = all(type(n) is int and n >= 0 for n in shape)
    size = math.prod(shape) if whole else -1
    if data.dtype != np.uint8 or data.shape != ((size + 1) // 2,):
        raise ValueError(f"int4 values of shape {shape} do not lie in {data.shape} of {data.dtype}")
    both = np.stack([data & 15, data >> 4], -1).reshape(-1)[:size]
    return ((both.astype(np.int8) ^ 8) - 8).astype(dtypes.int4).reshape(shape)


def _array(name: str, key: str, row: dict[str, Any]) -> NDArray:
    kind = TYPES.get(str(row["dtype"]), str(row["dtype"]))
    if kind not in TYPES.values():
        raise InvalidFileError(f"{name}: tensor {key!r} has an unknown element type", got=row["dtype"])
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    # Bytes other than 0 and 1 are no bool to NumPy.
    x = np.frombuffer(bytes(row["data"]), np.uint8 if kind == "bool" else dtype).reshape(row["shape"])
    return x != 0 if kind == "bool" else x


def _built(tree: Any, tensors: dict[str, NDArray], depth: int) -> Any:
    if depth > DEEPEST or not isinstance(tree, dict) or len(tree) != 1:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"a node that is a {type(tree).__name__}")  # pyright: ignore[reportUnknownArgumentType]
    ((kind, body),) = tree.items()  # pyright: ignore[reportUnknownVariableType]
    if kind == "n":
        return None
    if kind == "a":
        return wrap(tensors.pop(body))
    if not isinstance(body, list):
        raise ValueError(f"{kind} without a list")
    if kind == "d":
        return {str(k): _built(v, tensors, depth + 1) for k, v in body}
    if kind in ("l", "t"):
        parts = [_built(v, tensors, depth + 1) for v in body]
        return parts if kind == "l" else tuple(parts)
    if kind == "i":
        name, shape = body
        return wrap(_unpacked(tensors.pop(name), shape))
    if kind == "q":
        return _quantized(tensors, *body)
    raise ValueError(f"a node of kind {kind!r}")


def _quantized(tensors: dict[str, NDArray], path: str, dtype: str, shape: list[int], *more: str) -> QArray:
    join = f"{path}." if path else ""
    values, scale = tensors.pop(f"{join}values"), tensors.pop(f"{join}scale")
    if dtype == "int4":
        values = _unpacked(values, shape)
    if values.dtype.name != dtype or list(values.shape) != shape:
        raise ValueError(f"{path} is described as {dtype} {shape}, and is {values.dtype} {list(values.shape)}")
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError(f"{path} has scales that are not positive and finite")
    if more not in ((), ("least",)):
        raise ValueError(f"{path} is described with {more}")
    return QArray(wrap(values), wrap(scale), *(wrap(tensors.pop(f"{join}{name}")) for name in more)).checked()
