"""Machine code of a call: which of a function's plans fits, its arguments' memory, `run`, and the tree of results.

A jitted function keeps in one slot a tuple whose first item is a `bytes` object: the number of plans, then their
addresses; the other items keep alive what the plans name. A plan is a row of words (`PLAN`). Where none fits, or a
trace is being made, CPython's own way of calling takes over, which is `Jitted.__call__`.
"""

from __future__ import annotations

from typing import Final

from nxjax.backends.cpu.call_layout import ObjectLayout
from nxjax.backends.cpu.native import abi
from nxjax.backends.cpu.native.objects import ObjectCode
from nxjax.backends.cpu.native.objects_buffer import DATA, NEW, TYPE, no_memory
from nxjax.backends.cpu.native.objects_tree import (
    ARRAYS,
    BUFFERS,
    BUILD,
    FRAME,
    INS,
    MATCH,
    NUMBERS,
    OUTS,
    OWNERS,
    PARTS,
    TYPES,
)
from nxjax.kernels.cpu.ir import LlvmModule, Value

# Words of a plan, each at 8 times its place here:
#   SCOPE...          what it is for: the settings' `call`, the axes in scope and the current mesh
#   args, kwargs      words of `MATCH`; kwargs is 0 where none are expected
#   result            words of `BUILD`
#   run, tape         the function, and its first argument
#   ins, outs         how many
#   consts, constants how many arguments come before the caller's, and for each: the array, words of `MATCH` (a LEAF)
#   donated, gone     how many arguments are given away, and which
#   sizes, types      of results: bytes, and `ArrayType`s
#   sources           of results: where each is from, two words: `NEW_MEMORY` and so on, and which
#   arena             bytes of temporaries, for the error where there is no memory
SCOPE: Final = ("settings", "axes", "mesh")
PLAN: Final = {
    name: 8 * i
    for i, name in enumerate((
        *SCOPE, "args", "kwargs", "result", "run", "tape", "ins", "outs", "consts", "constants",
        "donated", "gone", "sizes", "types", "sources", "arena",
    ))
}  # fmt: skip
CONSTANT: Final = 32  # bytes for each of `constants`
NEW_MEMORY: Final = 0
OVERWRITTEN: Final = 1  # an argument's memory, which was given away
ARGUMENT: Final = 2  # an argument as it was
OBJECT: Final = 3  # always the NumPy array at this address
RESULT: Final = 4  # another result

CALL: Final = "nx_call"
_OTHER: Final = 1  # instead of a result: the plan is for other arguments
_VARIABLE: Final = "nx_variable"
_TRY: Final = "nx_try"
_EXECUTE: Final = "nx_execute"
_DELETE: Final = "nx_delete"
_OWNER: Final = "nx_owner"
_ROOM: Final = 256  # words of a frame on the stack; what needs more asks for memory


def call_functions(module: LlvmModule, layout: ObjectLayout) -> None:
    """Add `CALL`: ``ptr call(ptr self, ptr args, ptr kwargs)``, a class's slot for calls."""
    _variable(module, layout)
    _delete(module, layout)
    _owner(module, layout)
    _execute(module, layout)
    _try(module, layout)
    _call(module, layout)


def _variable(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr variable(ptr variable)``: the value of a context variable, borrowed; null where it has none."""
    c = ObjectCode(module, layout, _VARIABLE, ("ptr",), "ptr")
    f, (variable,) = c.f, c.arguments
    place = f.alloca("ptr", 1, 8)
    failed = c.api("PyContextVar_Get", "i32", variable, c.null(), place)
    with f.if_(failed.ne(0)):
        c.api("PyErr_Clear", "void")
        c.ret(c.null())
    value = f.load("ptr", place, 8)
    c.decref_if(value)  # the context, or the variable as its default, holds it
    c.ret(value)


def _call(module: LlvmModule, layout: ObjectLayout) -> None:
    c = ObjectCode(module, layout, CALL, ("ptr", "ptr", "ptr"), "ptr", inside=False)
    f, (self, args, kwargs) = c.f, c.arguments
    plans = c.pointer(self, layout.plans)
    f.branch_if(plans.ne(0), "some", "slow")
    f.label("some")
    f.branch_if(c.is_exactly(plans, "tuple"), "planned", "slow")
    f.label("planned")
    f.branch_if(f.call(_VARIABLE, "ptr", c.known("trace")).eq(c.known("EVAL")), "outside", "slow")
    f.label("outside")
    settings, axes, mesh = (f.call(_VARIABLE, "ptr", c.known(name)) for name in SCOPE)
    current = list(zip(SCOPE, (c.pointer(settings, layout.settings_call), axes, mesh), strict=True))
    table = f.at(c.pointer(plans, layout.tuple_items), layout.bytes_data)
    c.incref(plans)
    with f.loop(0, c.word(table)) as loop:
        plan = f.load("ptr", f.at(f.at(table, 8), loop.index, 8), 8)
        fits = None
        for name, value in current:
            same = c.pointer(plan, PLAN[name]).eq(value)
            fits = same if fits is None else fits & same
        assert fits is not None
        with f.if_(fits):
            result = f.call(_TRY, "ptr", plan, args, kwargs)
            with f.if_(f.cast("ptrtoint", result, "i64").ne(_OTHER)):
                c.decref(plans)
                c.ret(result)
    c.decref(plans)
    f.branch("slow")
    f.label("slow")
    c.ret(c.api("slow", "ptr", self, args, kwargs))


def _try(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr try(ptr plan, ptr args, ptr kwargs)``: the result; null with an exception; `_OTHER`."""
    c = ObjectCode(module, layout, _TRY, ("ptr", "ptr", "ptr"), "ptr")
    f, (plan, args, kwargs) = c.f, c.arguments
    ins, outs = c.word(plan, PLAN["ins"]), c.word(plan, PLAN["outs"])
    # Owners, arrays and buffers come first: these are cleared.
    cleared = ins + ins + outs
    words = cleared + ins + ins + outs
    frame, here = f.alloca("ptr", FRAME // 8, 8), f.alloca("i64", _ROOM + 8)
    f.store(here, block := f.alloca("ptr", 1, 8), 8)
    with f.if_(words.gt(_ROOM)):
        asked = c.api("PyMem_Malloc", "ptr", words * 8 + 64)
        with f.if_(asked.eq(0)):
            c.ret(c.api("PyErr_NoMemory", "ptr"))
        f.store(asked, block, 8)
    start = f.load("ptr", block, 8)
    with f.loop(0, cleared, 8) as loop:
        f.store(f.constant("<8 x i64>", 0), f.at(start, loop.index, 8), 8)
    place = start
    for offset, count in ((OWNERS, ins), (ARRAYS, ins), (BUFFERS, outs), (INS, ins), (NUMBERS, ins), (OUTS, outs)):
        c.put(place, frame, offset)
        place = f.at(place, count, 8)
    c.put(c.pointer(plan, PLAN["types"]), frame, TYPES)
    c.put(c.null(), frame, PARTS)
    constants = c.pointer(plan, PLAN["constants"])
    with f.loop(0, c.word(plan, PLAN["consts"])) as loop:
        constant = f.at(constants, loop.index, CONSTANT)
        f.branch_if(f.call(MATCH, "ptr", f.at(constant, 8), c.pointer(constant), frame).ne(0), "same", "other")
        f.label("same")
    f.branch_if(f.call(MATCH, "ptr", c.pointer(plan, PLAN["args"]), args, frame).ne(0), "positions", "other")
    f.label("positions")
    named = c.pointer(plan, PLAN["kwargs"])
    f.branch_if(named.ne(0), "wanted", "unwanted")
    f.label("wanted")
    f.branch_if(kwargs.ne(0), "given", "other")
    f.label("given")
    f.branch_if(f.call(MATCH, "ptr", named, kwargs, frame).ne(0), "matched", "other")
    f.label("unwanted")
    f.branch_if(kwargs.eq(0), "matched", "empty")
    f.label("empty")
    f.branch_if(c.api("PyDict_Size", "i64", kwargs).eq(0), "matched", "other")
    f.label("matched")
    made = f.call(_EXECUTE, "ptr", plan, frame)
    f.branch("done")
    f.label("other")
    raised = c.api("PyErr_Occurred", "ptr").ne(0)
    other = f.select(raised, c.null(), f.cast("inttoptr", c.i64(_OTHER), "ptr"))
    f.branch("done")
    f.label("done")
    result = f.phi("ptr", [(made, "matched"), (other, "other")])
    owners, buffers = c.pointer(frame, OWNERS), c.pointer(frame, BUFFERS)
    for rows, count in ((owners, ins), (c.pointer(frame, ARRAYS), ins), (buffers, outs)):
        with f.loop(0, count) as loop:
            c.decref_if(f.load("ptr", f.at(rows, loop.index, 8), 8))
    c.decref_if(c.pointer(frame, PARTS))
    with f.if_(words.gt(_ROOM)):
        c.api("PyMem_Free", "void", start)
    c.ret(result)


def _delete(module: LlvmModule, layout: ObjectLayout) -> None:
    """``void delete(ptr plan, ptr frame)``: arguments that are given away have no elements any more."""
    c = ObjectCode(module, layout, _DELETE, ("ptr", "ptr"), "void")
    f, (plan, frame) = c.f, c.arguments
    count, gone, arrays = c.word(plan, PLAN["donated"]), c.pointer(plan, PLAN["gone"]), c.pointer(frame, ARRAYS)
    nothing = c.known("None")

    with f.loop(0, count) as loop:
        array = f.load("ptr", f.at(arrays, f.load("i64", f.at(gone, loop.index, 8), 8), 8), 8)
        with f.if_(array.ne(0)):
            for offset in (layout.array_data, layout.array_buffer):
                before = c.pointer(array, offset)
                c.incref(nothing)
                c.put(nothing, array, offset)
                c.decref_if(before)
    f.ret()


def _execute(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr execute(ptr plan, ptr frame)``: run with the frame's arguments; the tree of results, or null."""
    c = ObjectCode(module, layout, _EXECUTE, ("ptr", "ptr"), "ptr")
    f, (plan, frame) = c.f, c.arguments
    with f.if_(c.word(plan, PLAN["donated"]).ne(0)):
        f.call(_DELETE, "void", plan, frame)
    sizes, types, sources = (c.pointer(plan, PLAN[n]) for n in ("sizes", "types", "sources"))
    ins, outs, buffers = (c.pointer(frame, n) for n in (INS, OUTS, BUFFERS))
    with f.loop(0, c.word(plan, PLAN["outs"])) as loop:
        size, type = f.load("i64", f.at(sizes, loop.index, 8), 8), f.load("ptr", f.at(types, loop.index, 8), 8)
        source = f.at(sources, loop.index, 16)
        new = c.word(source).eq(NEW_MEMORY)
        with f.if_(new):
            buffer = f.call(NEW, "ptr", size, type)
            c.unless(buffer.ne(0), c.null())
            f.store(buffer, f.at(buffers, loop.index, 8), 8)
            f.store(c.pointer(buffer, DATA), f.at(outs, loop.index, 8), 8)
        with f.if_(~new):
            owner = f.call(_OWNER, "ptr", source, frame, size, type)
            c.unless(owner.ne(0), c.null())
            f.store(owner, f.at(buffers, loop.index, 8), 8)
    status = f.call_pointer(c.pointer(plan, PLAN["run"]), "i64", c.pointer(plan, PLAN["tape"]), ins, outs)
    with f.if_(status.ne(abi.OK)):
        with f.if_(status.eq(abi.NO_MEMORY)):
            c.ret(no_memory(c, c.word(plan, PLAN["arena"])))
        c.ret(c.null())
    cell = f.alloca("ptr", 1, 8)
    f.store(c.pointer(plan, PLAN["result"]), cell, 8)
    c.ret(f.call(BUILD, "ptr", cell, frame))


def _owner(module: LlvmModule, layout: ObjectLayout) -> None:
    """``ptr owner(ptr source, ptr frame, i64 size, ptr type)``: what holds a result that is not in new memory.

    A reference; null with an exception set. An argument that the program writes over has to be nobody else's, and one
    that is handed out must not be a NumPy array of the user's: copies take the place of those.
    """
    c = ObjectCode(module, layout, _OWNER, ("ptr", "ptr", "i64", "ptr"), "ptr")
    f, (source, frame, size, type) = c.f, c.arguments
    which = c.word(source, 8)

    def of(row: int) -> Value:
        return f.load("ptr", f.at(c.pointer(frame, row), which, 8), 8)

    f.switch(c.word(source), [(OVERWRITTEN, "overwritten"), (ARGUMENT, "argument"), (OBJECT, "object")], "result")
    f.label("result")
    other = of(BUFFERS)
    c.incref(other)
    c.ret(other)
    f.label("object")
    object_ = c.pointer(source, 8)
    c.incref(object_)
    c.ret(object_)
    f.label("argument")
    f.branch_if(of(ARRAYS).ne(0), "whole", "copied")
    f.label("whole")
    whole = of(OWNERS)
    c.incref(whole)
    c.ret(whole)
    f.label("overwritten")
    owner = of(OWNERS)
    f.branch_if(owner.ne(0), "owned", "copied")
    f.label("owned")
    f.branch_if(c.is_exactly(owner, "Buffer") & c.word(owner).eq(1), "alone", "copied")
    f.label("alone")  # the frame's is the only reference: the argument has let go
    c.incref(owner)
    c.incref(type)
    before = c.pointer(owner, TYPE)
    c.put(type, owner, TYPE)
    c.decref(before)
    c.ret(owner)
    f.label("copied")
    copy = f.call(NEW, "ptr", size, type)
    c.unless(copy.ne(0), c.null())
    argument = f.at(c.pointer(frame, INS), which, 8)
    f.call("memcpy", "ptr", c.pointer(copy, DATA), f.load("ptr", argument, 8), size)
    f.store(c.pointer(copy, DATA), argument, 8)
    c.ret(copy)
