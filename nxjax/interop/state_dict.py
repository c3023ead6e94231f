"""Tensors of files of `torch.save`, without PyTorch: a zip of a pickle, which is read and not run, and of bytes.

A walk over the pickle's opcodes knows containers, tensors and a few plain values; no name in it is looked up. Format:
PyTorch's serialization notes, pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import pickletools
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn, cast, final

import ml_dtypes
import numpy as np

from nxjax.errors import InvalidFileError
from nxjax.interop.graphs.mapped import MappedZip, mapped, strided
from nxjax.interop.weights import MOST, LazyWeights, damaged, path_of
from nxjax.trace import dtypes
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]

# What readers of the standard library and NumPy raise on damaged files; warnings, where the user makes them errors.
_DAMAGE: Final = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError,
    NotImplementedError, RuntimeError, Warning, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# Axes of a tensor, and how deep containers may lie in one another.
_RANK: Final = 64
_DEPTH: Final = 64

_STORAGES: Final[dict[str, Any]] = {
    "FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16, "LongStorage": np.int64,
    "IntStorage": np.int32, "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8,
    "BoolStorage": np.bool_, "BFloat16Storage": ml_dtypes.bfloat16, "ComplexFloatStorage": np.complex64,
    "ComplexDoubleStorage": np.complex128, "UntypedStorage": np.uint8,
}  # fmt: skip
# Types that have no storage class of their own: their tensors name them.
_DTYPES: Final[dict[str, Any]] = {
    "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
# Calls whose results hold no tensor, and are left out.
_PLAIN: Final = (
    "torch.Size", "torch.device", "torch.dtype", "_codecs.encode", "builtins.complex", "builtins.bytearray",
    "builtins.set", "builtins.frozenset", "builtins.slice", "builtins.range", "numpy.dtype",
    "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
)  # fmt: skip
_DICTS: Final = ("collections.OrderedDict", "collections.defaultdict", "collections.Counter")
# A key of a dict: anything else could take forever to compare.
_KEYS: Final = (str, int, float, bytes, type(None))


@final
class _Global:
    """A name in a pickle."""

    def __init__(self, module: str, name: str) -> None:
        self.name = f"{module.replace('__builtin__', 'builtins')}.{name}"


@final
class _Storage:
    def __init__(self, dtype: Any, key: str) -> None:
        self.dtype, self.key = np.dtype(dtype), key


@final
class _Tensor:
    """A view of a storage, and whether its elements are conjugated or negated when they are read."""

    def __init__(self, storage: _Storage, dtype: Any, view: Any, lazily: Any) -> None:
        self.storage, self.dtype = storage, np.dtype(dtype)
        self.offset, self.shape, self.strides = int(view[0]), tuple(view[1]), tuple(view[2])
        self.conj, self.neg = (isinstance(lazily, dict) and bool(lazily.get(k)) for k in ("conj", "neg"))  # pyright: ignore[reportUnknownMemberType]


def _more(path: Path, name: object) -> NoReturn:
    raise InvalidFileError(
        f"{path.name}: holds more than tensors", got=str(name)[:200], expected="a state_dict: names and tensors",
        fix="save model.state_dict()",
    )  # fmt: skip


@final
class _Pickle:
    """A pickle being read.

    Attributes:
        root: the tree of containers, tensors and plain values that it describes.
    """

    def __init__(self, path: Path, text: bytes) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        for opcode, given, _ in pickletools.genops(text):
            self._step(opcode.name, cast("Any", given))
        self.root = self._stack[-1] if self._stack else None

    def _popped(self) -> list[Any]:
        cut = self._marks.pop()
        taken = self._stack[cut:]
        del self._stack[cut:]
        return taken

    def _step(self, name: str, arg: Any) -> None:
        stack = self._stack
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self._marks.append(len(stack))
            case "GLOBAL":
                stack.append(_Global(*str(arg).split(" ", 1)))
            case "STACK_GLOBAL":
                attribute, module = stack.pop(), stack.pop()
                stack.append(_Global(str(module), str(attribute)))
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self._memo[int(arg)] = stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(self._memo[int(arg)])
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST" | "EMPTY_SET":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                n = int(name[-1])
                taken = stack[-n:]
                del stack[-n:]
                stack.append(tuple(taken))
            case "TUPLE" | "LIST" | "DICT" | "FROZENSET":
                taken = self._popped()
                made = self._entries(zip(taken[::2], taken[1::2], strict=True)) if name == "DICT" else taken
                stack.append(tuple(taken) if name == "TUPLE" else made)
            case "SETITEMS" | "SETITEM":
                taken = self._popped() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                stack[-1].update(self._entries(zip(taken[::2], taken[1::2], strict=True)))
            case "APPENDS" | "APPEND" | "ADDITEMS":
                taken = [stack.pop()] if name == "APPEND" else self._popped()
                stack[-1].extend(taken)
            case "POP":
                stack.pop()
            case "BINPERSID":
                stack.append(self._storage(stack.pop()))
            case "REDUCE":
                args = stack.pop()
                stack.append(self._made(stack.pop(), args))
            case "BUILD":
                stack.pop()  # a state_dict's own attributes: versions of layers
            case "NEWOBJ" | "NEWOBJ_EX" | "OBJ" | "INST" | "EXT1" | "EXT2" | "EXT4":
                names = [v.name for v in stack[-3:] if isinstance(v, _Global)]
                _more(self._path, names[-1] if names else arg or "an object")
            case _ if arg is not None:
                stack.append(arg)
            case _:
                damaged(self._path, f"an opcode {name}")

    def _entries(self, pairs: Iterable[Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for k, v in pairs:
            parts: Any = k if isinstance(k, tuple) else (k,)
            if all(isinstance(p, _KEYS) for p in parts):
                found[k] = v
            elif not isinstance(k, _Global):
                damaged(self._path, f"a key of type {type(k).__name__}")
        return found

    def _storage(self, held: Any) -> _Storage:
        kind, storage, key, *_ = held
        name = storage.name if isinstance(storage, _Global) else "none"
        if kind != "storage" or name.rpartition(".")[2] not in _STORAGES:
            _more(self._path, f"a storage of type {name}")
        return _Storage(_STORAGES[name.rpartition(".")[2]], str(key))

    def _made(self, what: Any, args: Any) -> Any:
        """What a call in the file would make. No other call is known, none is run."""
        name = what.name if isinstance(what, _Global) else "a value"
        match name:
            case "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor":
                return self._tensor(args, args[0].dtype, args[6] if len(args) > 6 else None)
            case "torch._utils._rebuild_tensor_v3":
                dtype = args[6].name.removeprefix("torch.") if isinstance(args[6], _Global) else "none"
                if dtype not in _DTYPES:
                    _more(self._path, f"a tensor of type {dtype}")
                return self._tensor(args, _DTYPES[dtype], args[7] if len(args) > 7 else None)
            case "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state":
                return args[0]
            case "torch._tensor._rebuild_from_type_v2":
                return self._made(args[0], args[2])  # a subclass of a tensor, such as a buffer
            case _ if name in _DICTS:
                pairs = args[-1] if args and name == "collections.OrderedDict" else {}
                return self._entries(pairs.items() if isinstance(pairs, dict) else pairs)
            case _ if name in _PLAIN:
                return None
            case _:
                _more(self._path, name)

    def _tensor(self, args: Any, dtype: Any, lazily: Any) -> _Tensor:
        storage, *view = args[:4]
        numbers = (view[0], *view[1], *view[2])
        if not isinstance(storage, _Storage) or not all(type(n) is int and 0 <= n < 1 << 48 for n in numbers):
            damaged(self._path, "a tensor without a storage")
        if not len(view[1]) == len(view[2]) <= _RANK:
            damaged(self._path, f"a tensor of {len(view[1])} sizes and {len(view[2])} strides")
        return _Tensor(storage, dtype, view, lazily)


def _named(path: Path, root: Any) -> dict[str, _Tensor]:
    """The tensors in a tree of containers by their names: keys and places, with dots between."""
    found: dict[str, _Tensor] = {}
    seen = 0

    def walk(prefix: str, value: Any, depth: int) -> None:
        nonlocal seen
        # A container may lie in a file once and be named often, and so may a long key.
        seen += 1 + len(prefix) // 256
        if seen > MOST:
            damaged(path, "too many tensors")
        if isinstance(value, _Tensor):
            if prefix in found:
                damaged(path, f"two tensors of one name, {prefix!r}")
            found[prefix] = value
        elif isinstance(value, (dict, list, tuple)) and depth < _DEPTH:
            items: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore
            for k, v in items:
                walk(f"{prefix}.{k}" if prefix else str(k), v, depth + 1)

    walk("", root, 0)
    return found


def _elements(t: _Tensor, stored: NDArray) -> NDArray:
    view = strided(stored, np.uint8 if t.dtype == np.bool_ else t.dtype, t.offset, t.shape, t.strides)
    # Other bytes than 0 and 1 are no elements of NumPy.
    view = view != 0 if t.dtype == np.bool_ else np.conj(view) if t.conj else view
    return np.negative(view) if t.neg else np.ascontiguousarray(view).reshape(t.shape)


@entry
def load_torch(path: str | Path) -> LazyWeights:
    """Tensors of a file that ``torch.save(model.state_dict(), path)`` wrote. PyTorch is not needed.

    Nothing is unpickled: the file's opcodes are read, and only names, containers and tensors are understood. Tensors
    in lists have their places as names. Numbers and texts are left out.

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
    file = path_of("load_torch", path)
    data = mapped(file)
    if data[:2].tobytes() != b"PK":
        raise InvalidFileError(
            f"{file.name}: no zip file, as PyTorch writes since version 1.6",
            got=data[:2].tobytes(),
            fix="torch.save(torch.load(path, weights_only=True), path)",
        )
    try:
        archive = MappedZip(data)
        if archive.names.get("byteorder") and archive.text("byteorder") == b"big":
            damaged(file, "numbers of a machine that has their high bytes first")
        tensors = _named(file, _Pickle(file, archive.text("data.pkl")).root)
    except InvalidFileError:
        raise
    except _DAMAGE as error:
        damaged(file, error)

    def reader(t: _Tensor) -> Callable[[], NDArray]:
        def read() -> NDArray:
            try:
                return _elements(t, archive.bytes_of(f"data/{t.storage.key}"))
            except _DAMAGE as error:
                damaged(file, error)

        return read

    return LazyWeights({k: reader(t) for k, t in tensors.items()}, {})


assert {np.dtype(d) for d in (*_STORAGES.values(), *_DTYPES.values())} <= dtypes.NUMERIC
