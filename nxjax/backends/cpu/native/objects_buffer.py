"""Machine code of the memory behind results: a Python object that owns bytes, and an array around it.

A buffer object is its header, followed by the bytes themselves where they are few; larger ones are the pool's.
"""

from __future__ import annotations

from typing import Final

from nxjax.backends.cpu.call_layout import ObjectLayout
from nxjax.backends.cpu.native.objects import KEPT, ObjectCode
from nxjax.kernels.cpu.ir import LlvmModule, Value

# Where a buffer object keeps the address of its bytes, their number, the `ArrayType` of what they are (a reference),
# and the pool's address, or 0 where the bytes lie in the object itself.
DATA: Final = 16
NBYTES: Final = 24
TYPE: Final = 32
OWNED: Final = 40
SIZE: Final = 48
# The most bytes in the object itself: with header and alignment it still is a small object of CPython's allocator.
INSIDE: Final = 384
_DIMS: Final = 32  # that the quick way to NumPy has room for
_READ_ONLY: Final = 0x101  # NumPy's flags: row-major without gaps, aligned, not to be written to

NEW: Final = "nx_buffer_new"
DEALLOC: Final = "nx_buffer_dealloc"
GETBUFFER: Final = "nx_buffer_getbuffer"
TO_NUMPY: Final = "nx_buffer_to_numpy"
ARRAY: Final = "nx_array_new"
ARRAY_DEALLOC: Final = "nx_array_dealloc"


def buffer_functions(module: LlvmModule, layout: ObjectLayout) -> None:
    """Add `NEW`, `DEALLOC`, `GETBUFFER`, `TO_NUMPY` and `ARRAY_DEALLOC`, and `ARRAY` for the code of this module."""
    _new(module, layout)
    _dealloc(module, layout)
    _getbuffer(module, layout)
    _to_numpy(module, layout)
    _array(module, layout)
    _array_dealloc(module, layout)


def _new(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr new(i64 nbytes, ptr type)``: a buffer of 64-byte aligned memory; null, with an exception set, for none."""
    c = ObjectCode(module, layout, NEW, ("i64", "ptr"), "ptr", inside=False)
    f, (nbytes, type) = c.f, c.arguments
    f.branch_if(nbytes.le(INSIDE), "small", "large")
    f.label("small")
    a = c.api("PyObject_Malloc", "ptr", nbytes + (SIZE + 63))
    f.branch_if(a.ne(0), "inside", "failed")
    f.label("inside")
    start = (f.cast("ptrtoint", a, "i64") + (SIZE + 63)) & -64
    a_data = f.cast("inttoptr", start, "ptr")
    a_end = f.block
    f.branch("made")
    f.label("large")
    b_data = c.api("acquire", "ptr", nbytes)
    f.branch_if(b_data.ne(0), "outside", "none")
    f.label("none")
    c.ret(no_memory(c, nbytes))
    f.label("outside")
    b = c.api("PyObject_Malloc", "ptr", c.i64(SIZE))
    f.branch_if(b.ne(0), "owning", "freed")
    f.label("freed")
    c.api("release", "i64", b_data)
    f.branch("failed")
    f.label("owning")
    b_end = f.block
    f.branch("made")
    f.label("failed")
    c.ret(c.api("PyErr_NoMemory", "ptr"))
    f.label("made")
    x = f.phi("ptr", [(a, a_end), (b, b_end)])
    data = f.phi("ptr", [(a_data, a_end), (b_data, b_end)])
    owned = f.phi("ptr", [(c.null(), a_end), (b_data, b_end)])
    c.api("PyObject_Init", "ptr", x, c.known("Buffer"))
    c.put(data, x, DATA)
    c.put(nbytes, x, NBYTES)
    c.incref(type)
    c.put(type, x, TYPE)
    c.put(owned, x, OWNED)
    c.ret(x)


def no_memory(c: ObjectCode, nbytes: Value) -> Value:
    """Set the exception for memory that there is not; null."""
    number = c.api("PyLong_FromLongLong", "ptr", nbytes)
    with c.f.if_(number.ne(0)):
        result = c.api("PyObject_CallOneArg", "ptr", c.known("no_memory"), number)
        c.decref(number)
        c.ret(result)
    return c.null()


def _dealloc(module: LlvmModule, layout: ObjectLayout) -> None:
    """``void dealloc(ptr buffer)``: the bytes go back to where they are from."""
    c = ObjectCode(module, layout, DEALLOC, ("ptr",), "void", inside=False)
    f, (x,) = c.f, c.arguments
    c.decref(c.pointer(x, TYPE))
    owned = c.pointer(x, OWNED)
    with f.if_(owned.ne(0)):
        c.api("release", "i64", owned)
    kind = c.type_of(x)
    c.api("PyObject_Free", "void", x)
    c.decref(kind)
    f.ret()


def _getbuffer(module: LlvmModule, layout: ObjectLayout) -> None:
    """``int getbuffer(ptr buffer, ptr view, int flags)``: the bytes, not to be written to."""
    c = ObjectCode(module, layout, GETBUFFER, ("ptr", "ptr", "i32"), "i32", inside=False)
    x, view, flags = c.arguments
    readonly = c.f.constant("i32", 1)
    c.ret(c.api("PyBuffer_FillInfo", "i32", view, x, c.pointer(x, DATA), c.word(x, NBYTES), readonly, flags))


def _to_numpy(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr to_numpy(ptr buffer, ptr)``: a method without arguments; the bytes as a NumPy array that keeps them."""
    c = ObjectCode(module, layout, TO_NUMPY, ("ptr", "ptr"), "ptr", inside=False)
    f, (x, _) = c.f, c.arguments
    type = c.pointer(x, TYPE)
    shape, dtype = c.pointer(type, layout.type_shape), c.pointer(type, layout.type_dtype)
    ndim = c.word(shape, 16)
    # Arrays without elements may be of a dtype without size, which NumPy does not take memory for.
    with f.if_(c.word(x, NBYTES).eq(0) | ndim.gt(_DIMS)):
        c.ret(c.api("PyObject_CallOneArg", "ptr", c.known("slow_numpy"), x))
    sizes = f.alloca("i64", _DIMS, 8)
    with f.loop(0, ndim) as loop:
        size = f.load("ptr", f.at(f.at(shape, layout.tuple_items), loop.index, 8), 8)
        f.store(c.api("PyLong_AsLongLong", "i64", size), f.at(sizes, loop.index, 8), 8)
    c.incref(dtype)  # NumPy takes it
    made = c.api(
        "PyArray_NewFromDescr", "ptr", c.known("ndarray"), dtype, ndim.convert("i32"), sizes, c.null(),
        c.pointer(x, DATA), f.constant("i32", _READ_ONLY), c.null(),
    )  # fmt: skip
    c.unless(made.ne(0), c.null())
    c.incref(x)
    failed = c.api("PyArray_SetBaseObject", "i32", made, x)
    with f.if_(failed.ne(0)):
        c.decref(made)
        c.ret(c.null())
    c.ret(made)


def _array(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr array(ptr type, ptr owner)``: a `DeviceArray` of a buffer's elements, or those of a NumPy array.

    Takes the reference to ``owner``, also where it fails. The array is not looked at by the garbage collector: what it
    refers to refers to nothing that could refer to it.
    """
    c = ObjectCode(module, layout, ARRAY, ("ptr", "ptr"), "ptr")
    f, (type, owner) = c.f, c.arguments
    kept = Value(f, "ptr", "@nx_arrays")
    count, kind = c.word(kept), c.known("DeviceArray")
    f.branch_if(count.gt(0), "again", "new")
    f.label("again")
    old = f.load("ptr", f.at(kept, count, 8), 8)
    c.put(count - 1, kept)
    c.api("PyObject_Init", "ptr", old, kind)
    f.branch("made")
    f.label("new")
    fresh = c.api("PyType_GenericAlloc", "ptr", kind, c.i64(0))
    with f.if_(fresh.eq(0)):
        c.decref(owner)
        c.ret(c.null())
    c.api("PyObject_GC_UnTrack", "void", fresh)
    end = f.block
    f.branch("made")
    f.label("made")
    x = f.phi("ptr", [(old, "again"), (fresh, end)])
    nothing = c.known("None")
    c.incref(nothing)
    c.incref(nothing)
    c.put(nothing, x, layout.array_place)
    c.incref(type)
    c.put(type, x, layout.array_type)
    numpy = c.is_exactly(owner, "ndarray")
    c.put(f.select(numpy, owner, nothing), x, layout.array_data)
    c.put(f.select(numpy, nothing, owner), x, layout.array_buffer)
    c.ret(x)


def _array_dealloc(module: LlvmModule, layout: ObjectLayout) -> None:
    """``void array_dealloc(ptr array)``: the end of a `DeviceArray`, or of that part of an instance of a subclass.

    What `subtype_dealloc` of CPython does for a class of slots without `__del__`, except that memory of arrays of
    exactly this class is kept for the next ones.
    """
    c = ObjectCode(module, layout, ARRAY_DEALLOC, ("ptr",), "void", inside=False)
    f, (x,) = c.f, c.arguments
    c.api("PyObject_GC_UnTrack", "void", x)
    with f.if_(c.pointer(x, layout.array_weak).ne(0)):
        c.api("PyObject_ClearWeakRefs", "void", x)
    for offset in (layout.array_data, layout.array_buffer, layout.array_place, layout.array_type):
        held = c.pointer(x, offset)
        c.put(c.null(), x, offset)
        c.decref_if(held)
    kind = c.type_of(x)
    kept = Value(f, "ptr", "@nx_arrays")
    count = c.word(kept)
    f.branch_if(kind.eq(c.known("DeviceArray")) & count.lt(KEPT), "keep", "free")
    f.label("keep")
    f.store(x, f.at(kept, count + 1, 8), 8)
    c.put(count + 1, kept)
    f.branch("end")
    f.label("free")
    c.api("PyObject_GC_Del", "void", x)
    f.branch("end")
    f.label("end")
    c.decref(kind)
    f.ret()
