"""A program for an NPU of AMD as files: the array's configuration (xclbin), the instructions, and its buffers.

It is what AMD's compiler ``aiecc`` leaves of a design: ``final.xclbin`` and ``insts.bin`` (or ``insts.txt``, one word
in hexadecimal digits on a line). Knows files, not how they are run.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, final

import numpy as np

from nxjax.backends.evidence import digest
from nxjax.config.forks import cached_property
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

Role = Literal["in", "out", "inout"]
ROLES: Final[tuple[Role, ...]] = ("in", "out", "inout")
MANIFEST: Final = "xrt.json"
XCLBIN: Final = "final.xclbin"
INSTS: Final = "insts.bin"
_FORMAT: Final = "nxjax-xrt-1"
_LARGEST: Final = 2**30  # bytes of a program
_MAGIC: Final = b"xclbin2\0"
# Where XRT's ``xclbin.h`` has the file's length and the number of its sections, and the headers of those behind it.
_LENGTH: Final = 304
_SECTIONS: Final = 448
_HEADERS: Final = 456
_SECTION: Final = struct.Struct("<I16s4xQQ")
# Sections that hold the array's configuration: PDI and AIE_PARTITION.
_CONFIGURATIONS: Final = (18, 32)
# What the kernel's own interface has before the buffers: the operation code, the instructions, their length.
LEADING: Final = 3
# Run a sequence of instructions (ERT_START_NPU's transaction operation code of mlir-aie's designs).
OPCODE: Final = 3


@final
@dataclass(frozen=True)
class XrtBuffer:
    """One buffer of the host that the program reads or writes; the dtype is a name such as "int8" or "bfloat16"."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ParameterError(f"xrt: buffer {self.name}: role", got=self.role, expected=", ".join(ROLES))
        if any(not isinstance(n, int) or n < 0 for n in self.shape):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError(f"xrt: buffer {self.name}: shape", got=self.shape, expected="sizes, 0 or more")
        dtypes.as_dtype(self.dtype)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The dtype for NumPy."""
        return np.dtype(dtypes.as_dtype(self.dtype))

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.numpy.itemsize


@final
@dataclass(frozen=True)
class XrtArtifact:
    """A program for the NPU.

    Attributes:
        xclbin: the array's configuration, as AMD's compiler wrote it.
        insts: the instructions that the NPU's controller executes, 32-bit words.
        buffers: the program's buffers in the order of its arguments.
        kernel: the kernel's name; empty for the file's first one (mlir-aie writes "MLIR_AIE").
        chip: the generation it is for, "npu1" or "npu4"; empty for any.
        length: what the argument behind the instructions counts: "bytes", as newer designs want, or "words".
        opcode: the first argument.
    """

    xclbin: bytes
    insts: bytes
    buffers: tuple[XrtBuffer, ...]
    kernel: str = ""
    chip: str = ""
    length: Literal["bytes", "words"] = "bytes"
    opcode: int = OPCODE

    def __post_init__(self) -> None:
        if not self.insts or len(self.insts) % 4:
            raise ParameterError("xrt: instructions", got=f"{len(self.insts)} bytes", expected="32-bit words")
        if not self.xclbin.startswith(_MAGIC):
            raise InvalidFileError("xrt: not an xclbin", got=repr(self.xclbin[:8]), expected=repr(_MAGIC))
        if self.length not in ("bytes", "words"):
            raise ParameterError("xrt: length", got=self.length, expected='"bytes" or "words"')

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Of the configuration and of the instructions."""
        return digest(self.xclbin), digest(self.insts)

    @property
    def key(self) -> str:
        """What tells the array's configuration apart from others: programs that share one share a hardware context."""
        return self.digests[0]

    @property
    def counted(self) -> int:
        """The length of the instructions as the kernel is told it."""
        return len(self.insts) if self.length == "bytes" else len(self.insts) // 4

    @property
    def inputs(self) -> list[XrtBuffer]:
        return [b for b in self.buffers if b.role != "out"]

    @property
    def outputs(self) -> list[XrtBuffer]:
        return [b for b in self.buffers if b.role != "in"]

    @classmethod
    def of(cls, xclbin: str | Path, insts: str | Path, buffers: Sequence[XrtBuffer], **given: Any) -> XrtArtifact:
        """What AMD's compiler left: two files by name, with the buffers in the order of the design's arguments.

        ``given`` are the other attributes. Errors are those of `instructions`, and OSError where a file is missing.
        """
        return cls(safe_io.read(xclbin, _LARGEST), instructions(insts), tuple(buffers), **given)

    def save(self, folder: str | Path) -> Path:
        """Write the program's three files into ``folder``, which is made; each is there whole or not at all."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        rows = [{"name": b.name, "shape": b.shape, "dtype": b.dtype, "role": b.role} for b in self.buffers]
        manifest = {"format": _FORMAT, "kernel": self.kernel, "chip": self.chip, "length": self.length}
        manifest |= {"opcode": self.opcode, "buffers": rows}
        safe_io.write(place / XCLBIN, self.xclbin)
        safe_io.write(place / INSTS, self.insts)
        safe_io.write(place / MANIFEST, json.dumps(manifest, indent=2).encode())
        return place

    @classmethod
    def load(cls, folder: str | Path) -> XrtArtifact:
        """Read what `save` wrote.

        Raises:
            InvalidFileError: a file is missing or damaged.
        """
        place = Path(folder)
        try:
            manifest = safe_io.parsed(safe_io.read(place / MANIFEST, safe_io.TEXT))
            if manifest["format"] != _FORMAT:
                raise InvalidFileError(f"xrt: {place / MANIFEST}", got=manifest["format"], expected=_FORMAT)
            buffers = tuple(
                XrtBuffer(str(r["name"]), tuple(r["shape"]), str(r["dtype"]), r["role"]) for r in manifest["buffers"]
            )
            xclbin, insts = (safe_io.read(place / name, _LARGEST) for name in (XCLBIN, INSTS))
            given = {k: manifest[k] for k in ("kernel", "chip", "length", "opcode")}
            return cls(xclbin, insts, buffers, **given)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, InvalidFileError):
                raise
            raise InvalidFileError(f"xrt: {place} holds no program", got=f"{type(error).__name__}: {error}") from error


def instructions(path: str | Path) -> bytes:
    """The instructions in a file of AMD's compiler: binary, or one word in hexadecimal digits on a line (``.txt``).

    Raises:
        InvalidFileError: a line that is no 32-bit word.
    """
    place = Path(path)
    if place.suffix != ".txt":
        return safe_io.read(place, _LARGEST)
    words: list[int] = []
    for number, line in enumerate(safe_io.read(place, _LARGEST).decode(errors="replace").split(), 1):
        try:
            words.append(int(line, 16))
        except ValueError as error:
            raise InvalidFileError(f"xrt: {place}: word {number}", got=repr(line), expected="hex digits") from error
        if words[-1] >= 1 << 32:
            raise InvalidFileError(f"xrt: {place}: word {number}", got=repr(line), expected="32 bits")
    return np.array(words, np.dtype("<u4")).tobytes()


def filled(buffer: XrtBuffer, x: object) -> NDArray:
    """``x`` as the bytes of a buffer; `ParameterError` where its shape or dtype is another."""
    array = cast("NDArray", np.asarray(x))
    if array.shape != buffer.shape or array.dtype != buffer.numpy:
        raise ParameterError(
            f"xrt: buffer {buffer.name}",
            got=f"{array.dtype}{list(array.shape)}",
            expected=f"{buffer.dtype}{list(buffer.shape)}",
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def refused_xclbin(data: bytes) -> str:
    """Why bytes are no xclbin with an array's configuration, by its magic, lengths and sections; empty if they are."""
    if not data.startswith(_MAGIC) or len(data) < _HEADERS:
        return f"it begins with {data[:8]!r}, an xclbin with {_MAGIC!r}" if data[:8] != _MAGIC else "its header is cut"
    (length,), (count,) = struct.unpack_from("<Q", data, _LENGTH), struct.unpack_from("<I", data, _SECTIONS)
    if not _HEADERS <= length <= len(data):
        return f"its header says {length:,} bytes, it has {len(data):,}"
    if not 0 < count <= (len(data) - _HEADERS) // _SECTION.size:
        return f"its header says {count:,} sections"
    sections = [_SECTION.unpack_from(data, _HEADERS + i * _SECTION.size) for i in range(count)]
    if any(offset + size > len(data) for _, _, offset, size in sections):
        return "a section ends behind it"
    if not any(kind in _CONFIGURATIONS and size for kind, _, _, size in sections):
        return "it has no section with an array's configuration"
    return ""


def refused_instructions(data: bytes) -> str:
    """Why bytes are no instructions of an NPU's controller, by their header; empty if they are."""
    words = struct.unpack_from("<4I", data) if len(data) > 16 and not len(data) % 4 else ()
    if not words:
        return f"{len(data):,} bytes are no header and instructions"
    if not words[2] or words[3] != len(data):
        return f"its header says {words[2]:,} instructions of {words[3]:,} bytes, it has {len(data):,} bytes"
    return ""
