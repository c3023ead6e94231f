"""Threads: a kernel's items in chunks, taken by whoever is free, the caller among them.

Who takes which items does not matter to a kernel, whose items are independent. They are cut into a range for each
thread, and ranges into chunks. Each thread takes those of its range first, then what is left of others': so what one
kernel wrote in a core's caches, the next one mostly reads there. One region at a time has the helpers: a caller that
finds them taken does its work alone, so callers never wait for each other.

    caller    describe the region; number it; wake helpers; take chunks; wait until all items are done
    helper    wait for a region with a new number; wake two more; take chunks; say how many items it has done

A line of memory that two cores write costs as much as a hundred additions each time it changes hands, and short regions
feel it. So the region is one line, which the caller alone writes, and each helper says what it has done in a line of
its own. Nobody enters: to take a chunk is to take part. What is taken of a range is marked with the region's number,
so a helper that comes late finds nothing to take, and nobody has waited for it: more threads than processors cost
little. Helpers wait awake for a while (not where there are more of them than processors), then sleep on a condition
variable of their own. Plain POSIX, no system call of one system's; where there are no POSIX threads, the caller does
everything.

To wake a helper costs the caller ten microseconds, and the helper comes later still; one that is awake costs less than
one. So helpers outwait the parts of a program that one thread does, and give the processor to whoever wants it
meanwhile. Helpers that sleep are woken when regions of a short time together would have gained by them what waking
costs (`nx_worth`): a short program that is called now and then runs on one thread, and one that is called again and
again on all.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

from nxjax.backends.cpu.native.sync import (
    PTHREAD_BYTES,
    System,
    clock,
    fetch,
    forever,
    load,
    null,
    pause,
    put,
    set_arithmetic,
    store,
    swap_if,
    word,
)
from nxjax.backends.cpu.native.tables import F_WEIGHT
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value

MOST: Final = 255  # helpers
_STACK: Final = 4 * 2**20  # bytes; some systems give a thread no more than 128 KiB
_OWN_KEPT: Final = 256 * 1024  # bytes of scratch that a helper keeps between regions
# After the turns that it waits awake, a helper waits for so many times as many, and gives the processor away every so
# many of them.
_PATIENCE: Final = 8
_YIELD: Final = 64
# Sleeping helpers are woken for so many nanoseconds of estimated work, if no longer lies between two pieces of it.
_WORTH_NS: Final = 50_000
_APART_NS: Final = 1_000_000
# Nobody looks at signals within a region of less estimated work: to look takes as long as a small chunk.
_SHORT_NS: Final = 1_000_000

# State. What several threads write lies on cache lines of its own.
# The caller's: whether there is one, items that are to be done, what a signal's handler gave.
_BUSY, _EXPECTED, _STATUS = 0, 8, 16
# The region, in the line that helpers look at while they wait: its number (odd while the rest is being written),
# kernel, words, items, chunk, bytes of scratch, helpers that may take part.
_SEQUENCE, _KERNEL, _WORDS, _ITEMS, _CHUNK, _SCRATCH, _HELPERS = range(128, 128 + 56, 8)
# Settings and counts: threads wanted, turns that a helper waits awake, helpers that exist; whether the caller sleeps.
_WANTED, _SPINS, _STARTED, _WAITS = range(192, 224, 8)
# Of the regions that found helpers asleep: when the last was, and the work since they were last woken.
_ASKED, _MISSED = 224, 232
_EMPTY_LOCK, _EMPTY = 256, 256 + PTHREAD_BYTES  # the caller sleeps here until all items are done
_PARTS: Final = 512  # a cache line for the caller and each helper
# What is taken of this range; the region that it took part in last, and how many items it did there.
_TAKEN, _REGION, _DONE = 0, 8, 16
_RANGES: Final = 8  # ranges at most: of more threads, several begin in one
_TAKEN_BITS: Final = 24
_TAKEN_MOST: Final = 2**_TAKEN_BITS - 1
_SLOTS: Final = _PARTS + 64 * (MOST + 1)
# A helper's slot: whether it sleeps, which callers look at; the last region it has seen, its scratch (address, bytes),
# its number, which are its own.
_SLEEPS, _SEEN, _OWN, _OWN_BYTES, _NUMBER, _LOCK, _WAKE = 0, 64, 72, 80, 88, 128, 128 + PTHREAD_BYTES
_SLOT: Final = 128 + 2 * PTHREAD_BYTES
_STATE: Final = "@nx_threads"

_SET_MASK: Final = int(getattr(signal, "SIG_SETMASK", 2))
_FAULTS: Final = tuple(int(getattr(signal, n)) for n in ("SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV") if hasattr(signal, n))


def emit(module: LlvmModule, system: System) -> None:
    """Add ``nx_parallel_for``, ``nx_threads_set``, ``nx_threads_reset``, ``nx_threads_statistics`` and ``nx_forked``.

    Needs ``nx_acquire``, ``nx_release``, ``nx_pool_unlock`` (`pool`) and ``nx_poll`` (`machine`).
    """
    size = _SLOTS + _SLOT * MOST
    module.globals[_STATE] = f"{_STATE} = internal global [{size} x i8] zeroinitializer, align 64"
    _serial(module)
    _set(module, system)
    _statistics(module)
    if system.threads:
        for write in (_wake, _worth, _chunks, _done, _helper, _start, _close):
            write(module, system)
    _reset(module, system)
    _forked(module)
    _parallel_for(module, system)


def _state(f: Function) -> Value:
    return Value(f, "ptr", _STATE)


def _slot(f: Function, number: Value) -> Value:
    """The slot of helper ``number``, from 1."""
    return f.at(f.at(_state(f), _SLOTS - _SLOT), number, _SLOT)


def _part(f: Function, number: Value, offset: int) -> Value:
    """A word of the line of thread ``number``; 0: the caller."""
    return f.at(f.at(_state(f), _PARTS + offset), number, 64)


def _function(module: LlvmModule, name: str, parameters: list[str], result: str, *, seen: bool = False) -> Function:
    f = Function(name, parameters, result, linkage="" if seen else "internal")
    module.add(f)
    return f


def _serial(module: LlvmModule) -> None:
    """All chunks on this thread, with a look at signals between two of them."""
    f = _function(module, "nx_serial", ["ptr", "ptr", "i64", "i64", "ptr", "ptr"], "i64")
    kernel, words, items, chunk, scratch, context = f.arguments
    with f.if_(context.eq(0)):
        f.call_pointer(kernel, "void", words, f.constant("i64", 0), items, scratch)
        f.ret(f.constant("i64", 0))
    with f.loop(0, items, chunk) as turn:
        hi = f.intrinsic("smin", "i64", turn.index + chunk, items)
        f.call_pointer(kernel, "void", words, turn.index, hi, scratch)
        status = f.call("nx_poll", "i64", context)
        with f.if_(status.ne(0)):
            f.ret(status)
    f.ret(f.constant("i64", 0))


def _wake(module: LlvmModule, _: System) -> None:
    """Wake the two helpers below ``number`` (0: the caller) in the tree of the ``most`` that may take part."""
    f = _function(module, "nx_wake", ["i64", "i64"], "void")
    number, most = f.arguments
    for child in (number * 2 + 1, number * 2 + 2):
        with f.if_(child.ule(most)):
            slot = _slot(f, child)
            with f.if_(load(f, f.at(slot, _SLEEPS)).ne(0)):
                # With the lock once had, it either waits or has seen the region; held on, it would wait for the lock.
                f.call("pthread_mutex_lock", "i32", f.at(slot, _LOCK))
                f.call("pthread_mutex_unlock", "i32", f.at(slot, _LOCK))
                f.call("pthread_cond_signal", "i32", f.at(slot, _WAKE))
    f.ret()


def _worth(module: LlvmModule, system: System) -> None:
    """``i64 nx_worth(ptr context)``: whether a region is to wake helpers that sleep; the owner of the region asks.

    Work that is not known (no ``context``) is worth it, and all where there is no clock.
    """
    f = _function(module, "nx_worth", ["ptr"], "i64", seen=True)
    (context,) = f.arguments
    yes, no = f.constant("i64", 1), f.constant("i64", 0)
    if system.clock >= 0:
        with f.if_(context.ne(0)):
            state = _state(f)
            now = clock(f, system)
            missed = f.select((now - word(f, state, _ASKED)).ult(_APART_NS), word(f, state, _MISSED), no)
            missed = missed + word(f, context, F_WEIGHT)
            enough = missed.uge(_WORTH_NS)
            put(f, now, state, _ASKED)
            put(f, f.select(enough, no, missed), state, _MISSED)
            f.ret(f.select(enough, yes, no))
    f.ret(yes)


def _awaited(f: Function, system: System, done: Callable[[], Value], to: str) -> None:
    """Wait awake, for a while; go ``to`` where it is ``done``. Others get the processor when it takes longer."""
    spins = load(f, f.at(_state(f), _SPINS))
    with f.loop(0, spins):
        with f.if_(done()):
            f.branch(to)
        pause(f, system)
    with f.loop(0, spins * _PATIENCE, _YIELD):
        with f.loop(0, _YIELD):
            with f.if_(done()):
                f.branch(to)
            pause(f, system)
        f.call(system.symbols[2], "i32")


def _ranges(f: Function, helpers: Value) -> Value:
    return f.intrinsic("umin", "i64", helpers + 1, f.constant("i64", _RANGES))


def _cut(items: Value, ranges: Value, number: Value) -> tuple[Value, Value]:
    """The first item of a range, and how many it has: one or more of every range."""
    first = (number * items).udiv(ranges)
    return first, ((number + 1) * items).udiv(ranges) - first


def _chunks(module: LlvmModule, _: System) -> None:
    """Take chunks of the region until there is none; the caller (with its ``context``) looks at signals.

    Gives how many items it has done. Helper ``number`` (0: the caller) begins in its own range. A range's word is the
    region's mark, and how many of its chunks are taken. An older mark counts as 0, so nobody has to clear it. A newer
    one is the sign for a helper that it is late. (So is one that is as old as half of all numbers; the caller takes
    what helpers leave.) The description is of one region, but that may be over. Then all ranges of it are taken, so a
    chunk that was taken is one of a region that waits for it.
    """
    f = _function(module, "nx_chunks", ["ptr", "ptr", *["i64"] * 3, "ptr", "ptr", "i64", "i64"], "i64")
    scratch, context, number, sequence, helpers, kernel, words, items, chunk = f.arguments
    mark, ranges = sequence << (_TAKEN_BITS - 1), _ranges(f, helpers)
    late = f.select(number.eq(0), f.constant("i64", 0), f.constant("i64", _TAKEN_MOST))
    did = f.alloca("i64", align=8)
    f.store(f.constant("i64", 0), did, 8)
    with f.loop(0, ranges) as part:
        own = (number + part.index).urem(ranges)
        first, size = _cut(items, ranges, own)
        place = _part(f, own, _TAKEN)
        with forever(f) as (again, after):
            taken = load(f, place)
            since = taken - mark
            i = f.select(since.ule(_TAKEN_MOST), since, f.select(since.lt(0), f.constant("i64", 0), late))
            begin = i * chunk
            some, mine = f.fresh("t")[1:], f.fresh("t")[1:]
            f.branch_if(begin.ult(size), some, after)
            f.label(some)
            f.branch_if(swap_if(f, place, taken, mark + i + 1), mine, again)
            f.label(mine)
            end = f.intrinsic("umin", "i64", begin + chunk, size)
            f.call_pointer(kernel, "void", words, first + begin, first + end, scratch)
            f.store(f.load("i64", did, 8) + (end - begin), did, 8)
            watched = f.fresh("t")[1:]
            f.branch_if(context.eq(0), again, watched)
            f.label(watched)
            status = f.call("nx_poll", "i64", context)
            with f.if_(status.ne(0)):
                state = _state(f)
                put(f, status, state, _STATUS)
                put(f, 0, state, _EXPECTED)
                with f.loop(0, ranges) as each:  # nobody takes another, and what was taken is what is to be done
                    last = fetch(f, "xchg", _part(f, each.index, _TAKEN), mark + _TAKEN_MOST) - mark
                    whole = _cut(items, ranges, each.index)[1]
                    given = f.intrinsic("umin", "i64", last * chunk, whole)
                    given = f.select(last.ule(_TAKEN_MOST), given, f.constant("i64", 0))
                    put(f, word(f, state, _EXPECTED) + given, state, _EXPECTED)
                f.ret(f.load("i64", did, 8))
    f.ret(f.load("i64", did, 8))


def _done(module: LlvmModule, _: System) -> None:
    """Items that helpers have done of the region."""
    f = _function(module, "nx_done", [], "i64")
    state = _state(f)
    sequence, sum_ = word(f, state, _SEQUENCE), f.alloca("i64", align=8)
    f.store(f.constant("i64", 0), sum_, 8)
    with f.loop(1, word(f, state, _HELPERS) + 1) as turn, f.if_(load(f, _part(f, turn.index, _REGION)).eq(sequence)):
        f.store(f.load("i64", sum_, 8) + load(f, _part(f, turn.index, _DONE)), sum_, 8)
    f.ret(f.load("i64", sum_, 8))


def _helper(module: LlvmModule, system: System) -> None:
    """What a helper does, for ever."""
    f = _function(module, "nx_helper", ["ptr"], "ptr", seen=True)
    (slot,) = f.arguments
    state = _state(f)
    sequence = f.at(state, _SEQUENCE)
    seen, lock_, wake = f.at(slot, _SEEN), f.at(slot, _LOCK), f.at(slot, _WAKE)
    number = word(f, slot, _NUMBER)
    set_arithmetic(f, system)  # not that of the thread that started it

    f.label("wait")
    _awaited(f, system, lambda: load(f, sequence).ne(f.load("i64", seen, 8)), "look")
    f.label("sleep")
    f.call("pthread_mutex_lock", "i32", lock_)
    # A caller first counts the region, then asks who sleeps; this is the other way round, so one of the two sees it.
    store(f, 1, f.at(slot, _SLEEPS))
    f.label("asleep")
    f.branch_if(load(f, sequence).eq(f.load("i64", seen, 8)), "more", "awake")
    f.label("more")
    f.call("pthread_cond_wait", "i32", wake, lock_)
    f.branch("asleep")
    f.label("awake")
    store(f, 0, f.at(slot, _SLEEPS))
    f.call("pthread_mutex_unlock", "i32", lock_)

    f.label("look")
    region = load(f, sequence)
    f.store(region, seen, 8)
    kernel, words = [load(f, f.at(state, o), "ptr") for o in (_KERNEL, _WORDS)]
    items, chunk, needed, helpers = [load(f, f.at(state, o)) for o in (_ITEMS, _CHUNK, _SCRATCH, _HELPERS)]
    # The number is the same before and after, and is that of a region: all of this was read of one.
    f.branch_if((region & 1).ne(0), "wait", "whole")
    f.label("whole")
    f.branch_if(load(f, sequence).eq(region), "asked", "wait")
    f.label("asked")
    f.branch_if(number.ule(helpers), "inside", "sleep")

    f.label("inside")
    f.call("nx_wake", "void", number, helpers)
    f.branch_if(needed.ugt(word(f, slot, _OWN_BYTES)), "grow", "work")
    f.label("grow")
    f.call("nx_release", "i64", word(f, slot, _OWN, "ptr"))
    memory = f.call("nx_acquire", "ptr", needed)
    put(f, memory, slot, _OWN)
    put(f, f.select(memory.eq(0), f.constant("i64", 0), needed), slot, _OWN_BYTES)
    f.branch_if(memory.eq(0), "wait", "work")  # without memory the others do it
    f.label("work")
    scratch = word(f, slot, _OWN, "ptr")
    did = f.call("nx_chunks", "i64", scratch, null(f), number, region, helpers, kernel, words, items, chunk)
    with f.if_(word(f, slot, _OWN_BYTES).ugt(_OWN_KEPT)):
        f.call("nx_release", "i64", word(f, slot, _OWN, "ptr"))
        put(f, null(f), slot, _OWN)
        put(f, 0, slot, _OWN_BYTES)
    f.branch_if(did.eq(0), "wait", "done")
    f.label("done")
    store(f, did, _part(f, number, _DONE), "release")
    store(f, region, _part(f, number, _REGION))
    # A caller first says that it sleeps, then looks at what is done; this is the other way round.
    f.branch_if(load(f, f.at(state, _WAITS)).eq(0), "wait", "last")
    f.label("last")
    f.call("pthread_mutex_lock", "i32", f.at(state, _EMPTY_LOCK))
    f.call("pthread_cond_signal", "i32", f.at(state, _EMPTY))
    f.call("pthread_mutex_unlock", "i32", f.at(state, _EMPTY_LOCK))
    f.branch("wait")


def _start(module: LlvmModule, _: System) -> None:
    """Bring the helpers to ``count``, as far as the system gives threads; gives how many there are.

    Only the owner of the region calls this. Helpers take no signals but those of their own faults: the others are for
    the threads that Python knows.
    """
    f = _function(module, "nx_start", ["i64"], "i64")
    (count,) = f.arguments
    state = _state(f)
    with f.if_(load(f, f.at(state, _STARTED)).uge(count)):
        f.ret(count)
    every, before, thread = f.alloca("i8", 128), f.alloca("i8", 128), f.alloca("i64", align=8)
    attributes = f.alloca("i8", PTHREAD_BYTES)
    f.call("pthread_attr_init", "i32", attributes)
    f.call("pthread_attr_setstacksize", "i32", attributes, f.constant("i64", _STACK))
    f.call("sigfillset", "i32", every)
    for fault in _FAULTS:
        f.call("sigdelset", "i32", every, f.constant("i32", fault))
    f.call("pthread_sigmask", "i32", f.constant("i32", _SET_MASK), every, before)
    f.label("turn")
    have = load(f, f.at(state, _STARTED))
    f.branch_if(have.ult(count), "one", "done")
    f.label("one")
    slot = _slot(f, have + 1)
    put(f, load(f, f.at(state, _SEQUENCE)), slot, _SEEN)
    put(f, have + 1, slot, _NUMBER)
    store(f, 0, f.at(slot, _SLEEPS))
    f.call("pthread_mutex_init", "i32", f.at(slot, _LOCK), null(f))
    f.call("pthread_cond_init", "i32", f.at(slot, _WAKE), null(f))
    code = Value(f, "ptr", "@nx_helper")
    failed = f.call("pthread_create", "i32", thread, attributes, code, slot)
    f.branch_if(failed.ne(0), "done", "made")
    f.label("made")
    f.call("pthread_detach", "i32", f.load("i64", thread, 8))
    store(f, have + 1, f.at(state, _STARTED))
    f.branch("turn")
    f.label("done")
    f.call("pthread_attr_destroy", "i32", attributes)
    f.call("pthread_sigmask", "i32", f.constant("i32", _SET_MASK), before, null(f))
    f.ret(f.intrinsic("umin", "i64", load(f, f.at(state, _STARTED)), count))


def _close(module: LlvmModule, system: System) -> None:
    """Wait until helpers have done all items but the ``mine`` of the caller."""
    f = _function(module, "nx_close", ["i64"], "void")
    (mine,) = f.arguments
    state = _state(f)
    rest = word(f, state, _EXPECTED) - mine
    _awaited(f, system, lambda: f.call("nx_done", "i64").eq(rest), "done")
    f.call("pthread_mutex_lock", "i32", f.at(state, _EMPTY_LOCK))
    store(f, 1, f.at(state, _WAITS))
    f.label("turn")
    f.branch_if(f.call("nx_done", "i64").eq(rest), "last", "more")
    f.label("more")
    f.call("pthread_cond_wait", "i32", f.at(state, _EMPTY), f.at(state, _EMPTY_LOCK))
    f.branch("turn")
    f.label("last")
    store(f, 0, f.at(state, _WAITS))
    f.call("pthread_mutex_unlock", "i32", f.at(state, _EMPTY_LOCK))
    f.branch("done")
    f.label("done")
    f.ret()


def _parallel_for(module: LlvmModule, system: System) -> None:
    """See `abi`."""
    f = _function(module, "nx_parallel_for", ["ptr", "ptr", "i64", "i64", "i64", "ptr", "ptr"], "i64", seen=True)
    kernel, words, items, chunk, scratch_bytes, scratch, context = f.arguments
    state = _state(f)
    busy = f.at(state, _BUSY)
    place = f.alloca("ptr", align=8)
    f.store(context, place, 8)
    with f.if_(context.ne(0)), f.if_(word(f, context, F_WEIGHT).ult(_SHORT_NS)):
        f.store(null(f), place, 8)
    watched = f.load("ptr", place, 8)
    if system.threads:
        chunk = f.intrinsic("umax", "i64", chunk, items.lshr(_TAKEN_BITS - 1))
        wanted = load(f, f.at(state, _WANTED))
        helpers = f.intrinsic("umin", "i64", wanted, (items + chunk - 1).udiv(chunk)) - 1
        f.branch_if(helpers.gt(0), "several", "alone")
        f.label("several")
        f.branch_if(load(f, busy).eq(0), "free", "alone")
        f.label("free")
        f.branch_if(fetch(f, "xchg", busy, 1).eq(0), "mine", "alone")
        f.label("mine")
        have = f.call("nx_start", "i64", helpers)
        # Releases are in order: who reads one sees those before it.
        sequence = word(f, state, _SEQUENCE)
        store(f, sequence + 1, f.at(state, _SEQUENCE), "release")
        for x, offset in ((kernel, _KERNEL), (words, _WORDS), (items, _ITEMS), (chunk, _CHUNK),
                          (scratch_bytes, _SCRATCH), (have, _HELPERS)):  # fmt: skip
            store(f, x, f.at(state, offset), "release")
        fetch(f, "xchg", f.at(state, _SEQUENCE), sequence + 2)
        put(f, items, state, _EXPECTED)
        put(f, 0, state, _STATUS)
        first, second = [load(f, f.at(_slot(f, f.constant("i64", n)), _SLEEPS)) for n in (1, 2)]
        asleep = first | f.select(have.uge(2), second, 0)
        with f.if_(asleep.ne(0)), f.if_(f.call("nx_worth", "i64", context).ne(0)):
            f.call("nx_wake", "void", f.constant("i64", 0), have)
        zero = f.constant("i64", 0)
        did = f.call("nx_chunks", "i64", scratch, watched, zero, sequence + 2, have, kernel, words, items, chunk)
        f.call("nx_close", "void", did)
        status = word(f, state, _STATUS)
        store(f, 0, busy, "release")
        f.ret(status)
    f.label("alone")
    f.ret(f.call("nx_serial", "i64", kernel, words, items, chunk, scratch, watched))


def _set(module: LlvmModule, _: System) -> None:
    """``void nx_threads_set(i64 threads, i64 spins)``: from the next region on."""
    f = _function(module, "nx_threads_set", ["i64", "i64"], "void", seen=True)
    threads, spins = f.arguments
    store(f, f.intrinsic("umin", "i64", threads, f.constant("i64", MOST + 1)), f.at(_state(f), _WANTED))
    store(f, spins, f.at(_state(f), _SPINS))
    f.ret()


def _reset(module: LlvmModule, system: System) -> None:
    """``void nx_threads_reset()``: as if no helper had ever been; at the start, and in a forked child.

    The helpers' scratch goes back to the pool: whoever used it is in the parent.
    """
    f = _function(module, "nx_threads_reset", [], "void", seen=True)
    state = _state(f)
    if system.threads:
        with f.loop(1, load(f, f.at(state, _STARTED)) + 1) as turn:
            slot = _slot(f, turn.index)
            f.call("nx_release", "i64", word(f, slot, _OWN, "ptr"))
            put(f, null(f), slot, _OWN)
            put(f, 0, slot, _OWN_BYTES)
        f.call("pthread_mutex_init", "i32", f.at(state, _EMPTY_LOCK), null(f))
        f.call("pthread_cond_init", "i32", f.at(state, _EMPTY), null(f))
    for offset in (_STARTED, _WAITS, _BUSY):
        store(f, 0, f.at(state, offset))
    # A region that was being described in the parent has no number here.
    sequence = f.at(state, _SEQUENCE)
    store(f, load(f, sequence) + 1 & -2, sequence)
    f.ret()


def _forked(module: LlvmModule) -> None:
    """``void nx_forked()``: what a forked child does first."""
    f = _function(module, "nx_forked", [], "void", seen=True)
    f.call("nx_pool_unlock", "void")
    f.call("nx_threads_reset", "void")
    f.ret()


def _statistics(module: LlvmModule) -> None:
    """``void nx_threads_statistics(ptr out)``: threads wanted, helpers that exist, regions so far."""
    f = _function(module, "nx_threads_statistics", ["ptr"], "void", seen=True)
    (out,) = f.arguments
    regions = load(f, f.at(_state(f), _SEQUENCE)).lshr(1)
    found = [load(f, f.at(_state(f), offset)) for offset in (_WANTED, _STARTED)]
    for i, x in enumerate((*found, regions)):
        put(f, x, out, 8 * i)
    f.ret()
