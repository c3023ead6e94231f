"""Tensors of files that other projects write: safetensors, GGUF and NumPy's zip files.

A file is mapped into memory and a tensor is read when it is asked for. Nothing in a file is executed or unpickled, and
every size is checked before it is used. Knows no model.

Formats: github.com/huggingface/safetensors, README; github.com/ggml-org/ggml, docs/gguf.md and src/ggml-quants.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, cast, final

import ml_dtypes
import numpy as np

from nxjax.checkpoints.tensors import METADATA, TensorFile
from nxjax.display.progress import DELAY, bars
from nxjax.errors import InvalidFileError, ParameterError, Shown
from nxjax.files import safe_io
from nxjax.interop.ggml import BLOCKS, dequantized
from nxjax.interop.graphs.mapped import HeldFile, MappedFile, held, mapped
from nxjax.numpy.files import load
from nxjax.trace.annotations import DTypeLike
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.trace.tree_keys import DictKey
from nxjax.trace.tree_nodes import register_node

NDArray = np.ndarray[Any, Any]
_RANK: Final = 8
_LARGEST: Final = 1 << 58
MOST: Final = 1 << 20  # tensors, or rows of metadata, of one file


@final
class LazyWeights(Mapping[str, Array], Shown):
    """Tensors of files by name: a mapping that reads each when it is asked for; `read` reads all.

    It is a pytree, as a dict is: `jit`, `grad` and `tree.map` take it, and read all tensors in each call. `read` once
    what is used often.

    Attributes:
        metadata: what the file says beside its tensors.

    >>> import tempfile, numpy as np
    >>> file = tempfile.mktemp(suffix=".npz")
    >>> np.savez(file, w=np.ones((2, 3), np.float32))
    >>> weights = load_npz(file)
    >>> weights, list(weights), weights["w"].shape
    (LazyWeights(1 tensors), ['w'], (2, 3))
    """

    def __init__(self, tensors: Mapping[str, Callable[[], Any]], metadata: Mapping[str, Any]) -> None:
        self._tensors, self.metadata = dict(tensors), dict(metadata)

    def __getitem__(self, name: str) -> Array:
        x = self._tensors[name]()
        return held(x) if isinstance(x, np.ndarray) else x

    def read(self, progress: bool | None = None) -> dict[str, Array]:
        """All tensors by name.

        Args:
            progress: True: show a progress bar. False: none. None: one after a second, in a terminal or a notebook.

        Raises:
            MissingExtraError: a bar was asked for, and there is no tqdm.
            InvalidFileError: a tensor is damaged.

        >>> import tempfile, numpy as np
        >>> file = tempfile.mktemp(suffix=".npz")
        >>> np.savez(file, w=np.ones((2, 3), np.float32))
        >>> {k: v.shape for k, v in load_npz(file).read().items()}
        {'w': (2, 3)}
        """
        make = bars(progress, "LazyWeights.read")
        if make is None:
            return dict(self)
        delay = 0 if progress else DELAY
        return {k: self[k] for k in make(self, desc="reading", unit="tensor", delay=delay, leave=progress is True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"LazyWeights({len(self)} tensors)"


def _flat(weights: LazyWeights) -> tuple[tuple[Any, ...], Any, tuple[DictKey, ...]]:
    return tuple(weights.values()), tuple(weights), tuple(map(DictKey, weights))


def _unflat(names: Any, leaves: Any) -> LazyWeights:
    # Leaves of a trace, derivatives, or what else takes the place of the tensors; none is looked at here.
    return LazyWeights({k: (lambda v=v: v) for k, v in zip(names, leaves, strict=True)}, {})


register_node(LazyWeights, _flat, _unflat)


def damaged(path: Path, why: object) -> NoReturn:
    raise InvalidFileError(f"{path.name}: the file is damaged, or of another kind", got=str(why)[:200])


def path_of(where: str, path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ParameterError(f"{where}: not a path", got=type(path).__name__) from None


# --- safetensors ---

_DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F32": np.float32, "F64": np.float64, "C64": np.complex64, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


@entry
def load_safetensors(path: str | Path) -> LazyWeights:
    """Tensors of a safetensors file, or of several with an index.

    Args:
        path: a ``.safetensors`` file, a ``.safetensors.index.json``, or a folder with one of these.

    Returns:
        the tensors by name, each read from the mapped file when it is asked for.

    Raises:
        InvalidFileError: a damaged file, or an index that names a file outside its folder.
        OSError: no such file.

    >>> import tempfile, numpy as np, safetensors.numpy
    >>> file = tempfile.mktemp(suffix=".safetensors")
    >>> safetensors.numpy.save_file({"w": np.ones((2, 3), np.float32)}, file)
    >>> load_safetensors(file)["w"].shape
    (2, 3)
    """
    file = path_of("load_safetensors", path)
    if file.is_dir():
        found = sorted(file.glob("*.safetensors.index.json")) or sorted(file.glob("*.safetensors"))
        if len(found) != 1:
            raise ParameterError(
                "load_safetensors: a folder with one file, or with one index",
                got=", ".join(f.name for f in found) or "neither",
                fix="give the file itself",
            )
        file = found[0]
    if file.suffix != ".json":
        return _safetensors(file)
    with safe_io.opened(file) as f:
        try:
            rows: Any = safe_io.parsed(f.read(), unique=True)["weight_map"]
            parts = sorted({*rows.values()})
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            damaged(file, error)
    folder = file.absolute().parent
    if not all(isinstance(p, str) and "\0" not in p for p in parts):
        damaged(file, "a part that is no name of a file")
    if any((folder / p).parent != folder or Path(p).name != p for p in parts):
        damaged(file, "a part outside of the folder")
    lost = [p for p in parts if not (folder / p).is_file()]
    if lost:
        raise InvalidFileError(f"{file.name}: a part of it is not in its folder", got=lost[0][:100])
    opened = {p: _safetensors(folder / p) for p in parts}
    missing = [k for k, v in rows.items() if k not in opened[v]]
    if missing:
        damaged(file, f"no tensor {missing[0]}")
    return LazyWeights({k: (lambda k=k, v=v: opened[v][k].numpy()) for k, v in rows.items()}, {})  # pyright: ignore


def _possible(shape: list[Any]) -> bool:
    """Whether NumPy has arrays of this shape: an empty one, too, may have only so many elements in its other axes."""
    sizes = all(type(n) is int and n >= 0 for n in shape)
    return sizes and len(shape) <= 64 and math.prod(max(n, 1) for n in shape) <= _LARGEST


def _safetensors(path: Path) -> LazyWeights:
    file = TensorFile(path, mapping=MappedFile)
    metadata: Any = file.header.get(METADATA) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in cast("dict[str, Any]", metadata).values()):
        damaged(path, "metadata that are no texts by name")

    def reader(name: str, row: Any) -> Callable[[], NDArray]:
        said: dict[str, Any] = row if isinstance(row, dict) else {}
        shape, kind = said.get("shape"), said.get("dtype")
        if not isinstance(shape, list) or not _possible(cast("list[Any]", shape)):
            damaged(path, f"tensor {name!r} without a shape")
        if not isinstance(kind, str):
            damaged(path, f"tensor {name!r} of type {kind!r}")
        if kind not in _DTYPES:
            raise InvalidFileError(f"{path.name}: tensor {name!r} has a type that nxjax does not know", got=kind)
        return lambda: file.raw(name, np.dtype(_DTYPES[kind]), tuple(cast("list[int]", shape)))

    rows = {k: reader(k, v) for k, v in file.header.items() if k != METADATA}
    file.check_places()
    return LazyWeights(rows, metadata)


# --- GGUF ---

_SCALARS: Final = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NESTED: Final = 3  # arrays of metadata within arrays
_LONGEST: Final = 1 << 24  # elements of one


@final
class _GgufHeader:
    """Reads numbers, texts and arrays from the front of a mapped GGUF file."""

    def __init__(self, path: Path, data: NDArray) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> NDArray:
        if count < 0 or count > self.data.size - self.at:
            damaged(self.path, f"{count} bytes at {self.at} of {self.data.size}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, kind: str) -> Any:
        return self.take(np.dtype(kind).itemsize).view(kind)[0].item()

    def text(self) -> str:
        return self.take(self.number("<u8")).tobytes().decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and depth < _NESTED:
            of, count = self.number("<u4"), self.number("<u8")
            if count > min(_LONGEST, self.data.size - self.at):
                damaged(self.path, f"an array of {count}")
            if of in _SCALARS:
                return self.take(count * np.dtype(_SCALARS[of]).itemsize).view(_SCALARS[of]).tolist()
            return [self.value(of, depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            damaged(self.path, f"a value of type {kind}")
        found = self.number(_SCALARS[kind])
        return bool(found) if kind == _BOOL else found


@entry
def load_gguf(path: str | Path, dtype: DTypeLike | None = np.float32) -> LazyWeights:
    """Tensors of a GGUF file, as llama.cpp writes it; those in few bits become floats when they are read.

    Args:
        path: the file, of version 2 or 3.
        dtype: of tensors that are stored in few bits.

    Returns:
        the tensors by name, with the last dimension first in memory as NumPy has it; ``metadata`` has the file's keys.

    Raises:
        InvalidFileError: a damaged file, or a tensor in a format that nxjax does not know.
        OSError: no such file.

    >>> import struct, tempfile, numpy as np
    >>> text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    >>> head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("w") + struct.pack("<IQIQ", 1, 3, 0, 0)
    >>> file = tempfile.mktemp(suffix=".gguf")
    >>> with open(file, "wb") as f:
    ...     _ = f.write(head + bytes(-len(head) % 32) + np.float32([1, 2, 3]).tobytes())
    >>> load_gguf(file)["w"].tolist()
    [1.0, 2.0, 3.0]
    """
    metadata, tensors = gguf_tensors(path_of("load_gguf", path))
    readers = {
        name: lambda x=x: dequantized(x.data, x.kind, dtype).reshape(x.shape)  # pyright: ignore[reportUnknownLambdaType]
        for name, x in tensors.items()
    }
    return LazyWeights(readers, metadata)


class GgufTensor(NamedTuple):
    """A tensor as it lies in the file: its shape, the number of its format (`ggml`), its bytes."""

    shape: tuple[int, ...]
    kind: int
    data: NDArray


def gguf_keys(file: Path) -> dict[str, bytes]:
    """The rows of a GGUF file's metadata by key, as they lie in it."""
    return {key: row.tobytes() for key, (_, row) in _front(file)[2].items()}


def _front(file: Path) -> tuple[_GgufHeader, int, dict[str, tuple[Any, NDArray]]]:
    """A header after its metadata, the number of tensors, and each key's value and bytes."""
    data = bytes_of(file)
    header = _GgufHeader(file, data)
    if header.take(4).tobytes() != b"GGUF":
        damaged(file, "no GGUF file")
    version = header.number("<u4")
    if version not in (2, 3):
        damaged(file, f"GGUF version {version}")
    count, rows = header.number("<u8"), header.number("<u8")
    if count > MOST or rows > MOST:
        damaged(file, f"{count} tensors, {rows} keys")
    found: dict[str, tuple[Any, NDArray]] = {}
    for _ in range(rows):
        start, key = header.at, header.text()
        if key in found:
            damaged(file, f"two keys {key!r}")
        found[key] = header.value(header.number("<u4")), data[start : header.at]
    return header, count, found


def gguf_tensors(file: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """The keys of a GGUF file, and its tensors; arguments and errors as `load_gguf`."""
    header, count, keys = _front(file)
    data, metadata = header.data, {key: value for key, (value, _) in keys.items()}
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(count):
        name, rank = header.text(), header.number("<u4")
        if rank > _RANK:
            damaged(file, f"tensor {name!r} of {rank} dimensions")
        shape = tuple(header.number("<u8") for _ in range(rank))[::-1]
        found.append((name, shape, header.number("<u4"), header.number("<u8")))
    align = metadata.get("general.alignment", 32)
    if type(align) is not int or not 0 < align <= 1 << 20:
        damaged(file, f"an alignment of {align}")
    start = -(-header.at // align) * align
    tensors: dict[str, GgufTensor] = {}
    end = start
    for name, shape, kind, offset in sorted(found, key=lambda row: row[3]):
        if kind not in BLOCKS:
            raise InvalidFileError(f"{file.name}: tensor {name!r} has a format that nxjax does not know", got=kind)
        elements, size = BLOCKS[kind]
        total = math.prod(shape)
        first = start + offset
        wrong = max(shape, default=0) > data.size * elements or total % elements or (shape and shape[-1] % elements)
        if wrong or first % align or first + total // elements * size > data.size:
            damaged(file, f"tensor {name!r}: {shape} at {offset}")
        if name in tensors or (total and first < end):
            damaged(file, f"tensor {name!r} twice, or in the bytes of another one")
        end = first + total // elements * size
        tensors[name] = GgufTensor(shape, kind, data[first:end])
    # In the order of the file's table.
    return metadata, {row[0]: tensors[row[0]] for row in found}


def bytes_of(path: Path) -> NDArray:
    data = mapped(path)
    if not data.size:
        damaged(path, "an empty file")
    return data


# --- NumPy ---


@entry
def load_npz(path: str | Path) -> LazyWeights:
    """Arrays of a ``.npz`` file. Arrays of Python objects are refused: they are pickles.

    Raises:
        InvalidFileError: no such file format, or an array of objects.
        MemoryLimitError: it unpacks to more than a hundred times its size, and 256 MiB.
        OSError: no such file.

    >>> import tempfile, numpy as np
    >>> file = tempfile.mktemp(suffix=".npz")
    >>> np.savez(file, w=np.ones(3, np.float32))
    >>> load_npz(file)["w"].tolist()
    [1.0, 1.0, 1.0]
    """
    file = path_of("load_npz", path)
    held: Any = HeldFile(mapped(file).data)
    stored: Any = load(held)
    if not isinstance(stored, Mapping):
        damaged(file, "one array, no .npz file")
    return LazyWeights({n: (lambda n=n: np.asarray(stored[n])) for n in stored}, {})
