"""Machine code that takes trees of arguments apart and puts trees of results together.

Both are told what to do by words, a little language written by `backends.cpu.call_plan`: an instruction and its
operands, then those of its children, in the order in which a container holds them. Containers are tuples, lists, dicts,
and nodes of registered classes, which Python takes apart; a dict's children come in the order of insertion, each after
its key, and each leaf says which argument it is.

    matching    LEAF index type | NUMBER index kind | NUMPY index dtype ndim sizes... | NONE | STATIC object
                TUPLE class count children... | LIST count children... | DICT count (key child)...
                NODE class flatten aux count children...
    building    LEAF index | NONE | TUPLE count children... | LIST count children...
                DICT count template (key child)... | CALL function count children...
"""

from __future__ import annotations

from typing import Final

from nxjax.backends.cpu.call_layout import ObjectLayout
from nxjax.backends.cpu.native.objects import ObjectCode
from nxjax.backends.cpu.native.objects_buffer import ARRAY, DATA
from nxjax.kernels.cpu.ir import LlvmModule, Value

LEAF: Final = 0
NONE: Final = 1
TUPLE: Final = 2
LIST: Final = 3
DICT: Final = 4
NUMBER: Final = 5
NUMPY: Final = 6
CALL: Final = 7
STATIC: Final = 8
NODE: Final = 9

# Kinds of a `NUMBER`: what Python's class becomes.
FLOAT32: Final = 0
FLOAT64: Final = 1
INT32: Final = 2
INT64: Final = 3
BOOL: Final = 4

# Where a frame keeps its tables: one word for each argument, or each result.
INS: Final = 0  # addresses of the elements
OWNERS: Final = 8  # what keeps them alive: references, or null
ARRAYS: Final = 16  # the `DeviceArray`s: references, since a list or dict may lose one meanwhile, or null
NUMBERS: Final = 24  # room for the elements of Python's numbers
OUTS: Final = 32
BUFFERS: Final = 40  # of results: buffers, or NumPy arrays; references
TYPES: Final = 48  # of results: their `ArrayType`s, borrowed
PARTS: Final = 56  # what Python made of nodes: a list, or null
FRAME: Final = 64

MATCH: Final = "nx_match"
BUILD: Final = "nx_build"
_SAME: Final = "nx_same_type"
_LEAF: Final = "nx_match_leaf"
_NUMBER: Final = "nx_match_number"
_NUMPY_LEAF: Final = "nx_match_numpy"
_DENSE: Final = 0x101  # NumPy's flags: row-major without gaps, and aligned


def tree_functions(module: LlvmModule, layout: ObjectLayout) -> None:
    """Add `MATCH` and `BUILD`."""
    _same_type(module, layout)
    _leaf(module, layout)
    _number(module, layout)
    _numpy(module, layout)
    _match(module, layout)
    _build(module, layout)


# --- leaves ---


def _same_type(module: LlvmModule, layout: ObjectLayout) -> None:
    """``i1 same(ptr a, ptr b)``: two `ArrayType`s that are not the same object, but equal."""
    c = ObjectCode(module, layout, _SAME, ("ptr", "ptr"), "i1")
    a, b = c.arguments
    for offset in (layout.type_dtype, layout.type_weak, layout.type_vma):
        c.unless(c.pointer(a, offset).eq(c.pointer(b, offset)), 0)
    x, y = c.pointer(a, layout.type_shape), c.pointer(b, layout.type_shape)
    equal = c.api("PyObject_RichCompareBool", "i32", x, y, c.f.constant("i32", 2))
    with c.f.if_(equal.lt(0)):
        c.api("PyErr_Clear", "void")
    c.ret(equal.gt(0))


def _keep(c: ObjectCode, frame: Value, index: Value, data: Value, owner: Value, array: Value | None) -> None:
    """Note where an argument's elements are, and hold on to what owns them."""
    f = c.f
    c.incref(owner)
    f.store(data, f.at(c.pointer(frame, INS), index, 8), 8)
    f.store(owner, f.at(c.pointer(frame, OWNERS), index, 8), 8)
    if array is not None:
        c.incref(array)
        f.store(array, f.at(c.pointer(frame, ARRAYS), index, 8), 8)


def _leaf(module: LlvmModule, layout: ObjectLayout) -> None:
    """``i1 leaf(ptr words, ptr object, ptr frame)``: an array of the wanted type, put nowhere, in this memory."""
    c = ObjectCode(module, layout, _LEAF, ("ptr", "ptr", "ptr"), "i1")
    f, (words, x, frame) = c.f, c.arguments
    c.unless(c.is_exactly(x, "DeviceArray"), 0)
    c.unless(c.pointer(x, layout.array_place).eq(c.known("None")), 0)
    index, wanted, type = c.word(words, 8), c.pointer(words, 16), c.pointer(x, layout.array_type)
    f.branch_if(type.eq(wanted), "typed", "other")
    f.label("other")
    c.unless(c.is_exactly(type, "ArrayType"), 0)
    c.unless(f.call(_SAME, "i1", type, wanted), 0)
    # Next time they are the same object.
    c.incref(wanted)
    c.put(wanted, x, layout.array_type)
    c.decref(type)
    f.label("typed")
    buffer = c.pointer(x, layout.array_buffer)
    with f.if_(c.is_exactly(buffer, "Buffer")):
        _keep(c, frame, index, c.pointer(buffer, DATA), buffer, x)
        c.ret(1)
    with f.if_(c.is_exactly(buffer, "CpuBuffer")):
        address = c.pointer(c.pointer(buffer, layout.block), layout.address)
        _keep(c, frame, index, c.api("PyLong_AsVoidPtr", "ptr", address), buffer, x)
        c.ret(1)
    data = c.pointer(x, layout.array_data)
    c.unless(c.is_exactly(data, "ndarray"), 0)
    c.unless((f.load("i32", f.at(data, 64), 4) & _DENSE).eq(_DENSE), 0)
    _keep(c, frame, index, c.pointer(data, 16), data, x)
    c.ret(1)


def _number(module: LlvmModule, layout: ObjectLayout) -> None:
    """``i1 number(ptr words, ptr object, ptr frame)``: a Python number that its default dtype can hold."""
    c = ObjectCode(module, layout, _NUMBER, ("ptr", "ptr", "ptr"), "i1")
    f, (words, x, frame) = c.f, c.arguments
    index = c.word(words, 8)
    place = f.at(c.pointer(frame, NUMBERS), index, 8)
    f.store(place, f.at(c.pointer(frame, INS), index, 8), 8)
    f.switch(c.word(words, 16), [(FLOAT32, "f32"), (FLOAT64, "f64"), (INT32, "i32"), (INT64, "i64")], "bool")
    f.label("f32")
    c.unless(c.is_exactly(x, "float"), 0)
    number = c.api("PyFloat_AsDouble", "double", x)
    narrow = number.convert("float")
    # What becomes infinite is left to NumPy, which may have something to say.
    size = f.intrinsic("fabs", "float", narrow)
    c.unless(size.lt(float("inf")), 0)
    f.store(narrow, place, 4)
    c.ret(1)
    f.label("f64")
    c.unless(c.is_exactly(x, "float"), 0)
    f.store(c.api("PyFloat_AsDouble", "double", x), place, 8)
    c.ret(1)
    overflow = f.alloca("i32", 1, 4)
    for name, type in (("i32", "i32"), ("i64", "i64")):
        f.label(name)
        c.unless(c.is_exactly(x, "int"), 0)
        value = c.api("PyLong_AsLongLongAndOverflow", "i64", x, overflow)
        c.unless(f.load("i32", overflow, 4).eq(0), 0)
        if type == "i32":
            c.unless(value.convert("i32").convert("i64").eq(value), 0)
        f.store(value.convert(type), place, 4)
        c.ret(1)
    f.label("bool")
    c.unless(c.is_exactly(x, "bool"), 0)
    f.store(x.eq(c.known("True")).convert("i8"), place, 1)
    c.ret(1)


def _numpy(module: LlvmModule, layout: ObjectLayout) -> None:
    """``i1 numpy(ptr words, ptr object, ptr frame)``: a dense NumPy array of this dtype object and these sizes."""
    c = ObjectCode(module, layout, _NUMPY_LEAF, ("ptr", "ptr", "ptr"), "i1")
    f, (words, x, frame) = c.f, c.arguments
    c.unless(c.is_exactly(x, "ndarray"), 0)
    c.unless(c.pointer(x, 56).eq(c.pointer(words, 16)), 0)
    c.unless((f.load("i32", f.at(x, 64), 4) & _DENSE).eq(_DENSE), 0)
    ndim = c.word(words, 24)
    c.unless(f.load("i32", f.at(x, 24), 4).convert("i64").eq(ndim), 0)
    sizes = c.pointer(x, 32)
    with f.loop(0, ndim) as loop:
        wanted = f.load("i64", f.at(f.at(words, 32), loop.index, 8), 8)
        c.unless(f.load("i64", f.at(sizes, loop.index, 8), 8).eq(wanted), 0)
    _keep(c, frame, c.word(words, 8), c.pointer(x, 16), x, None)
    c.ret(1)


# --- trees ---


def _match(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr match(ptr words, ptr object, ptr frame)``: the words after those of ``object``; null: it is another.

    Null with an exception set: a node's own function raised it.
    """
    c = ObjectCode(module, layout, MATCH, ("ptr", "ptr", "ptr"), "ptr")
    f, (words, x, frame) = c.f, c.arguments
    cases = [(LEAF, "leaf"), (NUMBER, "number"), (NUMPY, "numpy"), (NONE, "none"), (TUPLE, "tuple"), (LIST, "list")]
    f.switch(c.word(words), [*cases, (STATIC, "static"), (NODE, "node")], "dict")
    f.label("static")
    c.unless(x.eq(c.pointer(words, 8)), c.null())
    c.ret(f.at(words, 16))
    for label, function, size in (("leaf", _LEAF, 24), ("number", _NUMBER, 24)):
        f.label(label)
        c.unless(f.call(function, "i1", words, x, frame), c.null())
        c.ret(f.at(words, size))
    f.label("numpy")
    c.unless(f.call(_NUMPY_LEAF, "i1", words, x, frame), c.null())
    c.ret(f.at(f.at(words, 32), c.word(words, 24), 8))
    f.label("none")
    c.unless(x.eq(c.known("None")), c.null())
    c.ret(f.at(words, 8))
    f.label("tuple")
    c.unless(c.type_of(x).eq(c.pointer(words, 8)), c.null())
    _match_items(c, f.at(words, 16), x, frame)
    f.label("list")
    c.unless(c.is_exactly(x, "list"), c.null())
    _match_list(c, f.at(words, 8), x, frame)
    f.label("node")
    _match_node(c, words, x, frame)
    f.label("dict")
    _match_dict(c, words, x, frame)


def _match_items(c: ObjectCode, words: Value, x: Value, frame: Value) -> None:
    """Match the items of a tuple, whose number stands at ``words``."""
    f = c.f
    count = c.word(words)
    c.unless(c.word(x, 16).eq(count), c.null())
    items = f.at(x, c.layout.tuple_items)
    with f.loop(0, count, carry=[f.at(words, 8)]) as loop:
        after = f.call(MATCH, "ptr", loop.carried[0], f.load("ptr", f.at(items, loop.index, 8), 8), frame)
        c.unless(after.ne(0), c.null())
        loop.next(after)
    c.ret(loop.results[0])


def _match_list(c: ObjectCode, words: Value, x: Value, frame: Value) -> None:
    """As `_match_items`, for a list: Python code of a node, or another thread meanwhile, may change it."""
    f = c.f
    count = c.word(words)
    with f.loop(0, count, carry=[f.at(words, 8)]) as loop:
        c.unless(c.word(x, 16).eq(count), c.null())
        item = f.load("ptr", f.at(c.pointer(x, c.layout.list_items), loop.index, 8), 8)
        loop.next(_match_held(c, loop.carried[0], item, frame))
    c.unless(c.word(x, 16).eq(count), c.null())
    c.ret(loop.results[0])


def _match_held(c: ObjectCode, words: Value, x: Value, frame: Value) -> Value:
    """Match an object that its container might lose meanwhile; the words after it."""
    c.incref(x)
    after = c.f.call(MATCH, "ptr", words, x, frame)
    c.decref(x)
    c.unless(after.ne(0), c.null())
    return after


def _match_node(c: ObjectCode, words: Value, x: Value, frame: Value) -> None:
    """Match a node of a registered class: its own function says the children and what else it is."""
    f = c.f
    c.unless(c.type_of(x).eq(c.pointer(words, 8)), c.null())
    with f.if_(c.pointer(frame, PARTS).eq(0)):
        made = c.api("PyList_New", "ptr", c.i64(0))
        c.unless(made.ne(0), c.null())
        c.put(made, frame, PARTS)
    parts = c.api("PyObject_CallOneArg", "ptr", c.pointer(words, 16), x)
    c.unless(parts.ne(0), c.null())
    failed = c.api("PyList_Append", "i32", c.pointer(frame, PARTS), parts)
    c.decref(parts)
    c.unless(failed.eq(0), c.null())
    c.unless(c.is_exactly(parts, "tuple"), c.null())
    c.unless(c.word(parts, 16).ge(2), c.null())
    children, aux = (c.pointer(parts, c.layout.tuple_items + 8 * i) for i in range(2))
    c.unless(c.is_exactly(children, "tuple"), c.null())
    equal = c.api("PyObject_RichCompareBool", "i32", aux, c.pointer(words, 24), f.constant("i32", 2))
    c.unless(equal.gt(0), c.null())
    _match_items(c, f.at(words, 32), children, frame)


def _match_dict(c: ObjectCode, words: Value, x: Value, frame: Value) -> None:
    """Match a dict: in the order of insertion as long as its keys are the very objects, else each by its key."""
    f = c.f
    c.unless(c.is_exactly(x, "dict"), c.null())
    count = c.word(words, 8)
    c.unless(c.api("PyDict_Size", "i64", x).eq(count), c.null())
    place, key, value = f.alloca("i64", 1, 8), f.alloca("ptr", 1, 8), f.alloca("ptr", 1, 8)
    f.store(c.i64(0), place, 8)
    f.store(c.i64(1), ordered := f.alloca("i64", 1, 8), 8)
    with f.loop(0, count, carry=[f.at(words, 16)]) as loop:
        here = loop.carried[0]
        wanted = c.pointer(here)
        with f.if_(f.load("i64", ordered, 8).ne(0)):
            more = c.api("PyDict_Next", "i32", x, place, key, value)
            with f.if_(more.eq(0)):
                c.ret(c.null())
            with f.if_(f.load("ptr", key, 8).ne(wanted)):
                f.store(c.i64(0), ordered, 8)
        with f.if_(f.load("i64", ordered, 8).eq(0)):
            found = c.api("PyDict_GetItemWithError", "ptr", x, wanted)
            with f.if_(found.eq(0)):
                c.api("PyErr_Clear", "void")
                c.ret(c.null())
            f.store(found, value, 8)
        loop.next(_match_held(c, f.at(here, 8), f.load("ptr", value, 8), frame))
    c.ret(loop.results[0])


def _build(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr build(ptr cell, ptr frame)``: the tree that the words at ``*cell`` say; null with an exception set.

    ``*cell`` is left after those words. The references to the buffers of leaves are taken from the frame.
    """
    c = ObjectCode(module, layout, BUILD, ("ptr", "ptr"), "ptr")
    f, (cell, frame) = c.f, c.arguments
    words = c.pointer(cell)
    cases = [(LEAF, "leaf"), (NONE, "none"), (TUPLE, "tuple"), (LIST, "list"), (DICT, "dict")]
    f.switch(c.word(words), cases, "call")
    f.label("leaf")
    index = c.word(words, 8)
    c.put(f.at(words, 16), cell)
    place = f.at(c.pointer(frame, BUFFERS), index, 8)
    buffer = f.load("ptr", place, 8)
    f.store(c.null(), place, 8)
    c.ret(f.call(ARRAY, "ptr", f.load("ptr", f.at(c.pointer(frame, TYPES), index, 8), 8), buffer))
    f.label("none")
    c.put(f.at(words, 8), cell)
    nothing = c.known("None")
    c.incref(nothing)
    c.ret(nothing)
    f.label("tuple")
    c.ret(_build_tuple(c, f.at(words, 8), cell, frame))
    f.label("list")
    count = c.word(words, 8)
    made = c.api("PyList_New", "ptr", count)
    c.unless(made.ne(0), c.null())
    _build_items(c, made, c.pointer(made, layout.list_items), count, f.at(words, 16), cell, frame)
    c.ret(made)
    f.label("dict")
    _build_dict(c, words, cell, frame)
    f.label("call")
    function = c.pointer(words, 8)
    arguments = _build_tuple(c, f.at(words, 16), cell, frame)
    result = c.api("PyObject_CallObject", "ptr", function, arguments)
    c.decref(arguments)
    c.ret(result)


def _build_tuple(c: ObjectCode, words: Value, cell: Value, frame: Value) -> Value:
    """A tuple of as many children as ``words`` begins with."""
    count = c.word(words)
    made = c.api("PyTuple_New", "ptr", count)
    c.unless(made.ne(0), c.null())
    _build_items(c, made, c.f.at(made, c.layout.tuple_items), count, c.f.at(words, 8), cell, frame)
    return made


def _build_items(
    c: ObjectCode, made: Value, items: Value, count: Value, words: Value, cell: Value, frame: Value
) -> None:
    """Build the items of a new tuple or list; where one fails give up the container and return null."""
    f = c.f
    c.put(words, cell)
    with f.loop(0, count) as loop:
        child = f.call(BUILD, "ptr", cell, frame)
        with f.if_(child.eq(0)):
            c.decref(made)
            c.ret(c.null())
        f.store(child, f.at(items, loop.index, 8), 8)


def _build_dict(c: ObjectCode, words: Value, cell: Value, frame: Value) -> None:
    """A copy of a dict that has the keys already (which is quicker than to let one grow), with the children in it."""
    f = c.f
    count = c.word(words, 8)
    made = c.api("PyDict_Copy", "ptr", c.pointer(words, 16))
    c.unless(made.ne(0), c.null())
    c.put(f.at(words, 24), cell)
    with f.loop(0, count):
        here = c.pointer(cell)
        key = c.pointer(here)
        c.put(f.at(here, 8), cell)
        child = f.call(BUILD, "ptr", cell, frame)
        with f.if_(child.eq(0)):
            c.decref(made)
            c.ret(c.null())
        failed = c.api("PyDict_SetItem", "i32", made, key, child)
        c.decref(child)
        with f.if_(failed.ne(0)):
            c.decref(made)
            c.ret(c.null())
    c.ret(made)
