"""FlatBuffers by tables that are data: what is written is read back, and any bytes at all are safe to read."""

import struct
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import InvalidFileError
from nxjax.lower.npu.formats import flatbuffer

SCHEMA = flatbuffer.Schema(
    "Tree: name:str leaf:Leaf leaves:[Leaf] kind:Kind data:bytes big:u64 flag:bool=1\n"
    "Leaf: width:f32 counts:[i64]\n  names:[str] small:i8=-3\nNone_:\n",
    {"Kind": ["Leaf", "None_"]},
)


def leaves():
    text = st.text(max_size=5)
    return st.fixed_dictionaries(
        {
            "width": st.floats(width=32, allow_nan=False),
            "counts": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
            "names": st.lists(text, max_size=3),
            "small": st.integers(-128, 127),
        }
    )


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=9), leaves(), st.lists(leaves(), max_size=3), st.binary(max_size=40), st.integers(0, 2**64 - 1))
def test_what_is_written_is_read_back(name, leaf, many, data, big):
    value = {"name": name, "leaf": leaf, "leaves": many, "kind": ("Leaf", leaf), "data": data, "big": big, "flag": 0}
    written = flatbuffer.write(SCHEMA, "Tree", value, b"TREE")
    assert written == flatbuffer.write(SCHEMA, "Tree", value, b"TREE")
    back = flatbuffer.read(SCHEMA, "Tree", written, b"TREE")

    def plain(fields):
        return {key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in fields.items()}

    assert back["name"] == name and back["big"] == big and back["flag"] is False
    assert bytes(back["data"]) == data
    assert plain(back["leaf"]) == leaf and [plain(v) for v in back["leaves"]] == many
    assert back["kind"][0] == "Leaf" and plain(back["kind"][1]) == leaf


def test_defaults_are_not_written_and_are_read():
    value = {"leaf": {"small": -3}, "flag": True}
    back = flatbuffer.read(SCHEMA, "Tree", flatbuffer.write(SCHEMA, "Tree", value, b"TREE"), b"TREE")
    assert back["flag"] is True or back["flag"] == 1
    assert back["leaf"] == {"width": 0.0, "counts": None, "names": None, "small": -3}
    longer = flatbuffer.write(SCHEMA, "Tree", {"leaf": {"small": -4}, "flag": True}, b"TREE")
    assert len(longer) > len(flatbuffer.write(SCHEMA, "Tree", value, b"TREE"))


def test_a_part_counts_for_each_place_that_names_it():
    """A reader walks it each time: 9 kB that name one leaf of 4 kB a thousand times stand for 4 MB."""
    one = {"counts": list(range(500))}
    data = flatbuffer.write(SCHEMA, "Tree", {"leaves": [one] * 3}, b"TREE")
    assert len(flatbuffer.read(SCHEMA, "Tree", data, b"TREE")["leaves"]) == 3
    data = bytearray(flatbuffer.write(SCHEMA, "Tree", {"leaves": [one, *[{}] * 1000]}, b"TREE"))
    leaves = flatbuffer.root_of(SCHEMA, "Tree", bytes(data)).field("leaves")
    assert leaves is not None
    first = leaves.items()[0].position
    for i in range(1001):
        place = leaves.position + 4 + 4 * i
        struct.pack_into("<I", data, place, first - place)
    with pytest.raises(InvalidFileError, match="overlap"):
        flatbuffer.read(SCHEMA, "Tree", bytes(data), b"TREE")


@pytest.mark.parametrize("size", [1, 15, 16, 17])
def test_bytes_lie_on_16(size):
    marker = bytes(range(100, 100 + size))
    written = flatbuffer.write(SCHEMA, "Tree", {"name": "x" * size, "data": marker}, b"TREE")
    assert written.index(marker) % 16 == 0 and written.endswith(marker)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused_or_read(data, head):
    with suppress(InvalidFileError):
        flatbuffer.read(SCHEMA, "Tree", (data[:4] + b"TREE" + data[4:]) if head else data, b"TREE")


def test_overlapping_parts_cannot_ask_for_more_than_the_file():
    # 1000 tables of one field, whose vectors of 500 strings overlap: half a million strings from 20 kB.
    count, word = 1000, struct.Struct("<I").pack
    head = word(16) + b"TREE" + struct.pack("<4H", 8, 8, 0, 0)
    root_vtable = struct.pack("<6H", 10, 8, 0, 0, 4, 0)
    root = len(head) + len(root_vtable)
    head = word(root) + head[4:]
    leaf_vtable = root + 8
    leaves = leaf_vtable + 12
    tables = leaves + 4 + 4 * count
    region = tables + 8 * count
    data = head + root_vtable + struct.pack("<iI", len(root_vtable), leaves - root - 4)
    data += struct.pack("<6H", 10, 8, 0, 0, 4, 0) + word(count)
    data += b"".join(word(tables + 8 * i - (leaves + 4 + 4 * i)) for i in range(count))
    for i in range(count):
        at = tables + 8 * i
        data += struct.pack("<iI", at - leaf_vtable, region + 4 * i - at - 4)
    data += word(500) * (count + 1000)
    start = time.process_time()
    with pytest.raises(InvalidFileError, match="overlap"):
        flatbuffer.read(SCHEMA, "Tree", data, b"TREE")
    assert time.process_time() - start < 2


def test_a_length_that_leaves_the_file_names_its_byte():
    data = bytearray(flatbuffer.write(SCHEMA, "Tree", {"name": "hello"}, b"TREE"))
    at = data.index(b"hello") - 4
    data[at : at + 4] = (2**31).to_bytes(4, "little")
    with pytest.raises(InvalidFileError, match=f"vector of 2147483648 elements that ends outside at byte {at}"):
        flatbuffer.read(SCHEMA, "Tree", bytes(data), b"TREE")


def test_a_union_member_of_unknown_type_is_named_by_its_number():
    schema = flatbuffer.Schema("Tree: kind:Kind\nLeaf:\nOther:", {"Kind": ["Leaf", "Strange", "Other"]})
    older = flatbuffer.Schema("Tree: kind:Kind\nLeaf:", {"Kind": ["Leaf"]})
    data = flatbuffer.write(schema, "Tree", {"kind": ("Other", {})}, b"TREE")
    assert flatbuffer.read(schema, "Tree", data, b"TREE")["kind"] == ("Other", {})
    assert flatbuffer.read(older, "Tree", data, b"TREE")["kind"] == ("Kind 3", {})


def test_formats_without_an_identifier():
    schema = flatbuffer.Schema("Point: x:i32 y:i32=7", {})
    data = flatbuffer.write(schema, "Point", {"x": 3}, b"")
    assert flatbuffer.read(schema, "Point", data, b"") == {"x": 3, "y": 7}
    with pytest.raises(InvalidFileError, match="a FlatBuffer"):
        flatbuffer.read(schema, "Point", b"1234567", b"")


def test_tables_that_hold_their_own_kind_are_read_so_deep_and_no_deeper():
    schema = flatbuffer.Schema("Node: inner:Node", {})

    def nested(depth):
        value = {}
        for _ in range(depth):
            value = {"inner": value}
        return flatbuffer.write(schema, "Node", value, b"NODE")

    assert flatbuffer.read(schema, "Node", nested(150), b"NODE")["inner"]["inner"] is not None
    with pytest.raises(InvalidFileError, match="more than 200 deep"):
        flatbuffer.read(schema, "Node", nested(300), b"NODE")
