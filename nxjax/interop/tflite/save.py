"""A TFLite file written again with other constants: the same bytes but for the elements of its tensors.

Elements are put where the old ones lie, so all else stays: metadata, signatures, options of custom operators. Tensors
that share a buffer and are to differ get buffers of their own. Then the root table and the list of buffers are written
again in front of the old file, since offsets in a FlatBuffer point forward.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.files import safe_io
from nxjax.interop.tflite.graph import TFLiteFile, invalid
from nxjax.lower.npu.formats.flatbuffer import ObjectPlace, root_of
from nxjax.lower.npu.formats.tflite import packed
from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA

NDArray = np.ndarray[Any, Any]
# The last byte that an offset of a FlatBuffer reaches, for readers that take them as signed.
_LARGEST: Final = 2**31 - 1
_ALIGNED: Final = 64
# Buffers of 0 or 1 as their offset have their bytes in the FlatBuffer.
_OUTSIDE: Final = 1
Span = tuple[int, int]


def save(path: Path, data: memoryview, model: TFLiteFile, changed: Mapping[str, NDArray]) -> None:
    """Write a file, whole or not at all.

    Args:
        data: the bytes that ``model`` was read from.
        changed: elements of its constants by name; all others stay.

    Raises:
        ParameterError: the file would be larger than one without tensors behind its tables can be.
    """
    patched = _Patched(data, model, changed)
    with safe_io.replacing(path) as file:
        for part in patched.parts():
            file.write(part)


@final
class _Patched:
    """A file with other bytes in some places.

    Attributes:
        patches: bytes by where they go.
        split: for tensors that no longer share a buffer: where the number of theirs lies, and its bytes.
    """

    def __init__(self, data: memoryview, model: TFLiteFile, changed: Mapping[str, NDArray]) -> None:
        self.data, self.root = data, root_of(SCHEMA, "Model", data)
        self.buffers = _items(self.root, "buffers")
        self.patches: dict[int, bytes | memoryview] = {}
        self.split: list[tuple[ObjectPlace, memoryview]] = []
        # Who uses which bytes, and what they are to be; None: what they are.
        users: dict[Span, list[tuple[ObjectPlace | None, memoryview | None]]] = {}
        for graph, row in zip(model.graphs, _items(self.root, "subgraphs"), strict=True):
            for tensor, place in zip(graph.tensors, _items(row, "tensors"), strict=True):
                new = changed.get(tensor.name) if tensor.data is not None else None
                if new is not None and tensor.places is not None:
                    new = new.reshape(-1)[tensor.places]
                at = place.field("buffer")
                span = self.span(0 if at is None else at.number())
                users.setdefault(span, []).append((at, None if new is None else packed(new)))
        for row in _items(self.root, "metadata"):
            at = row.field("buffer")
            users.setdefault(self.span(0 if at is None else at.number()), []).append((at, None))
        spans = sorted(s for s in users if s[1] > s[0])
        alone = dict.fromkeys(spans, True)
        for a, b in itertools.pairwise(spans):
            if a[1] > b[0]:
                alone[a] = alone[b] = False
        for span in spans:
            self.place(span, users[span], alone[span])

    def span(self, number: int) -> Span:
        """Where the bytes of a buffer lie."""
        if number >= len(self.buffers):
            raise invalid("a buffer that is not there", number)
        buffer = self.buffers[number]
        held, offset, size = (buffer.field(k) for k in ("data", "offset", "size"))
        if offset is not None and offset.number() > _OUTSIDE:
            return offset.number(), offset.number() + (0 if size is None else size.number())
        return (0, 0) if held is None else held.span()

    def place(self, span: Span, users: Sequence[tuple[ObjectPlace | None, memoryview | None]], alone: bool) -> None:
        """New bytes where the old ones are if nobody needs these, else in a new buffer."""
        old = self.data[span[0] : span[1]]
        changed = [(at, new) for at, new in users if new is not None and new != old]
        free = alone and len(changed) == len(users)
        for at, new in changed:
            if new.nbytes != span[1] - span[0] or at is None:
                raise invalid("a constant whose bytes are not its own", span)
            if free and self.patches.setdefault(span[0], new) == new:
                continue
            self.split.append((at, new))

    def parts(self) -> Iterable[bytes | memoryview]:
        """The bytes of the new file, in order."""
        if not self.split:
            yield from self.body()
            return
        outside = any(self.is_outside(b) for b in self.buffers)
        contents: list[memoryview] = []
        for at, new in self.split:
            if new not in contents:
                contents.append(new)
            self.patches[at.position] = struct.pack("<I", len(self.buffers) + contents.index(new))
        front = self.front(contents, outside)
        # Two rounds: how long the front is does not depend on what it says.
        ends = self.layout(contents, len(front), outside)
        front = self.front(contents, outside, ends)
        if not outside and ends[-1][1] > _LARGEST:
            raise ParameterError(
                "save: more than a TFLite file can hold whose tensors are in its tables",
                got=f"{ends[-1][1]} bytes",
                expected=f"at most {_LARGEST}",
            )
        self.move(len(front))
        yield front
        yield from self.body()
        end = len(front) + len(self.data)
        for (start, stop), new in zip(ends, contents, strict=True):
            gap = bytes(start - end - (0 if outside else 4))
            yield gap if outside else gap + struct.pack("<I", new.nbytes)
            yield new
            end = stop

    def body(self) -> Iterable[bytes | memoryview]:
        end = 0
        for start, new in sorted(self.patches.items(), key=lambda row: row[0]):
            yield self.data[end:start]
            yield new
            end = start + len(new)
        yield self.data[end:]

    @staticmethod
    def is_outside(buffer: ObjectPlace) -> bool:
        offset = buffer.field("offset")
        return offset is not None and offset.number() > _OUTSIDE

    def layout(self, contents: Sequence[memoryview], front: int, outside: bool) -> list[Span]:
        """Where new buffers begin and end: behind all others."""
        found: list[Span] = []
        end = front + len(self.data)
        for new in contents:
            start = end + (0 if outside else 4)
            start += -start % _ALIGNED
            found.append((start, end := start + new.nbytes))
        return found

    def front(self, contents: Sequence[memoryview], outside: bool, ends: Sequence[Span] = ()) -> bytes:
        """The root table, the list of buffers and the new ones; lengths and places are those of the final file."""
        old, read = self.root.position, self.root.reader.number
        vtable = old - read("i32", old)
        size, room = read("u16", vtable), read("u16", vtable + 2)
        known = 4 + 2 * len(SCHEMA.tables["Model"])
        if any(self.data[vtable + min(size, known) : vtable + size]):
            raise invalid("tensors share a buffer in a file with parts that nxjax does not know", self.root.kind)
        out = bytearray(8) + bytes(self.data[vtable : vtable + size])
        out[4:8] = IDENTIFIER
        out += bytes(-len(out) % 8)
        table = len(out)
        out += self.data[old : old + room]
        out += bytes(-len(out) % 8)
        struct.pack_into("<I", out, 0, table)
        struct.pack_into("<i", out, table, table - 8)
        vector = len(out)
        count = len(self.buffers) + len(contents)
        out += struct.pack("<I", count) + bytes(4 * count)
        out += bytes(-len(out) % 8)
        rows: list[int] = []
        form = "<5H6x" if outside else "<3H2x"
        layout = (10, 24, 0, 8, 16) if outside else (6, 8, 4)
        for i, _ in enumerate(contents):
            start, stop = ends[i] if ends else (0, 0)
            at = len(out) + struct.calcsize(form)
            # The table's link to its layout, then where its bytes are.
            link = at - len(out)
            fields = (
                struct.pack("<i4xQQ", link, start, stop - start)
                if outside
                else struct.pack("<iI", link, max(start - 4 - (at + 4), 0))
            )
            out += struct.pack(form, *layout) + fields
            rows.append(at)
        out += bytes(-len(out) % _ALIGNED)
        front = len(out)
        for f in SCHEMA.tables["Model"]:
            field = read("u16", vtable + 4 + 2 * f.slot) if 4 + 2 * f.slot < size else 0
            if field and f.kind.startswith(("[", "str")):
                target = vector if f.name == "buffers" else front + self.root.reader.follow(old + field)
                struct.pack_into("<I", out, table + field, target - table - field)
        for i, row in enumerate([*(front + b.position for b in self.buffers), *rows]):
            hole = vector + 4 + 4 * i
            struct.pack_into("<I", out, hole, row - hole)
        return bytes(out)

    def move(self, front: int) -> None:
        """What counts from the start of the file counts ``front`` bytes more."""
        for buffer in self.buffers:
            offset = buffer.field("offset")
            if offset is not None and offset.number() > _OUTSIDE:
                self.patches[offset.position] = struct.pack("<Q", offset.number() + front)
        for graph in _items(self.root, "subgraphs"):
            for operator in _items(graph, "operators"):
                offset = operator.field("large_custom_options_offset")
                if offset is not None and offset.number() > _OUTSIDE:
                    self.patches[offset.position] = struct.pack("<Q", offset.number() + front)


def _items(table: ObjectPlace, name: str) -> list[ObjectPlace]:
    """The tables in a field of a table."""
    found = table.field(name)
    return [] if found is None else found.items()
