"""Tensors of files that other projects write: safetensors, GGUF, NumPy's zip files and PyTorch's.

A file is mapped into memory and a tensor is read when it is asked for. Nothing in a file is executed or unpickled, and
every size is checked before it is used. Knows no model.

Formats: github.com/huggingface/safetensors, README; github.com/ggml-org/ggml, docs/gguf.md and src/ggml-quants.c;
PyTorch's serialization notes, pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, cast, final

import ml_dtypes
import numpy as np

from nxjax.checkpoints.tensors import METADATA, TensorFile
from nxjax.display.progress import DELAY, bars
from nxjax.errors import InvalidFileError, ParameterError, Shown
from nxjax.files import safe_io
from nxjax.interop.ggml import BLOCKS, dequantized
from nxjax.interop.graphs.mapped import mapped
from nxjax.numpy.files import load
from nxjax.trace import dtypes
from nxjax.trace.annotations import DTypeLike
from nxjax.trace.array import readonly, wrap
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]
_RANK: Final = 8
# What readers of the standard library and NumPy raise on damaged files.
_DAMAGE: Final = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError,
    NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_MOST: Final = 1 << 20  # tensors, or rows of metadata, of one file
_REPEATED: Final = 1 << 26  # elements of a tensor that repeats what is stored once


@final
class LazyWeights(Mapping[str, Array], Shown):
    """Tensors of files by name: a mapping that reads each when it is asked for; `read` reads all.

    Attributes:
        metadata: what the file says beside its tensors.

    >>> import tempfile, numpy as np
    >>> file = tempfile.mktemp(suffix=".npz")
    >>> np.savez(file, w=np.ones((2, 3), np.float32))
    >>> weights = load_npz(file)
    >>> weights, list(weights), weights["w"].shape
    (LazyWeights(1 tensors), ['w'], (2, 3))
    """

    def __init__(self, tensors: Mapping[str, Callable[[], NDArray]], metadata: Mapping[str, Any]) -> None:
        self._tensors, self.metadata = dict(tensors), dict(metadata)

    def __getitem__(self, name: str) -> Array:
        return wrap(readonly(self._tensors[name]()))

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


def _damaged(path: Path, why: object) -> NoReturn:
    raise InvalidFileError(f"{path.name}: the file is damaged, or of another kind", got=str(why)[:200])


def _path(where: str, path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ParameterError(f"{where}: not a path", got=type(path).__name__) from None


# --- safetensors ---

_DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F32": np.float32, "F64": np.float64, "C64": np.complex64, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
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
    file = _path("load_safetensors", path)
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
            rows: Any = safe_io.parsed(f.read())["weight_map"]
            parts = sorted({str(v) for v in rows.values()})
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            _damaged(file, error)
    folder = file.absolute().parent
    if any((folder / p).parent != folder or Path(p).name != p for p in parts):
        _damaged(file, "a part outside of the folder")
    opened = {p: _safetensors(folder / p) for p in parts}
    missing = [k for k, v in rows.items() if k not in opened[v]]
    if missing:
        _damaged(file, f"no tensor {missing[0]}")
    return LazyWeights({k: (lambda k=k, v=v: opened[v][k].numpy()) for k, v in rows.items()}, {})  # pyright: ignore


def _safetensors(path: Path) -> LazyWeights:
    file = TensorFile(path)
    metadata = file.header.get(METADATA)

    def reader(name: str, row: Any) -> Callable[[], NDArray]:
        shape = row.get("shape") if isinstance(row, dict) else None  # pyright: ignore[reportUnknownMemberType]
        kind = row.get("dtype") if isinstance(row, dict) else None  # pyright: ignore[reportUnknownMemberType]
        if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):  # pyright: ignore
            _damaged(path, f"tensor {name!r} without a shape")
        if kind not in _DTYPES:
            _damaged(path, f"tensor {name!r} of type {kind!r}")
        return lambda: file.raw(name, np.dtype(_DTYPES[kind]), tuple(shape))  # pyright: ignore[reportUnknownArgumentType]

    rows = {k: reader(k, v) for k, v in file.header.items() if k != METADATA}
    return LazyWeights(rows, metadata if isinstance(metadata, dict) else {})


# --- GGUF ---

_SCALARS: Final = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NESTED: Final = 3  # arrays of metadata within arrays


@final
class _GgufHeader:
    """Reads numbers, texts and arrays from the front of a mapped GGUF file."""

    def __init__(self, path: Path, data: NDArray) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> NDArray:
        if count < 0 or count > self.data.size - self.at:
            _damaged(self.path, f"{count} bytes at {self.at} of {self.data.size}")
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
            if of in _SCALARS:
                return self.take(count * np.dtype(_SCALARS[of]).itemsize).view(_SCALARS[of]).tolist()
            if count > self.data.size - self.at:
                _damaged(self.path, f"an array of {count}")
            return [self.value(of, depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            _damaged(self.path, f"a value of type {kind}")
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
    file = _path("load_gguf", path)
    data = _mapped(file)
    header = _GgufHeader(file, data)
    if header.take(4).tobytes() != b"GGUF":
        _damaged(file, "no GGUF file")
    version = header.number("<u4")
    if version not in (2, 3):
        _damaged(file, f"GGUF version {version}")
    count, rows = header.number("<u8"), header.number("<u8")
    if count > _MOST or rows > _MOST:
        _damaged(file, f"{count} tensors, {rows} keys")
    metadata = {header.text(): header.value(header.number("<u4")) for _ in range(rows)}
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(count):
        name, rank = header.text(), header.number("<u4")
        if rank > _RANK:
            _damaged(file, f"tensor {name!r} of {rank} dimensions")
        shape = tuple(header.number("<u8") for _ in range(rank))[::-1]
        found.append((name, shape, header.number("<u4"), header.number("<u8")))
    align = metadata.get("general.alignment", 32)
    if not isinstance(align, int) or not 0 < align <= 1 << 20:
        _damaged(file, f"an alignment of {align}")
    start = -(-header.at // align) * align
    readers: dict[str, Callable[[], NDArray]] = {}
    for name, shape, kind, offset in found:
        if kind not in BLOCKS:
            raise InvalidFileError(f"{file.name}: tensor {name!r} has a format that nxjax does not know", got=kind)
        elements, size = BLOCKS[kind]
        total = math.prod(shape)
        first = start + offset
        wrong = max(shape, default=0) > data.size * elements or total % elements or (shape and shape[-1] % elements)
        if wrong or first + total // elements * size > data.size:
            _damaged(file, f"tensor {name!r}: {shape} at {offset}")
        part = data[first : first + total // elements * size]
        readers[name] = lambda part=part, kind=kind, shape=shape: dequantized(part, kind, dtype).reshape(shape)
    return LazyWeights(readers, metadata)


def _mapped(path: Path) -> NDArray:
    data = mapped(path)
    if not data.size:
        _damaged(path, "an empty file")
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
    with safe_io.opened(_path("load_npz", path)) as f:
        stored: Any = load(io.BytesIO(f.read()))
    if not isinstance(stored, Mapping):
        _damaged(Path(path), "one array, no .npz file")
    return LazyWeights({n: (lambda n=n: np.asarray(stored[n])) for n in stored}, {})


# --- PyTorch ---

_STORAGES: Final[dict[str, Any]] = {
    "FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16, "LongStorage": np.int64,
    "IntStorage": np.int32, "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8,
    "BoolStorage": np.bool_, "BFloat16Storage": ml_dtypes.bfloat16, "ComplexFloatStorage": np.complex64,
}  # fmt: skip


@final
class _Global:
    def __init__(self, name: str) -> None:
        self.name = name


@final
class _Storage:
    def __init__(self, dtype: Any, key: str) -> None:
        self.dtype, self.key = np.dtype(dtype), key


@final
class _Tensor:
    def __init__(self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides


def _made(path: Path, what: Any, args: Any) -> Any:
    """What a call in the file would make: tensors, parameters, ordered dicts. No other call is known, none is run."""
    name = what.name if isinstance(what, _Global) else "a value"
    if name == "torch._utils._rebuild_tensor_v2":
        storage, offset, shape, strides = args[:4]
        numbers = (offset, *shape, *strides)
        if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in numbers):
            _damaged(path, "a tensor without a storage")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))
    if name == "torch._utils._rebuild_parameter":
        return args[0]
    if name == "collections.OrderedDict":
        return dict(args[0]) if args else {}
    raise InvalidFileError(
        f"{path.name}: holds more than tensors", got=name, expected="a state_dict: names and tensors",
        fix="save model.state_dict()",
    )  # fmt: skip


def _state(path: Path, text: bytes) -> Any:
    """The tree that a pickle describes, by a walk over its opcodes that knows containers and tensors only."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def popped() -> list[Any]:
        cut = marks.pop()
        taken = stack[cut:]
        del stack[cut:]
        return taken

    for opcode, given, _ in pickletools.genops(text):
        name, arg = opcode.name, cast("Any", given)
        if name in ("PROTO", "FRAME", "STOP"):
            continue
        if name == "MARK":
            marks.append(len(stack))
        elif name == "GLOBAL":
            stack.append(_Global(str(arg).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Global(f"{module}.{attribute}"))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(arg)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(arg)])
        elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(name[-1])
            taken = stack[-n:]
            del stack[-n:]
            stack.append(tuple(taken))
        elif name in ("TUPLE", "LIST"):
            taken = popped()
            stack.append(tuple(taken) if name == "TUPLE" else taken)
        elif name in ("SETITEMS", "SETITEM"):
            taken = popped() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(taken[::2], taken[1::2], strict=True))
        elif name in ("APPENDS", "APPEND"):
            taken = popped() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(taken)
        elif name == "BINPERSID":
            kind, storage, key, *_ = stack.pop()
            dtype = _STORAGES.get(storage.name.rpartition(".")[2]) if isinstance(storage, _Global) else None
            if kind != "storage" or dtype is None:
                _damaged(path, f"a storage of type {getattr(storage, 'name', storage)}")
            stack.append(_Storage(dtype, str(key)))
        elif name == "REDUCE":
            args = stack.pop()
            stack.append(_made(path, stack.pop(), args))
        elif name == "BUILD":
            stack.pop()  # a state_dict's own attributes: versions of layers
        elif arg is not None:
            stack.append(arg)
        else:
            _damaged(path, f"an opcode {name}")
    return stack[-1] if stack else None


@entry
def load_torch(path: str | Path) -> LazyWeights:
    """Tensors of a file that ``torch.save(model.state_dict(), path)`` wrote. PyTorch is not needed.

    Nothing is unpickled: the file's opcodes are read, and only names, containers and tensors are understood.

    Raises:
        InvalidFileError: a damaged file, one in PyTorch's format before 1.6, or one that holds more than tensors.
        OSError: no such file.

    >>> import tempfile, zipfile
    >>> file = tempfile.mktemp(suffix=".pt")
    >>> with zipfile.ZipFile(file, "w") as z:
    ...     z.writestr("archive/data.pkl", b"\\x80\\x02}q\\x00.")  # what torch.save({}, file) writes
    >>> load_torch(file)
    LazyWeights(0 tensors)
    """
    file = _path("load_torch", path)
    data = _mapped(file)
    if data[:2].tobytes() != b"PK":
        raise InvalidFileError(
            f"{file.name}: no zip file, as PyTorch writes since version 1.6",
            got=data[:2].tobytes(),
            fix="torch.save(torch.load(path, weights_only=True), path)",
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(memoryview(data)))  # pyright: ignore[reportArgumentType]
        names = {n.split("/", 1)[-1]: n for n in archive.namelist()}
        tree = _state(file, archive.read(names["data.pkl"]))
    except InvalidFileError:
        raise
    except _DAMAGE as error:
        _damaged(file, error)
    readers: dict[str, Callable[[], NDArray]] = {}

    def read(t: _Tensor) -> NDArray:
        try:
            held = np.frombuffer(archive.read(names[f"data/{t.storage.key}"]), t.storage.dtype)
        except _DAMAGE as error:
            _damaged(file, error)
        last = t.offset + sum((n - 1) * s for n, s in zip(t.shape, t.strides, strict=True))
        repeats = math.prod(t.shape) > max(held.size, _REPEATED)
        if len(t.shape) != len(t.strides) or repeats or (math.prod(t.shape) and last >= held.size):
            _damaged(file, f"a tensor {t.shape} beyond its storage")
        if not math.prod(t.shape):
            return np.zeros(t.shape, t.storage.dtype)
        size = held.itemsize
        view = np.lib.stride_tricks.as_strided(held[t.offset :], t.shape, [s * size for s in t.strides])
        return view.copy(order="C")

    def walk(prefix: str, value: Any, depth: int) -> None:
        if isinstance(value, _Tensor):
            readers[prefix] = lambda: read(value)
        elif isinstance(value, dict) and depth < 64:
            if len(readers) > _MOST:
                _damaged(file, "too many tensors")
            for k, v in value.items():  # pyright: ignore[reportUnknownVariableType]
                walk(f"{prefix}.{k}" if prefix else str(k), v, depth + 1)  # pyright: ignore[reportUnknownArgumentType]

    walk("", tree, 0)
    return LazyWeights(readers, {})


assert set(map(np.dtype, _STORAGES.values())) <= dtypes.NUMERIC
