"""Where CPython, NumPy and our own classes keep what the native call path reads: found at run time, and checked.

Offsets are read off living objects. Where one is not what was expected the interpreter is one that we do not know, and
calls take their way through Python. Knows no machine code and no program.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import sys
import weakref
from typing import Any, Final, final

import numpy as np

from nxjax.backends.cpu.memory import CpuBuffer, PoolBlock
from nxjax.config import ConfigValues, current_settings
from nxjax.config.dataclass import dataclass
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType

_TYPE: Final = 8  # of every object: a count of references, then its type
_TP_DEALLOC: Final = 48  # of a type: `PyTypeObject.tp_dealloc`
_TP_CALL: Final = 128  # `PyTypeObject.tp_call`
_NUMPY: Final = (16, 24, 32, 56, 64)  # of an array: data, ndim, dims, dtype, flags (NumPy's ABI since 1.0)


@final
@dataclass(frozen=True)
class ObjectLayout:
    """Offsets in bytes from the beginning of an object.

    Attributes:
        python: (3, 11) and so on: how references are counted depends on it.
        tuple_items, list_items: the first item; where the address of the items is.
        bytes_data: the first byte.
        plans: the slot of a jitted function that holds its plans.
        array_data, array_type, array_buffer, array_place: slots of `DeviceArray`.
        array_weak: its list of weak references.
        type_shape, type_dtype, type_weak, type_vma: slots of `ArrayType`.
        block: slot of `CpuBuffer`; address: slot of its block.
        settings_call: slot of `ConfigValues` that sums up what decides what a call means.
    """

    python: tuple[int, int]
    tuple_items: int
    list_items: int
    bytes_data: int
    plans: int
    array_data: int
    array_type: int
    array_buffer: int
    array_place: int
    array_weak: int
    type_shape: int
    type_dtype: int
    type_weak: int
    type_vma: int
    block: int
    address: int
    settings_call: int


class Unknown(Exception):
    """The interpreter or NumPy is laid out in another way; the message says what."""


def word(address: int) -> int:
    """Eight bytes of memory."""
    return ctypes.c_uint64.from_address(address).value


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise Unknown(what)


def _offset(instance: Any, name: str) -> int:
    """The offset of a slot: where the address of what is in it is found."""
    held = getattr(instance, name)
    found = [i for i in range(16, type(instance).__basicsize__, 8) if word(id(instance) + i) == id(held)]
    _check(len(found) == 1, f"slot {name}")
    return found[0]


def _slots(kind: Any, *names: str) -> list[int]:
    offsets: list[int] = []
    for name in names:
        instance = kind.__new__(kind)
        object.__setattr__(instance, name, object())
        offsets.append(_offset(instance, name))
    return offsets


def call_slot(jitted: type) -> tuple[int, int]:
    """The address of ``jitted``'s slot for calls, and the function in it: the one that looks for ``__call__``.

    Raises:
        Unknown: it is not where it should be.
    """

    class Without:
        pass

    class With:
        def __call__(self) -> None: ...

    general = word(id(With) + _TP_CALL)
    _check(general != 0 and word(id(Without) + _TP_CALL) == 0, "tp_call")
    _check(word(id(jitted) + _TP_CALL) == general, "tp_call of jit")
    return id(jitted) + _TP_CALL, general


def dealloc_slot() -> int:
    """The address of `DeviceArray`'s slot for the end of an instance.

    Raises:
        Unknown: it is not where it should be, or the class is not one of plain slots any more.
    """

    class Plain:
        __slots__ = ("x",)

    _check(word(id(Plain) + _TP_DEALLOC) == word(id(DeviceArray) + _TP_DEALLOC) != 0, "tp_dealloc")
    slots = [name for kind in DeviceArray.__mro__ for name in getattr(kind, "__slots__", ())]
    _check(sorted(slots) == ["__weakref__", "_data", "buffer", "place", "type"], "slots of arrays")
    _check(DeviceArray.__dictoffset__ == 0 and not hasattr(DeviceArray, "__del__"), "class of arrays")
    return id(DeviceArray) + _TP_DEALLOC


def _weak_references() -> int:
    array = DeviceArray.__new__(DeviceArray)
    offset = DeviceArray.__weakrefoffset__
    _check(word(id(array) + offset) == 0, "no weak references")
    reference = weakref.ref(array)
    _check(word(id(array) + offset) == id(reference), "weak references")
    return offset


def _header() -> int:
    """Bytes of an object that has nothing of its own: a count and a type, but for builds without global lock."""
    return object.__basicsize__


def find(jitted: type) -> ObjectLayout:
    """The layout of this process; ``jitted`` is the class of jitted functions.

    Raises:
        Unknown: something is not where it should be, or references are not simply counted.
    """
    _check(platform.python_implementation() == "CPython" and sys.version_info < (3, 14), "another Python")
    _check(_header() == 16, "no global lock")
    _check(not hasattr(sys, "gettotalrefcount") and not hasattr(sys, "getobjects"), "a debug build")
    _check(ctypes.sizeof(ctypes.c_void_p) == 8 and sys.byteorder == "little", "not 64 bits, little end first")
    mark = object()
    _check(word(id(mark) + _TYPE) == id(object), "type")
    several = [mark, mark, None]
    count = word(id(mark))
    several.append(mark)
    _check(word(id(mark)) == count + 1, "count of references")
    pair, block = (mark, None), b"nxjax cpu"
    tuple_items, bytes_data = tuple.__basicsize__, bytes.__basicsize__ - 1
    _check(word(id(pair) + tuple_items) == id(mark) and word(id(pair) + 16) == 2, "tuple")
    items = word(id(several) + 24)
    _check(word(id(several) + 16) == 4 and word(items) == id(mark) and word(items + 16) == id(None), "list")
    _check(ctypes.string_at(id(block) + bytes_data, 9) == block, "bytes")
    _check_numpy()
    data, type_, buffer, place = _slots(DeviceArray, "_data", "type", "buffer", "place")
    shape, dtype, weak, vma = _slots(ArrayType, "shape", "dtype", "weak", "vma")
    (settings_call,) = _slots(ConfigValues, "call")
    here = current_settings()
    _check(word(id(here) + settings_call) == id(here.call), "settings")
    (plans,) = _slots(jitted, "_plans")
    return ObjectLayout(
        python=(sys.version_info.major, sys.version_info.minor),
        tuple_items=tuple_items,
        list_items=24,
        bytes_data=bytes_data,
        plans=plans,
        array_data=data,
        array_type=type_,
        array_buffer=buffer,
        array_place=place,
        array_weak=_weak_references(),
        type_shape=shape,
        type_dtype=dtype,
        type_weak=weak,
        type_vma=vma,
        block=_slots(CpuBuffer, "block")[0],
        address=_offset(PoolBlock(1), "address"),
        settings_call=settings_call,
    )


def numpy_functions() -> dict[str, int]:
    """Functions of NumPy's C API, by their place in its table, which never changes.

    Raises:
        Unknown: the table is not where NumPy says it is.
    """
    umath: Any = importlib.import_module("numpy._core._multiarray_umath")
    table = ctypes.pythonapi.PyCapsule_GetPointer
    table.restype, table.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    base: int = table(umath._ARRAY_API, None)
    _check(word(base + 8 * 2) == id(np.ndarray), "NumPy: functions")
    return {name: word(base + 8 * i) for name, i in (("PyArray_NewFromDescr", 94), ("PyArray_SetBaseObject", 282))}


def _check_numpy() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    data, ndim, dims, dtype, flags = (word(id(a) + o) for o in _NUMPY)
    _check(data == a.ctypes.data and ndim & 0xFFFFFFFF == 2, "NumPy: data")
    _check((word(dims), word(dims + 8)) == (2, 3) and dtype == id(a.dtype), "NumPy: type")
    _check(flags & 0xFFFFFFFF == a.flags.num and a.flags.num & 0x101 == 0x101, "NumPy: flags")
