"""Files of torch written without it: programs with other tensors, state dicts in torch's zip format, safetensors.

Of a program's file, tensors and the list of them are written again, and all else is copied. Knows no operator.
"""

from __future__ import annotations

import json
import math
import pickle
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import numpy as np

from nxjax.checkpoints.tensors import layout, memory
from nxjax.errors import DtypeError
from nxjax.interop.graphs.mapped import MappedZip
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
_ALIGNED: Final = 64
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
_STORAGES: Final[dict[Any, str]] = {
    dtypes.float32: "Float", dtypes.float64: "Double", dtypes.float16: "Half", dtypes.bfloat16: "BFloat16",
    dtypes.int64: "Long", dtypes.int32: "Int", dtypes.int16: "Short", dtypes.int8: "Char", dtypes.uint8: "Byte",
    dtypes.bool_: "Bool", dtypes.complex64: "ComplexFloat", dtypes.complex128: "ComplexDouble",
}  # fmt: skip


def _add(archive: zipfile.ZipFile, name: str, data: Any, compression: int = zipfile.ZIP_STORED) -> None:
    """A member whose bytes lie where they can be mapped, if they are not compressed."""
    info = zipfile.ZipInfo(name, _WHEN)
    info.compress_type = compression
    assert archive.fp is not None
    room = -(archive.fp.tell() + 30 + len(name.encode()) + 4) % _ALIGNED
    info.extra = struct.pack("<2sH", b"FB", room) + bytes(room)
    archive.writestr(info, data)


def write_program(file: BinaryIO, data: memoryview, changed: Mapping[str, NDArray]) -> None:
    """Write a file of `torch.export.save` with other tensors, of equal shapes and dtypes, by name.

    Args:
        data: the file that was read.
    """
    if not changed:
        file.write(data)
        return
    old = MappedZip(np.frombuffer(data, np.uint8))
    with zipfile.ZipFile(file, "w") as new:
        dropped, added = set[str](), dict[str, tuple[Any, int]]()
        for kind in ("weights", "constants"):
            place = f"data/{kind}/model_{kind}_config.json"
            if place not in old.names:
                continue
            config = json.loads(old.text(place))
            rows: dict[str, Any] = config["config"]
            # Tensors that were one stay one; others that happen to be equal do not become one.
            payloads: dict[tuple[str, bytes], str] = {}
            before = {row["path_name"] for row in rows.values()}
            for k, row in rows.items():
                if k not in changed:
                    continue
                content = _laid_out(changed[k], [n["as_int"] for n in row["tensor_meta"]["strides"]])
                shared = str(row["path_name"]), content
                if shared not in payloads:
                    number = len(rows)
                    while f"data/{kind}/tensor_{number}" in old.names or f"data/{kind}/tensor_{number}" in added:
                        number += 1
                    payloads[shared] = f"tensor_{number}"
                    added[f"data/{kind}/tensor_{number}"] = content, old.packing(place)
                row["path_name"] = payloads[shared]
                row["tensor_meta"]["storage_offset"] = {"as_int": 0}
            dropped |= {f"data/{kind}/{p}" for p in before - {row["path_name"] for row in rows.values()}}
            added[place] = json.dumps(config), old.packing(place)
        root = next(iter(old.names.values())).split("/", 1)[0]
        for name, full in old.names.items():
            if name not in dropped and name not in added:
                _add(new, full, old.bytes_of(name).data, old.packing(name))
        for name, (content, compression) in added.items():
            _add(new, f"{root}/{name}", content, compression)


def _laid_out(x: NDArray, strides: list[int]) -> bytes:
    """The elements of an array as torch keeps them with these strides."""
    if not x.size:
        return b""
    held = np.zeros(1 + sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True)), x.dtype)
    np.lib.stride_tricks.as_strided(held, x.shape, [s * x.itemsize for s in strides])[...] = x
    return held.tobytes()


def write_state(file: BinaryIO, tensors: Mapping[str, NDArray]) -> None:
    """Write what ``torch.save(module.state_dict(), file)`` would: a pickle of an ordered dict, and storages.

    Raises:
        DtypeError: an element type that torch has no storage for.
    """
    out = bytearray(b"\x80\x02" + _GLOBAL % b"collections\nOrderedDict" + b")R(")
    for i, (name, x) in enumerate(tensors.items()):
        if x.dtype not in _STORAGES:
            raise DtypeError(f"save: {name} has an element type that .pt files do not hold", got=x.dtype)
        kind = f"torch\n{_STORAGES[x.dtype]}Storage".encode()
        strides = [math.prod(x.shape[j + 1 :]) for j in range(x.ndim)]
        storage = b"(" + _text("storage") + _GLOBAL % kind + _text(str(i)) + _text("cpu") + _number(x.size) + b"tQ"
        shape = b"".join(b"(" + b"".join(map(_number, v)) + b"t" for v in (x.shape, strides))
        hooks = _GLOBAL % b"collections\nOrderedDict" + b")R"
        out += _text(name) + _GLOBAL % b"torch._utils\n_rebuild_tensor_v2"
        out += b"(" + storage + _number(0) + shape + b"\x89" + hooks + b"tR"
    out += b"u."
    with zipfile.ZipFile(file, "w") as archive:
        _add(archive, "archive/data.pkl", bytes(out))
        _add(archive, "archive/byteorder", "little")
        for i, x in enumerate(tensors.values()):
            _add(archive, f"archive/data/{i}", memory(x))
        _add(archive, "archive/version", "3\n")


_GLOBAL: Final = b"c%s\n"


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    """The opcodes that Python itself has for a number, of which torch reads no others."""
    return pickle.dumps(value, 2)[2:-1]


def write_safetensors(file: BinaryIO, tensors: Mapping[str, NDArray]) -> None:
    """Write a safetensors file.

    Raises:
        DtypeError: an element type that the format does not have.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, x in tensors.items():
        kind, shape = ("C64", x.shape) if x.dtype == dtypes.complex64 else layout(x.dtype, x.shape)
        if tuple(shape) != x.shape:
            raise DtypeError(f"save: {name} has an element type that .safetensors files do not hold", got=x.dtype)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + x.nbytes]}
        end += x.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for x in tensors.values():
        file.write(memory(x))
