"""Writing machine code that handles Python objects: references, CPython's functions, and a table of what it knows.

The code holds no address. What it needs of the process (CPython's functions, classes, singletons) stands in one table
in the module's memory, which `fill` writes once after loading, so object code from the disk serves every process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final, final

from nxjax.backends.cpu.call_layout import ObjectLayout
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value

# Functions of CPython's C API that the code calls.
API: Final = (
    "PyBuffer_FillInfo", "PyContextVar_Get", "PyDict_Copy", "PyDict_GetItemWithError", "PyDict_Next",
    "PyDict_SetItem", "PyDict_Size", "PyErr_Clear", "PyErr_NoMemory", "PyErr_Occurred", "PyFloat_AsDouble",
    "PyList_Append", "PyList_New", "PyLong_AsLongLong", "PyLong_AsLongLongAndOverflow", "PyLong_AsVoidPtr",
    "PyLong_FromLongLong", "PyMem_Free", "PyMem_Malloc", "PyObject_CallObject", "PyObject_CallOneArg",
    "PyObject_ClearWeakRefs", "PyObject_Free", "PyObject_GC_Del", "PyObject_GC_UnTrack", "PyObject_Init",
    "PyObject_Malloc", "PyObject_RichCompareBool", "PyTuple_New", "PyType_GenericAlloc", "_Py_Dealloc",
)  # fmt: skip
# Objects, and functions that are not CPython's.
KNOWN: Final = (
    "None", "True", "tuple", "list", "dict", "float", "int", "bool", "ndarray", "DeviceArray", "ArrayType", "Buffer",
    "CpuBuffer", "EVAL", "trace", "axes", "mesh", "settings", "slow", "acquire", "release", "no_memory", "slow_numpy",
    "PyArray_NewFromDescr", "PyArray_SetBaseObject",
)  # fmt: skip
_INDEX: Final = {name: i for i, name in enumerate((*API, *KNOWN))}
TABLE: Final = "nx_objects_table"
# Dead arrays whose memory waits for the next ones: at most so many. Their number comes first.
KEPT: Final = 256


def table_function(module: LlvmModule) -> None:
    """Add the function that says where the table is."""
    f = Function(TABLE, (), "ptr")
    module.add(f)
    module.globals["arrays"] = f"@nx_arrays = internal global [{1 + KEPT} x ptr] zeroinitializer, align 64"
    module.globals["table"] = f"@nx_table = internal global [{len(_INDEX)} x i64] zeroinitializer, align 64"
    f.ret(Value(f, "ptr", "@nx_table"))


def fill(table: int, known: Mapping[str, int]) -> None:
    """Write the table: CPython's functions, and the addresses in ``known``, one for each of `KNOWN`."""
    words = (ctypes.c_uint64 * len(_INDEX)).from_address(table)
    for name in API:
        words[_INDEX[name]] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    for name in KNOWN:
        words[_INDEX[name]] = known[name]


@final
class ObjectCode:
    """A function that handles objects: `f`, with the instructions that all of them need.

    References are counted as the running version of CPython does; from 3.12 on some objects are immortal, which a
    negative lower half of the count says.
    """

    def __init__(
        self,
        module: LlvmModule,
        layout: ObjectLayout,
        name: str,
        parameters: tuple[str, ...],
        result: str,
        inside: bool = True,
    ) -> None:
        self.f = Function(name, parameters, result, linkage="internal" if inside else "")
        self.layout = layout
        self.arguments = self.f.arguments
        module.add(self.f)

    # --- memory ---

    def word(self, pointer: Value, offset: int = 0) -> Value:
        """The ``i64`` at ``offset`` bytes."""
        return self.f.load("i64", self.f.at(pointer, offset), 8)

    def pointer(self, pointer: Value, offset: int = 0) -> Value:
        """The address at ``offset`` bytes."""
        return self.f.load("ptr", self.f.at(pointer, offset), 8)

    def put(self, x: Value, pointer: Value, offset: int = 0) -> None:
        self.f.store(x, self.f.at(pointer, offset), 8)

    def null(self) -> Value:
        return self.f.constant("ptr", 0)

    def i64(self, n: int) -> Value:
        return self.f.constant("i64", n)

    # --- the table ---

    def known(self, name: str) -> Value:
        """An address of the table."""
        return self.f.load("ptr", self.f.at(Value(self.f, "ptr", "@nx_table"), _INDEX[name], 8), 8)

    def api(self, name: str, result: str, *xs: Value) -> Value:
        """A call of a function of the table."""
        return self.f.call_pointer(self.known(name), result, *xs)

    # --- objects ---

    def type_of(self, x: Value) -> Value:
        return self.pointer(x, 8)

    def is_exactly(self, x: Value, name: str) -> Value:
        """Whether an object's class is the one called ``name``."""
        return self.type_of(x).eq(self.known(name))

    def incref(self, x: Value) -> None:
        f = self.f
        if self.layout.python < (3, 12):
            self.put(self.word(x) + 1, x)
            return
        count = f.load("i32", x, 4) + 1
        with f.if_(count.ne(0)):
            f.store(count, x, 4)

    def decref(self, x: Value) -> None:
        f = self.f
        if self.layout.python < (3, 12):
            self._drop(x)
            return
        with f.if_(f.load("i32", x, 4).ge(0)):
            self._drop(x)

    def _drop(self, x: Value) -> None:
        count = self.word(x) - 1
        self.put(count, x)
        with self.f.if_(count.eq(0)):
            self.api("_Py_Dealloc", "void", x)

    def decref_if(self, x: Value) -> None:
        """Give up a reference that may be null."""
        with self.f.if_(x.ne(0)):
            self.decref(x)

    # --- control ---

    def ret(self, x: Value | int) -> None:
        self.f.ret(self.f.value(x, self.f.result))

    def unless(self, condition: Value, result: Value | int) -> None:
        """Return ``result`` where ``condition`` does not hold."""
        with self.f.if_(~condition):
            self.ret(result)
