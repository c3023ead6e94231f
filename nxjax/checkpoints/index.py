"""The ``index.json`` of a step: what is in its files, and everything that is checked before one of them is believed."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, final

from nxjax.checkpoints import tensors
from nxjax.checkpoints.parts import Box
from nxjax.checkpoints.steps import INDEX
from nxjax.checkpoints.structure import name_of
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.trace.dtypes import DType

FORMAT: Final = "nxjax.checkpoint"
VERSION: Final = 1
Scalar = bool | int | float | complex | str


@final
@dataclass(frozen=True)
class StoredPart:
    """A part of an array in a file."""

    file: int
    tensor: str
    box: Box
    checksum: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(end - start for start, end in self.box)


@final
@dataclass(frozen=True)
class LeafEntry:
    """A leaf of the tree: an array in parts, or a value of Python's that stands in the index."""

    path: tuple[Any, ...]
    dtype: DType | None = None
    shape: tuple[int, ...] = ()
    weak: bool = False
    sharding: Any = None
    parts: tuple[StoredPart, ...] = ()
    value: Scalar | None = None

    @property
    def name(self) -> str:
        return name_of(self.path)


@final
@dataclass(frozen=True)
class CheckpointIndex:
    """All of a step but the elements of its arrays.

    Attributes:
        files: their names and sizes.
        tree: see `structure`.
        metadata: the user's.
    """

    step: int
    files: tuple[tuple[str, int], ...]
    tree: Any
    leaves: tuple[LeafEntry, ...]
    metadata: Any = None
    processes: int = 1
    by_path: dict[tuple[Any, ...], LeafEntry] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self.by_path.update({leaf.path: leaf for leaf in self.leaves})


def file_name(process: int, processes: int) -> str:
    return f"shard-{process:05d}-of-{processes:05d}.safetensors"


def checked_metadata(metadata: Any) -> Any:
    """``metadata`` as JSON gives it back.

    Raises:
        ParameterError: it is no JSON.
    """
    try:
        return json.loads(json.dumps(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            "checkpoint: metadata must be JSON", got=str(error)[:200], expected="dicts, lists, strings, numbers, None"
        ) from None


def described_sharding(sharding: Any) -> Any:
    """A named sharding by the axes of its mesh and its spec; None for any other."""
    mesh, spec = getattr(sharding, "mesh", None), getattr(sharding, "spec", None)
    if mesh is None or spec is None:
        return None
    entries = [
        e if e is None or isinstance(e, str) else list(map(str, e)) if isinstance(e, tuple) else None for e in spec
    ]
    sizes = dict(mesh.shape)
    return {"mesh": [[str(n), int(sizes[n])] for n in mesh.axis_names], "spec": entries}


def written(index: CheckpointIndex) -> bytes:
    """The bytes of the file."""
    leaves: list[dict[str, Any]] = []
    for leaf in index.leaves:
        row: dict[str, Any] = {"path": list(leaf.path)}
        if leaf.dtype is None:
            row["python"] = _scalar_text(leaf.value)
        else:
            row |= {"dtype": tensors.name_of(leaf.dtype), "shape": list(leaf.shape), "weak": leaf.weak}
            row["sharding"] = leaf.sharding
            row["parts"] = [
                {"file": p.file, "tensor": p.tensor, "box": [list(b) for b in p.box], "crc32": f"{p.checksum:08x}"}
                for p in leaf.parts
            ]
        leaves.append(row)
    body = {
        "format": FORMAT,
        "version": VERSION,
        "step": index.step,
        "processes": index.processes,
        "files": [list(f) for f in index.files],
        "metadata": index.metadata,
        "tree": index.tree,
        "leaves": leaves,
    }
    return json.dumps({"crc32": _checksum(body), "checkpoint": body}, indent=None, separators=(",", ":")).encode()


def _checksum(body: Any) -> str:
    return f"{zlib.crc32(json.dumps(body, separators=(',', ':')).encode()):08x}"


def _scalar_text(value: Any) -> list[str]:
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, complex):
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, int) and abs(value) >= 2**64:
        return ["int", hex(value)]  # Python refuses to write many decimal digits
    return [type(value).__name__, str(value)]


def _scalar(row: list[str]) -> Scalar:
    kind, *texts = row
    if kind == "float":
        return float.fromhex(texts[0])
    if kind == "complex":
        return complex(float.fromhex(texts[0]), float.fromhex(texts[1]))
    if kind == "bool":
        return {"True": True, "False": False}[texts[0]]
    if kind == "int":
        return int(texts[0], 0)
    if kind != "str":
        raise ValueError(f"a value of kind {kind!r}")
    return str(texts[0])


def read(folder: Path, handle: int | None = None) -> CheckpointIndex:
    """The index of a step.

    Args:
        folder: its name.
        handle: the folder itself, open, which may have another name by now.

    Raises:
        InvalidFileError: it is none, or damaged.
        FileNotFoundError: the folder has none.
    """
    path = folder / INDEX

    def fail(why: object) -> NoReturn:
        raise InvalidFileError(
            f"checkpoint: {path}: the index is damaged", got=str(why)[:300], fix="restore another step"
        )

    try:
        found = safe_io.parsed(safe_io.read(path if handle is None else INDEX, safe_io.TEXT, handle))
        body = found["checkpoint"]
        if found["crc32"] != _checksum(body):
            fail("other bytes than were written: the checksum differs")
        if body["format"] != FORMAT or body["version"] != VERSION:
            fail(f"format {body['format']!r} version {body['version']!r}, this reads {FORMAT} {VERSION}")
        files = tuple((str(name), int(size)) for name, size in body["files"])
        if any(Path(name).name != name or name in (".", "..") for name, _ in files):
            fail("a file outside the folder")
        leaves = tuple(_leaf(row, len(files), str(path)) for row in body["leaves"])
        _check_sizes(leaves, files)
        return CheckpointIndex(int(body["step"]), files, body["tree"], leaves, body["metadata"], int(body["processes"]))
    except InvalidFileError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        fail(repr(error))


def _check_sizes(leaves: tuple[LeafEntry, ...], files: tuple[tuple[str, int], ...]) -> None:
    """A short index cannot ask for many copies of one part."""
    parts = [(p, leaf) for leaf in leaves for p in leaf.parts]
    asked = sum(tensors.nbytes(leaf.dtype, p.shape) for p, leaf in parts if leaf.dtype is not None)
    stored = sum(size for _, size in files)
    if asked > stored or len({(p.file, p.tensor) for p, _ in parts}) < len(parts):
        raise ValueError(f"arrays of {asked} bytes in {len(parts)} parts, in files of {stored} bytes")


def _leaf(row: dict[str, Any], files: int, where: str) -> LeafEntry:
    path = tuple(row["path"])
    if any(type(k) not in (str, int) for k in path):
        raise ValueError("a path of something else than strings and integers")
    if "python" in row:
        return LeafEntry(path, value=_scalar(row["python"]))
    dtype, shape = tensors.dtype_named(row["dtype"], where), tuple(row["shape"])
    if len(shape) > 64 or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{name_of(path)} of shape {shape}")
    parts: list[StoredPart] = []
    for p in row["parts"]:
        box = tuple((int(a), int(b)) for a, b in p["box"])
        if len(box) != len(shape) or not all(0 <= a <= b <= n for (a, b), n in zip(box, shape, strict=True)):
            raise ValueError(f"{name_of(path)} has a part at {box} of {shape}")
        if not 0 <= int(p["file"]) < files:
            raise ValueError(f"{name_of(path)} has a part in file {p['file']} of {files}")
        parts.append(StoredPart(int(p["file"]), str(p["tensor"]), box, int(p["crc32"], 16)))
    if sum(math.prod(p.shape) for p in parts) != math.prod(shape) or not parts:
        raise ValueError(f"the parts of {name_of(path)} do not make up {shape}")
    return LeafEntry(path, dtype, shape, bool(row["weak"]), row["sharding"], tuple(parts))
