"""FlatBuffers from tables that are data: values in dictionaries to bytes, and bytes back, with every step checked.

Knows the binary format (google.github.io/flatbuffers, "FlatBuffer internals"), no schema. A schema is text, one line
per table (more of it on indented lines); a field's place in its line is its number in the file:

    Pool: padding:i8 stride:i32=1 name:str sizes:[i32] parts:[Part] data:bytes what:Shape

Kinds: scalars ``bool i8 u8 i16 u16 i32 u32 i64 u64 f32``; ``str``; a vector ``[kind]``; ``bytes``, a byte vector
aligned to 16 that is written behind everything else, so that megabytes are copied once; a table by its name; a union by
its name, which takes two numbers (the type, then the value) and whose value is a pair of table name and fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

import numpy as np

from nxjax.errors import InvalidFileError

_SCALARS: Final = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "f32": "f",
}  # fmt: skip
_SIZES: Final = {kind: struct.calcsize("<" + code) for kind, code in _SCALARS.items()}
_DTYPES: Final = {kind: np.dtype("<" + code) for kind, code in _SCALARS.items()}
# Rows that a file can make us decode: honest files share strings, no more; hostile ones may share anything.
_SHARING: Final = 4
# What a table costs beside its bytes: it becomes a dictionary.
_ROW: Final = 24
# Objects inside objects: tables that hold tables of their own kind make a file as deep as it likes.
_DEEPEST: Final = 200

Fields = dict[str, Any]


@final
@dataclass(frozen=True)
class TableField:
    """One field of a table: its slot, its name, its kind and, for a scalar, its default."""

    slot: int
    name: str
    kind: str
    default: Any


@final
class Schema:
    """Tables and unions, read from their text.

    >>> schema = Schema("Point: x:i32 y:i32=7", {})
    >>> [f.default for f in schema.tables["Point"]]
    [0, 7]
    """

    def __init__(self, text: str, unions: Mapping[str, Sequence[str]]) -> None:
        self.unions = {name: tuple(members) for name, members in unions.items()}
        self.tables: dict[str, tuple[TableField, ...]] = {}
        for line in filter(None, text.replace("\n  ", " ").splitlines()):
            name, _, words = line.partition(":")
            slot, fields = 0, list[TableField]()
            for word in words.split():
                field, kind = word.split(":")
                kind, _, default = kind.partition("=")
                fields.append(
                    TableField(slot, field, kind, int(default or 0) if kind != "f32" else float(default or 0))
                )
                slot += 2 if kind in self.unions else 1
            self.tables[name] = tuple(fields)


@final
class _Writer:
    """Front to back: a parent is written with holes, and its children fill them. Thus every offset points forward."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.out = bytearray()
        self.vtables: dict[bytes, int] = {}
        self.waiting: list[tuple[int, str, Any]] = []
        self.bulk: list[tuple[int, memoryview]] = []

    def align(self, size: int, ahead: int = 0) -> int:
        """Pad so that what lies ``ahead`` bytes further on is a multiple of ``size``; the position then."""
        self.out += bytes(-(len(self.out) + ahead) % size)
        return len(self.out)

    def fill(self, hole: int, position: int) -> None:
        struct.pack_into("<I", self.out, hole, position - hole)

    def table(self, name: str, value: Fields) -> int:
        unknown = set(value) - {f.name for f in self.schema.tables[name]}
        assert not unknown, f"{name} has no field {unknown}"
        # (slot, size, code, value, kind of what the hole points to)
        rows: list[tuple[int, int, str, Any, str]] = []
        for f in self.schema.tables[name]:
            given = value.get(f.name)
            if given is None:
                continue
            if f.kind in _SCALARS:
                if given != f.default:
                    rows.append((f.slot, _SIZES[f.kind], _SCALARS[f.kind], given, ""))
            elif f.kind in self.schema.unions:
                member = given[0]
                rows.append((f.slot, 1, "B", self.schema.unions[f.kind].index(member) + 1, ""))
                rows.append((f.slot + 1, 4, "I", given[1], member))
            else:
                rows.append((f.slot, 4, "I", given, f.kind))
        places, end = dict[int, int](), 4
        for slot, size, *_ in sorted(rows, key=lambda row: (-row[1], row[0])):
            end += -end % size
            places[slot], end = end, end + size
        count = max(places, default=-1) + 1
        vtable = struct.pack(f"<{count + 2}H", 2 * count + 4, end, *(places.get(s, 0) for s in range(count)))
        if vtable not in self.vtables:
            self.vtables[vtable] = self.align(2)
            self.out += vtable
        start = self.align(max([4, *(row[1] for row in rows)]))
        self.out += bytes(end)
        struct.pack_into("<i", self.out, start, start - self.vtables[vtable])
        for slot, _, code, given, kind in rows:
            if kind:
                self.later(start + places[slot], kind, given)
            else:
                struct.pack_into("<" + code, self.out, start + places[slot], given)
        return start

    def later(self, hole: int, kind: str, value: Any) -> None:
        if kind == "bytes":
            self.bulk.append((hole, memoryview(value).cast("B")))
        else:
            self.waiting.append((hole, kind, value))

    def vector(self, kind: str, values: Any) -> int:
        if kind in _SCALARS:
            data = np.ascontiguousarray(values, _DTYPES[kind])
            start = self.align(max(4, _SIZES[kind]), 4)
            self.out += struct.pack("<I", data.size) + data.tobytes()
            return start
        start = self.align(4)
        self.out += struct.pack("<I", len(values)) + bytes(4 * len(values))
        for i, value in enumerate(values):
            self.later(start + 4 + 4 * i, kind, value)
        return start

    def string(self, value: str) -> int:
        data = value.encode()
        start = self.align(4)
        self.out += struct.pack("<I", len(data)) + data + b"\0"
        return start

    def finish(self, root: str, value: Fields, identifier: bytes) -> bytes:
        self.out += bytes(4) + identifier
        self.waiting.append((0, root, value))
        done = 0
        while done < len(self.waiting):
            hole, kind, given = self.waiting[done]
            done += 1
            if kind == "str":
                position = self.string(given)
            elif kind.startswith("["):
                position = self.vector(kind[1:-1], given)
            else:
                position = self.table(kind, given)
            self.fill(hole, position)
        tail: list[bytes | memoryview] = []
        end = len(self.out)
        for hole, data in self.bulk:
            gap = -(end + 4) % 16
            self.fill(hole, end + gap)
            tail += [bytes(gap) + struct.pack("<I", data.nbytes), data]
            end += gap + 4 + data.nbytes
        return b"".join([self.out, *tail])


def write(schema: Schema, root: str, value: Fields, identifier: bytes) -> bytes:
    """The bytes of a FlatBuffer whose root table holds ``value``; the same value gives the same bytes.

    >>> schema = Schema("Point: x:i32 y:i32=7", {})
    >>> read(schema, "Point", write(schema, "Point", {"x": 3}, b"PNT1"), b"PNT1")
    {'x': 3, 'y': 7}
    """
    return _Writer(schema).finish(root, value, identifier)


@final
class _Reader:
    """Follows offsets; each is checked, each object is read once, and all together may not be more than the file."""

    def __init__(self, schema: Schema, data: memoryview, what: str) -> None:
        self.schema = schema
        self.data = data
        self.what = what
        # Each object, and what it cost: again for each place that names it, as a reader of the tables walks it again.
        self.seen: dict[tuple[str, int], tuple[Any, int]] = {}
        self.budget = _SHARING * len(data) + 4096
        self.depth = 0

    def fail(self, why: str, position: int) -> NoReturn:
        raise InvalidFileError(
            f"{self.what}: the file is damaged or not of this format",
            got=f"{why} at byte {position} of {len(self.data)}",
            fix="write or download the file again",
        )

    def number(self, kind: str, position: int) -> Any:
        if not 0 <= position <= len(self.data) - _SIZES[kind]:
            self.fail("an offset that points outside", position)
        return struct.unpack_from("<" + _SCALARS[kind], self.data, position)[0]

    def follow(self, position: int) -> int:
        return position + self.number("u32", position)

    def spend(self, amount: int, position: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            self.fail("parts that overlap, more than the file could hold,", position)

    def span(self, position: int, size: int) -> tuple[int, int]:
        """Start and element count of the vector at ``position``."""
        count = self.number("u32", position)
        if count * size > len(self.data) - position - 4:
            self.fail(f"a vector of {count} elements that ends outside", position)
        return position + 4, count

    def object(self, kind: str, position: int) -> Any:
        key = (kind, position)
        if key in self.seen:
            found, cost = self.seen[key]
            self.spend(cost, position)
            return found
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"parts within parts, more than {_DEEPEST} deep,", position)
        before = self.budget
        found = self.decode(kind, position)
        self.seen[key] = found, before - self.budget
        self.depth -= 1
        return found

    def decode(self, kind: str, position: int) -> Any:
        if kind == "str":
            start, count = self.span(position, 1)
            self.spend(count, position)
            return bytes(self.data[start : start + count]).decode(errors="replace")
        if kind == "bytes":
            start, count = self.span(position, 1)
            return self.data[start : start + count]
        if not kind.startswith("["):
            return self.table(kind, position)
        kind = kind[1:-1]
        if kind in _SCALARS:
            start, count = self.span(position, _SIZES[kind])
            self.spend(count * _SIZES[kind], position)
            return np.frombuffer(self.data, _DTYPES[kind], count, start)
        start, count = self.span(position, 4)
        self.spend(4 * count, position)
        return [self.object(kind, self.follow(start + 4 * i)) for i in range(count)]

    def table(self, name: str, position: int) -> Fields:
        vtable = position - self.number("i32", position)
        size, room = self.number("u16", vtable), self.number("u16", vtable + 2)
        if size < 4 or size % 2:
            self.fail(f"a table of fields of {size} bytes", vtable)
        self.spend(room + _ROW, position)
        fields: Fields = {}
        for f in self.schema.tables[name]:
            union = f.kind in self.schema.unions
            place = self.place(vtable, size, f.slot)
            if union:
                value = self.place(vtable, size, f.slot + 1)
                fields[f.name] = self.union(f.kind, position + place, position + value) if place and value else None
            elif f.kind in _SCALARS:
                fields[f.name] = self.number(f.kind, position + place) if place else f.default
            else:
                fields[f.name] = self.object(f.kind, self.follow(position + place)) if place else None
        return fields

    def place(self, vtable: int, size: int, slot: int) -> int:
        return self.number("u16", vtable + 4 + 2 * slot) if 4 + 2 * slot < size else 0

    def union(self, kind: str, kind_at: int, value_at: int) -> tuple[str, Fields] | None:
        number, members = self.number("u8", kind_at), self.schema.unions[kind]
        if number == 0:
            return None
        # A member that this schema leaves out: its type is known by number, its fields are not.
        member = members[number - 1] if number <= len(members) else ""
        if member not in self.schema.tables:
            return member or f"{kind} {number}", {}
        return member, self.object(member, self.follow(value_at))


def read(schema: Schema, root: str, data: bytes | memoryview, identifier: bytes, what: str = "file") -> Fields:
    """The root table of a FlatBuffer: fields by name, absent scalars as their default, the rest as None.

    Vectors of scalars are arrays and ``bytes`` a view: neither is copied. Takes any bytes at all. An empty identifier
    is that of a format that has none.

    Raises:
        InvalidFileError: an offset, a length or the identifier does not fit; or parts overlap so much that reading
            them would take far more memory than the file.
    """
    reader = _Reader(schema, memoryview(data).cast("B"), what)
    if len(data) < 8 or bytes(reader.data[4 : 4 + len(identifier)]) != identifier:
        raise InvalidFileError(
            f"{what}: the file is not of this format",
            got=repr(bytes(reader.data[:12])),
            expected=f"{identifier.decode()!r} at byte 4" if identifier else "a FlatBuffer",
        )
    return reader.object(root, reader.follow(0))


@final
@dataclass(frozen=True)
class ObjectPlace:
    """Where an object lies in a FlatBuffer, for changing some of its bytes and keeping all others.

    Attributes:
        kind: as in a schema.
        position: of its first byte: of a scalar itself, of a vector's length, of a table's link to its fields.
    """

    reader: _Reader
    kind: str
    position: int

    def field(self, name: str) -> ObjectPlace | None:
        """A field of a table; None where it is absent."""
        (f,) = (f for f in self.reader.schema.tables[self.kind] if f.name == name)
        vtable = self.position - self.reader.number("i32", self.position)
        place = self.reader.place(vtable, self.reader.number("u16", vtable), f.slot)
        if not place:
            return None
        at = self.position + place
        return ObjectPlace(self.reader, f.kind, at if f.kind in _SCALARS else self.reader.follow(at))

    def items(self) -> list[ObjectPlace]:
        """The tables of a vector of tables."""
        start, count = self.reader.span(self.position, 4)
        at = range(start, start + 4 * count, 4)
        return [ObjectPlace(self.reader, self.kind[1:-1], self.reader.follow(i)) for i in at]

    def number(self) -> Any:
        """The value of a scalar."""
        return self.reader.number(self.kind, self.position)

    def span(self) -> tuple[int, int]:
        """Where the elements of a byte vector begin and end."""
        start, count = self.reader.span(self.position, 1)
        return start, start + count


def root_of(schema: Schema, root: str, data: bytes | memoryview) -> ObjectPlace:
    """The place of the root table.

    >>> schema = Schema("Point: x:i32 y:i32=7", {})
    >>> data = write(schema, "Point", {"x": 3}, b"PNT1")
    >>> point = root_of(schema, "Point", data)
    >>> point.field("x").number(), point.field("y")
    (3, None)
    """
    reader = _Reader(schema, memoryview(data).cast("B"), "file")
    return ObjectPlace(reader, root, reader.follow(0))
