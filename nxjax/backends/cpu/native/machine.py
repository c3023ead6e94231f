"""The machine that runs tapes: one native function steps through a table of instructions, as `tables` has it.

What changes during a run lies in its *frame*: the words of the kernels (addresses and integers), of which those that
hold addresses of arguments and results are written at the start of each run, and those that move in loops as the loops
go. A tape keeps the frame of its last run for the next one; two runs at once have one each.

An instruction is `INSTRUCTION` bytes: what it is, then what it needs::

    CALL      kernel, words, items                     the whole kernel, on this thread
    HEAVY     the same, weighed
    PARALLEL  kernel, words, items, chunk, scratch     by `threads`
    COPY      words (from, to), bytes                  COPY4, COPY8: so many
    HOST      callable, words                          Python: callable(address of the words)
    REPEAT    count, counter, end                      go to the end if there is no turn
    AGAIN     count, counter, start, moves, n          advance what moves; from the start if there are turns left
    TEST      words (flag), end                        go to the end if the flag is 0
    JUMP      to
    SELECT    words (index), n, table                  go to the case, the index out of range: to the last
    END

Instructions that take long, and each turn of a loop (what is light in it, together), have a weight, their time in
nanoseconds as estimated: when enough have gone by, the clock is read, and every 50 ms the main thread asks CPython for
signals. Knows CPython's interface and no program.
"""

from __future__ import annotations

from typing import Final

from nxjax.backends.cpu.native.abi import COPY_BLOCK, NO_MEMORY, OK, RAISED
from nxjax.backends.cpu.native.sync import (
    System,
    arithmetic,
    clock,
    fetch,
    load,
    null,
    put,
    set_arithmetic,
    store,
    swap_if,
    word,
)
from nxjax.backends.cpu.native.tables import (
    CODE,
    COUNT,
    EXTRA,
    F_BLOCK,
    F_LEFT,
    F_NEXT,
    F_THREAD,
    F_WEIGHT,
    FRAME_HEADER,
    INSTRUCTION,
    MOVE,
    MOVES,
    OP,
    OPCODES,
    RELOCATION,
    T_BLOCK,
    T_CODE,
    T_FRAME,
    T_IMAGE,
    T_IN,
    T_INS,
    T_INSIDE,
    T_KEPT,
    T_LONG,
    T_OUT,
    T_OUTS,
    T_STRICT,
    T_TEMP,
    T_TEMPS,
    T_WORDS,
    TARGET,
    WEIGHT,
    WORDS,
)
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value

_LOOK: Final = 200_000  # ns of work between two looks at the clock
_SIGNALS: Final = 50_000_000  # ns between two questions for signals
_STREAM: Final = 16 * 2**20  # bytes: copies of so many go past the caches
_MAIN: Final = "@nx_main_thread"


def emit(module: LlvmModule, system: System) -> None:
    """Add ``nx_run``, ``nx_copy`` and ``nx_main``."""
    module.globals[_MAIN] = f"{_MAIN} = internal global i64 0, align 8"
    _main(module)
    _poll(module, system)
    _copy(module, system)
    _relocate(module)
    _steps(module)
    _run(module, system)


def _function(module: LlvmModule, name: str, parameters: list[str], result: str, *, seen: bool = False) -> Function:
    f = Function(name, parameters, result, linkage="" if seen else "internal")
    module.add(f)
    return f


def _main(module: LlvmModule) -> None:
    """``void nx_main(i64 thread)``: which thread Python's signals belong to."""
    f = _function(module, "nx_main", ["i64"], "void", seen=True)
    store(f, f.arguments[0], Value(f, "ptr", _MAIN))
    f.ret()


def _lock_taken(f: Function, context: Value) -> Value:
    """Hold the interpreter's lock; gives the thread state if it was given back (else null)."""
    state = word(f, context, F_THREAD, "ptr")
    with f.if_(state.ne(0)):
        f.call("PyEval_RestoreThread", "void", state)
    return state


def _lock_given(f: Function, context: Value, state: Value) -> None:
    """Undo `_lock_taken`."""
    with f.if_(state.ne(0)):
        put(f, f.call("PyEval_SaveThread", "ptr"), context, F_THREAD)


def _poll(module: LlvmModule, system: System) -> None:
    """``i64 nx_poll(ptr context)``: ask for signals if it is time to; `RAISED` if a handler has raised."""
    f = _function(module, "nx_poll", ["ptr"], "i64")
    (context,) = f.arguments
    put(f, _LOOK, context, F_LEFT)
    main = load(f, Value(f, "ptr", _MAIN))
    here = f.call("PyThread_get_thread_ident", "i64")
    if system.name == "win32":  # an unsigned long, which has 32 bits there
        here = here & 0xFFFF_FFFF
    with f.if_(main.ne(here)):
        f.ret(f.constant("i64", OK))
    if system.clock >= 0:
        now = clock(f, system)
        due = word(f, context, F_NEXT)
        with f.if_(due.eq(0)):
            put(f, now + _SIGNALS, context, F_NEXT)
            f.ret(f.constant("i64", OK))
        with f.if_(now.lt(due)):
            f.ret(f.constant("i64", OK))
        put(f, now + _SIGNALS, context, F_NEXT)
    state = _lock_taken(f, context)
    raised = f.call("PyErr_CheckSignals", "i32")
    _lock_given(f, context, state)
    f.ret(f.select(raised.ne(0), f.constant("i64", RAISED), OK))


def _copy(module: LlvmModule, system: System) -> None:
    """A kernel: words are from, to, bytes; an item is a block of `COPY_BLOCK` bytes.

    Large copies go past the caches, which would first read what is written over.
    """
    f = _function(module, "nx_copy", ["ptr", "i64", "i64", "ptr"], "void", seen=True)
    words, lo, hi, _ = f.arguments
    start, total = lo * COPY_BLOCK, word(f, words, 16)
    nbytes = f.intrinsic("smin", "i64", hi * COPY_BLOCK, total) - start
    source, target = f.at(word(f, words, 0, "ptr"), start), f.at(word(f, words, 8, "ptr"), start)
    large = total.uge(_STREAM) & (f.cast("ptrtoint", target, "i64") & 63).eq(0)
    f.branch_if(large & source.ne(target), "stream", "plain")
    f.label("stream")
    whole = nbytes & -256
    with f.loop(0, whole, 256) as turn:
        lines = [f.load("<64 x i8>", f.at(f.at(source, turn.index), i)) for i in range(0, 256, 64)]
        for i, line in enumerate(lines):
            f.store(line, f.at(f.at(target, turn.index), 64 * i), 64, stream=True)
    if system.processor in ("x86_64", "amd64"):
        f.intrinsic("x86.sse.sfence", "void")  # such stores are not ordered with those that follow
    f.call("memcpy", "ptr", f.at(target, whole), f.at(source, whole), nbytes - whole)
    f.ret()
    f.label("plain")
    f.call("memmove", "ptr", target, source, nbytes)
    f.ret()


def _relocate(module: LlvmModule) -> None:
    """Write addresses to words of a frame: those that ``table`` names, from an array of addresses."""
    f = _function(module, "nx_relocate", ["ptr", "ptr", "i64", "ptr"], "void")
    frame, table, count, addresses = f.arguments
    with f.loop(0, count) as turn:
        entry = f.at(table, turn.index, RELOCATION)
        address = f.load("i64", f.at(addresses, word(f, entry, 8)), 8) + word(f, entry, 16)
        f.store(address, f.at(frame, word(f, entry, 0)), 8)
    f.ret()


def _steps(module: LlvmModule) -> None:
    """``i64 nx_steps(ptr frame, ptr code, ptr scratch)``: the instructions, until one ends or fails.

    ``turn`` picks the next instruction's code; every code gives the one after it to ``turn``, or by way of ``weigh``
    where it has taken time. Both are written last, when all that come to them are known.
    """
    f = _function(module, "nx_steps", ["ptr", "ptr", "ptr"], "i64")
    frame, code, scratch = f.arguments
    here, following, weighed = Value(f, "ptr", "%here"), Value(f, "ptr", "%following"), Value(f, "ptr", "%weighed")
    light: list[tuple[Value, str]] = [(code, "entry")]
    heavy: list[tuple[Value, str]] = []

    def goto(target: Value) -> None:
        light.append((target, f.block))
        f.branch("turn")

    def weigh(target: Value) -> None:
        """Go on at ``target``; this instruction's weight counts."""
        heavy.append((target, f.block))
        f.branch("weigh")

    def words() -> Value:
        return f.at(frame, word(f, here, WORDS))

    def kernel() -> Value:
        return word(f, here, CODE, "ptr")

    def count() -> Value:
        return word(f, here, COUNT)

    def target() -> Value:
        return word(f, here, TARGET, "ptr")

    f.branch("turn")
    for name, go in (("call", goto), ("heavy", weigh)):
        f.label(name)
        f.call_pointer(kernel(), "void", words(), f.constant("i64", 0), count(), scratch)
        go(following)

    f.label("parallel")
    chunk, bytes_ = word(f, here, TARGET), word(f, here, EXTRA)
    put(f, word(f, here, WEIGHT), frame, F_WEIGHT)
    status = f.call("nx_parallel_for", "i64", kernel(), words(), count(), chunk, bytes_, scratch, frame)
    f.branch_if(status.ne(0), "raised", "parallel.done")
    f.label("parallel.done")
    weigh(following)

    for name, type in (("copy4", "i32"), ("copy8", "i64")):
        f.label(name)
        both = words()
        f.store(f.load(type, word(f, both, 0, "ptr"), 1), word(f, both, 8, "ptr"), 1)
        goto(following)
    f.label("copy")
    both = words()
    f.call("memmove", "ptr", word(f, both, 8, "ptr"), word(f, both, 0, "ptr"), count())
    goto(following)

    f.label("host")
    state = _lock_taken(f, frame)
    arguments = f.call("PyTuple_New", "ptr", f.constant("i64", 1))
    f.branch_if(arguments.eq(0), "host.failed", "host.packed")
    f.label("host.packed")
    number = f.call("PyLong_FromVoidPtr", "ptr", words())
    f.call("PyTuple_SetItem", "i32", arguments, f.constant("i64", 0), number)  # the tuple has the number now
    f.branch_if(number.eq(0), "host.dropped", "host.ready")
    f.label("host.ready")
    result = f.call("PyObject_Call", "ptr", kernel(), arguments, null(f))
    f.branch_if(result.eq(0), "host.dropped", "host.done")
    f.label("host.done")
    f.call("Py_DecRef", "void", result)
    f.call("Py_DecRef", "void", arguments)
    _lock_given(f, frame, state)
    weigh(following)
    f.label("host.dropped")
    f.call("Py_DecRef", "void", arguments)
    f.branch("host.failed")
    f.label("host.failed")
    _lock_given(f, frame, state)
    f.branch("raised")

    f.label("repeat")
    turns = count()
    f.store(turns, words(), 8)
    goto(f.select(turns.eq(0), target(), following))

    f.label("again")
    counter, moves = words(), kernel()
    turns = f.load("i64", counter, 8) - 1
    f.store(turns, counter, 8)
    over = turns.eq(0)
    with f.loop(0, word(f, here, MOVES)) as turn:
        move = f.at(moves, turn.index, MOVE)
        moved = f.at(frame, word(f, move, 0))
        back = f.select(over, word(f, move, 16), 0)
        f.store(f.load("i64", moved, 8) + word(f, move, 8) - back, moved, 8)
    weigh(f.select(over, following, target()))

    f.label("test")
    flag = f.load("i8", word(f, words(), 0, "ptr"), 1)
    goto(f.select(flag.eq(0), target(), following))

    f.label("jump")
    weigh(target())

    f.label("select")
    index = f.load("i32", word(f, words(), 0, "ptr"), 4)
    most = count() - 1
    case = f.intrinsic("umin", "i64", index.convert("i64"), most)
    goto(f.load("ptr", f.at(kernel(), case, 8), 8))

    f.label("end")
    f.ret(f.constant("i64", OK))
    f.label("raised")
    f.ret(f.constant("i64", RAISED))

    f.label("weigh")
    f.line(f"{weighed.name} = {_phi(heavy)}")
    left = word(f, frame, F_LEFT) - word(f, here, WEIGHT)
    put(f, left, frame, F_LEFT)
    light.append((weighed, "weigh"))
    f.branch_if(left.lt(0), "look", "turn")
    f.label("look")
    light.append((weighed, "look"))
    f.branch_if(f.call("nx_poll", "i64", frame).ne(0), "raised", "turn")
    f.label("turn")
    f.line(f"{here.name} = {_phi(light)}")
    f.line(f"{following.name} = getelementptr i8, ptr {here.name}, i64 {INSTRUCTION}")
    f.switch(word(f, here, OP), list(enumerate(OPCODES)), "end")


def _phi(incoming: list[tuple[Value, str]]) -> str:
    return "phi ptr " + ", ".join(f"[ {value.name}, %{block} ]" for value, block in incoming)


def _run(module: LlvmModule, system: System) -> None:
    """See `abi`.

    A library may have left this thread another way of rounding, or have subnormal numbers taken for 0. A strict tape
    does not see that, and the library finds it again.
    """
    f = _function(module, "nx_run", ["ptr", "ptr", "ptr"], "i64", seen=True)
    tape, ins, outs = f.arguments
    with f.if_(word(f, tape, T_STRICT).ne(0)):
        found = arithmetic(f, system)
        if found is not None:
            control, plain = found
            with f.if_(~plain):
                set_arithmetic(f, system)
                status = f.call("nx_run", "i64", tape, ins, outs)
                set_arithmetic(f, system, control)
                f.ret(status)
    kept = f.at(tape, T_KEPT)
    old = fetch(f, "xchg", kept, null(f))
    before = f.block
    f.branch_if(old.eq(0), "new", "framed")
    f.label("new")
    made = f.call("nx_acquire", "ptr", word(f, tape, T_FRAME))
    f.branch_if(made.eq(0), "none", "fresh")
    f.label("fresh")
    f.call("memcpy", "ptr", f.at(made, FRAME_HEADER), word(f, tape, T_IMAGE, "ptr"), word(f, tape, T_WORDS))
    put(f, null(f), made, F_BLOCK)
    f.label("framed")
    frame = f.phi("ptr", [(old, before), (made, "fresh")])
    inside = word(f, tape, T_INSIDE)
    f.branch_if(inside.eq(0), "own", "within")
    f.label("own")
    taken = f.call("nx_acquire", "ptr", word(f, tape, T_BLOCK))
    f.branch_if(taken.eq(0), "no.block", "based")
    f.label("within")
    part = f.at(frame, inside)
    f.label("based")
    block = f.phi("ptr", [(taken, "own"), (part, "within")])

    with f.if_(block.ne(word(f, frame, F_BLOCK, "ptr"))):
        put(f, block, frame, F_BLOCK)
        temps = word(f, tape, T_TEMP, "ptr")
        f.call("nx_relocate", "void", frame, temps, word(f, tape, T_TEMPS), f.at(frame, F_BLOCK))
    f.call("nx_relocate", "void", frame, word(f, tape, T_IN, "ptr"), word(f, tape, T_INS), ins)
    f.call("nx_relocate", "void", frame, word(f, tape, T_OUT, "ptr"), word(f, tape, T_OUTS), outs)
    put(f, _LOOK, frame, F_LEFT)
    put(f, 0, frame, F_NEXT)
    put(f, null(f), frame, F_THREAD)
    with f.if_(word(f, tape, T_LONG).ne(0)):
        put(f, f.call("PyEval_SaveThread", "ptr"), frame, F_THREAD)
    status = f.call("nx_steps", "i64", frame, word(f, tape, T_CODE, "ptr"), block)
    _lock_taken(f, frame)
    with f.if_(inside.eq(0)):
        f.call("nx_release", "i64", block)
    # The words of a run that failed may have moved: its frame is not kept.
    with f.if_(status.ne(OK)):
        f.call("nx_release", "i64", frame)
        f.ret(status)
    _keep(f, kept, frame)
    f.ret(status)

    f.label("no.block")
    _keep(f, kept, frame)
    f.label("none")
    f.ret(f.constant("i64", NO_MEMORY))


def _keep(f: Function, kept: Value, frame: Value) -> None:
    """Leave a frame for the next run, unless another has been left."""
    with f.if_(~swap_if(f, kept, null(f), frame)):
        f.call("nx_release", "i64", frame)
