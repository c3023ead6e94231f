"""Index vectors: the place that they name, moved inside or told apart, one by one and in lanes."""

import numpy as np
import pytest

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.indices import Component, Vectors
from tests.kernels.cpu.running import run
from tests.kernels.cpu.written import Written

NUMBERS = np.array([0, 3, -1, 9, 10, 100, -7, 5], np.int64)


def vectors(dtype, clip=True, wrap=0, bound=9, stride=12):
    return Vectors(np.dtype(dtype), (Component(0, bound, stride),), clip, wrap)


def found(v, numbers, count=4):
    """Bytes and whether they are inside (1 where always), as the machine code finds them."""

    def body(f, isa, words, scratch, index):
        first = f.at(pointer(f, words, 0), index * count, numbers.itemsize)
        for i, (place, inside) in enumerate(v.places(f, first, numbers.itemsize, count)):
            out = f.at(pointer(f, words, 1), index * count + i, 16)
            f.store(place, out)
            f.store(f.constant("i64", 1) if inside is None else inside.convert("i64", signed=False), f.at(out, 8))

    size = len(numbers)
    kernel = Written(body, lambda x: [np.empty((size, 2), np.int64)], items=size // count, about=(v, count))
    return run(kernel, numbers)[0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_numbers_are_moved_inside(dtype):
    numbers = NUMBERS.astype(dtype)
    got = found(vectors(dtype), numbers)
    np.testing.assert_array_equal(got[:, 0], np.clip(numbers, 0, 9) * 12)
    assert got[:, 1].all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_numbers_outside_are_told_apart_and_name_some_element(dtype):
    numbers = NUMBERS.astype(dtype)
    got = found(vectors(dtype, clip=False), numbers)
    inside = (numbers >= 0) & (numbers <= 9)
    np.testing.assert_array_equal(got[:, 1], inside)
    np.testing.assert_array_equal(got[:, 0], np.where(inside, numbers, 0) * 12)


@pytest.mark.parametrize("clip", [True, False])
def test_negative_numbers_count_from_the_end(clip):
    got = found(vectors("int32", clip, wrap=10), NUMBERS.astype(np.int32))
    wrapped = np.where(NUMBERS < 0, NUMBERS + 10, NUMBERS)
    inside = (wrapped >= 0) & (wrapped <= 9)
    np.testing.assert_array_equal(got[inside, 0], wrapped[inside] * 12)
    np.testing.assert_array_equal(got[:, 1], np.ones(8) if clip else inside)
    assert [vectors("int32", clip, wrap=10).number(n) for n in (-1, 3)] == [9, 3]


def test_unsigned_numbers_are_never_negative():
    numbers = np.array([0, 200, 255, 9], np.uint8)
    np.testing.assert_array_equal(found(vectors("uint8"), numbers)[:, 0], np.minimum(numbers, 9) * np.int64(12))
    huge = np.array([2**63 + 5, 1, 2**64 - 1, 9], np.uint64)
    np.testing.assert_array_equal(found(vectors("uint64", clip=False), huge)[:, 1], [0, 1, 0, 1])


def test_only_numbers_that_fit_go_by_lanes():
    assert vectors("int32").has_lanes
    assert not vectors("int8").has_lanes
    assert not vectors("uint32").has_lanes
    assert not vectors("int32", bound=2**31).has_lanes
    assert not Vectors(np.dtype("int32"), (Component(0, 1, 4), Component(4, 1, 4)), True).has_lanes


def test_components_are_added_up():
    pairs = np.array([[1, 2], [0, 4], [3, 0], [9, 9]], np.int32)
    v = Vectors(np.dtype("int32"), (Component(0, 3, 40), Component(4, 4, 8)), True)

    def body(f, isa, words, scratch, index):
        place, _ = v.place(f, f.at(pointer(f, words, 0), index, 8))
        f.store(place, f.at(pointer(f, words, 1), index, 8))

    (got,) = run(Written(body, lambda x: [np.empty(4, np.int64)], items=4), pairs)
    np.testing.assert_array_equal(got, np.minimum(pairs, [3, 4]) @ [40, 8])
    assert v.reach == 3 * 40 + 4 * 8


@pytest.mark.parametrize("clip", [False, True])
def test_elements_are_numbered_in_lanes(clip):
    pairs = np.array([[1, 2], [0, 4], [3, 0], [9, 9]], np.int32)
    v = Vectors(np.dtype("int32"), (Component(0, 3, 40), Component(4, 4, 8)), clip)

    def body(f, isa, words, scratch, index):
        x = f.load("<8 x i32>", pointer(f, words, 0), 4)
        number, inside = v.elements(f, [f.shuffle(x, None, range(i, 8, 2)) for i in range(2)], 8)
        out = pointer(f, words, 1)
        f.store(number, out, 4)
        f.store(number if inside is None else inside.convert("<4 x i32>", signed=False), f.at(out, 16), 4)

    (got,) = run(Written(body, lambda x: [np.empty((2, 4), np.int32)], items=1, about=clip), pairs)
    moved = np.minimum(pairs, [3, 4]) if clip else pairs
    np.testing.assert_array_equal(got[0], moved @ [5, 1])
    np.testing.assert_array_equal(got[1], got[0] if clip else [1, 1, 1, 0])
    assert v.number_elements(8) and v.number_elements(4) and not v.number_elements(16)
