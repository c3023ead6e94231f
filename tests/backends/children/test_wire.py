"""Frames and arrays: what goes in comes out, and whatever else comes is refused."""

import os
import socket
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.backends.children.wire import LARGE, Channel, ConnectionClosed, SharedMemory, WireError, pack, room, unpack

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a system without memfd")

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "complex64"]


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 40), max_size=3)), max_size=5))
def test_arrays_come_back_from_the_body_and_from_shared_memory(kinds: list[tuple[str, list[int]]]):
    arrays = [np.arange(np.prod(shape), dtype=np.int64).reshape(shape).astype(name) for name, shape in kinds]
    arena = SharedMemory(max(room(arrays), 4096))
    try:
        for where in (arena, None):
            rows, parts = pack(arrays, where)
            for x, y in zip(arrays, unpack(rows, b"".join(parts), where), strict=True):
                assert (x.dtype, x.shape) == (y.dtype, y.shape) and np.array_equal(x, y)
                assert y.flags.owndata and y.flags.writeable
    finally:
        arena.close()


@pytest.mark.parametrize(
    "row",
    [
        ["int32", [4], "shared", 1 << 40],
        ["int32", [4], "shared", 0],
        ["int32", [4], "body", -16],
        ["int32", [-4], "body", 0],
        ["int32", [True], "body", 0],
        ["int32", [1 << 60], "body", 0],
        ["int32", [1 << 60, 1 << 60], "body", 0],
        ["int32", [4], "elsewhere", 0],
        ["O", [1], "body", 0],
        ["object", [1], "body", 0],
        ["(2,)i4", [1], "body", 0],
        ["str", [1], "body", 0],
        ["none", [1], "body", 0],
        [["int32"], [1], "body", 0],
        ["int32", 4, "body", 0],
        ["int32", [4]],
        None,
    ],
    ids=repr,
)
def test_rows_that_say_what_cannot_be(row: Any):
    with pytest.raises(WireError, match="says"):
        unpack([row], b"x" * 12, None)


def test_bytes_that_are_no_bool_are_true():
    assert unpack([["bool", [3], "body", 0]], b"\x00\x01\x07", None)[0].tolist() == [False, True, True]


@given(st.binary(max_size=60))
def test_what_is_no_frame_is_refused(data: bytes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError):
            Channel(ours).receive(time.monotonic() + 5)


def test_frames_carry_bytes_and_files_and_show_damage():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        a, b = Channel(ours), Channel(theirs)
        arena = SharedMemory(LARGE)
        a.send({"n": 1}, [b"ab", b"c"], [arena.fd])
        head, body, (fd,) = b.receive()
        assert head == {"n": 1} and body == b"abc"
        other = SharedMemory(LARGE, fd)
        arena.memory[:3] = b"xyz"
        assert other.memory[:3] == b"xyz"
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(other.fd, 1)  # nobody can take memory away that the other side reads
        with pytest.raises(WireError, match="smaller"):
            SharedMemory(2 * LARGE, os.dup(fd))
        other.close()
        arena.close()
        with pytest.raises(TimeoutError):
            b.receive(time.monotonic() + 0.01)
        a.send({"n": 2})
        frame = bytearray(theirs.recv(1000))
        frame[-2] ^= 1
        ours.sendall(frame)
        with pytest.raises(WireError, match="damaged"):
            b.receive()
        ours.close()
        with pytest.raises(ConnectionClosed):
            b.receive()
