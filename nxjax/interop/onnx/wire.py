"""The bytes of an ONNX model without those of its large tensors, which stay where they are.

A protocol buffer is a row of fields: a key (the field's number times 8, and its wire type), then a varint, 8 bytes, 4
bytes, or a length and so many bytes (protobuf.dev/programming-guides/encoding). A model keeps its graph in field 7, a
graph its tensors in field 5, a tensor its elements in field 9 (onnx.proto). Knows no operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, Any]

_GRAPH: Final = 7
_TENSOR: Final = 5
_ELEMENTS: Final = 9
# Smaller tensors are read with the graph.
SMALL: Final = 4096


def without_elements(data: NDArray) -> tuple[bytes, dict[int, NDArray]]:
    """A model's bytes without those of large tensors, and these by the number of their tensor in the graph.

    What is no protocol buffer comes back as it is, for its reader to refuse.
    """
    whole = memoryview(data)
    held: dict[int, NDArray] = {}
    kept: list[Any] = []
    try:
        for number, first, start, stop in _fields(whole, 0, len(whole)):
            if number == _GRAPH:
                graph = _graph(whole, start, stop, data, held)
                kept += [whole[first : first + 1], _varint(sum(map(len, graph))), *graph]
            else:
                kept.append(whole[first:stop])
    except IndexError:
        return data.tobytes(), {}
    return b"".join(kept), held


def _graph(whole: memoryview, start: int, stop: int, data: NDArray, held: dict[int, NDArray]) -> list[Any]:
    """The parts of a graph that stay; ``held`` takes the elements that go."""
    kept: list[Any] = []
    count = 0
    for number, first, begin, end in _fields(whole, start, stop):
        if number != _TENSOR:
            kept.append(whole[first:end])
            continue
        if end - begin >= SMALL:
            rows = list(_fields(whole, begin, end))
            large = [row for row in rows if row[0] == _ELEMENTS and row[3] - row[2] >= SMALL]
            if len(large) == 1:
                ((_, _, a, b),) = large
                held[count] = data[a:b]
                parts = [whole[row[1] : row[3]] for row in rows if row not in large]
                kept += [whole[first : first + 1], _varint(sum(map(len, parts))), *parts]
                count += 1
                continue
        kept.append(whole[first:end])
        count += 1
    return kept


def _fields(data: memoryview, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each field: its number, where its key begins, and where its value begins and ends.

    Raises:
        IndexError: the bytes end before they should, or are no fields.
    """
    while at < stop:
        first = at
        key, at = _number(data, at)
        kind = key & 7
        if kind == 2:
            length, at = _number(data, at)
        elif kind == 0:
            length = _number(data, at)[1] - at
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise IndexError("a wire type that ONNX does not use")
        if at + length > stop:
            raise IndexError("a field beyond the end")
        yield key >> 3, first, at, at + length
        at += length


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise IndexError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
